"""An imported tool with the roles and labels that a person declared, and without them.

In: a registered tool as its upstream brought it. Out: the same with another definition, whose hash the log,
approvals and caches see; `arrived` stays what its pin is about.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.argument_roles import ToolFlow, read_tool_flows, with_flow
from toolkeep.definitions.parameter_marks import FLOW_KEY
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.registry.admit import check_definition


def declared_tool(tool: RegisteredTool, declared: Mapping[str, Any]) -> RegisteredTool:
    """The tool with these roles and labels, and no others; raises `DefinitionInvalid`."""
    definition = with_flow(_without_roles(tool.definition), _read(tool, declared))
    return msgspec.structs.replace(
        tool, definition=definition, definition_hash=definition.hash, arrived=tool.definition
    )


def check_flow(tool: RegisteredTool, declared: Mapping[str, Any]) -> None:
    """Raise `DefinitionInvalid` if roles or labels do not fit a tool, as if it were registered with them."""
    if problems := check_definition(declared_tool(tool, declared).definition)[0]:
        raise DefinitionInvalid(tool.name, problems)


def undeclared_tool(tool: RegisteredTool) -> RegisteredTool:
    """The tool as its upstream brought it, with our version."""
    if tool.arrived is None:
        return tool
    return msgspec.structs.replace(
        tool, definition=tool.arrived, definition_hash=tool.arrived.hash, arrived=None
    )


def _read(tool: RegisteredTool, declared: Mapping[str, Any]) -> ToolFlow:
    try:
        return read_tool_flows({tool.name: declared})[tool.name]
    except ValueError as error:
        problem = Problem(
            field="flow", code=Code.DEFINITION_INVALID, message=str(error), fix="use one of these words"
        )
        raise DefinitionInvalid(tool.name, [problem]) from None


def _without_roles(definition: ToolDefinition) -> ToolDefinition:
    if not definition.roles:
        return definition.replace(flow={})
    properties = {
        name: {key: value for key, value in schema.items() if key != FLOW_KEY}
        if isinstance(schema, dict)
        else schema
        for name, schema in definition.properties.items()
    }
    return definition.replace(parameters={**definition.parameters, "properties": properties}, flow={})
