"""Whole calls through a worker: real NATS, real sandbox, both sides in one process."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import Server, made_worker, new_key, running, tapped, trusted, until
from toolkeep import Code
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.definitions.capability import Capability
from toolkeep.fleet import messages
from toolkeep.policy.policy_settings import Grant
from toolkeep.telemetry import spans

pytestmark = pytest.mark.spec("SCL-1", "SCL-3")

SECRET = "correct-horse-battery-staple"
TEXT = "words-that-nobody-else-reads"


def test_a_call_runs_on_a_worker_and_nats_sees_nothing_of_it(nats: NatsServer) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        keys = {"sign_in": {"key": SECRET}}
        server = Server(nats, key, [trusted(worker)], tool_secrets=keys)
        async with tapped(nats, ">") as spy, server, running(made_worker(nats, worker, [key])):
            result = await server.call("shout", {"text": TEXT})
            assert (result.value, result.isolation) == (TEXT.upper(), "strict")
            (ran,) = server.said("RanElsewhere")
            assert (ran["worker"], ran["key"], ran["isolation"]) == ("one", worker.public.text, "strict")
            assert {"landlock", "seccomp"} <= set(ran["enforced"])
            told: list[Any] = []
            options: dict[str, Any] = {"conversation": "talk", "correlation_id": "trace"}
            result = await server.call(
                "sign_in", {"steps": 2}, on_progress=lambda *one: told.append(one), **options
            )
            assert result.value == [len(SECRET), "local", "talk", "trace"]
            assert told == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]
            chunks: list[Any] = []
            result = await server.call("count", {"to": 3}, on_output=chunks.append)
            assert (result.value, chunks) == ("0\n1\n2\n", ["0\n", "1\n", "2\n"])
            # The worker signs what it answered.
            await until(lambda: server.said("AnswersSigned"))
            assert ran["answer_hash"] in server.said("AnswersSigned")[0]["answers"]
        seen = b"".join(spy.frames.get_nowait().data for _ in range(spy.frames.qsize()))
        assert len(seen) > 1000
        for hidden in (SECRET, TEXT, TEXT.upper(), "step 2", "landlock", "talk", "sign_in", "break_rules"):
            assert hidden.encode() not in seen

    asyncio.run(main())


def test_failures_read_as_they_would_here(nats: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        agents = {"ada": Grant.read(capabilities=[f"fs.read:{tmp_path}"])}
        server = Server(nats, key, [trusted(worker)], agents=agents)
        here = Server(nats, key, [trusted(worker)], agents=agents, runs_on={})
        async with server, here, running(made_worker(nats, worker, [key], slots=1)):
            for name, arguments in (("break_rules", {"how": "raise"}), ("break_rules", {"how": "read"})):
                there, local = await server.call(name, arguments), await here.call(name, arguments)
                assert there.error is not None
                assert local.error is not None
                assert there.error.errors == local.error.errors
                assert server.keep.diagnosis(there.call_id) == here.keep.diagnosis(local.call_id)
            # The deadline is the server's; the slot of the worker is free again afterwards.
            result = await server.call("wait", {"seconds": 30}, timeout_s=0.3)
            assert result.code is Code.TIMED_OUT
            assert (await server.call("shout", {"text": "hi"})).value == "HI"
            # So it is after a cancellation, and the log says that.
            waiting = asyncio.create_task(server.call("wait", {"seconds": 30}))
            await until(lambda: any(one.pending_jobs for one in _sessions(server)))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await server.call("shout", {"text": "hi"})).value == "HI"
            # The worker lets this server grant nothing of its disk.
            (tmp_path / "file").write_text("content")
            refused = await server.call("look", {"path": str(tmp_path / "file")}, agent="ada")
            assert refused.code is Code.NOT_PERMITTED

    asyncio.run(main())


def _sessions(server: Server) -> list[Any]:
    (started,) = server.runner._dispatchers.values()
    return [session for _, session, _ in started.result().workers.values() if session is not None]


def test_calls_wait_for_free_slots_and_agents_take_turns(nats: NatsServer) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        agents = {"greedy": Grant(), "modest": Grant()}
        server = Server(nats, key, [trusted(worker)], agents=agents)
        async with server, running(made_worker(nats, worker, [key], slots=1)):
            ended: list[str] = []

            async def call(agent: str) -> None:
                result = await server.call("shout", {"text": agent}, agent=agent)
                assert result.value == agent.upper()
                ended.append(agent)

            first = asyncio.create_task(server.call("wait", {"seconds": 0.3}))
            await until(lambda: any(one.pending_jobs for one in _sessions(server)))
            many = [asyncio.create_task(call("greedy")) for _ in range(6)]
            await asyncio.sleep(0)
            await asyncio.gather(first, *many, call("modest"))
            assert ended.index("modest") <= 2

    asyncio.run(main())


def test_calls_beyond_the_bound_of_their_agent_are_refused_and_others_wait(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.fleet.dispatcher._QUEUED", 2)

    async def main() -> None:
        key, worker = new_key(), new_key()
        server = Server(nats, key, [trusted(worker)], agents={"greedy": Grant(), "modest": Grant()})
        async with server, running(made_worker(nats, worker, [key], slots=1)):
            dispatcher = await server.dispatcher()
            first = asyncio.create_task(server.call("wait", {"seconds": 60}))
            await until(lambda: any(one.pending_jobs for one in _sessions(server)))
            greedy = [server.call("shout", {"text": "hi"}, agent="greedy") for _ in range(2)]
            waiting = [asyncio.create_task(call) for call in greedy]
            await until(lambda: len(dispatcher._queue.get("greedy", ())) == 2)
            refused = await server.call("shout", {"text": "hi"}, agent="greedy")
            assert refused.code is Code.QUEUE_FULL
            waiting.append(asyncio.create_task(server.call("shout", {"text": "hi"}, agent="modest")))
            await until(lambda: len(dispatcher._queue.get("modest", ())) == 1)
            first.cancel()
            assert [result.value for result in await asyncio.gather(*waiting)] == ["HI"] * 3

    asyncio.run(main())


@pytest.mark.spec("OBS-1")
def test_a_worker_goes_on_with_the_trace_of_the_call(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert spans.SCOPE  # loaded, as where calls are traced
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)

    async def main() -> tuple[str, trace.SpanContext]:
        key, worker = new_key(), new_key()
        server = Server(nats, key, [trusted(worker)])
        async with server, running(made_worker(nats, worker, [key])):
            with provider.get_tracer("caller").start_as_current_span("caller") as caller:
                result = await server.call("shout", {"text": "hi"})
            assert result.value == "HI"
            return result.call_id, caller.get_span_context()

    call_id, caller = asyncio.run(main())
    (span,) = (one for one in exporter.get_finished_spans() if one.name == "run_tool shout")
    assert span.context is not None
    assert span.parent is not None
    assert span.context.trace_id == caller.trace_id
    assert span.parent.is_remote
    assert (span.attributes or {})["gen_ai.tool.call.id"] == call_id


def test_a_worker_is_chosen_by_label_tool_level_and_agent(
    nats: NatsServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.fleet.dispatcher._APPEAR_SECONDS", 0.3)
    monkeypatch.setattr("toolkeep.fleet.dispatcher._COMPARED", 1)  # those that do not fit are not counted

    async def main() -> None:
        key, one, two = new_key(), new_key(), new_key()
        workers = [trusted(one, labels=("gpu",)), trusted(two, "two", agents=("ada",))]
        runs_on = {"shout": "gpu", "wait": "", "act": "tpu", "add": ""}
        server = Server(nats, key, workers, runs_on=runs_on, agents={"ada": Grant()})
        both = made_worker(nats, one, [key], labels=("gpu",)), made_worker(nats, two, [key])
        async with server, running(*both):
            await until(
                lambda: len(_sessions(server)) == 2 and all(one.has_lease for one in _sessions(server))
            )
            for _ in range(3):
                assert (await server.call("shout", {"text": "hi"}, agent="ada")).value == "HI"
                assert (await server.call("wait", {"seconds": 0})).value == "waited"
            assert {ran["worker"] for ran in server.said("RanElsewhere")} == {"one"}
            nowhere = [await server.call("act", {"seconds": 0}), await server.call("add", {"a": 1, "b": 2})]
            assert [result.code for result in nowhere] == [Code.WORKER_UNAVAILABLE] * 2

    asyncio.run(main())


@pytest.mark.parametrize("field", ["PROTOCOL", "SHAPE"])
def test_version_skew_is_declined_by_name(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    """The frames of the server say another version; the worker's own is as it is."""
    other = 99 if field == "PROTOCOL" else "0" * 16
    monkeypatch.setattr(f"toolkeep.fleet.sealed_session.{field}", other)
    assert getattr(messages, field) != other

    async def main() -> None:
        key, worker = new_key(), new_key()
        server = Server(nats, key, [trusted(worker)])
        async with server, running(made_worker(nats, worker, [key])):
            dispatcher = await server.dispatcher()
            await until(lambda: dispatcher.workers["one"][2])
            _, session, why = dispatcher.workers["one"]
            assert session is None
            assert "protocols differ" in why

    asyncio.run(main())
    assert "a worker declines" in caplog.messages


