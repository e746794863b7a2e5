"""What a worker refuses: forged, replayed and malformed frames, and servers that ask for more than they may."""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import (
    OwnWorker,
    RogueServer,
    Server,
    made_worker,
    new_key,
    recorded,
    refused_elsewhere,
    running,
    tapped,
    trusted,
    until,
)
from toolkeep import Code
from toolkeep.audit.entry import Leaf
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.definitions.capability import Capability
from toolkeep.errors import FAILURES, TITLES, NotRecorded
from toolkeep.fleet import messages, subjects
from toolkeep.fleet.dispatcher import Dispatcher
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.messages import (
    PROTOCOL,
    REFUSAL_KINDS,
    SHAPE,
    Answer,
    Claim,
    Heartbeat,
    Install,
    InstallResult,
    Job,
    NotRun,
    Query,
    RefusalCount,
    Renew,
    StoredBody,
)
from toolkeep.fleet.sealed_session import HELLO, SEALED, UNHANDLED, WELCOME, Hello, SealedSession, _signed
from toolkeep.fleet_worker import worker as worker_module
from toolkeep.fleet_worker.jobs import Jobs
from toolkeep.fleet_worker.worker_refusals import Refusals
from toolkeep.keep import refusal_counts

pytestmark = [pytest.mark.spec("SCL-4"), pytest.mark.usefixtures("_told_soon")]

BOMB = b"\x91" * 100_000
"""Lists in lists."""
ENDLESS = b"\xdd\xff\xff\xff\xff"
"""A list of 4 billion things that does not follow."""
LOW_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


class Scene:
    """A worker, an honest server, and an attacker with the key of another server that the worker trusts."""

    def __init__(self, rogue: RogueServer, worker: OwnWorker, server: Server) -> None:
        self.rogue = rogue
        self.worker = worker
        self.keep = worker.keep
        self.server = server
        self.name = rogue.key.public.token

    @property
    def sealed(self) -> SealedSession:
        assert self.rogue.sealed is not None
        return self.rogue.sealed

    def job(self) -> Job:
        """The job that must never run."""
        return self.rogue.job(self.keep, id="forged.0")

    def packed(self) -> bytes:
        return messages.encode(self.job())

    def hello(self, signer: PrivateKey | None = None, **changed: Any) -> bytes:
        rogue = self.rogue
        facts: dict[str, Any] = {
            "protocol": PROTOCOL, "shape": SHAPE, "version": "0", "server": rogue.key.public.raw,
            "reply": rogue.reply, "worker": rogue.worker.raw, "boot": rogue.boot, "number": 1000,
            "key": os.urandom(32), "lease_ms": 5000,
        }  # fmt: skip
        return _signed(HELLO, Hello(**{**facts, **changed}), signer or rogue.key)


async def scene(
    nats: NatsServer,
    attack: Callable[[Scene], Awaitable[None]],
    **may: Any,
) -> None:
    key, honest, worker_key = new_key(), new_key(), new_key()
    main = TrustedServer(key=key.public.text, name="main", **may)
    worker = made_worker(nats, worker_key, [main, honest])
    server = Server(nats, honest, [trusted(worker_key)])
    async with server, tapped(nats, "tk.v1.hb.*") as tap, running(worker):
        rogue = RogueServer(tap, key, worker_key.public)
        await rogue.open()
        await attack(Scene(rogue, worker, server))


def flipped(frame: bytes, at: int) -> bytes:
    """One bit is other."""
    at %= len(frame)
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def stranger(scene: Scene, message: bytes) -> bytes:
    """Sealed by somebody who knows all but the keys."""
    made = SealedSession(scene.sealed.id, seal=os.urandom(32), open_=os.urandom(32))
    made._sealed = 100
    return made.seal(message)


def again(frame: bytes) -> tuple[bytes, bytes]:
    return frame, frame


def counted(frame: bytes, count: int) -> bytes:
    """With another count."""
    return frame[:9] + count.to_bytes(8, "big") + frame[17:]


