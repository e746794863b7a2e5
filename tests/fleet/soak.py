"""Servers, workers and NATS while all of them are killed and cut off, one after the other.

    python -m tests.fleet.soak --minutes 20

Three NATS servers, two servers on one PostgreSQL, four workers, three of them in network namespaces of their own
with 0, 5 and 50 ms of delay and 1 % of loss. Every few seconds a worker is killed or stopped, a link is cut and
healed, a NATS server or a toolkeep server is killed and started again, PostgreSQL is restarted. Meanwhile each
server has reading calls, writing calls and writing calls with keys made. Afterwards: acknowledged calls lost
0, effects twice 0, calls that took longer than their lease allows 0, jobs that ran on after their lease 0, and every
log verifies. Needs root, and runs in a network namespace of its own.
"""

import argparse
import contextlib
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fleet.nats_server import nats_command
from tests.storage.cluster import Cluster, find_programs
from toolkeep.storage.log.verify_folder import verify

LEASE_S = 3.0
SLACK_S = 2.5
"""For a machine that is shared: what a call, or the end of a job, may take beyond what is promised."""
EVERY_S = 6.0
NATS_PORTS = (4310, 4311, 4312)
DELAYS_MS = (None, 0, 5, 50)
"""Of the workers' links; the first one has none."""
TOOLS = '''
import os, time
from toolkeep import Touches, tool
from typing import Annotated

S = {"required_isolation": "strict", "max_execution_time": 30}
EFFECTS = "EFFECTS_FOLDER"

@tool(constraints=S, side_effects=["None"])
def double(number: int) -> int:
    """Double it.

    Args:
        number: What to double.
    """
    return 2 * number

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
        for _ in range(80):
            file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
            time.sleep(0.1)
    return line
'''


class Program:
    """A process that is killed and started again."""

    def __init__(self, name: str, command: list[str], folder: Path, **environment: str) -> None:
        self.name = name
        self._command = command
        self._log = folder / f"{name}.log"
        self._environment = {**os.environ, **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment
            )

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            if how in (signal.SIGKILL, signal.SIGTERM):
                self.process.wait(60)

    def say(self, word: str) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()


