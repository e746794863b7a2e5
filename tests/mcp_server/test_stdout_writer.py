"""Where answers over standard output go: pipes, and a socket that is standard input at once."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import uvloop

from tests.mcp_server.talk import meta
from toolkeep.limits import MCP_UNREAD_BYTES
from toolkeep.mcp_protocol.jsonrpc import notification, request
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.stdio_server import serve_stdio
from toolkeep.mcp_server.stdout_writer import handed_over, open_writer

GREET = {"name": "agent_hello_world", "arguments": {"name": "Ada"}, "_meta": meta()}

MEGABYTE = 1 << 20
PINGS = b'{"jsonrpc":"2.0","id":"%b","method":"no/such"}\n' % (b"x" * 900) * 1000


def pair(family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    if family is socket.AF_UNIX:
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
        return near, far


@contextlib.contextmanager
def started(
    project: Path, given: socket.socket, output: socket.socket | int, **options: Any
) -> "Iterator[subprocess.Popen[bytes]]":
    """The command with a socket of its own, ended with the block whatever became of it."""
    command = [sys.executable, "-m", "toolkeep", "mcp", "--project", str(project)]
    written = output if isinstance(output, int) else output.fileno()
    with subprocess.Popen(command, stdin=given.fileno(), stdout=written, **options) as process:
        given.close()
        try:
            yield process
        finally:
            process.kill()


def ask(client: socket.socket, *numbers: int) -> None:
    requests = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": GREET} for n in numbers]
    client.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in requests))


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_client_on_one_socket_is_answered_until_it_has_said_everything(
    tmp_path: Path, family: socket.AddressFamily
) -> None:
    client, given = pair(family)
    with client, started(tmp_path, given, given, stderr=subprocess.PIPE) as process:
        client.settimeout(20)
        answers = client.makefile("rb")
        for number in range(3):
            ask(client, number)
            assert _greeted(answers.readline()) == number
        ask(client, *range(3, 23))
        client.shutdown(socket.SHUT_WR)
        assert {_greeted(line) for line in answers} == set(range(3, 23))
        assert (process.wait(30), process.stderr and process.stderr.read()) == (0, b"")


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_client_that_is_gone_ends_the_command(tmp_path: Path, family: socket.AddressFamily) -> None:
    client, given = pair(family)
    with client, started(tmp_path, given, given) as process:
        client.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize("family", [None, socket.AF_UNIX])
def test_a_client_that_floods_and_does_not_read_is_not_read_from_for_ever(
    tmp_path: Path, family: socket.AddressFamily | None
) -> None:
    client, given = pair(socket.AF_UNIX)
    with client, started(tmp_path, given, given if family else subprocess.PIPE):
        ask(client, 0)
        client.settimeout(3)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 16 * MEGABYTE:
                sent += client.send(PINGS)
    assert 0 < sent < 16 * MEGABYTE


def _greeted(line: bytes) -> Any:
    answer = json.loads(line)
    assert "Ada" in answer["result"]["content"][0]["text"]
    return answer["id"]


LOOPS = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


def run(make_loop: MakeLoop, work: Any) -> Any:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(work)


@LOOPS
def test_a_descriptor_that_libuv_closes_is_closed_by_nobody_else(make_loop: MakeLoop) -> None:
    async def closed(stream: IO[bytes]) -> int:
        file = handed_over(stream, "rb")
        with file:
            return file.fileno()

    with Path(os.devnull).open("rb") as stream:
        number = run(make_loop, closed(stream))
    with (
        contextlib.nullcontext()
        if make_loop is uvloop.new_event_loop
        else pytest.raises(OSError, match="Bad file")
    ):
        os.close(number)


@LOOPS
def test_no_descriptor_is_left_behind(make_loop: MakeLoop, server: McpServer) -> None:
    (source, told), (heard, sink) = os.pipe(), os.pipe()
    os.write(told, json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode() + b"\n")
    os.close(told)
    with os.fdopen(source, "rb", 0) as read, os.fdopen(sink, "wb", 0) as written:
        before = list(Path("/proc/self/fd").iterdir())
        run(make_loop, serve_stdio(server, read, written))
        after = list(Path("/proc/self/fd").iterdir())
    with os.fdopen(heard, "rb") as answers:
        assert json.loads(answers.read())["id"] == 1
    assert before == after


def test_notifications_that_nobody_reads_are_left_out_and_answers_are_not() -> None:
    told = notification("notifications/progress", {"message": "x" * 100_000})
    vital = [request(1, "elicitation/create", {}), b'{"jsonrpc":"2.0","id":7,"result":{}}']

    async def act() -> bytes:
        heard, sink = os.pipe()
        with os.fdopen(heard, "rb") as answers:
            with os.fdopen(sink, "wb", 0) as file:
                writer = await open_writer(file)
            for _ in range(100):
                writer.write(told)
            for frame in vital:
                writer.write(frame)
            read = asyncio.ensure_future(asyncio.to_thread(answers.read))
            await writer.drain()
            await writer.close()
            return await read

    lines = asyncio.run(act()).splitlines()
    assert lines[-2:] == vital
    assert 0 < sum(map(len, lines)) < MCP_UNREAD_BYTES + 2 * len(told)
