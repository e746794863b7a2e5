"""A real haproxy with the configuration of `deploy/`, before servers on this machine."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = (ROOT / "deploy" / "haproxy.cfg").read_text()
HOST = "keep.example.org"
"""The name by which clients and checks address the servers."""
# Checked ten times as often as in the field, for servers that drain a fifth as long.
QUICK = CONFIGURATION.replace("inter 2s fastinter 500ms downinter 1s", "inter 200ms")


class Balancer:
    """haproxy while it runs."""

    def __init__(self, url: str, control: Path) -> None:
        self.url = url
        self._control = control

    def statuses(self) -> list[str]:
        """What it thinks of each server: UP, DOWN and the like."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self._control))
            client.sendall(b"show stat servers 4 -1\n")
            lines = b"".join(iter(lambda: client.recv(65536), b"")).decode().splitlines()
        return [line.split(",")[17] for line in lines if line.startswith("servers,")]

    def await_statuses(self, *wanted: str) -> None:
        """Wait until it thinks so."""
        until = time.monotonic() + 30
        while (found := self.statuses()) != list(wanted):
            assert time.monotonic() < until, found
            time.sleep(0.02)


@contextlib.contextmanager
def balancer(folder: Path, servers: Sequence[str], configuration: str = QUICK) -> Iterator[Balancer]:
    """haproxy before two servers (HOST:PORT)."""
    program = find_haproxy()
    address = f"127.0.0.1:{free_port()}"
    file, control = folder / "haproxy.cfg", folder / "haproxy.socket"
    file.write_text(configuration.replace("global\n", f"global\n    stats socket {control}\n", 1))
    environment = {
        **os.environ,
        "KEEP_LISTEN": address,
        "KEEP_HOST": HOST,
        "KEEP_SERVER_1": servers[0],
        "KEEP_SERVER_2": servers[1],
    }
    with (
        (folder / "haproxy.log").open("wb") as log,
        subprocess.Popen([program, "-db", "-f", file], env=environment, stderr=log, stdout=log) as process,
    ):
        try:
            made = Balancer(f"http://{address}", control)
            until = time.monotonic() + 30
            while not control.exists():
                assert time.monotonic() < until
                assert process.poll() is None, (folder / "haproxy.log").read_text()
                time.sleep(0.02)
            yield made
        finally:
            process.kill()


def find_haproxy() -> str:
    """The program; where there is none, a skip, or a failure in CI."""
    program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        missing = "haproxy is not installed: apt-get install haproxy"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return program


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
