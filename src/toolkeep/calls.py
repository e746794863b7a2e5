"""The stamps: what a call is called after each stage it has passed.

    ToolCall ─validate─▶ CheckedCall ─authorize─▶ PermittedCall ─approve─▶ ApprovedCall ─record─▶ RecordedCall
             ─execute─▶ RawOutput ─check─▶ CheckedOutput ─normalize─▶ ToolResult

Each is made by the door of its stage alone (a test holds it). A `Refusal` may come from any stage.
"""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, final

import msgspec
from msgspec import UNSET, UnsetType

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Danger, ToolState
from toolkeep.errors import Code, Problem
from toolkeep.prose import refusal_text

if TYPE_CHECKING:
    from toolkeep.validation.compiler import CompiledSchema


class RegisteredTool(msgspec.Struct, frozen=True, eq=False):
    """A definition that was admitted, with its compiled schemas, what runs it, and whether it answers."""

    definition: ToolDefinition
    arguments: "CompiledSchema"
    """The compiled schema of its parameters."""
    output: "CompiledSchema | None" = None
    """The compiled schema of its output, where it has one."""
    runner: Any = None
    """The function or instance that the host's own code registered, or the words that name what runs it."""
    warnings: tuple[Problem, ...] = ()
    """What a definition from elsewhere does against the rules for authors."""
    definition_hash: str = ""
    provider: str = "code"
    """Who registered it; a name belongs to its first provider."""
    is_built_in: bool = False
    is_custom: bool = False
    """Whether it counts among the custom definitions of a tier."""
    state: ToolState = ToolState.ENABLED
    why: str = ""
    """Why it does not answer, where it does not."""
    suspicion: str = ""
    """What in the words of an import a person should look at before it answers."""
    compile_ms: float = 0.0
    may_write: bool = True
    """Whether a call may change the world; what is not declared is unknown, and counts (DEF-7)."""
    effect_names: tuple[str, ...] | None = None
    """Its side effects in words; None where they are not declared."""
    capability_names: tuple[str, ...] = ()
    """What it requires, in words."""
    danger: Danger = Danger.MEDIUM
    """The danger in force: always its definition's."""
    is_undeclared: bool = True
    """Whether neither danger nor side effects are stated: always as its definition says."""
    name: str = ""
    """The name under which it is called: always its definition's."""
    version: str = ""
    """The version of its definition."""

    def __post_init__(self) -> None:
        # Every call asks for them several times; a copy with another definition comes through here too.
        msgspec.structs.force_setattr(self, "name", self.definition.name)
        msgspec.structs.force_setattr(self, "version", self.definition.version)
        msgspec.structs.force_setattr(self, "danger", self.definition.danger_level)
        msgspec.structs.force_setattr(self, "is_undeclared", self.definition.is_undeclared)

    @property
    def is_enabled(self) -> bool:
        """Whether it answers calls."""
        return self.state is ToolState.ENABLED

    def __repr__(self) -> str:
        return f"<tool {self.definition.name} {self.definition.version}>"


class Words(msgspec.Struct, frozen=True, gc=False):
    """What a violation says, beside where and which it is."""

    message: str
    expected: str
    actual: str | None
    suggestion: str


@final
class Violation:
    """One thing that is wrong with a call, said so that a model can mend it. It cannot be changed.

    Its words may be worked out when the first of them is read.
    """

    __slots__ = ("_words", "code", "path")

    path: str
    """JSON Pointer to the property at fault, also where it is absent or unknown."""
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
        """One whose words are worked out when the first of them is read.

        What works them out depends on nothing that changes: two threads that read at once may both call it.
        """
        violation = _new(cls)
        _set(violation, "path", path)
        _set(violation, "code", code)
        _set(violation, "_words", words)
        return violation

    @property
    def words(self) -> Words:
        """Everything that it says."""
        words = self._words  # read once: another thread may put the words there meanwhile
        if type(words) is Words:
            return words
        made: Words = words()  # type: ignore[operator]  # the other of the two
        _set(self, "_words", made)  # what they were made of is let go
        return made

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        return self.words.message

    @property
    def expected(self) -> str:
        """What would have been right."""
        return self.words.expected

    @property
    def actual(self) -> str | None:
        """What was sent, as far as it may be shown."""
        return self.words.actual

    @property
    def suggestion(self) -> str:
        """What to do."""
        return self.words.suggestion

    def to_dict(self) -> dict[str, Any]:
        """The violation as JSON data."""
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
        """A copy has its words, and nothing of the call that they were made of."""
        return Violation, (self.path, self.code, *msgspec.structs.astuple(self.words))


_new: Final = object.__new__
_set: Final = object.__setattr__


