"""Servers on one PostgreSQL behind haproxy, while servers are killed and the database fails over.

    python -m tests.server.many_servers --minutes 20 --servers 2

Every 20 s a server is killed (SIGKILL) and started again; the database is restarted, and fails over to a
synchronous standby 30 ms away. Meanwhile clients make keyed calls that have effects, retry them through
haproxy until they are answered, and have others approved through whichever server. Afterwards: acknowledged
calls lost 0, effects twice 0, questions lost 0, and every log verifies. `--asynchronous` shows what a standby
that lags loses.
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
from pathlib import Path
from typing import Any, Protocol

from tests.deploy.balancer import HOST, QUICK, balancer, free_port
from tests.storage.replica import Replicated, replicated
from toolkeep.config.settings import DatabaseSettings
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.postgres.shared_state import open_shared_tokens
from toolkeep.stores.api_tokens import Tokens

KEY = "the_same_on_all_of_the_servers"
KILLED_EVERY_S = 20.0
GONE_S = 10.0
"""After so long without a sign of life a server is taken for dead."""


class Server:
    """One server process, started again whenever it was killed."""

    def __init__(self, number: int, folder: Path, effects: Path) -> None:
        self.name = f"keep-{number}"
        self.port = free_port()
        self._folder = folder / self.name
        self._effects = effects
        self.killed: list[float] = []
        self._process: subprocess.Popen[str] | None = None

    def configure(self, url: str, *, is_single: bool) -> None:
        config = self._folder / "home" / ".agent" / "config.yml"
        config.parent.mkdir(parents=True)
        (self._folder / "project").mkdir()
        single = "true" if is_single else "false"
        config.write_text(f"database: {{url: '{url}', key: {KEY}, single: {single}}}\n")

    def start(self) -> None:
        places = [str(self._folder / "project"), str(self._effects), str(self.port)]
        home, state = str(self._folder / "home"), str(self._folder / "state")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.many_servers_server", *places],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "HOME": home, "TOOLKEEP_HOME": state},
            )
        if self._process.stdout is None or not self._process.stdout.readline():
            raise RuntimeError(f"{self.name} did not start: {(self._folder / 'log').read_text()[-2000:]}")

    def end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self.killed.append(time.monotonic())
        self._process.send_signal(how)
        code = self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        return code

    def died_after(self, at: float) -> bool:
        return any(killed >= at for killed in self.killed)

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

    def __init__(self, database: Replicated, folder: Path, options: argparse.Namespace) -> None:
        self.database = database
        self.seconds = 60 * options.minutes
        self.effects = folder / "effects"
        self.effects.touch()
        self.servers = [Server(number + 1, folder, self.effects) for number in range(options.servers)]
        for server in self.servers:
            server.configure(database.url, is_single=options.asynchronous)
        self.is_asynchronous = options.asynchronous
        self.is_over = False
        self.acknowledged: set[str] = set()
        self.unknown: set[str] = set()
        self.answers: Counter[str] = Counter()
        self.signed: Counter[str] = Counter()
        self.lost_questions: list[str] = []

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
                group.create_task(self._kills())
                await self._database_events()
                self.is_over = True
            await asyncio.sleep(2)  # the last one to be started takes signals by then
            print(f"answers: {dict(sorted(self.answers.items()))}; signed: {dict(self.signed)}")

    def _token(self, agent: str) -> str:
        settings = DatabaseSettings(url=self.database.url, key=KEY, is_single=self.is_asynchronous)
        tokens = Tokens(open_shared_tokens(settings, lambda: b"", None))
        try:
            return tokens.make(agent, ["call", "approve"]).text
        finally:
            tokens.close()

    async def _one_post_reaches_one_server(self, client: Client) -> None:
        """A POST without a key, whose server dies in the middle of the call."""
        for number in range(3):
            line = f"once-{number}"
            call = asyncio.create_task(
                client.send("POST", "/v1/tools/append_late:call", {"arguments": {"line": line}})
            )
            while f"begun-{line}" not in self.effects.read_text().split():  # noqa: ASYNC110 -- another process writes it
                await asyncio.sleep(0.01)
            # Which of them has it is not known from outside: kill one after the other until it is answered.
            for server in self.servers:
                await asyncio.to_thread(server.end, signal.SIGKILL)
                await asyncio.to_thread(server.start)
                if call.done():
                    break
            await call
            await asyncio.sleep(2.5)
            if self.effects.read_text().split().count(f"begun-{line}") != 1:
                raise RuntimeError("a POST whose server died reached a second server")

    async def _write(self, client: Client, number: int) -> None:
        """Make keyed calls, each repeated until it is answered."""
        for count in itertools.count():
            if self.is_over:
                return
            line = f"w-{number}-{count}"
            body = {"arguments": {"line": line}}
            until = time.monotonic() + 60
            while time.monotonic() < until:
                status, said, _ = await client.send("POST", "/v1/tools/append:call", body, key=line)
                code = str(said.get("code", "")) if isinstance(said, dict) else ""
                self.answers[f"{status} {code}".strip()] += 1
                if status == 200:
                    self.acknowledged.add(line)
                    break
                if code == "ACODE-TSR-040":
                    self.unknown.add(line)
                    break
                await asyncio.sleep(0.1 if status else 0.3)
            await asyncio.sleep(0.02)

    async def _sign(self, caller: Client, approver: Client, number: int) -> None:
        """Have calls approved, through whichever server."""
        for count in itertools.count():
            if self.is_over:
                return
            line = f"s-{number}-{count}"
            asked_at = time.monotonic()
            status, call, at = await caller.send("POST", "/v1/tools/sign:call", {"arguments": {"line": line}})
            if status != 202:
                self.signed[f"not asked: {status}"] += 1
                await asyncio.sleep(0.3)
                continue
            server = next((one for one in self.servers if one.name == at), None)
            said = await self._decide(approver, call["approval"])
            is_dead = server is None or server.died_after(asked_at)
            if said not in (200, 409):  # 409: answered before, and the acknowledgement was lost
                self.signed["its server was killed" if is_dead else f"not approved: {said}"] += 1
                if not is_dead and said == 404:
                    self.lost_questions.append(line)
                continue
            outcome = await self._outcome(caller, call["call_id"])
            self.signed["ended" if outcome == 200 else f"outcome {outcome}"] += 1
            if outcome == 200:
                self.acknowledged.add(line)
            elif server is not None and not server.died_after(asked_at):
                self.lost_questions.append(f"{line} ({outcome})")

    async def _decide(self, approver: Client, question: str) -> int:
        for _ in range(60):
            status, _, _ = await approver.send(
                "POST", f"/v1/approvals/{question}:decide", {"verdict": "approve", "typed_name": "sign"}
            )
            if status in (200, 404, 409, 403, 422):
                return status
            await asyncio.sleep(0.3)
        return 0

    async def _outcome(self, caller: Client, call_id: str) -> int:
        for _ in range(60):
            status, said, _ = await caller.send("GET", f"/v1/calls/{call_id}?wait=1")
            if status == 200 and said.get("status") != "pending":
                return 200
            if status not in (0, 200, 202, 502, 503, 504):
                return status
            await asyncio.sleep(0.2)
        return 0

    async def _kills(self) -> None:
        while not self.is_over:
            await asyncio.sleep(KILLED_EVERY_S)
            server = random.choice(self.servers)  # noqa: S311 -- no secret
            await asyncio.to_thread(server.end, signal.SIGKILL)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start)

    async def _database_events(self) -> None:
        began = time.monotonic()
        for part, event in (
            (0.15, lambda: self.database.restart(1.0)),
            (0.3, self.database.fail_over),
            (0.45, lambda: self.database.restart(8.0)),
            (0.6, self.database.fail_over),
            (0.8, self.database.fail_over),
        ):
            await asyncio.sleep(max(0.0, began + part * self.seconds - time.monotonic()))
            await asyncio.to_thread(event)
        await asyncio.sleep(max(0.0, began + self.seconds - time.monotonic()))

    def check(self) -> None:
        """Print what was lost, and raise if it was something."""
        done = Counter(self.effects.read_text().split())
        lost = sorted(line for line in self.acknowledged if not done[line])
        twice = sorted(line for line, times in done.items() if times > 1)
        records = 0
        for server in self.servers:
            report = verify(server.state)
            if not report.is_intact:
                raise RuntimeError(f"{server.name}: {report}")
            records += report.records
        print(
            f"acknowledged {len(self.acknowledged)}, unknown {len(self.unknown)}, "
            f"killed {sum(len(server.killed) for server in self.servers)} times; acknowledged calls lost "
            f"{len(lost)}, effects twice {len(twice)}, questions lost {len(self.lost_questions)}; "
            f"{records} records verify"
        )
        if lost or twice or self.lost_questions:
            message = f"lost {lost[:3]}, twice {twice[:3]}, questions {self.lost_questions[:3]}"
            if not self.is_asynchronous:
                raise RuntimeError(message)
            print(f"as expected of an asynchronous standby: {message}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Servers are killed, and their database fails over.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--asynchronous", action="store_true", help="a standby that lags, as a warning")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        replicated(delay_s=0.03, is_synchronous=not options.asynchronous) as database,
    ):
        run = Run(database, Path(name), options)
        try:
            asyncio.run(run.run(Path(name)))
            for server in run.servers:
                if (code := server.end(signal.SIGTERM)) != 0:
                    raise RuntimeError(f"{server.name} ended with {code}")
            run.check()
        finally:
            for server in run.servers:
                server.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