async def turned_round(scene: Scene) -> bytes:
    return counted(await scene.rogue.tap.next(SEALED), 1000)


NO_SESSION, BROKEN, BEFORE, UNREADABLE = (
    "it is of no session", "its seal is broken", "it was sent before", "it cannot be read",
)  # fmt: skip
ELSEWHERE = "it is for another worker, or an earlier process of this one"
NOT_SIGNED, NO_KEY = "it is not signed by the key that it names", "it holds no key for the session"
OTHER_PROTOCOL = "its protocol is another"
OF_NOBODY = {NO_SESSION, NOT_SIGNED, "its server is not trusted", "it names no key"}
"""Reasons that hold before it is known in whose name a frame came."""

FRAMES: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "sealed by a stranger": (lambda s: stranger(s, s.packed()), BROKEN),
    "of a session that nobody opened": (
        lambda _: SealedSession(b"12345678", seal=bytes(32), open_=bytes(32)).seal(b""), NO_SESSION,
    ),
    "moved to another session": (
        lambda s: SEALED + s.sealed.id + SealedSession(b"12345678", seal=bytes(32), open_=bytes(32)).seal(b"")[9:],
        BEFORE,
    ),
    "a job replayed": (lambda s: again(s.rogue.seal(Renew(0))), BEFORE),
    "a bit of the body flipped": (lambda s: flipped(s.rogue.seal(s.job()), -1), BROKEN),
    "with its count set back": (lambda s: counted(s.rogue.seal(s.job()), 1), BEFORE),
    "with its count set on": (lambda s: counted(s.rogue.seal(s.job()), 1 << 40), BROKEN),
    "a bit of the count flipped": (lambda s: flipped(s.rogue.seal(s.job()), 10), BROKEN),
    "cut short": (lambda s: s.rogue.seal(s.job())[:40], BROKEN),
    "cut inside the header": (lambda s: s.rogue.seal(s.job())[:12], "it is of another session"),
    "cut inside the session": (lambda s: s.rogue.seal(s.job())[:5], NO_SESSION),
    "nothing": (lambda _: b"", NO_SESSION),
    "of an unknown kind": (lambda s: b"\x09" + s.rogue.seal(s.job())[1:], NO_SESSION),
    "a welcome": (lambda s: WELCOME + s.rogue.seal(s.job())[1:], NO_SESSION),
    "what the worker sealed, turned round": (turned_round, BROKEN),
    "large garbage": (lambda _: SEALED + os.urandom(1_000_000), NO_SESSION),
    "sealed garbage": (lambda s: s.rogue.seal(os.urandom(100)), UNREADABLE),
    "a sealed bomb": (lambda s: s.rogue.seal(BOMB), UNREADABLE),
    "a sealed job with a bomb behind it": (lambda s: s.rogue.seal(b"\xdc\x00\x20" + s.packed()[3:] + BOMB), UNREADABLE),
    "a sealed job with an argument of another type": (
        lambda s: s.rogue.seal(msgspec.msgpack.encode(["job", "forged.0", 1])), UNREADABLE,
    ),
    "a sealed message of an unknown kind": (lambda s: s.rogue.seal(msgspec.msgpack.encode(["own", "x"])), UNREADABLE),
    "a sealed list as large as NATS takes": (lambda s: s.rogue.seal(b"\xdd\x00\x0e\x00\x00" + bytes(900_000)), UNREADABLE),
    "a sealed endless list": (lambda s: s.rogue.seal(ENDLESS), UNREADABLE),
    "a sealed answer": (lambda s: s.rogue.seal(Answer("forged.0", "", ())), UNREADABLE),
    "a sealed job without arguments": (lambda s: s.rogue.seal(msgspec.msgpack.encode(["job", "forged.0"])), UNREADABLE),
    "a hello replayed": (lambda s: again(s.hello()), BEFORE),
    "an older hello": (lambda s: (s.hello(), s.hello(number=999)), BEFORE),
    "a hello to another worker": (lambda s: s.hello(worker=new_key().public.raw), ELSEWHERE),
    "a hello to an earlier process": (lambda s: s.hello(boot=os.urandom(16)), ELSEWHERE),
    "a hello of a stranger": (lambda s: _hello_of(s, new_key()), "its server is not trusted"),
    "a hello of an older protocol": (lambda s: s.hello(protocol=PROTOCOL - 1), OTHER_PROTOCOL),
    "a hello of a later protocol": (lambda s: s.hello(protocol=PROTOCOL + 1), OTHER_PROTOCOL),
    "a hello with other messages": (lambda s: s.hello(shape="0" * 16), OTHER_PROTOCOL),
    "a hello in the name of another": (lambda s: s.hello(new_key()), NOT_SIGNED),
    "a hello with a bit flipped": (lambda s: flipped(s.hello(), 70 + 60), NOT_SIGNED),
    "a hello with no signature": (lambda s: HELLO + bytes(64) + s.hello()[65:], NOT_SIGNED),
    "a hello cut short": (lambda s: s.hello()[:100], UNREADABLE),
    "a hello of one byte": (lambda _: HELLO, UNREADABLE),
    "a hello that is a bomb": (lambda _: HELLO + bytes(64) + b"\x9b" + BOMB, UNREADABLE),
    "a hello with a bomb behind it": (lambda s: _swollen(s.hello()), UNREADABLE),
    "a hello of no key": (lambda s: s.hello(server=b"short"), "it names no key"),
    "a hello with a short session key": (lambda s: s.hello(key=b"short"), NO_KEY),
    **{f"a hello with low-order point {n}": (partial(Scene.hello, key=bytes.fromhex(point)), NO_KEY)
       for n, point in enumerate(LOW_ORDER)},
    "a hello that would answer elsewhere": (lambda s: s.hello(reply=">"), "it names no connection"),
    "a hello that would speak to NATS": (lambda s: s.hello(reply="a 0\r\n\r\nPUB x 1\r\n"), "it names no connection"),
    "a hello for a lease of a year": (lambda s: s.hello(lease_ms=365 * 86_400_000), "its lease is too long, or none"),
    "a hello for no lease": (lambda s: s.hello(lease_ms=-1), "its lease is too long, or none"),
}  # fmt: skip


