// A client of the TypeScript SDKs that signs in by itself: SIGN_IN.mjs PACKAGES client|sdk URL.
// Each line on stdin is a command; each on stdout what came of it, or an address that a person is to open, whose answer is
// the address that their browser was sent to in the end.
import { createInterface } from "node:readline";

const [packages, name, url] = process.argv.slice(2);
const sdk = `${packages}/@modelcontextprotocol/${name}/dist/${name === "sdk" ? "esm/client/" : ""}`;
const all =
  name === "sdk"
    ? {
        ...(await import(`${sdk}index.js`)),
        ...(await import(`${sdk}streamableHttp.js`)),
        ...(await import(`${sdk}auth.js`)),
      }
    : await import(`${sdk}index.mjs`);

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => (await lines.next()).value;
const tell = (told) => process.stdout.write(`${JSON.stringify(told)}\n`);

const held = {};
let opened;
const authProvider = {
  redirectUrl: "http://127.0.0.1:3030/callback",
  clientMetadata: {
    client_name: name,
    redirect_uris: ["http://127.0.0.1:3030/callback"],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => held.client,
  saveClientInformation: (client) => void (held.client = client),
  tokens: () => held.tokens,
  saveTokens: (tokens) => void (held.tokens = tokens),
  codeVerifier: () => held.verifier,
  saveCodeVerifier: (verifier) => void (held.verifier = verifier),
  redirectToAuthorization: (address) => void (opened = address),
  invalidateCredentials: (kind) => void (kind === "tokens" ? delete held.tokens : delete held.client),
};

let client;
let transport;
async function connected() {
  if (client) return;
  const made = new all.Client({ name: "signs-in", version: "1" });
  transport = new all.StreamableHTTPClientTransport(new URL(url), { authProvider });
  await made.connect(transport);
  client = made;
}

async function act() {
  await connected();
  const result = await client.callTool({ name: "add", arguments: { a: 2, b: 3 } });
  return result.content[0].text;
}

async function signedIn(times = 3) {
  try {
    opened = undefined;
    return await act();
  } catch (error) {
    if (!opened || !times) throw error;
    tell({ open: String(opened) });
    const { searchParams } = new URL(await read());
    await transport.finishAuth(name === "sdk" ? searchParams.get("code") : searchParams);
    return signedIn(times - 1);
  }
}

for (let command = await read(); command; command = await read()) {
  try {
    if (command === "forget") for (const one of ["tokens", "verifier"]) delete held[one];
    tell(command === "call" ? { done: await signedIn() } : { done: "" });
  } catch (error) {
    tell({ raised: `${error.name}: ${error.message}` });
  }
}
process.exit(0);
