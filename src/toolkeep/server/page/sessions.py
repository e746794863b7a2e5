"""Who is signed in: a cookie finds a session, and a change needs a token that only a tab of it knows.

A browser sends cookies to every port of a host, so another program that serves pages here may see ours. With
it alone it can read; it can change nothing: the key that tabs get their tokens for lies in storage that a
browser keeps apart by port, and is told once, to whoever signed in. Of all of them only hashes are kept. A
restart ends every session.
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
from toolkeep.server.auth import Caller, Recognizer
from toolkeep.tokens import Scope

OPERATOR: Final = "operator"
PERSON: Final = "operator:page"
"""In whose name a person answers who signed in with a link: as at the terminal, not that of the agent."""


class Session(msgspec.Struct, kw_only=True, eq=False):
    """One person in one browser."""

    caller: Caller
    """As whom they look, change and call."""
    approver: Caller
    """As whom they answer."""
    key_hash: bytes
    ends_at: float
    token: str = ""
    """The token that they signed in with; the session counts as long as it does."""
    tabs: OrderedDict[bytes, None] = msgspec.field(default_factory=OrderedDict)

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"<session of {self.caller.agent}>"


class Begun(msgspec.Struct, frozen=True):
    """What the browser is told when somebody signed in."""

    cookie: str
    key: str


class Sessions:
    """Everybody who is signed in to this server."""

    def __init__(self, recognizer: Recognizer, clock: Callable[[], float] = time.time) -> None:
        self._recognizer = recognizer
        self._clock = clock
        self._held: dict[bytes, Session] = {}

    def begin_operator(self) -> Begun:
        """For whoever used a link: they may do everything."""
        caller = Caller(
            id=f"page-{secrets.token_hex(8)}",
            name=OPERATOR,
            scopes=(Scope.ADMIN,),
            agent=OPERATOR,
            created_at=self._clock(),
        )
        return self._begin(caller, msgspec.structs.replace(caller, agent=PERSON))

    async def begin_bearer(self, token: str) -> Begun | None:
        """For whoever has a token: they may do what it says, also here."""
        caller = await self._recognizer.ask(token)
        return None if caller is None else self._begin(caller, caller, token)

    def _begin(self, caller: Caller, approver: Caller, token: str = "") -> Begun:
        begun = Begun(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
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
        """End the oldest session of the token that has most: nobody signs others out."""
        times = Counter(session.token for session in self._held.values())
        token = max(times, key=times.__getitem__)
        del self._held[next(key for key, session in self._held.items() if session.token == token)]

    async def find(self, cookie: str) -> Session | None:
        """The session of a cookie, if it counts."""
        found = self._held.get(_hash(cookie))
        if found is None:
            return None
        is_live = self._clock() < found.ends_at
        if is_live and found.token:
            # Asked as for `/v1`: a token that was revoked ends what was begun with it.
            known = await self._recognizer.find(found.token)
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
        """A token for one tab, for whoever shows the key of the session."""
        if not hmac.compare_digest(_hash(key), session.key_hash):
            return None
        token = secrets.token_urlsafe(32)
        session.tabs[_hash(token)] = None
        while len(session.tabs) > SESSION_TABS:
            session.tabs.popitem(last=False)
        return token

    def is_tab(self, session: Session, token: str) -> bool:
        """Whether a token was given to a tab of this session."""
        return _hash(token) in session.tabs


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
