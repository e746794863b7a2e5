"""Events as Prometheus metrics (OBS-1), with the names that dashboards know.

Label children are bound at the first event of a tool, so counting a call is one addition, and thousands of
tools that nobody calls take no time at start. Unregistered tool names are counted as `unknown`: a model
could invent names without end (label cardinality). A removed tool keeps no label. Needs the extra `server`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from toolkeep import events
from toolkeep.events import Event

UNKNOWN: Final = "unknown"
_VALIDATION_BUCKETS: Final = (
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
)  # fmt: skip
_CALL_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 600)
_STATUSES: Final = ("ok", "pending", "error")


class WorkerLoad(Protocol):
    """A worker on another machine."""

    @property
    def state(self) -> str:
        """`ready` if it takes calls."""

    @property
    def free(self) -> int:
        """Its free slots."""

    @property
    def samples_agreed(self) -> int:
        """Results of it that another worker's result confirmed."""

    @property
    def samples_differed(self) -> int:
        """Results of it that differed from another worker's."""

    @property
    def jobs(self) -> int:
        """Calls that it has."""


def _total(states: Callable[[], Iterable[WorkerLoad]], count: Callable[[WorkerLoad], int]) -> int:
    return sum(map(count, states()))


class _Bound:
    """The bound metrics of one tool."""

    __slots__ = ("calls", "failed", "passed", "seconds", "validation")

    def __init__(self, metrics: "Metrics", tool_name: str) -> None:
        self.passed = metrics.validations.labels(tool_name, "success")
        self.failed = metrics.validations.labels(tool_name, "failure")
        self.validation = metrics.validation_seconds.labels(tool_name)
        self.calls = {status: metrics.calls.labels(tool_name, status) for status in _STATUSES}
        self.seconds = metrics.call_seconds.labels(tool_name)


