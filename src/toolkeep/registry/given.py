"""Whatever a host or a provider calls a tool, as a definition and what runs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from toolkeep.definitions.borrowed import borrow, framework_of
from toolkeep.definitions.check import written_by_hand
from toolkeep.definitions.contract import definition_of_class, is_agent_tool_class, make_agent_tool
from toolkeep.definitions.function import FunctionTool, tool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.wasm import WasmTool
from toolkeep.errors import DefinitionError, Problem, ToolkeepError
from toolkeep.wording import echo_name


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a provider offers as data, with what only the provider knows about it."""

    tool: Mapping[str, Any] | ToolDefinition | ToolkeepError
    """Data, a definition, or why there is none."""
    name: str = ""
    """How it is called where it cannot be read."""
    runner: Any = None
    is_custom: bool = False
    held_back: str = ""
    """Why it is quarantined, where it is."""
    suspicion: str = ""
    """What in the words of an import a person should look at before it answers."""
    aliases: tuple[str, ...] = ()
    """Its further names, where it cannot be read."""
    warnings: tuple[Problem, ...] = ()
    locate: Callable[[str], str] | None = None
    """Where a field of it stands in the file that it comes from."""


def define(given: Any, services: Sequence[object] = ()) -> tuple[ToolDefinition, Any]:
    """Definition and runner; raises a `DefinitionError` with everything that is wrong."""
    if isinstance(given, (FunctionTool, WasmTool)):
        return given.definition, given
    if framework_of(given) is not None:
        borrowed = borrow(given)
        return borrowed.definition, borrowed
    if isinstance(given, ToolDefinition):
        return given, None
    if isinstance(given, Offer):
        if isinstance(given.tool, ToolkeepError):
            raise given.tool
        return define(given.tool)[0], given.runner
    if isinstance(given, Mapping):
        return written_by_hand(ToolDefinition.from_dict(given)), None
    if is_agent_tool_class(given):
        return definition_of_class(given), make_agent_tool(given, services)
    if is_agent_tool_class(type(given)):
        return definition_of_class(type(given)), given
    if callable(given):
        made = tool(given)
        return made.definition, made
    raise TypeError(f"{type(given).__name__} is no tool: use @tool, ToolDefinition, a class or data")


def located(given: Any, error: DefinitionError) -> DefinitionError:
    """The error with the place of each problem, where the tool comes from a file."""
    if not isinstance(given, Offer) or given.locate is None:
        return error
    places = [f"{given.locate(problem.field)} {problem.field}".strip() for problem in error.problems]
    problems = [
        msgspec.structs.replace(problem, field=place)
        for problem, place in zip(error.problems, places, strict=True)
    ]
    return type(error)(error.name, problems)


def name_of(given: Any) -> str:
    """How to call something that may not become a tool."""
    try:
        return _name_of(given)
    except BaseException as error:  # noqa: BLE001 -- looking at other people's objects may do anything
        let_pass(error)
        return type(given).__name__


def names_of(given: Any) -> tuple[str, ...]:
    """Name and aliases, as far as they can be read."""
    try:
        aliases = [alias for alias in _aliases_of(given) if isinstance(alias, str)]
    except BaseException as error:  # noqa: BLE001 -- the same
        let_pass(error)
        aliases = []
    return (name_of(given), *aliases)


def _aliases_of(given: Any) -> Sequence[Any]:
    inner = given.tool if isinstance(given, Offer) else given
    if isinstance(inner, (FunctionTool, WasmTool)):
        return inner.definition.aliases
    if isinstance(inner, ToolDefinition):
        return inner.aliases
    if isinstance(inner, Mapping):
        listed = inner.get("aliases")
        return listed if isinstance(listed, (list, tuple)) else ()
    return given.aliases if isinstance(given, Offer) else ()


def let_pass(error: BaseException) -> None:
    """Raise again what the person at the keyboard, or the interpreter, sent; other people's code may not."""
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        raise error


def _name_of(given: Any) -> str:
    if isinstance(given, Offer) and given.name:
        return echo_name(given.name)
    inner = given.tool if isinstance(given, Offer) else given
    if isinstance(inner, WasmTool):
        return echo_name(inner.definition.name)
    if isinstance(inner, Mapping):
        return echo_name(str(inner.get("name", "?")))
    for attribute in ("TOOL_NAME", "name", "__name__"):
        if isinstance(name := getattr(inner, attribute, None), str):
            return echo_name(name)
    return type(inner).__name__
