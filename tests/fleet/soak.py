"""Servers, workers and NATS under load, while all of them are killed and cut off, one after the other.

    python -m tests.fleet.soak --minutes 20 --seed 1

Three NATS servers, two servers on one PostgreSQL, four workers, three of them in network namespaces of their own
behind links with 0, 5 and 50 ms of delay each way and 1 % of loss. In rounds of a minute and three quarters, each in an
order of its own, a worker is killed, stopped (SIGSTOP) and told to end, a link is cut for longer and for less than a
lease, a NATS server, the one that leads the bucket of large bodies, and a toolkeep server are killed, and PostgreSQL is
restarted. Meanwhile each server has reading calls, writing calls, writing calls with keys, calls of eight seconds, and
reading and writing calls with a megabyte of arguments and of result made. Afterwards no promise may be broken
(`soak_findings.py`), and each kind of fault must have happened. Needs root, and runs in a network namespace of its own.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.fleet.nats_server import leader_of, nats_command
from tests.fleet.soak_findings import SETTLE_S, Fault, Findings, last_tick
from tests.fleet.soak_server import LEASE_S, now
from tests.storage.cluster import Cluster, find_programs
from toolkeep.fleet.object_store import BUCKET

SLACK_S = 0.5
"""For a machine that is shared: what the end of a job may take beyond its lease."""
PATIENCE_S = 60.0
"""For a leader of the bucket, on a machine that is shared."""
PAUSE_S = 5.0
"""Between two faults."""
NATS_PORTS = (4310, 4311, 4312)
DELAYS_MS = (None, 0, 5, 50)
"""Of the workers' links; the first one has none."""
TOOLS = '''
import os, time
from toolkeep import Touches, tool
from typing import Annotated

S = {"required_isolation": "strict", "max_execution_time": 30}
EFFECTS = "EFFECTS_FOLDER"
TICKS = 80

@tool(constraints=S, side_effects=["None"])
def double(number: int) -> int:
    """Double it.

    Args:
        number: What to double.
    """
    return 2 * number

@tool(constraints=S, side_effects=["None"])
def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What to say.
    """
    return text

@tool(constraints=S, side_effects=["FsWrite"], danger="safe", capabilities=[f"fs.write:{EFFECTS}"])
def note_at_length(line: str, text: str) -> str:
    """Leave a file for each run, and say something again.

    Args:
        line: Its name.
        text: What to say.
    """
    with open(f"{EFFECTS}/{line}.{os.getpid()}.{time.time_ns()}", "x"):
        return text

@tool(constraints=S, side_effects=["FsWrite"], danger="safe", capabilities=[f"fs.write:{EFFECTS}"])
def note(line: str) -> str:
    """Leave a file for each run.

    Args:
        line: Its name.
    """
    with open(f"{EFFECTS}/{line}.{os.getpid()}.{time.time_ns()}", "x"):
        return line

@tool(constraints=S, side_effects=["FsWrite"], danger="safe", capabilities=[f"fs.write:{EFFECTS}"])
def tick(line: str) -> str:
    """Go on for eight seconds, and say so.

    Args:
        line: The name of the file.
    """
    with open(f"{EFFECTS}/ticks/{line}", "a", buffering=1) as file:
        for _ in range(TICKS):
            file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
            time.sleep(0.1)
    return line
'''


One = TypeVar("One")


