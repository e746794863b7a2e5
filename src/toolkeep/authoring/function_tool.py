"""A typed Python function as a tool: its schema, and how validated arguments reach it.

The schema comes from the annotations (through pydantic), the descriptions from `Annotated[…, Field(…)]`
or the docstring. A parameter annotated `ToolContext` is hidden from the schema. Parameters annotated with
a pydantic model, a dataclass, an Enum or another type that JSON cannot hold reach the function as
instances of it.
"""

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from toolkeep.definitions.secret_subschemas import has_secret
from toolkeep.definitions.serialization import definition_by_author
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.json_values.frozen import NotJson, freeze

if typing.TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

P = ParamSpec("P")
R = TypeVar("R")

Kind: TypeAlias = Literal["async", "async generator", "generator", "plain"]

_JSON_SCALARS = (str, int, float, bool, type(None))
_SHOWN_OBJECTIONS = 10
"""A model fixes a few errors at a time; a list of a thousand bad items would be echoed whole."""
_RESULT_FIELDS = frozenset(("result_type", "normalization", "output_schema"))
_PIECES = (Iterator, Generator, Iterable, AsyncIterator, AsyncGenerator, AsyncIterable)


class FunctionTool(Generic[P, R]):
    """A function with its definition; calling it calls the function."""

    def __init__(self, function: Callable[P, R], definition: ToolDefinition, signature: "_Signature") -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.definition = definition
        self.kind = kind_of(function)
        self.takes_context = signature.context_name is not None
        """Whether the function takes a context, and so can notice cancellation."""
        self._signature = signature

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


def make_function_tool(
    function: Callable[..., Any], name: str | None, description: str | None, fields: Mapping[str, Any]
) -> FunctionTool[..., Any]:
    """The tool of a function; `DefinitionInvalid` lists every problem of its signature and fields."""
    documentation = read_docstring(function)
    tool_name = str(name or getattr(function, "__name__", ""))
    signature = _Signature(tool_name, function, documentation.parameters)
    data = {
        "name": tool_name,
        "description": documentation.description if description is None else description,
        "parameters": signature.parameters,
        **({"result_type": "binary"} if signature.gives_bytes and _RESULT_FIELDS.isdisjoint(fields) else {}),
        **fields,
    }
    return FunctionTool(function, definition_by_author(data, signature.problems), signature)


def kind_of(function: Callable[..., Any]) -> Kind:
    """Whether a function is async, a generator, both or neither."""
    if inspect.iscoroutinefunction(function):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "plain"


