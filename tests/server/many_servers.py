"""Servers on one PostgreSQL behind haproxy, while servers are killed and the database fails over.

    python -m tests.server.many_servers --minutes 20 --servers 2

Every 20 s a server is killed (SIGKILL) and started again; the database is restarted, and fails over to a
synchronous standby 30 ms away. Meanwhile clients make keyed calls that have effects, retry them through
haproxy until they are answered, and have others approved through whichever server. After each kill and each
failover they repeat calls that were acknowledged, which must have the same result and no second effect.
Afterwards: acknowledged calls lost 0, effects twice 0, results lost 0, questions lost 0, alarms 0, and every
log verifies. `--asynchronous` shows what a standby that lags loses, and fails if that is nothing.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.deploy.balancer import HOST, QUICK, balancer, free_port
from tests.storage.replica import Replicated, replicated
from toolkeep.config.settings import DatabaseSettings
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.postgres.shared_state import open_shared_tokens
from toolkeep.stores.api_tokens import Tokens

KEY = "the_same_on_all_of_the_servers"
DELAY_S = 0.03
"""Each way between the primary and its standby."""
ANSWERED_S = 60.0
REFUSED = ("500 ACODE-TSR-041", "500 ACODE-TSR-055")
"""The database was away when an approval was to be used, or the call to be recorded: the call was not made, and its
caller is told so."""
"""How long a client repeats a request."""
REPEATED = 20
"""Calls of any age that are repeated after a kill or a failover, besides those of that moment."""


Said = Literal["ran", "repeated", "unknown", "unanswered"]
"""`repeated`: the result of an earlier call with the same key."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What happens, for how long."""

    seconds: float
    servers: int = 2
    killed_every_s: float = 20.0
    failovers: int = 3
    posts: int = 3
    """Calls without a key whose server is killed, before everything else."""
    is_asynchronous: bool = False


