"""Events as log records (OBS-1): a short message, snake_case fields in `extra`, correlation ids.

Each event has one entry in `_LINES`. A record that no handler would read is not created.
"""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from toolkeep import events
from toolkeep.events import Event
from toolkeep.host.log_lines import ErrorsOnStderr, has_listener
from toolkeep.text.display import visible

_REGISTRY = logging.getLogger("toolkeep.registry")
_VALIDATION = logging.getLogger("toolkeep.validation")
_APPROVAL = logging.getLogger("toolkeep.approval")
_STORE = logging.getLogger("toolkeep.store")
_POLICY = logging.getLogger("toolkeep.policy")
_EXECUTION = logging.getLogger("toolkeep.execution")
_AUDIT = logging.getLogger("toolkeep.audit")
_SERVER = logging.getLogger("toolkeep.server")

logging.getLogger("toolkeep").addHandler(ErrorsOnStderr())


def _all_fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


class _Line(NamedTuple):
    logger: logging.Logger
    level: int
    message: str
    fields: Callable[[Any], Mapping[str, Any]] = _all_fields


def _validated(event: events.ToolDefinitionValidatedEvent) -> dict[str, Any]:
    return {
        "tool_name": event.tool_name,
        "category": event.category,
        "parameter_count": event.parameter_count,
    }


def _failed(event: events.ValidationFailed) -> dict[str, Any]:
    return {
        "tool_name": event.tool_name,
        "agent": event.agent,
        "correlation_id": event.refusal.correlation_id,
        "error_count": len(event.refusal.errors),
        "first_error_code": event.refusal.code.value,
    }


_LINES: dict[type[Event], _Line] = {
    events.StartUpBegan: _Line(
        _REGISTRY,
        logging.INFO,
        "start-up began",
        lambda event: {"providers": ", ".join(event.providers)},
    ),
    events.StartUpEnded: _Line(_REGISTRY, logging.INFO, "start-up ended"),
    events.ToolRegistered: _Line(_REGISTRY, logging.INFO, "tool registered"),
    events.DefinitionWarned: _Line(_REGISTRY, logging.DEBUG, "definition warning"),
    events.RegistrationFailed: _Line(_REGISTRY, logging.ERROR, "tool skipped"),
    events.ProviderSkipped: _Line(_REGISTRY, logging.ERROR, "provider skipped"),
    events.CompilationSlow: _Line(_REGISTRY, logging.WARNING, "slow to compile"),
    events.ToolSwitched: _Line(_REGISTRY, logging.INFO, "tool switched"),
    events.ToolUnregistered: _Line(_REGISTRY, logging.INFO, "tool unregistered"),
    events.ToolQuarantined: _Line(_REGISTRY, logging.WARNING, "tool quarantined"),
    events.ToolAccepted: _Line(_REGISTRY, logging.INFO, "tool accepted"),
    events.FlowDeclared: _Line(_REGISTRY, logging.INFO, "flow declared"),
    events.PoliciesChanged: _Line(_POLICY, logging.INFO, "policies changed"),
    events.CompiledPolicyDisputed: _Line(
        _POLICY,
        logging.ERROR,
        "a compiled policy contradicts Cedar",
        lambda event: {**_all_fields(event), "policies": ", ".join(event.policies)},
    ),
    events.ShadowPolicyFailed: _Line(
        _POLICY,
        logging.ERROR,
        "policies in shadow cannot be evaluated",
        lambda event: {**_all_fields(event), "policies": ", ".join(event.policies)},
    ),
    events.AgentDeclared: _Line(_POLICY, logging.INFO, "agent declared"),
    events.AgentDrifted: _Line(
        _POLICY,
        logging.WARNING,
        "an agent did something new",
        lambda event: {
            "agent": event.agent,
            "kind": event.kind,
            "tool_name": event.tool_name,
            "values": ", ".join(map(visible, event.values)),
            "count": event.count,
        },
    ),
    events.ProjectNotAccepted: _Line(_REGISTRY, logging.WARNING, "project configuration not accepted"),
    events.SettingUnmatched: _Line(
        _REGISTRY,
        logging.WARNING,
        "a setting names no tool",
        lambda event: {"setting": event.setting, "tool_name": event.name, "place": event.place},
    ),
    events.ToolUnanswered: _Line(_REGISTRY, logging.WARNING, "tool does not answer"),
    events.ToolDefinitionValidatedEvent: _Line(
        _REGISTRY,
        logging.INFO,
        "[TLS-DEF] Tool definition validated. "
        "Name: %(tool_name)s, Category: %(category)s, Parameters: %(parameter_count)s",
        _validated,
    ),
    events.ToolDefinitionCreatedEvent: _Line(
        _REGISTRY,
        logging.INFO,
        "[TLS-DEF] Custom tool definition created. "
        "Id: %(definition_id)s, Name: %(tool_name)s, CreatedBy: %(created_by)s",
    ),
    events.ToolDefinitionUpdatedEvent: _Line(
        _REGISTRY,
        logging.INFO,
        "tool definition updated",
        lambda event: {**_all_fields(event), "changed_fields": ", ".join(event.changed_fields)},
    ),
    events.ToolDefinitionDeletedEvent: _Line(_REGISTRY, logging.INFO, "tool definition deleted"),
    events.StoreLost: _Line(_STORE, logging.ERROR, "store lost"),
    events.StoreFollowed: _Line(
        _STORE,
        logging.INFO,
        "store followed",
        lambda event: {**_all_fields(event), "tool_names": ", ".join(event.tool_names)},
    ),
    events.ApprovalRequested: _Line(_APPROVAL, logging.INFO, "approval requested"),
    events.ApprovalDecided: _Line(_APPROVAL, logging.INFO, "approval decided"),
    events.AuditAlarm: _Line(
        _AUDIT,
        logging.ERROR,
        "%(alarm)s",
        lambda event: {**_all_fields(event), "checkpoints": "".join(event.checkpoints)},
    ),
    events.ToolDefinitionRejected: _Line(
        _REGISTRY,
        logging.WARNING,
        "[TLS-DEF] Tool definition validation failed. Name: %(tool_name)s, Errors: %(errors)s",
        lambda event: {"tool_name": event.tool_name, "errors": ", ".join(event.errors)},
    ),
    events.ConstraintViolated: _Line(
        _REGISTRY,
        logging.WARNING,
        "[TLS-DEF] Tool definition constraint violation. "
        "Name: %(tool_name)s, Constraint: %(constraint)s, Value: %(value)s, Max: %(max_value)s",
    ),
    events.CallEnded: _Line(_EXECUTION, logging.INFO, "call ended"),
    events.HostContacted: _Line(_EXECUTION, logging.INFO, "host contacted"),
    events.ContactRefused: _Line(_EXECUTION, logging.WARNING, "contact refused"),
    events.WorkerRefused: _Line(_EXECUTION, logging.WARNING, "frames of a worker refused"),
    events.RefusedElsewhere: _Line(_EXECUTION, logging.WARNING, "a worker refused something"),
    events.IdentityRefused: _Line(_SERVER, logging.WARNING, "identity refused"),
    events.WorkersDisagreed: _Line(_EXECUTION, logging.ERROR, "workers gave different results"),
    events.WorkerAnsweredLate: _Line(_EXECUTION, logging.WARNING, "worker answered late"),
    events.UpstreamAsked: _Line(_EXECUTION, logging.INFO, "upstream asked"),
    events.ValidationPassed: _Line(_VALIDATION, logging.DEBUG, "validation passed"),
    events.ValidationFailed: _Line(_VALIDATION, logging.WARNING, "validation failed", _failed),
}


