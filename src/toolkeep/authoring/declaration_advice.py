"""The line that declares a tool's side effects, for a tool that declares none (DEF-8)."""

from typing import Any

from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import SideEffect

_KINDS = {effect.capability: effect.value for effect in SideEffect if not effect.is_class}


def declaration(definition: ToolDefinition, runner: Any = None) -> str:
    """The line to add, in the form in which the tool was written, with the other words that it accepts.

    Capabilities of write kinds imply their effects; otherwise only the author knows.
    """
    named = list(dict.fromkeys(_KINDS[held.kind] for held in definition.capabilities))
    line = _line({"side_effects": named, "danger": "medium"} if named else {"effects": "none"}, runner)
    return line if named else f"{line} (or reads; writes with a danger)"


def _line(fields: dict[str, Any], runner: Any) -> str:
    # A runner with places comes from a Python file of tools.
    if isinstance(runner, FunctionTool) or getattr(runner, "places", False):
        return f"@tool({', '.join(f'{name}={_quoted(value)}' for name, value in fields.items())})"
    inside = ", ".join(f'"{name}": {_quoted(value)}' for name, value in fields.items())
    if hasattr(runner, "TOOL_NAME"):
        return f"TOOL_FIELDS = {{{inside}}}"
    return ", ".join(f"{name}: {_quoted(value)}" for name, value in fields.items()).replace('"', "")


def _quoted(value: str | list[str]) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "[" + ", ".join(f'"{one}"' for one in value) + "]"
