"""The parameters of a typed Python function: context, dependencies, and what its arguments are converted to.

Light, like `authoring/function_tool.py`: pydantic is imported for annotations that JSON data does not fit.
"""

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from toolkeep.authoring.dependencies import Dependencies, Depends, Make, Maker
from toolkeep.definitions.tool_context import ToolContext

if typing.TYPE_CHECKING:
    from pydantic import TypeAdapter

    from toolkeep.errors import DefinitionInvalid

_JSON_SCALARS = (str, int, float, bool, type(None))


class Signature:
    """A function's parameters: context, dependencies, and those that arguments are bound to."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.context_name: str | None = None
        self.depends: dict[str, Make] = {}
        """What makes each dependency."""
        self.field_defaults: dict[str, Any] = {}
        """Defaults inside a `Field`, which the function itself does not apply."""
        self.parameters: list[inspect.Parameter] = []
        """Those that arguments are bound to, each with its resolved annotation."""
        self.rest: inspect.Parameter | None = None
        """`**kwargs`, which takes every other argument."""
        self._name = name
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
            elif (depends := _depends(parameter)) is not None:
                self.depends[parameter.name] = depends.make
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self.rest = parameter
            else:
                self.parameters.append(parameter)

    @property
    def hidden(self) -> list[str]:
        """The parameters that only the host fills in."""
        return [*([self.context_name] if self.context_name else []), *self.depends]

    @functools.cached_property
    def instances(self) -> "dict[str, TypeAdapter[Any]]":
        """What converts the arguments that are no JSON data."""
        return {one.name: self.adapter(one) for one in self.parameters if not _is_json(one.annotation)}

    @functools.cached_property
    def rest_instance(self) -> "TypeAdapter[Any] | None":
        """What converts each value of `**kwargs`; None if it is JSON data."""
        is_data = self.rest is None or _is_json(self.rest.annotation)
        return None if self.rest is None or is_data else self.adapter(self.rest)

    def dependencies(self, overrides: Mapping[Make, Make]) -> Dependencies:
        """How the dependencies are made; raises `DefinitionInvalid` for a maker that cannot be called."""
        makers: dict[Make, Maker] = {}
        wanted = {name: overrides.get(make, make) for name, make in self.depends.items()}
        for make in wanted.values():
            _add_maker(self._name, make, overrides, makers, ())
        return Dependencies(tuple(makers.values()), wanted)

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


def _depends(parameter: inspect.Parameter) -> Depends | None:
    """The mark of a dependency, in the annotation or as the default."""
    marks = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return next((mark for mark in marks if isinstance(mark, Depends)), None)


def _add_maker(
    name: str,
    make: Make,
    overrides: Mapping[Make, Make],
    makers: dict[Make, Maker],
    above: tuple[Make, ...],
) -> None:
    """Add a maker after those that it needs."""
    shown = getattr(make, "__name__", repr(make))
    if make in above:
        raise _invalid(name, f"dependency {shown!r} needs itself", "let one of them do without the other")
    if make in makers:
        return
    signature = Signature(name, make)
    for parameter in signature.parameters:
        is_variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        if parameter.default is inspect.Parameter.empty and not is_variadic:
            message = f"dependency {shown!r} takes {parameter.name!r}, which nothing gives"
            fix = "annotate it as ToolContext or with Depends(…), or give it a default"
            raise _invalid(name, message, fix)
    needs = {param: overrides.get(one, one) for param, one in signature.depends.items()}
    for one in needs.values():
        _add_maker(name, one, overrides, makers, (*above, make))
    makers[make] = Maker(make, signature.context_name, needs)


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
    annotated = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except Exception as error:  # the author's expression may raise anything
        message = f"an annotation cannot be resolved ({error})"
        raise _invalid(name, message, "import the name where the function is defined") from error


def _invalid(name: str, message: str, fix: str) -> "DefinitionInvalid":
    from toolkeep.errors import Code, DefinitionInvalid, Problem

    problem = Problem(field="parameters", code=Code.DEFINITION_INVALID, message=message, fix=fix)
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
