"""Runs live functions and agent-tool classes in this process: importing them was the decision to trust them.

Protects against nothing (SBX-1: the result says `none`). An async tool is cancelled at its deadline; a sync
function runs in a thread of its own and cannot be stopped.
"""

import asyncio
import contextlib
import contextvars
import inspect
import json
import threading
from collections.abc import Callable
from typing import Any

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext, ToolFailed
from toolkeep.definitions.contract import AgentTool
from toolkeep.definitions.function import FunctionTool
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.execution.runner import Held


class InProcessRunner:
    """Runs what the host's own code registered."""

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is live code that asks for no isolation."""
        is_live = isinstance(tool.runner, (FunctionTool, AgentTool))
        return is_live and tool.definition.constraints.required_isolation in (None, Isolation.NONE)

    def isolation(self, tool: RegisteredTool) -> str:  # noqa: ARG002 -- the same for all
        """None, whatever the tool."""
        return Isolation.NONE.value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:  # noqa: ARG002 -- the same for all
        """Nothing."""
        return ()

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """The function's value, or the JSON that the class answers with."""
        runner = call.tool.runner
        arguments = call.checked.arguments
        if isinstance(runner, FunctionTool):
            bound = runner.bind(arguments, context() if runner.takes_context else None)
            if inspect.iscoroutinefunction(runner.function):
                return await runner.function(**bound)
            value = await in_thread(lambda: runner.function(**bound), slot, may_stop=runner.takes_context)
            return await value if inspect.isawaitable(value) else value
        result = await runner.execute(json.dumps(arguments, ensure_ascii=False), context())
        if not result.successful:
            raise ToolFailed(result.error_message)
        return json.loads(result.result_json)


async def in_thread(work: Callable[[], Any], slot: Held, *, may_stop: bool) -> Any:
    """The work's result, from a thread of its own that outlives a caller who gives up, and keeps the slot.

    Work that may look whether it is still wanted is waited for when it is not; `execute` bounds how long.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    carried = contextvars.copy_context()

    def target() -> None:
        try:
            value, error = carried.run(work), None
        except BaseException as raised:  # noqa: BLE001 -- handed to whoever waits
            value, error = None, raised
        slot.release()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, done, value, error)

    slot.hold()
    threading.Thread(target=target, name="toolkeep-tool", daemon=True).start()
    if not may_stop:
        return await done
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait({done})
        done.exception()  # looked at, so that asyncio does not complain
        raise


def _settle(done: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if isinstance(error, (StopIteration, SystemExit, KeyboardInterrupt)):
        done.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))
    elif error is not None:
        done.set_exception(error)
    else:
        done.set_result(value)
