"""Tokens: who may use a keep over the network, as whom, and for what (POL-8, WEB-1).

A token is `tk_ID_SECRET`. The id finds it; of the secret, 32 random bytes, only the SHA-256 is kept: a slow
hash protects what people choose, and nobody chooses these. The secret is shown once, when it is made.
Comes in: a `TokenTable`, which remembers. Does not protect a token from whoever may read the client's memory.
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

from toolkeep.errors import TokenRefused
from toolkeep.limits import TOKEN_CHARS, TOKEN_DAYS, TOKEN_USE_SECONDS, TOKENS
from toolkeep.wording import echo_name

_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 8
_FORM: Final = re.compile(r"tk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@:-]{0,63}")
_NOBODYS: Final = hashlib.sha256(b"").digest()
_DAY_SECONDS: Final = 86_400.0


class Scope(StrEnum):
    """One thing that a token lets its bearer do."""

    TOOLS_READ = "tools:read"
    TOOLS_WRITE = "tools:write"
    CALL = "call"
    APPROVE = "approve"
    AUDIT_READ = "audit:read"
    POLICIES_READ = "policies:read"
    METRICS = "metrics"
    OPENAPI = "openapi"
    MCP = "mcp"
    TOKENS = "tokens"
    ADMIN = "admin"
    """Everything."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token; never its secret. Times are seconds since 1970."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    agent: str
    """As whom its bearer calls tools, and answers questions."""
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None

    def has_scope(self, scope: Scope) -> bool:
        """Whether its bearer may do that."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def is_live(self, now: float) -> bool:
        """Whether it still counts."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class KeptToken(msgspec.Struct, frozen=True):
    """A token with the hash of its secret, as a table keeps it."""

    token: Token
    secret_hash: bytes

    def __repr__(self) -> str:
        """Without the hash."""
        return f"<kept token {self.token.id}>"


class MadeToken(msgspec.Struct, frozen=True):
    """A token that was just made, with the text that is shown this once."""

    token: Token
    text: str

    def __repr__(self) -> str:
        """Without the text."""
        return f"<made token {self.token.id}>"


class TokenTable(Protocol):
    """Where tokens are remembered."""

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Remember one; False where there are `most` already."""

    def find(self, token_id: str) -> KeptToken | None:
        """The token of an id."""

    def all(self) -> Sequence[Token]:
        """Every token, oldest first."""

    def revoke(self, token_id: str, at: float) -> bool:
        """Let a token no longer count; False where there is none that does."""

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Remember another in place of one that ends then, both or neither; False where it is gone."""

    def note_use(self, token_id: str, at: float) -> None:
        """Remember when a token was last used."""

    def close(self) -> None:
        """Let go of what is open."""


class Tokens:
    """The tokens of one keep: made, listed, rotated, revoked and recognized."""

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
        """A new token; `days` is how long it counts, None for ever. Raises `TokenRefused`.

        `ends_by` is until when it may count at most, in seconds since 1970.
        """
        now = self._clock()
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(agent or name):
            hint = "begin with a letter or digit, then letters, digits, spaces and . _ @ : -, at most 64"
            raise TokenRefused("a token needs a plain name, and so does its agent", hint=hint)
        if days is not None and not 0 < days <= _MOST_DAYS:
            raise TokenRefused(f"a token cannot count for {days:g} days", hint=f"at most {_MOST_DAYS} days")
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
            hint = "revoke those that nobody uses: toolkeep token list"
            raise TokenRefused(f"there are {TOKENS} tokens that count already", hint=hint)
        return MadeToken(token, text)

    def list(self) -> Sequence[Token]:
        """Every token, oldest first, those that no longer count too."""
        return self._table.all()

    def rotate(self, token_id: str, *, overlap_s: float = 0.0, ends_by: float | None = None) -> MadeToken:
        """Another token in the place of one that counts; the old one counts for `overlap_s` more.

        `ends_by` is until when the new one may count at most, in seconds since 1970.
        """
        now = self._clock()
        old = self._counting(token_id, now)
        lasts = None if old.expires_at is None else now + (old.expires_at - old.created_at)
        until = _earlier(lasts, ends_by)
        token = replace(
            old, id=secrets.token_hex(_ID_BYTES), created_at=now, expires_at=until, last_used_at=None
        )
        text, secret_hash = _new_text(token.id)
        ends_at = min(now + overlap_s, old.expires_at or now + overlap_s)
        if not self._table.exchange(old.id, KeptToken(token, secret_hash), ends_at=ends_at):
            raise _unknown(token_id)
        return MadeToken(token, text)

    def revoke(self, token_id: str) -> Token:
        """Let a token no longer count, from now on and everywhere."""
        now = self._clock()
        token = self._counting(token_id, now)
        if not self._table.revoke(token.id, now):
            raise _unknown(token_id)
        return replace(token, revoked_at=now)

    def recognize(self, text: str) -> Token | None:
        """The token that a bearer shows, if it counts; why not is nobody's business who shows a wrong one."""
        form = _FORM.fullmatch(text) if len(text) <= TOKEN_CHARS and text.isascii() else None
        if form is None:
            return None
        kept = self._table.find(form[1])
        # Compared even where there is none, so that an id cannot be told from the time it takes.
        is_same = hmac.compare_digest(_hash(form[2]), kept.secret_hash if kept else _NOBODYS)
        now = self._clock()
        if kept is None or not is_same or not kept.token.is_live(now):
            return None
        if now - (kept.token.last_used_at or 0.0) > TOKEN_USE_SECONDS:
            self._table.note_use(kept.token.id, now)
        return kept.token

    def close(self) -> None:
        """Let go of what is open."""
        self._table.close()

    def _counting(self, token_id: str, now: float) -> Token:
        """The one that counts and whose id is, or begins with, what is given."""
        found = [token for token in self._table.all() if token.is_live(now) and token.id.startswith(token_id)]
        if token_id and len(found) == 1:
            return found[0]
        if token_id and found:
            hint = "write more of it: toolkeep token list"
            raise TokenRefused(f"several tokens begin with {echo_name(token_id)!r}", hint=hint)
        raise _unknown(token_id)


