"""Requests that take long, and who sent them: one whose token or session counts no longer is ended.

A stream may stay open for days, and a call may wait for a person. Without this, who was shown the door could
go on listening. What is ended is cancelled once, as if its client had closed the connection: a call that only
waits is never run; one that runs is stopped as far as its tool can be, and recorded. An effect that it had is
not undone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from toolkeep.errors import ToolkeepError

log = logging.getLogger("toolkeep.server")

_LOOK_S: Final = 1.0
"""As long as a token that was revoked elsewhere is remembered."""


class NoLonger(Exception):
    """Who sent the request counts no longer, and it was cancelled for that."""


class Tenure:
    """Looks again and again whether who sent the requests under way still counts."""

    def __init__(self, find: Callable[[str], Awaitable[object | None]]) -> None:
        """`find` knows who a token or cookie belongs to: None, if it counts no longer."""
        self._find = find
        self._held: dict[asyncio.Task[Any], str] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def of(self, text: str) -> Iterator[None]:
        """Around a request: it is cancelled when its token no longer counts; raises `NoLonger` then."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is answered in a task")
        self._hold(task, text)
        try:
            yield
        except asyncio.CancelledError:
            if task in self._held:
                raise
            task.uncancel()
            raise NoLonger from None
        finally:
            self._held.pop(task, None)

    def follow(self, text: str, task: asyncio.Task[Any]) -> None:
        """The same for work that outlives its request, until it ends."""
        self._hold(task, text)
        task.add_done_callback(lambda _: self._held.pop(task, None))

    def _hold(self, task: asyncio.Task[Any], text: str) -> None:
        self._held[task] = text
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        """One round a while, until nothing is under way."""
        try:
            while self._held:
                await asyncio.sleep(_LOOK_S)
                for text in set(self._held.values()):
                    if not await self._counts(text):
                        self._end(text)
        finally:
            self._looking = None

    async def _counts(self, text: str) -> bool:
        try:
            return await self._find(text) is not None
        except ToolkeepError:
            return True  # nobody can say now; the next round asks again, and new requests are refused
        except Exception:
            log.exception("whether a token counts could not be found out; what it began is ended")
            return False

    def _end(self, text: str) -> None:
        for task in [task for task, held in self._held.items() if held == text]:
            del self._held[task]
            task.cancel()
