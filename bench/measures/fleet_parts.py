"""NATS, homes with keys, workers and clients, each a process of its own, for the benchmarks of workers."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from wasmtime import wat2wasm

from measures.mcp_load import BENCH, free_port
from measures.process_tree import processor_seconds
from toolkeep.fleet.identity import load_key
from wasm import ECHO

PROGRAMS = Path(sys.executable).parent
SOURCE = BENCH.parent / "src"
_SHARED: dict[str, object] = {
    "version": "1.0.0",
    "description": "Add, or give back.",
    "side_effects": ["None"],
    "parameters": {
        "type": "object",
        "properties": {name: {"type": "integer", "description": "A number."} for name in "ab"},
        "required": ["a", "b"],
    },
}
_RUNS: dict[str, dict[str, object]] = {
    "add": {
        "run": {"python": "{home}/tools.py:add"},
        "constraints": {"required_isolation": "strict", "max_execution_time": 600},
    },
    "echo": {"run": {"wasm": "{home}/echo.wasm"}},
}


@contextlib.contextmanager
def process(
    command: Sequence[str | Path],
    home: Path | None = None,
    *,
    state: str = "",
    source: Path = SOURCE,
    **more: Any,
) -> Iterator[int]:
    """The id of a process that is ended with the block."""
    environment = os.environ | {"PYTHONPATH": f"{source}:{BENCH}"}
    if home is not None:
        environment |= {"HOME": str(home), "TOOLKEEP_HOME": state or state_of(home)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen([*map(str, command)], env=environment, **(quiet | more))
    try:
        yield started.pid
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def nats_server(*options: str) -> Iterator[tuple[str, int]]:
    """Its address and process."""
    port = free_port()
    with process([PROGRAMS / "nats-server", "-a", "127.0.0.1", "-p", str(port), *options]) as started:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
        yield f"nats://127.0.0.1:{port}", started


def state_of(home: Path) -> str:
    """The state folder of a home."""
    return f"{home}/state"


def make_home(home: Path) -> Path:
    """A home, which is its project, too: a configuration there needs nobody's consent."""
    (home / ".agent").mkdir(parents=True)
    (home / "tools.py").write_text("def add(a, b):\n    return a + b\n")
    (home / "echo.wasm").write_bytes(wat2wasm(ECHO))
    return home


def configure(home: Path, **settings: object) -> None:
    """Write its configuration, with both tools."""
    tools = {"custom": [{"name": name, **_SHARED, **run} for name, run in _RUNS.items()]}
    known = json.loads(json.dumps(tools).replace("{home}", str(home)))
    (home / ".agent" / "config.yml").write_text(json.dumps({"tools": known, **settings}))


def key_of(state: str, role: str) -> str:
    """The public key of a server or a worker; it is made where there is none."""
    return load_key(Path(state) / "fleet" / f"{role}.key").public.text


def fleet(url: str, workers: Mapping[str, str]) -> dict[str, object]:
    """Settings of a server: it knows these workers by name and key."""
    known = [{"name": name, "key": key} for name, key in workers.items()]
    return {"fleet": {"nats": {"servers": url}, "runs_on": {"add": "", "echo": ""}, "workers": known}}


def worker(home: Path, *options: str, source: Path = SOURCE) -> "contextlib.AbstractContextManager[int]":
    """The id of a `toolkeep worker`."""
    return process([PROGRAMS / "toolkeep", "worker", *options, "--project", home], home, source=source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a lane did in its turn."""

    times: list[tuple[float, float]]
    """When each call began and ended."""
    in_flight: int

    @property
    def latencies_s(self) -> list[float]:
        """Of each call."""
        return [ended - began for began, ended in self.times]

    @property
    def rate(self) -> float:
        """Calls a second, without the first ones, for which processes may lie ready."""
        ends = sorted(ended for _, ended in self.times)
        left_out = self.in_flight if self.in_flight < len(ends) / 2 else 0
        return (len(ends) - left_out) / (ends[-1] - (ends[left_out - 1] if left_out else 0.0))


class Client:
    """A process that makes calls when it is told to (`measures.fleet_client`)."""

    def __init__(self, *words: object, source: Path = SOURCE) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "measures.fleet_client", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{source}:{BENCH}"},
        )
        self.pid = self._process.pid
        self.about = self._answer()
        """The lanes that it has."""

    def ask(self, lane: str, in_flight: int, seconds: float) -> None:
        """Have it begin."""
        if self._process.stdin is None:
            raise RuntimeError("no pipe")
        self._process.stdin.write(json.dumps([lane, in_flight, seconds]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> list[tuple[float, float]]:
        """Wait until it is done."""
        return [(began, ended) for began, ended in self._answer()]

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """One way to make calls, and what its turns gave."""

    name: str
    clients: list[Client]
    """Several share the calls of a turn."""
    kind: str
    """Which of the clients' lanes."""
    parts: dict[str, list[int]] = field(default_factory=dict)
    """Processes whose processor time counts, by who they are."""
    turns: list[Turn] = field(default_factory=list)
    alone: list[list[float]] = field(default_factory=list)
    """Latencies one at a time, by round."""
    used_us: dict[str, list[float]] = field(default_factory=dict)
    """Processor time of a call, by who used it."""

    def warm_up(self, in_flight: int) -> None:
        """The first calls start what the others use, and workers may still be starting."""
        for client in self.clients:
            ready = f"{self.kind.partition(' ')[0]} ready"
            if ready in client.about:
                client.ask(ready, 1, 0)
                client.answer()
        self._run(1, 0, self.clients[:1])
        self._run(in_flight, 0, self.clients)

    def turn(self, in_flight: int, seconds: float) -> None:
        """One round: so many at once, then one at a time for a quarter of the time."""
        before = self._used()
        turn = self._run(in_flight, seconds, self.clients)
        self.turns.append(turn)
        for who, used in self._used().items():
            self.used_us.setdefault(who, []).append((used - before[who]) * 1e6 / len(turn.times))
        self.alone.append(self._run(1, seconds / 4, self.clients[:1]).latencies_s)

    def _run(self, in_flight: int, seconds: float, clients: list[Client]) -> Turn:
        for client in clients:
            client.ask(self.kind, max(1, in_flight // len(clients)), seconds)
        return Turn(times=[one for client in clients for one in client.answer()], in_flight=in_flight)

    def _used(self) -> dict[str, float]:
        return {who: sum(map(processor_seconds, pids)) for who, pids in self.parts.items()}

    @property
    def rates(self) -> list[float]:
        """Calls a second, by round."""
        return [turn.rate for turn in self.turns]
