"""A NATS server with or without JetStream, and a server and workers of a fleet in this process."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Keep
from toolkeep.config.fleet_settings import (
    FleetSettings,
    NatsSettings,
    TrustedServer,
    TrustedWorker,
    WorkerSettings,
)
from toolkeep.fleet.fleet_runner import FleetRunner, GrantOf
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet_worker.worker import Worker
from toolkeep.stores.records import MemoryRecord

_START_SECONDS = 10
_LEASE_SECONDS = 60.0
"""Long: the watchdog of a worker in this process would end the tests."""


@contextlib.contextmanager
def nats_server(*options: str) -> Iterator[NatsSettings]:
    """NATS on a free port of 127.0.0.1, for as long as the block lasts."""
    own = Path(sys.executable).with_name("nats-server")
    program = str(own) if own.exists() else shutil.which("nats-server")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("nats-server is not here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), "-a", "127.0.0.1", "-p", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(port)
        yield NatsSettings(servers=(f"nats://127.0.0.1:{port}",))
    finally:
        process.kill()
        process.wait()


def _await(port: int) -> None:
    ends_at = time.monotonic() + _START_SECONDS
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as one:
            if one.recv(4) == b"INFO":
                return
    raise RuntimeError("NATS did not start")


def new_key() -> PrivateKey:
    """A key of nobody before."""
    return PrivateKey(os.urandom(32))


class Server:
    """A keep whose calls go to workers."""

    def __init__(
        self,
        nats: NatsSettings,
        key: PrivateKey,
        workers: Iterable[tuple[PrivateKey, TrustedWorker]],
        tools: Iterable[Any],
        runs_on: dict[str, str | None],
    ) -> None:
        trusted = tuple(worker for _, worker in workers)
        settings = FleetSettings(nats=nats, workers=trusted, runs_on=runs_on, lease_s=_LEASE_SECONDS)
        self.record = MemoryRecord()

        def runner(grant_of: GrantOf) -> FleetRunner:
            return FleetRunner(settings, lambda: key, str(Path.cwd()), grant_of)

        self.keep = Keep(record=self.record, fleet=runner)
        for one in tools:
            self.keep.register(one)
        self.call = self.keep.call

    @property
    def ran(self) -> list[dict[str, Any]]:
        """The records of calls that workers ran."""
        said = [entry.record for entry in self.record.log.entries]
        return [record for record in said if record["type"] == "RanElsewhere"]


def trusted(name: str = "one", **may: Any) -> tuple[PrivateKey, TrustedWorker]:
    """A worker with a new key, as a server trusts it."""
    key = new_key()
    return key, TrustedWorker(name=name, key=key.public.text, **may)


@contextlib.asynccontextmanager
async def running(
    nats: NatsSettings,
    worker: tuple[PrivateKey, TrustedWorker],
    server: TrustedServer,
    tools: Iterable[Any],
    levels: tuple[str, ...] = ("standard", "strict", "wasm"),
) -> AsyncIterator[None]:
    """A worker for as long as the block lasts."""
    settings = WorkerSettings(nats=nats, servers=(server,), labels=worker[1].labels, slots=4)
    async with Keep() as keep:
        for one in tools:
            keep.register(one)
        task = asyncio.create_task(Worker(keep, settings, worker[0], levels).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def fleet(
    nats: NatsSettings, tools: Iterable[Any], runs_on: dict[str, str | None]
) -> AsyncIterator[Server]:
    """A server with one worker, which both have the tools."""
    key, worker = new_key(), trusted()
    server = Server(nats, key, [worker], tools, runs_on)
    async with server.keep, running(nats, worker, TrustedServer(key=key.public.text), tools):
        yield server
