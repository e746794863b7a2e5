"""Whoever holds an account of NATS, or NATS itself, can delay and lose frames, and nothing else."""

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.running import (
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
from tests.fleet.test_object_store import LARGE, both
from toolkeep import Code
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.definitions.capability import Capability
from toolkeep.fleet import subjects
from toolkeep.fleet.messages import NO_ARGUMENTS, PROTOCOL, SHAPE, StoredBody
from toolkeep.fleet.object_store import BUCKET, BodyStore
from toolkeep.fleet.sealed_session import ANNOUNCE, HELLO, SEALED, Hello, _signed, announce
from toolkeep.policy.policy_settings import Grant

pytestmark = pytest.mark.spec("SCL-4")


@contextlib.asynccontextmanager
async def relayed(here: NatsServer, there: NatsServer, way: str) -> AsyncIterator[None]:
    """A NATS between a server and a worker that does with frames what it likes."""
    chance, tasks = random.Random(7), set[asyncio.Task[None]]()  # noqa: S311 -- the same each time

    async def join(nats: NatsServer) -> Client:
        client = Client()
        await client.connect([nats.url], no_echo=True)
        return client

    async def pass_on(client: Client, message: Msg, delay_s: float = 0.0) -> None:
        await asyncio.sleep(delay_s)
        await client.publish(message.subject, message.data)

    def relay(to: Client) -> object:
        async def hear(message: Msg) -> None:
            if way == "drops" and chance.random() < 0.1:
                return
            copies = 3 if way == "duplicates" else 1
            for _ in range(copies):
                # Frames pass each other.
                delay = chance.uniform(0, 0.05) if way == "reorders" else 0.05 if way == "delays" else 0.0
                task = asyncio.create_task(pass_on(to, message, delay))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        return hear

    first, second = await join(here), await join(there)
    await first.subscribe("tk.>", cb=relay(second))  # type: ignore[arg-type]
    await second.subscribe("tk.>", cb=relay(first))  # type: ignore[arg-type]
    await asyncio.gather(first.flush(), second.flush())
    try:
        yield
    finally:
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(first.close(), second.close())


@pytest.mark.parametrize("way", ["drops", "duplicates", "reorders", "delays"])
def test_frames_that_are_lost_or_come_twice_run_no_call_twice(
    nats: NatsServer, tmp_path: Path, way: str
) -> None:
    async def main(other: NatsServer) -> None:
        key, worker = new_key(), new_key()
        may = Capability("fs.write", str(tmp_path))
        server = Server(nats, key, [trusted(worker)], agents={"ada": Grant(capabilities=(may,))})
        made = made_worker(other, worker, [TrustedServer(key=key.public.text, capabilities=(may,))])
        async with relayed(nats, other, way), server, running(made):
            dispatcher = await server.dispatcher()
            await until(lambda: (one := dispatcher.workers["one"][1]) is not None and one.has_lease)
            path = str(tmp_path / "notes")
            calls = [server.call("note", {"path": path, "text": str(n)}, agent="ada") for n in range(8)]
            async with asyncio.timeout(60):
                results = await asyncio.gather(*calls)
            # A call that was told to be done is done, once; one that was lost is told to be lost.
            lines = (tmp_path / "notes").read_text().split()
            assert len(lines) == len(set(lines))
            assert {result.value for result in results if result.status == "ok"} <= set(lines)
            if way == "duplicates":
                twice = ("frame", "it was sent before", key.public.token)
                await until(lambda: refused_elsewhere(server)[twice])
                assert {one["reason"] for one in server.said("WorkerRefused")} >= {"it was sent before"}
            lost = {Code.WORKER_UNAVAILABLE, Code.OUTCOME_UNKNOWN} if way == "drops" else set()
            assert {result.code for result in results if result.status != "ok"} <= lost

    with nats_server() as other:
        asyncio.run(main(other))


def test_floods_stop_nobody_elses_calls(nats: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        server = Server(nats, key, [trusted(worker)])
        async with server, running(made_worker(nats, worker, [key])), tapped(nats, ">") as tap:
            assert (await server.call("shout", {"text": "hi"})).value == "HI"
            stranger = new_key()
            hello = Hello(
                PROTOCOL,
                SHAPE,
                "0",
                stranger.public.raw,
                "0" * 16,
                worker.public.raw,
                b"x",
                1,
                os.urandom(32),
                5000,
            )
            to_worker, to_server = subjects.to_worker(worker.public), ""
            while not to_server.startswith("tk.v1.ans"):
                to_server = (await tap.frames.get()).subject
            flood = [
                (to_worker, os.urandom(100)),
                (to_worker, SEALED + os.urandom(100)),
                (to_worker, _signed(HELLO, hello, stranger)),
                (to_server, SEALED + os.urandom(100)),
                (subjects.announcement(stranger.public), announce(stranger, b"x")),
                (subjects.announcement(worker.public), announce(stranger, b"x")),
                (subjects.announcement(worker.public), ANNOUNCE + bytes(64) + announce(worker, b"x")[65:]),
            ]
            for subject, frame in flood * 300:
                await tap.client.publish(subject, frame)
            assert (await server.call("shout", {"text": "still"})).value == "STILL"
            await tap.client.flush()
            assert (await server.call("shout", {"text": "here"})).value == "HERE"
            kinds = {("frame", reason, "") for reason in ("it is of no session", "its server is not trusted")}
            await until(lambda: refused_elsewhere(server).keys() >= kinds)
        # Told, and the logs do not fill.
        told = server.said("WorkerRefused")
        counts = Counter[str]()
        for one in told:
            counts[one["reason"]] += one["count"]
        assert counts["it is of no session"] == 300
        assert counts["its worker is not trusted"] == 1
        assert 0 < counts["it is not signed by the key that it names"] <= 300
        assert len(told) <= 5
        elsewhere = Counter(one["reason"] for one in server.said("RefusedElsewhere"))
        assert max(elsewhere.values()) <= 2

    asyncio.run(main())
    refused = [one for one in caplog.messages if one == "a frame was refused"]
    assert 0 < len(refused) <= 900


CONFIG = """
authorization {{
  users: [
    {{ user: server, password: server, permissions: {{
        publish: ["tk.v1.job.*"], subscribe: ["tk.v1.hb.*", "tk.v1.ans.{server}.>"] }} }},
    {{ user: worker, password: worker, permissions: {{
        publish: ["tk.v1.hb.{worker}", "tk.v1.ans.*.*.{worker}"], subscribe: ["tk.v1.job.{worker}"] }} }},
    {{ user: spy, password: spy }}
  ]
}}
"""


def test_a_stolen_credential_of_nats_runs_nothing_and_answers_nothing(tmp_path: Path) -> None:
    """Accounts need no more than their own subjects, and one that has all of them is no server and no worker."""

    async def main(nats: NatsServer) -> None:
        key, worker = server, one
        whole = Server(nats, key, [trusted(worker)], user="server")
        made = made_worker(nats, worker, [key], user="worker")
        async with (
            tapped(nats, "tk.>", user="spy") as spy,
            tapped(nats, "tk.v1.hb.*", user="spy") as other,
            whole,
            running(made),
        ):
            assert (await whole.call("shout", {"text": "hi"})).value == "HI"
            thief = RogueServer(other, new_key(), worker.public)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await thief.open()
            # What it recorded, said again to both.
            while not spy.frames.empty():
                recorded = spy.frames.get_nowait()
                await spy.client.publish(recorded.subject, recorded.data)
            await spy.client.flush()
            assert (await whole.call("shout", {"text": "on"})).value == "ON"
            assert len(whole.said("RanElsewhere")) == 2
            kinds = {
                ("frame", "its server is not trusted", ""),
                ("frame", "it was sent before", server.public.token),
            }
            await until(lambda: refused_elsewhere(whole).keys() >= kinds)
        assert whole.said("WorkerRefused")

    server, one = new_key(), new_key()
    config = tmp_path / "nats.conf"
    config.write_text(CONFIG.format(server=server.public.token, worker=one.public.token))
    with nats_server("-c", str(config)) as nats:
        asyncio.run(main(nats))


async def _deleted(bucket: Any, name: str) -> None:
    await bucket.delete(name)


async def _replaced(bucket: Any, name: str) -> None:
    await bucket.put(name, bytes(len(LARGE)))


@pytest.mark.usefixtures("_told_soon")
@pytest.mark.parametrize("attack", [_deleted, _replaced])
def test_bodies_that_a_stolen_credential_deletes_or_replaces_end_their_call_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Callable[[Any, str], Awaitable[None]]
) -> None:
    put, bodies, is_on = BodyStore.put, list[str](), [True, False]
    assert BodyStore.take.__kwdefaults__ is not None
    monkeypatch.setitem(BodyStore.take.__kwdefaults__, "patience_s", 0.5)

    async def main(nats: NatsServer) -> None:
        thief = Client()
        await thief.connect([nats.url])

        async def put_and_attacked(self: BodyStore, body: bytes, **options: Any) -> StoredBody:
            stored = await put(self, body, **options)
            bodies.append(stored.name)
            if is_on.pop(0):
                await attack(await thief.jetstream().object_store(BUCKET), stored.name)
            return stored

        monkeypatch.setattr(BodyStore, "put", put_and_attacked)
        async with both(nats) as server:
            own = server.key.public.token
            # The arguments: nothing ran, as its worker says.
            refused = await server.call("repeat", {"text": LARGE, "times": 1})
            assert refused.code is Code.WORKER_UNAVAILABLE
            await recorded(server, ("job", NO_ARGUMENTS, own))
            (told,) = [one for one in server.said("RefusedElsewhere") if one["call"]]
            assert (told["call"], told["worker"], told["server"]) == (refused.call_id, "one", own)
            assert told["reason"].startswith(f"{NO_ARGUMENTS}: ")
            # The result: it ran.
            is_on[:] = [True]
            lost = await server.call("repeat", {"text": "x", "times": len(LARGE) * 2})
            assert lost.code is Code.OUTCOME_UNKNOWN
            ran, completed = server.said("RanElsewhere")[-1], server.said("ToolCompleted")[-1]
            assert (ran["call"], ran["worker"], completed["codes"]) == (lost.call_id, "one", [lost.code])
            is_on[:] = [False, False]
            assert (await server.call("repeat", {"text": LARGE, "times": 1})).value == LARGE
        await thief.close()
        assert len(bodies) == 4

    with nats_server(store=tmp_path) as nats:
        asyncio.run(main(nats))
