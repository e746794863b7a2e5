"""What do servers that share a PostgreSQL do, and what does it cost? Prints the tables of docs/sizing.md.

.venv/bin/python bench/shared_servers.py [--quick] [--json FILE]

Clients reach every lane through haproxy with the configuration of deploy/: one server with its state folder
alone, one on PostgreSQL, two on PostgreSQL, each in a database of its own. Servers, database, haproxy and the
client share the same cores, so their processor time for a call, which is printed for each, bounds the calls a
second. It is counted until the log of a run is copied. The lanes take turns in each round, and ratios are
taken within rounds. PostgreSQL syncs every commit and has no replica. Needs haproxy and PostgreSQL of the
system's packages.
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from measures.home import empty_home
from measures.lanes import Lane, drive
from measures.mcp_load import Load, free_port, processor_us, summary
from measures.own_postgres import OwnPostgres, own_postgres
from measures.process_tree import descendants, proportional_bytes
from measures.statistics import median
from server import check_answer
from tables import print_notes, print_table
from toolkeep.config.settings import DatabaseSettings
from toolkeep.storage.postgres.ledger_table import _CLAIM, _FINISH, _LOCK
from toolkeep.storage.postgres.shared_state import SharedState, row_key

BENCH = Path(__file__).resolve().parent
CONFIGURATION = 'database: {{url: "{url}", single: true, key: "the key of all servers of this benchmark"}}\n'
ALONE, ONE, TWO = "1 server, state folder", "1 server, PostgreSQL", "2 servers, PostgreSQL"
KINDS = {"ordinary": "echo", "with write effects": "note", "with an idempotency key": "note"}
KEYED = "with an idempotency key"
IN_FLIGHT = 64
CLAIMS_IN_FLIGHT = 32
SETTLE_SECONDS = 1.5
"""Until the log of a run is copied, which is done once a second."""
PARTS = ("server", "database", "haproxy", "client")
"""Who uses the cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure."""

    rounds: int
    calls: int
    calls_alone: int
    claim_seconds: float


FULL = Plan(rounds=3, calls=6000, calls_alone=300, claim_seconds=3.0)
QUICK = Plan(rounds=2, calls=200, calls_alone=30, claim_seconds=0.5)


class Run(NamedTuple):
    """What one run gave, and the processor µs of a call by who used them."""

    load: Load
    parts: dict[str, float]


@dataclass(slots=True, kw_only=True)
class Fleet:
    """One lane: servers behind a haproxy."""

    port: int
    token: str
    url: str
    processes: list[int]
    balancer: int
    database: int
    folders: list[Path]
    keys: int = 0
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def run(self, kind: str, count: int, in_flight: int) -> "Run":
        """So many calls of a kind."""
        requests = [self._request(kind, number) for number in range(count)]
        lanes = [Lane(self.port) for _ in range(in_flight)]
        used, client = self._used(), time.process_time()
        began = time.perf_counter()
        times = drive(lanes, requests, check_answer)
        elapsed, client = time.perf_counter() - began, time.process_time() - client
        for lane in lanes:
            lane.close()
        time.sleep(SETTLE_SECONDS)
        took = [(after - before) / count for before, after in zip(used, self._used(), strict=True)]
        self.calls[kind] += count
        return Run(
            summary(times, elapsed, took[0]), dict(zip(PARTS, [*took, client * 1e6 / count], strict=True))
        )

    def _used(self) -> list[float]:
        """Processor time so far of servers, database and haproxy."""
        database = [self.database, *descendants(self.database)] if self.database else []
        return [sum(map(processor_us, some)) for some in (self.processes, database, [self.balancer])]

    def _request(self, kind: str, number: int) -> bytes:
        self.keys += 1  # so that no body was stored before
        text = f"{self.keys} hello {number}"
        body = json.dumps({"arguments": {"text": text}}, separators=(",", ":")).encode()
        key = f"Idempotency-Key: {self.port} {self.keys}\r\n" if kind == KEYED else ""
        return (
            f"POST /v1/tools/{KINDS[kind]}:call HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {self.token}\r\n"
            f"{key}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    @property
    def disk_bytes(self) -> int:
        """What the servers have in their state folders."""
        files = (path for folder in self.folders for path in folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers to FILE")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    with empty_home() as home, own_postgres() as postgres, contextlib.ExitStack() as stack:
        sync_ms = measure_sync(home)
        print(
            f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
            f"load {os.getloadavg()[0]:.1f}; a sync takes {sync_ms:.2f} ms"
        )
        fleets = {
            ALONE: stack.enter_context(fleet(home / "alone", 1, None)),
            ONE: stack.enter_context(fleet(home / "one", 1, postgres)),
            TWO: stack.enter_context(fleet(home / "two", 2, postgres)),
        }
        results = measure(fleets, plan, postgres)
        results |= {"sync_ms": sync_ms, "claims": measure_claims(home, fleets[ONE].url, plan)}
        report(results, fleets)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def measure_sync(folder: Path) -> float:
    """Milliseconds of an append of 4 KiB that is durable."""
    times = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return median(times)


# --- servers -------------------------------------------------------------------------------------


@contextlib.contextmanager
def fleet(home: Path, count: int, postgres: OwnPostgres | None) -> Iterator[Fleet]:
    """Servers behind haproxy, ready, with a database of their own."""
    url = ""
    if postgres is not None:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(home.name)))
        url = f"{postgres.url.rpartition('/')[0]}/{home.name}"
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(server(home / str(number), url)) for number in range(count)]
        ports = [port for port, _, _ in servers]
        front, proxy = stack.enter_context(balancer(home, ports))
        made = Fleet(
            port=front,
            token=servers[0][2],
            url=url,
            processes=[process for _, process, _ in servers],
            balancer=proxy,
            database=postgres.process_id if postgres is not None else 0,
            folders=[home / str(number) / "state" for number in range(count)],
        )
        await_ready([front, *ports])
        yield made


@contextlib.contextmanager
def server(home: Path, url: str) -> Iterator[tuple[int, int, str]]:
    """The port, process and token of a server with a state folder of its own."""
    (home / ".agent").mkdir(parents=True)
    (home / "project").mkdir()
    if url:
        (home / ".agent" / "config.yml").write_text(CONFIGURATION.format(url=url))
    port = free_port()
    given = {**os.environ, "HOME": str(home), "TOOLKEEP_HOME": str(home / "state")}
    command = [sys.executable, str(BENCH / "servers" / "toolkeep_http.py"), str(port)]
    with subprocess.Popen(
        command, env=given, cwd=home / "project", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("no pipe")
            yield port, process.pid, process.stdout.readline().strip()
        finally:
            process.kill()


@contextlib.contextmanager
def balancer(folder: Path, ports: list[int]) -> Iterator[tuple[int, int]]:
    """The port and process of a haproxy with the configuration of deploy/ before these servers."""
    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise RuntimeError("haproxy is not installed: apt-get install haproxy")
    text = (BENCH.parent / "deploy" / "haproxy.cfg").read_text()
    if len(ports) == 1:
        text = text.replace('    server keep-2 "$KEEP_SERVER_2"\n', "")
    (folder / "haproxy.cfg").write_text(text)
    port = free_port()
    names = {f"KEEP_SERVER_{number}": f"127.0.0.1:{one}" for number, one in enumerate(ports, 1)}
    given = {**os.environ, **names, "KEEP_LISTEN": f"127.0.0.1:{port}", "KEEP_HOST": "localhost"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([program, "-db", "-f", folder / "haproxy.cfg"], env=given, **quiet) as process:  # type: ignore[call-overload]
        try:
            yield port, process.pid
        finally:
            process.kill()


def await_ready(ports: list[int]) -> None:
    """Wait until each port answers that it is ready."""
    request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    until = time.monotonic() + 60
    for port in ports:
        while True:
            with contextlib.suppress(OSError):
                lane = Lane(port)
                answer = lane.exchange(request)
                lane.close()
                if b'"status":"ready"' in answer:
                    break
            if time.monotonic() > until:
                raise RuntimeError("a server is not ready")
            time.sleep(0.1)


# --- measures ------------------------------------------------------------------------------------


def measure(fleets: dict[str, Fleet], plan: Plan, postgres: OwnPostgres) -> dict[str, Any]:
    """Runs by kind and lane; what they took of the disk; connections and memory."""
    runs: dict[str, dict[str, list[Run]]] = {}
    alone: dict[str, dict[str, float]] = {}
    costs: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        for one in fleets.values():
            one.run(kind, max(50, plan.calls // 10), IN_FLIGHT)
        disk = {name: one.disk_bytes for name, one in fleets.items()}
        before = {name: one.calls[kind] for name, one in fleets.items()}
        stored = database_bytes(postgres.url)
        runs[kind] = {name: [] for name in fleets}
        for _ in range(plan.rounds):
            for name, one in fleets.items():
                runs[kind][name].append(one.run(kind, plan.calls, IN_FLIGHT))
        made = {name: one.calls[kind] - before[name] for name, one in fleets.items()}
        costs[kind] = {
            "disk": {name: (one.disk_bytes - disk[name]) / made[name] for name, one in fleets.items()},
            "database_bytes": (database_bytes(postgres.url) - stored) / (made[ONE] + made[TWO]),
        }
        alone[kind] = {name: one.run(kind, plan.calls_alone, 1).load.p50_ms for name, one in fleets.items()}
    with psycopg.connect(postgres.url) as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'toolkeep'"
        row = connection.execute(count).fetchone()
    return {
        "loads": {
            kind: {
                name: [
                    {"rate": load.rate, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms, "parts_us": parts}
                    for load, parts in found
                ]
                for name, found in by_name.items()
            }
            for kind, by_name in runs.items()
        },
        "alone_ms": alone,
        "costs": costs,
        "connections": (row[0] if row else 0) / 3,
        "memory_mb": {
            name: sum(map(proportional_bytes, one.processes)) / len(one.processes) / 1e6
            for name, one in fleets.items()
        },
    }


def database_bytes(url: str) -> int:
    """What all databases have on disk."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT sum(pg_database_size(oid)) FROM pg_database").fetchone()
    return int(row[0]) if row else 0


