"""Tools of other frameworks as they are: LangChain, pydantic-ai and FastMCP (of either package).

None of those frameworks is imported: the class of an object tells its framework. A foreign tool counts as
imported: danger is medium until the host states otherwise, with `tool(danger="safe")(theirs)`, and author
rules only warn. It runs in this process, like any function that the host registers.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolkeep.authoring.dependencies import Dependencies, kind_of
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.definitions.serialization import OTHER_SPELLINGS, definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, DefinitionInvalid, Problem

_KINDS: Final = {
    ("langchain_core.tools", "BaseTool"): "langchain",
    ("pydantic_ai.tools", "Tool"): "pydantic-ai",
    ("fastmcp.tools", "Tool"): "fastmcp",
    ("mcp.server.mcpserver.tools", "Tool"): "mcp",
    ("mcp.server.fastmcp.tools", "Tool"): "mcp",
}
_FAILURES: Final = ("ToolException", "ModelRetry", "ToolFailed", "ToolError")
"""The names of exceptions whose text a model may read."""


class ForeignTool(FunctionTool[..., Any]):
    """A tool of another framework with its definition; calling it calls the tool."""

    def __init__(
        self,
        definition: ToolDefinition,
        function: Callable[..., Any],
        arrived: ToolDefinition | None = None,
    ) -> None:
        self._definition = definition
        self.arrived = arrived or definition
        """The definition without the host's statements: a pin holds what comes from elsewhere."""
        self.function = function
        self.kind = kind_of(function)
        self.overrides = {}
        self._known_dependencies = Dependencies((), {})

    def __call__(self, **arguments: Any) -> Any:
        """Call the tool itself: no validation, no policy, no record."""
        return self.function(arguments=arguments)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> dict[str, Any]:  # noqa: ARG002 -- as a function's
        """Validated arguments, unchanged."""
        return {"arguments": dict(arguments)}

    @property
    def takes_context(self) -> bool:
        """Foreign tools take no `ToolContext`."""
        return False

    @property
    def makes_instances(self) -> bool:
        """Arguments are passed as JSON data."""
        return False

    def with_fields(self, fields: Mapping[str, Any]) -> "ForeignTool":
        """The same tool with the host's statements, fields of a definition in their data form."""
        data = {"name": "borrowed", "description": "-", **fields}
        said = definition_from_dict(data)
        changes = {name: getattr(said, name) for name in (OTHER_SPELLINGS.get(key, key) for key in fields)}
        is_default = self.definition.danger is Danger.MEDIUM  # unless an annotation raised it
        if "side_effects" in changes and "danger" not in changes and is_default:
            changes["danger"] = Danger.MEDIUM if said.has_write_effects else None
        return ForeignTool(self.definition.replace(**changes), self.function, self.arrived)


def framework_of(given: Any) -> str | None:
    """The framework of a tool; None for anything else."""
    for kind in type(given).__mro__:
        for (module, name), framework in _KINDS.items():
            if kind.__name__ == name and (
                kind.__module__ == module or kind.__module__.startswith(f"{module}.")
            ):
                return framework
    return None


def wrap_foreign_tool(given: Any) -> ForeignTool:
    """Wrap a tool of another framework; raises `DefinitionInvalid` if it cannot run without that
    framework."""
    framework = framework_of(given) or ""
    if framework == "langchain":
        return _of_langchain(given)
    if framework == "pydantic-ai":
        return _of_pydantic_ai(given)
    return _of_mcp(given, framework)


def _definition(
    framework: str, name: str, description: str | None, schema: Any, **more: Any
) -> ToolDefinition:
    data = {"name": name, "description": description or "", "parameters": schema, **more}
    return ToolDefinition.from_elsewhere(data, origin=framework)


def _of_langchain(given: Any) -> ForeignTool:
    schema = given.tool_call_schema
    if not isinstance(schema, dict):
        schema = schema.model_json_schema()
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    has_own = getattr(given, "coroutine", None) is not None or "_arun" in _overridden(given)

    async def run(arguments: dict[str, Any]) -> Any:
        return _plain(await _speaking(given.ainvoke(arguments)))

    def run_in_thread(arguments: dict[str, Any]) -> Any:
        try:
            return _plain(given.invoke(arguments))
        except Exception as error:
            raise _failure(error) from error

    definition = _definition("langchain", given.name, given.description, schema)
    return ForeignTool(definition, run if has_own else run_in_thread)


