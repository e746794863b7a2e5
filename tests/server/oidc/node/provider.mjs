// oidc-provider, with its own pages for login and consent: PROVIDER.mjs PACKAGES SETTINGS.
// What it did goes to stdout, a JSON object a line; the first names the issuer. A line on stdin is a number of seconds
// that pass at once.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const settings = JSON.parse(process.argv[3]);
const { default: Provider, errors } = await import(`${process.argv[2]}/oidc-provider/lib/index.js`);
const tell = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);

let passed = 0;
const now = Date.now.bind(Date);
Date.now = () => now() + passed * 1000;
createInterface({ input: process.stdin }).on("line", (seconds) => {
  passed += Number(seconds);
  tell({ event: "later" });
});

const server = createServer();
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const issuer = `http://127.0.0.1:${server.address().port}`;
const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
let isStingy = settings.is_stingy; // the first token that it gives has no scope
const groups = (subject) => settings.groups[subject] ?? [];

const provider = new Provider(issuer, {
  clients: settings.clients,
  jwks: { keys: [{ ...key, kid: "first", use: "sig", alg: "RS256" }] },
  cookies: { keys: [randomBytes(16).toString("hex")] },
  scopes: ["openid", "groups", ...(settings.has_no_offline_access ? [] : ["offline_access"]), ...settings.scopes],
  claims: { openid: ["sub"], groups: ["groups"] },
  conformIdTokenClaims: false, // claims that a scope asks for are in the ID token
  // Its own rules are to send logouts to public addresses alone, and to wait for 2.5 seconds.
  fetch: (url, { dispatcher, signal, ...options }) => fetch(url, options),
  pkce: { required: () => true },
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed("refresh_token"),
  ttl: { IdToken: settings.id_token_seconds ?? 600 },
  findAccount: async (ctx, subject) => ({
    accountId: subject,
    claims: async () => ({ sub: subject, groups: groups(subject) }),
  }),
  extraTokenClaims: async (ctx, token) => (token.accountId ? { groups: groups(token.accountId) } : {}),
  features: {
    devInteractions: { enabled: true },
    backchannelLogout: { enabled: true },
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (ctx, resource) => {
        if (resource !== settings.resource) throw new errors.InvalidTarget();
        return {
          scope: isStingy ? "" : settings.scopes.join(" "),
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: settings.access_token_seconds ?? 600,
          jwt: { sign: { alg: "RS256" } },
        };
      },
    },
  },
});

const facts = ({ oidc, path }) => ({ path, client: oidc?.client?.clientId, ...oidc?.params, code: undefined });
for (const event of ["authorization.success", "grant.success", "registration_create.success", "end_session.success"])
  provider.on(event, (ctx) => tell({ event, ...facts(ctx) }));
provider.on("grant.success", () => (isStingy = false));
for (const event of ["authorization.error", "grant.error", "registration_create.error", "server_error"])
  provider.on(event, (ctx, error) => tell({ event, error: `${error}: ${error.error_detail}`, ...facts(ctx) }));
provider.on("backchannel.success", (ctx, client, subject) => tell({ event: "backchannel.success", subject }));
provider.on("backchannel.error", (ctx, error) => tell({ event: "backchannel.error", error: `${error} ${error.cause ?? ""}` }));

server.on("request", provider.callback());
tell({ issuer });