def _hello_of(scene: Scene, key: PrivateKey) -> bytes:
    return scene.hello(key, server=key.public.raw)


def _swollen(frame: bytes) -> bytes:
    """One field more than a hello has, which readers skip."""
    assert frame[65] == 0x9A
    return frame[:65] + b"\x9b" + frame[66:] + BOMB


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_is_not_what_it_claims_runs_nothing_and_is_recorded(
    nats: NatsServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    make, reason = FRAMES[name]
    is_of_nobody = reason in OF_NOBODY or (reason == UNREADABLE and name.startswith("a hello"))

    async def attack(scene: Scene) -> None:
        rogue, frames = scene.rogue, make(scene)
        if inspect.isawaitable(frames):
            frames = await frames
        await rogue.send(*([frames] if isinstance(frames, bytes) else frames))
        # The worker hears in order: it knows nothing of the job, and goes on with who is honest.
        await rogue.say(Query("forged.0"))
        said = await rogue.hear(NotRun, messages.Running)
        assert isinstance(said, NotRun)
        assert said.why == messages.NEVER_SEEN
        await recorded(scene.server, ("frame", reason, "" if is_of_nobody else scene.name))

    asyncio.run(scene(nats, attack))
    assert [one.reason for one in caplog.records if one.message == "a frame was refused"] == [reason]  # type: ignore[attr-defined]


JOBS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown tool": ({"tool": "rm"}, "shout", messages.UNKNOWN_TOOL),
    "another definition": ({"definition_hash": "0" * 64}, "shout", messages.UNKNOWN_TOOL),
    "other code": ({"code_hash": "0" * 64}, "shout", messages.OTHER_CODE),
    "a weaker level": ({"level": "standard"}, "shout", messages.NO_LEVEL),
    "no level": ({"level": "none"}, "shout", messages.NO_LEVEL),
    "a level that the machine lacks": ({}, "add", messages.NO_LEVEL),
    "a tool that the server may not use": ({}, "wait", messages.NOT_GRANTED),
    "a tool by another spelling": ({"tool": "WAIT"}, "wait", messages.NOT_GRANTED),
    "an agent that the server may not name": ({"agent": "root"}, "shout", messages.NOT_GRANTED),
}


