"""Whoever asks, by the command, over HTTP or over MCP: attempts of the escape suite get nothing out."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.sandbox.arena import IDENTITIES, ORDINARY
from toolkeep.escape_suite.attempts import files_read, files_write, network
from toolkeep.escape_suite.suite import new_folder

SECRET = "KEY-of-somebody"
BECOME = str(Path(__file__).resolve().parent / "as_ordinary.py")
ATTEMPTS = {
    "read_ssh_key": (files_read.read_ssh_key, "key", "string"),
    "append_to_bashrc": (files_write.append_to_bashrc, "bashrc", "string"),
    "connect_to_loopback": (network.connect_to_loopback, "port", "integer"),
}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Home:
    """A home folder with attempts as tools, what they are after, and who it belongs to."""

    def __init__(self, identity: str) -> None:
        self.top = top = new_folder()
        self.key = top / "key"
        self.rc = top / "rc"
        for file in (self.key, self.rc):
            file.write_text(SECRET)
        (top / ".agent").mkdir()
        (top / ".agent" / "config.yml").write_text(json.dumps(_config()))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0)
        self.launcher: tuple[str, ...] = ()
        if identity == "ordinary" and os.geteuid() == 0:
            for path in (top, *top.rglob("*")):
                os.chown(path, ORDINARY, ORDINARY)
            self.launcher = (sys.executable, "-B", BECOME, str(ORDINARY))

    def arguments(self, attempt: str) -> dict[str, Any]:
        baits = {"key": str(self.key), "bashrc": str(self.rc), "port": self.listener.getsockname()[1]}
        name = ATTEMPTS[attempt][1]
        return {name: baits[name]}

    def start(self, *words: str, **how: Any) -> "subprocess.Popen[str]":
        environment = {**os.environ, "HOME": str(self.top), "TOOLKEEP_HOME": str(self.top / "state")}
        command = [*self.launcher, sys.executable, "-B", "-m", "toolkeep", *words]
        return subprocess.Popen(
            command, cwd=self.top, env=environment, text=True, stdout=subprocess.PIPE, **how
        )

    def signs(self, said: str) -> list[str]:
        """What got out."""
        try:
            self.listener.accept()[0].close()
            is_reached = True
        except BlockingIOError:
            is_reached = False
        seen = {
            "leaked": SECRET in said,
            "changed": self.rc.read_text() != SECRET,
            "connected": is_reached,
        }
        self.rc.write_text(SECRET)
        return [sign for sign, is_seen in seen.items() if is_seen]


def _config() -> dict[str, Any]:
    tools = [
        {
            "name": name,
            "version": "1.0.0",
            "description": "Tries to get out.",
            "side_effects": ["None"],
            "constraints": {"required_isolation": "strict"},
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": kind, "description": "A bait"}},
                "required": [parameter],
            },
            "run": {"python": f"{function.__module__}:{name}"},
        }
        for name, (function, parameter, kind) in ATTEMPTS.items()
    ]
    return {"tool_registry": {"custom_tools": tools}}


@pytest.fixture(params=IDENTITIES)
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("only root can be the host as root")
    with _made(request.param) as made:
        yield made


@contextmanager
def _made(identity: str) -> Iterator[Home]:
    made = Home(identity)
    try:
        with made.listener:
            yield made
    finally:
        shutil.rmtree(made.top)


# --- the entries -------------------------------------------------------------------------------

Ask = Callable[[str, dict[str, Any]], str]


@contextmanager
def by_command(home: Home) -> Iterator[Ask]:
    def ask(name: str, arguments: dict[str, Any]) -> str:
        with home.start("call", name, json.dumps(arguments), "--json") as process:
            return process.communicate(timeout=60)[0]

    yield ask


@contextmanager
def by_http(home: Home) -> Iterator[Ask]:
    with home.start("token", "make", "me", "--scope", "admin", "--agent", "operator") as made:
        token = made.communicate(timeout=60)[0].strip()
    with home.start("serve", "--port", "0", "--json") as server:
        address = json.loads(_object(server))["address"]

        def ask(name: str, arguments: dict[str, Any]) -> str:
            body = json.dumps({"arguments": arguments}).encode()
            headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
            url = f"{address}/v1/tools/{name}:call"
            wanted = urllib.request.Request(url, body, headers)  # noqa: S310 -- our own server
            try:
                with urllib.request.urlopen(wanted, timeout=60) as response:  # noqa: S310 -- the same
                    return str(response.read(), "utf-8")
            except urllib.error.HTTPError as error:
                with error:
                    return str(error.read(), "utf-8")

        try:
            yield ask
        finally:
            server.kill()


def _object(process: "subprocess.Popen[str]") -> str:
    lines = ""
    while not lines.endswith("}\n"):
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server ended"
        lines += line
    return lines


@contextmanager
def by_mcp(home: Home) -> Iterator[Ask]:
    with home.start("mcp", stdin=subprocess.PIPE) as server:

        def request(number: int, method: str, params: dict[str, Any]) -> str:
            assert server.stdin is not None
            assert server.stdout is not None
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message) + "\n")
            server.stdin.flush()
            while True:
                answer = server.stdout.readline()
                if not answer or json.loads(answer).get("id") == number:
                    return answer

        def ask(name: str, arguments: dict[str, Any]) -> str:
            return request(2, "tools/call", {"name": name, "arguments": arguments})

        request(1, "initialize", HANDSHAKE)
        try:
            yield ask
        finally:
            server.kill()


ENTRIES = {"call": by_command, "serve": by_http, "mcp": by_mcp}


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_lets_an_attempt_out(entry: str, home: Home) -> None:
    found = {}
    with ENTRIES[entry](home) as ask:
        for name in ATTEMPTS:
            said = ask(name, home.arguments(name))
            found[name] = (f"Tool '{name}' failed" in said, home.signs(said))
    assert found == dict.fromkeys(ATTEMPTS, (True, []))


@pytest.mark.parametrize(
    ("attempt", "sign"), list(zip(ATTEMPTS, ("leaked", "changed", "connected"), strict=True))
)
def test_each_works_with_nothing_around_it(attempt: str, sign: str) -> None:
    module = ATTEMPTS[attempt][0].__module__
    script = f"import json, sys; from {module} import {attempt} as act; print(act(**json.loads(sys.argv[1])))"
    with _made("root") as home:
        command = [sys.executable, "-B", "-c", script, json.dumps(home.arguments(attempt))]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert home.signs(said) == [sign]