def _overridden(given: Any) -> set[str]:
    """The methods that a tool's class defines below the framework's classes."""
    found: set[str] = set()
    for kind in type(given).__mro__:
        if kind.__module__.startswith("langchain_core."):
            return found
        found.update(vars(kind))
    return found


def _of_pydantic_ai(given: Any) -> ForeignTool:
    if given.takes_ctx:
        _refuse(given.name, "takes a RunContext, which only an agent of pydantic-ai has")
    schema = given.function_schema

    async def run(arguments: dict[str, Any]) -> Any:
        return _plain(await _speaking(schema.call(schema.validator.validate_python(arguments), None)))

    def run_in_thread(arguments: dict[str, Any]) -> Any:
        try:
            values = dict(schema.validator.validate_python(arguments))
            positional = [values.pop(name) for name in schema.positional_fields]
            if schema.var_positional_field:
                positional += values.pop(schema.var_positional_field)
            return _plain(schema.function(*positional, **values))
        except Exception as error:
            raise _failure(error) from error

    definition = _definition("pydantic-ai", given.name, given.description, schema.json_schema)
    if given.requires_approval:
        definition = definition.replace(requires_confirmation=True)
    return ForeignTool(definition, run if schema.is_async else run_in_thread)


def _of_mcp(given: Any, framework: str) -> ForeignTool:
    if getattr(given, "context_kwarg", None):
        _refuse(given.name, "takes a Context, which only a server has")
    said = getattr(given, "output_schema", None)
    output: dict[str, Any] = said if isinstance(said, dict) else {}
    is_wrapped = bool(output.get("x-fastmcp-wrap-result"))
    if is_wrapped:
        output = output["properties"]["result"] | {key: output[key] for key in ("$defs",) if key in output}
    more: dict[str, Any] = {"output_schema": output} if output else {}
    annotations = getattr(given, "annotations", None)
    if annotations is not None:
        more["annotations"] = annotations.model_dump(by_alias=True, exclude_none=True)

    async def run(arguments: dict[str, Any]) -> Any:
        result = await _speaking(_run_mcp(given, framework, arguments))
        return _of_result(result, is_wrapped=is_wrapped)

    definition = _definition(framework, given.name, given.description, given.parameters, **more)
    if not more.get("output_schema"):
        definition = definition.replace(metadata={"mcp": {"content": True}})
    return ForeignTool(definition, run)


async def _run_mcp(given: Any, framework: str, arguments: dict[str, Any]) -> Any:
    if framework == "fastmcp":
        return await given.run(arguments)
    return await given.run(arguments, None, convert_result=True)


def _of_result(result: Any, *, is_wrapped: bool) -> Any:
    """The value of an MCP tool result: structured content, else text, else blocks."""
    if getattr(result, "is_error", False):
        raise ToolFailed(_text_of(result.content))
    is_pair = isinstance(result, tuple) and len(result) == 2
    content, structured = result if is_pair else (result, None)
    structured = getattr(result, "structured_content", structured)
    if structured is not None:
        return structured["result"] if is_wrapped else structured
    content = getattr(content, "content", content)
    if not isinstance(content, list):
        return _plain(result)
    if all(getattr(block, "type", "") == "text" for block in content):
        return _text_of(content)
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in content]


def _text_of(content: list[Any]) -> str:
    return "\n".join(str(getattr(block, "text", "")) for block in content)


async def _speaking(work: Any) -> Any:
    """The result of an awaitable; a framework's failure exception becomes `ToolFailed`."""
    try:
        return await work if inspect.isawaitable(work) else work
    except Exception as error:
        raise _failure(error) from error


def _failure(error: Exception) -> Exception:
    names = {kind.__name__ for kind in type(error).__mro__}
    return ToolFailed(str(error)) if names & set(_FAILURES) else error


def _plain(value: Any) -> Any:
    """A value as JSON; what JSON cannot hold becomes text, as the frameworks send it to models."""
    if value is None or isinstance(value, (str, bool, int, float, bytes)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    return str(value)


def _refuse(name: str, message: str) -> None:
    problem = Problem(
        field="function", code=Code.DEFINITION_INVALID, message=message, fix="register a function of its own"
    )
    raise DefinitionInvalid(str(name), [problem])
