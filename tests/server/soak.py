"""Load on two servers that share a PostgreSQL, which is restarted meanwhile; one of the servers is killed.

    python -m tests.server.soak --minutes 10

Afterwards both logs verify; every call that was answered with ok is in the log of its server; no keyed call had its
effect twice; readiness said 503 while the database was away and 200 after; what one server stored the other serves;
and the server that lived on holds no more descriptors, and hardly more memory, than after its first tenth.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.storage.cluster import Cluster, cluster
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify
from toolkeep.stores.api_tokens import Tokens

CLIENTS = 12
GROWN_BYTES = 48 * 1024 * 1024
GROWN_DESCRIPTORS = 12


KEY = "the_same_on_all_of_the_servers"


@dataclass
class Served:
    """One server process, and what it acknowledged."""

    name: str
    folder: Path
    process: "subprocess.Popen[str] | None" = None
    port: int = 0
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Lines, each with the id of its call."""
    answers: Counter[int] = field(default_factory=Counter)
    probes: list[tuple[float, int, dict[str, bool]]] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def start(self, url: str) -> None:
        config = self.folder / "home" / ".agent" / "config.yml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"database: {{url: '{url}', key: {KEY}, single: true}}\n")
        self.project.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.soaked", str(self.project)],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        if self.process.stdout is None:
            raise RuntimeError("no pipe")
        self.port = int(self.process.stdout.readline())

    @property
    def environment(self) -> dict[str, str]:
        home, state = str(self.folder / "home"), str(self.folder / "state")
        return {**os.environ, "HOME": home, "TOOLKEEP_HOME": state}

    @property
    def state(self) -> Path:
        (found,) = [path for path in (self.folder / "state").rglob("audit") if path.is_dir()]
        return found.parent

    def end(self, how: signal.Signals) -> int:
        if self.process is None:
            raise RuntimeError("it never began")
        self.process.send_signal(how)
        code = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def held(self) -> tuple[int, int]:
        """Resident bytes and descriptors."""
        place = Path(f"/proc/{self.process.pid if self.process else 0}")
        resident = int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return resident, len(list((place / "fd").iterdir()))


