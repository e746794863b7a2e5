"""OpenTelemetry spans for calls and instruments for definitions (OBS-1), by the GenAI and MCP conventions.

Uses only the API: the deployer chooses the SDK, if any. No argument, result or secret is ever an attribute,
because traces leave the machine. Needs the extra `server`.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from toolkeep import events
from toolkeep.calls import RegisteredTool, ToolCall, ToolResult
from toolkeep.events import Event

SCOPE: Final = "toolkeep"
UNKNOWN: Final = "unknown"


class Setting(NamedTuple):
    """The origin of a call, for its span."""

    method: str = ""
    """The MCP method that caused it; empty if none."""
    attributes: Mapping[str, Any] = {}


class ObservedKeep(Protocol):
    """The observed keep."""

    def tools(self) -> list[RegisteredTool]:
        """All tools."""


class CallSpans:
    """Creates a span for every call; `setting` returns its origin."""

    def __init__(self, setting: Callable[[], Setting] = Setting) -> None:
        self._tracer = trace.get_tracer(SCOPE)
        self._setting = setting

    @contextlib.contextmanager
    def around(self, call: ToolCall, tool_name: str) -> Iterator[Callable[[ToolResult], None]]:
        """Context manager for the span of one call; yields a function that takes the result.

        `tool_name` is `unknown` for unregistered tools.
        """
        setting = self._setting()
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool_name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.id,
            "gen_ai.agent.name": call.agent,
            **({"gen_ai.conversation.id": call.conversation} if call.conversation else {}),
            **setting.attributes,
        }
        name = f"{setting.method or 'execute_tool'} {tool_name}"
        kind = SpanKind.SERVER if setting.method else SpanKind.INTERNAL
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=attributes, record_exception=False
        ) as span:
            yield lambda result: _tell(span, result)


def _tell(span: Span, result: ToolResult) -> None:
    """Set status attributes on the span."""
    if not span.is_recording():
        return
    span.set_attribute("toolkeep.call.status", result.status)
    if result.isolation:
        span.set_attribute("toolkeep.call.isolation", result.isolation)
    if result.code is not None:
        # The code and never the message, which may quote arguments.
        span.set_attribute("error.type", result.code.value)
        span.set_status(Status(StatusCode.ERROR))


@contextlib.contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """Continue the trace of an incoming request (trace context propagation)."""
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def current_traceparent() -> str:
    """The trace context of the running call, for another machine; empty without one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


@contextlib.contextmanager
def worker_span(traceparent: str, tool_name: str, call_id: str) -> Iterator[None]:
    """The span of a call that a worker runs, in the trace of the server that sent it."""
    attributes = {"gen_ai.tool.name": tool_name, "gen_ai.tool.call.id": call_id}
    tracer = trace.get_tracer(SCOPE)
    with (
        continued({"traceparent": traceparent}),
        tracer.start_as_current_span(
            f"run_tool {tool_name}", kind=SpanKind.CONSUMER, attributes=attributes, record_exception=False
        ),
    ):
        yield


class DefinitionInstruments:
    """OpenTelemetry instruments for definitions; subscribe it to a keep's events."""

    def __init__(self, keep: ObservedKeep) -> None:
        meter = metrics.get_meter(SCOPE)
        _observed.add(keep)
        _observe_categories()
        self._duration = meter.create_histogram(
            "tools.definitions.validation.duration", unit="s", description="Time to validate a definition."
        )
        self._failures = meter.create_counter(
            "tools.definitions.validation.failures", description="Definitions that were refused."
        )
        self._created = meter.create_counter(
            "tools.definitions.created", description="Custom definitions created."
        )

    def __call__(self, event: Event) -> None:
        """Record one event."""
        match event:
            case events.ToolDefinitionValidatedEvent():
                self._duration.record(event.validation_duration_s, {"category": event.category})
            case events.ToolDefinitionRejected():
                self._failures.add(1)
            case events.ToolDefinitionCreatedEvent():
                self._created.add(1, {"category": event.category})


_observed: Final["WeakSet[ObservedKeep]"] = WeakSet()
"""The keeps of this process whose definitions are counted."""


@functools.cache
def _observe_categories() -> None:
    """One gauge for all keeps: an SDK keeps the first instrument of a name and ignores later ones."""
    metrics.get_meter(SCOPE).create_observable_gauge(
        "tools.definitions.by_category", [_by_category], description="Definitions per category."
    )


def _by_category(_: CallbackOptions) -> Iterable[Observation]:
    counts = Counter(tool.definition.category.value for keep in tuple(_observed) for tool in keep.tools())
    return [Observation(count, {"category": category}) for category, count in counts.items()]