def test_policies_of_the_worker_apply_to_the_servers_agents_by_name(nats: NatsServer) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        made = made_worker(nats, worker, [key])
        made.keep.declare_agent("bob")
        made.keep.use_policies(
            '@id("all") permit(principal, action, resource);'
            '@id("bob") forbid(principal == Agent::"bob", action, resource);'
        )
        server = Server(nats, key, [trusted(worker)], agents={"bob": Grant(), "ada": Grant()})
        async with server, running(made):
            assert (await server.call("shout", {"text": "hi"}, agent="ada")).value == "HI"
            assert (await server.call("shout", {"text": "hi"}, agent="bob")).code is Code.NOT_PERMITTED

    asyncio.run(main())


def test_a_worker_writes_where_both_let_it(nats: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        key, worker = new_key(), new_key()
        may = Capability("fs.write", str(tmp_path))
        made = made_worker(nats, worker, [TrustedServer(key=key.public.text, capabilities=(may,))])
        agents = {"ada": Grant(capabilities=(may,))}
        async with Server(nats, key, [trusted(worker)], agents=agents) as server, running(made):
            arguments = {"path": str(tmp_path / "notes"), "text": "once"}
            assert (await server.call("note", arguments, agent="ada")).value == "once"
            assert (tmp_path / "notes").read_text() == "once\n"

    asyncio.run(main())
