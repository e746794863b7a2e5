"""A typed Python function as a tool: how validated arguments reach it.

A parameter annotated `ToolContext` gets the context of the call, one marked `Depends` what its function makes
(`authoring/dependencies.py`). Parameters annotated with a pydantic model,
a dataclass, an Enum or another type that JSON cannot hold reach the function as instances of it.

This module is imported in every worker whose tool uses `@tool`, so it loads nothing but the context. The
definition (`authoring/function_schema.py`) is built on first use, and pydantic is imported for it and for
instances only.
"""

import copy
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from toolkeep.authoring.dependencies import Dependencies, InThread, Make, directly, kind_of
from toolkeep.authoring.function_signature import Signature
from toolkeep.definitions.tool_context import ToolContext, ToolFailed

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

    from toolkeep.definitions.tool import ToolDefinition

P = ParamSpec("P")
R = TypeVar("R")

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
        self._known_dependencies: Dependencies | None = None
        self.overrides: Mapping[Make, Make] = {}
        """Makers of dependencies with what replaces them, for tests."""

    @property
    def definition(self) -> "ToolDefinition":
        """The definition; `DefinitionInvalid` lists every problem of the signature and fields."""
        if self._definition is None:
            from toolkeep.authoring.function_schema import define

            _ = self.dependencies  # raises here, where its author reads it
            self._definition = define(
                self._name, self.function, self._signature, self._description, self._fields
            )
        return self._definition

    @property
    def takes_context(self) -> bool:
        """Whether the function or a dependency takes a context."""
        return self._signature.context_name is not None or self.dependencies.takes_context

    @property
    def dependencies(self) -> Dependencies:
        """How what the function depends on is made; `DefinitionInvalid` if that cannot work."""
        if self._known_dependencies is None:
            self._known_dependencies = self._signature.dependencies(self.overrides)
        return self._known_dependencies

    def override(self, makers: Mapping[Make, Make]) -> "FunctionTool[P, R]":
        """The same tool with other dependencies, for tests: `shop.override({open_db: fake_db})`.

        It runs in process only: a worker imports the tool as its module has it.
        """
        other = copy.copy(self)
        other.overrides = {**self.overrides, **makers}
        other._known_dependencies = None  # noqa: SLF001 -- a copy of this one
        _ = other.dependencies
        return other

    @property
    def _signature(self) -> Signature:
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
        if (rest := signature.rest_instance) is not None:
            named = {parameter.name for parameter in signature.parameters}
            for name in bound.keys() - named:
                bound[name] = self._instance(name, rest, bound[name])
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
        signature = self._signature
        return bool(signature.instances or signature.field_defaults or signature.rest_instance)

    @property
    def needs_loop(self) -> bool:
        """Whether calling it needs an event loop: it or a dependency is async."""
        return self.kind.startswith("async") or self.dependencies.is_async

    def run(
        self, arguments: Mapping[str, Any], context: ToolContext | None, in_thread: InThread = directly
    ) -> Any:
        """Call the function with validated arguments and its dependencies.

        Returns its value, or an awaitable, a generator or an async generator. `in_thread` runs what would
        block an event loop, if one is needed.
        """
        bound: Callable[..., Any] = functools.partial(self.function, **self.bind(arguments, context))
        dependencies = self.dependencies
        if not dependencies:
            return bound()
        if not self.needs_loop:
            return dependencies.call(bound, context)
        if self.kind.endswith("generator"):
            return dependencies.stream(bound, self.kind, context, in_thread)
        return dependencies.call_async(bound, self.kind, context, in_thread)

    async def invoke(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> Any:
        """Call the function with validated arguments; an async function is awaited."""
        result = self.run(arguments, context)
        return await result if isinstance(result, Awaitable) else result