class Program:
    """A process that is killed and started again."""

    def __init__(self, name: str, command: list[str], folder: Path, **environment: str) -> None:
        self.name = name
        self._command = command
        self._log = folder / f"{name}.log"
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    @property
    def id(self) -> int:
        return self._running.pid

    @property
    def status(self) -> int | None:
        """How it ended, if it did."""
        return self._running.poll()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment
            )

    def said_last(self, words: str) -> bool:
        """Whether its log ends with some words."""
        return words in self._log.read_text()[-800:]

    def catches(self, how: signal.Signals) -> bool:
        """Whether it handles a signal; one that still starts does not."""
        status = Path(f"/proc/{self._running.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (how - 1) & 1)

    def send(self, how: signal.Signals) -> None:
        self._running.send_signal(how)

    def end(self, how: signal.Signals = signal.SIGKILL, patience_s: float = 60) -> None:
        if self._process is not None:
            self.send(how)
            self._process.wait(patience_s)

    def say(self, word: str) -> None:
        if (pipe := self._running.stdin) is not None:
            pipe.write(f"{word}\n".encode())
            pipe.flush()


class Fleet:
    """Everything that runs."""

    def __init__(self, folder: Path, database: Cluster) -> None:
        self.folder = folder
        self.database = database
        self.effects = folder / "effects"
        self.ticks = self.effects / "ticks"
        self.ticks.mkdir(parents=True)
        self.notes = folder / "notes"
        self._url = database.clean()
        self.nats = [self._nats(number) for number in range(len(NATS_PORTS))]
        self.links = {
            number: Program(
                f"link{number}",
                _python("tests.fleet.slow_link", f"ns{number}", str(number), str(delay), "0.01"),
                folder,
            )
            for number, delay in enumerate(DELAYS_MS)
            if delay is not None
        }
        self.workers = [self._worker(number) for number in range(len(DELAYS_MS))]
        self.servers = [self._server(number) for number in range(2)]

    def _nats(self, number: int) -> Program:
        command = nats_command(
            NATS_PORTS[number],
            listen="0.0.0.0",  # noqa: S104 -- of a namespace of its own
            store=self.folder / f"nats{number}",
            cluster=NATS_PORTS,
        )
        return Program(f"nats{number}", command, self.folder)

    def _home(self, name: str) -> Path:
        home = self.folder / name
        (home / ".agent").mkdir(parents=True)
        (home / "tools.py").write_text(TOOLS.replace("EFFECTS_FOLDER", str(self.effects)))
        return home

    def _worker(self, number: int) -> Program:
        home = self._home(f"worker{number}")
        program = str(Path(sys.executable).parent / "toolkeep")
        command = [program, "worker", "--log-level", "warning", "--project", str(home)]
        if number in self.links:
            command = ["ip", "netns", "exec", f"ns{number}", *command]
        return Program(f"worker{number}", command, self.folder, HOME=str(home))

    def _server(self, number: int) -> Program:
        home = self._home(f"server{number}")
        command = _python("tests.fleet.soak_server", str(home), str(self.notes), f"server{number}")
        return Program(f"server{number}", command, self.folder, HOME=str(home))

    def configure(self) -> None:
        """Tell all of them of each other."""
        keys = {one.name: self._key(one.name) for one in (*self.workers, *self.servers)}
        grant = [f"fs.write:{self.effects}"]
        for number, worker in enumerate(self.workers):
            host = "127.0.0.1" if number not in self.links else f"10.9.{number}.1"
            trusted = [
                {"key": keys[one.name], "name": one.name, "capabilities": grant} for one in self.servers
            ]
            told = {"nats": _nats_settings(host), "slots": 6, "servers": trusted}
            self._configure(worker.name, worker=told)
        workers = [{"name": one.name, "key": keys[one.name]} for one in self.workers]
        for server in self.servers:
            self._configure(
                server.name,
                fleet={
                    "nats": _nats_settings("127.0.0.1"),
                    "lease": LEASE_S,
                    "workers": workers,
                    "runs_on": dict.fromkeys(("double", "echo", "note", "note_at_length", "tick"), ""),
                },
                database={"url": self._url, "key": "the key of all servers of this soak", "single": True},
                agents={"local": {"capabilities": grant}},
            )

    def _configure(self, name: str, **settings: Any) -> None:
        said = {"tools": ["tools.py"], **settings}
        (self.folder / name / ".agent" / "config.yml").write_text(json.dumps(said))

    def _key(self, name: str) -> str:
        home = self.folder / name
        words = ["worker", "--show-key"] if name.startswith("worker") else ["fleet", "key"]
        command = [str(Path(sys.executable).parent / "toolkeep"), *words, "--project", str(home)]
        done = subprocess.run(command, env={**os.environ, "HOME": str(home)}, check=True, capture_output=True)
        return done.stdout.decode().strip()

    @property
    def programs(self) -> list[Program]:
        """In the order in which they start."""
        return [*self.nats, *self.links.values(), *self.workers, *self.servers]

    @property
    def states(self) -> list[Path]:
        """Where the servers have their logs."""
        return [next((self.folder / one.name / ".local/state/toolkeep").iterdir()) for one in self.servers]

    def start(self) -> None:
        """All of them."""
        for number in self.links:
            subprocess.run(["ip", "netns", "add", f"ns{number}"], check=True)
            subprocess.run(["ip", "-n", f"ns{number}", "link", "set", "lo", "up"], check=True)
        self.configure()
        for one in self.programs:
            one.start()

    def end(self) -> None:
        """All of them."""
        for one in reversed(self.programs):
            one.end()
        for number in self.links:
            subprocess.run(["ip", "netns", "del", f"ns{number}"], check=False)


class Faults:
    """What happens to a fleet, by the seed."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet = fleet
        self._chance = random.Random(seed)  # noqa: S311 -- no secret
        self._workers, self._nats, self._servers = map(
            self._turns, (fleet.workers, fleet.nats, fleet.servers)
        )
        self._cuts, self._short_cuts = self._turns(list(fleet.links)), self._turns(list(fleet.links))
        self.happened: list[Fault] = []
        self.watched = 0
        """Jobs that were under way at a worker that was cut off, stopped or killed, or of a server."""
        self.ran_on_s = 0.0
        """How long such a job ran on at most."""
        self.ended_itself = Counter[str]()
        self.problems: list[str] = []

    def _turns(self, each: list[One]) -> Iterator[One]:
        """Every one of them in turn, in an order of the seed."""
        return itertools.cycle(self._chance.sample(each, len(each)))

    @property
    def kinds(self) -> dict[str, Callable[[], str]]:
        """By name; each returns what it happened to."""
        return {
            "worker_killed": self._kill_worker,
            "worker_stopped": self._stop_worker,
            "worker_drained": self._drain_worker,
            "link_cut": self._cut_link,
            "link_cut_briefly": self._cut_link_briefly,
            "nats_killed": self._kill_nats,
            "bucket_leader_killed": self._kill_bucket_leader,
            "server_killed": self._kill_server,
            "database_restarted": self._restart_database,
        }

    def round(self) -> Iterator[None]:
        """Each kind once."""
        for name in self._chance.sample(list(self.kinds), len(self.kinds)):
            began = now()
            of = self.kinds[name]()
            self.happened.append(Fault(name, of, began, now()))
            time.sleep(PAUSE_S)
            self._tend()
            yield

    def _tend(self) -> None:
        """Start again what ended by itself."""
        for one in self._fleet.programs:
            if (status := one.status) is not None:
                self.ended_itself[f"{one.name} {status}"] += 1
                # A worker that is too busy to end its jobs in time is ended by its watchdog; one that is
                # cut off while it starts ends, so that whoever started it knows.
                is_meant = status == -signal.SIGKILL or one.said_last("NATS does not answer")
                if one not in self._fleet.workers or not is_meant:
                    self.problems.append(f"{one.name} ended by itself: {status}")
                one.start()

    def _kill_worker(self) -> str:
        worker = next(self._workers)
        with self._watched(worker.name, 1.0, descends_from(self._busy(worker))):
            worker.end()
        worker.start()
        return worker.name

    def _stop_worker(self) -> str:
        """It cannot look at its clock: its watchdog ends it when its lease is over."""
        worker = next(self._workers)
        with self._watched(worker.name, LEASE_S, descends_from(self._busy(worker))) as jobs:
            worker.send(signal.SIGSTOP)
        if jobs and worker.status != -signal.SIGKILL:
            self.problems.append(f"{worker.name} was stopped with jobs, and lives")
        worker.end()
        worker.start()
        return worker.name

    def _drain_worker(self) -> str:
        worker = next(self._workers)
        while worker.status is None and not worker.catches(signal.SIGTERM):
            time.sleep(0.1)  # it was started just now, on a busy machine, and has nothing to finish yet
        worker.end(signal.SIGTERM)
        if worker.status:
            self.problems.append(f"{worker.name} was told to end, and ended with {worker.status}")
        worker.start()
        return worker.name

    def _cut_link(self) -> str:
        """The worker ends its jobs when its lease is over, and the server gives it up."""
        number = next(self._cuts)
        worker = self._fleet.workers[number]
        with self._watched(worker.name, LEASE_S, descends_from(self._busy(worker))):
            self._fleet.links[number].say("cut")
        time.sleep(2 + self._chance.choice((0, 5)))
        self._fleet.links[number].say("heal")
        time.sleep(SETTLE_S - PAUSE_S)
        return worker.name

    def _cut_link_briefly(self) -> str:
        number = next(self._short_cuts)
        self._fleet.links[number].say("cut")
        time.sleep(LEASE_S / 3)
        self._fleet.links[number].say("heal")
        return self._fleet.workers[number].name

    def _kill_nats(self) -> str:
        return self._nats_dies(next(self._nats))

    def _kill_bucket_leader(self) -> str:
        """What large bodies need."""
        ends_at = now() + PATIENCE_S
        while not (leader := leader_of(NATS_PORTS[0], f"OBJ_{BUCKET}")):
            if now() > ends_at:
                self.problems.append("the bucket of large bodies got no leader")
                return "nobody"
            time.sleep(0.1)
        return self._nats_dies(self._fleet.nats[NATS_PORTS.index(int(leader.removeprefix("n")))])

    def _nats_dies(self, one: Program) -> str:
        one.end()
        time.sleep(3)
        one.start()
        return one.name

    def _kill_server(self) -> str:
        """It renews nothing: its jobs end with their lease."""
        one = next(self._servers)
        with self._watched(one.name, LEASE_S, lambda job: job.line.startswith(f"{one.name}.")):
            one.end()
        one.start()
        return one.name

    def _restart_database(self) -> str:
        self._fleet.database.stop()
        time.sleep(1)
        self._fleet.database.start()
        return "postgres"

    def _busy(self, worker: Program) -> int:
        """Its process id, once it runs a job that can be watched; or without, after a while."""
        patience = now() + 4
        while now() < patience and not any(map(descends_from(worker.id), under_way(self._fleet.ticks))):
            time.sleep(0.1)
        return worker.id

    @contextlib.contextmanager
    def _watched(self, name: str, may_s: float, is_meant: Callable[["Job"], bool]) -> Iterator[list["Job"]]:
        """Some time after what the block does, none of the jobs that were under way may run."""
        jobs, began = [job for job in under_way(self._fleet.ticks) if is_meant(job)], now()
        yield jobs
        time.sleep(max(0.0, began + may_s + SLACK_S - now()))
        alive = {job.id for job in under_way(self._fleet.ticks)}
        self.watched += len(jobs)
        for job in jobs:
            ran_on_s = last_tick(self._fleet.ticks / job.line) - began
            self.ran_on_s = max(self.ran_on_s, ran_on_s)
            if job.id in alive or ran_on_s > may_s + SLACK_S:
                self.problems.append(f"{name} was gone, and {job.line} ran on for {ran_on_s:.2f} s")


class Job(NamedTuple):
    """A tick that is under way."""

    line: str
    id: tuple[int, str]
    """Of its process, with the time at which it started."""
    ancestors: tuple[int, ...]


def descends_from(process: int) -> Callable[[Job], bool]:
    """Whether a job is of a worker."""
    return lambda job: process in job.ancestors


def under_way(ticks: Path) -> list[Job]:
    """The processes that hold a file of a tick open."""
    known = dict[int, tuple[int, str]]()
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (path / "stat").read_text().rpartition(")")[2].split()
                known[int(path.name)] = (int(words[1]), words[19])
    found = []
    for process, (parent, started) in known.items():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                if (target := descriptor.readlink()).parent == ticks:
                    ancestors = [parent]
                    while ancestors[-1] in known:
                        ancestors.append(known[ancestors[-1]][0])
                    found.append(Job(target.name, (process, started), tuple(ancestors)))
    return found


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _nats_settings(host: str) -> dict[str, Any]:
    return {"servers": [f"nats://{host}:{port}" for port in NATS_PORTS], "replicas": len(NATS_PORTS)}


def soak(minutes: float, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What happened, and which promises were broken."""
    programs = find_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="toolkeep-fleet-"))
    folder.chmod(0o755)
    (folder / "postgres").mkdir()
    database = Cluster(programs, folder / "postgres")
    database.start_first()
    fleet = Fleet(folder, database)
    faults = Faults(fleet, seed)
    try:
        fleet.start()
        time.sleep(10)
        ends_at = time.monotonic() + 60 * minutes
        while time.monotonic() < ends_at:
            for _ in faults.round():
                if time.monotonic() > ends_at:
                    break
        for server in fleet.servers:
            server.send(signal.SIGTERM)
        for server in fleet.servers:
            try:
                server.end(signal.SIGTERM)
            except subprocess.TimeoutExpired:
                faults.problems.append(f"{server.name} does not end")
    finally:
        fleet.end()
        database.stop()
    findings = Findings(fleet.notes, fleet.effects, fleet.states, faults.happened)
    happened = Counter(one.kind for one in faults.happened)
    counts = {
        "faults": {kind: happened[kind] for kind in faults.kinds},
        "jobs watched": faults.watched,
        "ran on at most, seconds": round(faults.ran_on_s, 2),
        "ended by themselves": dict(faults.ended_itself),
        **findings.counts(),
    }
    broken = {
        "faults that did not happen": [kind for kind in faults.kinds if not happened[kind]],
        "ran on after their lease, or ended by themselves": faults.problems,
        **findings.violations(),
    }
    if any(broken.values()):
        print(f"what was left: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return counts, {what: some for what, some in broken.items() if some}


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        again = [sys.executable, "-m", "tests.fleet.soak", *sys.argv[1:], "--inside"]
        setup = 'mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up && exec "$@"'
        inside = ["unshare", "--net", "--mount", "sh", "-c", setup, "sh", *again]
        sys.exit(subprocess.run(inside, check=False).returncode)
    counts, broken = soak(options.minutes, options.seed)
    print(json.dumps({**counts, "broken": broken}, indent=1))
    sys.exit(bool(broken) or not counts["acknowledged writes"])


if __name__ == "__main__":
    main()
