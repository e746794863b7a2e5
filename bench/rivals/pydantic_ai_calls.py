"""pydantic-ai: the tool manager that an agent run sends the model's calls to."""

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import RunContext  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.messages import ToolCallPart  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.models.test import TestModel  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.tool_manager import ToolManager  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.toolsets import FunctionToolset  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.usage import RunUsage  # type: ignore[import-not-found, unused-ignore]

from rivals.caller import Prepare
from workloads.calls import Work


class PydanticAiCalls:
    """A function toolset; no agent, no model, no graph around it."""

    name = "pydantic-ai"
    package = "pydantic-ai-slim"
    timed = "ToolManager.handle_call of a ToolCallPart with text; no agent run around it"

    @contextlib.asynccontextmanager
    async def open(self, work: Work) -> AsyncIterator[Prepare]:
        context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
        manager = await ToolManager(FunctionToolset([work.function])).for_run_step(context)
        yield lambda number: functools.partial(
            manager.handle_call, ToolCallPart(work.name, work.text(number))
        )

    def is_expected(self, answer: Any) -> bool:
        return bool(answer == "done")
