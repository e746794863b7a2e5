"""Large arguments and results through JetStream's object store, over a real NATS."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.running import LEASE, PATIENCE, Server, made_worker, new_key, running, trusted, until
from toolkeep import Code, tool
from toolkeep.fleet import dispatcher, object_store
from toolkeep.fleet.messages import StoredBody
from toolkeep.fleet.nats_link import NatsLink
from toolkeep.fleet.object_store import BUCKET, BodyStore, NotDelivered
from toolkeep.fleet_worker import jobs
from toolkeep.fleet_worker import worker as worker_module
from toolkeep.fleet_worker.server_session import now
from toolkeep.limits import OUTPUT_CAP_BYTES

pytestmark = pytest.mark.spec("SCL-3")

BODY = bytes(range(256)) * 4_000
LARGE = "é" * 500_000


@tool(constraints={"required_isolation": "strict"}, side_effects=["None"])
def repeat(text: str, times: int) -> str:
    """Say it several times."""
    return text * times


@tool(constraints={"required_isolation": "strict"}, side_effects=["Writes"], danger="low")
def write(text: str, times: int) -> str:
    """Say it several times, and perhaps change something."""
    return text * times


@asynccontextmanager
async def both(nats: NatsServer, slots: int = 4) -> AsyncIterator[Server]:
    """A server with one worker, which has the tools of this file."""
    key, worker, tools = new_key(), new_key(), (repeat, write)
    server = Server(nats, key, [trusted(worker)], tools=tools, runs_on={"repeat": "", "write": ""})
    async with server, running(made_worker(nats, worker, [key], tools=tools, slots=slots)):
        yield server


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS with JetStream."""
    with nats_server(store=tmp_path_factory.mktemp("jetstream")) as server:
        yield server


@asynccontextmanager
async def opened(nats: NatsServer) -> AsyncIterator[tuple[BodyStore, Any]]:
    """A store, and the bucket as anybody with access to it has it."""
    link = NatsLink(nats.settings(), "test")
    await link.connect()
    try:
        bodies = BodyStore(link)
        await bodies.put(b"x")
        yield bodies, await link.jetstream(2).object_store(BUCKET)
    finally:
        await link.close()


async def held(bucket: Any, messages: int) -> None:
    """Wait until the bucket has so many messages: nobody tells when a body is deleted."""
    async with asyncio.timeout(PATIENCE):
        while (await bucket.status()).stream_info.state.messages != messages:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_body_is_sealed_in_the_store_and_gone_once_it_was_taken(stored: NatsServer) -> None:
    async def main() -> None:
        async with opened(stored) as (bodies, bucket):
            there = await bodies.put(BODY)
            sealed = (await bucket.get(there.name)).data
            assert len(sealed) == len(BODY) + 16
            assert BODY[:64] not in sealed
            before = (await bucket.status()).stream_info.state.messages
            assert await bodies.take(there) == BODY
            await held(bucket, before - 5)  # four chunks, and what is said of them
            with pytest.raises(NotDelivered):
                await bodies.take(there, patience_s=0.5)
            config = (await bucket.status()).stream_info.config
            assert (config.max_age, config.max_bytes) == (600, 1 << 30)

    asyncio.run(main())


def test_what_is_put_in_the_place_of_a_body_is_refused(stored: NatsServer) -> None:
    async def main() -> None:
        async with opened(stored) as (bodies, bucket):
            one, other = await bodies.put(BODY), await bodies.put(BODY[::-1])
            held = await bucket.get(other.name)
            for forged in (held.data, held.data[:-1] + b"\0", b"short", held.data * 3):
                await bucket.put(one.name, forged)
                with pytest.raises(NotDelivered):
                    await bodies.take(one, patience_s=0.5)
            await bucket.put(other.name, held.data)
            for changed in (
                replace(other, name=one.name),
                replace(other, key=one.key),
                replace(other, hash=one.hash),
                replace(other, size=other.size - 1),
            ):
                with pytest.raises(NotDelivered):
                    await bodies.take(changed, patience_s=0.5)
            with pytest.raises(NotDelivered, match="more than"):
                await bodies.take(replace(other, size=OUTPUT_CAP_BYTES + 1), patience_s=0.5)

    asyncio.run(main())


def test_a_body_over_the_cap_is_not_stored(stored: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "OUTPUT_CAP_BYTES", 1_000)

    async def main() -> None:
        async with opened(stored) as (bodies, _):
            with pytest.raises(NotDelivered, match="1000 bytes"):
                await bodies.put(bytes(1_001))

    asyncio.run(main())


