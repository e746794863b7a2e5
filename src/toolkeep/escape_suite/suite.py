"""Runs the escape suite on this machine, as the current user: one host process per kind.

Input: the levels to attack. Output: every run. Each host runs in an enclosure (throw-away namespaces).
Bounded in time; hosts end when this process does, however it ends, and their folders are removed.
"""

import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkeep.escape_suite.attempt_catalog import KINDS, declared
from toolkeep.escape_suite.expected import levels_of
from toolkeep.escape_suite.host import ENCLOSURE, SECRET
from toolkeep.sandbox.container_check import FLAGS, PROC_FLAG, is_container
from toolkeep.sandbox.isolation_levels import Isolation

KIND_SECONDS: Final = 480.0
"""Time limit of one kind; the slowest takes about 30 s of an idle core."""

_AT_ONCE: Final = 4
"""Concurrent hosts: much of their work is waiting."""

CONTROL: Final = "control"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one attempt, as a host saw it."""

    attempt: str
    level: str
    """Or `control` for the unconfined run; or `resident` for one in a persistent process."""
    seen: tuple[str, ...]
    """Signs of an escape."""
    ending: str
    said: str


@dataclass(frozen=True, slots=True)
class KindRuns:
    """All runs of one kind, and why some are missing."""

    kind: str
    runs: tuple[Run, ...]
    problem: str = ""

    def find(self, attempt: str, level: str) -> Run | None:
        """One run; None if it did not happen."""
        return next((run for run in self.runs if (run.attempt, run.level) == (attempt, level)), None)


class Leases:
    """Keep-alive of host processes: closing a lease ends its host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[subprocess.Popen[str]] = set()
        self._is_over = False

    def take(self, process: "subprocess.Popen[str]") -> None:
        """Hold the lease of a host."""
        with self._lock:
            self._held.add(process)
            is_over = self._is_over
        if is_over:
            self.close(process)

    def close(self, process: "subprocess.Popen[str]") -> None:
        """End one host."""
        with self._lock:
            if process in self._held and process.stdin is not None:
                self._held.discard(process)
                process.stdin.close()

    def close_all(self) -> None:
        """End every host, future ones too."""
        with self._lock:
            self._is_over = True
            held = list(self._held)
        for process in held:
            self.close(process)


Tell = Callable[[Run], None]


def attack(levels: Collection[Isolation], tell: Tell) -> tuple[KindRuns, ...]:
    """Run all attempts at these levels; each run is reported as it ends, from any thread."""
    leases = Leases()
    threads = ThreadPoolExecutor(max_workers=_AT_ONCE)
    run = functools.partial(run_kind, levels=levels, tell=tell, leases=leases)
    try:
        return tuple(threads.map(lambda kind: run(kind, new_folder()), KINDS))
    finally:
        leases.close_all()
        threads.shutdown(cancel_futures=True)


def count_runs(levels: Collection[Isolation], who: str) -> int:
    """Number of runs there will be."""
    return sum(
        1 + sum(level in levels for level in levels_of(attempt))
        for kind in KINDS
        for attempt in declared(kind).values()
        if attempt.only_for in ("", who)
    )


def new_folder() -> Path:
    """A folder for one host, which any user may enter."""
    made = Path(tempfile.mkdtemp(prefix="toolkeep-attack-"))
    made.chmod(0o755)
    return made


def run_kind(
    kind: str,
    folder: Path,
    *,
    levels: Collection[str],
    tell: Tell = lambda _: None,
    leases: Leases | None = None,
    launcher: Sequence[str] = (),
) -> KindRuns:
    """All attempts of one kind; `launcher` is prepended to the host's command, to switch users."""
    try:
        process = _started(kind, folder, levels, launcher)
        return _followed(kind, process, tell, leases or Leases())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    kind: str, folder: Path, levels: Collection[str], launcher: Sequence[str]
) -> "subprocess.Popen[str]":
    host = _module("toolkeep.escape_suite.host", kind, str(folder), *levels)
    return subprocess.Popen(  # noqa: S603 -- our own modules, by our own interpreter
        _module(ENCLOSURE, str(folder), *launcher, *host),
        # A lease: the enclosure ends itself when this pipe closes, even if this process is killed.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        # An attempt without a sandbox must find no credentials of whoever runs the suite.
        env=_environment(folder),
        start_new_session=True,
    )


def _followed(kind: str, process: "subprocess.Popen[str]", tell: Tell, leases: Leases) -> KindRuns:
    """Read results of a host until it exits or its time is up."""
    leases.take(process)
    alarm = threading.Timer(KIND_SECONDS, leases.close, [process])
    alarm.start()
    try:
        return _heard(kind, process, tell)
    finally:
        alarm.cancel()
        leases.close(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-B", "-m", name, *arguments]


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's environment except where the code lies."""
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(path for path in map(os.path.abspath, sys.path) if Path(path).exists()),
        SECRET: secrets.token_hex(8),
    }


def _heard(kind: str, process: "subprocess.Popen[str]", tell: Tell) -> KindRuns:
    runs, problem = [], ""
    for said in _messages(process):
        if "attempt" in said:
            runs.append(Run(**{**said, "seen": tuple(said["seen"])}))
            tell(runs[-1])
        elif "unenclosed" in said:
            problem = f"no namespace could be made to throw away afterwards: {said['unenclosed']}{_hint()}"
        else:
            problem = f"the host failed: {said.get('failed', said)}"
    if process.wait() != 0 and not problem:
        problem = f"the host ended early: it failed, or took longer than {KIND_SECONDS:.0f} s"
    return KindRuns(kind, tuple(runs), problem)


def _hint() -> str:
    return f"; start the container with {FLAGS} {PROC_FLAG}" if is_container() else ""


def _messages(process: "subprocess.Popen[str]") -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        yield json.loads(line)
