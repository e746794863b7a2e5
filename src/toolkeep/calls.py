"""Call types: one per pipeline stage. Each stage demands the type that proves the stage before it ran.

    ToolCall ─validate─▶ CheckedCall ─authorize─▶ PermittedCall ─approve─▶ ApprovedCall ─record─▶ RecordedCall
             ─execute─▶ RawOutput ─check─▶ CheckedOutput ─normalize─▶ ToolResult

Each type is created only by its own stage (a test checks it), so that no code path can execute a call that
was not authorized. Any stage may return a `Refusal`.
"""

import base64
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, final

import msgspec
from msgspec import UNSET, UnsetType

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import CallKind, Danger, ToolState
from toolkeep.errors import Code, Problem
from toolkeep.text.display import echo_name, excerpt, visible
from toolkeep.text.refusal_text import refusal_text

if TYPE_CHECKING:
    from toolkeep.validation.compile import CompiledSchema
    from toolkeep.validation.tool_schemas import ToolSchemas


class RegisteredTool(msgspec.Struct, frozen=True, eq=False):
    """An admitted definition with its compiled schemas, its runner and its state."""

    definition: ToolDefinition
    schemas: "ToolSchemas"
    """Its compiled schemas."""
    runner: Any = None
    """The function or instance that the host registered, or a description of what runs it."""
    warnings: tuple[Problem, ...] = ()
    """Authoring rules that an imported definition violates."""
    definition_hash: str = ""
    code_hash: str = ""
    """Hash of its code, if that comes from a file of tools: such a file can be reloaded."""
    provider: str = "code"
    """The provider that registered it; a name belongs to its first provider (no shadowing)."""
    is_built_in: bool = False
    is_custom: bool = False
    """Whether it counts towards the custom definitions of a license tier."""
    state: ToolState = ToolState.ENABLED
    why: str = ""
    """Why it cannot be called, if so."""
    arrived: ToolDefinition | None = None
    """The definition of an import as its upstream brought it, if a person declared its flow."""
    own: ToolDefinition | None = None
    """The definition without the danger that a person set, if one did."""
    suspicion: str = ""
    """Suspicious text in an imported definition (prompt injection) that a person should review first."""
    compile_ms: float = 0.0
    """Processor time of its admission."""
    may_write: bool = True
    """Whether a call may have write effects; undeclared effects count as writes (DEF-7)."""
    effect_names: tuple[str, ...] | None = None
    """Names of its side effects; None if undeclared."""
    capability_names: tuple[str, ...] = ()
    """Names of the capabilities it requires."""
    danger: Danger = Danger.MEDIUM
    """The effective danger level, always that of the definition."""
    is_undeclared: bool = True
    """Whether the definition declares neither danger nor side effects."""
    name: str = ""
    """The name, always that of the definition."""
    version: str = ""
    """The version of its definition."""

    def __post_init__(self) -> None:
        # Cached copies: every call reads them several times. `structs.replace` runs this too, so they stay
        # true.
        msgspec.structs.force_setattr(self, "name", self.definition.name)
        msgspec.structs.force_setattr(self, "version", self.definition.version)
        msgspec.structs.force_setattr(self, "danger", self.definition.danger_level)
        msgspec.structs.force_setattr(self, "is_undeclared", self.definition.is_undeclared)

    @property
    def arguments(self) -> "CompiledSchema":
        """The compiled schema of its parameters."""
        return self.schemas.arguments

    @property
    def output(self) -> "CompiledSchema | None":
        """The compiled output schema, if any."""
        return self.schemas.output

    @property
    def run_key(self) -> str:
        """Definition and code: what results and failures of earlier calls are about."""
        return self.definition_hash + self.code_hash

    @property
    def is_enabled(self) -> bool:
        """Whether it can be called."""
        return self.state is ToolState.ENABLED

    def __repr__(self) -> str:
        return f"<tool {self.definition.name} {self.definition.version}>"


class Words(msgspec.Struct, frozen=True, gc=False):
    """The texts of a violation."""

    message: str
    expected: str
    actual: str | None
    suggestion: str


