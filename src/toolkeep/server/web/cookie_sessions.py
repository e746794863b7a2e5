"""Browser sessions: a cookie identifies a session, and a change needs the CSRF token of one of its tabs.

Browsers send cookies to every port of a host, so another program that serves pages on this machine may see
ours. With the cookie alone it can read, but change nothing: tab tokens are issued for a key that lies in
local storage, which browsers separate by port, and which is sent once, at sign-in. Cookies, keys and
tab tokens are kept as hashes, the bearer token of a session as it is. A restart ends every session.
"""

import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from toolkeep.limits import SESSION_HOURS, SESSION_TABS, SESSIONS
from toolkeep.server.http.bearer_auth import BearerAuth, Caller
from toolkeep.stores.api_tokens import Scope

OPERATOR: Final = "operator"
PERSON: Final = "operator:page"
"""Approver name of a person who signed in with a link: as at the terminal, and not that of the agent."""


class Session(msgspec.Struct, kw_only=True, eq=False):
    """One person in one browser."""

    caller: Caller
    """The caller for reading, changes and calls."""
    approver: Caller
    """The caller for answers to approval requests."""
    key_hash: bytes
    ends_at: float
    token: str = ""
    """The token used to sign in; the session ends with it."""
    tabs: OrderedDict[bytes, None] = msgspec.field(default_factory=OrderedDict)

    def __repr__(self) -> str:
        """Without the token, which would otherwise reach logs and tracebacks."""
        return f"<session of {self.caller.agent}>"


class NewSession(msgspec.Struct, frozen=True):
    """The secrets of a new session, sent to the browser once."""

    cookie: str
    key: str


class Sessions:
    """All sessions of this server."""

    def __init__(self, authenticator: BearerAuth, clock: Callable[[], float] = time.time) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._held: dict[bytes, Session] = {}

    def begin_operator(self) -> NewSession:
        """Start a session with all rights, for a person who used a sign-in link."""
        caller = Caller(
            id=f"page-{secrets.token_hex(8)}",
            name=OPERATOR,
            scopes=(Scope.ADMIN,),
            agent=OPERATOR,
            created_at=self._clock(),
        )
        return self._begin(caller, msgspec.structs.replace(caller, agent=PERSON))

    async def begin_bearer(self, token: str) -> NewSession | None:
        """Start a session with the rights of a token."""
        caller = await self._authenticator.look_up(token)
        return None if caller is None else self._begin(caller, caller, token)

    def _begin(self, caller: Caller, approver: Caller, token: str = "") -> NewSession:
        begun = NewSession(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._held[_hash(begun.cookie)] = Session(
            caller=caller,
            approver=approver,
            key_hash=_hash(begun.key),
            ends_at=self._clock() + SESSION_HOURS * 3600,
            token=token,
        )
        if len(self._held) > SESSIONS:
            self._make_room()
        return begun

    def _make_room(self) -> None:
        """End the oldest session of the token that has most, so that one token cannot sign others out."""
        times = Counter(session.token for session in self._held.values())
        token = max(times, key=times.__getitem__)
        del self._held[next(key for key, session in self._held.items() if session.token == token)]

    async def find(self, cookie: str) -> Session | None:
        """The session of a cookie, if it is valid."""
        found = self._held.get(_hash(cookie))
        if found is None:
            return None
        is_live = self._clock() < found.ends_at
        if is_live and found.token:
            # Checked as for `/v1`: a revoked token ends the sessions that it started.
            known = await self._authenticator.authenticate(found.token)
            is_live = known is not None
            if known is not None:
                found.caller = found.approver = known
        if not is_live:
            self.end(cookie)
        return found if is_live else None

    def end(self, cookie: str) -> None:
        """Sign out."""
        self._held.pop(_hash(cookie), None)

    def open_tab(self, session: Session, key: str) -> str | None:
        """Issue a token for one tab, for the key of the session."""
        # Constant time over hashes: response times reveal nothing about the key.
        if not hmac.compare_digest(_hash(key), session.key_hash):
            return None
        token = secrets.token_urlsafe(32)
        session.tabs[_hash(token)] = None
        while len(session.tabs) > SESSION_TABS:
            session.tabs.popitem(last=False)
        return token

    def is_tab(self, session: Session, token: str) -> bool:
        """Whether a tab of this session holds this token.

        Looked up by hash: the time of a lookup depends on the hash, which a client cannot steer.
        """
        return _hash(token) in session.tabs


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