class _Signature:
    """A function's annotations: its schema, its context parameter, and the arguments converted to
    instances."""

    def __init__(self, name: str, function: Callable[..., Any], described: Mapping[str, str]) -> None:
        self.context_name: str | None = None
        self.instances: dict[str, TypeAdapter[Any]] = {}
        self.field_defaults: dict[str, Any] = {}
        """Defaults inside a `Field`, which the function itself does not apply."""
        self.problems: list[Problem] = []
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        signature = _signature_of(name, function)
        hints = _hints(name, function)
        self.gives_bytes = _is_bytes(hints.get("return"))
        visible = []
        for stated in signature.parameters.values():
            hint = hints.get(stated.name, inspect.Parameter.empty)
            parameter, hint = self._without_field(stated, hint)
            if hint in (ToolContext, ToolContext | None):
                self.context_name = parameter.name
            elif self._is_usable(parameter, hint) and self._adapt(parameter.name, hint):
                visible.append(parameter)
        self.parameters = self._parameters(visible, described)

    def _note(self, parameter: str, message: str, mend: str) -> None:
        field = f"parameters/properties/{parameter}"
        self.problems.append(Problem(field=field, code=Code.DEFINITION_INVALID, message=message, mend=mend))

    def _without_field(self, parameter: inspect.Parameter, hint: Any) -> tuple[inspect.Parameter, Any]:
        """Read `x: int = Field(default=3, ge=1)` as `x: Annotated[int, Field(ge=1)] = 3`."""
        if type(parameter.default).__name__ != "FieldInfo":
            return parameter, hint
        field = parameter.default
        default = (
            inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
        )
        if default is not inspect.Parameter.empty:
            self.field_defaults[parameter.name] = default
        return parameter.replace(default=default), typing.Annotated[hint, field]

    def _is_usable(self, parameter: inspect.Parameter, hint: object) -> bool:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            self._note(parameter.name, "*args and **kwargs have no schema", "name each parameter")
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            self._note(parameter.name, "is positional-only", "let it be passed by name")
        elif hint is inspect.Parameter.empty and parameter.name in ("self", "cls"):
            mend = "make a tool of the method of an object: `keep.register(tool(shop.count))`"
            self._note(parameter.name, "belongs to a method, which has no object here", mend)
        elif hint is inspect.Parameter.empty:
            self._note(parameter.name, "has no annotation", "annotate it, for example `: str`")
        else:
            return True
        return False

    def _adapt(self, name: str, hint: Any) -> bool:
        import pydantic

        try:
            adapter: TypeAdapter[Any] = pydantic.TypeAdapter(hint)
            adapter.json_schema()
        except Exception as error:  # noqa: BLE001 -- pydantic may raise anything for a bad annotation
            message = f"its annotation has no JSON Schema ({str(error).splitlines()[0]})"
            self._note(name, message, "use a type that JSON can hold, or a pydantic model")
            return False
        self._adapters[name] = adapter
        if not _is_json(hint):
            self.instances[name] = adapter
        return True

    def _parameters(self, visible: list[inspect.Parameter], described: Mapping[str, str]) -> dict[str, Any]:
        import pydantic

        # All parameters at once, so that two models of the same name get different definitions.
        by_name, shared = pydantic.TypeAdapter.json_schemas(
            [(parameter.name, "validation", self._adapters[parameter.name]) for parameter in visible]
        )
        properties = {
            parameter.name: self._property(
                parameter, by_name[parameter.name, "validation"], described.get(parameter.name, "")
            )
            for parameter in visible
        }
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [p.name for p in visible if p.default is inspect.Parameter.empty]:
            schema["required"] = required
        if definitions := shared.get("$defs"):
            schema["$defs"] = _without_titles(definitions, names=True)
        return schema

    def _property(
        self, parameter: inspect.Parameter, schema: dict[str, Any], description: str
    ) -> dict[str, Any]:
        schema = dict(_without_titles(schema))
        schema.pop("default", None)  # the signature's default counts, not that of Field(default=…)
        if description:
            schema.setdefault("description", description)
        if parameter.default is not inspect.Parameter.empty:
            try:
                default = self._adapters[parameter.name].dump_python(
                    parameter.default, mode="json", warnings="error"
                )
                schema["default"] = freeze(default)
            except (NotJson, ValueError):
                self._note(parameter.name, "its default does not fit its annotation", "make the two agree")
        return schema


def _signature_of(name: str, given: Any) -> inspect.Signature:
    """The signature of a function; raises for a callable without a reliable one."""
    # which Python 3.14 calls a routine
    is_routine = inspect.isroutine(given) and not isinstance(given, functools.partial)
    is_annotated = "__annotations__" in getattr(given, "__dict__", ())
    with contextlib.suppress(ValueError):  # some functions written in C have no signature
        if is_routine or inspect.isclass(given) or hasattr(given, "__wrapped__") or is_annotated:
            return inspect.signature(given)
    problem = Problem(
        field="parameters",
        code=Code.DEFINITION_INVALID,
        message=f"is made from a {type(given).__name__}, which is no function",
        mend="write a function that calls it, and make that a tool",
    )
    raise DefinitionInvalid(name, [problem])


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # the author's expression may raise anything
        problem = Problem(
            field="parameters",
            code=Code.DEFINITION_INVALID,
            message=f"an annotation cannot be resolved ({error})",
            mend="import the name where the function is defined",
        )
        raise DefinitionInvalid(name, [problem]) from error


def _is_bytes(hint: Any) -> bool:
    """Whether a function returns or yields bytes."""
    return hint is bytes or (typing.get_origin(hint) in _PIECES and typing.get_args(hint)[0] is bytes)


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


def _without_titles(schema: Any, *, names: bool = False) -> Any:
    """A schema without the titles that pydantic generates; below `properties`, keys are names and stay."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if not names and key == "title" and isinstance(value, str):
            continue
        if not names and key in ("default", "const", "enum", "examples"):
            kept[key] = value
        else:
            kept[key] = _without_titles(value, names=not names and key in ("properties", "$defs"))
    return kept


class Documentation(NamedTuple):
    """The description of a function, and of its parameters by name."""

    description: str
    parameters: Mapping[str, str]


def read_docstring(function: object) -> Documentation:
    """The documentation of a function; empty where it has none."""
    text = inspect.getdoc(function)
    if not text:
        return Documentation("", {})
    import docstring_parser

    parsed = docstring_parser.parse(text)
    paragraphs = (parsed.short_description, parsed.long_description)
    return Documentation(
        description="\n\n".join(paragraph for paragraph in paragraphs if paragraph),
        parameters={param.arg_name: " ".join((param.description or "").split()) for param in parsed.params},
    )
