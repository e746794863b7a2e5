"""Servers and workers of a fleet in one process, and parts that an attacker would have."""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.fleet import fleet_tools
from tests.fleet.nats_server import NatsCluster, NatsServer
from toolkeep import Keep
from toolkeep.config.fleet_settings import FleetSettings, TrustedServer, TrustedWorker, WorkerSettings
from toolkeep.execution.code_identity import code_hash_of, isolation_of
from toolkeep.fleet import messages, subjects
from toolkeep.fleet.dispatcher import Dispatcher
from toolkeep.fleet.fleet_runner import FleetRunner, GrantOf
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import Claim, Claims, Job
from toolkeep.fleet.sealed_session import (
    ANNOUNCE,
    HELLO,
    SEALED,
    WELCOME,
    Opening,
    SealedSession,
    announce,
    read_announce,
    read_hello,
    session_of,
    welcome,
)
from toolkeep.fleet_worker.worker import Worker
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Grant, PolicySettings
from toolkeep.stores.records import MemoryRecord

TOOLS = (
    fleet_tools.shout, fleet_tools.wait, fleet_tools.act, fleet_tools.sign_in, fleet_tools.count,
    fleet_tools.break_rules, fleet_tools.note, fleet_tools.look, fleet_tools.look_anywhere, fleet_tools.add, fleet_tools.reach,
    fleet_tools.put,
)  # fmt: skip
NAMES = tuple(one.definition.name for one in TOOLS)
LEVELS = ("standard", "strict")
LEASE = 60.0
"""Long: the watchdog of a worker in this process would end the tests."""
PATIENCE = 60.0
HERE = str(Path.cwd())


def new_key() -> PrivateKey:
    """A key of nobody before."""
    return PrivateKey(os.urandom(32))


def keep_of(*, tools: Iterable[Any] = TOOLS, **settings: Any) -> Keep:
    """A keep with the tools of a fleet."""
    keep = Keep(**settings)
    for one in tools:
        keep.register(one)
    return keep


class Server:
    """A keep that sends its calls to workers."""

    def __init__(
        self,
        nats: NatsServer | NatsCluster,
        key: PrivateKey,
        workers: Iterable[TrustedWorker],
        *,
        user: str = "",
        runs_on: Mapping[str, str | None] | None = None,
        lease_s: float = LEASE,
        agents: dict[str, Grant] | None = None,
        sample: float = 0.0,
        **settings: Any,
    ) -> None:
        self.key = key
        self.record = MemoryRecord()
        fleet = FleetSettings(
            nats=nats.settings(user),
            workers=tuple(workers),
            runs_on=dict.fromkeys(NAMES, "") if runs_on is None else dict(runs_on),
            lease_s=lease_s,
            sample=sample,
        )

        def runner(grant_of: GrantOf) -> FleetRunner:
            self.runner = FleetRunner(fleet, lambda: key, HERE, grant_of)
            return self.runner

        policy = PolicySettings(agents={"local": DEFAULT_GRANT, **(agents or {})})
        self.keep = keep_of(record=self.record, fleet=runner, policy=policy, **settings)
        self.call = self.keep.call

    async def dispatcher(self) -> Dispatcher:
        """The dispatcher, which is started."""
        _ = self.keep._pipeline
        return await self.runner.dispatcher()

    def said(self, kind: str) -> list[dict[str, Any]]:
        """The records of a kind."""
        return [record for entry in self.record.log.entries if (record := entry.record)["type"] == kind]

    async def __aenter__(self) -> Self:
        await self.dispatcher()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.keep.__aexit__(None, None, None)


def trusted(key: PrivateKey, name: str = "one", **may: Any) -> TrustedWorker:
    """A worker, as a server trusts it."""
    return TrustedWorker(name=name, key=key.public.text, **may)


class OwnWorker(Worker):
    """A worker in this process, with its keep."""

    keep: Keep


def made_worker(
    nats: NatsServer | NatsCluster,
    key: PrivateKey,
    servers: Iterable[TrustedServer | PrivateKey],
    *,
    user: str = "",
    levels: tuple[str, ...] = LEVELS,
    labels: tuple[str, ...] = (),
    slots: int = 4,
    keep: Keep | None = None,
    tools: Iterable[Any] = TOOLS,
) -> OwnWorker:
    """A worker for this process, which does not run yet."""
    known = (
        one if isinstance(one, TrustedServer) else TrustedServer(key=one.public.text, name="main")
        for one in servers
    )
    settings = WorkerSettings(nats=nats.settings(user), servers=tuple(known), labels=labels, slots=slots)
    worker = OwnWorker(keep := keep or keep_of(tools=tools), settings, key, levels)
    worker.keep = keep
    return worker


