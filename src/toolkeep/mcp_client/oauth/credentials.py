"""OAuth credentials for upstreams: stored tokens, client credentials, or an interactive sign-in.

A call never opens a browser: if the token is no longer accepted, the error says what to run. Tokens are sent
only to the server they were issued for (audience binding).
"""

import asyncio

from msgspec.structs import replace

from toolkeep.errors import StateUnusable
from toolkeep.mcp_client.oauth.challenge import Challenge, joined_scopes, read_challenge
from toolkeep.mcp_client.oauth.client_registration import OAuthSettings, method_for
from toolkeep.mcp_client.oauth.discovery import find_issuer, find_protected
from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.oauth.redirect_listener import WAIT_SECONDS
from toolkeep.mcp_client.oauth.server_urls import check_https
from toolkeep.mcp_client.oauth.sign_in_flow import Show, sign_in
from toolkeep.mcp_client.oauth.token_endpoint import TokenRefused, client_credentials, is_expired, refresh
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.stores.sign_ins import Client, SignInStore, StoredSignIn

_INSUFFICIENT = "insufficient_scope"


class StoredCredentials:
    """Stored tokens from `toolkeep sign-in`, refreshed as needed."""

    def __init__(self, upstream: str, url: str, tokens: SignInStore) -> None:
        self._upstream = upstream
        self._url = check_https(url, "its address")
        self._tokens = tokens
        self._shown = ""
        self._lock = asyncio.Lock()
        self._refreshing: set[asyncio.Task[StoredSignIn]] = set()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact."""
        kept = self._kept()
        return (*kept.secrets, self._shown) if kept else (self._shown,)

    async def authorization(self) -> str:
        """The `Authorization` header, after a refresh if the token has expired."""
        kept = self._kept()
        if kept is not None and kept.access_token and is_expired(kept) and kept.refresh_token:
            kept = await self._refreshed(kept)
        self._shown = kept.access_token if kept else ""
        return f"Bearer {self._shown}" if self._shown else ""

    async def refused(self, status: int, challenge: str) -> bool:
        """Handle a 401 or 403: refresh the token, or say that a person must sign in."""
        asked, kept = read_challenge(challenge), self._kept()
        if kept is None or not kept.access_token:
            raise self._sign_in("it requires signing in")
        # A plain 403 is a decision about this request; another token would not change it.
        if status == 403 and asked.error != _INSUFFICIENT:
            return False
        if status == 403:
            self._remember(kept, asked)
            raise self._sign_in("it requires scopes that the last sign-in did not grant")
        if kept.access_token != self._shown:
            return True  # another process refreshed it
        if kept.refresh_token:
            await self._refreshed(kept)
            return True
        raise self._sign_in("it no longer accepts the token of the last sign-in")

    def _kept(self) -> StoredSignIn | None:
        try:
            kept = self._tokens.get(self._upstream)
        except StateUnusable:  # its message names a folder, which a model must not learn
            raise self._sign_in("the stored tokens cannot be read") from None
        # Bound to the URL: an upstream that was moved to another address under the same name gets no token.
        return kept if kept is not None and kept.url == self._url else None

    async def _refreshed(self, kept: StoredSignIn) -> StoredSignIn:
        """Refresh and store, shielded from cancellation.

        With refresh token rotation the old token is already void.
        """
        task = asyncio.get_running_loop().create_task(self._refresh(kept))
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)
        return await asyncio.shield(task)

    async def _refresh(self, kept: StoredSignIn) -> StoredSignIn:
        """Refresh once for all concurrent calls.

        A second use of a rotated refresh token may revoke the whole grant.
        """
        async with self._lock:
            now = self._kept()
            if now is not None and now.access_token != kept.access_token:
                return now
            try:
                new = await refresh(AuthorizationServerClient(), kept)
            except TokenRefused:
                now = self._kept()
                if now is not None and now.access_token != kept.access_token:
                    return now
                # Forget tokens that the server rejected, but keep client and endpoints for the next sign-in.
                self._tokens.put(self._upstream, replace(kept, access_token="", refresh_token=""))
                raise self._sign_in("the last sign-in is no longer valid") from None
            self._tokens.put(self._upstream, new)
            return new

    def _remember(self, kept: StoredSignIn, asked: Challenge) -> None:
        if asked.scope:
            self._tokens.put(self._upstream, replace(kept, wanted=joined_scopes(kept.wanted, asked.scope)))

    def _sign_in(self, why: str) -> UpstreamFailed:
        return UpstreamFailed(f"{why}; run `toolkeep sign-in {self._upstream}`")


class ClientCredentials:
    """Tokens by the client credentials grant: nobody signs in (RFC 6749, section 4.4)."""

    def __init__(self, url: str, wanted: OAuthSettings) -> None:
        self._url = check_https(url, "its address")
        self._wanted = wanted
        self._kept: StoredSignIn | None = None
        self._lock = asyncio.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact."""
        return (self._wanted.client_secret, *(self._kept.secrets if self._kept else ()))

    async def authorization(self) -> str:
        """The `Authorization` header, after the server has demanded it."""
        async with self._lock:
            if self._kept is not None and is_expired(self._kept):
                self._kept = await client_credentials(AuthorizationServerClient(), self._kept)
        return f"Bearer {self._kept.access_token}" if self._kept else ""

    async def refused(self, status: int, challenge: str) -> bool:
        """Handle a 401 or 403: get a token, once per requested scope."""
        asked = read_challenge(challenge)
        async with self._lock:
            if self._kept is None:
                self._kept = await self._discover(asked)
                return True
            scope = joined_scopes(self._kept.scope, asked.scope)
            if status == 403 and (asked.error != _INSUFFICIENT or scope == self._kept.scope):
                return False
            self._kept = await client_credentials(
                AuthorizationServerClient(), replace(self._kept, scope=scope)
            )
            return True

    async def _discover(self, asked: Challenge) -> StoredSignIn:
        http = AuthorizationServerClient()
        protected = await find_protected(http, self._url, asked.metadata_url)
        # The client secret goes only to the configured issuer: the server must not choose who receives it.
        if self._wanted.issuer not in protected.issuers:
            raise UpstreamFailed("it uses another issuer than the configuration names")
        issuer = await find_issuer(http, self._wanted.issuer)
        method = method_for(issuer, has_secret=True)
        kept = StoredSignIn(
            url=self._url,
            issuer=issuer.issuer,
            resource=protected.resource,
            token_endpoint=issuer.token_endpoint,
            client=Client(id=self._wanted.client_id, secret=self._wanted.client_secret, method=method),
            scope=joined_scopes(self._wanted.scope, asked.scope),
        )
        return await client_credentials(http, kept)


