"""Event types, one frozen struct each, whose docstring is its documentation; and the event bus.

Stages publish to a `Bus` and do not know the listeners (logs, metrics, host code). A listener that fails is
logged and never disturbs the call.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from toolkeep.calls import Refusal

__all__ = [
    "AgentDeclared",
    "AgentDrifted",
    "ApprovalDecided",
    "ApprovalRequested",
    "AuditAlarm",
    "CallEnded",
    "CompilationSlow",
    "CompiledPolicyDisputed",
    "ConstraintViolated",
    "ContactRefused",
    "DefinitionWarned",
    "Event",
    "FlowDeclared",
    "HostContacted",
    "IdentityRefused",
    "Listener",
    "PoliciesChanged",
    "ProjectNotAccepted",
    "ProviderSkipped",
    "RefusedElsewhere",
    "RegistrationFailed",
    "SettingUnmatched",
    "ShadowPolicyFailed",
    "StartUpBegan",
    "StartUpEnded",
    "StoreFollowed",
    "StoreLost",
    "ToolAccepted",
    "ToolDefinitionCreatedEvent",
    "ToolDefinitionDeletedEvent",
    "ToolDefinitionRejected",
    "ToolDefinitionUpdatedEvent",
    "ToolDefinitionValidatedEvent",
    "ToolQuarantined",
    "ToolRegistered",
    "ToolSwitched",
    "ToolUnanswered",
    "ToolUnregistered",
    "UpstreamAsked",
    "ValidationFailed",
    "ValidationPassed",
    "WorkerAnsweredLate",
    "WorkerRefused",
    "WorkersDisagreed",
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""


class StartUpBegan(Event, frozen=True, kw_only=True):
    """A keep starts to load its providers."""

    providers: tuple[str, ...]


class StartUpEnded(Event, frozen=True, kw_only=True):
    """All providers were loaded; the keep is ready."""

    tool_count: int
    skipped_count: int
    elapsed_ms: float


class ToolRegistered(Event, frozen=True, kw_only=True):
    """A definition was admitted and can be called, unless its state says otherwise."""

    tool_name: str
    version: str
    definition_hash: str
    schema_size_bytes: int
    provider: str
    state: str


class DefinitionWarned(Event, frozen=True, kw_only=True):
    """An imported definition violates an authoring rule; it is used all the same."""

    tool_name: str
    field: str
    warning: str


class RegistrationFailed(Event, frozen=True, kw_only=True):
    """A tool was skipped; the others load."""

    tool_name: str
    provider: str
    error_code: str
    error_message: str


class ProviderSkipped(Event, frozen=True, kw_only=True):
    """A whole provider was skipped; the others load."""

    provider: str
    error_code: str
    error_message: str


class CompilationSlow(Event, frozen=True, kw_only=True):
    """Checking and compiling one definition took more than 10 ms."""

    tool_name: str
    compilation_ms: float


class ToolSwitched(Event, frozen=True, kw_only=True):
    """A tool was enabled or disabled; without a version, all of its versions."""

    tool_name: str
    version: str
    state: str


class ToolUnregistered(Event, frozen=True, kw_only=True):
    """A tool was removed; without a version, all of its versions."""

    tool_name: str
    version: str


class ToolQuarantined(Event, frozen=True, kw_only=True):
    """A definition changed after it was pinned; it cannot be called until a person accepts it."""

    tool_name: str
    pinned_hash: str
    definition_hash: str


class ToolAccepted(Event, frozen=True, kw_only=True):
    """A person accepted a changed definition."""

    tool_name: str
    version: str
    definition_hash: str


class FlowDeclared(Event, frozen=True, kw_only=True):
    """A person declared roles and labels of an imported tool on the page, or took them back."""

    tool_name: str
    definition_hash: str
    declared_by: str


class PoliciesChanged(Event, frozen=True, kw_only=True):
    """Another policy set became active."""

    policy_set_hash: str


class CompiledPolicyDisputed(Event, frozen=True, kw_only=True):
    """A policy that was compiled for speed contradicts Cedar: a defect of toolkeep.

    Found when it is compiled, Cedar decides instead. Found by a call, the call is denied, and Cedar makes
    every decision from then on.
    """

    tool_name: str
    agent: str
    policies: tuple[str, ...]
    """The ids of the policies on which they differ."""


class ShadowPolicyFailed(Event, frozen=True, kw_only=True):
    """Policies in shadow cannot be evaluated, so what they would have decided is not recorded.

    Calls go on as if they were not there.
    """

    policies: tuple[str, ...]
    """The ids of the policies in shadow."""
    problem: str


class AgentDeclared(Event, frozen=True, kw_only=True):
    """An agent was declared, or its grant replaced."""

    agent: str


class AgentDrifted(Event, frozen=True, kw_only=True):
    """An agent did what it never did before, as far back as its log was read.

    The first of a kind is told at once, others together once a minute.
    """

    agent: str
    kind: str
    """`tool`, `host`, `folder`, `origin` or `measure`."""
    tool_name: str
    """Of the newest call that did."""
    values: tuple[str, ...]
    """The first of what is new; an attacker may have chosen them."""
    count: int
    """How many new things."""
    timestamp: datetime


class ProjectNotAccepted(Event, frozen=True, kw_only=True):
    """A project's configuration would run, grant or loosen something, and is ignored until accepted."""

    path: str
    file_hash: str
    effect_count: int


