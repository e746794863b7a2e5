"""Exception hierarchy, and every error code that a refusal or problem can carry.

    ToolkeepError
    ├── UnknownTool            ACODE-TSR-001   no tool of that name
    ├── ArgumentsRefused       001 … 018       validate_arguments: invalid call; holds the refusal
    ├── DefinitionError                        a definition cannot be used; holds every problem
    │   ├── SchemaRefused      ACODE-TSR-006   its schema violates our rules
    │   ├── SchemaBroken       ACODE-TSR-008   its schema does not compile
    │   ├── DefinitionInvalid  ACODE-TSR-009   another field is invalid
    │   └── ContractBroken     ACODE-TSR-015   an agent-tool class breaks its contract
    ├── DuplicateTool          ACODE-TSR-007   the name and version are taken by another definition
    ├── StaysDisabled          ACODE-TSR-012   the configuration disables the tool
    ├── FileUnreadable         ACODE-TSR-016   a file cannot be read
    ├── SecretUnavailable      ACODE-TSR-017   context.secret: the secret was not granted
    ├── LicenseRequired        ACODE-TSR-019   the tier does not include it
    ├── BuiltInProtected       ACODE-TSR-020   a built-in tool cannot be changed or removed
    ├── ConfigurationInvalid   ACODE-TSR-021   a configuration file is invalid
    ├── ProviderFailed         ACODE-TSR-022   a provider of tools could not be loaded
    ├── StateUnusable          ACODE-TSR-023   the state folder of the keep cannot be used
    ├── AuditBroken, …         ACODE-TSR-023   nor its audit log or receipts: `audit/errors.py`
    ├── NotAccepted            ACODE-TSR-024   a person did not accept what was shown
    ├── FeatureClosed          ACODE-TSR-025   the configuration switches a feature off
    ├── CalledAtImport         ACODE-TSR-038   a file makes calls while a worker imports it for its tools
    ├── Sandbox…               ACODE-TSR-037   isolation is not available: `sandbox/errors.py`
    ├── NotRecorded            ACODE-TSR-041   there is no record to prove
    ├── PoliciesRefused        ACODE-TSR-044   policies cannot be used: `policy/policy_set.py`
    ├── NotAnswered            ACODE-TSR-047   an invalid approval answer: `cli/approve.py`
    ├── UnknownProvider        ACODE-TSR-051   no model provider of that name is supported
    ├── ResponseUnreadable     ACODE-TSR-052   a model's response cannot be parsed
    ├── ExtraMissing           ACODE-TSR-054   an optional package is not installed
    ├── StoreUnavailable       ACODE-TSR-055   the database of definitions or tokens is unavailable
    ├── StoreConflict          ACODE-TSR-056   a change conflicts with what is stored
    ├── StoreLayoutUnfit       ACODE-TSR-057   the database schema has another version
    ├── TokenRefused           ACODE-TSR-058   a token cannot be created, found or used
    ├── BackupRefused          ACODE-TSR-059   a backup cannot be created, read or restored
    ├── LockInvalid            ACODE-TSR-075   toolkeep.lock cannot be read
    ├── ImportRefused          ACODE-TSR-076   nothing can be imported from a document or server
    ├── SignInFailed           ACODE-TSR-087   sign-in to an upstream server failed
    ├── FleetUnavailable       ACODE-TSR-091   NATS, which leads to workers elsewhere, cannot be used
    └── RequestRefused         060 … 086       a request is refused: `server/http/problem_details.py`

Exceptions are for authors, operators and bugs. What a better call could have avoided is a value,
`toolkeep.Refusal`, with one of the same codes.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from toolkeep.calls import Refusal

__all__ = [
    "TITLES",
    "ArgumentsRefused",
    "BackupRefused",
    "BuiltInProtected",
    "CalledAtImport",
    "Code",
    "ConfigurationInvalid",
    "ContractBroken",
    "DefinitionError",
    "DefinitionInvalid",
    "DuplicateTool",
    "ExtraMissing",
    "FeatureClosed",
    "FileUnreadable",
    "FleetUnavailable",
    "ImportRefused",
    "LicenseRequired",
    "LockInvalid",
    "NotAccepted",
    "NotRecorded",
    "Problem",
    "ProviderFailed",
    "ResponseUnreadable",
    "SchemaBroken",
    "SchemaRefused",
    "SecretUnavailable",
    "SignInFailed",
    "StateUnusable",
    "StaysDisabled",
    "StoreConflict",
    "StoreLayoutUnfit",
    "StoreUnavailable",
    "TokenRefused",
    "ToolkeepError",
    "UnknownProvider",
    "UnknownTool",
]


_NAME_CHARS: Final = 80
"""Characters of an unknown name in a message: callers choose it, and a message must stay readable. As
`ECHOED_CHARS`; this module imports nothing of the package."""
_SEE_NAMES: Final = "list the tools: `toolkeep list`, or keep.tools()"
_FAULTS: Final = 50
"""Maximum number of faults listed in one error."""


class Code(StrEnum):
    """Stable error codes; each has a page in docs/errors/."""

    UNKNOWN_TOOL = "ACODE-TSR-001"
    NOT_JSON = "ACODE-TSR-002"
    REQUIRED_MISSING = "ACODE-TSR-003"
    WRONG_TYPE = "ACODE-TSR-004"
    CONSTRAINT = "ACODE-TSR-005"
    SCHEMA_REFUSED = "ACODE-TSR-006"
    DUPLICATE_TOOL = "ACODE-TSR-007"
    SCHEMA_BROKEN = "ACODE-TSR-008"
    DEFINITION_INVALID = "ACODE-TSR-009"
    ARGUMENTS_TOO_BIG = "ACODE-TSR-010"
    WORK_EXCEEDED = "ACODE-TSR-011"
    TOOL_DISABLED = "ACODE-TSR-012"
    REFUSED_REPEATEDLY = "ACODE-TSR-013"
    CHECK_FAILED = "ACODE-TSR-014"
    CONTRACT_BROKEN = "ACODE-TSR-015"
    FILE_UNREADABLE = "ACODE-TSR-016"
    SECRET_UNAVAILABLE = "ACODE-TSR-017"  # noqa: S105 -- a code, not a secret
    TOOL_QUARANTINED = "ACODE-TSR-018"
    TIER_EXCEEDED = "ACODE-TSR-019"
    BUILT_IN_PROTECTED = "ACODE-TSR-020"
    CONFIGURATION_INVALID = "ACODE-TSR-021"
    PROVIDER_FAILED = "ACODE-TSR-022"
    STATE_UNUSABLE = "ACODE-TSR-023"
    NOT_ACCEPTED = "ACODE-TSR-024"
    FEATURE_CLOSED = "ACODE-TSR-025"
    AGENT_UNKNOWN = "ACODE-TSR-026"
    NOT_PERMITTED = "ACODE-TSR-027"
    APPROVAL_NEEDED = "ACODE-TSR-028"
    RATE_LIMITED = "ACODE-TSR-029"
    QUEUE_FULL = "ACODE-TSR-030"
    CIRCUIT_OPEN = "ACODE-TSR-031"
    TIMED_OUT = "ACODE-TSR-032"
    CANCELLED = "ACODE-TSR-033"
    TOOL_FAILED = "ACODE-TSR-034"
    OUTPUT_INVALID = "ACODE-TSR-035"
    OUTPUT_TOO_BIG = "ACODE-TSR-036"
    ISOLATION_UNAVAILABLE = "ACODE-TSR-037"
    NOT_RUNNABLE = "ACODE-TSR-038"
    KEY_CONFLICT = "ACODE-TSR-039"
    OUTCOME_UNKNOWN = "ACODE-TSR-040"
    NOT_RECORDED = "ACODE-TSR-041"
    NOT_PENDING = "ACODE-TSR-042"
    OPTION_REFUSED = "ACODE-TSR-043"
    POLICIES_INVALID = "ACODE-TSR-044"
    TOUCHED_CHANGED = "ACODE-TSR-045"
    APPROVAL_DENIED = "ACODE-TSR-046"
    ANSWER_REFUSED = "ACODE-TSR-047"
    CALL_UNFINISHED = "ACODE-TSR-050"
    MODEL_PROVIDER_UNKNOWN = "ACODE-TSR-051"
    RESPONSE_UNREADABLE = "ACODE-TSR-052"
    NOT_EXPRESSIBLE = "ACODE-TSR-053"
    EXTRA_MISSING = "ACODE-TSR-054"
    STORE_UNAVAILABLE = "ACODE-TSR-055"
    STORE_CONFLICT = "ACODE-TSR-056"
    STORE_LAYOUT_UNFIT = "ACODE-TSR-057"
    TOKEN_REFUSED = "ACODE-TSR-058"  # noqa: S105 -- a code, not a secret
    BACKUP_REFUSED = "ACODE-TSR-059"
    NOT_AUTHENTICATED = "ACODE-TSR-060"
    SCOPE_MISSING = "ACODE-TSR-061"
    REQUEST_INVALID = "ACODE-TSR-062"
    REQUEST_TOO_BIG = "ACODE-TSR-063"
    NOT_SPOKEN_TO = "ACODE-TSR-064"
    NOTHING_THERE = "ACODE-TSR-065"
    METHOD_REFUSED = "ACODE-TSR-066"
    CHANGED_MEANWHILE = "ACODE-TSR-067"
    NOT_SERVING = "ACODE-TSR-068"
    MEDIA_REFUSED = "ACODE-TSR-069"
    LOCK_INVALID = "ACODE-TSR-075"
    IMPORT_REFUSED = "ACODE-TSR-076"
    SIGN_IN_REFUSED = "ACODE-TSR-085"
    NOT_FROM_PAGE = "ACODE-TSR-086"
    UPSTREAM_SIGN_IN = "ACODE-TSR-087"
    OUTCOME_NOT_RECORDED = "ACODE-TSR-088"
    HOOK_REFUSED = "ACODE-TSR-089"
    RESULT_WITHHELD = "ACODE-TSR-090"
    WORKER_UNAVAILABLE = "ACODE-TSR-091"
    NOT_CONFIRMED = "ACODE-TSR-092"
    REFERENCE_REFUSED = "ACODE-TSR-093"


FAILURES: Final = frozenset(
    {
        Code.TIMED_OUT,
        Code.CANCELLED,
        Code.TOOL_FAILED,
        Code.OUTPUT_INVALID,
        Code.OUTPUT_TOO_BIG,
        Code.OUTCOME_NOT_RECORDED,
        Code.RESULT_WITHHELD,
    }
)
"""The tool was run, but there is no result."""

NOT_BEGUN: Final = frozenset(
    {Code.CIRCUIT_OPEN, Code.TOUCHED_CHANGED, Code.TOOL_QUARANTINED, Code.WORKER_UNAVAILABLE}
)
"""The call was recorded, and its tool was not run."""

TITLES: Final[dict[Code, str]] = {
    Code.UNKNOWN_TOOL: "unknown tool",
    Code.NOT_JSON: "arguments are not JSON",
    Code.REQUIRED_MISSING: "required property missing",
    Code.WRONG_TYPE: "wrong type",
    Code.CONSTRAINT: "constraint violated or property unknown",
    Code.SCHEMA_REFUSED: "schema violates toolkeep's rules",
    Code.DUPLICATE_TOOL: "tool already registered",
    Code.SCHEMA_BROKEN: "schema does not compile",
    Code.DEFINITION_INVALID: "definition invalid",
    Code.ARGUMENTS_TOO_BIG: "arguments too large or too deeply nested",
    Code.WORK_EXCEEDED: "validation would be too expensive",
    Code.TOOL_DISABLED: "tool disabled",
    Code.REFUSED_REPEATEDLY: "too many refused calls in a row",
    Code.CHECK_FAILED: "internal error during validation",
    Code.CONTRACT_BROKEN: "agent-tool class breaks its contract",
    Code.FILE_UNREADABLE: "file cannot be read",
    Code.SECRET_UNAVAILABLE: "secret not available",
    Code.TOOL_QUARANTINED: "tool quarantined",
    Code.TIER_EXCEEDED: "not included in this tier",
    Code.BUILT_IN_PROTECTED: "built-in tool protected",
    Code.CONFIGURATION_INVALID: "configuration invalid",
    Code.PROVIDER_FAILED: "provider failed",
    Code.STATE_UNUSABLE: "state folder unusable",
    Code.NOT_ACCEPTED: "not accepted",
    Code.FEATURE_CLOSED: "feature disabled",
    Code.AGENT_UNKNOWN: "agent not declared",
    Code.NOT_PERMITTED: "not permitted",
    Code.APPROVAL_NEEDED: "approval required",
    Code.RATE_LIMITED: "too many calls",
    Code.QUEUE_FULL: "queue full",
    Code.CIRCUIT_OPEN: "circuit breaker open",
    Code.TIMED_OUT: "timeout",
    Code.CANCELLED: "cancelled",
    Code.TOOL_FAILED: "tool failed",
    Code.OUTPUT_INVALID: "output invalid",
    Code.OUTPUT_TOO_BIG: "output too large",
    Code.ISOLATION_UNAVAILABLE: "isolation not available",
    Code.NOT_RUNNABLE: "tool cannot be run",
    Code.KEY_CONFLICT: "idempotency key used for another call",
    Code.OUTCOME_UNKNOWN: "outcome unknown",
    Code.NOT_RECORDED: "call could not be recorded",
    Code.OUTCOME_NOT_RECORDED: "tool ran, but its outcome could not be recorded",
    Code.HOOK_REFUSED: "refused by a hook",
    Code.RESULT_WITHHELD: "tool ran, but a hook withheld its result",
    Code.NOT_PENDING: "no such pending call",
    Code.OPTION_REFUSED: "invalid option",
    Code.POLICIES_INVALID: "policies cannot be used",
    Code.TOUCHED_CHANGED: "accessed resource has changed",
    Code.APPROVAL_DENIED: "approval denied",
    Code.ANSWER_REFUSED: "answer not accepted",
    Code.CALL_UNFINISHED: "call not finished",
    Code.MODEL_PROVIDER_UNKNOWN: "unknown model provider",
    Code.RESPONSE_UNREADABLE: "response cannot be read",
    Code.NOT_EXPRESSIBLE: "tool not supported by the provider",
    Code.EXTRA_MISSING: "optional package not installed",
    Code.STORE_UNAVAILABLE: "store not available",
    Code.STORE_CONFLICT: "change conflicts with the store",
    Code.STORE_LAYOUT_UNFIT: "store has another schema version",
    Code.TOKEN_REFUSED: "token refused",
    Code.BACKUP_REFUSED: "backup refused",
    Code.NOT_AUTHENTICATED: "no valid token",
    Code.SCOPE_MISSING: "scope missing",
    Code.REQUEST_INVALID: "invalid request",
    Code.REQUEST_TOO_BIG: "request too large or too slow",
    Code.NOT_SPOKEN_TO: "host or origin not allowed",
    Code.NOTHING_THERE: "not found",
    Code.METHOD_REFUSED: "method not allowed",
    Code.CHANGED_MEANWHILE: "precondition failed",
    Code.NOT_SERVING: "server busy or shutting down",
    Code.MEDIA_REFUSED: "unsupported media type",
    Code.LOCK_INVALID: "lock file invalid",
    Code.IMPORT_REFUSED: "import refused",
    Code.UPSTREAM_SIGN_IN: "not signed in to the upstream",
    Code.SIGN_IN_REFUSED: "sign-in refused",
    Code.NOT_FROM_PAGE: "request not sent by the page",
    Code.WORKER_UNAVAILABLE: "no worker available",
    Code.NOT_CONFIRMED: "change not confirmed",
    Code.REFERENCE_REFUSED: "reference not resolved",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a definition: where, what, and how to fix it."""

    field: str
    """Dotted name or JSON Pointer inside the definition, `parameters/properties/path`."""
    code: Code
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message} ({self.fix})"

    def to_dict(self) -> dict[str, str]:
        """Serialize to JSON data."""
        return {"field": self.field, "code": self.code.value, "message": self.message, "fix": self.fix}