@final
class Violation:
    """One validation error of a call, worded so that a model can fix it. Immutable.

    Its texts may be computed lazily, on first access.
    """

    __slots__ = ("_words", "code", "path")

    path: str
    """JSON Pointer of the invalid property, also if it is missing or unknown."""
    code: Code
    _words: Words | Callable[[], Words]

    def __init__(
        self, path: str, code: Code, message: str, expected: str, actual: str | None, suggestion: str
    ) -> None:
        _set(self, "path", path)
        _set(self, "code", code)
        _set(self, "_words", Words(message, expected, actual, suggestion))

    @classmethod
    def worded_later(cls, path: str, code: Code, words: Callable[[], Words]) -> "Violation":
        """Create one with lazy texts.

        `words` must be pure: two threads that read at once may both call it.
        """
        violation = _new(cls)
        _set(violation, "path", path)
        _set(violation, "code", code)
        _set(violation, "_words", words)
        return violation

    @property
    def words(self) -> Words:
        """All texts, computed on first access."""
        words = self._words  # read once: another thread may replace it meanwhile
        if type(words) is Words:
            return words
        made: Words = words()  # type: ignore[operator]  # a callable, the other case
        _set(self, "_words", made)  # drops the closure, which holds the arguments
        return made

    @property
    def message(self) -> str:
        """What is wrong."""
        return self.words.message

    @property
    def expected(self) -> str:
        """The expected value or type."""
        return self.words.expected

    @property
    def actual(self) -> str | None:
        """The actual value, redacted and truncated."""
        return self.words.actual

    @property
    def suggestion(self) -> str:
        """The suggested fix."""
        return self.words.suggestion

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        words = self.words
        return {
            "path": self.path,
            "code": self.code.value,
            "message": words.message,
            "expected": words.expected,
            "actual": words.actual,
            "suggestion": words.suggestion,
        }

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a violation cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not Violation:
            return NotImplemented
        return (self.path, self.code) == (other.path, other.code) and self.words == other.words

    def __hash__(self) -> int:
        return hash((self.path, self.code, self.words))

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in msgspec.structs.asdict(self.words).items())
        return f"Violation(path={self.path!r}, code={self.code!r}, {said})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies contain the texts, and none of the call's arguments."""
        return Violation, (self.path, self.code, *msgspec.structs.astuple(self.words))


_new: Final = object.__new__
_set: Final = object.__setattr__


