"""Cancels long requests whose token or session is revoked.

A stream may stay open for days, and a call may wait for approval: without this, a revoked token would keep
reading. A request is cancelled as if its client had disconnected: a call that only waits never runs; a
running one is stopped as far as its tool allows, and recorded. Its side effects are not undone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from toolkeep.errors import ToolkeepError

log = logging.getLogger("toolkeep.server")

_LOOK_S: Final = 0.4
"""With the half second for which `BearerAuth` caches a token, less than a second."""


class Revoked(Exception):
    """The request was cancelled because its token or session is no longer valid."""


class RevocationWatch:
    """Checks periodically whether the callers of running requests are still valid."""

    def __init__(self, find: Callable[[str], Awaitable[object | None]]) -> None:
        """`find` looks up a token or cookie: None if it is not valid."""
        self._find = find
        self._held: dict[asyncio.Task[Any], str] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def of(self, text: str) -> Iterator[None]:
        """Watch a request: it is cancelled when its token is revoked; raises `Revoked` then."""
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
            raise Revoked from None
        finally:
            self._held.pop(task, None)

    def follow(self, text: str, task: asyncio.Task[Any]) -> None:
        """Watch work that outlives its request, until it ends."""
        self._hold(task, text)
        task.add_done_callback(lambda _: self._held.pop(task, None))

    def _hold(self, task: asyncio.Task[Any], text: str) -> None:
        self._held[task] = text
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())

    def close(self) -> None:
        """Stop checking."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        """Check periodically until no request is left."""
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
            return True  # the store is unavailable: check again next time; new requests are refused
        except Exception:
            # Fail closed: an unexpected error must not keep a revoked token alive.
            log.exception("a token could not be checked; its requests are ended")
            return False

    def _end(self, text: str) -> None:
        for task in [task for task, held in self._held.items() if held == text]:
            del self._held[task]
            task.cancel()
