"""langchain-core: `StructuredTool.ainvoke` and `invoke` with a tool call."""

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator
from typing import Any, Literal

from langchain_core.tools import tool  # type: ignore[import-not-found, unused-ignore]

from rivals.caller import Prepare
from workloads.calls import Work


class LangchainCalls:
    """A tool made with `@tool`, no callbacks. `invoke` is for functions that are not async: no thread."""

    package = "langchain-core"

    def __init__(self, way: Literal["ainvoke", "invoke"]) -> None:
        self._is_async = way == "ainvoke"
        self.name = "langchain" if self._is_async else "langchain invoke"
        self.timed = f"StructuredTool.{way} of a ToolCall with a dict"

    @contextlib.asynccontextmanager
    async def open(self, work: Work) -> AsyncIterator[Prepare]:
        made = tool(work.function)
        if self._is_async:
            yield lambda number: functools.partial(made.ainvoke, _tool_call(work, number))
            return
        if inspect.iscoroutinefunction(work.function):
            raise NotImplementedError("StructuredTool does not support sync invocation")

        async def invoke(call: dict[str, Any]) -> Any:
            return made.invoke(call)

        yield lambda number: functools.partial(invoke, _tool_call(work, number))

    def is_expected(self, answer: Any) -> bool:
        return bool(answer.content == "done" and answer.status == "success")


def _tool_call(work: Work, number: int) -> dict[str, Any]:
    return {"type": "tool_call", "id": f"call_{number}", "name": work.name, "args": work.arguments(number)}
