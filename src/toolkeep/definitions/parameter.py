"""One parameter of a tool.

A `ToolParameter` is a convenience for authors. In a definition every parameter is a property of the JSON
Schema object `parameters`, the one form that is stored, hashed and checked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toolkeep.definitions.parameter_marks import TOUCHES_KEY, kinds_of_mark
from toolkeep.definitions.vocabulary import ParameterType
from toolkeep.json_values.frozen import (
    FrozenDict,
    JsonObject,
    JsonValue,
    freeze,
    freeze_object,
    objects_in,
)


def marked_parts(schema: object) -> list[dict[str, Any]]:
    """Every object in a schema that has an `x-touches`, at any depth."""
    return [part for part in objects_in(schema) if TOUCHES_KEY in part]


def marked_kinds(schema: object) -> frozenset[str]:
    """The kinds of all marks in a schema."""
    return frozenset[str]().union(*(kinds_of_mark(part[TOUCHES_KEY]) for part in marked_parts(schema)))


class _Unset:
    """The default of a parameter without one; None is a valid default."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = _Unset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParameter:
    """One parameter as an author writes it: `ToolParameter.string("path", "The file to read")`."""

    name: str
    description: str
    type: ParameterType
    required: bool = False
    default: JsonValue | _Unset = UNSET
    enum: Sequence[JsonValue] | None = None
    schema: JsonObject = field(default_factory=dict)
    """Further keywords: items, properties, minimum, pattern, x-touches …"""

    @classmethod
    def string(cls, name: str, description: str, **schema: JsonValue) -> "ToolParameter":
        """Text."""
        return cls(name=name, description=description, type=ParameterType.STRING, schema=schema)

    @classmethod
    def integer(cls, name: str, description: str, **schema: JsonValue) -> "ToolParameter":
        """A whole number."""
        return cls(name=name, description=description, type=ParameterType.INTEGER, schema=schema)

    @classmethod
    def number(cls, name: str, description: str, **schema: JsonValue) -> "ToolParameter":
        """Any number."""
        return cls(name=name, description=description, type=ParameterType.NUMBER, schema=schema)

    @classmethod
    def boolean(cls, name: str, description: str, **schema: JsonValue) -> "ToolParameter":
        """True or false."""
        return cls(name=name, description=description, type=ParameterType.BOOLEAN, schema=schema)

    @classmethod
    def array(cls, name: str, description: str, items: "ToolParameter | JsonObject") -> "ToolParameter":
        """A list whose items all fit `items`, a parameter or a schema."""
        schema = items.to_json_schema() if isinstance(items, ToolParameter) else items
        return cls(name=name, description=description, type=ParameterType.ARRAY, schema={"items": schema})

    @classmethod
    def object(
        cls, name: str, description: str, properties: "Sequence[ToolParameter] | JsonObject"
    ) -> "ToolParameter":
        """An object; its properties are parameters, or a schema with `properties`."""
        if isinstance(properties, Mapping):
            schema = {key: value for key, value in properties.items() if key != "type"}
        else:
            schema = parameters_schema(properties)
            del schema["type"]
        return cls(name=name, description=description, type=ParameterType.OBJECT, schema=schema)

    @classmethod
    def one_of(
        cls, name: str, description: str, variants: "Sequence[ToolParameter | JsonObject]"
    ) -> "ToolParameter":
        """A value that fits one of several, each a parameter or a schema."""
        schemas: list[JsonValue] = [
            variant.to_json_schema() if isinstance(variant, ToolParameter) else variant
            for variant in variants
        ]
        return cls(name=name, description=description, type=ParameterType.ONE_OF, schema={"anyOf": schemas})

    @classmethod
    def string_enum(cls, name: str, description: str, values: Sequence[str]) -> "ToolParameter":
        """One of a few words."""
        return replace(cls.string(name, description), enum=tuple(values))

    def with_default(self, default: JsonValue) -> "ToolParameter":
        """The same parameter, optional, with a default."""
        return replace(self, default=default)

    def with_range(self, minimum: float, maximum: float) -> "ToolParameter":
        """The same parameter with limits, both included."""
        return self.with_schema(minimum=minimum, maximum=maximum)

    def with_schema(self, **keywords: JsonValue) -> "ToolParameter":
        """The same parameter with further keywords of JSON Schema."""
        return replace(self, schema={**self.schema, **keywords})

    def to_json_schema(self) -> JsonObject:
        """The property that stands for this parameter in `parameters`."""
        schema: dict[str, JsonValue] = {}
        if self.type is not ParameterType.ONE_OF:
            schema["type"] = self.type.value
        if self.description:
            schema["description"] = self.description
        if self.enum is not None:
            schema["enum"] = list(self.enum)
        schema.update(self.schema)
        if not isinstance(self.default, _Unset):
            schema["default"] = self.default
        return schema

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ToolParameter":
        """From the list form: name, description, type, required, default, enum, schema."""
        if not isinstance(data, Mapping):
            raise ValueError(f"a parameter must be an object, not {type(data).__name__}")
        given = {str(key)[:1].lower() + str(key)[1:]: value for key, value in data.items()}
        if unknown := given.keys() - _LIST_FORM.keys():
            raise ValueError(f"unknown key {min(unknown)!r}; a parameter has " + ", ".join(_LIST_FORM))
        stated = {key: value for key, value in given.items() if value is not None}
        for key, value in stated.items():
            if not isinstance(value, _LIST_FORM[key]):
                raise ValueError(f"{key} of a parameter cannot be {type(value).__name__}")
        name = stated.get("name", "")
        own_type = ParameterType.read(stated.get("type", ""))
        schema = dict(freeze_object(stated.get("schema", {}), "/schema"))
        if schema.pop("type", own_type.value) != own_type.value:
            raise ValueError(f"the schema of {name!r} names another type than {own_type.value}")
        enum = stated.get("enum")
        return cls(
            name=name,
            description=stated.get("description", ""),
            type=own_type,
            required=stated.get("required", False),
            default=freeze(stated["default"], "/default") if "default" in stated else UNSET,
            enum=None if enum is None else tuple(freeze(v, f"/enum/{i}") for i, v in enumerate(enum)),
            schema=schema,
        )


_LIST_FORM: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "description": str,
    "type": str,
    "required": bool,
    "default": object,
    "enum": (list, tuple),
    "schema": dict,
}
"""The keys of a parameter in the list form, with their types; null means absent."""


def repeated(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, in order."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def parameters_schema(parameters: Sequence[ToolParameter]) -> dict[str, JsonValue]:
    """The JSON Schema object of a list of parameters, in order."""
    names = [parameter.name for parameter in parameters]
    if twice := repeated(names):
        raise ValueError(f"parameter {twice[0]!r} is defined twice")
    required: list[JsonValue] = [parameter.name for parameter in parameters if parameter.required]
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {parameter.name: parameter.to_json_schema() for parameter in parameters},
    }
    return {**schema, "required": required} if required else schema


TYPE_KEYWORDS: Final = frozenset(("type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not", "if"))
"""Keywords that declare the type of a property."""
ANY_TYPE: Final = ("string", "number", "boolean", "object", "array", "null")
"""Types of a property that takes any JSON value."""
NO_PARAMETERS: FrozenDict = freeze_object({"type": "object", "properties": {}})
"""The schema of a tool without parameters."""
