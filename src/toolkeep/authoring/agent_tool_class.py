"""Agent-tool classes: tools as classes with a fixed contract (DEF-10).

    class Greet:
        TOOL_NAME = "greet"
        TOOL_USAGE_METADATA = "Use it when the user asks to be greeted."
        is_tool_fully_executed_on_server = True

        @property
        def name(self) -> str: return self.TOOL_NAME

        @staticmethod
        def get_schema() -> dict: …  # type function, name, description, parameters

        async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult: …

`contract_problems` finds everything that is wrong with a class without making an instance; logger and
services are handed to the constructor by the type it annotates.
"""

import inspect
import logging
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.tool_context import InvokeResult, ToolContext
from toolkeep.definitions.tool_names import wrong_with_author_name
from toolkeep.errors import Code, ContractBroken, Problem
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.frozen import NotJson, freeze

PLAIN_TYPES = ("string", "number", "integer", "boolean", "object", "array")

_TIMESTAMP = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_RANDOM_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)


@runtime_checkable
class AgentTool(Protocol):
    """An instance of an agent-tool class."""

    is_tool_fully_executed_on_server: bool

    @property
    def name(self) -> str:
        """The class's TOOL_NAME."""
        ...

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        """Run one call: arguments in, JSON text or a failure out."""
        ...


def is_agent_tool_class(value: object) -> bool:
    """Whether a class looks like an agent tool, right or wrong."""
    return inspect.isclass(value) and (hasattr(value, "TOOL_NAME") or hasattr(value, "get_schema"))


def definition_of_class(tool_class: type, **fields: Any) -> ToolDefinition:
    """The definition that a class declares; `ContractBroken` lists every violation of the contract.

    A class may add fields of the data form in a constant `TOOL_FIELDS`.
    """
    if problems := list(contract_problems(tool_class)):
        raise ContractBroken(tool_class.__name__, problems)
    schema = tool_class.get_schema()  # type: ignore[attr-defined]  # the contract was checked
    data = {
        "name": schema["name"],
        "description": schema["description"],
        "parameters": schema["parameters"],
        "usage_metadata": tool_class.TOOL_USAGE_METADATA,  # type: ignore[attr-defined]  # the contract was checked
        **getattr(tool_class, "TOOL_FIELDS", {}),
        **fields,
    }
    if not tool_class.is_tool_fully_executed_on_server:  # type: ignore[attr-defined]  # the contract was checked
        data["client_executed"] = True
    return definition_from_dict(data)


def make_agent_tool(tool_class: type, services: Sequence[object] = ()) -> AgentTool:
    """An instance; constructor parameters are injected by their annotated types."""
    arguments = {}
    problems = []
    for parameter, wanted in _constructor_parameters(tool_class):
        found = [service for service in services if _is_instance(service, wanted)]
        if found:
            arguments[parameter.name] = found[0]
        elif wanted is logging.Logger:
            arguments[parameter.name] = logging.getLogger(f"toolkeep.tools.{tool_class.__name__}")
        elif parameter.default is inspect.Parameter.empty:
            fix = "annotate it with a type and hand such an object to open_keep(services=[…])"
            problems.append(_problem(f"__init__.{parameter.name}", f"no service of type {wanted}", fix))
    if problems:
        raise ContractBroken(tool_class.__name__, problems)
    return cast("AgentTool", tool_class(**arguments))


def services_taken(tool_class: type, services: Sequence[object]) -> list[str]:
    """The constructor parameters that only this process can fill: services, and those without a default."""
    return [
        parameter.name
        for parameter, wanted in _constructor_parameters(tool_class)
        if any(_is_instance(service, wanted) for service in services)
        or (parameter.default is inspect.Parameter.empty and wanted is not logging.Logger)
    ]


def _constructor_parameters(tool_class: type) -> Iterator[tuple[inspect.Parameter, Any]]:
    """Each parameter that is passed on its own, with its annotated type."""
    hints = _constructor_hints(tool_class)
    for parameter in inspect.signature(tool_class).parameters.values():
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            yield parameter, hints.get(parameter.name)


