"""Runs the escape suite on this machine, as whoever runs this: a host for each kind, each in an enclosure.

Comes in: the levels to attack. Goes out: every run. Bounded in time; whatever happens to this process, its
hosts end when it does, and their folders go with them.
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

from toolkeep.attack.catalog import KINDS, declared
from toolkeep.attack.expected import levels_of
from toolkeep.attack.host import ENCLOSURE, SECRET
from toolkeep.sandbox.container import FLAGS, PROC_FLAG, is_container
from toolkeep.sandbox.levels import Isolation

KIND_SECONDS: Final = 240.0
"""The longest that one kind may take; the slowest takes about 30 s of an idle core."""

_AT_ONCE: Final = 4
"""Hosts side by side: much of what they do is waiting."""

CONTROL: Final = "control"


@dataclass(frozen=True, slots=True)
class Run:
    """What a host saw of one attempt, once."""

    attempt: str
    level: str
    """Or `control`, for the run with nothing around it; or `resident`, for one in a program that stays."""
    seen: tuple[str, ...]
    """Signs that something got out."""
    ending: str
    said: str


@dataclass(frozen=True, slots=True)
class KindRuns:
    """All runs of one kind, and why some are missing."""

    kind: str
    runs: tuple[Run, ...]
    problem: str = ""

    def find(self, attempt: str, level: str) -> Run | None:
        """One run; none if it did not come to it."""
        return next((run for run in self.runs if (run.attempt, run.level) == (attempt, level)), None)


class Leases:
    """What keeps hosts alive; letting go ends them."""

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
            self.let_go(process)

    def let_go(self, process: "subprocess.Popen[str]") -> None:
        """End one host."""
        with self._lock:
            if process in self._held and process.stdin is not None:
                self._held.discard(process)
                process.stdin.close()

    def let_all_go(self) -> None:
        """End every host, those to come too."""
        with self._lock:
            self._is_over = True
            held = list(self._held)
        for process in held:
            self.let_go(process)


Tell = Callable[[Run], None]


def attack(levels: Collection[Isolation], tell: Tell) -> tuple[KindRuns, ...]:
    """Run all attempts at these levels; each run is told as it comes, from whatever thread."""
    leases = Leases()
    threads = ThreadPoolExecutor(max_workers=_AT_ONCE)
    run = functools.partial(run_kind, levels=levels, tell=tell, leases=leases)
    try:
        return tuple(threads.map(lambda kind: run(kind, new_folder()), KINDS))
    finally:
        leases.let_all_go()
        threads.shutdown(cancel_futures=True)


def count_runs(levels: Collection[Isolation], who: str) -> int:
    """How many runs there will be."""
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
    """All attempts of one kind; `launcher` is put before the host's command, to be somebody else."""
    try:
        process = _started(kind, folder, levels, launcher)
        return _followed(kind, process, tell, leases or Leases())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    kind: str, folder: Path, levels: Collection[str], launcher: Sequence[str]
) -> "subprocess.Popen[str]":
    host = _module("toolkeep.attack.host", kind, str(folder), *levels)
    return subprocess.Popen(  # noqa: S603 -- our own modules, by our own interpreter
        _module(ENCLOSURE, str(folder), *launcher, *host),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        env=_environment(folder),
        start_new_session=True,
    )


def _followed(kind: str, process: "subprocess.Popen[str]", tell: Tell, leases: Leases) -> KindRuns:
    """What a host says, until it has ended or its time is up."""
    leases.take(process)
    alarm = threading.Timer(KIND_SECONDS, leases.let_go, [process])
    alarm.start()
    try:
        return _heard(kind, process, tell)
    finally:
        alarm.cancel()
        leases.let_go(process)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-B", "-m", name, *arguments]


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's but where the code lies."""
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