class Metrics:
    """Metrics of one keep; subscribe it with `timed=True`."""

    def __init__(self, tool_names: Iterable[str], size: Callable[[], int]) -> None:
        """`tool_names` are the names of all registered versions; `size` returns the number of tools."""
        self.registry = registry = CollectorRegistry()
        self.registrations = Counter(
            "acode_tool_registrations", "Definitions registered.", ["tool_name"], registry=registry
        )
        self.validations = Counter(
            "acode_tool_validations", "Calls validated.", ["tool_name", "result"], registry=registry
        )
        self.validation_seconds = Histogram(
            "acode_tool_validation_seconds",
            "Time to validate a valid call.",
            ["tool_name"],
            registry=registry,
            buckets=_VALIDATION_BUCKETS,
        )
        self.validation_errors = Counter(
            "acode_tool_validation_errors",
            "Violations in refused calls.",
            ["tool_name", "error_code"],
            registry=registry,
        )
        self.size = Gauge("acode_tool_registry_size", "Tools registered.", registry=registry)
        self.size.set_function(size)
        self.calls = Counter("toolkeep_calls", "Completed calls.", ["tool_name", "status"], registry=registry)
        self.call_seconds = Histogram(
            "toolkeep_call_seconds",
            "Duration of a call, from request to record.",
            ["tool_name"],
            registry=registry,
            buckets=_CALL_BUCKETS,
        )
        self.call_errors = Counter(
            "toolkeep_call_errors", "Calls that failed.", ["tool_name", "error_code"], registry=registry
        )
        self.audit_alarms = Counter(
            "toolkeep_audit_alarms",
            "Audit logs that were cut, rewritten, forked or no longer published.",
            registry=registry,
        )
        self.refused_frames = Counter(
            "toolkeep_worker_frames_refused",
            "Frames in the name of workers that counted for nothing.",
            ["worker"],
            registry=registry,
        )
        self.worker_refusals = Counter(
            "toolkeep_worker_refusals",
            "Frames, jobs, code and sessions that workers say they refused.",
            ["worker", "what"],
            registry=registry,
        )
        self._known: set[str] = set()
        self._bound = {UNKNOWN: _Bound(self, UNKNOWN)}
        self._counted: dict[type[Event], Callable[[Any], None]] = {
            events.ToolRegistered: self._registered,
            events.ToolUnregistered: self._unregistered,
            events.ValidationPassed: self._passed,
            events.ValidationFailed: self._failed,
            events.ToolUnanswered: self._unanswered,
            events.CallEnded: self._ended,
            events.AuditAlarm: lambda _: self.audit_alarms.inc(),
            events.WorkerRefused: lambda event: self.refused_frames.labels(event.worker).inc(event.count),
            events.RefusedElsewhere: self._refused_elsewhere,
        }
        for name in tool_names:
            self._register(name)

    def watch_workers(self, states: Callable[[], Iterable[WorkerLoad]]) -> None:
        """Show the workers on other machines, too."""
        shown: dict[str, tuple[str, Callable[[WorkerLoad], int]]] = {
            "toolkeep_workers_ready": ("Workers with a free slot.", lambda one: one.state == "ready"),
            "toolkeep_worker_slots_free": ("Free slots of workers.", lambda one: one.free),
            "toolkeep_worker_jobs": ("Calls that workers have.", lambda one: one.jobs),
            "toolkeep_workers_quarantined": (
                "Workers that take no calls, because a result was wrong.",
                lambda one: one.state == "quarantined",
            ),
            "toolkeep_worker_samples_agreed": (
                "Results of workers that another worker's result confirmed.",
                lambda one: one.samples_agreed,
            ),
            "toolkeep_worker_samples_differed": (
                "Results of workers that differed from another worker's.",
                lambda one: one.samples_differed,
            ),
        }
        for name, (about, count) in shown.items():
            gauge = Gauge(name, about, registry=self.registry)
            gauge.set_function(partial(_total, states, count))

    def __call__(self, event: Event) -> None:
        """Count one event."""
        count = self._counted.get(type(event))
        if count is not None:
            count(event)

    def page(self) -> bytes:
        """All metrics in Prometheus text format."""
        return generate_latest(self.registry)

    def label(self, tool_name: str) -> str:
        """The label of a tool; `unknown` if it is not registered."""
        return tool_name if tool_name in self._known else UNKNOWN

    def _of(self, tool_name: str) -> _Bound:
        label = self.label(tool_name)
        bound = self._bound.get(label)
        if bound is None:  # two threads may both bind, and get the same children
            bound = self._bound[label] = _Bound(self, label)
        return bound

    def _register(self, name: str) -> None:
        self._known.add(name)
        self.registrations.labels(name).inc()

    def _refused_elsewhere(self, event: events.RefusedElsewhere) -> None:
        self.worker_refusals.labels(event.worker, event.what).inc(event.count)

    def _registered(self, event: events.ToolRegistered) -> None:
        self._register(event.tool_name)

    def _unregistered(self, event: events.ToolUnregistered) -> None:
        # With a version, others of the tool remain, and so do its labels.
        if event.version or event.tool_name not in self._known:
            return
        self._known.remove(event.tool_name)
        self._bound.pop(event.tool_name, None)
        self.registrations.remove_by_labels({"tool_name": event.tool_name})
        for metric in (self.validations, self.validation_seconds, self.validation_errors):
            metric.remove_by_labels({"tool_name": event.tool_name})
        for metric in (self.calls, self.call_seconds, self.call_errors):
            metric.remove_by_labels({"tool_name": event.tool_name})

    def _passed(self, event: events.ValidationPassed) -> None:
        bound = self._of(event.tool_name)
        bound.passed.inc()
        bound.validation.observe(event.validation_ms / 1000)

    def _failed(self, event: events.ValidationFailed) -> None:
        name = self.label(event.tool_name)
        self._of(name).failed.inc()
        for error in event.refusal.errors:
            self.validation_errors.labels(name, error.code.value).inc()

    def _unanswered(self, event: events.ToolUnanswered) -> None:
        name = self.label(event.tool_name)
        self._of(name).failed.inc()
        self.validation_errors.labels(name, event.error_code).inc()

    def _ended(self, event: events.CallEnded) -> None:
        bound = self._of(event.tool_name)
        bound.calls[event.status].inc()
        bound.seconds.observe(event.total_ms / 1000)
        if event.error_code:
            self.call_errors.labels(self.label(event.tool_name), event.error_code).inc()