class Server:
    """One server process, started again whenever it was killed."""

    def __init__(self, number: int, folder: Path, effects: Path) -> None:
        self.name = f"keep-{number}"
        self.port = free_port()
        self._folder = folder / self.name
        self._effects = effects
        self.kills = 0
        self._ended: list[float] = []
        self._refused = 0
        self._process: subprocess.Popen[str] | None = None

    def configure(self, url: str, *, is_single: bool) -> None:
        config = self._folder / "home" / ".agent" / "config.yml"
        config.parent.mkdir(parents=True)
        (self._folder / "project").mkdir()
        single = "true" if is_single else "false"
        config.write_text(f"database: {{url: '{url}', key: {KEY}, single: {single}}}\n")

    def start(self) -> None:
        places = [str(self._folder / "project"), str(self._effects), str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.many_servers_server", *places],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
        if self._process.stdout is None or not self._process.stdout.readline():
            raise RuntimeError(f"{self.name} did not start: {self._log[-2000:]}")

    def end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self.kills += how is signal.SIGKILL
        self._ended.append(time.monotonic())
        self._process.send_signal(how)
        code = self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code

    @property
    def refuses_database(self) -> bool:
        """Whether it found the database older than before, since a person accepted that last."""
        return self._log.count("older than before") > self._refused

    def accept_database(self) -> None:
        """As a person does, while the server is stopped."""
        project = str(self._folder / "project")
        accept = [sys.executable, "-m", "toolkeep", "database", "restored", "--project", project]
        subprocess.run(accept, check=True, capture_output=True, env=self._environment)
        self._refused = self._log.count("older than before")

    @property
    def _environment(self) -> dict[str, str]:
        home, state = str(self._folder / "home"), str(self._folder / "state")
        return {**os.environ, "HOME": home, "TOOLKEEP_HOME": state}

    @property
    def _log(self) -> str:
        return (self._folder / "log").read_text()

    def died_after(self, at: float) -> bool:
        return any(ended >= at for ended in self._ended)

    def alarms(self) -> list[str]:
        """Raised about its own log or another one."""
        recorded = b"".join(file.read_bytes() for file in (self.state / "audit" / "segments").iterdir())
        lines = [line for line in recorded.splitlines() if b'"type":"AuditAlarm"' in line]
        return [line.decode() for line in lines]

    @property
    def state(self) -> Path:
        (found,) = [path for path in (self._folder / "state").rglob("audit") if path.is_dir()]
        return found.parent


class HasUrl(Protocol):
    """What is called."""

    url: str


class Client:
    """Sends requests, each over a connection of its own."""

    def __init__(self, to: "HasUrl", token: str) -> None:
        self._host, port = to.url.removeprefix("http://").rsplit(":", 1)
        self._port = int(port)
        self._token = token

    async def send(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any, str]:
        """Status, JSON, and the server; status 0 where there was no answer."""
        try:
            async with asyncio.timeout(30):
                return await self._sent(method, path, body, key)
        except (OSError, TimeoutError, EOFError, ValueError, IndexError):
            return 0, {}, ""

    async def _sent(self, method: str, path: str, body: Any, key: str) -> tuple[int, Any, str]:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            raw = b"" if body is None else json.dumps(body).encode()
            named = f"Idempotency-Key: {key}\r\n" if key else ""
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n{named}"
                f"Authorization: Bearer {self._token}\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + raw)
            answer = await reader.read(-1)
        finally:
            writer.close()
        head_bytes, _, content = answer.partition(b"\r\n\r\n")
        lines = head_bytes.decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        return int(lines[0].split(" ")[1]), json.loads(content or b"{}"), headers.get("x-server", "")


class Run:
    """The whole of it."""

    def __init__(self, database: Replicated, folder: Path, plan: Plan) -> None:
        self._database = database
        self._plan = plan
        self._effects = folder / "effects"
        self._effects.touch()
        self.servers = [Server(number + 1, folder, self._effects) for number in range(plan.servers)]
        for server in self.servers:
            server.configure(database.url, is_single=plan.is_asynchronous)
        self._is_over = False
        self._restarting = asyncio.Lock()
        self._answered: set[str] = set()
        self._written: dict[str, float] = {}
        """Keyed calls that were acknowledged, and when."""
        self._unknown: set[str] = set()
        self._unanswered: list[str] = []
        self._answers: Counter[str] = Counter()
        self._signed: Counter[str] = Counter()
        self._repeated = 0
        self._lost_results: dict[Said, list[str]] = {"ran": [], "unknown": [], "unanswered": []}
        """Calls that were acknowledged before, by what was said when they were repeated."""
        self._lost_questions: list[str] = []
        self._accepted = 0

    async def run(self, folder: Path) -> None:
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in self.servers))
        configuration = QUICK.replace("    balance leastconn", "    balance roundrobin")
        configuration += "    http-response set-header X-Server %s\n"
        for server in self.servers[2:]:
            configuration += f"    server {server.name} 127.0.0.1:{server.port}\n"
        addresses = [f"127.0.0.1:{server.port}" for server in self.servers]
        with balancer(folder, addresses, configuration) as balanced:
            balanced.await_statuses(*["UP"] * len(self.servers))
            caller, approver = (
                Client(balanced, token) for token in (self._token("writer"), self._token("person"))
            )
            await self._one_post_reaches_one_server(caller)
            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(self._write(caller, number))
                for number in range(4):
                    group.create_task(self._sign(caller, approver, number))
                group.create_task(self._kill(caller, group))
                await self._disturb_database(caller, group)
                self._is_over = True
            await self._repeat(caller, time.monotonic())
            await asyncio.sleep(2)  # the last one to be started takes signals by then
            print(f"answers: {dict(sorted(self._answers.items()))}; signed: {dict(self._signed)}", flush=True)

    def _token(self, agent: str) -> str:
        settings = DatabaseSettings(url=self._database.url, key=KEY, is_single=self._plan.is_asynchronous)
        tokens = Tokens(open_shared_tokens(settings, lambda: b"", None))
        try:
            return tokens.make(agent, ["call", "approve"]).text
        finally:
            tokens.close()

    async def _one_post_reaches_one_server(self, client: Client) -> None:
        """A POST without a key, whose server dies in the middle of the call."""
        for number in range(self._plan.posts):
            line = f"once-{number}"
            call = asyncio.create_task(
                client.send("POST", "/v1/tools/append_late:call", {"arguments": {"line": line}})
            )
            while not (begun := self._begun(line)):  # noqa: ASYNC110 -- another process writes it
                await asyncio.sleep(0.01)
            (server,) = [one for one in self.servers if begun == [f"begun-{line}-at-{one.port}"]]
            await asyncio.to_thread(server.end, signal.SIGKILL)
            status, _, _ = await call
            if status == 200 or self._begun(line) != begun:
                raise RuntimeError("a POST whose server died reached a second server")
            await asyncio.to_thread(server.start)

    def _begun(self, line: str) -> list[str]:
        return [one for one in self._effects.read_text().split() if one.startswith(f"begun-{line}-")]

    async def _write(self, client: Client, number: int) -> None:
        """Make keyed calls."""
        for count in itertools.count():
            if self._is_over:
                return
            line = f"w-{number}-{count}"
            said = await self._call(client, line)
            if said in ("ran", "repeated"):
                self._written[line] = time.monotonic()
            elif said == "unknown":
                self._unknown.add(line)
            else:
                self._unanswered.append(line)
            await asyncio.sleep(0.02)

    async def _repeat(self, client: Client, moment: float) -> None:
        """Repeat calls that were acknowledged around a moment, and some of any age."""
        lines = {line for line, at in self._written.items() if abs(at - moment) < 1}
        lines.update(random.sample(list(self._written), min(REPEATED, len(self._written))))
        few = asyncio.Semaphore(8)

        async def repeat(line: str) -> None:
            async with few:
                said = await self._call(client, line)
            self._repeated += 1
            if said != "repeated":
                self._lost_results[said].append(line)

        await asyncio.gather(*map(repeat, lines))

    async def _call(self, client: Client, line: str) -> Said:
        """Make a keyed call again and again until it is answered."""
        body = {"arguments": {"line": line}}
        until = time.monotonic() + ANSWERED_S
        while time.monotonic() < until:
            status, said, _ = await client.send("POST", "/v1/tools/append:call", body, key=line)
            code = str(said.get("code", "")) if isinstance(said, dict) else ""
            self._answers[f"{status} {code}".strip()] += 1
            if status == 200:
                return "repeated" if said["is_repeated"] else "ran"
            if code == "ACODE-TSR-040":
                return "unknown"
            await asyncio.sleep(0.1 if status else 0.3)
        return "unanswered"

    async def _sign(self, caller: Client, approver: Client, number: int) -> None:
        """Have calls approved, through whichever server."""
        for count in itertools.count():
            if self._is_over:
                return
            line = f"s-{number}-{count}"
            asked_at = time.monotonic()
            status, call, at = await caller.send("POST", "/v1/tools/sign:call", {"arguments": {"line": line}})
            if status != 202:
                self._signed[f"not asked: {status}"] += 1
                await asyncio.sleep(0.3)
                continue
            (server,) = [one for one in self.servers if one.name == at]
            said = await self._decide(approver, call["approval"])
            if said != 200:
                self._signed[f"not approved: {said}"] += 1
                if not server.died_after(asked_at):
                    self._lost_questions.append(f"{line} (not approved: {said})")
                continue
            outcome = await self._outcome(caller, call["call_id"])
            self._signed[outcome] += 1
            if outcome == "ended":
                self._answered.add(line)
            elif outcome not in REFUSED and not server.died_after(asked_at):
                self._lost_questions.append(f"{line} ({outcome})")

    async def _decide(self, approver: Client, question: str) -> int:
        until = time.monotonic() + ANSWERED_S
        while time.monotonic() < until:
            status, said, _ = await approver.send(
                "POST", f"/v1/approvals/{question}:decide", {"verdict": "approve", "typed_name": "sign"}
            )
            reason = str(said.get("detail", ""))
            if reason in ("it is approved already", "it is used already"):  # the acknowledgement was lost
                return 200
            # After ten seconds without the database no server was seen, until each has marked itself again.
            if status in (200, 404, 409, 403, 422) and "has ended" not in reason:
                return status
            await asyncio.sleep(0.3)
        return 0

    async def _outcome(self, caller: Client, call_id: str) -> str:
        last = ""
        until = time.monotonic() + ANSWERED_S
        while time.monotonic() < until:
            status, said, _ = await caller.send("GET", f"/v1/calls/{call_id}?wait=1")
            if status == 200 and said.get("status") != "pending":
                return "ended"
            last = f"{status} {said.get('code', said.get('status', ''))}"
            if status not in (0, 200, 202, 502, 503, 504):
                return last
            await asyncio.sleep(0.2)
        return f"no outcome, at last {last}"

    async def _kill(self, client: Client, group: asyncio.TaskGroup) -> None:
        """Kill servers."""
        while True:
            await asyncio.sleep(self._plan.killed_every_s)
            if self._is_over:
                return
            killed_at = time.monotonic()
            await self._restart(random.choice(self.servers), signal.SIGKILL)  # noqa: S311 -- no secret
            group.create_task(self._repeat(client, killed_at))

    async def _restart(self, server: Server, how: signal.Signals) -> None:
        async with self._restarting:
            await asyncio.to_thread(server.end, how)
            if server.refuses_database:
                await asyncio.to_thread(server.accept_database)
                self._accepted += 1
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start)

    async def _disturb_database(self, client: Client, group: asyncio.TaskGroup) -> None:
        """Restart it, and have it fail over, at even intervals."""
        events = [lambda: self._database.restart(1.0), self._database.fail_over]
        events += [lambda: self._database.restart(8.0)] if self._plan.failovers > 1 else []
        events += [self._database.fail_over] * (self._plan.failovers - 1)
        began, apart_s = time.monotonic(), self._plan.seconds / (len(events) + 1)
        for count, event in enumerate(events):
            await asyncio.sleep(max(0.0, began + (count + 1) * apart_s - time.monotonic()))
            happens_at = time.monotonic()
            await asyncio.to_thread(event)
            group.create_task(self._repeat(client, happens_at))
            for server in self.servers:
                if server.refuses_database:
                    await self._restart(server, signal.SIGTERM)
        await asyncio.sleep(max(0.0, began + self._plan.seconds - time.monotonic()))

    def check(self) -> str:
        """What was lost; raises if that is something, or nothing where a standby lagged."""
        done = Counter(self._effects.read_text().split())
        found = {
            "acknowledged calls lost": [line for line in {*self._answered, *self._written} if not done[line]],
            "effects twice": [line for line, times in done.items() if times > 1],
            **{f"results lost, then {said}": lines for said, lines in self._lost_results.items()},
            "questions lost": self._lost_questions,
            "unanswered": self._unanswered,
            "databases older than before": ["accepted"] * self._accepted,
            "alarms about logs": [alarm for server in self.servers for alarm in server.alarms()],
        }
        records = 0
        for server in self.servers:
            report = verify(server.state)
            if not report.is_intact:
                raise RuntimeError(f"{server.name}: {report}")
            records += report.records
        said = (
            f"{len(self._written)} keyed and {len(self._answered)} approved calls acknowledged, "
            f"{self._repeated} repeated, {len(self._unknown)} with unknown outcome, {self._plan.failovers} failovers "
            f"(standby behind by {self._database.behind} ms), "
            f"{sum(server.kills for server in self.servers)} kills, {records} records verify; "
            + ", ".join(f"{what} {len(which)}" for what, which in found.items())
        )
        examples = {what: sorted(which)[:3] for what, which in found.items() if which}
        if bool(examples) != self._plan.is_asynchronous:
            raise RuntimeError(f"{said}: {examples}")
        return f"{said}: {examples}" if examples else said


def soak(plan: Plan) -> str:
    """What was seen; raises where a promise was broken."""
    with (
        tempfile.TemporaryDirectory() as name,
        replicated(delay_s=DELAY_S, is_synchronous=not plan.is_asynchronous) as database,
    ):
        run = Run(database, Path(name), plan)
        try:
            asyncio.run(run.run(Path(name)))
            for server in run.servers:
                if (code := server.end(signal.SIGTERM)) != 0:
                    raise RuntimeError(f"{server.name} ended with {code}")
            return run.check()
        finally:
            for server in run.servers:
                server.end(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Servers are killed, and their database fails over.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--failovers", type=int, default=3)
    parser.add_argument("--asynchronous", action="store_true", help="a standby that lags, as a warning")
    options = parser.parse_args()
    plan = Plan(
        seconds=60 * options.minutes,
        servers=options.servers,
        failovers=options.failovers,
        is_asynchronous=options.asynchronous,
    )
    print(soak(plan))


if __name__ == "__main__":
    main()
