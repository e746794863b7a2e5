"""What a server refuses: forged and replayed answers, workers that claim what they may not, and worse."""

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import (
    NAMES,
    RogueWorker,
    Server,
    made_worker,
    new_key,
    recorded,
    running,
    tapped,
    trusted,
    until,
)
from tests.hostile.fleet.test_rogue_servers import BOMB, ENDLESS, LOW_ORDER, flipped
from toolkeep import Code
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.definitions.capability import Capability
from toolkeep.events import RefusedElsewhere
from toolkeep.fleet import dispatcher, messages, subjects
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.messages import (
    REFUSAL_KINDS,
    Claim,
    Heartbeat,
    InstallResult,
    Job,
    NotRun,
    OutputChunk,
    RefusalCount,
    Signed,
)
from toolkeep.fleet.sealed_session import (
    HELLO,
    SEALED,
    UNHANDLED,
    WELCOME,
    SealedSession,
    Welcome,
    _signed,
    announce,
    decline,
    read_announce,
    session_of,
)
from toolkeep.fleet.transcript import Transcript
from toolkeep.limits import MODEL_TEXT_CHARS
from toolkeep.policy.policy_settings import Grant

pytestmark = pytest.mark.spec("SCL-4")


class Scene:
    """A server that trusts two workers, and an attacker with the key of the first."""

    def __init__(self, server: Server, rogue: RogueWorker, other: PrivateKey) -> None:
        self.server = server
        self.rogue = rogue
        self.other = other

    def call(self, text: str = "hi", **options: Any) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.server.call("shout", {"text": text}, **options))

    async def ended(self, call: "asyncio.Task[Any]", code: Code) -> None:
        """A call ends so, and the log says it, with who answered if somebody did."""
        result = await call
        assert result.code is code
        (completed,) = [one for one in self.server.said("ToolCompleted") if one["call"] == result.call_id]
        assert completed["codes"] == [code]
        ran = [one["worker"] for one in self.server.said("RanElsewhere") if one["call"] == result.call_id]
        assert ran == (["one"] if code is Code.OUTPUT_INVALID else [])


async def scene(nats: NatsServer, attack: Callable[[Scene], Awaitable[None]], **may: Any) -> list[str]:
    """Run an attack; returns what the log says was refused."""
    key, rogue, other = new_key(), new_key(), new_key()
    server = Server(nats, key, [trusted(rogue, **may), trusted(other, "two")])
    async with server, tapped(nats) as tap:
        await attack(Scene(server, RogueWorker(tap, rogue, server.keep, key.public), other))
    return [told["reason"] for told in server.said("WorkerRefused") for _ in range(told["count"])]


NOT_SIGNED, OTHER_HELLO = "it is not signed by the key that it names", "it answers another hello"
UNREADABLE, NO_KEY = "it cannot be read", "it holds no key for the session"


def welcomed(rogue: RogueWorker, signer: PrivateKey | None = None, **changed: Any) -> bytes:
    """A welcome with any field other than it should be."""
    facts: dict[str, Any] = {
        "session": os.urandom(8), "hello": hashlib.sha256(rogue.hello).digest(), "key": os.urandom(32),
    }  # fmt: skip
    return _signed(WELCOME, Welcome(**{**facts, **changed}), signer or rogue.key)