class ToolkeepError(Exception):
    """Base of every exception that toolkeep raises on purpose."""

    code: Code
    hint: str

    def __init__(self, code: Code, message: str, *, hint: str = "") -> None:
        super().__init__(f"{code.value}: {message}" + (f"\nhint: {hint}" if hint else ""))
        self.code = code
        self.message = message
        self.hint = hint


class UnknownTool(ToolkeepError):
    """No tool of that name is registered."""

    def __init__(self, name: str, *, near: Sequence[str] = ()) -> None:
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?" if near else _SEE_NAMES
        shown = name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…"
        super().__init__(Code.UNKNOWN_TOOL, f"no tool named {shown!r} is registered", hint=hint)
        self.name = name


class ArgumentsRefused(ToolkeepError):
    """`validate_arguments`: invalid arguments. `refusal` is what `try_validate_arguments` returns."""

    def __init__(self, refusal: "Refusal") -> None:
        super().__init__(refusal.code, refusal.text)
        self.refusal = refusal


class DefinitionError(ToolkeepError):
    """A definition is invalid. `problems` lists every problem."""

    code_of_class: Code = Code.DEFINITION_INVALID

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(self.code_of_class, f"tool {name!r} cannot be used:{lines}")
        self.name = name
        self.problems = tuple(problems)