@contextlib.asynccontextmanager
async def running(*workers: OwnWorker) -> AsyncIterator[None]:
    """The workers run for as long as the block lasts."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in workers:
            await worker.keep.__aexit__(None, None, None)


def refused_elsewhere(server: Server) -> Counter[tuple[str, str, str]]:
    """What the log of a server says that its workers refused: what, why, and in whose name."""
    counted = Counter[tuple[str, str, str]]()
    for one in server.said("RefusedElsewhere"):
        if not one["call"]:
            counted[one["what"], one["reason"], one["server"]] += one["count"]
    return counted


async def recorded(server: Server, *expected: tuple[str, str, str]) -> None:
    """Wait until that is in its log, and nothing else."""
    await until(lambda: refused_elsewhere(server) >= Counter(expected))
    assert refused_elsewhere(server) == Counter(expected)


async def until(is_so: Any, seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0.01)


class Tap:
    """A connection to NATS with any subscription, for those who listen and those who forge."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.frames: asyncio.Queue[Msg] = asyncio.Queue()

    async def hear(self, *subjects: str) -> None:
        """Keep what comes on these."""
        for subject in subjects:
            await self.client.subscribe(subject, cb=self.frames.put)
        await self.client.flush()

    async def next(self, kind: bytes) -> bytes:
        """The next frame of a kind."""
        async with asyncio.timeout(PATIENCE):
            while True:
                frame = (await self.frames.get()).data
                if frame[:1] == kind:
                    return frame

    async def send(self, subject: str, *frames: bytes) -> None:
        """Send frames."""
        for frame in frames:
            await self.client.publish(subject, frame)
        await self.client.flush()


@contextlib.asynccontextmanager
async def tapped(nats: NatsServer, *subjects: str, user: str = "") -> AsyncIterator[Tap]:
    """A connection, with subscriptions."""
    client = Client()
    await client.connect([nats.url], user=user or None, password=user or None)
    tap = Tap(client)
    try:
        await tap.hear(*subjects)
        yield tap
    finally:
        await client.close()


class RogueServer:
    """Says to a worker whatever it likes, under a key."""

    def __init__(self, tap: Tap, key: PrivateKey, worker: PublicKey) -> None:
        self.tap = tap
        self.key = key
        self.worker = worker
        self.reply = os.urandom(8).hex()
        self.boot = b""
        self.hellos = 0
        self.sealed: SealedSession | None = None
        self.claims: Claims | None = None
        self.jobs = 0

    async def open(self, **changed: Any) -> None:
        """Open a session; the tap hears announcements."""
        announced = None
        while announced is None or announced.worker != self.worker.raw:  # others may share the NATS server
            announced, _ = read_announce(await self.tap.next(ANNOUNCE))
        self.boot = announced.boot
        await self.tap.hear(subjects.to_server(self.key.public, self.reply, "*"))
        opening = self.opening(**changed)
        await self.send(opening.frame)
        self.sealed = opening.finish(await self.tap.next(WELCOME))
        self.claims = await self.hear()
        assert isinstance(self.claims, Claims)
        await self.say(messages.Renew(0))
        heartbeat = await self.hear()
        assert isinstance(heartbeat, messages.Heartbeat)
        await self.say(messages.Renew(heartbeat.number))

    def opening(self, **changed: Any) -> Opening:
        """A hello."""
        self.hellos += 1
        facts: dict[str, Any] = {
            "version": "0", "reply": self.reply, "boot": self.boot, "number": self.hellos, "lease_ms": 60_000,
        }  # fmt: skip
        return Opening(self.key, self.worker, **{**facts, **changed})

    async def send(self, *frames: bytes) -> None:
        """Any frames."""
        await self.tap.send(subjects.to_worker(self.worker), *frames)

    def seal(self, message: Any) -> bytes:
        """A frame of the session."""
        assert self.sealed is not None
        return self.sealed.seal(message if isinstance(message, bytes) else messages.encode(message))

    async def say(self, message: Any) -> None:
        """Seal and send."""
        await self.send(self.seal(message))

    async def hear(self, *kinds: type) -> Any:
        """The next message of the session, of some kinds."""
        assert self.sealed is not None
        while True:
            frame = await self.tap.next(SEALED)
            if session_of(frame) != self.sealed.id:
                continue
            message = messages.decode_to_server(self.sealed.open(frame))
            if not kinds or isinstance(message, kinds):
                return message

    def job(self, keep: Keep, of: str = "shout", /, **changed: Any) -> Job:
        """A job as an honest server would send it, but for what is changed."""
        self.jobs += 1
        registered = keep.get(of)
        facts: dict[str, Any] = {
            "id": f"call{self.jobs}.0",
            "tool": of,
            "definition_hash": registered.definition_hash,
            "code_hash": code_hash_of(registered, HERE),
            "level": isolation_of(registered),
            "agent": "local",
            "capabilities": (),
            "permissions": (),
            "arguments": b'{"text":"hi"}',
            "deadline_ms": 10_000,
            "output_bytes": 10_000,
        }
        return Job(**{**facts, **changed})

    async def ask(self, job: Job) -> Any:
        """How a job ends."""
        await self.say(job)
        while True:
            said = await self.hear(messages.Answer, messages.NotRun)
            if said.id == job.id:
                return said


