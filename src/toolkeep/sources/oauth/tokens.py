"""Tokens from a token endpoint: for a code, for a refresh token, or for a client's own secret (RFC 6749).

Each request says which server the tokens are for (RFC 8707). What comes back is checked before it is kept: it
will be a header. Nothing that the endpoint says goes into an error but its short code.
"""

import base64
import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import replace

from toolkeep.sign_ins import Client, Kept
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.asking import Asker
from toolkeep.sources.oauth.challenge import clean_scope, joined_scopes

_TOKEN: Final = re.compile(r"[!-~]{1,16384}")
_ERROR: Final = re.compile(r"[a-z_]{1,40}")
_LONGEST_SECONDS: Final = 10 * 365 * 86_400
_EARLY_SECONDS: Final = 30
"""How long before its end a token counts as over."""


class TokenRefused(UpstreamFailed):
    """A token endpoint said no."""

    def __init__(self, code: str) -> None:
        super().__init__(f"who signs in for it gave no token: {code or 'it did not say why'}")
        self.error = code


async def exchange_code(asker: Asker, kept: Kept, code: str, verifier: str) -> Kept:
    """Tokens for the code of an authorization."""
    fields = {"code": code, "code_verifier": verifier, "redirect_uri": kept.client.redirect_uri}
    return await _asked(asker, kept, "authorization_code", fields)


async def refresh(asker: Asker, kept: Kept) -> Kept:
    """New tokens for the old ones."""
    return await _asked(asker, kept, "refresh_token", {"refresh_token": kept.refresh_token})


async def by_own_secret(asker: Asker, kept: Kept) -> Kept:
    """Tokens for the client itself; nobody signs in."""
    return await _asked(asker, kept, "client_credentials", {"scope": kept.scope} if kept.scope else {})


def is_over(kept: Kept) -> bool:
    """Whether the token no longer counts, by what was said when it was given."""
    return kept.expires_at is not None and time.time() > kept.expires_at - _EARLY_SECONDS


async def _asked(asker: Asker, kept: Kept, grant: str, fields: Mapping[str, str]) -> Kept:
    form = {"grant_type": grant, **fields, "resource": kept.resource}
    proof, headers = _proof(kept.client)
    status, said = await asker.post_form(kept.token_endpoint, {**form, **proof}, headers)
    if status != 200:
        code = said.get("error")
        raise TokenRefused(code if isinstance(code, str) and _ERROR.fullmatch(code) else "")
    return _taken(kept, said)


def _proof(client: Client) -> tuple[dict[str, str], dict[str, str]]:
    """What says who asks: form fields and headers."""
    if client.method == "client_secret_basic":
        words = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        return {}, {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}
    if client.method == "client_secret_post":
        return {"client_id": client.id, "client_secret": client.secret}, {}
    return {"client_id": client.id}, {}


def _taken(kept: Kept, said: dict[str, Any]) -> Kept:
    token, kind = said.get("access_token"), said.get("token_type")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise UpstreamFailed("who signs in for it gave a token that cannot be used")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise UpstreamFailed("who signs in for it gave a token of a kind that is not spoken here")
    more, seconds = said.get("refresh_token"), said.get("expires_in")
    return replace(
        kept,
        access_token=token,
        refresh_token=more if isinstance(more, str) and _TOKEN.fullmatch(more) else kept.refresh_token,
        expires_at=_end(seconds),
        scope=joined_scopes(kept.scope, clean_scope(said.get("scope"))),
        wanted="",
    )


def _end(seconds: Any) -> float | None:
    """When a token is over; None where that was not said."""
    is_time = type(seconds) in (int, float) and 0 < seconds < _LONGEST_SECONDS
    return time.time() + seconds if is_time else None
