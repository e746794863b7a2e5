"""Whole calls through a worker: real NATS, real sandbox, both sides in one process."""

import asyncio

import pytest

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import Server, made_worker, new_key, running, trusted

pytestmark = pytest.mark.spec("SCL-3")

SECRET = "correct-horse-battery-staple"


def test_a_call_runs_on_a_worker_and_the_log_names_it(nats: NatsServer) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        async with Server(nats, key, [trusted(worker)]) as server, running(made_worker(nats, worker, [key])):
            result = await server.call("shout", {"text": "hi"})
            assert (result.value, result.isolation) == ("HI", "strict")
            (ran,) = server.said("RanElsewhere")
            assert (ran["worker"], ran["key"], ran["isolation"]) == ("one", worker.public.text, "strict")
            assert {"landlock", "seccomp"} <= set(ran["enforced"])
            assert len(ran["answer_hash"]) == 64

    asyncio.run(main())