class Fleet:
    """Everything that runs."""

    def __init__(self, folder: Path, database: Cluster) -> None:
        self.folder = folder
        self.database = database
        self.effects = folder / "effects"
        (self.effects / "ticks").mkdir(parents=True)
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
        self.problems: list[str] = []

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
        command = [
            str(Path(sys.executable).parent / "toolkeep"),
            "worker",
            "--log-level",
            "warning",
            "--project",
            str(home),
        ]
        if number in self.links:
            command = ["ip", "netns", "exec", f"ns{number}", *command]
        return Program(f"worker{number}", command, self.folder, HOME=str(home))

    def _server(self, number: int) -> Program:
        home = self._home(f"server{number}")
        arguments = (str(home), str(self.notes), f"server{number}", "12")
        return Program(
            f"server{number}", _python("tests.fleet.soak_server", *arguments), self.folder, HOME=str(home)
        )

    def configure(self) -> None:
        """Tell all of them of each other."""
        keys = {one.name: self._key(one.name) for one in (*self.workers, *self.servers)}
        grant = [f"fs.write:{self.effects}"]
        for number, worker in enumerate(self.workers):
            host = "127.0.0.1" if number not in self.links else f"10.9.{number}.1"
            trusted = [
                {"key": keys[one.name], "name": one.name, "capabilities": grant} for one in self.servers
            ]
            told = {"nats": {"servers": _addresses(host)}, "slots": 6, "servers": trusted}
            self._configure(worker.name, worker=told)
        workers = [{"name": one.name, "key": keys[one.name]} for one in self.workers]
        for server in self.servers:
            self._configure(
                server.name,
                fleet={
                    "nats": {"servers": _addresses("127.0.0.1")},
                    "lease": LEASE_S,
                    "workers": workers,
                    "runs_on": dict.fromkeys(("double", "note", "tick"), ""),
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

    def start(self) -> None:
        """All of them."""
        for number in self.links:
            subprocess.run(["ip", "netns", "add", f"ns{number}"], check=True)
            subprocess.run(["ip", "-n", f"ns{number}", "link", "set", "lo", "up"], check=True)
        self.configure()
        for one in (*self.nats, *self.links.values(), *self.workers, *self.servers):
            one.start()

    def end(self) -> None:
        """All of them."""
        for one in (*self.servers, *self.workers, *self.links.values(), *self.nats):
            with contextlib.suppress(ProcessLookupError):
                one.kill()
        for number in self.links:
            subprocess.run(["ip", "netns", "del", f"ns{number}"], check=False)

    # --- what happens to it ---------------------------------------------------------------------------

    def kill_worker(self, chance: random.Random) -> None:
        """A worker dies, and comes back."""
        worker = chance.choice(self.workers)
        worker.kill()
        time.sleep(1)
        worker.start()

    def stop_worker(self, chance: random.Random) -> None:
        """A worker hangs: its watchdog ends it when its lease is over."""
        worker = chance.choice(self.workers)
        worker.kill(signal.SIGSTOP)
        self._watch(worker, "stopped")
        worker.kill()
        worker.start()

    def cut_link(self, chance: random.Random) -> None:
        """A worker is cut off: it ends its jobs when its lease is over."""
        number = chance.choice(list(self.links))
        self.links[number].say("cut")
        self._watch(self.workers[number], "cut off")
        time.sleep(chance.choice((0, 5)))
        self.links[number].say("heal")

    def kill_nats(self, chance: random.Random) -> None:
        """A NATS server dies, and comes back."""
        one = chance.choice(self.nats)
        one.kill()
        time.sleep(3)
        one.start()

    def kill_server(self, chance: random.Random) -> None:
        """A server dies, and comes back."""
        one = chance.choice(self.servers)
        one.kill()
        time.sleep(1)
        one.start()

    def restart_database(self, _: random.Random) -> None:
        """PostgreSQL restarts."""
        self.database.stop()
        time.sleep(1)
        self.database.start()

    def _watch(self, worker: Program, what: str) -> None:
        """After its lease, nothing of a worker may run."""
        time.sleep(LEASE_S + SLACK_S)
        if worker.process is not None and (
            jobs := _open_ticks(worker.process.pid, str(self.effects / "ticks"))
        ):
            self.problems.append(f"{worker.name} was {what}, and still runs {jobs}")

    # --- what became of it ----------------------------------------------------------------------------

    def judge(self) -> dict[str, Any]:
        """Count what was promised and not kept."""
        calls = [json.loads(line) for line in self.notes.read_text().splitlines()]
        effects = Counter(
            one.name.split(".", 1)[0] if one.name.startswith("keyed") else ".".join(one.name.split(".")[:2])
            for one in self.effects.iterdir()
            if one.is_file()
        )
        noted = [one for one in calls if one["kind"] in ("note", "keyed")]
        acknowledged = {one["line"] for one in noted if not one["code"]}
        longest = {"tick": 8.0}
        late = [
            one for one in calls if one["took"] > longest.get(one["kind"], 0) + 30 + 2 * LEASE_S + SLACK_S
        ]
        states = [next((self.folder / one.name / ".local/state/toolkeep").iterdir()) for one in self.servers]
        return {
            "calls": len(calls),
            "codes": dict(Counter(one["code"] for one in calls)),
            "acknowledged writes": len(acknowledged),
            "lost": sum(1 for line in acknowledged if effects[line] == 0),
            "twice": sum(1 for count in effects.values() if count > 1),
            "wrong answers": sum(1 for one in calls if not one["is_right"]),
            "hung": len(late),
            "longest": max((one["took"] for one in calls), default=0.0),
            "ran on": self.problems,
            "logs that do not verify": [str(state) for state in states if not verify(state).is_intact],
        }


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _addresses(host: str) -> list[str]:
    return [f"nats://{host}:{port}" for port in NATS_PORTS]


def _open_ticks(process_id: int, folder: str) -> list[str]:
    """Files of jobs that a process or its descendants hold open."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (path / "stat").read_text().rpartition(")")[2].split()
                parents[int(path.name)] = int(stat[1])
    found = []
    for one in parents:
        ancestor = one
        while ancestor not in (0, 1, process_id):
            ancestor = parents.get(ancestor, 0)
        if ancestor == process_id:
            with contextlib.suppress(OSError):
                links = [str(path.readlink()) for path in Path(f"/proc/{one}/fd").iterdir()]
                found += [link for link in links if link.startswith(folder)]
    return found


def soak(minutes: float, seed: int) -> dict[str, Any]:
    """Run it."""
    chance = random.Random(seed)  # noqa: S311 -- no secret
    programs = find_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="toolkeep-fleet-"))
    folder.chmod(0o755)
    (folder / "postgres").mkdir()
    database = Cluster(programs, folder / "postgres")
    database.start_first()
    fleet = Fleet(folder, database)
    events: list[Callable[[random.Random], None]] = [
        fleet.kill_worker, fleet.stop_worker, fleet.cut_link, fleet.cut_link, fleet.kill_nats,
        fleet.kill_server, fleet.restart_database,
    ]  # fmt: skip
    happened: Counter[str] = Counter()
    try:
        fleet.start()
        time.sleep(10)
        ends_at = time.monotonic() + 60 * minutes
        while time.monotonic() < ends_at:
            event = chance.choice(events)
            event(chance)
            happened[event.__name__] += 1
            time.sleep(EVERY_S)
        time.sleep(LEASE_S + 12)
    finally:
        fleet.end()
        database.stop()
    found = {"happened": dict(happened), **fleet.judge()}
    shutil.rmtree(folder, ignore_errors=True)
    return found


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
    found = soak(options.minutes, options.seed)
    print(json.dumps(found, indent=1))
    if (
        not found["acknowledged writes"]
        or found["lost"]
        or found["twice"]
        or found["wrong answers"]
        or found["hung"]
        or found["ran on"]
    ):
        sys.exit(1)


if __name__ == "__main__":
    main()
