"""Turn whatever a host or provider offers as a tool into a definition and its runner."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from toolkeep.authoring.agent_tool_class import definition_of_class, is_agent_tool_class, make_agent_tool
from toolkeep.authoring.foreign_tools import framework_of, wrap_foreign_tool
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.authoring.tool_decorator import tool
from toolkeep.authoring.wasm_tool import WasmTool
from toolkeep.definitions.definition_rules import written_by_hand
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionError, Problem, ToolkeepError
from toolkeep.text.display import echo_name

if TYPE_CHECKING:
    from toolkeep.definitions.sanitize import Removal


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that a provider offers as data, with what only the provider knows about it."""

    tool: Mapping[str, Any] | ToolDefinition | ToolkeepError
    """Data, a definition, or the error that prevented one."""
    name: str = ""
    """Its name, if the tool cannot be read."""
    runner: Any = None
    is_custom: bool = False
    code_hash: str = ""
    """Hash of its code, where a file of tools brings it."""
    held_back: str = ""
    """Why it is quarantined, if it is."""
    removed: "tuple[Removal, ...]" = ()
    """What was removed from the text of an import."""
    aliases: tuple[str, ...] = ()
    """Its aliases, if the tool cannot be read."""
    warnings: tuple[Problem, ...] = ()
    locate: Callable[[str], str] | None = None
    """The position of a field in the file that the tool comes from."""

    @property
    def suspicion(self) -> str:
        """What a person should review first; scanned anew each time."""
        return suspicion_of(self.tool, self.removed) if isinstance(self.tool, ToolDefinition) else ""


def suspicion_of(
    definition: ToolDefinition, removed: "Sequence[Removal]" = (), *, is_known: bool = False
) -> str:
    """What a person should review first. Every import is scanned, whichever provider brings it.

    The text of a known one was scanned before; what was removed from it is not part of its hash.
    """
    if definition.source.is_by_hand or (is_known and not removed):
        return ""
    from toolkeep.definitions.injection_scan import hidden_text, quarantine_reasons, scan_for_injection

    return quarantine_reasons(hidden_text(removed) if is_known else scan_for_injection(definition, removed))


def coerce_tool(given: Any, services: Sequence[object] = ()) -> tuple[ToolDefinition, Any]:
    """The definition and its runner; raises a `DefinitionError` with every problem."""
    if isinstance(given, (FunctionTool, WasmTool)):
        return given.definition, given
    if framework_of(given) is not None:
        borrowed = wrap_foreign_tool(given)
        return borrowed.definition, borrowed
    if isinstance(given, ToolDefinition):
        return given, None
    if isinstance(given, Offer):
        if isinstance(given.tool, ToolkeepError):
            raise given.tool
        return coerce_tool(given.tool)[0], given.runner
    if isinstance(given, Mapping):
        return written_by_hand(definition_from_dict(given)), None
    if is_agent_tool_class(given):
        return definition_of_class(given), make_agent_tool(given, services)
    if is_agent_tool_class(type(given)):
        return definition_of_class(type(given)), given
    if callable(given):
        made = tool(given)
        return made.definition, made
    raise TypeError(f"{type(given).__name__} is not a tool: use @tool, ToolDefinition, a class or data")


def located(given: Any, error: DefinitionError) -> DefinitionError:
    """The error with the position of each problem, if the tool comes from a file."""
    if not isinstance(given, Offer) or given.locate is None:
        return error
    places = [f"{given.locate(problem.field)} {problem.field}".strip() for problem in error.problems]
    problems = [
        msgspec.structs.replace(problem, field=place)
        for problem, place in zip(error.problems, places, strict=True)
    ]
    return type(error)(error.name, problems)


def name_of(given: Any) -> str:
    """A name for something that may not be a tool."""
    try:
        return _name_of(given)
    except BaseException as error:  # noqa: BLE001 -- an attribute of a foreign object may raise anything
        pass_through(error)
        return type(given).__name__


def names_of(given: Any) -> tuple[str, ...]:
    """Its name and aliases, as far as they can be read."""
    try:
        aliases = [alias for alias in _aliases_of(given) if isinstance(alias, str)]
    except BaseException as error:  # noqa: BLE001 -- the same
        pass_through(error)
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


def pass_through(error: BaseException) -> None:
    """Raise KeyboardInterrupt, SystemExit and the like again; an exception of foreign code is not passed
    on."""
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
