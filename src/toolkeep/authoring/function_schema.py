"""The definition of a typed Python function.

The schema comes from the annotations (through pydantic), the descriptions from `Annotated[…, Field(…)]`
or the docstring. A parameter annotated `ToolContext` is hidden from the schema.
"""

import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, NamedTuple

from toolkeep.authoring.function_signature import Signature
from toolkeep.definitions.parameter import ANY_TYPE, TYPE_KEYWORDS
from toolkeep.definitions.serialization import definition_by_author
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, Problem
from toolkeep.json_values.frozen import NotJson, freeze

_RESULT_FIELDS = frozenset(("result_type", "normalization", "output_schema"))
_PIECES = (Iterator, Generator, Iterable, AsyncIterator, AsyncGenerator, AsyncIterable)


def define(
    name: str,
    function: Callable[..., Any],
    signature: Signature,
    description: str | None,
    fields: Mapping[str, Any],
) -> ToolDefinition:
    """The definition of a function; `DefinitionInvalid` lists every problem of its signature and fields."""
    documentation = read_docstring(function)
    schema = _Schema(signature, documentation.parameters)
    gives_bytes = _is_bytes(signature.returned) and _RESULT_FIELDS.isdisjoint(fields)
    data = {
        "name": name,
        "description": documentation.description if description is None else description,
        "parameters": schema.parameters,
        **({"result_type": "binary"} if gives_bytes else {}),
        **fields,
    }
    return definition_by_author(data, schema.problems)


class _Schema:
    """The JSON Schema of a function's parameters, and what is wrong with them."""

    def __init__(self, signature: Signature, described: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._signature = signature
        visible = [one for one in signature.parameters if self._is_usable(one) and self._has_schema(one)]
        rest = [signature.rest] if signature.rest and self._is_usable(signature.rest) else []
        self.parameters = self._parameters(visible, [one for one in rest if self._has_schema(one)], described)

    def _note(self, parameter: str, message: str, fix: str) -> None:
        field = f"parameters/properties/{parameter}"
        self.problems.append(Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix))

    def _is_usable(self, parameter: inspect.Parameter) -> bool:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            self._note(parameter.name, "*args has no schema", "name each parameter, or take a list")
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            self._note(parameter.name, "is positional-only", "let it be passed by name")
        elif parameter.annotation is inspect.Parameter.empty and parameter.name in ("self", "cls"):
            fix = "make a tool of the method of an object: `keep.register(tool(shop.count))`"
            self._note(parameter.name, "belongs to a method, which has no object here", fix)
        elif parameter.annotation is inspect.Parameter.empty:
            self._note(parameter.name, "has no annotation", "annotate it, for example `: str`")
        else:
            return True
        return False

    def _has_schema(self, parameter: inspect.Parameter) -> bool:
        try:
            self._signature.adapter(parameter).json_schema()
        except Exception as error:  # noqa: BLE001 -- pydantic may raise anything for a bad annotation
            message = f"its annotation has no JSON Schema ({str(error).splitlines()[0]})"
            self._note(parameter.name, message, "use a type that JSON can hold, or a pydantic model")
            return False
        return True

    def _parameters(
        self,
        visible: list[inspect.Parameter],
        rest: list[inspect.Parameter],
        described: Mapping[str, str],
    ) -> dict[str, Any]:
        import pydantic

        # All parameters at once, so that two models of the same name get different definitions.
        by_name, shared = pydantic.TypeAdapter.json_schemas(
            [(one.name, "validation", self._signature.adapter(one)) for one in (*visible, *rest)]
        )
        properties = {
            parameter.name: self._property(
                parameter, by_name[parameter.name, "validation"], described.get(parameter.name, "")
            )
            for parameter in visible
        }
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [p.name for p in visible if p.default is inspect.Parameter.empty]:
            schema["required"] = required
        for parameter in rest:
            values = _without_titles(by_name[parameter.name, "validation"])
            schema["additionalProperties"] = values or True
            if hidden := self._signature.hidden:
                # Otherwise a model could send what only the host may give.
                schema["propertyNames"] = {"not": {"enum": hidden}}
        if definitions := shared.get("$defs"):
            schema["$defs"] = _without_titles(definitions, names=True)
        return schema

    def _property(
        self, parameter: inspect.Parameter, schema: dict[str, Any], description: str
    ) -> dict[str, Any]:
        schema = dict(_without_titles(schema))
        schema.pop("default", None)  # the signature's default counts, not that of Field(default=…)
        if TYPE_KEYWORDS.isdisjoint(schema):
            schema["type"] = list(ANY_TYPE)  # of `Any`, which says nothing
        if description:
            schema.setdefault("description", description)
        if parameter.default is not inspect.Parameter.empty:
            try:
                default = self._signature.adapter(parameter).dump_python(
                    parameter.default, mode="json", warnings="error"
                )
                schema["default"] = freeze(default)
            except (NotJson, ValueError):
                self._note(parameter.name, "its default does not match its annotation", "change one of them")
        return schema


def _is_bytes(hint: Any) -> bool:
    """Whether a function returns or yields bytes."""
    return hint is bytes or (typing.get_origin(hint) in _PIECES and typing.get_args(hint)[0] is bytes)


def _without_titles(schema: Any, *, names: bool = False) -> Any:
    """A schema without the titles that pydantic generates; below `properties`, keys are names and stay."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if not names and key == "title" and isinstance(value, str):
            continue
        if not names and key in ("default", "const", "enum", "examples"):
            kept[key] = value
        else:
            kept[key] = _without_titles(value, names=not names and key in ("properties", "$defs"))
    return kept


class Documentation(NamedTuple):
    """The description of a function, and of its parameters by name."""

    description: str
    parameters: Mapping[str, str]


def read_docstring(function: object) -> Documentation:
    """The documentation of a function; empty where it has none."""
    text = inspect.getdoc(function)
    if not text:
        return Documentation("", {})
    import docstring_parser

    parsed = docstring_parser.parse(text)
    paragraphs = (parsed.short_description, parsed.long_description)
    return Documentation(
        description="\n\n".join(paragraph for paragraph in paragraphs if paragraph),
        parameters={param.arg_name: " ".join((param.description or "").split()) for param in parsed.params},
    )