class CheckedCall(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Arguments that satisfy the tool's schema, with defaults filled in."""

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
        """The check as JSON data."""
        return {"success": True, "tool": self.tool, "arguments": self.arguments}


Repair = tuple[dict[str, Any], ...]
"""A JSON Patch (RFC 6902) that would make a refused call valid; a suggestion, never applied."""


class Advice:
    """What a refusal says beside its violations; each part may be worked out when it is first read."""

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
        """The repair, where there is a sure one."""
        repair = self._repair
        if callable(repair):
            repair = self._repair = repair()
        return repair

    def __repr__(self) -> str:
        return f"Advice(schema_hint={self.schema_hint!r}, repair={self.repair!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has what was worked out, and nothing of the call that it was made of."""
        return Advice, (self.schema_hint, self.repair)


NO_ADVICE: Final = Advice()


@final
class Refusal(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A call that goes no further: why, and what would mend it.

    The stages know one by its exact type: asking `isinstance` of a struct takes ten times as long.
    """

    success: ClassVar[Literal[False]] = False
    arguments: ClassVar[None] = None

    tool: str
    errors: tuple[Violation, ...]
    advice: Advice = NO_ADVICE
    correlation_id: str = ""
    is_repeated: bool = False
    """Whether the same call was refused before."""
    decision: "Decision | None" = None
    """What policy said, where it was policy that refused."""
    denied_by: str = ""
    """Who said no, where it was a person."""

    @property
    def schema_hint(self) -> str:
        """The tool's signature in one line, where validation refused."""
        return self.advice.schema_hint

    @property
    def repair(self) -> Repair | None:
        """A JSON Patch (RFC 6902) that would make the call valid; a suggestion, never applied."""
        return self.advice.repair

    def settle(self) -> None:
        """Work everything out now, and hold on to nothing of the call."""
        _ = self.schema_hint, self.repair, [error.words for error in self.errors]

    @property
    def code(self) -> Code:
        """The code of the first violation."""
        return self.errors[0].code

    @property
    def text(self) -> str:
        """What a model should read: short, every violation by its pointer, then the signature."""
        return refusal_text(
            self.tool, self.errors, self.schema_hint, self.repair, is_repeated=self.is_repeated
        )

    def to_dict(self) -> dict[str, Any]:
        """The refusal as JSON data."""
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
    """In the place of arguments: why a model's call cannot be read as a whole. Validation refuses it so."""

    code: Code
    message: str
    suggestion: str


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may ask for beyond the call itself; only ever stricter than the definition (EXE-9)."""

    timeout_s: float | None = None
    max_output_bytes: int | None = None
    requires_confirmation: bool = False
    idempotency_key: str = ""
    fresh: bool = False
    """Run the tool even if its result is known."""


NO_OPTIONS = CallOptions()

Progress = Callable[[float, float | None, str], None]
"""Who hears how far a tool has come: how much of how much, and a word on it."""
Output = Callable[[Any], None]
"""Who hears each piece of what a tool gives, as it comes."""


class ToolCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A call as it was asked for; nothing about it was looked at yet."""

    id: str
    tool: str
    arguments: Any
    agent: str
    conversation: str = ""
    session: str = ""
    correlation_id: str = ""
    options: CallOptions = NO_OPTIONS
    on_progress: Progress | None = None
    on_output: Output | None = None
    began_ns: int = 0
    """On the monotonic clock."""
    is_direct: bool = False
    """Whether the host's own program chose the call, as `local`; nobody else can say so (DEF-8)."""

    def __repr__(self) -> str:
        """Without the arguments: some may be secret."""
        return f"<call {self.id} of {self.tool!r} by {self.agent!r}>"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What policy said of a call: of which request, by which policies, when. It goes into the log so.

    In the order of their names, the fields are canonical JSON as they are written.
    """

    capabilities: tuple[str, ...]
    """What the tool requires."""
    decided_at: str
    decision: Literal["allow", "deny"] = "allow"
    policies: tuple[str, ...]
    """The ids of those that allowed it, or denied it."""
    policy_set_hash: str
    request_hash: str
    """SHA-256 of who, what and everything that the policies read of the call."""
    spared_by: tuple[str, ...] | UnsetType = UNSET
    """The ids of the `@silent` permits that spared the question of an `@ask`, where there was one."""
    touches: tuple[str, ...] = ()
    """What the call would touch, in canonical form."""

    @property
    def is_allowed(self) -> bool:
        """Whether policy permits the call."""
        return self.decision == "allow"

    def to_dict(self) -> dict[str, Any]:
        """The decision as JSON data."""
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
        return data


class NamedThing(Protocol):
    """What an argument names, in canonical form."""

    @property
    def kind(self) -> str:
        """The kind of capability, such as fs.read."""

    @property
    def pointer(self) -> str:
        """The argument that named it; empty where the tool's own requirement did."""

    @property
    def shown(self) -> str:
        """Its canonical form."""

    @property
    def root_path(self) -> str | None:
        """The real folder of the grant that a place lies in; None for what is no place."""


class TouchedThing(NamedThing, Protocol):
    """Something that a call would touch, and that is held until the call ends."""

    @property
    def found(self) -> str:
        """The absolute path by which a place was found, links and all; else its canonical form."""

    @property
    def identity(self) -> str:
        """Which very thing it is, whatever it is called."""

    @property
    def root(self) -> str:
        """The scope, as it was granted, that it lies in."""

    def check_unchanged(self) -> None:
        """Raise where it is something else by now."""

    def content(self, limit: int) -> bytes | None:
        """What a file holds; None where it is no file or longer. One that does not exist holds nothing."""

    def open(self) -> int | None:
        """A descriptor of the very file or folder that was checked, to read it; None where there is none."""

    def close(self) -> None:
        """Let go of it."""


class PermittedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A checked call that policy permits."""

    request: ToolCall
    checked: CheckedCall
    tool: RegisteredTool
    """The tool that is called, whose definition everything after this is bound to."""
    decision: Decision
    touched: tuple[TouchedThing, ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    """What the agent holds, kind and real path or hosts, of what the call takes without naming it."""
    asks: bool = False
    """Whether a policy wants a person to be asked."""
    grant_hash: str = ""
    """SHA-256 of what the agent held and of the policies: what an approval is bound to."""

    @property
    def is_recorded_first(self) -> bool:
        """Whether its intent is durable before it runs: it may change the world, or is heard meanwhile."""
        return self.tool.may_write or self.request.on_output is not None


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """Who agreed to a call, and how. In the order of their names, as the log has them."""

    approver: str
    id: str = ""
    """Of the question, or of the rule."""
    way: str
    """Where the person answered: `terminal`, `command`, `http`, `program`; or before: `session`, `rule`."""

    def to_dict(self) -> dict[str, str]:
        """The approval as JSON data."""
        return {"approver": self.approver, "way": self.way, "id": self.id}


class ApprovedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A permitted call that a person agreed to, or that nobody need be asked about."""

    permitted: PermittedCall
    approval: Approval | None = None


class RecordedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """An approved call whose intent is in the log: the only thing that may be executed."""

    request: ToolCall
    checked: CheckedCall
    tool: RegisteredTool
    approved: ApprovedCall
    argument_hash: str
    """Of the arguments, each secret replaced by its HMAC."""
    argument_bytes: int
    deadline_s: float
    """How long it may run."""
    output_bytes: int
    """How much of the output the caller gets."""
    began_at: str
    has_arguments: bool
    """Whether its arguments are kept beside the log."""


class RawOutput(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What a tool gave back, not yet looked at."""

    call: RecordedCall
    value: Any
    isolation: str
    execute_ms: float
    is_cached: bool = False
    enforced: tuple[str, ...] = ()


class CheckedOutput(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Output that is JSON (or bytes), satisfies the output schema and is no larger than the hard cap."""

    raw: RawOutput
    value: Any
    body: bytes
    """Canonical JSON, or the bytes themselves."""
    hash: str


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller did not get, and where it is."""

    full_bytes: int
    reference: str

    def to_dict(self) -> dict[str, Any]:
        """The truncation as JSON data."""
        return {"full_bytes": self.full_bytes, "reference": self.reference}


@final
class ToolResult(msgspec.Struct, frozen=True, eq=False):
    """What became of a call: ok, pending or error. A value, never an exception (EXE-2)."""

    status: Literal["ok", "pending", "error"]
    tool: str
    call_id: str
    agent: str
    value: Any = None
    error: Refusal | None = None
    """Why there is no value; its text is what a model should read."""
    hash: str = ""
    """SHA-256 of the whole normalised output."""
    decision: Decision | None = None
    approval: Approval | None = None
    truncation: Truncation | None = None
    side_effects: tuple[str, ...] | None = None
    isolation: str = ""
    """The level that the tool ran at, also if it failed; empty if it was not run."""
    enforced: tuple[str, ...] = ()
    """The mechanisms of the kernel that confined it; none in this process."""
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
    leaf: int | None = None
    """Index of its last record in the log; None until that is durable."""

    @property
    def ok(self) -> bool:
        """Whether the tool ran and its output is here."""
        return self.status == "ok"

    @property
    def code(self) -> Code | None:
        """The code of the error, where there is one."""
        return self.error.code if self.error else None

    @property
    def text(self) -> str:
        """What a model should read: the value, or the error."""
        if self.error is not None:
            return self.error.text
        if self.status == "pending":
            return f"Call {self.call_id} of '{self.tool}' waits for its result."
        if self.truncation is not None and self.value is None:
            return f"The output has {self.truncation.full_bytes} bytes: {self.truncation.reference}"
        if isinstance(self.value, bytes):
            return f"[{len(self.value)} bytes, sha256:{self.hash}]"
        return self.value if isinstance(self.value, str) else json_text(self.value)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data; bytes as base64."""
        data: dict[str, Any] = {
            "status": self.status,
            "tool": self.tool,
            "call_id": self.call_id,
            "agent": self.agent,
            "value": base64_text(self.value) if isinstance(self.value, bytes) else self.value,
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
    """A JSON value as text, for a model to read."""
    return msgspec.json.encode(value).decode()


def base64_text(data: bytes) -> str:
    """Bytes in JSON."""
    return base64.b64encode(data).decode()
