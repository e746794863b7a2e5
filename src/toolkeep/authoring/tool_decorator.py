"""`@tool`: a typed Python function, or a tool of another framework, becomes a tool.

In: the function and what its author says about it. Out: a `FunctionTool` whose definition keeps the rules for
authors, or `DefinitionInvalid` with every problem. The author is trusted: annotations are evaluated.

A worker that imports the tool gets the function with its definition unread: the host has checked it.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.authoring.importing import is_importing

P = ParamSpec("P")
R = TypeVar("R")


class ToolFields(TypedDict, total=False):
    """The optional fields of a tool beside its name and description."""

    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    version: str
    category: str
    output_schema: Mapping[str, Any] | None
    result_type: str | None
    normalization: str | None
    constraints: Mapping[str, Any]
    resource_bounds: Mapping[str, Any]
    required_permissions: Sequence[str]
    capabilities: Sequence[str]
    side_effects: Sequence[str] | str | None
    effects: Sequence[str] | str | None
    flow: Mapping[str, Any]
    determinism: str | None
    idempotent: bool
    danger: str | None
    requires_confirmation: bool
    sensitive: bool
    client_executed: bool
    usage_metadata: str
    enabled: bool
    aliases: Sequence[str]
    metadata: Mapping[str, Any]


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    **fields: Unpack[ToolFields],
) -> FunctionTool[P, R]: ...


@overload
def tool(
    *, name: str | None = ..., description: str | None = ..., **fields: Unpack[ToolFields]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **fields: Any,
) -> Any:
    """Make a function a tool. `fields` are fields of the definition in their data form.

    It also wraps a tool of LangChain, pydantic-ai or FastMCP.

    `@tool` alone, or `@tool(danger="medium", capabilities=["fs.write:./out"], side_effects=["FsWrite"])`.
    """
    if function is None:
        return lambda decorated: _make(decorated, name, description, fields)
    return _make(function, name, description, fields)


def _make(
    function: Callable[..., Any], name: str | None, description: str | None, fields: dict[str, Any]
) -> FunctionTool[..., Any]:
    if not inspect.isroutine(function):  # no framework's tool is one, and a worker saves the import
        from toolkeep.authoring.foreign_tools import framework_of, wrap_foreign_tool

        if framework_of(function) is not None:
            named = {"name": name, "description": description}
            return wrap_foreign_tool(function).with_fields(
                {key: said for key, said in named.items() if said} | fields
            )
    made = FunctionTool(function, name, description, fields)
    if not is_importing():
        _ = made.definition  # raises here, where its author reads it
    return made
