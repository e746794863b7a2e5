"""How a program that stays is confined: what it may reach, from a permitted call, and how its worker is made.

What stays cannot be narrowed for each call, so that it reaches the whole of each granted folder that a call
names a place in, and no more than its tool requires; the place itself was checked before. That is why agents
and grants never share one.
"""

import os
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from toolkeep.calls import PermittedCall, RegisteredTool, TouchedThing
from toolkeep.definitions.capability import Capability
from toolkeep.execution.programs import find_program
from toolkeep.execution.reach import SPAWN, Reach, Tool, check_code, hosts_of, reach_of, reach_of_scopes
from toolkeep.execution.staying import BetweenCalls
from toolkeep.limits import DEFAULT_MEMORY_BYTES
from toolkeep.network.hosts import HostScope
from toolkeep.network.reaching import HostReach
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.filters import for_level
from toolkeep.sandbox.levels import Isolation, Mechanism
from toolkeep.sandbox.plan import Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.probe import Findings
from toolkeep.sandbox.trusted import TrustedPaths

_OPEN_FILES: Final = 1024
_PROCESSES: Final = 256
"""Threads count too, and a runtime starts a dozen before it does anything."""

_FILE_BYTES: Final = 1 << 30
_RESERVED_BYTES: Final = 1 << 30
"""Engines that compile hold half of this for code, before there is any."""
_CPU_S: Final = 3600
"""Of each process, over all calls: one that spins while nobody calls it ends after an hour of that."""


class Residence(NamedTuple):
    """Where a program stays."""

    level: Isolation
    reach: Reach
    hosts: HostReach
    code: tuple[str, ...]
    memory_bytes: int

    @property
    def words(self) -> tuple[str, ...]:
        """What it reaches, for a person."""
        hosts = (("net.read", self.hosts.reads), ("net.write", self.hosts.writes))
        return (
            *(f"fs.read:{path}" for path in self.reach.grant.read),
            *(f"fs.write:{path}" for path in self.reach.grant.write),
            *(f"{kind}:{host}" for kind, scopes in hosts for host in scopes),
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells two of them apart."""
        return (self.level, self.reach, str(self.hosts), self.code, self.memory_bytes)


def level_of(tool: RegisteredTool) -> Isolation:
    """Strict, unless the definition states another (SBX-1)."""
    stated = tool.definition.constraints.required_isolation
    return Isolation.STRICT if stated is None else Isolation(stated.value)


def residence(
    call: PermittedCall, program: str, code: tuple[str, ...], trusted: TrustedPaths, base: str
) -> Residence:
    """Where the program of a call stays; ValueError says what stands against it."""
    level = level_of(call.tool)
    started = tuple(executables(program))
    shown = outermost((*code, *(path for path in started if not path.startswith("/usr/"))))
    check_code(shown, trusted.state)
    reach = Reach()
    hosts = HostReach()
    if level is Isolation.STRICT:
        reach = reach_of(_widened(call, base), Tool(programs=started, trusted=trusted))
        hosts = hosts_of(call)
    bounds = call.tool.definition.resource_bounds
    memory = bounds.memory_bytes(call.tool.definition.constraints.isolation)
    return Residence(level, reach, hosts, shown, memory)


def residence_of(
    capabilities: Iterable[Capability], program: str, code: tuple[str, ...], trusted: TrustedPaths, base: str
) -> Residence:
    """Where a program stays that a person starts, with what the person grants; ValueError as before."""
    started = tuple(executables(program))
    shown = outermost((*code, *(path for path in started if not path.startswith("/usr/"))))
    check_code(shown, trusted.state)
    scopes = [(one.kind, _real(one, base)) for one in capabilities]
    reach = reach_of_scopes(scopes, Tool(programs=started, trusted=trusted))
    by_kind = {
        kind: tuple(HostScope.read(scope) for found, scope in scopes if found == kind)
        for kind in ("net.read", "net.write")
    }
    hosts = HostReach(reads=by_kind["net.read"], writes=by_kind["net.write"])
    return Residence(Isolation.STRICT, reach, hosts, shown, DEFAULT_MEMORY_BYTES)


def _real(capability: Capability, base: str) -> str:
    if capability.kind.startswith("net."):
        return capability.scope
    scope = os.path.expanduser(capability.scope)
    if capability.kind == SPAWN and "/" not in scope:
        return find_program(scope, base)
    return os.path.realpath(os.path.join(base, scope))


def recipe(
    place: Residence, findings: Findings, between_calls: BetweenCalls = BetweenCalls.RUNNING
) -> Recipe:
    """How its worker is made. Raises SandboxUnavailable where this machine cannot give the level."""
    system_calls = for_level(
        place.level,
        may_spawn=True,
        may_connect=place.reach.connects,
        is_suspendable=between_calls is BetweenCalls.STOPPED,
    )
    findings.require(place.level, connects=place.reach.connects)
    return Recipe(
        zygote=ZygotePlan(
            level=place.level,
            code=place.code,
            read=place.reach.read_roots,
            write=place.reach.write_roots,
            has_proc=True,
        ),
        worker=WorkerPlan(
            tool="",
            stays=True,
            level=place.level,
            filter=system_calls.program(),
            connects=place.reach.connects,
            may_spawn=True,
            memory_by=findings.tree_bound or Mechanism.MEMORY_WATCH,
            limits=ResourceLimits(
                memory_bytes=place.memory_bytes,
                open_files=_OPEN_FILES,
                processes=_PROCESSES,
                cpu_s=_CPU_S,
                reserved_bytes=_RESERVED_BYTES,
                file_bytes=_FILE_BYTES,
            ),
        ),
        grant=place.reach.grant,
    )


class _Whole(NamedTuple):
    """A thing that a call names, taken as the granted folder that it lies in."""

    kind: str
    pointer: str
    shown: str
    identity: str
    root: str
    root_path: str | None


def _widened(call: PermittedCall, base: str) -> PermittedCall:
    return replace(call, touched=tuple(_whole(one, call.tool, base) for one in call.touched))


def _whole(one: TouchedThing, tool: RegisteredTool, base: str) -> Any:
    root = one.root_path
    if root is None or one.kind == SPAWN or not one.pointer:
        return one
    scopes = (
        os.path.realpath(os.path.join(base, os.path.expanduser(capability.scope)))
        for capability in tool.definition.capabilities
        if capability.kind == one.kind and capability.scope not in ("", "*")
    )
    containing = [path for path in scopes if _lies_within(one.shown, path) and _lies_within(path, root)]
    place = max((root, *containing), key=len)
    status = os.stat(place)
    return _Whole(one.kind, "", place, f"{status.st_dev}:{status.st_ino}", one.root, root)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that lie in none of the others."""
    found = set(paths)
    inner = {path for path in found if any(path != other and _lies_within(path, other) for other in found)}
    return tuple(sorted(found - inner))


def _lies_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
