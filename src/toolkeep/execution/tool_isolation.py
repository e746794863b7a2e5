"""The isolation level of tools that run in workers, and whether a worker may have several processes."""

from typing import Final

from toolkeep.authoring.code_reference import is_live
from toolkeep.calls import RegisteredTool
from toolkeep.execution.command_tool import COMMAND
from toolkeep.sandbox.isolation_levels import Isolation

BUILT_IN: Final = "built_in"
_SPAWN: Final = "process.spawn"
_KINDS: Final = frozenset(("python", BUILT_IN, COMMAND))


def runs_in_worker(tool: RegisteredTool) -> bool:
    """Whether it is Python code or a program, and requires isolation."""
    if is_command(tool) and level_of(tool) is Isolation.RESTRICTED:
        return False  # No process can be started there.
    is_ours_to_run = is_live(tool.runner) or getattr(tool.runner, "kind", "") in _KINDS
    return is_ours_to_run and level_of(tool) is not Isolation.NONE


def level_of(tool: RegisteredTool) -> Isolation:
    """The level of its workers."""
    constraints = tool.definition.constraints
    if is_live(tool.runner):
        asked = constraints.required_isolation
        return Isolation.NONE if asked is None else Isolation(asked.value)
    has_scope = any(capability.scope not in ("", "*") for capability in tool.definition.capabilities)
    # A scoped capability can only be enforced at strict; at the default level it would be a promise on paper.
    if constraints.required_isolation is None and (has_scope or is_command(tool)):
        return Isolation.STRICT
    return Isolation(constraints.isolation.value)


def has_processes(tool: RegisteredTool) -> bool:
    """Whether its worker may have several processes."""
    return may_spawn(tool) or level_of(tool) is Isolation.STANDARD


def may_spawn(tool: RegisteredTool) -> bool:
    """Whether it may start processes; at standard nothing prevents it anyway."""
    if level_of(tool) is Isolation.RESTRICTED:
        return False
    spawns = any(capability.kind == _SPAWN for capability in tool.definition.capabilities)
    starts_own = is_built_in(tool) and bool(tool.runner.programs)
    return spawns or starts_own or is_command(tool)


def is_python(tool: RegisteredTool) -> bool:
    """Whether it is Python code of somebody else."""
    return not is_command(tool) and not is_built_in(tool)


def is_command(tool: RegisteredTool) -> bool:
    """Whether it is a program."""
    return getattr(tool.runner, "kind", "") == COMMAND


def is_built_in(tool: RegisteredTool) -> bool:
    """Whether it is a built-in tool."""
    return getattr(tool.runner, "kind", "") == BUILT_IN
