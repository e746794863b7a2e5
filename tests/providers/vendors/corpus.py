"""The real tools, registered, for programs that run in the environment of the vendors."""

import json
from pathlib import Path
from typing import Any

from toolkeep import ToolDefinition
from toolkeep.calls import RegisteredTool
from toolkeep.errors import DefinitionError
from toolkeep.registry.admit import admit


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def real_tools(data: Path, *, step: int = 1) -> list[RegisteredTool]:
    """Every real tool that can be registered, or one in so many, each under a name of its own."""
    found = []
    for number, tool in list(enumerate(lines(data / "tools.jsonl")))[::step]:
        schema = tool.get("schema_normalised") or tool["schema"]
        name = f"t{number}_{tool['name']}"
        given = {"name": name, "description": tool["description"], "parameters": schema}
        if isinstance(tool.get("outputSchema"), dict):
            given["outputSchema"] = tool["outputSchema"]
        try:
            found.append(admit(ToolDefinition.from_elsewhere(given)))
        except DefinitionError:
            continue
    return found


def real_calls(data: Path) -> list[tuple[ToolDefinition, dict[str, Any]]]:
    """Every valid real call with its tool."""
    return [
        (definition_of(call["tool"], call["schema"]), call["arguments"])
        for call in lines(data / "calls.jsonl")
        if call["valid"]
    ]


def definition_of(name: str, schema: dict[str, Any]) -> ToolDefinition:
    """A tool taken over from elsewhere."""
    return ToolDefinition.from_elsewhere({"name": name, "description": "A tool.", "parameters": schema})