WELCOMES: dict[str, tuple[Callable[[RogueWorker], bytes | tuple[bytes, bytes]], str]] = {
    "signed by another": (lambda w: welcomed(w, new_key()), NOT_SIGNED),
    "with a bit flipped": (lambda w: flipped(w.welcome(), -1), NOT_SIGNED),
    "of another hello": (lambda w: welcomed(w, hello=os.urandom(32)), OTHER_HELLO),
    "with a short session": (lambda w: welcomed(w, session=b"short"), OTHER_HELLO),
    "with a short key": (lambda w: welcomed(w, key=b"short"), NO_KEY),
    "with a low-order point": (lambda w: welcomed(w, key=bytes.fromhex(LOW_ORDER[2])), NO_KEY),
    "cut short": (lambda w: w.welcome()[:80], NOT_SIGNED),
    "of one byte": (lambda _: WELCOME, NOT_SIGNED),
    "that is a bomb": (lambda w: _signed_bytes(w.key, b"\x94" + BOMB), UNREADABLE),
    "that is endless": (lambda w: _signed_bytes(w.key, b"\x94" + ENDLESS), UNREADABLE),
    "with a label that its key may not": (
        lambda w: w.opening(labels=("gpu",)), "it claims the label 'gpu', which its key may not",
    ),
    "with a level that its key may not": (
        lambda w: w.opening(levels=("strict", "none")), "it claims the level 'none', which its key may not",
    ),
    "with a tool that its key may not": (
        lambda w: w.opening(tools=(*w.claims.tools, Claim("rm", "", ""))),
        "it claims the tool 'rm', which its key may not",
    ),
    "with no slot": (lambda w: w.opening(slots=0), UNREADABLE),
    "with fewer slots than none": (lambda w: w.opening(slots=-4), UNREADABLE),
    "and a heartbeat before any claim": (
        lambda w: (w.welcome(), w.seal(Heartbeat(1, 0))), "it does not say what the worker claims",
    ),
    "and claims that are a bomb": (lambda w: (w.welcome(), w.seal(BOMB)), UNREADABLE),
    "and claims with a bit flipped": (
        lambda w: (w.welcome(), flipped(w.seal(w.claims), -1)), "its seal is broken",
    ),
    "as a refusal of another hello": (lambda w: decline(w.key, b"other", "no"), OTHER_HELLO),
    "as a refusal of another worker": (lambda w: decline(new_key(), w.hello, "no"), NOT_SIGNED),
    "of an unknown kind": (lambda w: b"\x09" + w.welcome()[1:], "it is of no known kind"),
    "as a frame of no session": (
        lambda _: SealedSession(b"12345678", seal=bytes(32), open_=bytes(32)).seal(b""), "it is of no session",
    ),
}  # fmt: skip


def _signed_bytes(key: PrivateKey, packed: bytes) -> bytes:
    return WELCOME + key.sign(b"toolkeep fleet 1 " + WELCOME + packed) + packed


@pytest.mark.parametrize("name", WELCOMES)
def test_a_forged_welcome_opens_no_session(nats: NatsServer, name: str) -> None:
    make, reason = WELCOMES[name]

    async def attack(scene: Scene) -> None:
        rogue = scene.rogue
        await rogue.announce()
        frames = make(rogue)
        await rogue.send(*([frames] if isinstance(frames, bytes) else frames))
        await until(lambda: scene.server.said("WorkerRefused"))
        _, session, _ = (await scene.server.dispatcher()).workers["one"]
        assert session is None

    assert asyncio.run(scene(nats, attack, tools=NAMES)) == [reason]


async def _forged(scene: Scene, job: Job) -> None:
    rogue = scene.rogue
    assert rogue.sealed is not None
    stranger = SealedSession(rogue.sealed.id, seal=os.urandom(32), open_=os.urandom(32))
    stranger._sealed = 100
    await rogue.send(stranger.seal(messages.encode(rogue.answer(job, b'"forged"'))))


async def _flipped(scene: Scene, job: Job) -> None:
    await scene.rogue.send(flipped(scene.rogue.seal(scene.rogue.answer(job, b'"forged"')), -1))


async def _of_another(scene: Scene, job: Job) -> None:
    """On the subject of a worker that is trusted, too, and of one that is not."""
    frame = scene.rogue.seal(scene.rogue.answer(job, b'"forged"'))
    for key in (scene.other, new_key()):
        token = scene.rogue.subject.rpartition(".")[0]
        await scene.rogue.tap.send(f"{token}.{key.public.token}", frame)


async def _turned_round(scene: Scene, job: Job) -> None:
    """What the server sealed comes back to it."""
    await scene.rogue.heartbeat()
    frame = await scene.rogue.tap.next(b"\x05")
    await scene.rogue.send(frame[:9] + (1000).to_bytes(8, "big") + frame[17:])


async def _replayed_beat(scene: Scene, job: Job) -> None:
    frame = scene.rogue.seal(Heartbeat(2, 0))
    await scene.rogue.send(frame, frame)


async def _garbage(scene: Scene, job: Job) -> None:
    await scene.rogue.say(BOMB, ENDLESS, os.urandom(64), messages.encode(job))


async def _for_no_job(scene: Scene, job: Job) -> None:
    await scene.rogue.say(scene.rogue.answer(job, id="other.0"), scene.rogue.answer(job, id=""))


