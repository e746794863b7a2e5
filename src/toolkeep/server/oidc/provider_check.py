"""Checks an identity provider, and what the configuration says of it: `toolkeep doctor --identity`.

It is asked for what a server asks it for, over the same vetted connections. Nobody is signed in, and no
secret is sent.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from toolkeep.config.identity_settings import Issuer, PageSignIn
from toolkeep.server.oidc.access_tokens import LEEWAY_SECONDS
from toolkeep.server.oidc.issuer_documents import IssuerDocuments
from toolkeep.server.oidc.issuer_keys import KeysUnavailable, read_keys
from toolkeep.stores.api_tokens import Scope

_CODE: Final = "response_types_supported", "code"
_REACH: Final = (
    "ask its URL from this machine, and write `issuer` exactly as its metadata does; "
    "for a private network or this machine, set `host`"
)


class Finding(msgspec.Struct, frozen=True):
    """What one check found."""

    name: str
    state: Literal["good", "wrong", "unsure"] = "good"
    """`unsure` is what its metadata does not say, or what is right only in some set-ups."""
    reason: str = ""
    remedy: str = ""


async def check_provider(
    issuer: Issuer,
    agents: Collection[str],
    *,
    has_others: bool,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """What is right and wrong with an issuer.

    `agents` are the declared ones; `has_others` says that people sign in with another provider, too.
    """
    documents = IssuerDocuments(issuer)
    own = [_agents(issuer, agents), _audience(issuer)]
    if issuer.page is not None:
        own.append(_secret(issuer.page))
    try:
        metadata = await documents.metadata()
    except KeysUnavailable as error:
        return [
            *own,
            _unreachable("metadata", error),
            *([await _keys(issuer, documents)] if issuer.keys else ()),
        ]
    found = [Finding("metadata"), _endpoints(metadata, documents), await _keys(issuer, documents)]
    found.append(await _clock(documents, clock))
    if issuer.page is not None:
        found += _of_page(issuer, issuer.page, metadata, has_others=has_others)
    if issuer.limits_scopes and (scopes := metadata.get("scopes_supported")):
        found.append(_limited(scopes))
    return [*own, *found]


def _agents(issuer: Issuer, agents: Collection[str]) -> Finding:
    grants = (*issuer.grants, *(issuer.page.grants if issuer.page else ()))
    unknown = sorted({grant.agent for grant in grants} - set(agents))
    if not unknown:
        return Finding("agents")
    reason = f"no such agent is declared: {', '.join(unknown)}. Its calls are refused"
    return Finding("agents", "wrong", reason, "declare it under `agents`, or correct `grants`")


def _audience(issuer: Issuer) -> Finding:
    if not issuer.grants:
        return Finding("audience")
    url = urlsplit(issuer.audience)
    is_local = url.hostname in ("127.0.0.1", "::1", "localhost")
    if url.scheme == "https" or (url.scheme == "http" and is_local):
        if url.path == "/mcp" and not url.query and not url.fragment:
            return Finding("audience")
        reason = "it is no address of `/mcp`, so MCP clients ask for tokens of another resource"
    else:
        reason = "it is no URL; MCP clients cannot ask for tokens of this resource"
    remedy = "set `audience` to the public URL of /mcp, unless no MCP client signs in by itself"
    return Finding("audience", "unsure", reason, remedy)


def _secret(page: PageSignIn) -> Finding:
    if not page.client_secret_file:
        return Finding("client secret")
    try:
        mode = os.stat(page.client_secret_file).st_mode  # noqa: PTH116 -- one call for mode and presence
        is_empty = not Path(page.client_secret_file).read_text().strip()
    except (OSError, ValueError):
        return Finding(
            "client secret",
            "wrong",
            "its file cannot be read by this user, or is no text",
            "write the secret of the client into it, and run this as the user of the server",
        )
    if is_empty:
        return Finding(
            "client secret", "wrong", "its file is empty", "write the secret of the client into it"
        )
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        return Finding(
            "client secret", "wrong", "every user of this machine can read its file", "chmod o= FILE"
        )
    return Finding("client secret")


def _unreachable(name: str, error: KeysUnavailable) -> Finding:
    # The cure of a grant is not ours: `host` names what is reached in a private network.
    more = f" ({error.remedy.partition(':')[0]})" if error.remedy else ""
    return Finding(name, "wrong", str(error), f"{_REACH}{more}")


def _endpoints(metadata: Mapping[str, Any], documents: IssuerDocuments) -> Finding:
    names = ("jwks_uri", "authorization_endpoint", "token_endpoint")
    wrong = [name for name in names if not _may_ask(metadata.get(name), documents)]
    if not wrong:
        return Finding("endpoints")
    reason = f"not an https URL in its metadata: {', '.join(wrong)}"
    return Finding("endpoints", "wrong", reason, "set the public https URL of the provider at the provider")


def _may_ask(url: Any, documents: IssuerDocuments) -> bool:
    return isinstance(url, str) and documents.may_ask(url)


async def _keys(issuer: Issuer, documents: IssuerDocuments) -> Finding:
    try:
        document = await documents.keys()
        usable = read_keys(document, issuer.algorithm)
    except KeysUnavailable as error:
        return _unreachable("keys", error)
    if usable:
        return Finding("keys")
    listed = document["keys"]
    named = sorted({str(key["alg"])[:16] for key in listed if isinstance(key, dict) and "alg" in key})
    said = f"; they are for {', '.join(named)}" if named else ""
    reason = f"none of its {len(listed)} keys can sign with {issuer.algorithm}{said}"
    remedy = (
        "set `algorithm` to what its tokens are signed with; a key needs a `kid`, and RSA 2048 to 8192 bits"
    )
    return Finding("keys", "wrong", reason, remedy)


async def _clock(documents: IssuerDocuments, clock: Callable[[], float]) -> Finding:
    began = clock()
    try:
        theirs = await documents.clock()
    except KeysUnavailable as error:
        return _unreachable("clock", error)
    if theirs is None:
        return Finding("clock", "unsure", "it does not say what time it has", "compare the clocks yourself")
    # `Date` has whole seconds, and was written between the question and the answer.
    away = max(began - theirs - 1, theirs - clock(), 0)
    if away <= LEEWAY_SECONDS / 2:
        return Finding("clock")
    reason = f"its clock and this one differ by {away:.0f} s; tokens count with {LEEWAY_SECONDS:g}"
    return Finding("clock", "wrong" if away > LEEWAY_SECONDS else "unsure", reason, "set both by NTP")


def _of_page(
    issuer: Issuer, page: PageSignIn, metadata: Mapping[str, Any], *, has_others: bool
) -> Iterator[Finding]:
    """What signing people in needs."""
    yield _lists(
        metadata,
        ("code_challenge_methods_supported", "S256"),
        "pkce",
        "it does not offer PKCE with S256, so nobody can sign in",
        "enable PKCE (S256) for the client, or update the provider",
        is_needed=True,
    )
    yield _lists(
        metadata,
        _CODE,
        "code flow",
        "it does not offer the code flow",
        "enable it for the client",
        is_needed=True,
    )
    yield _lists(
        metadata,
        ("id_token_signing_alg_values_supported", issuer.algorithm),
        "algorithm",
        f"it does not sign ID tokens with {issuer.algorithm}",
        "set `algorithm`, and the same one for the ID tokens of the client",
    )
    way = "client_secret_basic" if page.client_secret_file else "none"
    yield _lists(
        {"token_endpoint_auth_methods_supported": ["client_secret_basic"], **metadata},
        ("token_endpoint_auth_methods_supported", way),
        "client authentication",
        f"it does not offer {way}",
        "set `client_secret_file`"
        if way == "none"
        else "let the client authenticate with its secret (basic)",
    )
    for scope in page.scope.split():
        known = metadata.get("scopes_supported")
        if isinstance(known, list) and scope not in known:
            remedy = "correct `scope`, or add it at the provider"
            yield Finding("scope", "unsure", f"it does not list the scope {scope}", remedy)
    yield _response_issuer(metadata, has_others=has_others)
    yield _logout(metadata)
    known = metadata.get("claims_supported")
    used = {name for grant in page.grants for name in grant.claims}
    if isinstance(known, list) and (unknown := sorted(used.difference(map(str, known)))):
        reason = f"it does not list the claims {', '.join(unknown)}, which `grants` need"
        yield Finding("claims", "unsure", reason, "map them into the ID token of the client at the provider")


def _lists(
    metadata: Mapping[str, Any],
    wanted: tuple[str, str],
    name: str,
    reason: str,
    remedy: str,
    *,
    is_needed: bool = False,
) -> Finding:
    """Whether a list of the metadata has a word; one that is missing says nothing, unless it is needed."""
    listed = metadata.get(wanted[0])
    if isinstance(listed, list) and wanted[1] in listed:
        return Finding(name)
    if listed is None and not is_needed:
        return Finding(name, "unsure", f"its metadata has no {wanted[0]}", remedy)
    return Finding(name, "wrong", reason, remedy)


def _response_issuer(metadata: Mapping[str, Any], *, has_others: bool) -> Finding:
    if metadata.get("authorization_response_iss_parameter_supported") is True:
        return Finding("response issuer")
    if not has_others:
        reason = "its answers do not name it (RFC 9207); it must then be the only provider with `page`"
        return Finding("response issuer", "unsure", reason, "none as long as it is the only one")
    reason = "its answers do not name it (RFC 9207), and there are two providers: nobody can sign in with it"
    return Finding("response issuer", "wrong", reason, "enable it at the provider, or keep one `page`")


def _logout(metadata: Mapping[str, Any]) -> Finding:
    missing = [
        name
        for name in ("backchannel_logout_supported", "backchannel_logout_session_supported")
        if metadata.get(name) is not True
    ]
    if not missing:
        return Finding("back-channel logout")
    reason = (
        "it does not offer it: sessions of the page end with the ID token, or by `toolkeep token revoke`"
        if len(missing) > 1
        else "its logout tokens need not name a session: a logout then ends all sessions of the person"
    )
    return Finding("back-channel logout", "unsure", reason, "enable it at the provider, if it can")


def _limited(scopes: Any) -> Finding:
    known = scopes if isinstance(scopes, list) else []
    if any(scope.value in known for scope in Scope):
        return Finding("scopes")
    reason = "with `limits_scopes` only scopes count that a token names, and it lists none of this server"
    return Finding("scopes", "unsure", reason, f"add them at the provider: {', '.join(Scope)}")
