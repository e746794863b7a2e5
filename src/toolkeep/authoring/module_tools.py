"""Describes the tools of a Python file or module as data. Runs in a worker, which imports the module.

Out: for each tool its name in the module, and its definition or the problems of it. The host trusts none of
it: the module's code has run in this process, and can forge the reply (`execution/module_reader.py`).
"""

import sys
from collections.abc import Iterator
from typing import Any

from toolkeep.authoring.agent_tool_class import definition_of_class, is_agent_tool_class
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.authoring.importing import GUEST_LOADER
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionError


def describe_tools(place: str) -> list[dict[str, Any]]:
    """The tools of `/path/file.py` or `package.module`, in the order of the module."""
    module = sys.modules[GUEST_LOADER].import_place(place)
    return [_described(name, value) for name, value in _tools(module)]


def _tools(module: Any) -> Iterator[tuple[str, Any]]:
    """Decorated functions, imported ones too, and agent-tool classes that the module itself defines."""
    seen: list[Any] = []
    for name, value in list(vars(module).items()):
        is_class = is_agent_tool_class(value) and value.__module__ == module.__name__
        if (isinstance(value, FunctionTool) or is_class) and not any(value is other for other in seen):
            seen.append(value)
            yield name, value


def _described(name: str, value: Any) -> dict[str, Any]:
    try:
        return {"reference": name, "definition": _definition(value).to_dict()}
    except DefinitionError as error:
        return {"reference": name, "problems": [problem.to_dict() for problem in error.problems]}


def _definition(value: Any) -> ToolDefinition:
    return value.definition if isinstance(value, FunctionTool) else definition_of_class(value)