def measure_claims(home: Path, url: str, plan: Plan) -> dict[str, list[float]]:
    """Claims made and settled a second, 32 in flight: by the ledger, and by its statements alone."""
    settings = DatabaseSettings(url=url, key="the key of all servers of this benchmark", is_single=True)
    shared = SharedState(settings, lambda: b"", home / "claims")
    found: dict[str, list[float]] = {"ledger": [], "statements": []}
    try:
        for number in range(plan.rounds):
            found["ledger"].append(asyncio.run(ledger_rate(shared, f"l{number}", plan.claim_seconds)))
            found["statements"].append(statement_rate(settings, f"s{number}", plan.claim_seconds))
    finally:
        shared.close()
    return found


async def ledger_rate(shared: SharedState, name: str, seconds: float) -> float:
    """Pairs a second of 32 callers at once."""
    until, done = time.perf_counter() + seconds, 0

    async def settle(caller: int) -> None:
        nonlocal done
        number = 0
        while time.perf_counter() < until:
            number += 1
            key = f"{name} {caller} {number}"
            await shared.ledger.claim(key, key, "0" * 64)
            await shared.ledger.finish(key, key, "0" * 64, b"x" * 200)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*map(settle, range(CLAIMS_IN_FLIGHT)))
    return done / (time.perf_counter() - began)


