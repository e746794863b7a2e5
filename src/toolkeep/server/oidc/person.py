"""A person whom an identity provider vouches for, and a sign-in under way: what cookies of the page hold."""

import msgspec

from toolkeep.calls import Identity
from toolkeep.stores.api_tokens import Scope


class SignInInvalid(Exception):
    """A sign-in or a logout does not count, and why: for the operator's log."""


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in under way, as its browser holds it, sealed."""

    issuer: str
    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    key_hash: bytes
    """Of a secret that only pages of this origin hold: other ports of this host see and set cookies."""
    began_at: float
    is_fresh: bool
    """Whether the person has to authenticate anew, whatever session the provider has."""

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"<attempt at {self.issuer}>"


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person whom a provider vouches for."""

    identity: Identity
    agent: str
    scopes: tuple[Scope, ...]
    issued_at: float
    ends_at: float
    authenticated_at: float
    """When they gave their credentials, as far as the provider says; else 0."""
    session: str
    """The provider's session, for its logout; may be empty."""