class DefinitionInvalid(DefinitionError):
    """A field of the definition violates the rules for definitions."""


class SchemaRefused(DefinitionError):
    """The schema is well-formed but violates toolkeep's rules."""

    code_of_class = Code.SCHEMA_REFUSED


class SchemaBroken(DefinitionError):
    """The schema does not compile as JSON Schema."""

    code_of_class = Code.SCHEMA_BROKEN


class ContractBroken(DefinitionError):
    """An agent-tool class violates its contract."""

    code_of_class = Code.CONTRACT_BROKEN


class DuplicateTool(ToolkeepError):
    """Another definition has this name and version."""

    def __init__(
        self, name: str, *, held_by: str, hint: str = "give yours another name, or a higher version"
    ) -> None:
        super().__init__(Code.DUPLICATE_TOOL, f"tool {name!r} is already registered by {held_by}", hint=hint)
        self.name = name


class StaysDisabled(ToolkeepError):
    """A tool disabled by the configuration cannot be enabled elsewhere."""

    def __init__(self, name: str, *, why: str) -> None:
        super().__init__(
            Code.TOOL_DISABLED,
            f"tool {name!r} stays disabled: {why}",
            hint="remove it from disabled_tools there",
        )
        self.name = name


class FileUnreadable(ToolkeepError):
    """A file cannot be read; with line and column if known."""

    def __init__(self, path: str, reason: str, *, line: int | None = None, column: int | None = None) -> None:
        place = path if line is None else f"{path}:{line}:{column}"
        super().__init__(Code.FILE_UNREADABLE, f"{place}: {reason}")
        self.path, self.line, self.column = path, line, column


