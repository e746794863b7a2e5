"""Browser sessions: the cookie is the session, sealed under a key that browsers never see.

A server holds no session, so that each of several servers with the same key knows all of them, except those
that were signed out. Without a shared database the key is made at the start, and a restart ends all sessions.

A change needs the token of a tab, too. Browsers send cookies to every port of a host, so another program that
serves pages on this machine may see ours. With the cookie alone it can read, but change nothing: tab tokens
are issued for a key that lies in local storage, which browsers separate by port, and which is sent once, at
sign-in.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from toolkeep.limits import SESSION_HOURS, SIGN_IN_SECONDS
from toolkeep.server.http.bearer_auth import BearerAuth, Caller
from toolkeep.server.oidc.person import Attempt, Person
from toolkeep.stores.api_tokens import TOKEN_PREFIX, Scope
from toolkeep.text.display import echo_name

OPERATOR: Final = "operator"
PERSON: Final = "operator:page"
"""Approver name of a person who signed in with a link: as at the terminal, and not that of the agent."""
COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{64,3584}")
"""Browsers store 4,096 bytes of a cookie with its name and attributes."""
_ABOUT: Final = b"toolkeep page session"
_ATTEMPT: Final = b"toolkeep page sign-in"
_NONCE_BYTES: Final = 12
"""As ChaCha20-Poly1305 takes."""
_TAB: Final = re.compile(r"([A-Za-z0-9_-]{22})([A-Za-z0-9_-]{43})")


class _Content(msgspec.Struct, frozen=True, array_like=True):
    """What a cookie says."""

    id: str
    began_at: float
    key_hash: bytes
    token: str
    """The bearer token that signed in; empty for a link, and for a person of a provider."""
    person: Person | None = None
    """Whom an identity provider vouched for."""


class Session(msgspec.Struct, kw_only=True, eq=False):
    """One person in one browser."""

    id: str
    caller: Caller
    """The caller for reading, changes and calls."""
    approver: Caller
    """The caller for answers to approval requests."""
    key_hash: bytes
    began_at: float
    signed_in_at: float
    """When the person proved who they are, as far as is known; else 0."""
    ends_at: float
    is_of_provider: bool = False

    def __repr__(self) -> str:
        """Without the key."""
        return f"<session of {self.caller.agent}>"


class NewSession(msgspec.Struct, frozen=True):
    """The secrets of a new session, sent to the browser once."""

    cookie: str
    key: str


class SignedOut(Protocol):
    """The sessions that people ended before their time, and the sign-ins that were completed."""

    async def add(self, session_id: str, ends_at: float, now: float) -> bool:
        """Remember a session until it would have ended anyway; False if it was ended before."""

    async def has(self, session_id: str) -> bool:
        """Whether a session was ended; raises `StoreUnavailable` if that cannot be told."""


class MemorySignedOut:
    """Of one server."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}

    async def add(self, session_id: str, ends_at: float, now: float) -> bool:
        """Remember a session until it would have ended anyway; False if it was ended before."""
        self._ends = {held: end for held, end in self._ends.items() if end > now}
        is_new = session_id not in self._ends
        self._ends[session_id] = ends_at
        return is_new

    async def has(self, session_id: str) -> bool:
        """Whether a session was ended."""
        return session_id in self._ends


