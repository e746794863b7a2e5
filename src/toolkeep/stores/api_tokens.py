"""API tokens (bearer tokens): network access to a keep, bound to an agent and scopes (POL-8, WEB-1).

A token is `tk_ID_SECRET`. The id is the lookup key; of the secret (32 random bytes) only the SHA-256 is
stored. A fast hash is enough: slow hashes protect passwords that people choose, and 256 random bits cannot be
guessed. The secret is shown once, at creation. It does not protect a token from anyone who can read the
client's memory.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from toolkeep.calls import Identity
from toolkeep.errors import TokenRefused
from toolkeep.limits import TOKEN_CHARS, TOKEN_DAYS, TOKEN_USE_SECONDS, TOKENS
from toolkeep.stores.identity_revocations import REVOCATIONS, Revocation, merged
from toolkeep.text.display import echo_name

_SECRET_BYTES: Final = 32
"""Random bytes of a secret: 256 bits cannot be guessed, so a fast hash of it is enough. Written in 43
characters."""
_ID_BYTES: Final = 8
"""Random bytes of an id, which is no secret: 64 bits, so that no two of `TOKENS` are the same."""
TOKEN_PREFIX: Final = "tk_"  # noqa: S105 -- what every token begins with
_FORM: Final = re.compile(r"tk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@:-]{0,63}")
_DUMMY_HASH: Final = hashlib.sha256(b"").digest()
_DAY_SECONDS: Final = 86_400.0
"""A unit: lifetimes are given in days, the clock counts seconds."""


class Scope(StrEnum):
    """A permission of a token."""

    TOOLS_READ = "tools:read"
    TOOLS_WRITE = "tools:write"
    CALL = "call"
    SESSION = "session"
    APPROVE = "approve"
    AUDIT_READ = "audit:read"
    POLICIES_READ = "policies:read"
    METRICS = "metrics"
    OPENAPI = "openapi"
    MCP = "mcp"
    TOKENS = "tokens"
    ADMIN = "admin"
    """Includes all other scopes."""


_VIEWER: Final = (Scope.TOOLS_READ, Scope.AUDIT_READ, Scope.POLICIES_READ)
ROLES: Final[dict[str, tuple[Scope, ...]]] = {
    "viewer": _VIEWER,
    "approver": (*_VIEWER, Scope.APPROVE),
    "editor": (*_VIEWER, Scope.TOOLS_WRITE),
    "admin": (Scope.ADMIN,),
}
"""Scopes that people usually get together, by the word for them."""


def roles_of(scopes: Iterable[Scope]) -> list[str]:
    """The widest roles whose scopes are all held."""
    held = set(scopes)
    if Scope.ADMIN in held:
        return ["admin"]
    found = [role for role, needed in ROLES.items() if held.issuperset(needed)]
    return [role for role in found if role != "viewer"] or found


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """Token metadata, never the secret. Times are POSIX seconds."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    agent: str
    """The agent identity of its bearer, for calls and approvals."""
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None
    identity: Identity | None = None
    """Whom it names, if an identity provider issued it and not this keep."""

    def has_scope(self, scope: Scope) -> bool:
        """Whether the token has a scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def is_live(self, now: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class KeptToken(msgspec.Struct, frozen=True):
    """A token with the hash of its secret, as stored."""

    token: Token
    secret_hash: bytes

    def __repr__(self) -> str:
        """Without the hash."""
        return f"<kept token {self.token.id}>"


class MadeToken(msgspec.Struct, frozen=True):
    """A new token with its text, which is shown only once."""

    token: Token
    text: str

    def __repr__(self) -> str:
        """Without the text."""
        return f"<made token {self.token.id}>"


class TokenTable(Protocol):
    """Storage of tokens."""

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Insert a token; False if `most` live ones exist already."""

    def find(self, token_id: str) -> KeptToken | None:
        """Look up a token by id."""

    def all(self) -> Sequence[Token]:
        """All tokens, oldest first."""

    def revoke(self, token_id: str, at: float) -> bool:
        """Revoke a token; False if no live one has the id."""

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Rotate atomically: insert a new token and let the old one expire; False if the old one is gone."""

    def note_use(self, token_id: str, at: float) -> None:
        """Update the time of last use."""

    def revocations(self) -> Sequence[Revocation]:
        """What of identity providers does not count, oldest first."""

    def add_revocation(self, revocation: Revocation, *, most: int) -> bool:
        """Revoke something, and forget what is over; False if `most` of its kind are in force already."""

    def remove_revocation(self, revocation_id: str) -> bool:
        """Let something count again; False if it was not revoked."""

    def close(self) -> None:
        """Close the storage."""


class Tokens:
    """Token service of one keep: create, list, rotate, revoke, authenticate."""

    def __init__(self, table: TokenTable, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._clock = clock

    def make(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        agent: str = "",
        days: float | None = TOKEN_DAYS,
        ends_by: float | None = None,
    ) -> MadeToken:
        """Create a token valid for `days`, None for no expiry. Raises `TokenRefused`.

        `ends_by` is the latest expiry allowed, in POSIX seconds: a token must not outlive the one that
        created it.
        """
        now = self._clock()
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(agent or name):
            hint = "begin with a letter or digit, then letters, digits, spaces and . _ @ : -, at most 64"
            raise TokenRefused("a token needs a plain name, and so does its agent", hint=hint)
        if days is not None and not 0 < days <= _MOST_DAYS:
            raise TokenRefused(
                f"a token cannot be valid for {days:g} days", hint=f"at most {_MOST_DAYS} days"
            )
        token = Token(
            id=secrets.token_hex(_ID_BYTES),
            name=name,
            scopes=read_scopes(scopes),
            agent=agent or name,
            created_at=now,
            expires_at=_earlier(None if days is None else now + days * _DAY_SECONDS, ends_by),
        )
        text, secret_hash = _new_text(token.id)
        if not self._table.add(KeptToken(token, secret_hash), most=TOKENS):
            hint = "revoke unused ones: toolkeep token list"
            raise TokenRefused(f"there are already {TOKENS} valid tokens", hint=hint)
        return MadeToken(token, text)

    def list(self) -> Sequence[Token]:
        """All tokens, oldest first, revoked and expired ones included."""
        return self._table.all()

    def rotate(self, token_id: str, *, overlap_s: float = 0.0, ends_by: float | None = None) -> MadeToken:
        """Replace a live token by a new one; the old one stays valid for `overlap_s`.

        `ends_by` is the latest expiry allowed for the new one, in POSIX seconds.
        """
        now = self._clock()
        old = self._live_by_prefix(token_id, now)
        lasts = None if old.expires_at is None else now + (old.expires_at - old.created_at)
        until = _earlier(lasts, ends_by)
        token = replace(
            old, id=secrets.token_hex(_ID_BYTES), created_at=now, expires_at=until, last_used_at=None
        )
        text, secret_hash = _new_text(token.id)
        # The overlap never extends the old token beyond its own expiry.
        ends_at = min(now + overlap_s, old.expires_at or now + overlap_s)
        if not self._table.exchange(old.id, KeptToken(token, secret_hash), ends_at=ends_at):
            raise _unknown(token_id)
        return MadeToken(token, text)

    def revoke(self, token_id: str) -> Token:
        """Revoke a token, effective at once."""
        now = self._clock()
        token = self._live_by_prefix(token_id, now)
        if not self._table.revoke(token.id, now):
            raise _unknown(token_id)
        return replace(token, revoked_at=now)

    def revocations(self) -> Sequence[Revocation]:
        """What of identity providers does not count, oldest first."""
        now = self._clock()
        return [one for one in self._table.revocations() if not one.is_over(now)]

    def revoke_identity(self, issuer: str, *, subject: str = "", token_id: str = "") -> Revocation:
        """Refuse everything of a subject of an issuer, or one token by its `jti`, until it is restored."""
        if not issuer or bool(subject) == bool(token_id) or max(map(len, (issuer, subject, token_id))) > 1024:
            hint = "name the issuer as its tokens do in `iss`, and `sub` or `jti` of the token"
            raise TokenRefused("a revocation needs an issuer, and a subject or a token id", hint=hint)
        made = Revocation(issuer=issuer, subject=subject, token_id=token_id, made_at=self._clock())
        self._add(made)
        return made

    def log_out(self, issuer: str, *, subject: str, session: str, issued_by: float) -> Revocation:
        """Refuse what an issuer issued to a subject, or in a session, up to a time."""
        made = Revocation(
            issuer=issuer, subject=subject, session=session, issued_by=issued_by, made_at=self._clock()
        )
        self._add(made)
        return made

    def _add(self, revocation: Revocation) -> None:
        if not self._table.add_revocation(revocation, most=REVOCATIONS):
            hint = "remove some: toolkeep token revocations; or remove the subject's rights at the provider"
            raise TokenRefused(f"there are already {REVOCATIONS} revocations", hint=hint)

    def restore(self, revocation_id: str) -> Revocation:
        """Let a revoked subject or token count again; the id may be cut short."""
        found = [one for one in self.revocations() if one.id.startswith(revocation_id)]
        if not revocation_id or len(found) != 1 or not self._table.remove_revocation(found[0].id):
            hint = "toolkeep token revocations shows them"
            raise TokenRefused(f"no revocation {echo_name(revocation_id)!r}", hint=hint)
        return found[0]

    def recognize(self, text: str) -> Token | None:
        """Authenticate a bearer token; None if it is invalid, without saying why.

        A reason would help guessing.
        """
        # Syntax first: malformed tokens cost no database lookup, and are not echoed anywhere.
        form = _FORM.fullmatch(text) if len(text) <= TOKEN_CHARS and text.isascii() else None
        if form is None:
            return None
        kept = self._table.find(form[1])
        # Constant-time comparison, also for an unknown id: timing must reveal neither the secret's prefix nor
        # whether an id exists.
        is_same = hmac.compare_digest(_hash(form[2]), kept.secret_hash if kept else _DUMMY_HASH)
        now = self._clock()
        # One answer for unknown, wrong, revoked and expired.
        if kept is None or not is_same or not kept.token.is_live(now):
            return None
        # At most once a minute: a write for each request would cost more than the request.
        if now - (kept.token.last_used_at or 0.0) > TOKEN_USE_SECONDS:
            self._table.note_use(kept.token.id, now)
        return kept.token

    def close(self) -> None:
        """Close the storage."""
        self._table.close()

    def _live_by_prefix(self, token_id: str, now: float) -> Token:
        """The live token with this id or unique id prefix."""
        found = [token for token in self._table.all() if token.is_live(now) and token.id.startswith(token_id)]
        if token_id and len(found) == 1:
            return found[0]
        if token_id and found:
            hint = "write more of it: toolkeep token list"
            raise TokenRefused(f"several tokens begin with {echo_name(token_id)!r}", hint=hint)
        raise _unknown(token_id)


_MOST_DAYS: Final = 3650
"""Longest lifetime that can be given, ten years: more is a typing error, or means no expiry, which None
says."""


def _earlier(one: float | None, other: float | None) -> float | None:
    """The earlier of two expiry times; None is no expiry."""
    return min((end for end in (one, other) if end is not None), default=None)


def read_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """Parse scopes and roles, deduplicated, in canonical order; raises `TokenRefused`."""
    wanted = [scope for one in scopes for scope in ROLES.get(one, (one,))]
    known = {scope.value for scope in Scope}
    for scope in wanted:
        if scope not in known:
            hint = f"there are {', '.join(Scope)}, and the roles {', '.join(ROLES)}"
            raise TokenRefused(f"there is no scope {echo_name(str(scope))!r}", hint=hint)
    if not wanted:
        raise TokenRefused("a token without a scope could do nothing", hint="name at least one scope")
    return tuple(scope for scope in Scope if scope.value in wanted)


def _new_text(token_id: str) -> tuple[str, bytes]:
    # From the system's CSPRNG; URL-safe, so that it survives headers and shells unquoted.
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return f"tk_{token_id}_{secret}", _hash(secret)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _unknown(token_id: str) -> TokenRefused:
    hint = "toolkeep token list shows the valid ones"
    return TokenRefused(f"no valid token {echo_name(token_id)!r}", hint=hint)


class MemoryTokens:
    """In-memory token storage."""

    def __init__(
        self, kept: dict[str, KeptToken] | None = None, revoked: dict[str, Revocation] | None = None
    ) -> None:
        self._kept = {} if kept is None else kept
        self._revoked = {} if revoked is None else revoked

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Insert a token; False if `most` live ones exist already."""
        live = [one for one in self._kept.values() if one.token.is_live(kept.token.created_at)]
        # Expired and revoked ones do not count, or old tokens would block new ones for ever.
        if len(live) >= most:
            return False
        self._kept[kept.token.id] = kept
        return True

    def find(self, token_id: str) -> KeptToken | None:
        """Look up a token by id."""
        return self._kept.get(token_id)

    def all(self) -> Sequence[Token]:
        """All tokens, oldest first."""
        return sorted((kept.token for kept in self._kept.values()), key=lambda token: token.created_at)

    def revoke(self, token_id: str, at: float) -> bool:
        """Revoke a token; False if no live one has the id."""
        return self._change(token_id, at, revoked_at=at)

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Rotate atomically: insert a new token and let the old one expire; False if the old one is gone."""
        if not self._change(token_id, kept.token.created_at, expires_at=ends_at):
            return False
        self._kept[kept.token.id] = kept
        return True

    def note_use(self, token_id: str, at: float) -> None:
        """Update the time of last use."""
        self._change(token_id, at, last_used_at=at)

    def revocations(self) -> Sequence[Revocation]:
        """What of identity providers does not count, oldest first."""
        return sorted(self._revoked.values(), key=lambda one: one.made_at)

    def add_revocation(self, revocation: Revocation, *, most: int) -> bool:
        """Revoke something, and forget what is over; False if `most` are in force already."""
        for over in [key for key, one in self._revoked.items() if one.is_over(revocation.made_at)]:
            del self._revoked[over]
        revocation, replaced = merged(self._revoked, revocation)
        for key in replaced:
            del self._revoked[key]
        held = self._revoked.get(revocation.id)
        # Each kind for itself: no number of logouts keeps an operator from revoking something.
        is_logout = revocation.issued_by is not None
        others = sum((one.issued_by is not None) is is_logout for one in self._revoked.values())
        if held is None and others >= most:
            return False
        if held is None or (held.issued_by or 0.0) < (revocation.issued_by or 0.0):
            self._revoked[revocation.id] = revocation
        return True

    def remove_revocation(self, revocation_id: str) -> bool:
        """Let something count again; False if it was not revoked."""
        return self._revoked.pop(revocation_id, None) is not None

    def close(self) -> None:
        """No-op."""

    def _change(self, token_id: str, now: float, **changes: float) -> bool:
        kept = self._kept.get(token_id)
        if kept is None or not kept.token.is_live(now):
            return False
        self._kept[token_id] = KeptToken(replace(kept.token, **changes), kept.secret_hash)
        return True
