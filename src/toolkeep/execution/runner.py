"""`Runner`: the protocol behind which a tool runs, in this process or in a sandbox."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Protocol

from toolkeep.calls import Diagnosis, RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.errors import Code


class Held(Protocol):
    """A slot that is released when every holder has released it."""

    def hold(self) -> None:
        """Add a holder."""

    def release(self) -> None:
        """Drop one holder."""

    def note_use(self, cpu_ms: float, peak_memory_bytes: int | None = None) -> None:
        """Take what the run of the call took, as far as the runner measured it."""


class Timed(Held, Protocol):
    """Slot of a running call."""

    def pause(self) -> AbstractContextManager[None]:
        """While a person answers: that time does not count against the deadline."""


class RunRefused(Exception):
    """A runner could not run a tool, or got no answer; `code` says which.

    `reason` and `suggestion` are for the model, `diagnosis` for the operator. `path` is the JSON Pointer of
    the argument at fault.
    """

    def __init__(
        self,
        code: Code,
        reason: str,
        suggestion: str = "Try another way, or tell the operator.",
        diagnosis: Diagnosis | None = None,
        *,
        path: str = "",
        is_unexplained: bool = False,
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.suggestion = suggestion
        self.diagnosis = diagnosis
        self.path = path
        self.is_unexplained = is_unexplained
        """Whether `reason` says no more than that it failed."""


class ProgramFailed(ToolFailed):
    """A program failed with its own words, which the model reads; `diagnosis` is for the operator."""

    def __init__(self, words: str, diagnosis: Diagnosis | None) -> None:
        super().__init__(words)
        self.diagnosis = diagnosis


class Runner(Protocol):
    """Runs recorded calls of the tools that it supports."""

    def isolation(self, tool: RegisteredTool) -> str:
        """Isolation level of a run, for the result and the log."""

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """Kernel mechanisms that confine a run, by name."""

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it can run this tool as its definition demands."""

    def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Timed) -> Awaitable[Any]:
        """The tool's value; raises whatever the tool raises. May be cancelled.

        `context` makes the ToolContext, for tools that want one. Work that continues after a cancellation
        holds the slot.
        """


class RunnerOnDemand:
    """A runner that is imported and created for the first tool of its kind, which most keeps do not have."""

    def __init__(self, kind: str, make: Callable[[], Runner]) -> None:
        """`kind` is that of the tools' runners; `make` imports the runner."""
        self._kind = kind
        self._make = make

    @cached_property
    def _runner(self) -> Runner:
        return self._make()

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether the tool is of the kind, and the runner can run it."""
        return getattr(tool.runner, "kind", "") == self._kind and self._runner.runs(tool)

    def isolation(self, tool: RegisteredTool) -> str:
        """Isolation level of a run."""
        return self._runner.isolation(tool)

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """Kernel mechanisms that confine a run."""
        return self._runner.enforced(tool)

    def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Timed) -> Awaitable[Any]:
        """The tool's value."""
        return self._runner.run(call, context, slot)