_MOST_DAYS: Final = 3650


def _earlier(one: float | None, other: float | None) -> float | None:
    """The earlier of two ends; None never ends."""
    return min((end for end in (one, other) if end is not None), default=None)


def read_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """Scopes from words, each once, in our order; raises `TokenRefused`."""
    wanted = list(scopes)
    known = {scope.value for scope in Scope}
    for scope in wanted:
        if scope not in known:
            hint = "there are " + ", ".join(known_scope.value for known_scope in Scope)
            raise TokenRefused(f"there is no scope {echo_name(str(scope))!r}", hint=hint)
    if not wanted:
        raise TokenRefused("a token without a scope could do nothing", hint="name at least one scope")
    return tuple(scope for scope in Scope if scope.value in wanted)


def _new_text(token_id: str) -> tuple[str, bytes]:
    secret = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=").decode()
    return f"tk_{token_id}_{secret}", _hash(secret)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _unknown(token_id: str) -> TokenRefused:
    hint = "toolkeep token list shows those that do"
    return TokenRefused(f"no token {echo_name(token_id)!r} counts", hint=hint)


class MemoryTokens:
    """A table of tokens that lasts as long as the process."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptToken] = {}

    def add(self, kept: KeptToken, *, most: int) -> bool:
        """Remember one; False where there are `most` already."""
        live = [one for one in self._kept.values() if one.token.is_live(kept.token.created_at)]
        if len(live) >= most:
            return False
        self._kept[kept.token.id] = kept
        return True

    def find(self, token_id: str) -> KeptToken | None:
        """The token of an id."""
        return self._kept.get(token_id)

    def all(self) -> Sequence[Token]:
        """Every token, oldest first."""
        return sorted((kept.token for kept in self._kept.values()), key=lambda token: token.created_at)

    def revoke(self, token_id: str, at: float) -> bool:
        """Let a token no longer count; False where there is none that does."""
        return self._change(token_id, at, revoked_at=at)

    def exchange(self, token_id: str, kept: KeptToken, *, ends_at: float) -> bool:
        """Remember another in place of one that ends then, both or neither; False where it is gone."""
        if not self._change(token_id, kept.token.created_at, expires_at=ends_at):
            return False
        self._kept[kept.token.id] = kept
        return True

    def note_use(self, token_id: str, at: float) -> None:
        """Remember when a token was last used."""
        self._change(token_id, at, last_used_at=at)

    def close(self) -> None:
        """Nothing is open."""

    def _change(self, token_id: str, now: float, **changes: float) -> bool:
        kept = self._kept.get(token_id)
        if kept is None or not kept.token.is_live(now):
            return False
        self._kept[token_id] = KeptToken(replace(kept.token, **changes), kept.secret_hash)
        return True
