"""Durable appends a second from many asyncio producers: the audit log, and SQLite with its own group commit.

Both write the same records from one thread, sync before they answer, and wake the loop once a group. The
audit log also chains, grows its tree and signs checkpoints; SQLite stores text in a table and, if asked, a
hash over the record and the hash before it.
"""

import asyncio
import hashlib
import queue
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import orjson

from toolkeep.storage.log.audit_log import AuditLog

RECORD: dict[str, Any] = {
    "event": "ToolCompleted",
    "time": "2025-11-15T07:00:00.000000+00:00",
    "call": "01JCQ000000000000000000007",
    "agent": "agent-17",
    "tool": "read_file",
    "definition_hash": "12" * 32,
    "argument_hash": "ab" * 32,
    "result_hash": "cd" * 32,
    "decision": "allow",
    "milliseconds": 12,
}

Append = Callable[[dict[str, Any]], Awaitable[Any]]


class Store(Protocol):
    def append_soon(self, record: dict[str, Any]) -> Awaitable[Any]: ...
    def close(self) -> None: ...


class SqliteLog:
    """A table in WAL mode with synchronous=FULL; whatever waits goes into one transaction."""

    def __init__(self, folder: Path, *, has_chain: bool = False) -> None:
        folder.mkdir(parents=True)
        self._has_chain = has_chain
        self._file = folder / "log.db"
        self._queue: queue.SimpleQueue[tuple[str, asyncio.Future[int]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def append_soon(self, record: dict[str, Any]) -> "asyncio.Future[int]":
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put((orjson.dumps(record).decode(), waiter))
        return waiter

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._file, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(
            "CREATE TABLE records (number INTEGER PRIMARY KEY, hash TEXT, record TEXT NOT NULL) STRICT"
        )
        number, last = 0, ""
        is_open = True
        while is_open:
            taken = [self._queue.get()]
            while not self._queue.empty():
                taken.append(self._queue.get())
            group = [item for item in taken if item is not None]
            is_open = len(group) == len(taken)
            if not group:
                break
            connection.execute("BEGIN IMMEDIATE")
            rows: list[tuple[int, str | None, str]] = []
            for place, (record, _) in enumerate(group):
                if self._has_chain:
                    last = hashlib.sha256((last + record).encode()).hexdigest()
                rows.append((number + place, last or None, record))
            connection.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
            number += len(group)
            loop = group[0][1].get_loop()
            loop.call_soon_threadsafe(_settle, [waiter for _, waiter in group], number)
        connection.close()


def _settle(waiters: "list[asyncio.Future[int]]", number: int) -> None:
    for waiter in waiters:
        waiter.set_result(number)


def appends_per_second(make: Callable[[], Store], *, producers: int, appends: int) -> float:
    """Every producer appends, waits until that is durable, and appends again."""
    store = make()
    try:
        return asyncio.run(_drive(store.append_soon, producers=producers, appends=appends))
    finally:
        store.close()


async def _drive(append: Append, *, producers: int, appends: int) -> float:
    await append(RECORD)  # opens files, makes keys, starts the thread

    async def produce() -> None:
        for _ in range(appends // producers):
            await append(RECORD)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(producers):
            group.create_task(produce())
    return appends / (time.perf_counter() - start)


class CanonicalLog:
    """The audit log as the record of calls uses it: what it appends is canonical already."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def append_soon(self, record: dict[str, Any]) -> Awaitable[Any]:
        return self._log.append_soon(orjson.dumps(record, option=orjson.OPT_SORT_KEYS))

    def close(self) -> None:
        self._log.close()


class WrappedLog:
    """The audit log through `concurrent.futures.Future` and `asyncio.wrap_future`."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def append_soon(self, record: dict[str, Any]) -> Awaitable[Any]:
        return asyncio.wrap_future(self._log.append(record))

    def close(self) -> None:
        self._log.close()
