"""`ToolDefinition`: everything that toolkeep knows about a tool, as immutable data.

All ways to define a tool (a function, the builder, an agent-tool class, data) end here and give equal
objects. `parameters` is one JSON Schema object, whichever form it was written in.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.constraints import Bounds, Constraints
from toolkeep.definitions.parameter import NO_PARAMETERS, ToolParameter, marked_kinds
from toolkeep.definitions.parameter_marks import FLOW_KEY, Touches, is_secret
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.vocabulary import (
    CallKind,
    Category,
    Danger,
    Determinism,
    Normalization,
    ResultType,
    Role,
    SideEffect,
)
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.json_values.frozen import FrozenDict, freeze_object, thaw

if TYPE_CHECKING:
    from toolkeep.definitions.builder import ToolDefinitionBuilder

KEYS = (
    "name", "description", "version", "category", "parameters", "output_schema", "result_type",
    "normalization", "constraints", "resource_bounds", "required_permissions", "capabilities",
    "side_effects", "flow", "determinism", "idempotent", "danger", "requires_confirmation", "sensitive",
    "client_executed", "usage_metadata", "enabled", "aliases", "source", "metadata",
)  # fmt: skip
"""The fields in their data form, in the order in which they are written."""
_ALWAYS_WRITTEN = ("name", "description", "version", "category", "parameters")

SourceKind = Literal["hand", "mcp", "openapi", "import"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a definition comes from: written by hand, or imported."""

    kind: SourceKind = "hand"
    origin: str = ""
    """The server, document or package that it was imported from."""
    name: str = ""
    """Its name there, if the local name had to differ."""

    @property
    def is_by_hand(self) -> bool:
        """Whether author rules refuse instead of warn."""
        return self.kind == "hand"

    def to_dict(self) -> dict[str, str]:
        """JSON data; empty for a definition written by hand."""
        if self == BY_HAND:
            return {}
        stated = {"kind": self.kind, "origin": self.origin, "name": self.name}
        return {key: value for key, value in stated.items() if value}