MAY: dict[str, Any] = {"tools": ("shout", "add", "rm"), "agents": ("local",)}


@pytest.mark.parametrize("name", JOBS)
def test_a_server_that_asks_for_more_than_it_may_is_refused(nats: NatsServer, name: str) -> None:
    changed, tool, why = JOBS[name]

    async def attack(scene: Scene) -> None:
        said = await scene.rogue.ask(scene.rogue.job(scene.keep, tool, **changed))
        assert isinstance(said, NotRun)
        assert said.why == why
        await recorded(scene.server, ("job", why, scene.name))

    asyncio.run(scene(nats, attack, **MAY))


def test_a_job_of_before_does_not_run_again(nats: NatsServer) -> None:
    async def attack(scene: Scene) -> None:
        rogue = scene.rogue
        job = rogue.job(scene.keep)
        assert (await rogue.ask(job)).body == b'"HI"'
        await rogue.say(job)  # the id of a job of before, and one that was refused for good
        await rogue.say(Query("later.0"))
        await rogue.say(rogue.job(scene.keep, id="later.0"))
        assert (await rogue.ask(rogue.job(scene.keep))).body == b'"HI"'
        await recorded(scene.server, *[("frame", "it names a job of before", scene.name)] * 2)

    asyncio.run(scene(nats, attack))


def test_a_server_reaches_no_more_of_the_workers_disk_than_the_worker_lets_it(
    nats: NatsServer, tmp_path: Path
) -> None:
    """The server grants everything; the worker lets it grant one folder."""
    shown, hidden = tmp_path / "shown", tmp_path / "hidden"
    for folder in (shown, hidden):
        folder.mkdir()
        (folder / "file").write_text("content")
    (shown / "link").symlink_to(hidden / "file")
    whole = {"capabilities": (f"fs.read:{tmp_path}", f"fs.write:{tmp_path}")}

    def path(text: object) -> dict[str, bytes]:
        return {"arguments": msgspec.json.encode({"path": str(text)})}

    refused: list[tuple[str, str, str]] = []

    async def attack(scene: Scene) -> None:
        async def ended(tool: str, **changed: Any) -> Answer:
            said = await scene.rogue.ask(scene.rogue.job(scene.keep, tool, **{**whole, **changed}))
            assert isinstance(said, Answer)
            if said.failure is not None and said.failure.code not in FAILURES:  # the tool did not run
                why = TITLES[Code(said.failure.code)] if said.failure.code else "it cannot be run"
                refused.append(("job", why, scene.name))
            return said

        assert (await ended("look", **path(shown / "file"))).body == b'"content"'
        for outside in (
            hidden / "file",
            shown / "link",
            f"{shown}/../hidden/file",
            "/etc/hostname",
            Path.home(),
        ):
            assert (await ended("look", **path(outside))).failure is not None
        followed = (await ended("look", **path(shown / "link"))).failure
        assert followed is not None
        assert str(hidden) not in followed.reason  # where a link leads is not the model's to know
        written = {"arguments": msgspec.json.encode({"path": f"{shown}/new", "text": "x"})}
        assert (await ended("note", **written)).failure is not None
        assert not (shown / "new").exists()
        # A tool that takes all that the agent may read gets no more than the worker lets the server grant.
        mirrored = {name: {"arguments": msgspec.json.encode({"mirrored": str(place)[::-1]})}
                    for name, place in (("in", shown / "file"), ("out", hidden / "file"))}  # fmt: skip
        same = {"capabilities": (f"fs.read:{shown}",)}
        assert (await ended("look_anywhere", **mirrored["in"], **same)).body == b'"content"'
        assert (await ended("look_anywhere", **mirrored["out"], **same)).failure is not None
        assert (await ended("look_anywhere", **mirrored["out"])).failure is not None
        # The other way round: the worker lets it, and the server grants less.
        narrow = {"capabilities": (f"fs.read:{shown}/none",)}
        assert (await ended("look", **path(shown / "file"), **narrow)).failure is not None
        assert (await ended("look_anywhere", **mirrored["in"], **narrow)).failure is not None
        # The addresses behind a name are the worker's to allow.
        url = {"arguments": b'{"url":"http://api.corp/"}'}
        for held, is_allowed in (("api.corp", True), ("api.corp=10.0.0.0/8", False), ("api.corp:81", False)):
            said = await ended("reach", **url, capabilities=(f"net.read:{held}",))
            assert (said.failure is None) is is_allowed
        for odd in ({"capabilities": ("fs.read:",)}, {"capabilities": ("nonsense:x",)}, {"arguments": b"\xff"},
                    {"arguments": b"{"}, {"arguments": b'{"path":1}'}, {"arguments": b'{"path":"a","b":1}'}):  # fmt: skip
            assert (await ended("look", **{**path(shown / "file"), **odd})).failure is not None
        await recorded(scene.server, *refused)

    may = Capability("fs.read", str(shown)), Capability("net.read", "api.corp")
    asyncio.run(scene(nats, attack, capabilities=may))


