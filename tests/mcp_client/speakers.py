"""Stands in for what carries messages to a server and back."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from toolkeep.audit.record_kinds import ServerAsked
from toolkeep.errors import NotRecorded
from toolkeep.events import UpstreamAsked
from toolkeep.mcp_client.transport import Progress

Answering = Callable[[dict[str, Any]], Any]


class Told:
    """A speaker that answers by method, and remembers what it was told."""

    def __init__(self, **ways: Answering) -> None:
        self.ways = ways
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.events: list[UpstreamAsked] = []
        """What was told of it."""
        self.is_alive = True
        self.has_changed = False
        self.watched: dict[str, list[Callable[[], None]]] = {}

    @contextmanager
    def watching(self, uri: str, heard: Callable[[], None]) -> Iterator[None]:
        self.watched[uri] = [heard]
        yield

    def take_list_changed(self) -> frozenset[str]:
        changed, self.has_changed = self.has_changed, False
        return frozenset({"tools"} if changed else ())

    def settle(self, version: str) -> None:
        pass

    async def listen(self) -> None:
        pass

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,
    ) -> Any:
        self.asked.append((method, params))
        await asyncio.sleep(0)
        return self.ways[method.replace("/", "_")](params)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.asked.append((method, params or {}))

    def set_active(self, *, is_active: bool) -> None:
        pass

    async def suspend(self) -> None:
        pass

    async def resume(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def discard(self) -> None:
        pass


class Log:
    """What was recorded, durable at once unless the disk is full."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.records: list[ServerAsked] = []
        self._is_full = is_full

    def __call__(self, record: ServerAsked) -> "asyncio.Future[Any]":
        self.records.append(record)
        written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._is_full:
            written.set_exception(NotRecorded("the disk is full"))
            written.exception()
        else:
            written.set_result(None)
        return written

    @property
    def lines(self) -> list[tuple[str, str, int]]:
        return [(one.call, one.outcome, one.of_calls) for one in self.records]
