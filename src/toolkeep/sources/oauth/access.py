"""What lets calls in: tokens of an earlier sign-in, those of a client's own secret, or a sign-in on the spot.

A call never asks a person: where a token no longer does, it says what to run. Tokens go to the one server
that they were given for.
"""

import asyncio

from msgspec.structs import replace

from toolkeep.errors import StateUnusable
from toolkeep.sign_ins import Client, Kept, KeptTokens
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.asking import Asker
from toolkeep.sources.oauth.challenge import Challenge, joined_scopes, read_challenge
from toolkeep.sources.oauth.clients import Wanted, method_for
from toolkeep.sources.oauth.discovery import find_issuer, find_protected
from toolkeep.sources.oauth.loopback import WAIT_SECONDS
from toolkeep.sources.oauth.signing_in import Show, sign_in
from toolkeep.sources.oauth.tokens import TokenRefused, by_own_secret, is_over, refresh
from toolkeep.sources.oauth.urls import check_https

_INSUFFICIENT = "insufficient_scope"


class SignedIn:
    """Tokens that a person got with `toolkeep sign-in`."""

    def __init__(self, upstream: str, url: str, tokens: KeptTokens) -> None:
        self._upstream = upstream
        self._url = check_https(url, "its address")
        self._tokens = tokens
        self._shown = ""
        self._alone = asyncio.Lock()
        self._refreshing: set[asyncio.Task[Kept]] = set()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be said to anybody else."""
        kept = self._kept()
        return (*kept.secrets, self._shown) if kept else (self._shown,)

    async def authorization(self) -> str:
        """The header, with a token that still counts."""
        kept = self._kept()
        if kept is not None and kept.access_token and is_over(kept) and kept.refresh_token:
            kept = await self._refreshed(kept)
        self._shown = kept.access_token if kept else ""
        return f"Bearer {self._shown}" if self._shown else ""

    async def refused(self, status: int, challenge: str) -> bool:
        """Whether another token is there to be shown."""
        asked, kept = read_challenge(challenge), self._kept()
        if kept is None or not kept.access_token:
            raise self._sign_in("it wants you to sign in")
        if status == 403 and asked.error != _INSUFFICIENT:
            return False
        if status == 403:
            self._remember(kept, asked)
            raise self._sign_in("it wants more than was agreed to at the last sign-in")
        if kept.access_token != self._shown:
            return True  # somebody else has refreshed it
        if kept.refresh_token:
            await self._refreshed(kept)
            return True
        raise self._sign_in("it no longer takes the token of the last sign-in")

    def _kept(self) -> Kept | None:
        try:
            kept = self._tokens.get(self._upstream)
        except StateUnusable:  # whose words name a folder that is no business of a model
            raise self._sign_in("what is kept of its sign-in cannot be read") from None
        return kept if kept is not None and kept.url == self._url else None

    async def _refreshed(self, kept: Kept) -> Kept:
        """New tokens, kept also if the call that wanted them is given up: the old ones may be of no use."""
        task = asyncio.get_running_loop().create_task(self._refresh(kept))
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)
        return await asyncio.shield(task)

    async def _refresh(self, kept: Kept) -> Kept:
        async with self._alone:
            now = self._kept()
            if now is not None and now.access_token != kept.access_token:
                return now
            try:
                new = await refresh(Asker(), kept)
            except TokenRefused:
                now = self._kept()
                if now is not None and now.access_token != kept.access_token:
                    return now
                self._tokens.put(self._upstream, replace(kept, access_token="", refresh_token=""))
                raise self._sign_in("the last sign-in no longer counts") from None
            self._tokens.put(self._upstream, new)
            return new

    def _remember(self, kept: Kept, asked: Challenge) -> None:
        if asked.scope:
            self._tokens.put(self._upstream, replace(kept, wanted=joined_scopes(kept.wanted, asked.scope)))

    def _sign_in(self, why: str) -> UpstreamFailed:
        return UpstreamFailed(f"{why}; a person runs `toolkeep sign-in {self._upstream}`")


class OwnSecret:
    """Tokens for a client that has a secret of its own: nobody signs in (RFC 6749, section 4.4)."""

    def __init__(self, url: str, wanted: Wanted) -> None:
        self._url = check_https(url, "its address")
        self._wanted = wanted
        self._kept: Kept | None = None
        self._alone = asyncio.Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be said to anybody else."""
        return (self._wanted.client_secret, *(self._kept.secrets if self._kept else ()))

    async def authorization(self) -> str:
        """The header, once a server has asked for it."""
        async with self._alone:
            if self._kept is not None and is_over(self._kept):
                self._kept = await by_own_secret(Asker(), self._kept)
        return f"Bearer {self._kept.access_token}" if self._kept else ""

    async def refused(self, status: int, challenge: str) -> bool:
        """Whether another token is there to be shown: one for each thing that is asked for."""
        asked = read_challenge(challenge)
        async with self._alone:
            if self._kept is None:
                self._kept = await self._begun(asked)
                return True
            scope = joined_scopes(self._kept.scope, asked.scope)
            if status == 403 and (asked.error != _INSUFFICIENT or scope == self._kept.scope):
                return False
            self._kept = await by_own_secret(Asker(), replace(self._kept, scope=scope))
            return True

    async def _begun(self, asked: Challenge) -> Kept:
        asker = Asker()
        protected = await find_protected(asker, self._url, asked.metadata_url)
        if self._wanted.issuer not in protected.issuers:
            raise UpstreamFailed("it wants another issuer than the configuration names")
        issuer = await find_issuer(asker, self._wanted.issuer)
        method = method_for(issuer, has_secret=True)
        kept = Kept(
            url=self._url,
            issuer=issuer.issuer,
            resource=protected.resource,
            token_endpoint=issuer.token_endpoint,
            client=Client(id=self._wanted.client_id, secret=self._wanted.client_secret, method=method),
            scope=joined_scopes(self._wanted.scope, asked.scope),
        )
        return await by_own_secret(asker, kept)


