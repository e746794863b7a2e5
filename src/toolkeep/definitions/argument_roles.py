"""Which marks apply to each argument of a tool, and which roles an argument may not have.

In: the schema of a tool's parameters. Out: for each argument, whether it is a credential, and every
`x-touches` that may apply to its value. An argument is followed through every property of its name and every
reference; a mark outside any named property may apply to any argument, and counts for all of them.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolkeep.definitions.parameter_marks import FLOW_KEY, TOUCHES_KEY, Touches
from toolkeep.definitions.secret_subschemas import find_secret_subschemas
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Role, TouchForm
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.json_values.frozen import objects_in
from toolkeep.json_values.pointers import referred, steps_of

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_PROCESS_SPAWN: Final = "process.spawn"

Part = dict[str, Any]


class ArgumentMarks:
    """The marks of one tool's arguments; built once for a definition."""

    def __init__(self, parameters: Part) -> None:
        self._root = parameters
        self._secret = find_secret_subschemas(parameters)
        self._marked = [part for part in objects_in(parameters) if TOUCHES_KEY in part]
        self._named: dict[str, list[Any]] = defaultdict(list)
        for part in objects_in(parameters) if self._marked or self._secret else ():
            properties = part.get("properties")
            for name, inside in properties.items() if isinstance(properties, dict) else ():
                self._named[name].append(inside)
        owned = self._reached([part for parts in self._named.values() for part in parts])
        self._unowned = [part for part in self._marked if id(part) not in owned]

    def touches(self, name: str) -> list[Touches]:
        """The marks that may apply to an argument."""
        reached = self._reached(self._named.get(name, []))
        parts = [part for part in self._marked if id(part) in reached]
        return [_mark(part[TOUCHES_KEY]) for part in (*parts, *self._unowned)]

    def is_credential(self, name: str) -> bool:
        """Whether anything in an argument is secret."""
        return not self._secret.isdisjoint(self._reached(self._named.get(name, [])))

    def is_command(self, name: str) -> bool:
        """Whether an argument says what is executed: no remembered approval may cover another command than
        the one shown."""
        return any(mark.kind == _PROCESS_SPAWN or mark.form is TouchForm.ARGV for mark in self.touches(name))

    def why_authority(self, name: str) -> str:
        """Why an argument carries authority whatever its declared role; empty if it does not."""
        if self.is_credential(name):
            return "it is secret"
        marks = self.touches(name)
        return f"it touches {marks[0].kind}" if marks else ""

    def _reached(self, parts: list[Any]) -> set[int]:
        """The subschemas that may apply to a value, through every reference."""
        seen: set[int] = set()
        waiting = list(parts)
        while waiting:
            for part in objects_in(waiting.pop()):
                if id(part) in seen:
                    continue
                seen.add(id(part))
                waiting += list(self._targets(part))
        return seen

    def _targets(self, part: Part) -> Iterator[Any]:
        for keyword in _REFERENCES:
            if keyword in part:
                try:
                    yield referred(self._root, part[keyword])
                except KeyError:
                    yield self._root  # it may lead anywhere, so every mark counts


def _mark(mark: Any) -> Touches:
    try:
        return Touches.read(mark)
    except ValueError:  # unreadable: assume the worst kind, or a broken mark would lower the protection
        return Touches(_PROCESS_SPAWN)


RESULT: Final = "result"
"""Beside the pointers of arguments, the key of the labels of a result."""


class ToolFlow(NamedTuple):
    """What an operator declares about the flow of an imported tool."""

    roles: Mapping[str, Role]
    """By JSON Pointer of the argument."""
    labels: Mapping[str, Any]
    """By JSON Pointer into the result."""


NO_TOOL_FLOW: Final = ToolFlow({}, {})


def read_tool_flows(data: Mapping[str, Mapping[str, Any]]) -> dict[str, ToolFlow]:
    """What a configuration declares, by tool name; ValueError for what it cannot say."""
    return {tool: _read_tool_flow(said) for tool, said in data.items()}


def _read_tool_flow(said: Mapping[str, Any]) -> ToolFlow:
    labels = said.get(RESULT) or {}
    if not isinstance(labels, Mapping):
        raise ValueError(f"{RESULT} must be an object of labels by JSON Pointer")
    return ToolFlow({at: Role.read(word) for at, word in said.items() if at != RESULT}, labels)


def with_flow(definition: ToolDefinition, declared: ToolFlow) -> ToolDefinition:
    """An imported definition with the roles and labels that the operator declared.

    Raises `DefinitionInvalid` for a pointer that names no parameter, or a label that cannot be read.
    """
    if declared == NO_TOOL_FLOW:
        return definition
    properties = dict(definition.properties)
    problems = []
    for pointer, role in declared.roles.items():
        steps = steps_of(pointer)
        if len(steps) == 1 and isinstance(properties.get(steps[0]), dict):
            properties[steps[0]] = {**properties[steps[0]], FLOW_KEY: role.value}
        else:
            problems.append(_unknown(definition, pointer))
    if problems:
        raise DefinitionInvalid(definition.name, problems)
    parameters = (
        {**definition.parameters, "properties": properties} if declared.roles else definition.parameters
    )
    return definition.replace(parameters=parameters, flow=declared.labels)


def _unknown(definition: ToolDefinition, pointer: str) -> Problem:
    names = ", ".join(f"/{name}" for name in definition.properties) or "none"
    return Problem(
        field="parameters",
        code=Code.DEFINITION_INVALID,
        message=f"{pointer[:64]!r} in `flow` names no parameter of the tool",
        fix=f"its parameters are {names[:200]}",
    )