class LogListener:
    """Event listener that logs to the standard library's loggers below `toolkeep`."""

    def __init__(self, *, validation_failure_level: int = logging.WARNING) -> None:
        failed = _LINES[events.ValidationFailed]._replace(level=validation_failure_level)
        self._lines: dict[type[Event], _Line] = {**_LINES, events.ValidationFailed: failed}

    @property
    def is_timed(self) -> bool:
        """Whether passing validations would be logged at the current level."""
        return _is_heard(_VALIDATION, logging.DEBUG)

    def __call__(self, event: Event) -> None:
        """Log one event if a handler would read it."""
        line = self._lines.get(type(event))
        if line is None or not _is_heard(line.logger, line.level):
            return
        fields = dict(line.fields(event))
        record = (line.message, fields) if "%(" in line.message else (line.message,)
        line.logger.log(line.level, *record, extra=fields)
        # Arguments, even redacted, are logged only at debug level (VAL-6).
        if isinstance(event, events.ValidationFailed) and _VALIDATION.isEnabledFor(logging.DEBUG):
            errors = [error.to_dict() for error in event.refusal.errors]
            details = {**fields, "errors": errors, "arguments": event.arguments()}
            _VALIDATION.debug("validation failed in detail", extra=details)


def _is_heard(logger: logging.Logger, level: int) -> bool:
    """Whether any handler would emit it: a record that nobody reads costs 8 µs."""
    return logger.isEnabledFor(level) and (level >= logging.ERROR or has_listener(logger))


_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName", "asctime"}


class JsonFormatter(logging.Formatter):
    """JSON formatter for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one JSON line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "timestamp": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: value for name, value in vars(record).items() if name not in _PLAIN}
        line |= {name: value for name, value in fields.items() if name not in line}
        if isinstance(record.args, dict):
            line |= {name: value for name, value in record.args.items() if name not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    """Timestamps in the format of `timestamp`."""
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else str(value)