class RogueWorker:
    """Says to a server whatever it likes, under a key."""

    def __init__(self, tap: Tap, key: PrivateKey, keep: Keep, server: PublicKey) -> None:
        self.tap = tap
        self.key = key
        self.boot = os.urandom(16)
        self.server = server
        self.sealed: SealedSession | None = None
        self.hello = b""
        self.subject = ""
        self.heartbeats = 0
        tools = [tool for tool in keep.tools() if code_hash_of(tool, HERE)]
        self.claims = Claims(
            labels=(),
            levels=LEVELS,
            tools=tuple(
                Claim(tool.name, tool.definition_hash, code_hash_of(tool, HERE) or "") for tool in tools
            ),
            slots=4,
            version="0",
        )

    async def announce(self) -> None:
        """Be there, and take the hello."""
        await self.tap.hear(subjects.to_worker(self.key.public))
        await self.tap.send(subjects.announcement(self.key.public), announce(self.key, self.boot))
        self.hello = await self.tap.next(HELLO)
        hello, _ = read_hello(self.hello)
        self.subject = subjects.to_server(self.server, hello.reply, self.key.public.token)

    def welcome(self) -> bytes:
        """A frame that opens the session."""
        hello, _ = read_hello(self.hello)
        self.sealed, frame = welcome(self.key, self.hello, hello)
        return frame

    def opening(self, **changed: Any) -> tuple[bytes, bytes]:
        """The frames that open the session and tell what the worker claims."""
        from msgspec.structs import replace

        return self.welcome(), self.seal(replace(self.claims, **changed))

    async def open(self, **changed: Any) -> None:
        """Open a session, and have a lease."""
        await self.announce()
        await self.send(*self.opening(**changed))
        await self.heartbeat()

    async def heartbeat(self, **changed: Any) -> None:
        """Live."""
        self.heartbeats += 1
        await self.say(messages.Heartbeat(self.heartbeats, **{"others": 0, **changed}))

    async def send(self, *frames: bytes) -> None:
        """Any frames."""
        await self.tap.send(self.subject, *frames)

    def seal(self, message: Any) -> bytes:
        """A frame of the session."""
        assert self.sealed is not None
        return self.sealed.seal(message if isinstance(message, bytes) else messages.encode(message))

    async def say(self, *said: Any) -> None:
        """Seal and send."""
        await self.send(*map(self.seal, said))

    async def hear(self, *kinds: type) -> Any:
        """The next message, of some kinds."""
        assert self.sealed is not None
        while True:
            message = messages.decode_to_worker(self.sealed.open(await self.tap.next(SEALED)))
            if not kinds or isinstance(message, kinds):
                return message

    def answer(self, job: Job, body: bytes = b'"HI"', **changed: Any) -> messages.Answer:
        """A final answer."""
        facts: dict[str, Any] = {
            "id": job.id,
            "isolation": job.level,
            "enforced": ("x",),
            "body": body,
        }
        return messages.Answer(**{**facts, **changed})
