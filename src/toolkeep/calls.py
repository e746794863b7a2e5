"""The stamps: what a call is called after each stage it has passed.

`toolkeep.validation.validate` alone makes a `CheckedCall`; a `Refusal` may come from any stage.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import ToolState
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
    compile_ms: float = 0.0

    @property
    def name(self) -> str:
        """The name under which it is called."""
        return self.definition.name

    @property
    def version(self) -> str:
        """The version of its definition."""
        return self.definition.version

    @property
    def is_enabled(self) -> bool:
        """Whether it answers calls."""
        return self.state is ToolState.ENABLED

    def __repr__(self) -> str:
        return f"<tool {self.definition.name} {self.definition.version}>"


class Violation(msgspec.Struct, frozen=True):
    """One thing that is wrong with a call, said so that a model can mend it."""

    path: str
    """JSON Pointer to the property at fault, also where it is absent or unknown."""
    code: Code
    message: str
    expected: str
    actual: str | None
    suggestion: str

    def to_dict(self) -> dict[str, Any]:
        """The violation as JSON data."""
        return {
            "path": self.path,
            "code": self.code.value,
            "message": self.message,
            "expected": self.expected,
            "actual": self.actual,
            "suggestion": self.suggestion,
        }


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


class Refusal(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A call that goes no further: why, and what would mend it."""

    success: ClassVar[Literal[False]] = False
    arguments: ClassVar[None] = None

    tool: str
    errors: tuple[Violation, ...]
    schema_hint: str = ""
    repair: tuple[dict[str, Any], ...] | None = None
    """A JSON Patch (RFC 6902) that would make the call valid; a suggestion, never applied."""
    correlation_id: str = ""
    is_repeated: bool = False
    """Whether the same call was refused before."""

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
