"""Dependencies of function tools (DEF-14): values that functions of the author make for one call.

`Dependencies` makes them in order, calls the tool's function with them, and cleans up in reverse order, also
after a failure. A function with a `yield` makes one value and cleans up after it. Nothing a model sends
reaches a maker.

Light, like `authoring/function_tool.py`: workers import it with nearly every tool.
"""

import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["async", "async generator", "generator", "plain"]
InThread: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking work off the event loop."""
Make: TypeAlias = Callable[..., Any]

_END: Final = object()


class Depends:
    """Marks a parameter of a function tool as a dependency: `db: Annotated[Db, Depends(open_db)]`.

    `open_db` makes it for each call, and may take a `ToolContext` and dependencies of its own. It is a
    function, async or not, or a generator that yields once and then cleans up. No model sees the parameter.
    """

    def __init__(self, make: Make) -> None:
        if not callable(make):
            raise TypeError("Depends takes the function that makes the value, not the value")
        self.make = make

    def __repr__(self) -> str:
        return f"Depends({getattr(self.make, '__name__', self.make)})"


class Maker(NamedTuple):
    """A function that makes one dependency, and what it is called with."""

    make: Make
    context_name: str | None
    needs: Mapping[str, Make]
    """Dependencies of its own, by parameter."""

    @property
    def is_async(self) -> bool:
        """Whether it needs an event loop; `asynccontextmanager` hides that of what it decorates."""
        return kind_of(inspect.unwrap(self.make)) in ("async", "async generator")

    def bound(self, made: Mapping[Make, Any], context: Any) -> Make:
        """The function with its arguments."""
        given = {name: made[make] for name, make in self.needs.items()}
        return partial(self.make, **given, **({self.context_name: context} if self.context_name else {}))


class Dependencies:
    """The dependencies of one function."""

    def __init__(self, makers: Sequence[Maker], wanted: Mapping[str, Make]) -> None:
        """`makers` come after those that they need; `wanted` are the function's parameters."""
        self._makers = tuple(makers)
        self._wanted = dict(wanted)
        self.is_async = any(maker.is_async for maker in makers)
        self.takes_context = any(maker.context_name for maker in makers)

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def call(self, function: Callable[..., Any], context: Any) -> Any:
        """Call the function in this thread, without an event loop; what it returns cleans up at its end."""
        with contextlib.ExitStack() as stack:
            made: dict[Make, Any] = {}
            for maker in self._makers:
                made[maker.make] = _entered(maker.bound(made, context)(), stack)
            value = function(**self._arguments(made))
            if inspect.isgenerator(value):
                return _pieces(value, stack.pop_all())
            return _awaited(value, stack.pop_all()) if inspect.isawaitable(value) else value
        raise _Swallowed

    async def call_async(
        self, function: Callable[..., Any], kind: Kind, context: Any, in_thread: InThread
    ) -> Any:
        """Call the function in an event loop."""
        async with contextlib.AsyncExitStack() as stack:
            made = await self._made(stack, context, in_thread)
            if kind == "async":
                return await function(**made)
            value = await in_thread(partial(function, **made))
            return await value if inspect.isawaitable(value) else value
        raise _Swallowed

    async def stream(
        self, function: Callable[..., Any], kind: Kind, context: Any, in_thread: InThread
    ) -> AsyncGenerator[Any, None]:
        """The pieces of a generator function, in an event loop."""
        async with contextlib.AsyncExitStack() as stack:
            given = function(**await self._made(stack, context, in_thread))
            if kind == "async generator":
                async with contextlib.aclosing(given):
                    async for piece in given:
                        yield piece
                return
            with contextlib.closing(given):
                while (piece := await in_thread(partial(next, given, _END))) is not _END:
                    yield piece
            return
        raise _Swallowed

    async def _made(
        self, stack: contextlib.AsyncExitStack, context: Any, in_thread: InThread
    ) -> dict[str, Any]:
        made: dict[Make, Any] = {}
        for maker in self._makers:
            bound = maker.bound(made, context)
            if maker.is_async:
                made[maker.make] = await _entered_async(bound(), stack)
            else:
                made[maker.make] = await _entered_in_thread(bound, stack, in_thread)
        return self._arguments(made)

    def _arguments(self, made: Mapping[Make, Any]) -> dict[str, Any]:
        return {name: made[make] for name, make in self._wanted.items()}


class _Swallowed(RuntimeError):
    """The clean-up of a dependency swallowed the tool's exception, so that there is no result."""

    def __init__(self) -> None:
        super().__init__("a dependency swallowed the exception of the tool; raise it again after clean-up")


def kind_of(function: Callable[..., Any]) -> Kind:
    """Whether a function is async, a generator, both or neither."""
    if inspect.iscoroutinefunction(function):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "plain"


async def directly(work: Callable[[], Any]) -> Any:
    """`InThread` where nothing else uses the event loop."""
    return work()


def _entered(made: Any, stack: contextlib.ExitStack) -> Any:
    """The value that a maker returned or yielded; its clean-up goes on the stack."""
    if inspect.isgenerator(made):
        return stack.enter_context(contextlib.contextmanager(lambda: made)())
    # Not every context manager: leaving a database connection commits, and an author may not want that.
    if isinstance(made, contextlib.AbstractContextManager) and type(made).__module__ == "contextlib":
        return stack.enter_context(made)
    return made


async def _entered_async(made: Any, stack: contextlib.AsyncExitStack) -> Any:
    if inspect.isasyncgen(made):
        return await stack.enter_async_context(contextlib.asynccontextmanager(lambda: made)())
    if isinstance(made, contextlib.AbstractAsyncContextManager) and type(made).__module__ == "contextlib":
        return await stack.enter_async_context(made)
    return await made


async def _entered_in_thread(bound: Make, stack: contextlib.AsyncExitStack, in_thread: InThread) -> Any:
    own = contextlib.ExitStack()
    # Before it is made: a call that is cancelled meanwhile must clean up too.
    stack.push_async_exit(lambda *error: in_thread(partial(own.__exit__, *error)))
    return await in_thread(lambda: _entered(bound(), own))


def _pieces(given: Generator[Any, Any, Any], stack: contextlib.ExitStack) -> Generator[Any, None, None]:
    with stack, contextlib.closing(given):
        yield from given
        return
    raise _Swallowed


async def _awaited(value: Awaitable[Any], stack: contextlib.ExitStack) -> Any:
    with stack:
        return await value
    raise _Swallowed