class Connection:
    """One connection, opened anew whenever it breaks."""

    def __init__(self, served: Served, token: str) -> None:
        self._served = served
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(
        self, method: str, path: str, body: Any = None, key: str = ""
    ) -> tuple[int, dict[str, Any]] | None:
        """Status and JSON; None where there was no answer."""
        try:
            async with asyncio.timeout(20):
                return await self._sent(method, path, body, key)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError, IndexError):
            self.close()
            return None

    async def _sent(self, method: str, path: str, body: Any, key: str) -> tuple[int, dict[str, Any]]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._served.port)
        reader, writer = self._streams
        raw = b"" if body is None else json.dumps(body).encode()
        named = f"Idempotency-Key: {key}\r\n" if key else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{named}"
            f"Authorization: Bearer {self._token}\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        writer.write(head.encode() + raw)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        answer = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return status, json.loads(answer or b"{}")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Soak:
    """The whole of it."""

    def __init__(self, cluster: Cluster, folder: Path, seconds: float) -> None:
        self.cluster = cluster
        self.url = cluster.clean()
        self.seconds = seconds
        self.servers = [Served(name, folder / name) for name in ("lives", "killed")]
        self.is_over = False
        self.token = ""

    async def run(self) -> None:
        for served in self.servers:
            (served.folder / "home").mkdir(parents=True)
            served.start(self.url)
        self.token = self._make_token()
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for served in self.servers:
                for number in range(CLIENTS):
                    group.create_task(self._call(served, number))
                group.create_task(self._probe(served))
            group.create_task(self._events(began))
        print({served.name: dict(served.answers) for served in self.servers})

    def _make_token(self) -> str:
        from toolkeep.config.settings import DatabaseSettings
        from toolkeep.storage.postgres.shared_state import open_shared_tokens

        settings = DatabaseSettings(url=self.url, key=KEY, is_single=True)
        tokens = Tokens(open_shared_tokens(settings, lambda: b"", None))
        try:
            return tokens.make("soak", ["admin"]).text
        finally:
            tokens.close()

    async def _events(self, began: float) -> None:
        """What happens while they are called."""
        lives, killed = self.servers
        await self._until(began, 0.1)
        before = lives.held()
        await self._until(began, 0.2)
        await self._stored(lives, killed, "greet_one")
        await self._until(began, 0.4)
        self.cluster.stop()
        await asyncio.sleep(min(10.0, 0.1 * self.seconds))
        away = time.monotonic()
        self._expect(lives, away, 503)
        self.cluster.start()
        await asyncio.sleep(min(15.0, max(4.0, 0.1 * self.seconds)))
        self._expect(lives, time.monotonic(), 200)
        await self._stored(lives, killed, "greet_two")
        await self._until(began, 0.7)
        killed.end(signal.SIGKILL)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(killed.start, self.url)  # its clients go on meanwhile
        await self._until(began, 1.0)
        await self._stored(killed, lives, "greet_three")
        self.is_over = True
        await asyncio.sleep(0.5)
        after = lives.held()
        print(f"held before {before}, after {after}")
        if after[0] > before[0] + GROWN_BYTES or after[1] > before[1] + GROWN_DESCRIPTORS:
            raise RuntimeError(f"it grew: {before} to {after}")

    async def _until(self, began: float, part: float) -> None:
        await asyncio.sleep(max(0.0, began + part * self.seconds - time.monotonic()))

    async def _stored(self, one: Served, other: Served, name: str) -> None:
        """A definition that one server stores, the other serves within some seconds."""
        definition = {"name": name, "description": "Greet.", "version": "1.0.0", "client_executed": True}
        first, second = Connection(one, self.token), Connection(other, self.token)
        made = await first.send("POST", "/v1/tools", definition)
        if made is None or made[0] != 201:
            raise RuntimeError(f"{one.name} did not store {name}: {made}")
        for _ in range(100):
            shown = await second.send("GET", f"/v1/tools/{name}")
            if shown is not None and shown[0] == 200:
                first.close()
                second.close()
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"{other.name} does not serve {name}")

    def _expect(self, served: Served, at: float, status: int) -> None:
        last = [probe for probe in served.probes if probe[0] <= at][-1]
        if last[1] != status:
            raise RuntimeError(f"readiness said {last[1:]} where {status} is true")

    async def _probe(self, served: Served) -> None:
        connection = Connection(served, self.token)
        while not self.is_over:
            answer = await connection.send("GET", "/readyz")
            status, checks = (0, {}) if answer is None else (answer[0], answer[1].get("checks", {}))
            served.probes.append((time.monotonic(), status, checks))
            await asyncio.sleep(0.2)
        connection.close()

    async def _call(self, served: Served, number: int) -> None:
        """Call again and again, each key until it is answered, and each fourth key twice."""
        connection = Connection(served, self.token)
        count = 0
        while not self.is_over:
            count += 1
            line = f"{served.name}-{number}-{count}"
            tool = "append" if number % 2 else "echo"
            for attempt in range(2 if count % 4 == 0 else 1):
                answer = await connection.send(
                    "POST", f"/v1/tools/{tool}:call", {"arguments": {"line": line}}, key=line
                )
                status = 0 if answer is None else answer[0]
                served.answers[status] += 1
                if answer is not None and status == 200:
                    served.acknowledged.setdefault(line, answer[1]["call_id"])
                else:
                    await asyncio.sleep(0.1 * (attempt + 1))
        connection.close()


def check(served: Served) -> None:
    """The log of a server is whole, and its effects happened once."""
    report = verify(served.state)
    if not report.is_intact:
        raise RuntimeError(str(report))
    with AuditLog(served.state) as log:
        done = {
            entry.record["call"]
            for entry in log.read()
            if entry.record.get("type") == "ToolCompleted" and entry.record.get("status") == "ok"
        }
    lost = [line for line, call in served.acknowledged.items() if call not in done]
    if lost:
        raise RuntimeError(f"{len(lost)} acknowledged calls of {served.name} are lost: {lost[:3]}")
    lines = (served.project / "effects").read_text().split()
    twice = [line for line, count in Counter(lines).items() if count > 1]
    if twice:
        raise RuntimeError(f"{len(twice)} effects of {served.name} happened twice: {twice[:3]}")
    print(
        f"{served.name}: {report.records} records, {len(served.acknowledged)} acknowledged calls, none lost"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Load, a restarted database and a killed server.")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster() as database:
        soak = Soak(database, Path(name), 60 * options.minutes)
        try:
            asyncio.run(soak.run())
            for served in soak.servers:
                if (code := served.end(signal.SIGTERM)) != 0:
                    raise RuntimeError(f"{served.name} ended with {code}")
                check(served)
        finally:
            for served in soak.servers:
                if served.process is not None and served.process.poll() is None:
                    served.process.kill()
                    served.process.wait()


if __name__ == "__main__":
    main()
