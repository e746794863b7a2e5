"""`Runner`: the seam behind which a tool runs, in this process or in a confined one."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext
from toolkeep.errors import Code


class Held(Protocol):
    """A slot that is given back when everyone who holds it has let go."""

    def hold(self) -> None:
        """Hold it once more."""

    def release(self) -> None:
        """Let go once."""


class Timed(Held, Protocol):
    """The slot of a call that runs."""

    def pause(self) -> AbstractContextManager[None]:
        """Around what a person takes while the call runs: it is none of the call's time."""


class RunRefused(Exception):
    """A runner could not run a tool, or got no answer from it; `code` says which."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Runner(Protocol):
    """Runs recorded calls of the tools that it can run."""

    def isolation(self, tool: RegisteredTool) -> str:
        """The level that a run of the tool has, for the result and the log."""

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """The mechanisms of the kernel that confine a run of the tool, by name."""

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it can run this tool as its definition demands."""

    def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Timed) -> Awaitable[Any]:
        """What the tool gives back; raises whatever the tool raises. May be cancelled.

        `context` makes what the tool may ask of its call, for a tool that wants it.

        Work that goes on after a cancellation holds the slot.
        """
