"""`toolkeep demo`, as a new user meets it: a link, a call to approve, and nothing left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Demo(NamedTuple):
    """A demo that runs, and what it said."""

    process: "subprocess.Popen[str]"
    said: Any
    home: Path

    def heard(self) -> str:
        """What it said on standard error."""
        return (self.home.parent / "heard").read_text()

    def command(self, *words: str) -> Any:
        """What a command says about the demo's keep, from another terminal."""
        variables = {**os.environ, "TOOLKEEP_HOME": self.said["state"], "HOME": str(self.home)}
        words = (*words, "--project", self.said["project"], "--json")
        command = [sys.executable, "-m", "toolkeep", *words]
        return json.loads(subprocess.run(command, env=variables, stdout=subprocess.PIPE, check=True).stdout)


def asked(url: str, body: Any = None, token: str = "", **headers: str) -> Any:
    """What a server answers to a GET, or to a POST of a form or of JSON."""
    if isinstance(body, dict):
        headers["content-type"] = "application/json"
        body = json.dumps(body)
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, body.encode() if body else None, headers)  # noqa: S310 -- ours
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 -- the same
        return answer.read().decode()


@contextlib.contextmanager
def demo(home: Path, *program: str) -> Iterator[Demo]:
    """Start a demo in a home of its own, and end it with Ctrl-C."""
    program = program or (sys.executable, "-m", "toolkeep")
    home.mkdir()
    heard = (home.parent / "heard").open("w")
    with (
        heard,
        subprocess.Popen(
            [*program, "demo", "--port", "0", "--json"],
            env={**os.environ, "HOME": str(home), "TMPDIR": str(home)},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=heard,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        said = "".join(iter(process.stdout.readline, "}\n"))
        try:
            yield Demo(process, json.loads(f"{said}}}"), home)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.mark.spec("CLI-1")
def test_a_new_user_signs_in_and_approves_a_real_call(tmp_path: Path) -> None:
    with demo(tmp_path / "home") as running:
        page, _, code = running.said["link"].partition("#")
        server = page.removesuffix("/ui/sign-in")
        assert asked(page, urllib.parse.urlencode({"code": code}), origin=server)
        assert running.command("token", "link")["link"].startswith(f"{page}#")

        token = running.command("token", "make", "me", "-s", "admin", "--agent", "operator")["token"]
        waiting = {
            one["tool"]: one["id"]
            for one in json.loads(asked(f"{server}/v1/approvals", token=token))["items"]
        }
        assert set(waiting) == {"refund", "write_file"}
        asked(f"{server}/v1/approvals/{waiting['write_file']}:decide", {"verdict": "approve"}, token)
        notes = Path(running.said["project"]) / "notes.md"
        wait_for(lambda: "refunded" in notes.read_text())
    assert running.process.returncode == 0
    # Nothing is left, neither of the demo nor of its state.
    assert list((tmp_path / "home").rglob("*")) == []


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.05)