class InteractiveSignIn:
    """Interactive sign-in of a person at a terminal, when the server demands it."""

    TIMES = 2
    """Maximum number of sign-ins; a server may demand more scope after the first."""
    SECONDS = TIMES * (WAIT_SECONDS + 60)
    """Total time limit."""

    def __init__(
        self,
        url: str,
        wanted: OAuthSettings,
        show: Show,
        *,
        before: StoredSignIn | None = None,
        port: int = 0,
    ) -> None:
        self._url = check_https(url, "its address")
        self._wanted = wanted
        self._show = show
        self._port = port
        self._left = self.TIMES
        # A sign-in for another URL must not lend its client or scopes to this one.
        self._before = before if before is not None and before.url == url else None
        self.kept: StoredSignIn | None = None
        """The resulting tokens."""

    async def begin(self) -> None:
        """Sign in proactively, for the scope that the server demanded last. Raises `UpstreamFailed`."""
        before = self._before
        challenge = (
            Challenge(metadata_url=before.metadata_url, scope=before.wanted) if before else Challenge()
        )
        await self._sign_in(challenge)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact."""
        return self.kept.secrets if self.kept else ()

    async def authorization(self) -> str:
        """The `Authorization` header, after the sign-in."""
        return f"Bearer {self.kept.access_token}" if self.kept else ""

    async def refused(self, status: int, challenge: str) -> bool:
        """Handle a 401 or 403: sign in, unless that was done for the same scope already."""
        asked = read_challenge(challenge)
        if self.kept is None and status == 403:
            return False
        if self.kept is not None and not (self._left and await self._is_new_demand(status, asked, self.kept)):
            raise UpstreamFailed("it rejected a token that was just issued")
        await self._sign_in(asked)
        return True

    async def _is_new_demand(self, status: int, asked: Challenge, kept: StoredSignIn) -> bool:
        """Whether the server demands a new scope, or names another issuer."""
        if status == 403:
            has_all = set(asked.scope.split()) <= set(kept.scope.split())
            return asked.error == _INSUFFICIENT and not has_all
        protected = await find_protected(AuthorizationServerClient(), self._url, asked.metadata_url)
        return kept.issuer not in protected.issuers

    async def _sign_in(self, challenge: Challenge) -> None:
        self._left -= 1
        before = self.kept or self._before
        self.kept = await sign_in(
            self._url, challenge, self._wanted, self._show, before=before, port=self._port
        )
