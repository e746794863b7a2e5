"""THE ORDER: takes a call through the stages. Today: get, then validate."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.definitions.check import written_by_hand
from toolkeep.definitions.contract import definition_of_class, is_agent_tool_class, make_agent_tool
from toolkeep.definitions.function import FunctionTool, tool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import ArgumentsRefused, UnknownTool
from toolkeep.limits import DEFAULT_LIMITS, Limits
from toolkeep.registry.admit import admit
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.unknown import unknown_tool
from toolkeep.validation.memory import RefusalMemory
from toolkeep.validation.nearest import nearest_name
from toolkeep.validation.validate import Arguments, validate

LOCAL_AGENT = "local"

logging.getLogger("toolkeep").addHandler(logging.NullHandler())  # silent unless the host listens


class Keep:
    """Keeps an agent's tools. Made by `open_keep`."""

    def __init__(
        self,
        *,
        services: Sequence[object] = (),
        limits: Limits = DEFAULT_LIMITS,
        include_actual_values: bool = True,
    ) -> None:
        self._registry = ToolRegistry()
        self._refusals = RefusalMemory()
        self._services = tuple(services)
        self._limits = limits
        self._shows_values = include_actual_values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything that the keep holds open."""

    def register(self, *tools: Any) -> None:
        """Add tools: functions made with `@tool` or plain typed ones, agent-tool classes, definitions, data.

        All or none: raises a `DefinitionError` with everything that is wrong, or `DuplicateTool`.
        """
        self._registry.add_all([self._admit(*self._defined(given)) for given in tools])

    def _admit(self, definition: ToolDefinition, runner: Any) -> RegisteredTool:
        return admit(definition, runner=runner, limits=self._limits, shows_values=self._shows_values)

    def _defined(self, given: Any) -> tuple[ToolDefinition, Any]:
        if isinstance(given, FunctionTool):
            return given.definition, given
        if isinstance(given, ToolDefinition):
            return given, None
        if isinstance(given, Mapping):
            return written_by_hand(ToolDefinition.from_dict(given)), None
        if is_agent_tool_class(given):
            return definition_of_class(given), make_agent_tool(given, self._services)
        if is_agent_tool_class(type(given)):
            return definition_of_class(type(given)), given
        if callable(given):
            made = tool(given)
            return made.definition, made
        raise TypeError(f"{type(given).__name__} is no tool: use @tool, ToolDefinition, a class or data")

    def tools(self) -> list[RegisteredTool]:
        """Every registered tool, by category, then by name."""
        return self._registry.all()

    def get(self, name: str) -> RegisteredTool:
        """The tool of that name, in any case; raises `UnknownTool`."""
        found = self._registry.find(name)
        if found is None:
            near = nearest_name(name, list(self._registry.by_name))
            raise UnknownTool(name, near=[near] if near else [])
        return found

    def try_validate_arguments(
        self,
        name: str,
        arguments: Arguments,
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        correlation_id: str = "",
    ) -> CheckedCall | Refusal:
        """Check a call without running it; never raises. Arguments are JSON text, bytes, or a dict."""
        if type(name) is not str:
            name = str(name)
        registered = self._registry.by_name.get(name) or self._registry.find(name)
        if registered is None:
            return unknown_tool(name, self._registry.by_name, correlation_id=correlation_id)
        return validate(registered, arguments, self._refusals, agent, conversation, correlation_id)

    def validate_arguments(
        self,
        name: str,
        arguments: Arguments,
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        correlation_id: str = "",
    ) -> dict[str, Any]:
        """The parsed arguments with defaults; raises `ArgumentsRefused`, which holds the refusal."""
        check = self.try_validate_arguments(
            name, arguments, agent=agent, conversation=conversation, correlation_id=correlation_id
        )
        if isinstance(check, Refusal):
            raise ArgumentsRefused(check)
        return check.arguments
