"""Stored OAuth sign-ins: the tokens of one upstream, and their audience.

Bound to the server's URL and to the issuer: another address under the same upstream name gets no token (RFC
8707).
"""

from typing import Final, Protocol

import msgspec


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """An OAuth client registered with an authorization server."""

    id: str
    secret: str = ""
    method: str = "none"
    """Client authentication method: none, client_secret_basic or client_secret_post."""
    redirect_uri: str = ""
    is_registered: bool = False
    """Whether it comes from dynamic client registration (RFC 7591)."""

    def __repr__(self) -> str:
        """Without secrets."""
        return "<client>"


SIGN_IN_VERSION: Final = 1


class StoredSignIn(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and endpoints of one sign-in."""

    version: int = SIGN_IN_VERSION
    """Of this struct; raised when an older toolkeep could no longer use it."""
    url: str
    """URL of the server that the tokens are for (audience); they are sent nowhere else."""
    issuer: str
    resource: str
    token_endpoint: str
    client: Client
    access_token: str = ""
    refresh_token: str = ""
    expires_at: float | None = None
    scope: str = ""
    """The requested scope."""
    wanted: str = ""
    """Scope that the server demanded since, not yet granted by a person."""
    metadata_url: str = ""
    """URL of the protected resource metadata."""

    def __repr__(self) -> str:
        """Without secrets."""
        return "<tokens>"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact."""
        return tuple(filter(None, (self.access_token, self.refresh_token, self.client.secret)))


class SignInStore(Protocol):
    """Storage of sign-ins by upstream."""

    def get(self, upstream: str) -> StoredSignIn | None:
        """Look up a sign-in."""

    def put(self, upstream: str, kept: StoredSignIn) -> None:
        """Store a sign-in, replacing the previous one."""

    def forget(self, upstream: str) -> bool:
        """Delete a sign-in; whether one existed."""


class MemorySignIns:
    """In-memory sign-ins."""

    def __init__(self) -> None:
        self._kept: dict[str, StoredSignIn] = {}

    def get(self, upstream: str) -> StoredSignIn | None:
        """Look up a sign-in."""
        return self._kept.get(upstream)

    def put(self, upstream: str, kept: StoredSignIn) -> None:
        """Store a sign-in, replacing the previous one."""
        self._kept[upstream] = kept

    def forget(self, upstream: str) -> bool:
        """Delete a sign-in; whether one existed."""
        return self._kept.pop(upstream, None) is not None
