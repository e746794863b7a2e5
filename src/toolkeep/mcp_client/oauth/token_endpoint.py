"""Token endpoint requests: authorization code, refresh token and client credentials grants (RFC 6749).

Each request names the audience of the token (`resource`, RFC 8707). Responses are validated before they are
stored, because the token becomes a header. Errors quote nothing of the response but its error code.
"""

import base64
import re
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import replace

from toolkeep.mcp_client.oauth.challenge import clean_scope, joined_scopes
from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.stores.sign_ins import Client, StoredSignIn

_TOKEN: Final = re.compile(r"[!-~]{1,16384}")
_ERROR: Final = re.compile(r"[a-z_]{1,40}")
_LONGEST_SECONDS: Final = 10 * 365 * 86_400
_EARLY_SECONDS: Final = 30
"""A token counts as expired this long before its end."""


class TokenRefused(UpstreamFailed):
    """An error response of a token endpoint."""

    def __init__(self, code: str) -> None:
        super().__init__(f"its authorization server issued no token: {code or 'it did not say why'}")
        self.error = code


async def exchange_code(
    http: AuthorizationServerClient, kept: StoredSignIn, code: str, verifier: str
) -> StoredSignIn:
    """Exchange an authorization code for tokens."""
    fields = {"code": code, "code_verifier": verifier, "redirect_uri": kept.client.redirect_uri}
    return await _request_tokens(http, kept, "authorization_code", fields)


async def refresh(http: AuthorizationServerClient, kept: StoredSignIn) -> StoredSignIn:
    """Refresh the tokens."""
    return await _request_tokens(http, kept, "refresh_token", {"refresh_token": kept.refresh_token})


async def client_credentials(http: AuthorizationServerClient, kept: StoredSignIn) -> StoredSignIn:
    """Get tokens by the client credentials grant."""
    return await _request_tokens(
        http, kept, "client_credentials", {"scope": kept.scope} if kept.scope else {}
    )


def is_expired(kept: StoredSignIn) -> bool:
    """Whether the access token has expired."""
    return kept.expires_at is not None and time.time() > kept.expires_at - _EARLY_SECONDS


async def _request_tokens(
    http: AuthorizationServerClient, kept: StoredSignIn, grant: str, fields: Mapping[str, str]
) -> StoredSignIn:
    # `resource` on every request, refreshes too: else the new token could have a wider audience than the old
    # one.
    form = {"grant_type": grant, **fields, "resource": kept.resource}
    proof, headers = _client_authentication(kept.client)
    status, said = await http.post_form(kept.token_endpoint, {**form, **proof}, headers)
    if status != 200:
        code = said.get("error")
        raise TokenRefused(code if isinstance(code, str) and _ERROR.fullmatch(code) else "")
    return _with_tokens(kept, said)


def _client_authentication(client: Client) -> tuple[dict[str, str], dict[str, str]]:
    """Client authentication as form fields and headers."""
    if client.method == "client_secret_basic":
        # Form-encoded before base64, as RFC 6749, section 2.3.1 demands; a colon in the id would split
        # wrongly.
        words = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        return {}, {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}
    if client.method == "client_secret_post":
        return {"client_id": client.id, "client_secret": client.secret}, {}
    return {"client_id": client.id}, {}


def _with_tokens(kept: StoredSignIn, said: dict[str, Any]) -> StoredSignIn:
    token, kind = said.get("access_token"), said.get("token_type")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise UpstreamFailed("its authorization server issued an unusable token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise UpstreamFailed("its authorization server issued a token of an unsupported type")
    more, seconds = said.get("refresh_token"), said.get("expires_in")
    return replace(
        kept,
        access_token=token,
        # A response without a refresh token keeps the old one valid (RFC 6749, section 6).
        refresh_token=more if isinstance(more, str) and _TOKEN.fullmatch(more) else kept.refresh_token,
        expires_at=_expiry(seconds),
        scope=joined_scopes(kept.scope, clean_scope(said.get("scope"))),
        wanted="",
    )


def _expiry(seconds: Any) -> float | None:
    """Expiry of a token; None if the response does not say."""
    is_time = type(seconds) in (int, float) and 0 < seconds < _LONGEST_SECONDS
    return time.time() + seconds if is_time else None
