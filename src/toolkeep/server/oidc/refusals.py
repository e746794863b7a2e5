"""Tells of access tokens, sign-ins and logouts that counted for nothing: by an event and in the signed log.

What they say of themselves is not told, only which issuer of the configuration they name, and our reason.
"""

import asyncio
import logging
from typing import Final, Literal, NamedTuple

from toolkeep.audit.entry import Leaf
from toolkeep.audit.record_kinds import IdentityRefused, written
from toolkeep.errors import ToolkeepError
from toolkeep.events import IdentityRefused as IdentityRefusedEvent
from toolkeep.host import clock
from toolkeep.keep.keep import Keep
from toolkeep.keep.refusal_counts import RefusalCounts

log = logging.getLogger("toolkeep.server")

What = Literal["access token", "sign-in", "logout"]


class Refused(NamedTuple):
    """A kind of refusal."""

    what: What
    issuer: str
    reason: str


_OTHER: Final = Refused("access token", "", "of many other kinds")


class Refusals:
    """Of one server."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._counts = RefusalCounts(self._tell, _OTHER)
        self._tasks: set[asyncio.Future[Leaf]] = set()
        """What is being written."""

    def add(self, what: What, issuer: str, reason: str) -> None:
        """Tell of one; anybody can cause them, so only the first of a kind is told at once."""
        self._counts.add(Refused(what, issuer, reason))

    async def close(self) -> None:
        """Tell what was counted, and end."""
        self._counts.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _tell(self, refused: Refused, count: int) -> None:
        what, issuer, reason = refused
        self._keep.publish(IdentityRefusedEvent(what=what, issuer=issuer, reason=reason, count=count))
        record = IdentityRefused(count=count, issuer=issuer, reason=reason, time=clock.now(), what=what)
        try:
            appended = asyncio.ensure_future(self._keep.record.log.append_soon(written(record)))
        except ToolkeepError as error:
            # It is refused whether it can be recorded or not.
            log.error("a refusal was not recorded", extra={"reason": error.message})  # noqa: TRY400 -- no bug
            return
        self._tasks.add(appended)
        appended.add_done_callback(self._recorded)

    def _recorded(self, done: "asyncio.Future[Leaf]") -> None:
        self._tasks.discard(done)
        if not done.cancelled() and isinstance(error := done.exception(), ToolkeepError):
            log.error("a refusal was not recorded", extra={"reason": error.message})
