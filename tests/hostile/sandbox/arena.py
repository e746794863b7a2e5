"""Starts a host for each kind of attempt and each identity, once, and keeps what it saw."""

import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.hostile.sandbox.attempts.declare import Attempt
from tests.hostile.sandbox.bait import HERE, SETUID_PROGRAM
from tests.hostile.sandbox.expected import levels_of
from tests.hostile.sandbox.host import declared

ROOT: Final = HERE.parent.parent.parent
KINDS: Final = ("files_read", "files_write", "network", "processes", "kernel", "results")
IDENTITIES: Final = ("ordinary", "root")
ORDINARY: Final = 1_900_000_101
"""Who the ordinary host is if root runs these tests: nobody's id, so that its files and processes are ours."""

_SECONDS: Final = 120


@dataclass(frozen=True)
class Case:
    """One attempt at one level by one identity."""

    attempt: Attempt
    level: str
    identity: str


def cases(kind: str) -> list[Any]:
    """The parameters of the test of a kind."""
    return [
        pytest.param(Case(attempt, level.value, identity), id=f"{level}/{attempt.name}-{identity}")
        for attempt in declared(kind).values()
        for level in levels_of(attempt)
        for identity in IDENTITIES
        if attempt.only_for in ("", identity)
    ]


Runs = dict[tuple[str, str], dict[str, Any]]


def demand_containment(kind: str, case: Case) -> None:
    """Fail unless the attempt got nothing out, and its control did."""
    if case.identity == "root" and os.geteuid() != 0:
        _lacking("only root can be the host as root")
    runs = _runs(kind, case.identity)
    control = runs.get((case.attempt.name, "control"))
    confined = runs.get((case.attempt.name, case.level))
    assert control is not None, "the host ended before the control"
    if case.attempt.shows not in control["seen"]:
        if case.attempt.needs:
            _lacking(f"needs {case.attempt.needs}")
        pytest.fail(f"the control shows nothing: {control}")
    assert confined is not None, "the host ended before the attempt"
    assert confined["seen"] == [], confined


def _lacking(reason: str) -> None:
    """What a machine does not have cannot be attacked on it: a raw disk, some kinds of sockets."""
    pytest.skip(reason)


def _runs(kind: str, identity: str) -> Runs:
    return _started()[kind, identity].result()


@functools.cache
def _started() -> dict[tuple[str, str], "Future[Runs]"]:
    """All hosts, some at a time: much of what they do is waiting."""
    threads = ThreadPoolExecutor(max_workers=4)
    identities = IDENTITIES if os.geteuid() == 0 else IDENTITIES[:1]
    return {
        (kind, identity): threads.submit(_host, kind, identity) for kind in KINDS for identity in identities
    }


def _host(kind: str, identity: str) -> Runs:
    """Everything that one host saw."""
    top = Path(tempfile.mkdtemp(prefix="toolkeep-escape-"))
    try:
        top.chmod(0o755)
        command = [sys.executable, "-B", "-m", "tests.hostile.sandbox.host", kind, str(top)]
        if os.geteuid() == 0 and identity == "ordinary":
            _prepare_for_ordinary(top)
            command = [sys.executable, "-B", str(HERE / "as_ordinary.py"), str(ORDINARY), *command]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_SECONDS,
            cwd=ROOT,
            env={
                "PATH": "/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": str(top),
                "ESCAPE_SECRET": secrets.token_hex(8),
            },
            check=False,
        )
    finally:
        shutil.rmtree(top, ignore_errors=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(run["attempt"], run["level"]): run for run in found}


def _prepare_for_ordinary(top: Path) -> None:
    """What only root can make: the folder's owner, and a setuid program of root's beside the code."""
    code = top / "code" / "attempts"
    code.mkdir(parents=True)
    program = code / SETUID_PROGRAM
    shutil.copy("/usr/bin/id", program)
    for path in (top, code.parent, code):
        os.chown(path, ORDINARY, ORDINARY)
    program.chmod(0o4755)
