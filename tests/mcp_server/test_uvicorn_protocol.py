"""The command over HTTP: a client that sends a head without end is not listened to without end."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from tests.mcp_server.talk import modern_request
from toolkeep.limits import ServerLimits
from toolkeep.mcp_server.uvicorn_protocol import BoundedProtocol

pytestmark = pytest.mark.spec("MCP-3")


@contextlib.contextmanager
def started(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [sys.executable, "-m", "toolkeep", "mcp", "--project", str(tmp_path), "--http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            time.sleep(0.05)
        try:
            yield process, port
        finally:
            process.kill()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with started(tmp_path) as (_, port):
        yield port


def test_it_ends_when_it_is_told_to_though_somebody_listens(tmp_path: Path) -> None:
    body, said = modern_request("subscriptions/listen")
    raw = json.dumps(body).encode()
    headers = {"host": "localhost", "content-type": "application/json", "content-length": len(raw), **said}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with started(tmp_path) as (process, port), socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + raw)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        process.terminate()
        assert process.wait(60) == 0


def test_a_head_without_end_is_refused(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ")
        with contextlib.suppress(ConnectionError):  # it may be gone before all was sent
            client.sendall(b"a" * 4_000_000)
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 431 ") or not answer
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000 + b"\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 431 ")


class Wire:
    """A transport whose client reads as it is said: how much is left at each look."""

    def __init__(self, *left: int) -> None:
        self._left = list(left)
        self.is_aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self._left.pop(0)

    def abort(self) -> None:
        self.is_aborted.set()

    @property
    def has_more(self) -> bool:
        return bool(self._left)


def bounded(wire: Any) -> BoundedProtocol:
    kind = type("Impatient", (BoundedProtocol,), {"limits": ServerLimits(read_s=0.001)})
    protocol: BoundedProtocol = kind(uvicorn.Config(lambda: None), ServerState(), {})
    protocol.transport, protocol.flow = wire, FlowControl(wire)
    return protocol


def test_a_client_that_reads_is_waited_for_and_one_that_does_not_is_sent_away() -> None:
    async def act() -> bool:
        wire = Wire(900, 600, 300, 300, 100)
        bounded(wire).pause_writing()
        await asyncio.wait_for(wire.is_aborted.wait(), 20)
        return wire.has_more

    assert asyncio.run(act())


def test_a_client_that_has_read_everything_is_left_alone() -> None:
    async def act() -> bool:
        wire, other = Wire(900), Wire(900, 900)
        protocol = bounded(wire)
        protocol.pause_writing()
        protocol.resume_writing()
        bounded(other).pause_writing()
        await asyncio.wait_for(other.is_aborted.wait(), 20)
        return wire.is_aborted.is_set()

    assert not asyncio.run(act())
