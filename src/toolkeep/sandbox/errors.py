"""Errors of the sandbox.

ToolkeepError
├── SandboxUnavailable   this machine cannot provide a level; says what is missing and what to do
├── SandboxBroken        a zygote or a worker could not be started or confined
└── SandboxExhausted     no process, descriptor, memory or pool slot is left
"""

from collections.abc import Sequence

from toolkeep.errors import Code, ToolkeepError


class SandboxUnavailable(ToolkeepError):
    """This machine cannot provide the level. It is never weakened silently (SBX-1)."""

    def __init__(self, level: str, *, missing: Sequence[str], hint: str) -> None:
        lacking = ", ".join(missing)
        super().__init__(
            Code.ISOLATION_UNAVAILABLE, f"isolation '{level}' is not available here: {lacking}", hint=hint
        )
        self.level = level
        self.missing = tuple(missing)


class SandboxBroken(ToolkeepError):
    """A protection could not be applied, so nothing was run (fail closed)."""

    def __init__(self, reason: str) -> None:
        hint = "see what `toolkeep doctor` says about this machine"
        super().__init__(Code.ISOLATION_UNAVAILABLE, f"the sandbox could not be set up: {reason}", hint=hint)


class SandboxExhausted(ToolkeepError):
    """The machine or the pool has no capacity for another worker."""

    def __init__(self, reason: str) -> None:
        hint = "raise the limits on processes, open files or memory, or run fewer calls at once"
        super().__init__(Code.ISOLATION_UNAVAILABLE, f"no room for a worker: {reason}", hint=hint)