async def _signs_other(scene: Scene, job: Job) -> None:
    await scene.rogue.say(Signed((job.id,), bytes(64)), Signed(("other.0",), bytes(64)))


async def _welcome_again(scene: Scene, job: Job) -> None:
    held = scene.rogue.sealed
    await scene.rogue.send(scene.rogue.welcome())
    scene.rogue.sealed = held


async def _claims_again(scene: Scene, job: Job) -> None:
    await scene.rogue.say(scene.rogue.claims)


async def _by_another(scene: Scene, job: Job) -> None:
    """In a session of its own, a worker answers what another one was asked."""
    other = RogueWorker(scene.rogue.tap, scene.other, scene.server.keep, scene.server.key.public)
    await other.open()
    await other.say(other.answer(job, b'"forged"'), messages.Progress(job.id, 1.0, None, "forged"))


async def _reports(scene: Scene, job: Job, *refused: Any) -> None:
    await scene.rogue.heartbeat(refused=refused)


async def _many_kinds(scene: Scene, job: Job) -> None:
    for start in (0, REFUSAL_KINDS):
        kinds = (RefusalCount("frame", f"kind {start + one}", "", 1) for one in range(REFUSAL_KINDS))
        await _reports(scene, job, *kinds)


def _reporting(*refused: RefusalCount) -> Callable[[Scene, Job], Awaitable[None]]:
    return lambda scene, job: _reports(scene, job, *refused)


async def _long_answer(scene: Scene, job: Job) -> None:
    """What it enforced would fill the log."""
    await scene.rogue.say(
        scene.rogue.answer(job, enforced=("x" * 800_000,)), scene.rogue.answer(job, enforced=("x",) * 100_000),
        scene.rogue.answer(job, isolation="x" * 1000),
    )  # fmt: skip


async def _empty(scene: Scene, job: Job) -> None:
    await scene.rogue.send(b"", b"\x05", b"\x77" * 900_000)


