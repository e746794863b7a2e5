"""A typed Python function as a tool: how validated arguments reach it.

A parameter annotated `ToolContext` gets the context of the call. Parameters annotated with a pydantic model,
a dataclass, an Enum or another type that JSON cannot hold reach the function as instances of it.

This module is imported in every worker whose tool uses `@tool`, so it loads nothing but the context. The
definition (`authoring/function_schema.py`) is built on first use, and pydantic is imported for it and for
instances only.
"""

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from toolkeep.definitions.tool_context import ToolContext, ToolFailed

if typing.TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

    from toolkeep.definitions.tool import ToolDefinition
    from toolkeep.errors import DefinitionInvalid

P = ParamSpec("P")
R = TypeVar("R")

Kind: TypeAlias = Literal["async", "async generator", "generator", "plain"]

_JSON_SCALARS = (str, int, float, bool, type(None))
_SHOWN_OBJECTIONS = 10
"""A model fixes a few errors at a time; a list of a thousand bad items would be echoed whole."""


class FunctionTool(Generic[P, R]):
    """A function with its definition; calling it calls the function."""

    def __init__(
        self, function: Callable[P, R], name: str | None, description: str | None, fields: Mapping[str, Any]
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.kind = kind_of(function)
        self._name = str(name or getattr(function, "__name__", ""))
        self._description = description
        self._fields = fields
        # No cached_property: `update_wrapper` copies what another tool has cached.
        self._definition: ToolDefinition | None = None
        self._known_signature: Signature | None = None

    @property
    def definition(self) -> "ToolDefinition":
        """The definition; `DefinitionInvalid` lists every problem of the signature and fields."""
        if self._definition is None:
            from toolkeep.authoring.function_schema import define

            self._definition = define(
                self._name, self.function, self._signature, self._description, self._fields
            )
        return self._definition

    @property
    def takes_context(self) -> bool:
        """Whether the function takes a context, and so can notice cancellation."""
        return self._signature.context_name is not None

    @property
    def _signature(self) -> "Signature":
        if self._known_signature is None:
            self._known_signature = Signature(self._name, self.function)
        return self._known_signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no policy, no record."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.definition.name} {self.definition.version}>"

    def bind(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
        """Validated arguments as keyword arguments of the function.

        `ToolFailed` says what a validator of a model or dataclass objects to: the model can fix that.
        """
        signature = self._signature
        bound = {**signature.field_defaults, **arguments}
        for name, adapter in signature.instances.items():
            if name in bound:
                bound[name] = self._instance(name, adapter, bound[name])
        if signature.context_name:
            bound[signature.context_name] = context or ToolContext()
        return bound

    def _instance(self, name: str, adapter: "TypeAdapter[Any]", value: Any) -> Any:
        import pydantic

        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            raise ToolFailed(self._objection(name, error)) from error

    def _objection(self, name: str, error: "ValidationError") -> str:
        """The messages of validators, unless the tool has secrets: a message may quote the value."""
        from toolkeep.definitions.secret_subschemas import has_secret

        if self.definition.sensitive or has_secret(self.definition.parameters):
            return f"/{name}: is not what the tool accepts"
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(
            f"{'/'.join(map(str, ('', name, *one['loc'])))}: {one['msg'].removeprefix('Value error, ')}"
            for one in found[:_SHOWN_OBJECTIONS]
        )

    @property
    def makes_instances(self) -> bool:
        """Whether `bind` converts arguments to instances."""
        return bool(self._signature.instances or self._signature.field_defaults)

    async def invoke(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Any:
        """Call the function with validated arguments; an async function is awaited."""
        result: Any = self.function(**self.bind(arguments, context))  # type: ignore[call-arg]  # bound by name
        return await result if isinstance(result, Awaitable) else result


def kind_of(function: Callable[..., Any]) -> Kind:
    """Whether a function is async, a generator, both or neither."""
    if inspect.iscoroutinefunction(function):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "plain"


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
