"""Two servers on one PostgreSQL behind haproxy, with the configuration of `deploy/`."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.balancer import HOST, QUICK, ROOT, balancer, free_port
from tests.storage.cluster import Cluster

UNIT = (ROOT / "deploy" / "systemd" / "toolkeep@.service").read_text()


class Machine:
    """A server with a home of its own, as the unit and the configuration of `deploy/` say."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        (home / ".agent").mkdir(parents=True)
        (home / ".agent" / "config.yml").write_text((ROOT / "deploy" / "config.yml").read_text())
        (home / "database-key").write_text("the same on both of these servers\n")
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self._environment = {
            "HOME": str(home),
            "TOOLKEEP_HOME": str(home / "state"),
            "DATABASE_URL": url,
            "DATABASE_KEY_FILE": str(home / "database-key"),
            "DATABASE_SINGLE": "true",
        }

    def run(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "toolkeep", *arguments]
        text: str = subprocess.run(command, **self._place(), check=True, capture_output=True).stdout
        return text.strip()

    def start(self) -> None:
        found = re.search(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)
        assert found is not None
        words = found[1].replace("%i", str(self.port)).replace("${KEEP_HOST}", HOST).split()
        command = [sys.executable, "-m", "toolkeep", *words, "--drain", "1"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, **self._place())
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def stop(self) -> int:
        """Tell it to stop; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def _place(self) -> dict[str, Any]:
        (self.home / "project").mkdir(exist_ok=True)
        return {"cwd": self.home / "project", "env": os.environ | self._environment, "text": True}


@pytest.fixture
def machines(tmp_path: Path, postgres: Cluster) -> Iterator[list[Machine]]:
    url = postgres.clean()
    made = [Machine(tmp_path / name, url) for name in ("one", "other")]
    try:
        for machine in made:
            machine.start()
        yield made
    finally:
        for machine in made:
            machine.kill()


def asked(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 -- our own server
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
            return error.code, json.loads(body) if body.startswith(b"{") else body


@contextlib.contextmanager
def load(url: str, token: str) -> Iterator[list[Any]]:
    """Calls without a pause, every second one with a key, on connections that stay open; their outcomes."""
    outcomes: list[Any] = []
    is_over = threading.Event()

    def call(name: str) -> None:
        client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        number = 0
        while not is_over.is_set():
            number += 1
            keyed = headers | ({"idempotency-key": f"{name} {number}"} if number % 2 else {})
            body = json.dumps({"arguments": {"name": name}})
            try:
                client.request("POST", "/v1/tools/agent_hello_world:call", body, keyed)
                response = client.getresponse()
                said = response.read()
                outcomes.append(response.status if response.status == 200 else (response.status, said))
            except (OSError, http.client.HTTPException) as error:
                outcomes.append(repr(error))
                client.close()
        client.close()

    threads = [threading.Thread(target=call, args=(name,)) for name in ("ada", "bob", "cy")]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)


def test_no_request_fails_while_both_servers_are_restarted_in_turn(
    tmp_path: Path, machines: list[Machine], postgres: Cluster
) -> None:
    token = machines[0].run("token", "make", "me", "--scope", "admin", "--agent", "operator")
    servers = [f"127.0.0.1:{machine.port}" for machine in machines]
    with balancer(tmp_path, servers) as front:
        front.await_statuses("UP", "UP")
        with load(front.url, token) as outcomes:
            stopped = []
            for machine in machines:
                await_more(outcomes)
                stopped.append(machine.stop())
                machine.start()
                front.await_statuses("UP", "UP")
        assert stopped == [0, 0]
        assert len(outcomes) > 20
        assert {str(outcome) for outcome in outcomes} == {"200"}

        # Without its database a server lives, and is not ready.
        postgres.stop()
        try:
            front.await_statuses("DOWN", "DOWN")
            own = f"http://127.0.0.1:{machines[0].port}"
            assert asked(f"{own}/healthz")[0] == 200
            until_true(lambda: asked(f"{own}/readyz")[1]["checks"]["database"] is False)
            assert asked(f"{front.url}/healthz")[0] == 503
            machines[0].stop()
            machines[0].start()
            until_true(lambda: asked(f"{own}/readyz")[1]["checks"]["database"] is False)
        finally:
            postgres.start()
        front.await_statuses("UP", "UP")


def await_more(outcomes: list[Any]) -> None:
    before = len(outcomes)
    until_true(lambda: len(outcomes) > before + 5)


def until_true(happened: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


POST = b"POST /v1/tools/pay:call HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"


@contextlib.contextmanager
def dying_server(posts: list[bytes]) -> Iterator[str]:
    """A server that is ready, reads a whole POST, and dies of it."""

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                request = client.recv(65536)
                if request.startswith(b"POST"):
                    posts.append(request)
                else:
                    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(30)


@pytest.mark.parametrize(("more", "count"), [("", 1), ("retry-on all-retryable-errors", 3)])
def test_a_call_whose_server_dies_reaches_no_second_server(tmp_path: Path, more: str, count: int) -> None:
    """The second case shows why the configuration must not say more about what is repeated."""
    posts: list[bytes] = []
    changed = QUICK.replace("option redispatch\n", f"option redispatch\n    {more}\n")
    with (
        dying_server(posts) as one,
        dying_server(posts) as other,
        balancer(tmp_path, [one, other], changed) as front,
    ):
        front.await_statuses("UP", "UP")
        host, port = front.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(POST)  # in one piece, so that haproxy could send it again
            assert client.recv(65536).startswith(b"HTTP/1.1 50")
    assert len(posts) == count