class CheckedCall(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A validated call: arguments that satisfy the tool's schema, with defaults filled in."""

    success: ClassVar[Literal[True]] = True
    errors: ClassVar[tuple[Violation, ...]] = ()
    repair: ClassVar[None] = None

    registered: RegisteredTool
    arguments: dict[str, Any]

    @property
    def tool(self) -> str:
        """The tool's name."""
        return self.registered.definition.name

    @property
    def schema_hint(self) -> str:
        """The tool's signature in one line."""
        return self.registered.arguments.hint(self.tool)

    def __repr__(self) -> str:
        """Without the values: some may be secret."""
        return f"<call of {self.tool} with {', '.join(self.arguments) or 'no arguments'}>"

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        return {"success": True, "tool": self.tool, "arguments": self.arguments}


Repair = tuple[dict[str, Any], ...]
"""A JSON Patch (RFC 6902) that would make a refused call valid; suggested, never applied."""


class Advice:
    """Schema hint and repair of a refusal, each computed lazily."""

    __slots__ = ("_repair", "_schema_hint")

    def __init__(
        self,
        schema_hint: str | Callable[[], str] = "",
        repair: Repair | Callable[[], Repair | None] | None = None,
    ) -> None:
        self._schema_hint, self._repair = schema_hint, repair

    @property
    def schema_hint(self) -> str:
        """The tool's signature in one line."""
        hint = self._schema_hint
        if callable(hint):
            hint = self._schema_hint = hint()
        return hint

    @property
    def repair(self) -> Repair | None:
        """The repair, if there is an unambiguous one."""
        repair = self._repair
        if callable(repair):
            repair = self._repair = repair()
        return repair

    def __repr__(self) -> str:
        return f"Advice(schema_hint={self.schema_hint!r}, repair={self.repair!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies contain the computed texts, and none of the call's arguments."""
        return Advice, (self.schema_hint, self.repair)


NO_ADVICE: Final = Advice()


class Denied(StrEnum):
    """What a tool was denied, or the limit that it exceeded."""

    FILE = "file"
    """A file or a folder."""
    HOST = "host"
    PROGRAM = "program"
    SYSTEM_CALL = "system call"
    PROCESSES = "processes"
    """Processes and threads."""
    MEMORY = "memory"
    PROCESSOR_TIME = "processor time"
    OPEN_FILES = "open files"
    FILE_SIZE = "file size"
    DISK_SPACE = "disk space"
    OUTPUT_SIZE = "output size"
    TIME = "time"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Why a tool failed, for the operator: it names paths, hosts and code.

    `print(diagnosis)` shows all of it. No text or JSON for a caller contains it.
    """

    denied: Denied | None = None
    """None if nothing was denied, as far as is known."""
    subject: str = ""
    """The denied path, host or program."""
    limit: str = ""
    """The exceeded limit, with its unit."""
    remedy: str = ""
    """What the operator can change."""
    detail: str = ""
    """Traceback, or the end of a program's standard error: untrusted, redacted, escaped and truncated."""

    @property
    def text(self) -> str:
        """All of it, in lines."""
        what = " ".join(filter(None, (self.denied, self.subject)))
        said = f"Limit: {what}, {self.limit}" if self.limit else f"Denied: {what}"
        remedy = f"Remedy: {self.remedy}" if self.remedy else ""
        return "\n".join(filter(None, (said if what else "", remedy, self.detail)))

    def __str__(self) -> str:
        """The text."""
        return self.text or str(self.denied or "unexpected")

    def __repr__(self) -> str:
        """Without the contents: a result may be printed where a model reads."""
        return f"<diagnosis: {self.denied or 'unexpected'}; print() shows it>"


@final
class Refusal(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A refused call: why, and how to fix it.

    Stages compare the exact type: `isinstance` on a struct takes ten times as long.
    """

    success: ClassVar[Literal[False]] = False
    arguments: ClassVar[None] = None

    tool: str
    errors: tuple[Violation, ...]
    advice: Advice = NO_ADVICE
    correlation_id: str = ""
    is_repeated: bool = False
    """Whether an identical call was refused before."""
    decision: "Decision | None" = None
    """The policy decision, if policy refused."""
    ungranted: str = ""
    """What the agent has no grant for, such as `fs.read of '/etc/passwd'`, if that is why."""
    denied_by: str = ""
    """The person who denied it, if one did."""
    denied_identity: "Identity | None" = None
    waited: "Waited | None" = None
    """The approval request that it ended with, if a person was asked."""
    diagnosis: Diagnosis | None = None
    """Why the tool failed, for the operator alone; neither `text` nor `to_dict` contain it."""

    @property
    def schema_hint(self) -> str:
        """The tool's signature in one line, if validation refused."""
        return self.advice.schema_hint

    @property
    def repair(self) -> Repair | None:
        """A JSON Patch (RFC 6902) that would make the call valid; suggested, never applied."""
        return self.advice.repair

    def settle(self) -> None:
        """Compute all lazy texts now, and release the call's arguments."""
        _ = self.schema_hint, self.repair, [error.words for error in self.errors]

    @property
    def code(self) -> Code:
        """The code of the first violation."""
        return self.errors[0].code

    @property
    def text(self) -> str:
        """Text for a model: short, each violation by its pointer, then the signature."""
        return refusal_text(
            self.tool, self.errors, self.schema_hint, self.repair, is_repeated=self.is_repeated
        )

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        data: dict[str, Any] = {
            "success": False,
            "tool": self.tool,
            "errors": [error.to_dict() for error in self.errors],
            "schema_hint": self.schema_hint,
            "correlation_id": self.correlation_id,
        }
        if self.repair is not None:
            data["repair"] = list(self.repair)
        if self.is_repeated:
            data["is_repeated"] = True
        return data

    def __str__(self) -> str:
        return self.text


class Unreadable(msgspec.Struct, frozen=True):
    """Stands in for arguments that cannot be read (a truncated model response). Validation refuses it."""

    code: Code
    message: str
    suggestion: str


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a call; they can only be stricter than the definition (EXE-9)."""

    timeout_s: float | None = None
    max_output_bytes: int | None = None
    requires_confirmation: bool = False
    idempotency_key: str = ""
    fresh: bool = False
    """Bypass the result cache."""


NO_OPTIONS = CallOptions()
NO_DATA: Mapping[str, Any] = MappingProxyType({})

Progress = Callable[[float, float | None, str], None]
"""Progress callback: done, total, message."""
Output = Callable[[Any], None]
"""Output callback for streamed pieces."""


class Identity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom an identity provider vouches for. Fields in alphabetical order, as in the log."""

    client: str = ""
    """The program that the token was issued to."""
    issuer: str
    subject: str
    token_id: str = ""
    """The token's `jti`; empty if it has none."""

    def is_same_person(self, other: "Identity | None") -> bool:
        """Whether both are the same subject, by whatever program and token."""
        return other is not None and (self.issuer, self.subject) == (other.issuer, other.subject)


caller_identity: Final[ContextVar[Identity | None]] = ContextVar("toolkeep_caller_identity", default=None)
"""Whom the request is made for that a call comes from; only a server that checked it sets it."""


class UsedReference(msgspec.Struct, frozen=True, gc=False):
    """A reference or template in arguments (FLO-6). Fields in alphabetical order, as in the log."""

    pointer: str
    """Where in the arguments it stood."""
    secret: bool
    """Whether only the user may know what it stands for."""
    tool: str
    """Whose result that is from; several for a template."""


class ToolCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A requested call, not yet validated."""

    id: str
    tool: str
    arguments: Any
    agent: str
    conversation: str = ""
    session: str = ""
    correlation_id: str = ""
    response: str = ""
    """The model's response that the call is part of, as the caller names it; empty for a call alone."""
    options: CallOptions = NO_OPTIONS
    data: Mapping[str, Any] = NO_DATA
    """Per-call data of the host, for the tool's context alone; no model chooses or sees it (DEF-14)."""
    data_hash: str = ""
    """HMAC of the data; empty if there is none."""
    argument_hash_before: str = ""
    """Hash of the arguments that hooks of the host were given; empty if there was no hook (EXE-1)."""
    references: tuple[UsedReference, ...] = ()
    """What stands in the arguments in place of a reference; the arguments hold the texts."""
    written: bytes = b""
    """The arguments as they were written, with their references, as canonical JSON.

    Empty without any, and where an argument may be secret.
    """
    written_hash: str = ""
    """Hash of them; HMAC where one may be secret."""
    on_progress: Progress | None = None
    on_output: Output | None = None
    began_ns: int = 0
    """On the monotonic clock."""
    is_direct: bool = False
    """Whether the host's own code made the call, as agent `local`; no remote caller can set it (DEF-8)."""
    kind: CallKind = CallKind.TOOL
    flow: Any = None
    """The `Session` of the call, if something watches what passes between calls."""
    identity: Identity | None = None
    """The subject on whose behalf it is made, if an identity provider vouches for one (IDN-1)."""

    def __repr__(self) -> str:
        """Without the arguments: some may be secret."""
        return f"<call {self.id} of {self.tool!r} by {self.agent!r}>"


DEFAULT_POLICY: Final = "toolkeep.call"
"""The policy of a keep without policies of its own (`policy/active_policies.py`)."""


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision knew of the session (FLO-7), as audited; fields in alphabetical order."""

    measures: dict[str, str] | UnsetType = UNSET
    """What policies read of measures, with this call counted in, if anything."""
    opened: bool
    origins: dict[str, tuple[str, ...]]
    """Where each argument with authority comes from, by its name."""
    secret: bool
    session: str
    """What the state belongs to."""


class ShadowDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would have been decided, with the policies that are only in shadow."""

    decision: Literal["allow", "ask", "deny"]
    policies: tuple[str, ...]
    """Ids of the shadow policies that decide it; empty if nothing would permit it."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The policy decision about a call, as audited: request, policies and time.

    Fields are declared in alphabetical order, so that msgspec writes canonical JSON.
    """

    asked_by: tuple[str, ...] | UnsetType = UNSET
    """Ids of the forbids that hold unless a person approves the call, if any."""
    capabilities: tuple[str, ...]
    """The capabilities that the tool requires."""
    decided_at: str
    decision: Literal["allow", "deny"] = "allow"
    flow: FlowRecord | UnsetType = UNSET
    """The session's state and the origins of arguments, if something watches them."""
    policies: tuple[str, ...]
    """Ids of the deciding policies."""
    policy_set_hash: str
    request_hash: str
    """SHA-256 of principal, resource and every value that the policies read."""
    shadow: ShadowDecision | UnsetType = UNSET
    """What the policies in shadow would have decided otherwise, if anything. It had no effect."""
    spared_by: tuple[str, ...] | UnsetType = UNSET
    """Ids of the `@silent` permits that overrode an `@ask`, if any."""
    touches: tuple[str, ...] = ()
    """The touched resources, in canonical form."""

    @property
    def is_allowed(self) -> bool:
        """Whether policy permits the call."""
        return self.decision == "allow"

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        data: dict[str, Any] = {
            "decision": self.decision,
            "policies": list(self.policies),
            "policy_set_hash": self.policy_set_hash,
            "request_hash": self.request_hash,
            "capabilities": list(self.capabilities),
            "touches": list(self.touches),
            "decided_at": self.decided_at,
        }
        if self.spared_by:
            data["spared_by"] = list(self.spared_by)
        if self.asked_by:
            data["asked_by"] = list(self.asked_by)
        if self.flow:
            data["flow"] = msgspec.to_builtins(self.flow)
        if self.shadow:
            data["shadow"] = {"decision": self.shadow.decision, "policies": list(self.shadow.policies)}
        return data


class NamedThing(Protocol):
    """A resource named by an argument, in canonical form."""

    @property
    def kind(self) -> str:
        """The capability kind, such as fs.read."""

    @property
    def pointer(self) -> str:
        """JSON Pointer of the argument; empty if the tool's requirement named it."""

    @property
    def shown(self) -> str:
        """Its canonical form."""

    @property
    def root_path(self) -> str | None:
        """Real path of the granted folder that contains it; None if it is not a path."""


class TouchedThing(NamedThing, Protocol):
    """A touched resource, held open until the call ends."""

    @property
    def found(self) -> str:
        """The absolute path as given, with its links; for other resources the canonical form."""

    @property
    def identity(self) -> str:
        """Identity of the resource (device and inode of a path)."""

    @property
    def root(self) -> str:
        """The granted scope that contains it."""

    @property
    def hosts(self) -> tuple[Any, ...]:
        """For a host, what of the grants the call may reach: a `HostScope` each."""

    @property
    def is_missing(self) -> bool:
        """Whether it is a path that does not exist yet."""

    def check_unchanged(self) -> None:
        """Raise if it was replaced since it was resolved (TOCTOU)."""

    def content(self, limit: int) -> bytes | None:
        """Content of a file up to `limit`.

        None if it is not a file or is longer; empty if it does not exist yet.
        """

    def open(self) -> int | None:
        """Open the checked file or folder for reading, by its descriptor; None if that is not possible."""

    def close(self) -> None:
        """Close it."""


class PermittedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A validated call that policy permits."""

    request: ToolCall
    checked: CheckedCall
    tool: RegisteredTool
    """The called tool; later stages are bound to its definition."""
    decision: Decision
    touched: tuple[TouchedThing, ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    """Granted scopes (kind, and real path or host) that the call takes without naming a resource."""
    asks: tuple[str, ...] = ()
    """Why a policy that permits the call requires approval (`@ask`), in words."""
    asked_by: tuple[str, ...] = ()
    """Why a policy forbids the call unless a person approves it, in words."""
    flow: Any = None
    """The `FlowFacts` that the decision read, if something watches the session."""
    is_spared: bool = False
    """Whether a medium danger alone is no reason to ask: the shipped flow policies let the call pass."""
    grant_hash: str = ""
    """SHA-256 of the grant and the policy set; approvals are bound to it."""

    @property
    def is_recorded_first(self) -> bool:
        """Whether its intent must be durable before it runs: it may write, or streams output."""
        return self.tool.may_write or self.request.on_output is not None


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Who approved a call, and how. Fields in alphabetical order, as in the log."""

    approver: str
    id: str = ""
    """Id of the question or rule."""
    identity: Identity | UnsetType = UNSET
    """The person, if an identity provider vouches for them (IDN-2)."""
    way: str
    """Channel of the answer: `terminal`, `command`, `http`, `program`; or an earlier one: `session`,
    `rule`."""

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        said: dict[str, Any] = {"approver": self.approver, "way": self.way, "id": self.id}
        if self.identity is not UNSET:
            said["identity"] = msgspec.to_builtins(self.identity)
        return said


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """The approval request that a call waited for."""

    id: str
    asked_at: float
    """POSIX time."""
    waited_ms: int


class ApprovedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A permitted call that was approved or needs no approval."""

    permitted: PermittedCall
    approval: Approval | None = None
    waited: Waited | None = None
    """None if nobody was asked for this call."""


class RecordedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """An approved call after the audit stage: the only type that may be executed."""

    request: ToolCall
    checked: CheckedCall
    tool: RegisteredTool
    approved: ApprovedCall
    argument_hash: str
    """SHA-256 of the arguments, with each secret replaced by its HMAC."""
    argument_bytes: int
    deadline_s: float
    """Execution time limit."""
    output_bytes: int
    """Output limit of the caller."""
    began_at: str
    has_arguments: bool
    """Whether its arguments are stored beside the log."""


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a tool took, as measured from outside it (EXE-2); None where that is not known."""

    wall_ms: float
    cpu_ms: float | None = None
    """Processor time: of its thread in process, of its worker with the set-up otherwise."""
    peak_memory_bytes: int | None = None
    """Peak resident memory of its worker."""

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        return {
            "wall_ms": self.wall_ms,
            "cpu_ms": self.cpu_ms,
            "peak_memory_bytes": self.peak_memory_bytes,
        }


class RanOn(msgspec.Struct, frozen=True, kw_only=True):
    """The worker on another machine that ran a call, and what it says of the run (SCL-3)."""

    worker: str
    """Its name at this server."""
    key: str
    """The public key that its answer is authentic under."""
    session: str
    """The session of both, whose answers the worker signs."""
    answer_hash: str
    """Hash of the job and its answer, which is what it signs."""
    isolation: str
    enforced: tuple[str, ...]


class RawOutput(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Raw output of a tool, not yet validated."""

    call: RecordedCall
    value: Any
    isolation: str
    execute_ms: float
    is_cached: bool = False
    enforced: tuple[str, ...] = ()
    resource_use: ResourceUse | None = None


class CheckedOutput(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Validated output: JSON or bytes, satisfies the output schema, within the hard cap."""

    raw: RawOutput
    value: Any
    body: bytes
    """Canonical JSON, or the bytes themselves."""
    hash: str
    unchanged: Any = None
    """The value before normalization, as data that shares no object with the tool's; None if not known."""


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """Size and reference of an output that was truncated."""

    full_bytes: int
    reference: str

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        return {"full_bytes": self.full_bytes, "reference": self.reference}


_REPR_CHARS: Final = 200
"""Characters of a value in the `repr` of a result."""


@final
class ToolResult(msgspec.Struct, frozen=True, eq=False):
    """The result of a call: ok, pending or error. A value, never an exception (EXE-2)."""

    status: Literal["ok", "pending", "error"]
    tool: str
    call_id: str
    agent: str
    value: Any = None
    error: Refusal | None = None
    """The refusal, if there is no value; its text is for a model."""
    hash: str = ""
    """SHA-256 of the whole normalized output."""
    decision: Decision | None = None
    approval: Approval | None = None
    truncation: Truncation | None = None
    side_effects: tuple[str, ...] | None = None
    isolation: str = ""
    """Isolation level that the tool ran at; empty if it was not run."""
    enforced: tuple[str, ...] = ()
    """Kernel mechanisms that confined it; none in process."""
    is_cached: bool = False
    is_repeated: bool = False
    """Whether it is the recorded result of an earlier call with the same idempotency key."""
    execute_ms: float = 0.0
    total_ms: float = 0.0
    version: str = ""
    definition_hash: str = ""
    argument_hash: str = ""
    correlation_id: str = ""
    conversation_id: str = ""
    session_id: str = ""
    resource_use: ResourceUse | None = None
    """What the run took; None if the tool was not run here."""
    raw: Any = None
    """The value as the tool gave it, before normalization: `12.0` stays a float, keys keep their order.

    None if there is no value, or only a part of it, or if it comes from the cache or an earlier call.
    """
    leaf: int | None = None
    """Log index of its last record; None until it is durable."""
    typed_view: Any = UNSET
    """The view, where views are typed."""

    @property
    def view(self) -> Any:
        """What a model may be shown of the value: the value itself, or its typed view with references."""
        return self.value if self.typed_view is UNSET or self.error is not None else self.typed_view

    def __repr__(self) -> str:
        """Short, for a notebook or a print; `to_dict()` has everything."""
        said = self.error.code.value if self.error else excerpt(repr(self.value), _REPR_CHARS)
        return f"<ToolResult {self.status} of {self.tool!r}, call {self.call_id}: {said}>"

    @property
    def ok(self) -> bool:
        """Whether the tool ran and `value` is its output."""
        return self.status == "ok"

    @property
    def code(self) -> Code | None:
        """The error code, if any."""
        return self.error.code if self.error else None

    @property
    def text(self) -> str:
        """Text for a model: the view or the error."""
        if self.error is not None:
            return self.error.text
        if self.status == "pending":
            return f"Call {self.call_id} of '{self.tool}' waits for its result."
        if self.truncation is not None and self.value is None:
            return f"The output has {self.truncation.full_bytes} bytes: {self.truncation.reference}"
        view = self.view
        if isinstance(view, bytes):
            return f"[{len(view)} bytes, sha256:{self.hash}]"
        return view if isinstance(view, str) else json_text(view)

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data, as a model may be shown it: with the view as its value; bytes as base64."""
        view = self.view
        data: dict[str, Any] = {
            "status": self.status,
            "tool": self.tool,
            "call_id": self.call_id,
            "agent": self.agent,
            "value": base64_text(view) if isinstance(view, bytes) else view,
            "error": self.error.to_dict() if self.error else None,
            "hash": self.hash,
            "decision": self.decision.to_dict() if self.decision else None,
            "approval": self.approval.to_dict() if self.approval else None,
            "truncation": self.truncation.to_dict() if self.truncation else None,
            "side_effects": None if self.side_effects is None else list(self.side_effects),
            "isolation": self.isolation,
            "enforced": list(self.enforced),
            "is_cached": self.is_cached,
            "is_repeated": self.is_repeated,
            "execute_ms": self.execute_ms,
            "total_ms": self.total_ms,
            "resource_use": self.resource_use.to_dict() if self.resource_use else None,
            "version": self.version,
            "definition_hash": self.definition_hash,
            "argument_hash": self.argument_hash,
            "correlation_id": self.correlation_id,
            "conversation_id": self.conversation_id,
            "session_id": self.session_id,
            "leaf": self.leaf,
        }
        return data


def json_text(value: Any) -> str:
    """A JSON value as text for a model."""
    return msgspec.json.encode(value).decode()


def base64_text(data: bytes) -> str:
    """Bytes as base64 for JSON."""
    return base64.b64encode(data).decode()


def refuse(request: ToolCall, code: Code, message: str, suggestion: str, *, path: str = "") -> Refusal:
    """Make a refusal with one violation; `path` is the JSON Pointer of the argument."""
    # Every refusal passes through here, so that no stage can forget to escape what it quotes.
    error = Violation(path, code, _shown(message), "", None, suggestion)
    return Refusal(tool=echo_name(request.tool), errors=(error,), correlation_id=request.correlation_id)


def ran_unrecorded(request: ToolCall, why: str) -> Refusal:
    """Refusal for a call whose tool ran but whose outcome could not be recorded."""
    message = f"The tool ran, and its outcome could not be recorded ({why}); the result is withheld"
    suggestion = "Do not call it again: it would run twice. Tell the operator."
    return refuse(request, Code.OUTCOME_NOT_RECORDED, message, suggestion)


def _shown(message: str) -> str:
    """Escape a message and indent its continuation lines: text of a tool must not pass for ours."""
    return "\n    ".join(map(visible, message.split("\n")))
