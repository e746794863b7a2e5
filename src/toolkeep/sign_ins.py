"""What is kept of a sign-in: the tokens of one upstream, and whom they may be shown to.

It is bound to the address of the server and to the issuer that gave it: another address under the same name
is shown nothing (RFC 8707).
"""

from typing import Protocol

import msgspec


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are to an authorization server."""

    id: str
    secret: str = ""
    method: str = "none"
    """How the token endpoint is told: none, client_secret_basic or client_secret_post."""
    redirect_uri: str = ""
    is_registered: bool = False
    """Whether the server gave us the id when we asked for one (RFC 7591)."""

    def __repr__(self) -> str:
        """Without what is secret."""
        return "<client>"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a sign-in."""

    url: str
    """Of the server that the tokens are for; they go nowhere else."""
    issuer: str
    resource: str
    token_endpoint: str
    client: Client
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float | None = None
    scope: str = ""
    """What was asked for."""
    wanted: str = ""
    """What the server asked for since, which a person has not agreed to yet."""
    metadata_url: str = ""
    """Where the server says who signs in for it."""

    def __repr__(self) -> str:
        """Without what is secret."""
        return "<tokens>"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be said to anybody else."""
        return tuple(filter(None, (self.access_token, self.refresh_token, self.client.secret)))


class KeptTokens(Protocol):
    """Where tokens are kept between calls, by upstream."""

    def get(self, upstream: str) -> Kept | None:
        """What is kept of a sign-in."""

    def put(self, upstream: str, kept: Kept) -> None:
        """Keep it, instead of what was kept before."""

    def forget(self, upstream: str) -> bool:
        """Keep nothing; says whether there was something."""


class MemoryTokens:
    """Keeps them as long as it lives."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def get(self, upstream: str) -> Kept | None:
        """What is kept of a sign-in."""
        return self._kept.get(upstream)

    def put(self, upstream: str, kept: Kept) -> None:
        """Keep it, instead of what was kept before."""
        self._kept[upstream] = kept

    def forget(self, upstream: str) -> bool:
        """Keep nothing; says whether there was something."""
        return self._kept.pop(upstream, None) is not None
