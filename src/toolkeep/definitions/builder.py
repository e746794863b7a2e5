"""Build a definition step by step.

ToolDefinition.builder("read_file").description("Read a file.").required_string("path", "The file").build()
"""

from dataclasses import replace
from typing import Any

from toolkeep.definitions.parameter import ToolParameter, parameters_schema, repeated
from toolkeep.definitions.serialization import definition_by_author
from toolkeep.definitions.tool import KEYS, ToolDefinition
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, Problem
from toolkeep.json_values.frozen import JsonValue

_SETTABLE = tuple(key for key in KEYS if key != "parameters")  # parameters come from `param` and its variants


class ToolDefinitionBuilder:
    """Each method adds one thing and returns the builder; `build` checks everything at once."""

    def __init__(self, name: str) -> None:
        self._data: dict[str, Any] = {"name": name}
        self._parameters: list[ToolParameter] = []
        self._metadata: dict[str, JsonValue] = {}

    def description(self, text: str) -> "ToolDefinitionBuilder":
        """What the tool does."""
        return self.set(description=text)

    def required_string(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """A required string."""
        return self.param(ToolParameter.string(name, description), required=True)

    def required_int(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """A required integer."""
        return self.param(ToolParameter.integer(name, description), required=True)

    def required_number(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """A required number."""
        return self.param(ToolParameter.number(name, description), required=True)

    def required_bool(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """A required boolean."""
        return self.param(ToolParameter.boolean(name, description), required=True)

    def optional_string(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """An optional string."""
        return self.param(ToolParameter.string(name, description))

    def optional_int(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """An optional integer."""
        return self.param(ToolParameter.integer(name, description))

    def optional_number(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """An optional number."""
        return self.param(ToolParameter.number(name, description))

    def optional_bool(self, name: str, description: str) -> "ToolDefinitionBuilder":
        """An optional boolean."""
        return self.param(ToolParameter.boolean(name, description))

    def param(self, parameter: ToolParameter, *, required: bool = False) -> "ToolDefinitionBuilder":
        """Any parameter, made with `ToolParameter`."""
        self._parameters.append(replace(parameter, required=True) if required else parameter)
        return self

    def enabled(self, enabled: bool = True) -> "ToolDefinitionBuilder":  # noqa: FBT001, FBT002 -- the name says it
        """Whether the tool starts enabled."""
        return self.set(enabled=enabled)

    def metadata(self, key: str, value: JsonValue) -> "ToolDefinitionBuilder":
        """One entry of the metadata."""
        self._metadata[key] = value
        return self

    def danger_level(self, level: Danger | str) -> "ToolDefinitionBuilder":
        """When calls need approval."""
        return self.set(danger=level)

    def set(self, **fields: Any) -> "ToolDefinitionBuilder":
        """Any other field by its name in the data form: `set(capabilities=["fs.read:./docs"])`."""
        if unknown := set(fields) - set(_SETTABLE):
            raise TypeError(f"{min(unknown)!r} cannot be set; fields are " + ", ".join(_SETTABLE))
        self._data.update(fields)
        return self

    def build(self) -> ToolDefinition:
        """The definition; `DefinitionInvalid` lists everything that is wrong."""
        names = [parameter.name for parameter in self._parameters]
        problems = [
            _problem(parameter.name, "has no description", "say what the parameter is for")
            for parameter in self._parameters
            if not parameter.description.strip()
        ]
        problems += [
            _problem(name, "is defined twice", "give each parameter its own name") for name in repeated(names)
        ]
        by_name = {parameter.name: parameter for parameter in self._parameters}
        fields = {**self._data, "parameters": parameters_schema(tuple(by_name.values()))}
        if self._metadata:
            fields["metadata"] = {**(self._data.get("metadata") or {}), **self._metadata}
        return definition_by_author(fields, problems)


def _problem(parameter: str, message: str, fix: str) -> Problem:
    field = f"parameters/properties/{parameter}"
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)