def test_code_of_a_server_that_may_send_none_is_refused_and_so_is_the_frame_again(nats: NatsServer) -> None:
    async def attack(scene: Scene) -> None:
        claim = Claim("planted", "0" * 64, "0" * 64)
        frame = scene.rogue.seal(Install(claim, b"{}", StoredBody("x", bytes(32), 1, bytes(32))))
        await scene.rogue.send(*again(frame))
        assert await scene.rogue.hear(InstallResult) == InstallResult(claim, "it may install no code")
        await recorded(
            scene.server, ("code", "it may install no code", scene.name), ("frame", BEFORE, scene.name)
        )
        assert scene.keep.try_get("planted") is None

    asyncio.run(scene(nats, attack))


def test_frames_and_jobs_that_cannot_be_handled_are_recorded_and_end_nothing(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Jobs, "install", broken)
    objection = Jobs._objection

    async def attack(scene: Scene) -> None:
        await scene.rogue.say(Install(Claim("x", "", ""), b"{}", StoredBody("x", b"", 1, b"")))
        monkeypatch.setattr(Jobs, "_objection", broken)
        said = await scene.rogue.ask(scene.rogue.job(scene.keep))
        assert isinstance(said, NotRun)
        assert said.why == UNHANDLED
        monkeypatch.setattr(Jobs, "_objection", objection)
        assert (await scene.rogue.ask(scene.rogue.job(scene.keep))).body == b'"HI"'
        await recorded(scene.server, ("frame", UNHANDLED, scene.name), ("job", UNHANDLED, scene.name))

    asyncio.run(scene(nats, attack))


def test_a_job_of_one_server_runs_in_no_session_of_another_and_on_no_other_worker(nats: NatsServer) -> None:
    async def attack(scene: Scene) -> None:
        rogue, server, other_key = scene.rogue, scene.server, new_key()
        async with tapped(nats, subjects.to_worker(rogue.worker)) as spy:
            assert (await server.call("act", {"seconds": 0})).value == "acted"
            frames = []
            while not spy.frames.empty():
                frames.append(spy.frames.get_nowait().data)
            job = max(frames, key=len)
        second = Server(nats, new_key(), [trusted(other_key)])
        async with second, running(made_worker(nats, other_key, [second.key])):
            dispatcher = await second.dispatcher()
            await until(lambda: dispatcher.workers["one"][1])
            await rogue.send(job, counted(SEALED + scene.sealed.id + job[9:], 1000))
            await rogue.tap.send(subjects.to_worker(other_key.public), job)
            await recorded(second, ("frame", NO_SESSION, ""))
        await recorded(server, ("frame", BEFORE, server.key.public.token), ("frame", BROKEN, scene.name))
        assert len(server.said("RanElsewhere")) == 1

    asyncio.run(scene(nats, attack))