class SecretUnavailable(ToolkeepError):
    """A tool requested a secret that was not granted to this call."""

    def __init__(self, name: str, *, reason: str = "", hint: str = "") -> None:
        said = f"the secret {name!r} is not available: {reason}" if reason else ""
        super().__init__(
            Code.SECRET_UNAVAILABLE,
            said or f"no secret named {name!r} was given to this call",
            hint=hint or "pass it to open_keep(tool_secrets=…), or configure it",
        )
        self.name = name


class LicenseRequired(ToolkeepError):
    """The license tier of this keep does not include the feature."""

    def __init__(self, what: str, *, tier: str, needed: str) -> None:
        super().__init__(
            Code.TIER_EXCEEDED,
            f"{what} is not included in the tier {tier}",
            hint=f"it needs the tier {needed}: set `tier: {needed}` in your configuration",
        )
        self.needed = needed


class BuiltInProtected(ToolkeepError):
    """A built-in tool cannot be overwritten, changed or deleted."""

    def __init__(self, name: str, *, action: str) -> None:
        super().__init__(
            Code.BUILT_IN_PROTECTED,
            f"{name!r} is a built-in tool and cannot be {action}",
            hint=f"switch it off with `toolkeep disable {name}`",
        )
        self.name = name


class ConfigurationInvalid(ToolkeepError):
    """A configuration file is invalid; each of `faults` begins with its position."""

    def __init__(self, faults: Sequence[str]) -> None:
        more = f"\n  - and {len(faults) - _FAULTS} more" if len(faults) > _FAULTS else ""
        several = f"{len(faults)} faults:" + "".join(f"\n  - {fault}" for fault in faults[:_FAULTS]) + more
        super().__init__(Code.CONFIGURATION_INVALID, faults[0] if len(faults) == 1 else several)
        self.faults = tuple(faults)


