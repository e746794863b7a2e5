"""Requests that take long, and the tokens that they came with: one that is revoked meanwhile ends them.

A stream may stay open for days. Without this, who was shown the door could go on listening.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

from toolkeep.errors import ToolkeepError
from toolkeep.server.auth import Recognizer

_LOOK_S: Final = 1.0
"""As long as a token that was revoked elsewhere is remembered."""


class Tenure:
    """Looks again and again whether the tokens of requests under way still count."""

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self._held: dict[asyncio.Task[Any], str] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def of(self, text: str) -> Iterator[None]:
        """Around a request: it is cancelled when its token no longer counts."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is answered in a task")
        self._held[task] = text
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        try:
            yield
        finally:
            del self._held[task]

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
            return (self._recognizer.recall(text) or await self._recognizer.ask(text)) is not None
        except ToolkeepError:
            return True  # nobody can say now; the next round asks again, and new requests are refused

    def _end(self, text: str) -> None:
        for task in [task for task, held in self._held.items() if held == text]:
            task.cancel()
