"""`toolkeep mcp`: what it refuses to start with, where it works, what it says; the rest is in tests/mcp_server."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.dialogue import Dialogue
from toolkeep.cli.main import cli


@pytest.mark.parametrize("host", ["0.0.0.1", "192.168.0.1", "example.org"])
def test_it_serves_this_machine_only(host: str) -> None:
    done = CliRunner().invoke(cli, ["mcp", "--http", "0", "--host", host])
    assert (done.exit_code, "can be reached by others" in done.stderr) == (2, True)


def test_an_agent_that_nobody_declared_is_wrong_usage() -> None:
    done = CliRunner().invoke(cli, ["mcp", "--http", "0", "--agent", "stranger"])
    assert (done.exit_code, "'stranger' is not declared" in done.stderr) == (2, True)


@pytest.mark.parametrize("options", [["--wait", "-1"], ["--http", "70000"], ["--http", "x"]])
def test_impossible_options_are_wrong_usage(options: list[str]) -> None:
    assert CliRunner().invoke(cli, ["mcp", *options]).exit_code == 2


def test_relative_paths_of_calls_start_from_the_project_wherever_a_client_starts_it(tmp_path: Path) -> None:
    call = {"name": "read_file", "arguments": {"path": "nothing.txt"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "toolkeep", "mcp", "--project", str(tmp_path)],
        cwd="/",
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        check=True,
    )
    (answer,) = (one for one in map(json.loads, done.stdout.splitlines()) if one["id"] == 2)
    assert "/path: 'nothing.txt' does not exist." in answer["result"]["content"][0]["text"]


def test_over_http_it_says_where_it_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ports: list[int] = []

    def serve(_: object, host: str, *, sock: socket.socket) -> None:
        ports.append(sock.getsockname()[1])
        raise KeyboardInterrupt

    monkeypatch.setattr("toolkeep.mcp_server.serve_http.serve_http", serve)
    done = CliRunner().invoke(cli, ["mcp", "--http", "0", "--project", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (0, f"✓ serving at http://127.0.0.1:{ports[0]}/mcp\n")


@pytest.mark.parametrize(("command", "option"), [("mcp", "--http"), ("serve", "--port")])
def test_an_address_that_is_taken_is_named_with_the_way_to_another(command: str, option: str) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(cli, [command, option, str(port)])
    reason = os.strerror(errno.EADDRINUSE)
    assert done.exit_code == 1
    assert done.stderr == f"✗ 127.0.0.1:{port}: {reason}; choose another with {option}\n"


def test_an_address_of_another_machine_is_named_with_the_way_to_another() -> None:
    done = CliRunner().invoke(cli, ["serve", "--host", "198.51.100.7", "--port", "0"])
    reason = os.strerror(errno.EADDRNOTAVAIL)
    assert done.exit_code == 1
    assert done.stderr == f"✗ 198.51.100.7:0: {reason}; choose another with --host\n"


def test_on_a_terminal_it_answers_what_is_typed_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with Dialogue(["mcp", "--project", str(tmp_path)], cwd=tmp_path) as person:
        person.enter('{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        person.until('{"jsonrpc":"2.0","id":7,"result":{}}\n')
        person.enter("\x03")
        assert person.end() == (0, "^C")