class Sessions:
    """Makes and checks sessions."""

    def __init__(
        self,
        authenticator: BearerAuth,
        *,
        key: bytes | None = None,
        signed_out: SignedOut | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`key` and `signed_out` are those of all servers of the keep."""
        self._authenticator = authenticator
        self._key = key or secrets.token_bytes(32)
        self._cipher = ChaCha20Poly1305(self._key)
        self._signed_out = MemorySignedOut() if signed_out is None else signed_out
        self._clock = clock

    def begin_operator(self) -> NewSession:
        """Start a session with all rights, for a person who used a sign-in link."""
        return self._begin("")

    async def begin_bearer(self, token: str) -> NewSession | None:
        """Start a session with the rights of a token."""
        # People of a provider sign in through it: an access token of theirs was given to a program.
        if not token.startswith(TOKEN_PREFIX) or await self._authenticator.look_up(token) is None:
            return None
        return self._begin(token)

    def begin_person(self, person: Person) -> NewSession | None:
        """Start a session of a person whom a provider vouches for; None if its names are too long."""
        begun = self._begin("", person)
        return begun if COOKIE.fullmatch(begun.cookie) else None

    def _begin(self, token: str, person: Person | None = None) -> NewSession:
        # A new id and key for each sign-in: one that somebody planted before is worth nothing (fixation).
        key = secrets.token_urlsafe(32)
        content = _Content(secrets.token_hex(8), self._clock(), _hash(key), token, person)
        return NewSession(self._seal(content, _ABOUT), key)

    def seal_attempt(self, attempt: Attempt) -> str:
        """A sign-in under way, as a cookie."""
        return self._seal(attempt, _ATTEMPT)

    def read_attempt(self, cookie: str) -> Attempt | None:
        """The sign-in under way of a cookie."""
        content = self._open(cookie, _ATTEMPT)
        return None if content is None else msgspec.json.decode(content, type=Attempt)

    async def is_used(self, attempt: Attempt) -> bool:
        """Whether a sign-in was completed, on any server."""
        return await self._signed_out.has(attempt.state)

    async def use(self, attempt: Attempt) -> bool:
        """Complete a sign-in; False if it was completed before."""
        now = self._clock()
        return await self._signed_out.add(attempt.state, now + SIGN_IN_SECONDS, now)

    def _seal(self, content: msgspec.Struct, about: bytes) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, msgspec.json.encode(content), about)
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    async def find(self, cookie: str) -> Session | None:
        """The session of a cookie, if it is valid."""
        content = self._read(cookie)
        if content is None or await self._signed_out.has(content.id):
            return None
        ends_at = content.began_at + SESSION_HOURS * 3600
        if content.person is not None:
            ends_at = min(ends_at, content.person.ends_at)
        if self._clock() >= ends_at:
            return None
        if content.person is not None:
            return await self._of_person(content, content.person, ends_at)
        caller = _operator(content)
        approver = msgspec.structs.replace(caller, agent=PERSON)
        if content.token:
            # Checked as for `/v1`: a revoked token ends the sessions that it started.
            known = await self._authenticator.authenticate(content.token)
            if known is None:
                return None
            caller = approver = known
        return Session(
            id=content.id,
            caller=caller,
            approver=approver,
            key_hash=content.key_hash,
            began_at=content.began_at,
            signed_in_at=content.began_at,
            ends_at=ends_at,
        )

    async def _of_person(self, content: _Content, person: Person, ends_at: float) -> Session | None:
        """The session of a person, unless they were revoked here or signed out at their provider."""
        revoked = await self._authenticator.revoked()
        if revoked.has_session(person.identity, person.session, person.issued_at):
            return None
        identity = person.identity
        caller = Caller(
            # The same in each browser: another one brings no new rate limit.
            id=hashlib.sha256(f"{identity.issuer}\0{identity.subject}".encode()).hexdigest()[:16],
            name=echo_name(identity.subject),
            scopes=person.scopes,
            agent=person.agent,
            created_at=person.issued_at,
            expires_at=ends_at,
            identity=identity,
        )
        return Session(
            id=content.id,
            caller=caller,
            # No agent can have this name. Many people may share an agent, which says what they see.
            approver=msgspec.structs.replace(caller, agent=f"{caller.name} ({identity.issuer})"),
            key_hash=content.key_hash,
            began_at=content.began_at,
            signed_in_at=person.authenticated_at,
            ends_at=ends_at,
            is_of_provider=True,
        )

    def _read(self, cookie: str) -> _Content | None:
        content = self._open(cookie, _ABOUT)
        return None if content is None else msgspec.json.decode(content, type=_Content)

    def _open(self, cookie: str, about: bytes) -> bytes | None:
        try:
            sealed = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (ValueError, InvalidTag):
            return None

    async def end(self, session: Session) -> None:
        """Sign out."""
        await self._signed_out.add(session.id, session.ends_at, self._clock())

    def open_tab(self, session: Session, key: str) -> str | None:
        """Issue a token for one tab, for the key of the session."""
        # Constant time over hashes: response times reveal nothing about the key.
        if not hmac.compare_digest(_hash(key), session.key_hash):
            return None
        name = secrets.token_urlsafe(16)
        return name + self._tab_mac(session, name)

    def is_tab(self, session: Session, token: str) -> bool:
        """Whether a tab of this session was given this token."""
        form = _TAB.fullmatch(token)
        return form is not None and hmac.compare_digest(form[2], self._tab_mac(session, form[1]))

    def _tab_mac(self, session: Session, name: str) -> str:
        mac = hmac.digest(self._key, f"tab {session.id} {name}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def _operator(content: _Content) -> Caller:
    return Caller(
        id=f"page-{content.id}",
        name=OPERATOR,
        scopes=(Scope.ADMIN,),
        agent=OPERATOR,
        created_at=content.began_at,
    )


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
