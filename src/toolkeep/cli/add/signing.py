"""Signing in to an upstream while a person is there: what the configuration says of it, and who is asked."""

from pathlib import Path
from typing import Any

from toolkeep.assembly import open_state, sign_ins_of
from toolkeep.cli.options import say
from toolkeep.config.settings import SecretSource
from toolkeep.errors import ImportRefused, SignInFailed
from toolkeep.sign_ins import KeptTokens
from toolkeep.sources.mcp.http_session import Access
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.access import OwnSecret, SignedIn, SigningIn
from toolkeep.sources.oauth.clients import Wanted
from toolkeep.sources.secrets import UpstreamSecrets
from toolkeep.wording import visible

_SECRET_NAME = "client_secret"  # noqa: S105 -- the name of one


def add_oauth(
    entry: dict[str, Any],
    client_id: str | None,
    client_secret: str | None,
    issuer: str | None,
    *,
    is_signed_in: bool,
) -> None:
    """Write into an entry how its server is signed in to, where that was said."""
    told: dict[str, str] = {}
    if client_id:
        told["client_id"] = client_id
    if issuer:
        told["issuer"] = issuer
    if client_secret:
        told["client_secret"] = _SECRET_NAME
        entry["secrets"] = {**entry.get("secrets", {}), _SECRET_NAME: {"env": client_secret}}
    if client_secret and not is_signed_in:
        told["grant"] = "client_credentials"
    if not told and not is_signed_in:
        return
    if client_secret and not (client_id and issuer):
        raise ImportRefused(
            "--client-secret", "would go to whomever the server names", hint="give --client-id and --issuer"
        )
    if not str(entry.get("url", "")).startswith("https://"):
        raise ImportRefused("--sign-in", "takes a server with an address that begins with https://")
    entry["oauth"] = told


def access_for(
    root: Path, name: str, entry: dict[str, Any], given: dict[str, str], *, is_signed_in: bool
) -> Access | None:
    """What lets us in while a server is looked at."""
    if "oauth" not in entry:
        return None
    try:
        if entry["oauth"].get("grant") == "client_credentials":
            return OwnSecret(entry["url"], wanted_of(entry, given))
        if is_signed_in:
            return SigningIn(entry["url"], wanted_of(entry, given), show)
        return SignedIn(name, entry["url"], tokens_of(root))
    except UpstreamFailed as failed:
        raise SignInFailed(name, failed.reason) from None


def wanted_of(entry: dict[str, Any], given: dict[str, str]) -> Wanted:
    """How a server is signed in to, with the secret of the client."""
    told = entry["oauth"]
    named = told.get("client_secret", "")
    secret = (given.get(named) or secrets_of(entry)[named]) if named else ""
    return Wanted.read(told, secret)


def secrets_of(entry: dict[str, Any]) -> UpstreamSecrets:
    """The secrets that an entry names, read when they are needed."""
    sources = {
        secret: SecretSource(kind=kind, where=str(where))
        for secret, source in (entry.get("secrets") or {}).items()
        for kind, where in source.items()
    }
    return UpstreamSecrets(sources)


def tokens_of(root: Path) -> KeptTokens:
    """Where tokens are kept; raises `SignInFailed` where nothing can be."""
    tokens = sign_ins_of(open_state(root))
    if tokens is None:
        raise SignInFailed(str(root), "there is nowhere to keep a token", hint="set TOOLKEEP_HOME")
    return tokens


def show(url: str) -> None:
    """Tell a person where to sign in."""
    say("Open this address to sign in:", err=True)
    say(f"  {visible(url)}", err=True)


def keep_sign_in(root: Path, name: str, access: Access | None) -> None:
    """Keep what came of a sign-in."""
    if isinstance(access, SigningIn) and access.kept is not None:
        tokens_of(root).put(name, access.kept)