def test_large_arguments_and_results_arrive_and_small_ones_need_no_jetstream(
    stored: NatsServer, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(stored) as (_, bucket), both(stored) as server:
            before = (await bucket.status()).stream_info.state
            result = await server.call("repeat", {"text": LARGE, "times": 3})
            assert result.value == LARGE * 3
            await held(bucket, before.messages)
            assert (await bucket.status()).stream_info.state.last_seq > before.last_seq + 12
        monkeypatch.setattr(dispatcher, "_STORE_SECONDS", 0.5)
        monkeypatch.setattr(jobs, "_DELIVER_SECONDS", 0.5)
        async with both(nats) as server:  # which has no JetStream
            small = await server.call("repeat", {"text": "a" * 700_000, "times": 1})
            assert small.value == "a" * 700_000
            refused = await server.call("repeat", {"text": LARGE, "times": 1})
            assert refused.code is Code.WORKER_UNAVAILABLE
            lost = await server.call("write", {"text": "a", "times": 1_000_000})
            assert lost.code is Code.OUTCOME_UNKNOWN
            assert "was not delivered" in str(lost.error)

    asyncio.run(main())


def test_arguments_that_are_gone_are_not_run(stored: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def swapped(self: BodyStore, body: bytes, *, patience_s: float) -> StoredBody:
        return replace(await put(self, body, patience_s=patience_s), key=bytes(32))

    put = BodyStore.put
    monkeypatch.setattr(BodyStore, "put", swapped)

    async def main() -> None:
        async with both(stored) as server:
            refused = await server.call("write", {"text": LARGE, "times": 1})
            assert refused.code is Code.WORKER_UNAVAILABLE
            assert (await server.call("repeat", {"text": "a", "times": 2})).value == "aa"

    asyncio.run(main())


def test_calls_go_on_while_bodies_wait_for_the_store(nats: NatsServer) -> None:
    async def main() -> None:  # without JetStream
        async with both(nats, slots=1) as server:
            assert (await server.call("repeat", {"text": "a", "times": 2})).value == "aa"
            large = asyncio.create_task(server.call("write", {"text": LARGE, "times": 1}))
            await until(lambda: _transfers(server))
            # A slot is not held for it.
            assert (await server.call("repeat", {"text": "a", "times": 2})).value == "aa"
            assert not large.done()
            large.cancel()
            await asyncio.wait([large])

    asyncio.run(main())


def test_results_that_wait_for_the_store_hold_no_slot_within_a_limit(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []

    async def waits(_: BodyStore, body: bytes, *, patience_s: float) -> StoredBody:
        waiting.append(len(body))
        return await asyncio.Future[StoredBody]()

    monkeypatch.setattr(BodyStore, "put", waits)
    monkeypatch.setattr(jobs, "_WAITING_BYTES", 1_500_000)
    monkeypatch.setattr(worker_module, "_HEARTBEAT_SECONDS", 25.0)

    async def main() -> None:
        key, worker_key, tools = new_key(), new_key(), (repeat, write)
        server = Server(nats, key, [trusted(worker_key)], tools=tools, runs_on={"repeat": "", "write": ""})
        worker = made_worker(nats, worker_key, [key], tools=tools, slots=1)
        async with server, running(worker):
            dispatcher = await server.dispatcher()

            async def waits_beside(number: int) -> "asyncio.Task[Any]":
                call = asyncio.create_task(server.call("write", {"text": "a", "times": 1_000_000}))
                await until(lambda: len(waiting) == number)
                return call

            def free() -> tuple[int, int]:
                session = dispatcher.workers["one"][1]
                assert session is not None
                return 1 - worker._jobs.taken(), session.free

            async def is_counted(expected: tuple[int, int]) -> None:
                await until(lambda: free() == expected, 20.0)  # sooner than a heartbeat says it
                (session,), since = worker._sessions.values(), now()
                worker._beat()
                await until(lambda: session.lease_ends - LEASE > since)  # a heartbeat says the same
                assert free() == expected

            first = await waits_beside(1)
            await is_counted((1, 1))
            # Its lease is watched as that of any job.
            looks: list[None] = []
            monkeypatch.setattr(worker, "_sign_for_the_idle", lambda: looks.append(None))
            await until(lambda: len(looks) > 20)
            second = await waits_beside(2)  # beyond the limit, it holds its slot
            await is_counted((0, 0))
            first.cancel()
            await until(lambda: not worker._jobs._delivering)
            await is_counted((0, 0))
            second.cancel()
            await is_counted((1, 1))

    asyncio.run(main())


def _transfers(server: Server) -> int:
    (started,) = server.runner._dispatchers.values()
    return object_store._AT_ONCE - started.result()._bodies._turns._value


def test_a_body_is_given_up_in_its_time_though_others_wait_longer(nats: NatsServer) -> None:
    async def main() -> None:
        link = NatsLink(nats.settings(), "test")
        await link.connect()
        bodies = BodyStore(link)
        others = [asyncio.create_task(bodies.put(b"x", patience_s=PATIENCE)) for _ in range(8)]
        await until(bodies._turns.locked)
        with pytest.raises(NotDelivered):
            await bodies.put(b"x", patience_s=0.1)
        assert not any(other.done() for other in others)
        for other in others:
            other.cancel()
        await asyncio.wait(others)
        await link.close()

    asyncio.run(main())


def test_a_bucket_is_used_as_it_is_where_it_cannot_have_more_replicas(stored: NatsServer) -> None:
    async def main() -> None:
        async with opened(stored) as (bodies, bucket):
            wanting = BodyStore(bodies._link, replicas=3)  # which needs a cluster
            assert await wanting.take(await wanting.put(BODY)) == BODY
            assert (await bucket.status()).stream_info.config.num_replicas == 1

    asyncio.run(main())