class ProviderFailed(ToolkeepError):
    """A tool provider could not be loaded, or failed while listing its tools."""

    def __init__(self, provider: str, reason: str, *, hint: str = "") -> None:
        super().__init__(Code.PROVIDER_FAILED, f"provider {provider!r} {reason}", hint=hint)
        self.provider = provider


class StateUnusable(ToolkeepError):
    """The state folder (acceptances, switches, pins) cannot be used safely."""

    def __init__(self, path: str, reason: str, *, hint: str) -> None:
        super().__init__(Code.STATE_UNUSABLE, f"{path}: {reason}", hint=hint)
        self.path = path


class NotAccepted(ToolkeepError):
    """Nothing was accepted: there was no terminal to confirm, or the content changed after it was shown."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.NOT_ACCEPTED, reason, hint=hint)


class FeatureClosed(ToolkeepError):
    """The configuration disables the feature."""

    def __init__(self, what: str, *, key: str) -> None:
        super().__init__(
            Code.FEATURE_CLOSED, f"{what}: {key} is false", hint=f"set {key}: true in your configuration"
        )


class CalledAtImport(ToolkeepError):
    """A file makes calls at import time, while a worker imports it for a tool."""

    def __init__(self) -> None:
        super().__init__(
            Code.NOT_RUNNABLE,
            "a worker imports this file to run one of its tools; nothing can be called during the import",
            hint='put the calls below `if __name__ == "__main__":`',
        )


class LockInvalid(ToolkeepError):
    """A toolkeep.lock is malformed, for example after a partial merge."""

    def __init__(self, path: str, line: int, reason: str, *, hint: str = "") -> None:
        place = f"{path}:{line}" if line else path
        hint = hint or "restore the committed file; or delete it and write a new one: toolkeep lock"
        super().__init__(Code.LOCK_INVALID, f"{place}: {reason}", hint=hint)
        self.path, self.line = path, line


class ImportRefused(ToolkeepError):
    """Nothing can be imported from a document or server."""

    def __init__(self, what: str, reason: str, *, hint: str = "") -> None:
        super().__init__(Code.IMPORT_REFUSED, f"{what}: {reason}", hint=hint)


class SignInFailed(ToolkeepError):
    """The sign-in to an upstream server failed."""

    def __init__(self, upstream: str, reason: str, *, hint: str = "") -> None:
        super().__init__(Code.UPSTREAM_SIGN_IN, f"upstream '{upstream}': {reason}", hint=hint)


class NotRecorded(ToolkeepError):
    """The audit log does not contain it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(Code.NOT_RECORDED, reason, hint=hint)