def _constructor_hints(tool_class: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(tool_class.__init__)  # type: ignore[misc]  # its own, whatever it is
    except Exception as error:  # the author's expression may raise anything
        problem = _problem("__init__", f"an annotation cannot be resolved ({error})", "import the name")
        raise ContractBroken(tool_class.__name__, [problem]) from error


def _is_instance(service: object, wanted: object) -> bool:
    try:
        return isinstance(wanted, type) and isinstance(service, wanted)
    except TypeError:  # a Protocol that is not runtime_checkable
        return False


def contract_problems(tool_class: type) -> Iterator[Problem]:
    """Every violation of the contract by a class."""
    yield from _constant(tool_class, "TOOL_NAME")
    yield from _constant(tool_class, "TOOL_USAGE_METADATA")
    name = inspect.getattr_static(tool_class, "TOOL_NAME", None)
    if isinstance(name, str) and name and (wrong := wrong_with_author_name(name)):
        yield _problem("TOOL_NAME", f"{name!r} {wrong}", "use snake_case such as 'read_file'")
    yield from _name(tool_class, name)
    yield from _server_flag(tool_class)
    yield from _execute(tool_class)
    yield from _schema(tool_class, name)


def _problem(field: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=Code.CONTRACT_BROKEN, message=message, fix=fix)


def _constant(tool_class: type, field: str) -> Iterator[Problem]:
    value = inspect.getattr_static(tool_class, field, None)
    if isinstance(value, property) or callable(value):
        yield _problem(field, "is a property or method", f'make it a class attribute: {field} = "…"')
    elif not isinstance(value, str) or not value.strip():
        yield _problem(field, "is missing or blank", f'add a class attribute: {field} = "…"')


def _name(tool_class: type, tool_name: object) -> Iterator[Problem]:
    name = inspect.getattr_static(tool_class, "name", None)
    if name is None:
        yield _problem("name", "is missing", "add a property `name` that returns TOOL_NAME")
        return
    if isinstance(name, property):
        try:
            value = name.__get__(object.__new__(tool_class))
        except Exception:  # noqa: BLE001 -- a property may raise anything; that is the finding
            yield _problem("name", "cannot be read without the constructor", "return TOOL_NAME, nothing more")
            return
    else:
        value = name
    if value != tool_name:
        yield _problem("name", "does not return TOOL_NAME", "return TOOL_NAME")


def _server_flag(tool_class: type) -> Iterator[Problem]:
    flag = inspect.getattr_static(tool_class, "is_tool_fully_executed_on_server", None)
    if not isinstance(flag, bool):
        fix = "add a class attribute: is_tool_fully_executed_on_server = True"
        yield _problem("is_tool_fully_executed_on_server", "is not True or False", fix)


def _execute(tool_class: type) -> Iterator[Problem]:
    execute = inspect.getattr_static(tool_class, "execute", None)
    if not inspect.iscoroutinefunction(execute):
        fix = "write async def execute(self, arguments_json, context)"
        yield _problem("execute", "is missing or not async", fix)
    elif _parameter_names(execute)[1:] != ["arguments_json", "context"]:
        yield _problem("execute", "takes other parameters", "take (self, arguments_json, context)")


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    """Only the names: since Python 3.14 annotations may use names imported for type checkers only."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return [*inspect.signature(function, annotation_format=Format.STRING).parameters]
    return [*inspect.signature(function).parameters]


def _schema(tool_class: type, tool_name: object) -> Iterator[Problem]:
    if not isinstance(inspect.getattr_static(tool_class, "get_schema", None), staticmethod):
        yield _problem("get_schema", "is missing or not static", "add @staticmethod def get_schema() -> dict")
        return
    try:
        first, second = (freeze(tool_class.get_schema()) for _ in range(2))  # type: ignore[attr-defined]  # it is there
    except NotJson as error:
        yield _problem(f"get_schema{error.path}", error.reason, "return JSON data")
        return
    except Exception as error:  # noqa: BLE001 -- foreign code may raise anything; that is the finding
        yield _problem("get_schema", f"raised {type(error).__name__}", "return the schema as a dict")
        return
    if first != second:
        yield _problem("get_schema", "differs between two calls", "return the same schema every time")
    text = canonical_bytes(first).decode()
    if _TIMESTAMP.search(text) or _RANDOM_ID.search(text):
        yield _problem(
            "get_schema", "holds a timestamp or a random id", "keep what changes out of the schema"
        )
    yield from _schema_shape(first, tool_name)


def _schema_shape(schema: object, tool_name: object) -> Iterator[Problem]:
    if not isinstance(schema, Mapping):
        yield _problem("get_schema", "does not return an object", "return the schema as a dict")
        return
    if schema.get("type") != "function":
        yield _problem("get_schema/type", "is not 'function'", 'set "type": "function"')
    if schema.get("name") != tool_name:
        yield _problem("get_schema/name", "is not TOOL_NAME", "use TOOL_NAME")
    if not isinstance(schema.get("description"), str) or not str(schema["description"]).strip():
        yield _problem("get_schema/description", "is missing or blank", "say what the tool does")
    parameters = schema.get("parameters")
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
        yield _problem("get_schema/parameters", "is not an object schema", 'set "type": "object"')
        return
    if not isinstance(parameters.get("required"), list):
        yield _problem("get_schema/parameters/required", "is missing", "list the required names, or []")
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        yield _problem("get_schema/parameters/properties", "is missing", "describe each parameter, or {}")
        return
    for name, value in properties.items():
        field = f"get_schema/parameters/properties/{name}"
        if not isinstance(value, Mapping) or value.get("type") not in PLAIN_TYPES:
            yield _problem(field, "has no plain type", "use one of " + ", ".join(PLAIN_TYPES))
        elif not isinstance(value.get("description"), str) or not str(value["description"]).strip():
            yield _problem(field, "has no description", "say what the parameter is for")