def statement_rate(settings: DatabaseSettings, name: str, seconds: float) -> float:
    """Pairs a second of the same statements, 32 rows each, one transaction after the other."""
    key = row_key(settings, lambda: b"")
    with psycopg.connect(settings.url, autocommit=True) as connection:
        connection.execute("SET search_path = agent_tools")
        until, done, began = time.perf_counter() + seconds, 0, time.perf_counter()
        while time.perf_counter() < until:
            keys = [f"{name} {done + row}" for row in range(CLAIMS_IN_FLIGHT)]
            with connection.pipeline(), connection.transaction():
                connection.execute(_CLAIM, [keys, keys, ["0" * 64] * len(keys), [name] * len(keys)])
            macs = [key.mac("claim", one, one, "0" * 64, b"x" * 200) for one in keys]
            with connection.pipeline(), connection.transaction():
                connection.execute(_LOCK, [keys])
                connection.execute(_FINISH, [keys, keys, [b"x" * 200] * len(keys), macs])
            done += CLAIMS_IN_FLIGHT
        return done / (time.perf_counter() - began)


# --- report --------------------------------------------------------------------------------------


def report(results: dict[str, Any], fleets: dict[str, Fleet]) -> None:
    """The tables."""
    rows, parts = [], []
    for kind, by_name in results["loads"].items():
        for name in fleets:
            runs = by_name[name]
            rate = median([run["rate"] for run in runs])
            used = [median([run["parts_us"][part] for run in runs]) for part in PARTS]
            base = by_name[ALONE if name == ONE else ONE]
            ratio = median([mine["rate"] / other["rate"] for mine, other in zip(runs, base, strict=True)])
            rows.append(
                [
                    f"{kind}: {name}",
                    f"{rate:,.0f}",
                    "" if name == ALONE else f"{ratio:.2f}",
                    f"{1e6 / used[0]:,.0f}",
                    f"{results['alone_ms'][kind][name]:.2f}",
                    f"{results['costs'][kind]['disk'][name]:,.0f}",
                ]
            )
            most = (os.cpu_count() or 1) * 1e6 / sum(used)
            parts.append([f"{kind}: {name}", *(f"{one:,.0f}" for one in [*used, sum(used), most])])
    heads = ["calls", "a second", "× the line before", "a core-second", "ms, one at a time", "log bytes"]
    print_table(f"{IN_FLIGHT} in flight through haproxy", heads, rows)
    print_table("Processor µs of a call", ["calls", *PARTS, "all", "calls a second at most"], parts)
    print_table(
        "The database, for each call",
        ["calls", "bytes"],
        [[kind, f"{cost['database_bytes']:,.0f}"] for kind, cost in results["costs"].items()],
    )
    claims = results["claims"]
    ratio = median([a / b for a, b in zip(claims["ledger"], claims["statements"], strict=True)])
    settled = (
        f"claim and settle, {CLAIMS_IN_FLIGHT} in flight: {median(claims['ledger']):,.0f} a second, "
        f"{ratio:.2f} × the same statements alone ({median(claims['statements']):,.0f})"
    )
    memory = ", ".join(f"{name} {value:.0f} MB" for name, value in results["memory_mb"].items())
    print_notes(
        [
            settled,
            f"connections of a server: {results['connections']:.1f}",
            f"memory of a server: {memory}",
            f"a sync: {results['sync_ms']:.2f} ms",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
