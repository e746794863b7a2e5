"""OpenTelemetry: spans of calls by the conventions, instruments of definitions; nothing secret in either."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics as otel_metrics
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.mcp_server.talk import modern_request
from tests.server.conftest import open_served_keep
from tests.server.talk import Client, served
from toolkeep import DefinitionError, Keep, tool
from toolkeep.server.app_factory import start_traces
from toolkeep.telemetry.spans import current_traceparent, worker_span

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
exporter = InMemorySpanExporter()
reader = InMemoryMetricReader()


@pytest.fixture(scope="module", autouse=True)
def _collected() -> None:
    """An SDK as a deployer would set one up; the API takes one for the whole process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    otel_metrics.set_meter_provider(MeterProvider([reader]))


@pytest.fixture
def keep() -> Iterator[Keep]:
    exporter.clear()
    with open_served_keep() as keep:
        yield keep


def spans() -> list[Any]:
    return list(exporter.get_finished_spans())


@pytest.mark.spec("OBS-1")
def test_a_call_is_a_span_by_the_genai_conventions(keep: Keep) -> None:
    start_traces(keep)
    result = keep.call_sync("sign_in", {"user": "ada", "password": "hunter2"}, agent="ada", conversation="c1")
    (span,) = spans()
    assert (span.name, span.kind) == ("execute_tool sign_in", trace.SpanKind.INTERNAL)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sign_in",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": result.call_id,
        "gen_ai.agent.name": "ada",
        "gen_ai.conversation.id": "c1",
        "toolkeep.call.status": "ok",
        "toolkeep.call.isolation": "none",
    }


def test_a_failed_call_says_its_code_and_no_word_of_the_tool(keep: Keep) -> None:
    start_traces(keep)
    keep.call_sync("break_down", {})
    keep.call_sync("invented", {})
    broken, unknown = spans()
    assert broken.attributes["error.type"] == "ACODE-TSR-034"
    assert broken.status.status_code is trace.StatusCode.ERROR
    assert "hunter2" not in broken.to_json()
    assert (unknown.name, unknown.attributes["gen_ai.tool.name"]) == ("execute_tool unknown", "unknown")


def test_a_span_that_a_tool_opens_lies_in_that_of_its_call(keep: Keep) -> None:
    @tool(side_effects=[])
    async def look_up(word: str) -> str:
        """Look a word up.

        Args:
            word: Which.
        """
        with trace.get_tracer("tests").start_as_current_span("database"):
            return word

    keep.register(look_up)
    start_traces(keep)
    keep.call_sync("look_up", {"word": "x"})
    inner, outer = spans()
    assert inner.parent.span_id == outer.context.span_id


def talked(keep: Keep, act: Any) -> Any:
    async def run() -> Any:
        async with served(keep, has_traces=True) as client:
            return await act(client)

    return asyncio.run(run())


def test_the_trace_that_a_request_carries_goes_on(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        return (await client.call("add", {"a": 1}, headers={"traceparent": PARENT})).data["correlation_id"]

    assert talked(keep, act) == PARENT.split("-")[1]
    (span,) = spans()
    assert format(span.context.trace_id, "032x") == PARENT.split("-")[1]
    assert format(span.parent.span_id, "016x") == PARENT.split("-")[2]


def test_a_call_over_mcp_is_a_server_span_by_the_mcp_conventions(keep: Keep) -> None:
    body, headers = modern_request("tools/call", {"name": "add", "arguments": {"a": 1}})
    talked(keep, lambda client: client.send("POST", "/mcp", body, headers=headers))
    (span,) = spans()
    assert (span.name, span.kind) == ("tools/call add", trace.SpanKind.SERVER)
    assert span.attributes["mcp.method.name"] == "tools/call"
    assert span.attributes["mcp.protocol.version"] == "2026-07-28"


def test_without_traces_no_span_is_made(keep: Keep) -> None:
    keep.call_sync("add", {"a": 1})
    assert spans() == []


@pytest.mark.spec("OBS-1")
def test_definitions_are_observed_by_the_four_instruments(keep: Keep) -> None:
    start_traces(keep)
    keep.create_definition(
        {"name": "greet", "description": "Greet.", "version": "1.0.0", "client_executed": True}
    )
    with pytest.raises(DefinitionError, match="cannot be used"):
        keep.create_definition({"name": "greet2", "description": "", "version": "1.0.0"})
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {name for name in found if name.startswith("tools.definitions.")} == {
        "tools.definitions.validation.duration",
        "tools.definitions.validation.failures",
        "tools.definitions.created",
        "tools.definitions.by_category",
    }
    assert found["tools.definitions.created"][0].attributes == {"category": "custom"}


@pytest.mark.spec("OBS-1")
def test_a_worker_goes_on_with_the_trace_of_the_server_that_sent_the_call() -> None:
    exporter.clear()
    assert current_traceparent() == ""
    with trace.get_tracer("server").start_as_current_span("execute_tool shout"):
        sent = current_traceparent()
    with worker_span(sent, "shout", "c-1"):
        pass
    server, worker = spans()
    assert (worker.name, worker.parent.span_id) == ("run_tool shout", server.context.span_id)
    assert worker.context.trace_id == server.context.trace_id
