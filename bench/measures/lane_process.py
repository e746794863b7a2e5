"""A lane of `measures.sandbox_lane` in a process of its own, seen from the one that starts it."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from measures.process_tree import descendants, ended_children, processor_seconds, proportional_bytes
from measures.sandbox_lane import BENCH

_PR_SET_CHILD_SUBREAPER = 36
_IDLE_S = 0.25
_SETTLED_S = 20.0
"""The longest wait for a lane to make ready what it wants to have ready."""
_LANES: set[int] = set()
"""Process ids; `subprocess` waits for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a lane did in its turn."""

    elapsed_s: float
    processor_s: float
    latencies_s: list[float]

    @property
    def rate(self) -> float:
        return len(self.latencies_s) / self.elapsed_s

    @property
    def processor_of_a_call_s(self) -> float:
        return self.processor_s / len(self.latencies_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a lane has started and not yet ended."""

    processes: int
    proportional_bytes: float

    def most(self, other: "Held") -> "Held":
        """The larger of each."""
        return Held(
            processes=max(self.processes, other.processes),
            proportional_bytes=max(self.proportional_bytes, other.proportional_bytes),
        )


class LaneProcess:
    """Starts the lane with a checkout of toolkeep, in an empty home folder, which is its project, too."""

    def __init__(self, lane: str, checkout: Path) -> None:
        self._lane = lane
        self._source = checkout.resolve() / "src"
        self._home = tempfile.TemporaryDirectory(prefix="toolkeep-bench-")
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._home.cleanup()

    def start(self) -> None:
        """Start it; the home folder is that of the time before, if there was one."""
        home = Path(self._home.name)
        project = home / "project"
        project.mkdir(exist_ok=True)
        left_out = ("TOOLKEEP_HOME", "XDG_STATE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment |= {"HOME": str(home), "PYTHONPATH": os.pathsep.join((str(self._source), str(BENCH)))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "measures.sandbox_lane", self._lane],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=project,
            start_new_session=True,  # the kernel may share processors between sessions: one for each lane
        )
        _LANES.add(self._process.pid)
        toolkeep = self._answer()
        if toolkeep is not None and not Path(toolkeep).is_relative_to(self._source):
            raise RuntimeError(f"{self._source} holds no toolkeep")

    def end(self) -> None:
        """Close it, and wait until it and all that it started have ended."""
        process = self._running()
        started = descendants(process.pid)
        process.communicate()
        _LANES.discard(process.pid)
        if process.returncode:
            raise RuntimeError(f"{self._lane} ended with {process.returncode}")
        deadline = time.monotonic() + _SETTLED_S
        while any(Path(f"/proc/{one}").exists() for one in started):
            reap_orphans()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._lane} left processes behind")
            time.sleep(_IDLE_S / 10)

    def run(self, *, in_flight: int = 1, seconds: float = 0, calls: int = 0) -> Slice:
        """Let it call; see `measures.sandbox_lane`. All other lanes are idle meanwhile."""
        reap_orphans()
        before = _processor_below()
        self._ask(in_flight, seconds, calls)
        elapsed, latencies = self._answer()
        reap_orphans()
        return Slice(elapsed_s=elapsed, processor_s=_processor_below() - before, latencies_s=latencies)

    def call_once(self) -> float:
        """How long one call takes; its processor time is not looked at."""
        self._ask(1, 0, 1)
        _, [latency] = self._answer()
        return float(latency)

    def settle(self) -> None:
        """Wait until it makes nothing ready any more, so that it takes nothing from the next one."""
        process_id, deadline = self._running().pid, time.monotonic() + _SETTLED_S
        before = processor_seconds(process_id)
        while time.monotonic() < deadline:
            time.sleep(_IDLE_S)
            now = processor_seconds(process_id)
            if now - before < 0.1 * _IDLE_S:
                break
            before = now
        reap_orphans()

    def held(self) -> Held:
        """All that it started and that still lives, itself left out."""
        started = descendants(self._running().pid)
        return Held(processes=len(started), proportional_bytes=sum(map(proportional_bytes, started)))

    def _ask(self, in_flight: int, seconds: float, calls: int) -> None:
        process = self._running()
        if process.stdin is None:
            raise RuntimeError("no pipe")
        process.stdin.write(json.dumps([in_flight, seconds, calls]) + "\n")
        process.stdin.flush()

    def _answer(self) -> Any:
        process = self._running()
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise RuntimeError(f"{self._lane} ended")
        return json.loads(line)

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise RuntimeError(f"{self._lane} was not started")
        return self._process


class Peak:
    """Watches what a lane holds, in a thread, twice a second; `held` is the most of it."""

    def __init__(self, lane: LaneProcess) -> None:
        self.held = lane.held()
        self._lane = lane
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.5):
            self.held = self.held.most(self._lane.held())


def adopt_orphans() -> None:
    """Become the parent of what lanes leave: bubblewrap does not wait for what it starts, and without a
    parent that does, its processor time would be lost."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("no subreaper")


def reap_orphans() -> None:
    """Wait for adopted processes that have ended."""
    for one in ended_children(os.getpid()):
        if one not in _LANES:
            os.waitpid(one, 0)


def _processor_below() -> float:
    """Processor time of all lanes, with all that they started."""
    return processor_seconds(os.getpid()) - time.process_time()