class SettingUnmatched(Event, frozen=True, kw_only=True):
    """The configuration names a tool that is not registered (yet)."""

    setting: str
    name: str
    place: str


class ToolDefinitionValidatedEvent(Event, frozen=True, kw_only=True):
    """A definition passed every check."""

    tool_name: str
    category: str
    parameter_count: int
    validation_duration_s: float
    timestamp: datetime


class ToolDefinitionCreatedEvent(Event, frozen=True, kw_only=True):
    """A custom definition was created in the store."""

    definition_id: str
    tool_name: str
    category: str
    created_by: str
    timestamp: datetime


class ToolDefinitionUpdatedEvent(Event, frozen=True, kw_only=True):
    """A custom definition was changed in the store."""

    definition_id: str
    tool_name: str
    changed_fields: tuple[str, ...]
    updated_by: str
    timestamp: datetime


class ToolDefinitionDeletedEvent(Event, frozen=True, kw_only=True):
    """A custom definition was deleted from the store, with all of its versions."""

    definition_id: str
    tool_name: str
    deleted_by: str
    timestamp: datetime


class StoreLost(Event, frozen=True, kw_only=True):
    """The store is unavailable; tools read before can still be called."""

    store: str
    error_message: str


class StoreFollowed(Event, frozen=True, kw_only=True):
    """Changes that another keep made in the store were applied."""

    store: str
    revision: int
    tool_names: tuple[str, ...]


class ToolDefinitionRejected(Event, frozen=True, kw_only=True):
    """A definition was rejected; `errors` lists the violated rules."""

    tool_name: str
    errors: tuple[str, ...]


class ConstraintViolated(Event, frozen=True, kw_only=True):
    """A definition requests more time or output than allowed."""

    tool_name: str
    constraint: str
    value: float
    max_value: float


class ValidationPassed(Event, frozen=True, kw_only=True):
    """Arguments were accepted."""

    tool_name: str
    agent: str
    validation_ms: float


class ValidationFailed(Event, frozen=True, kw_only=True):
    """Arguments were refused. `arguments` returns them redacted and truncated, for debug logs."""

    tool_name: str
    agent: str
    refusal: "Refusal"
    arguments: Callable[[], str]


class CallEnded(Event, frozen=True, kw_only=True):
    """A call ended: ok, pending or error."""

    tool_name: str
    """`unknown` if no such tool is registered."""
    agent: str
    status: str
    error_code: str
    total_ms: float
    correlation_id: str


class HostContacted(Event, frozen=True, kw_only=True):
    """A confined tool contacted a host through the egress proxy."""

    tool_name: str
    agent: str
    method: str
    """`CONNECT` for TLS, which is not inspected."""
    host: str
    port: int
    sent_bytes: int
    received_bytes: int
    is_private: bool = False
    """Whether the host has a private or loopback address."""
    correlation_id: str


class ContactRefused(Event, frozen=True, kw_only=True):
    """A confined tool was refused a host, or its connection failed."""

    tool_name: str
    agent: str
    method: str
    host: str
    """Empty if the request named none."""
    port: int
    reason: str
    correlation_id: str


class UpstreamAsked(Event, frozen=True, kw_only=True):
    """An upstream MCP server sent a request (elicitation, sampling). Never contains its content."""

    upstream: str
    agent: str
    """The agent of the session."""
    method: str
    """The MCP method; `other` if unknown."""
    outcome: str
    """The reply: `accept`, `decline`, `cancel`, or `refused` if nobody was asked."""
    reason: str


class ApprovalRequested(Event, frozen=True, kw_only=True):
    """A call waits for approval by a person."""

    approval_id: str
    tool_name: str
    agent: str
    danger: str
    expires_at: datetime
    timestamp: datetime