class SigningIn:
    """A person at a terminal signs in where the server asks for it."""

    TIMES = 2
    """How often a person is sent to sign in; a server may want more once it knows who asks."""
    SECONDS = TIMES * (WAIT_SECONDS + 60)
    """How long that may take, with everything around it."""

    def __init__(
        self, url: str, wanted: Wanted, show: Show, *, before: Kept | None = None, port: int = 0
    ) -> None:
        self._url = check_https(url, "its address")
        self._wanted = wanted
        self._show = show
        self._port = port
        self._left = self.TIMES
        self._before = before if before is not None and before.url == url else None
        self.kept: Kept | None = None
        """What came of it."""

    async def begin(self) -> None:
        """Sign in before anything is asked, for what the server wanted last. Raises `UpstreamFailed`."""
        before = self._before
        challenge = (
            Challenge(metadata_url=before.metadata_url, scope=before.wanted) if before else Challenge()
        )
        await self._sign_in(challenge)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be said to anybody else."""
        return self.kept.secrets if self.kept else ()

    async def authorization(self) -> str:
        """The header, once somebody has signed in."""
        return f"Bearer {self.kept.access_token}" if self.kept else ""

    async def refused(self, status: int, challenge: str) -> bool:
        """Sign in, unless that was done for the same already."""
        asked = read_challenge(challenge)
        if self.kept is None and status == 403:
            return False
        if self.kept is not None and not (self._left and await self._is_news(status, asked, self.kept)):
            raise UpstreamFailed("it refuses the token that it was just given")
        await self._sign_in(asked)
        return True

    async def _is_news(self, status: int, asked: Challenge, kept: Kept) -> bool:
        """Whether a server wants more than it asked for before, or somebody else signs in for it by now."""
        if status == 403:
            has_all = set(asked.scope.split()) <= set(kept.scope.split())
            return asked.error == _INSUFFICIENT and not has_all
        protected = await find_protected(Asker(), self._url, asked.metadata_url)
        return kept.issuer not in protected.issuers

    async def _sign_in(self, challenge: Challenge) -> None:
        self._left -= 1
        before = self.kept or self._before
        self.kept = await sign_in(
            self._url, challenge, self._wanted, self._show, before=before, port=self._port
        )
