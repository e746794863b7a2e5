"""The parameters of a typed Python function: its context, and what its arguments are converted to.

Light, like `authoring/function_tool.py`: pydantic is imported for annotations that JSON data does not fit.
"""

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from toolkeep.definitions.tool_context import ToolContext

if typing.TYPE_CHECKING:
    from pydantic import TypeAdapter

    from toolkeep.errors import DefinitionInvalid

_JSON_SCALARS = (str, int, float, bool, type(None))


class Signature:
    """A function's parameters: the one that takes the context, and those that arguments are bound to."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.context_name: str | None = None
        self.field_defaults: dict[str, Any] = {}
        """Defaults inside a `Field`, which the function itself does not apply."""
        self.parameters: list[inspect.Parameter] = []
        """All but the context, each with its resolved annotation."""
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        signature = _signature_of(name, function)
        hints = _hints(name, function)
        self.returned = hints.get("return")
        for stated in signature.parameters.values():
            parameter = self._without_field(
                stated.replace(annotation=hints.get(stated.name, inspect.Parameter.empty))
            )
            if parameter.annotation in (ToolContext, ToolContext | None):
                self.context_name = parameter.name
            else:
                self.parameters.append(parameter)

    @functools.cached_property
    def instances(self) -> "dict[str, TypeAdapter[Any]]":
        """What converts the arguments that are no JSON data."""
        return {one.name: self.adapter(one) for one in self.parameters if not _is_json(one.annotation)}

    def adapter(self, parameter: inspect.Parameter) -> "TypeAdapter[Any]":
        """pydantic's adapter of a parameter's annotation."""
        import pydantic

        if parameter.name not in self._adapters:
            self._adapters[parameter.name] = pydantic.TypeAdapter(parameter.annotation)
        return self._adapters[parameter.name]

    def _without_field(self, parameter: inspect.Parameter) -> inspect.Parameter:
        """Read `x: int = Field(default=3, ge=1)` as `x: Annotated[int, Field(ge=1)] = 3`."""
        if type(parameter.default).__name__ != "FieldInfo":
            return parameter
        field = parameter.default
        default = (
            inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
        )
        if default is not inspect.Parameter.empty:
            self.field_defaults[parameter.name] = default
        return parameter.replace(default=default, annotation=typing.Annotated[parameter.annotation, field])


def _signature_of(name: str, given: Any) -> inspect.Signature:
    """The signature of a function; raises for a callable without a reliable one."""
    # which Python 3.14 calls a routine
    is_routine = inspect.isroutine(given) and not isinstance(given, functools.partial)
    is_annotated = "__annotations__" in getattr(given, "__dict__", ())
    with contextlib.suppress(ValueError):  # some functions written in C have no signature
        if is_routine or inspect.isclass(given) or hasattr(given, "__wrapped__") or is_annotated:
            return inspect.signature(given)
    message = f"is made from a {type(given).__name__}, which is no function"
    raise _invalid(name, message, "write a function that calls it, and make that a tool")


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # the author's expression may raise anything
        message = f"an annotation cannot be resolved ({error})"
        raise _invalid(name, message, "import the name where the function is defined") from error


def _invalid(name: str, message: str, mend: str) -> "DefinitionInvalid":
    from toolkeep.errors import Code, DefinitionInvalid, Problem

    problem = Problem(field="parameters", code=Code.DEFINITION_INVALID, message=message, mend=mend)
    return DefinitionInvalid(name, [problem])


def _is_json(hint: Any) -> bool:
    """Whether parsed JSON already is an instance of the annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _is_json(args[0])
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_json, args))
    if origin is typing.Literal:
        return all(type(arg) in _JSON_SCALARS for arg in args)
    if origin in (list, dict):
        return all(map(_is_json, args))
    if typing.is_typeddict(hint):
        return all(map(_is_json, typing.get_type_hints(hint).values()))
    return hint is Any or hint in _JSON_SCALARS or hint in (None, list, dict)
