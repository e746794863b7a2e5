"""How people sign in to the page of servers that share a PostgreSQL: codes of links, and sign-outs."""

import asyncio
import time
from collections.abc import Callable

from toolkeep.errors import StoreUnavailable
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_register import REGISTERS, SharedRegister
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes


class SharedSignInCodes:
    """One-time codes that work on every server, once."""

    def __init__(self, register: SharedRegister[float], clock: Callable[[], float] = time.time) -> None:
        self._register = register
        self._clock = clock

    def make(self) -> str:
        """A new code, told this once."""
        return self._register.change(lambda held: MemorySignInCodes(self._clock, held).make())

    def use(self, code: str) -> bool:
        """Use a code up; False for one that does not count."""
        return self._register.change(lambda held: MemorySignInCodes(self._clock, held).use(code))


class SharedSignedOut:
    """The sessions that people ended on any server; the others know within a second."""

    def __init__(self, register: SharedRegister[float], kind: str, changes: SharedChanges) -> None:
        self._register = register
        self._kind = kind
        self._known: dict[str, float] = {}
        changes.watch(REGISTERS, self._heard)

    async def add(self, session_id: str, ends_at: float, now: float) -> None:
        """Remember a session until it would have ended anyway."""

        def edit(held: dict[str, float]) -> None:
            for over in [one for one, end in held.items() if end <= now]:
                del held[over]
            held[session_id] = ends_at

        await asyncio.to_thread(self._register.change, edit)
        self._known = {**self._known, session_id: ends_at}

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._known

    def _heard(self, kind: str) -> None:
        if kind in ("", self._kind):
            try:
                self._known = self._register.read()
            except StoreUnavailable:
                return  # tried again within a second