class UnknownProvider(ToolkeepError):
    """No model provider of that name is supported."""

    def __init__(self, name: str, *, known: Sequence[str]) -> None:
        shown = name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…"
        message = f"there is no model provider {shown!r}"
        super().__init__(Code.MODEL_PROVIDER_UNKNOWN, message, hint="known providers: " + ", ".join(known))
        self.name = name


class ResponseUnreadable(ToolkeepError):
    """A model response or stream event cannot be parsed as that provider's."""

    def __init__(self, provider: str, reason: str) -> None:
        hint = "pass the response exactly as the provider's SDK or API returned it"
        super().__init__(
            Code.RESPONSE_UNREADABLE, f"cannot read the {provider} response: {reason}", hint=hint
        )
        self.provider = provider


class ExtraMissing(ToolkeepError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, *, package: str, extra: str) -> None:
        message = f"{what} needs the package {package}, which is not installed"
        super().__init__(Code.EXTRA_MISSING, message, hint=f"install toolkeep[{extra}]")
        self.package = package


class FleetUnavailable(ToolkeepError):
    """NATS, which leads to workers on other machines, cannot be used."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.WORKER_UNAVAILABLE, reason, hint=hint)


class StoreUnavailable(ToolkeepError):
    """The database of definitions or tokens is unavailable. Data read before is still served."""

    def __init__(self, store: str, reason: str, *, hint: str) -> None:
        super().__init__(Code.STORE_UNAVAILABLE, f"the store {store} cannot be used: {reason}", hint=hint)
        self.store = store


class StoreConflict(ToolkeepError):
    """A change conflicts with what is stored; nothing was changed. `field` is the one that conflicts."""

    def __init__(self, name: str, reason: str, *, hint: str, field: str = "name") -> None:
        super().__init__(Code.STORE_CONFLICT, f"tool {name!r} {reason}", hint=hint)
        self.name = name
        self.field = field


class StoreLayoutUnfit(ToolkeepError):
    """The database schema is older, newer or foreign."""

    def __init__(self, store: str, reason: str, *, hint: str) -> None:
        super().__init__(Code.STORE_LAYOUT_UNFIT, f"the tables of the store {store} {reason}", hint=hint)
        self.store = store


class TokenRefused(ToolkeepError):
    """A token cannot be created, found or used."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.TOKEN_REFUSED, reason, hint=hint)


class BackupRefused(ToolkeepError):
    """A backup cannot be created, read or restored; nothing was changed."""

    def __init__(self, path: str, reason: str, *, hint: str) -> None:
        super().__init__(Code.BACKUP_REFUSED, f"{path}: {reason}", hint=hint)
        self.path = path
