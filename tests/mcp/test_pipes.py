"""A socket that is standard input and output of the command at once."""

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.talk import meta

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


def ask(client: socket.socket, *numbers: int) -> None:
    requests = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": GREET} for n in numbers]
    client.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in requests))


@pytest.mark.spec("MCP-3")
@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_client_on_one_socket_is_answered_until_it_has_said_everything(
    tmp_path: Path, family: socket.AddressFamily
) -> None:
    client, given = pair(family)
    command = [sys.executable, "-m", "toolkeep", "mcp", "--project", str(tmp_path)]
    with (
        client,
        subprocess.Popen(
            command, stdin=given.fileno(), stdout=given.fileno(), stderr=subprocess.PIPE
        ) as process,
    ):
        given.close()
        client.settimeout(60)
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
    command = [sys.executable, "-m", "toolkeep", "mcp", "--project", str(tmp_path)]
    with client, given, subprocess.Popen(command, stdin=given.fileno(), stdout=given.fileno()) as process:
        given.close()
        client.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize("family", [None, socket.AF_UNIX])
def test_a_client_that_floods_and_does_not_read_is_not_read_from_for_ever(
    tmp_path: Path, family: socket.AddressFamily | None
) -> None:
    client, given = pair(socket.AF_UNIX)
    unread = given.fileno() if family else subprocess.PIPE
    command = [sys.executable, "-m", "toolkeep", "mcp", "--project", str(tmp_path)]
    with client, subprocess.Popen(command, stdin=given.fileno(), stdout=unread) as process:
        given.close()
        ask(client, 0)
        client.settimeout(3)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 16 * MEGABYTE:
                sent += client.send(PINGS)
        process.kill()
    assert 0 < sent < 16 * MEGABYTE


def _greeted(line: bytes) -> Any:
    answer = json.loads(line)
    assert "Ada" in answer["result"]["content"][0]["text"]
    return answer["id"]
