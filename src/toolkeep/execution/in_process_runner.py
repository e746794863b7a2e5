"""Runner of live functions and agent-tool classes in this process.

No isolation (SBX-1: the result says `none`): importing them was the decision to trust them. An async tool is
cancelled at its deadline; a sync function runs in a thread and cannot be stopped.
"""

import asyncio
import inspect
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing
from functools import partial
from typing import Any, Final

from toolkeep.authoring.code_reference import is_live
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import InvokeResult, ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.execution.runner import Held
from toolkeep.execution.streamed_output import Pieces, listener_of
from toolkeep.execution.thread_pool import ThreadPool

# Read in every call; an Enum member lookup costs as much as ten attribute lookups.
_NONE: Final = Isolation.NONE
_NAME: Final = Isolation.NONE.value


class InProcessRunner:
    """Runs what the host's own code registered."""

    def __init__(self, threads: ThreadPool) -> None:
        self._threads = threads

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is live code without required isolation."""
        wanted = tool.definition.constraints.required_isolation
        return (wanted is None or wanted is _NONE) and is_live(tool.runner)

    def isolation(self, tool: RegisteredTool) -> str:
        """`none`, for every tool."""
        return _NAME

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Awaitable[Any]:
        """The function's value, or the JSON that the class returns."""
        runner = call.tool.runner
        arguments = call.checked.arguments
        if not isinstance(runner, FunctionTool):
            return _answered(runner.execute(json.dumps(arguments, ensure_ascii=False), context()))
        given = context() if runner.takes_context else None
        if runner.needs_loop:
            # May stop: what a dependency opened is closed after the thread that uses it has ended.
            begun = runner.run(arguments, given, partial(self._threads.run, slot=slot, may_stop=True))
            return _gathered(call, begun) if runner.kind.endswith("generator") else begun
        work = partial(runner.run, arguments, given)
        if runner.kind == "generator":
            return self._gathered(call, work, context(), slot)
        return self._from_thread(work, slot, may_stop=runner.takes_context)

    async def _from_thread(self, work: Callable[[], Any], slot: Held, *, may_stop: bool) -> Any:
        value = await self._threads.run(_measured(work, slot), slot, may_stop=may_stop)
        return await value if inspect.isawaitable(value) else value

    async def _gathered(
        self,
        call: RecordedCall,
        make: Callable[[], Generator[Any, None, None]],
        context: ToolContext,
        slot: Held,
    ) -> Any:
        """Collect the pieces of a generator, which runs in a thread and stops when the call is cancelled."""
        loop, listener = asyncio.get_running_loop(), listener_of(call)

        def tell(piece: Any) -> None:
            if listener is not None:
                loop.call_soon_threadsafe(listener, piece)

        pieces = Pieces(call, tell)

        def work() -> Any:
            # Closes the generator on cancellation too, so that its `finally` blocks run.
            with closing(make()) as given:
                for piece in given:
                    context.check_cancelled()
                    pieces.add(piece)
            return pieces.whole()

        return await self._threads.run(_measured(work, slot), slot, may_stop=True)


def _measured(work: Callable[[], Any], slot: Held) -> Callable[[], Any]:
    """Work for a thread, with the processor time that it takes there noted."""

    def measured() -> Any:
        began = time.thread_time_ns()
        try:
            return work()
        finally:
            slot.note_use((time.thread_time_ns() - began) // 1000 / 1000)

    return measured


async def _answered(answer: Awaitable[InvokeResult]) -> Any:
    result = await answer
    if not result.successful:
        raise ToolFailed(result.error_message)
    return json.loads(result.result_json)


async def _gathered(call: RecordedCall, given: AsyncGenerator[Any, None]) -> Any:
    pieces = Pieces(call, listener_of(call))
    async with aclosing(given):
        async for piece in given:
            pieces.add(piece)
            await asyncio.sleep(0)  # Lets a generator that never awaits be cancelled.
    return pieces.whole()