class ApprovalDecided(Event, frozen=True, kw_only=True):
    """An approval request was decided, expired or withdrawn."""

    approval_id: str
    tool_name: str
    agent: str
    verdict: str
    """`approved`, `denied`, `expired`, or `withdrawn` if the caller gave up or the approver failed."""
    approver: str
    """Empty if nobody answered."""
    timestamp: datetime


class AuditAlarm(Event, frozen=True, kw_only=True):
    """An audit log was cut, rewritten or forked, or is no longer published, as far as this server can tell.

    The log is that of this server or of another one.
    """

    alarm: str
    """What happened."""
    origin: str
    """The name of the log."""
    witness: str = ""
    """The name of the witness that says so; empty if it is this server."""
    reason: str
    checkpoints: tuple[str, ...] = ()
    """The signed checkpoints that contradict each other, if there are any."""


class WorkerRefused(Event, frozen=True, kw_only=True):
    """Frames from a worker on another machine, or in its name, counted for nothing.

    Published at once for the first of a kind, then once a minute.
    """

    worker: str
    """Its name; empty if it is of none that is trusted."""
    reason: str
    count: int
    """How many since the last such event."""


class RefusedElsewhere(Event, frozen=True, kw_only=True):
    """A worker on another machine says that it refused frames, jobs or code, from this server or another one.

    Published at once for the first of a kind, then once a minute.
    """

    worker: str
    what: str
    """`frame`, `job`, `code`, or `session` if it declined to open one."""
    reason: str
    server: str
    """The token of the server in whose name it came; empty if it is of none that the worker trusts."""
    count: int
    """How many since the last such event."""


class WorkerAnsweredLate(Event, frozen=True, kw_only=True):
    """A worker answered a call that had ended before, its outcome unknown."""

    tool_name: str
    agent: str
    worker: str
    status: str
    """How the run ended, as a result says it."""
    is_settled: bool
    """Whether the outcome of the call is known now."""
    correlation_id: str


class IdentityRefused(Event, frozen=True, kw_only=True):
    """An access token, a sign-in to the page or a logout of an identity provider counted for nothing.

    Published at once for the first of a kind, then once a minute.
    """

    what: str
    """`access token`, `sign-in` or `logout`."""
    issuer: str
    """The issuer of the configuration that it names; empty if it names none."""
    reason: str
    count: int
    """How many since the last such event."""


class WorkersDisagreed(Event, frozen=True, kw_only=True):
    """Two workers gave different results for the same deterministic call."""

    tool_name: str
    agent: str
    call_id: str
    worker: str
    """Whose result the caller has."""
    other_worker: str
    decided_by: str
    """`server`, or the name of a third worker; empty if nothing could decide."""
    quarantined: tuple[str, ...]
    """The workers that take no more calls; empty if it is not known who is wrong."""
    correlation_id: str


class ToolUnanswered(Event, frozen=True, kw_only=True):
    """A call named a tool that does not exist, is disabled or is quarantined."""

    tool_name: str
    """`unknown` if no such tool is registered: names invented by a model are not used as labels."""
    error_code: str
    correlation_id: str


Listener = Callable[[Event], None]


class Bus:
    """Event bus: delivers events to listeners in order."""

    _log: ClassVar[logging.Logger] = logging.getLogger("toolkeep.events")

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.timed: tuple[Listener, ...] = ()
        """Listeners for passing validations; if there are none, calls are not timed."""

    def subscribe(self, listener: Listener, *, timed: bool = False) -> Callable[[], None]:
        """Subscribe a listener; returns the function to unsubscribe.

        Passing validations are delivered only if `timed`.
        """
        # A new tuple: publishing threads iterate over the old one undisturbed.
        self.listeners = (*self.listeners, listener)
        self.timed += (listener,) if timed else ()

        def stop() -> None:
            self.listeners = _without(self.listeners, listener)
            self.timed = _without(self.timed, listener) if timed else self.timed

        return stop

    def tell_passed(self, event: ValidationPassed) -> None:
        """Publish a passing validation."""
        self._tell(self.timed, event)

    def tell(self, event: Event) -> None:
        """Publish an event; exceptions of listeners are logged."""
        self._tell(self.listeners, event)

    def _tell(self, listeners: tuple[Listener, ...], event: Event) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 -- a listener never disturbs a call
                # The type and not the text of the error: a listener of the host may have put arguments into
                # it.
                fields = {"event": type(event).__name__, "error_type": type(error).__name__}
                self._log.error("a listener failed", extra=fields)


def _without(listeners: tuple[Listener, ...], one: Listener) -> tuple[Listener, ...]:
    """Remove one subscription of a listener that may have several."""
    kept = list(listeners)
    if one in kept:
        kept.remove(one)
    return tuple(kept)
