"""Runs live functions and agent-tool classes in this process: importing them was the decision to trust them.

Protects against nothing (SBX-1: the result says `none`). An async tool is cancelled at its deadline; a sync
function runs in a thread and cannot be stopped.
"""

import inspect
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext, ToolFailed
from toolkeep.definitions.contract import AgentTool
from toolkeep.definitions.function import FunctionTool
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.execution.runner import Held
from toolkeep.execution.threads import Threads


class InProcessRunner:
    """Runs what the host's own code registered."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

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
            work = partial(runner.function, **bound)
            value = await self._threads.run(work, slot, may_stop=runner.takes_context)
            return await value if inspect.isawaitable(value) else value
        result = await runner.execute(json.dumps(arguments, ensure_ascii=False), context())
        if not result.successful:
            raise ToolFailed(result.error_message)
        return json.loads(result.result_json)