ANSWERS: dict[str, tuple[Callable[[Scene, Job], Awaitable[None]], list[str]]] = {
    "forged by a stranger": (_forged, ["its seal is broken"]),
    "with a bit flipped": (_flipped, ["its seal is broken"]),
    "on the subject of another": (_of_another, ["it is of no session", "it is of no trusted worker"]),
    "turned round": (_turned_round, ["its seal is broken"]),
    "replayed": (_replayed_beat, ["it was sent before"]),
    "garbage under the seal": (_garbage, [UNREADABLE] * 4),
    "claims anew": (_claims_again, ["it claims something anew"]),
    "to no job": (_for_no_job, ["it answers no job that it has"] * 2),
    "signed before it was given": (_signs_other, ["it signs other answers than it gave"] * 2),
    "a welcome to no hello": (_welcome_again, ["nobody said hello"]),
    "by another worker": (_by_another, ["it answers no job that it has"]),
    "that would fill the log": (_long_answer, [UNREADABLE] * 3),
    "that it installed what nobody sent": (
        lambda scene, _: scene.rogue.say(InstallResult(scene.rogue.claims.tools[0])),
        ["it installs code that nobody sent"],
    ),
    "with a report of more kinds than there are": (
        _many_kinds,
        ["it reports more kinds of refusals than there are"],
    ),
    "with a report that is too long": (
        _reporting(*[RefusalCount("frame", "x", "", 1)] * (REFUSAL_KINDS + 1)),
        [UNREADABLE],
    ),
    "with a report of a long reason": (_reporting(RefusalCount("frame", "x" * 81, "", 1)), [UNREADABLE]),
    "with a report for a terminal": (_reporting(RefusalCount("frame", "\x1b[2J", "", 1)), [UNREADABLE]),
    "with a report of a line": (_reporting(RefusalCount("frame", "x\n", "", 1)), [UNREADABLE]),
    "with a report of no kind": (_reporting(RefusalCount("own", "x", "", 1)), [UNREADABLE]),  # type: ignore[arg-type]
    "with a report of no server": (_reporting(RefusalCount("job", "x", "main", 1)), [UNREADABLE]),
    "with a report below nothing": (_reporting(RefusalCount("job", "x", "", -1)), [UNREADABLE]),
    "with a report of endless many": (_reporting(RefusalCount("job", "x", "", 1 << 60)), [UNREADABLE]),
    "nothing and noise": (_empty, ["nobody said hello", "it is of no session", "nobody said hello"]),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_forged_answer_counts_for_nothing(nats: NatsServer, name: str) -> None:
    forge, reasons = ANSWERS[name]

    async def attack(scene: Scene) -> None:
        await scene.rogue.open()
        call = scene.call()
        job = await scene.rogue.hear(Job)
        await forge(scene, job)
        await scene.rogue.say(scene.rogue.answer(job))
        assert (await call).value == "HI"

    assert sorted(asyncio.run(scene(nats, attack))) == sorted(reasons)


def test_a_worker_that_answers_twice_or_otherwise_than_it_was_asked(nats: NatsServer) -> None:
    async def attack(scene: Scene) -> None:
        rogue = scene.rogue
        await rogue.open()
        # The first answer counts, and only what it really gave can be signed.
        call = scene.call()
        job = await rogue.hear(Job)
        first = rogue.answer(job)
        await rogue.say(first, rogue.answer(job, b'"other"'))
        assert (await call).value == "HI"
        assert rogue.sealed is not None
        lies = Transcript(rogue.sealed.id)
        lies.add(job.id, b"", messages.encode(first))
        await rogue.say(lies.sign(rogue.key))
        # Less confined than asked, and not said how.
        for isolation in ("none", ""):
            call = scene.call()
            job = await rogue.hear(Job)
            await rogue.say(rogue.answer(job, isolation=isolation))
            await scene.ended(call, Code.OUTPUT_INVALID)
        # Not data.
        for body in (b"{", BOMB, b"\xff"):  # another tool: failures open the circuit of the first
            call = asyncio.create_task(scene.server.call("wait", {"seconds": 0}))
            job = await rogue.hear(Job)
            await rogue.say(rogue.answer(job, body))
            await scene.ended(call, Code.OUTPUT_INVALID)
        # Chunks that are not JSON do not reach who listens.
        chunks: list[Any] = []
        counting = asyncio.create_task(scene.server.call("count", {"to": 1}, on_output=chunks.append))
        job = await rogue.hear(Job)
        await rogue.say(
            OutputChunk(job.id, b"{"), OutputChunk(job.id, b"[" * 10_000), OutputChunk(job.id, b'"0\\n"')
        )
        await rogue.say(rogue.answer(job, b'"0\\n"'))
        await counting
        assert chunks == ["0\n"]
        # It ends a job that nobody cancelled: with its lease, so what the job did is not known.
        ended = messages.Failure("", "", is_cancelled=True)
        acting = asyncio.create_task(scene.server.call("act", {"seconds": 0}))
        await rogue.say(rogue.answer(await rogue.hear(Job), failure=ended))
        await scene.ended(acting, Code.OUTCOME_UNKNOWN)
        call = asyncio.create_task(scene.server.call("wait", {"seconds": 0}))
        await rogue.say(rogue.answer(await rogue.hear(Job), failure=ended))
        await rogue.say(rogue.answer(await rogue.hear(Job), b'"waited"'))
        assert (await call).value == "waited"
        # It takes nothing: the call goes elsewhere, or is refused in words, and never hangs.
        call = scene.call()
        for _ in range(5):
            job = await rogue.hear(Job)
            await rogue.say(NotRun(job.id, messages.NO_LEASE))
        await scene.ended(call, Code.WORKER_UNAVAILABLE)

    told = asyncio.run(scene(nats, attack))
    assert sorted(told) == [
        "it answers no job that it has",
        "it holds no chunk of output",
        "it holds no chunk of output",
        "it signs other answers than it gave",
    ]


@pytest.mark.parametrize("code", [Code.TIMED_OUT, Code.NOT_PERMITTED, "of no kind"])
def test_a_failure_of_a_worker_fills_no_result_and_no_store(nats: NatsServer, code: str) -> None:
    async def attack(scene: Scene) -> None:
        await scene.rogue.open()
        call = scene.call()
        job, long = await scene.rogue.hear(Job), "\x1b[2J" + "x" * 100_000
        words: dict[str, Any] = dict.fromkeys(
            ("reason", "suggestion", "subject", "limit", "remedy", "detail", "path"), long
        )
        await scene.rogue.say(scene.rogue.answer(job, failure=messages.Failure(code, denied="file", **words)))
        result = await call
        assert len(result.text) <= MODEL_TEXT_CHARS
        (completed,) = scene.server.said("ToolCompleted")
        stored = scene.server.record.bodies.get(completed["diagnosis_hash"])
        for told in (json.dumps(result.to_dict(), ensure_ascii=False), stored.decode()):
            assert "\x1b" not in told
            assert len(told) < 30_000

    assert asyncio.run(scene(nats, attack)) == []


def test_an_announcement_of_another_opens_and_ends_nothing(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.fleet.dispatcher._STRANGERS", 1)

    async def attack(scene: Scene) -> None:
        rogue, dispatcher = scene.rogue, await scene.server.dispatcher()
        own = subjects.announcement(rogue.key.public)
        async with tapped(nats, subjects.to_worker(scene.other.public)) as victim:
            stranger, forged = announce(new_key(), b"x"), announce(scene.other, b"x")
            odd = (b"", b"\x01", b"\x01" * 65 + BOMB, b"\x01" + bytes(1000), *[stranger] * 3)
            await rogue.tap.send(own, *odd, b"\x01" + bytes(64) + forged[65:], flipped(forged, -1))
            await rogue.tap.send(own, announce(new_key(), b"x"))
            await rogue.open()
            await until(lambda: dispatcher.workers["one"][1])
            session = dispatcher.workers["one"][1]
            assert victim.frames.empty()
            assert len(dispatcher._strangers) == 1
        # One that says nothing new is checked, too.
        await rogue.tap.send(own, b"\x01" + bytes(64) + announce(rogue.key, rogue.boot)[65:])
        # What it said in earlier lives, said again, does not end its session.
        monkeypatch.setattr("toolkeep.fleet.dispatcher._OPEN_SECONDS", 0.0)
        for _ in range(20):
            await rogue.tap.send(own, announce(rogue.key, os.urandom(8)))
            await rogue.tap.send(own, announce(rogue.key, rogue.boot))
            await rogue.tap.next(HELLO)
        call = scene.call()
        job = await rogue.hear(Job)
        await rogue.say(rogue.answer(job))
        assert (await call).value == "HI"
        assert dispatcher.workers["one"][1] is session

    told = asyncio.run(scene(nats, attack))
    assert sorted(told) == [UNREADABLE] * 4 + [NOT_SIGNED] * 3 + ["its worker is not trusted"] * 2


def test_a_frame_that_cannot_be_handled_is_recorded_and_ends_nothing(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    frame = SEALED + b"!" * 100

    def broken(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def reads(given: bytes) -> Any:
            if given == frame:
                raise RuntimeError
            return read(given)

        return reads

    monkeypatch.setattr(dispatcher, "session_of", broken(session_of))
    monkeypatch.setattr(dispatcher, "read_announce", broken(read_announce))

    async def attack(scene: Scene) -> None:
        await scene.rogue.tap.send(subjects.announcement(scene.rogue.key.public), frame)
        await scene.rogue.open()
        await scene.rogue.send(*[frame] * 20)
        call = scene.call()
        await scene.rogue.say(scene.rogue.answer(await scene.rogue.hear(Job)))
        assert (await call).value == "HI"
        assert {one["worker"] for one in scene.server.said("WorkerRefused")} == {"", "one"}

    assert asyncio.run(scene(nats, attack)) == [UNHANDLED] * 21
    assert 1 <= caplog.messages.count("a frame could not be handled") < 21


def test_an_agent_that_the_key_of_a_worker_may_not_serve_is_not_sent_to_it(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "_APPEAR_SECONDS", 0.2)

    async def attack(scene: Scene) -> None:
        await scene.rogue.open()
        await scene.ended(scene.call(), Code.WORKER_UNAVAILABLE)

    assert asyncio.run(scene(nats, attack, agents=("ada",))) == []


@pytest.mark.parametrize(
    ("why", "detail", "reason"),
    [
        (messages.OTHER_CODE, "", messages.OTHER_CODE),
        (messages.NO_LEVEL, "strict", "level not available: strict"),
        (messages.NO_ARGUMENTS, "they are gone", "arguments not there: they are gone"),
        ("\x1b[2J\u202e", "x" * 100_000, "\\u001b[2J\\u202e: " + "x" * 299 + "…"),
    ],
)
def test_the_record_of_a_call_says_which_worker_refused_its_job_and_why(
    nats: NatsServer, why: str, detail: str, reason: str
) -> None:
    async def attack(scene: Scene) -> None:
        await scene.rogue.open()
        call = scene.call()
        job = await scene.rogue.hear(Job)
        await scene.rogue.say(NotRun(job.id, why, detail))
        refused = await call
        assert refused.code in (Code.NOT_RUNNABLE, Code.WORKER_UNAVAILABLE)
        assert len(refused.text) < 1_000
        (told,) = scene.server.said("RefusedElsewhere")
        assert told == {
            "call": refused.call_id, "count": 1, "key": scene.rogue.key.public.text, "reason": reason,
            "server": scene.server.key.public.token, "time": told["time"], "type": "RefusedElsewhere",
            "what": "job", "worker": "one",
        }  # fmt: skip

    assert asyncio.run(scene(nats, attack)) == []


@pytest.mark.usefixtures("_told_soon")
def test_a_worker_says_what_it_refuses_of_an_honest_server(nats: NatsServer) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        grant = Grant(capabilities=(Capability("fs.read", "/etc"),))
        server = Server(nats, key, [trusted(worker)], agents={"ada": grant})
        pinned = TrustedServer(key=key.public.text, agents=("ada",))
        events: list[Any] = []
        server.keep.subscribe(events.append)
        async with server, running(made_worker(nats, worker, [pinned])):
            refused = await server.call("shout", {"text": "hi"})
            assert refused.code is Code.NOT_RUNNABLE
            await recorded(server, ("job", messages.NOT_GRANTED, key.public.token))
            # More than the worker lets its server grant.
            beyond = await server.call("look", {"path": "/etc/hostname"}, agent="ada")
            assert beyond.code is Code.NOT_PERMITTED
            (ran,), completed = server.said("RanElsewhere"), server.said("ToolCompleted")[-1]
            assert (ran["call"], ran["worker"]) == (beyond.call_id, "one")
            assert (completed["call"], completed["codes"]) == (beyond.call_id, [Code.NOT_PERMITTED])
            await recorded(
                server, *(("job", why, key.public.token) for why in (messages.NOT_GRANTED, "not permitted"))
            )
        (told,) = [one for one in server.said("RefusedElsewhere") if one["call"]]
        assert (told["call"], told["worker"], told["reason"]) == (
            refused.call_id, "one", "not granted: shout for local",
        )  # fmt: skip
        event, _ = [one for one in events if isinstance(one, RefusedElsewhere)]
        assert (event.worker, event.what, event.reason, event.server, event.count) == (
            "one", "job", messages.NOT_GRANTED, key.public.token, 1,
        )  # fmt: skip

    asyncio.run(main())


@pytest.mark.usefixtures("_told_soon")
def test_numbers_of_a_worker_count_once(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_OPEN_SECONDS", 0.0)

    def told(number: int, recorded: int = 0) -> tuple[RefusalCount]:
        return (RefusalCount("frame", "x", "", number, recorded),)

    async def attack(scene: Scene) -> None:
        rogue = scene.rogue
        await rogue.open()
        for number in (3, 3, 2, 5):
            await rogue.heartbeat(refused=told(number))
        await rogue.heartbeat(refused=told(8, 7))  # another process of the server has recorded some
        await recorded(scene.server, *[("frame", "x", "")] * 6)
        # The next process of the worker begins anew.
        again = RogueWorker(rogue.tap, rogue.key, scene.server.keep, scene.server.key.public)
        await again.open()
        await again.heartbeat(refused=told(2))
        await recorded(scene.server, *[("frame", "x", "")] * 8)

    assert asyncio.run(scene(nats, attack)) == []


def test_a_worker_of_another_version_is_recorded(nats: NatsServer) -> None:
    async def attack(scene: Scene) -> None:
        await scene.rogue.announce()
        await scene.rogue.send(
            decline(scene.rogue.key, scene.rogue.hello, "protocols differ\x1b" + "x" * 1000)
        )
        await until(lambda: scene.server.said("RefusedElsewhere"))
        (told,) = scene.server.said("RefusedElsewhere")
        assert (told["what"], told["worker"], told["server"]) == (
            "session", "one", scene.server.key.public.token,
        )  # fmt: skip
        assert told["reason"].startswith("protocols differ\\u001bx")
        assert len(told["reason"]) == 300
        assert (await scene.server.dispatcher()).workers["one"][2] == told["reason"]

    assert asyncio.run(scene(nats, attack)) == []