BY_HAND = Source()
_READ_EFFECTS = {
    effect.capability: effect for effect in SideEffect if not effect.is_class and not effect.is_write
}
_WRITE_EFFECTS = {
    effect.capability: effect for effect in SideEffect if not effect.is_class and effect.is_write
}
DEFAULT_CONSTRAINTS = Constraints()
DEFAULT_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool, declared. Equal definitions have equal `hash`; change one with `replace`.

    `DefinitionInvalid` lists every rule that it breaks; `validate` checks its schemas too.
    """

    name: str
    description: str
    version: str = "1.0.0"
    category: Category = Category.GENERAL
    parameters: FrozenDict = NO_PARAMETERS
    output_schema: FrozenDict | None = None
    result_type: ResultType | None = None
    """None follows from the output schema: its type, or object."""
    normalization: Normalization | None = None
    """None follows from the result type."""
    constraints: Constraints = DEFAULT_CONSTRAINTS
    resource_bounds: Bounds = DEFAULT_BOUNDS
    required_permissions: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    side_effects: tuple[SideEffect, ...] | None = None
    """None: not declared (`effects`)."""
    flow: FrozenDict = field(default_factory=FrozenDict)
    """Labels of the result by JSON Pointer (`result_labels.py`); what has none is text from outside."""
    determinism: Determinism | None = None
    """None: not declared, so neither cached nor replayed."""
    idempotent: bool = False
    danger: Danger | None = None
    """None: not stated, so it follows from the side effects (`danger_level`)."""
    requires_confirmation: bool = False
    sensitive: bool = False
    client_executed: bool = False
    usage_metadata: str = ""
    """When a model should use the tool; follows the description in every export."""
    enabled: bool = True
    aliases: tuple[str, ...] = ()
    source: Source = BY_HAND
    metadata: FrozenDict = field(default_factory=FrozenDict)
    _hash: str = field(default="", init=False, repr=False, compare=False)
    _touched: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", freeze_object(self.parameters, "parameters"))
        object.__setattr__(self, "metadata", freeze_object(self.metadata, "metadata"))
        object.__setattr__(self, "flow", freeze_object(self.flow, "flow"))
        if self.output_schema is not None:
            object.__setattr__(self, "output_schema", freeze_object(self.output_schema, "output_schema"))
        # What breaks a rule must not be exported or stored, and not every caller validates.
        refuse: Callable[[ToolDefinition], None] = _higher("refuse_broken_rules")
        refuse(self)

    @property
    def kind(self) -> CallKind:
        """Whether it is a tool, or a prompt or resource of an upstream MCP server."""
        return kind_of(self.name)

    @property
    def danger_level(self) -> Danger:
        """The effective danger: as stated; else safe if the effects write nothing, and medium (DEF-8)."""
        if self.danger is not None:
            return self.danger
        effects = self.effects
        is_harmless = effects is not None and not any(effect.is_write for effect in effects)
        return Danger.SAFE if is_harmless else Danger.MEDIUM

    @property
    def effects(self) -> tuple[SideEffect, ...] | None:
        """The effective side effects: as stated; else as implied by capabilities of read kinds only; else
        unknown.

        Nothing is implied for an import: its capabilities are what the operator grants, not what its author
        stated. Stated effects that a mark contradicts do not count.
        """
        if self.contradicting_effects:
            return None
        if self.side_effects is not None or not self.capabilities or not self.source.is_by_hand:
            return self.side_effects
        kinds = {held.kind for held in self.capabilities} | self.touched_kinds
        if not kinds <= _READ_EFFECTS.keys():
            return None
        return tuple(effect for kind, effect in _READ_EFFECTS.items() if kind in kinds)

    @property
    def contradicting_effects(self) -> tuple[SideEffect, ...]:
        """The write effects that parameters are marked with, if none of the stated effects is a write."""
        if self.side_effects is None or self.has_write_effects:
            return ()
        return tuple(effect for kind, effect in _WRITE_EFFECTS.items() if kind in self.touched_kinds)

    @property
    def is_undeclared(self) -> bool:
        """Whether neither danger nor side effects are stated, so that each call needs approval."""
        return self.danger is None and self.effects is None

    @property
    def has_write_effects(self) -> bool:
        """Whether the tool declares that it may change the world."""
        return any(effect.is_write for effect in self.side_effects or ())

    @property
    def gives_bytes(self) -> bool:
        """Whether its output is bytes rather than JSON."""
        if self.normalization is not None:
            return self.normalization is Normalization.BINARY
        return self.result_type is not None and self.result_type in (ResultType.BINARY, ResultType.STREAM)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of the parameters by name, in order."""
        properties = self.parameters.get("properties")
        return properties if isinstance(properties, dict) else {}

    @property
    def touches(self) -> dict[str, Touches]:
        """What the parameters would touch, by parameter name."""
        marked = self._marked("x-touches")
        return {name: Touches.read(schema["x-touches"]) for name, schema in marked}

    @property
    def touched_kinds(self) -> frozenset[str]:
        """The kinds of every mark in the parameters, at any depth: an option or an array item touches
        resources too."""
        if self._touched is None:  # computed once: the object is immutable
            object.__setattr__(self, "_touched", marked_kinds(self.parameters))
        return self._touched or frozenset()

    @property
    def roles(self) -> dict[str, Role]:
        """The declared roles of the parameters, by parameter name."""
        return {name: Role.read(schema[FLOW_KEY]) for name, schema in self._marked(FLOW_KEY)}

    @property
    def secret_parameters(self) -> tuple[str, ...]:
        """The names of the parameters that are secret."""
        return tuple(n for n, s in self.properties.items() if isinstance(s, dict) and is_secret(s))

    @property
    def full_description(self) -> str:
        """What a model reads: the description, then the usage."""
        return f"{self.description}\n\n{self.usage_metadata}" if self.usage_metadata else self.description

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical definition; what a pin and an audit record hold.

        It covers every field that decides what the tool may do: schema, capabilities, danger, constraints.
        If it covered the name and version only, a source could widen a pinned tool without review.
        """
        if not self._hash:  # computed once: the object is immutable
            object.__setattr__(self, "_hash", canonical_hash(definition_data(self)))
        return self._hash

    def replace(self, **changes: Any) -> "ToolDefinition":
        """The same definition with some fields changed."""
        return replace(self, **changes)

    def validate(self) -> None:
        """Check all that a keep checks when it registers the tool, its schemas included.

        Raises the `DefinitionError` that lists every problem. A keep with limits or permissions of its own
        may decide otherwise.
        """
        check: Callable[[ToolDefinition], object] = _higher("validate")
        check(self)

    def with_required_param(self, parameter: ToolParameter) -> "ToolDefinition":
        """The same definition with one more required parameter; one of the same name is replaced."""
        return self._with(replace(parameter, required=True))

    def with_optional_param(self, parameter: ToolParameter) -> "ToolDefinition":
        """The same definition with one more optional parameter; one of the same name is replaced."""
        return self._with(replace(parameter, required=False))

    def _with(self, parameter: ToolParameter) -> "ToolDefinition":
        schema = self.parameters
        stated = schema.get("required")
        required = [name for name in stated if name != parameter.name] if isinstance(stated, list) else []
        if parameter.required:
            required.append(parameter.name)
        properties = {**self.properties, parameter.name: parameter.to_json_schema()}
        changed = {**schema, "properties": properties, "required": required}
        if not required:
            del changed["required"]
        return replace(self, parameters=freeze_object(changed))

    def to_dict(self) -> dict[str, Any]:
        """JSON data that `from_dict` turns into an equal definition."""
        changeable: dict[str, Any] = thaw(definition_data(self))
        return changeable

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ToolDefinition":
        """A definition from data; `DefinitionInvalid` lists every unreadable field and every broken rule."""
        read: Callable[..., ToolDefinition] = _higher("from_dict")
        return read(data)

    @classmethod
    def from_elsewhere(
        cls, data: Mapping[str, Any], *, kind: SourceKind = "import", origin: str = ""
    ) -> "ToolDefinition":
        """A definition imported from another system: odd names are mapped, danger is at least medium."""
        imported: Callable[..., ToolDefinition] = _higher("from_elsewhere")
        return imported(data, kind=kind, origin=origin)

    @classmethod
    def builder(cls, name: str) -> "ToolDefinitionBuilder":
        """Build a definition step by step."""
        make: Callable[[str], ToolDefinitionBuilder] = _higher("builder")
        return make(name)

    def to_claude_format(self) -> dict[str, Any]:
        """The definition as Anthropic's API takes it."""
        return self._for("anthropic")

    def to_openai_format(self) -> dict[str, Any]:
        """The definition as OpenAI's chat API takes it."""
        return self._for("openai")

    def to_gemini_format(self) -> dict[str, Any]:
        """The definition as Gemini's API takes it."""
        return self._for("gemini")

    def _for(self, provider: str) -> dict[str, Any]:
        export: Callable[..., dict[str, Any]] = _higher("to_format")
        return export(self, provider)

    def _marked(self, keyword: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, schema in self.properties.items():
            if isinstance(schema, dict) and keyword in schema:
                yield name, schema


def definition_data(definition: ToolDefinition) -> dict[str, Any]:
    """The data of `ToolDefinition.to_dict` without a copy: its schemas are those of the definition.

    Fields that equal their default are left out, so that a definition keeps its hash when a later
    version of toolkeep adds a field.
    """
    data: dict[str, Any] = {
        "name": definition.name,
        "description": definition.description,
        "version": definition.version,
        "category": definition.category.value,
        "parameters": definition.parameters,
        "output_schema": definition.output_schema,
        "result_type": definition.result_type and definition.result_type.value,
        "normalization": definition.normalization and definition.normalization.value,
        "constraints": definition.constraints.to_dict(),
        "resource_bounds": definition.resource_bounds.to_dict(),
        "required_permissions": list(definition.required_permissions),
        "capabilities": [str(capability) for capability in definition.capabilities],
        "side_effects": None
        if definition.side_effects is None
        else [effect.value for effect in definition.side_effects],
        "flow": definition.flow,
        "determinism": definition.determinism and definition.determinism.value,
        "idempotent": definition.idempotent,
        "danger": definition.danger and definition.danger.value,
        "requires_confirmation": definition.requires_confirmation,
        "sensitive": definition.sensitive,
        "client_executed": definition.client_executed,
        "usage_metadata": definition.usage_metadata,
        "enabled": definition.enabled,
        "aliases": list(definition.aliases),
        "source": definition.source.to_dict(),
        "metadata": definition.metadata,
    }
    return {key: data[key] for key in KEYS if key in _ALWAYS_WRITTEN or not _is_default(key, data[key])}


def unchecked_definition(**stated: Any) -> ToolDefinition:
    """A definition of frozen fields whose rules are not checked yet, for the reader of definitions."""
    definition = object.__new__(ToolDefinition)
    for one in fields(ToolDefinition):
        object.__setattr__(definition, one.name, stated[one.name] if one.init else one.default)
    return definition


def _is_default(key: str, value: object) -> bool:
    if key == "enabled":
        return value is True
    if key in ("side_effects", "output_schema"):
        return value is None
    return value in (None, False, "", [], {})


HIGHER = {
    "refuse_broken_rules": "toolkeep.definitions.definition_rules:refuse_broken_rules",
    "validate": "toolkeep.registry.admit:admit",
    "from_dict": "toolkeep.definitions.serialization:definition_by_author",
    "from_elsewhere": "toolkeep.definitions.imported:definition_from_import",
    "builder": "toolkeep.definitions.builder:ToolDefinitionBuilder",
    "to_format": "toolkeep.providers.single_tool:lone_definition",
}
"""Where the methods of `ToolDefinition` are implemented that need modules which import this one.

The public class offers them (DEF-9), but everything else imports this module, and it must import none of
them: a cycle would make the result of an import depend on which module comes first. They are resolved by
name when called, as `toolkeep/__init__.py` resolves its names; a test resolves each.
"""


def _higher(method: str) -> Any:
    module, _, name = HIGHER[method].partition(":")
    return getattr(importlib.import_module(module), name)
