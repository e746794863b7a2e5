"""Everything that can happen, as data: one frozen struct each, whose docstring is its documentation.

Stages tell a `Bus`; who listens (logs, metrics, a host's own code) is no concern of theirs. A listener that
fails is noted once and never disturbs the call.
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
    "ApprovalDecided",
    "ApprovalRequested",
    "CallEnded",
    "CompilationSlow",
    "ConstraintViolated",
    "ContactRefused",
    "DefinitionWarned",
    "Event",
    "HostContacted",
    "Listener",
    "PoliciesChanged",
    "ProjectNotAccepted",
    "ProviderSkipped",
    "RegistrationFailed",
    "SettingUnmatched",
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
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened."""


class StartUpBegan(Event, frozen=True, kw_only=True):
    """A keep begins to load its providers."""

    providers: tuple[str, ...]


class StartUpEnded(Event, frozen=True, kw_only=True):
    """Every provider was asked; the keep is ready."""

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
    """A definition from elsewhere breaks a rule for authors; it is used all the same."""

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
    """A definition changed after it was pinned; it does not answer until a person accepts it."""

    tool_name: str
    pinned_hash: str
    definition_hash: str


class ToolAccepted(Event, frozen=True, kw_only=True):
    """A person accepted a changed definition."""

    tool_name: str
    version: str
    definition_hash: str


class PoliciesChanged(Event, frozen=True, kw_only=True):
    """A keep decides by other policies from now on."""

    policy_set_hash: str


class AgentDeclared(Event, frozen=True, kw_only=True):
    """An agent may call tools, with what it holds from now on."""

    agent: str


class ProjectNotAccepted(Event, frozen=True, kw_only=True):
    """A project's configuration would run, grant or loosen something; it does not count yet."""

    path: str
    file_hash: str
    effect_count: int


class SettingUnmatched(Event, frozen=True, kw_only=True):
    """The configuration names a tool that there is not, or not yet."""

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
    """The store does not answer; the tools that were read before still do."""

    store: str
    error_message: str


class StoreFollowed(Event, frozen=True, kw_only=True):
    """What another keep changed in the store was taken over."""

    store: str
    revision: int
    tool_names: tuple[str, ...]


class ToolDefinitionRejected(Event, frozen=True, kw_only=True):
    """A definition broke rules; `errors` names each of them."""

    tool_name: str
    errors: tuple[str, ...]


class ConstraintViolated(Event, frozen=True, kw_only=True):
    """A definition asked for more time or output than is allowed."""

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
    """Arguments were refused. `arguments` gives them redacted and cut, for a log at debug."""

    tool_name: str
    agent: str
    refusal: "Refusal"
    arguments: Callable[[], str]


class CallEnded(Event, frozen=True, kw_only=True):
    """A call came to its end: ok, pending or error."""

    tool_name: str
    """`unknown` where no such tool is registered."""
    agent: str
    status: str
    error_code: str
    total_ms: float
    correlation_id: str


class HostContacted(Event, frozen=True, kw_only=True):
    """A confined tool talked to a host, through its way out."""

    tool_name: str
    agent: str
    method: str
    """`CONNECT` for TLS, into which nobody looks."""
    host: str
    port: int
    sent_bytes: int
    received_bytes: int
    correlation_id: str


class ContactRefused(Event, frozen=True, kw_only=True):
    """A confined tool asked for a host and was refused, or what it said broke off."""

    tool_name: str
    agent: str
    method: str
    host: str
    """Empty where the request named none."""
    port: int
    reason: str
    correlation_id: str


class UpstreamAsked(Event, frozen=True, kw_only=True):
    """An upstream MCP server wanted something: an answer of a person, or of a model. Never says what."""

    upstream: str
    agent: str
    """Whose conversation it is."""
    method: str
    """As MCP calls it; `other` for what it does not know."""
    outcome: str
    """What the server was told: `accept`, `decline`, `cancel`, or `refused` where nobody was asked."""
    reason: str


class ApprovalRequested(Event, frozen=True, kw_only=True):
    """A call waits for a person."""

    approval_id: str
    tool_name: str
    agent: str
    danger: str
    expires_at: datetime
    timestamp: datetime


class ApprovalDecided(Event, frozen=True, kw_only=True):
    """A call no longer waits: somebody said yes or no, or nobody did in time."""

    approval_id: str
    tool_name: str
    agent: str
    verdict: str
    """`approved`, `denied`, `expired`, or `withdrawn` where the caller gave up."""
    approver: str
    """Empty where nobody answered."""
    timestamp: datetime


class ToolUnanswered(Event, frozen=True, kw_only=True):
    """A call named a tool that does not exist, is disabled or is quarantined."""

    tool_name: str
    """`unknown` where no such tool is registered: what a model invents is no label."""
    error_code: str
    correlation_id: str


Listener = Callable[[Event], None]


class Bus:
    """Hands events to listeners, in the order in which they came."""

    _log: ClassVar[logging.Logger] = logging.getLogger("toolkeep.events")

    def __init__(self) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.timed: tuple[Listener, ...] = ()
        """Those who want to know of every call that passes; where there are none, none is timed."""

    def subscribe(self, listener: Listener, *, timed: bool = False) -> Callable[[], None]:
        """Tell the listener of everything; returns how to stop. Of calls that pass only if `timed`."""
        self.listeners = (*self.listeners, listener)
        self.timed += (listener,) if timed else ()

        def stop() -> None:
            self.listeners = _without(self.listeners, listener)
            self.timed = _without(self.timed, listener) if timed else self.timed

        return stop

    def tell_passed(self, event: ValidationPassed) -> None:
        """Hand a call that passed to those who asked for it."""
        self._tell(self.timed, event)

    def tell(self, event: Event) -> None:
        """Hand an event to everyone; nobody can break the teller."""
        self._tell(self.listeners, event)

    def _tell(self, listeners: tuple[Listener, ...], event: Event) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 -- a listener never disturbs a call
                fields = {"event": type(event).__name__, "error_type": type(error).__name__}
                self._log.error("a listener failed", extra=fields)


def _without(listeners: tuple[Listener, ...], one: Listener) -> tuple[Listener, ...]:
    """One subscription less, where a listener has several."""
    kept = list(listeners)
    if one in kept:
        kept.remove(one)
    return tuple(kept)