def test_a_server_that_opens_many_sessions_shuts_out_no_other(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_SESSIONS", 6)
    monkeypatch.setattr(worker_module, "_CONNECTIONS", 5)

    async def attack(scene: Scene) -> None:
        rogue = scene.rogue
        for _ in range(2):
            await RogueServer(rogue.tap, rogue.key, rogue.worker).open()
        await rogue.send(scene.hello(reply="0" * 16), scene.hello(reply="1" * 16))
        await recorded(scene.server, *[("frame", "there are too many sessions", scene.name)] * 2)
        await rogue.send(*(scene.hello(reply=str(number) * 16) for number in range(2, 8)))
        await recorded(scene.server, *[("frame", "there are too many sessions", scene.name)] * 8)
        assert len(scene.worker._latest) == 5
        # Another connection of the honest server.
        again = RogueServer(rogue.tap, scene.server.key, rogue.worker)
        await again.open()
        assert (await again.ask(again.job(scene.keep))).body == b'"HI"'

    asyncio.run(scene(nats, attack))


def test_a_server_that_is_started_anew_records_only_what_its_log_does_not_have(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_counts, "_TELL_SECONDS", 60.0)  # what is counted is written at the end

    async def fails(*_: bytes, **__: bool) -> Leaf:
        raise NotRecorded("the disk is full")

    async def main() -> None:
        key, worker_key, kind = new_key(), new_key(), ("frame", NO_SESSION, "")
        worker, token = made_worker(nats, worker_key, [key]), key.public.token
        async with running(worker), tapped(nats) as tap:
            async with Server(nats, key, [trusted(worker_key)]) as first:
                await tap.send(subjects.to_worker(worker_key.public), b"")
                await until(lambda: [one.recorded for one in worker._refusals.counts(token)] == [1])
                await tap.send(subjects.to_worker(worker_key.public), b"", b"")
                dispatcher = await first.dispatcher()
                await until(lambda: _reported(dispatcher) == [3])
                assert refused_elsewhere(first) == {kind: 1}
            assert refused_elsewhere(first) == {kind: 3}
            async with Server(nats, key, [trusted(worker_key)]) as broken:
                monkeypatch.setattr(broken.record.log, "append_soon", fails)
                dispatcher = await broken.dispatcher()
                await tap.send(subjects.to_worker(worker_key.public), b"")
                await until(lambda: _reported(dispatcher) == [4])
            async with Server(nats, key, [trusted(worker_key)]) as second:
                await recorded(second, kind)

    asyncio.run(main())


def _reported(dispatcher: Dispatcher) -> list[int]:
    _, session, _ = dispatcher.workers["one"]
    return [one.count for one in session._reported] if session is not None else []


def test_a_flood_of_kinds_fills_neither_a_heartbeat_nor_a_log() -> None:
    refusals = Refusals()
    for number in range(1000):
        refusals.add("frame", f"kind {number}")
    counts = refusals.counts("")
    assert len(counts) == REFUSAL_KINDS
    assert (counts[-1].reason, sum(one.count for one in counts)) == ("of many other kinds", 1000)
    for _ in range(4):
        refusals.add("frame", "kind 1")
    for said in (RefusalCount("frame", "kind 1", "", count) for count in (5, 1)):
        refusals.note_recorded("", (said, RefusalCount("frame", "own", "", 1)))
    assert (refusals.counts("")[1].recorded, len(refusals._recorded)) == (5, 1)
    heartbeat = Heartbeat(1, 0, refused=counts)
    assert messages.decode_to_server(messages.encode(heartbeat)) == heartbeat
