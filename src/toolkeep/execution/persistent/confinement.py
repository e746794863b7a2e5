"""Confinement of a persistent process: its grant, from a permitted call, and the recipe of its worker.

A persistent process cannot be narrowed per call. So it gets the whole granted folder that a call names a path
in, and no more than its tool requires; the path itself was checked before. That is why agents and grants
never share a process.
"""

import os
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from toolkeep.calls import PermittedCall, RegisteredTool, TouchedThing
from toolkeep.definitions.capability import Capability
from toolkeep.execution.persistent.spec import IdlePolicy, ProcessSpec
from toolkeep.execution.program_lookup import find_program
from toolkeep.execution.worker_grant import (
    SPAWN,
    Tool,
    WorkerGrant,
    check_code,
    grant_for_call,
    grant_for_scopes,
    hosts_of,
)
from toolkeep.limits import DEFAULT_MEMORY_BYTES
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.hosts import HostScope
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Findings
from toolkeep.sandbox.plan import MOST_PORTS, Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.seccomp_filters import for_level, observed, supervision
from toolkeep.sandbox.trusted_paths import TrustedPaths

_OPEN_FILES: Final = 1024
_PROCESSES: Final = 256
"""Threads count too, and a runtime starts a dozen before it does anything."""

_FILE_BYTES: Final = 1 << 30
_RESERVED_BYTES: Final = 1 << 30
"""JIT compilers reserve half of this for code before there is any."""
PROCESSOR_S: Final = 3600
"""Per process, over all calls: one that spins while idle is killed after an hour of CPU time."""


class Confinement(NamedTuple):
    """Level, grant and limits of a persistent process."""

    level: Isolation
    reach: WorkerGrant
    hosts: HostAllowlist
    code: tuple[str, ...]
    memory_bytes: int

    @property
    def words(self) -> tuple[str, ...]:
        """Its grant, for display."""
        hosts = (("net.read", self.hosts.reads), ("net.write", self.hosts.writes))
        return (
            *(f"fs.read:{path}" for path in self.reach.grant.read),
            *(f"fs.write:{path}" for path in self.reach.grant.write),
            *(f"{kind}:{host}" for kind, scopes in hosts for host in scopes),
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """Identity for the process pool: calls with another key get another process."""
        return (self.level, self.reach, str(self.hosts), self.code, self.memory_bytes)


def level_of(tool: RegisteredTool) -> Isolation:
    """Strict, unless the definition states another level (SBX-1)."""
    stated = tool.definition.constraints.required_isolation
    return Isolation.STRICT if stated is None else Isolation(stated.value)


def confinement_for_call(
    call: PermittedCall, program: str, spec: ProcessSpec, trusted: TrustedPaths, base: str
) -> Confinement:
    """Confinement of a call's program; ValueError says what prevents it."""
    level = level_of(call.tool)
    started = (*executables(program), *spec.packages)
    shown = _shown(spec, started, trusted, base)
    reach = WorkerGrant()
    hosts = HostAllowlist()
    if level is Isolation.STRICT:
        reach = grant_for_call(_widened(call, base), Tool(programs=started, trusted=trusted))
        hosts = hosts_of(call)
    bounds = call.tool.definition.resource_bounds
    memory = bounds.memory_bytes(call.tool.definition.constraints.isolation)
    return Confinement(level, reach, hosts, _with_data(shown, spec, reach, base), memory)


def confinement_for_grants(
    capabilities: Iterable[Capability], program: str, spec: ProcessSpec, trusted: TrustedPaths, base: str
) -> Confinement:
    """Confinement of a program that a person starts, with the capabilities that the person grants."""
    started = (*executables(program), *spec.packages)
    shown = _shown(spec, started, trusted, base)
    scopes = [(one.kind, _real(one, base)) for one in capabilities]
    # No registered tool has this code yet, so nothing else keeps a granted folder from covering it.
    own = (path for path in shown if trusted.covering(path) is None)
    guarded = trusted.with_code(own, "the code of the program")
    reach = grant_for_scopes(scopes, Tool(programs=started, trusted=guarded))
    by_kind = {
        kind: tuple(HostScope.read_grant(scope) for found, scope in scopes if found == kind)
        for kind in ("net.read", "net.write")
    }
    hosts = HostAllowlist(reads=by_kind["net.read"], writes=by_kind["net.write"])
    code = _with_data(shown, spec, reach, base)
    return Confinement(Isolation.STRICT, reach, hosts, code, DEFAULT_MEMORY_BYTES)


def _shown(spec: ProcessSpec, started: tuple[str, ...], trusted: TrustedPaths, base: str) -> tuple[str, ...]:
    """Paths of its code, which are shown to it read-only, whatever is granted."""
    shown = outermost((*spec.shown(base), *(path for path in started if not path.startswith("/usr/"))))
    check_code((*shown, *spec.data(base)), trusted.state)
    return shown


def _with_data(code: tuple[str, ...], spec: ProcessSpec, reach: WorkerGrant, base: str) -> tuple[str, ...]:
    """With the data files that its arguments name, unless a grant of writing covers them."""
    kept = (path for path in spec.data(base) if not any(_lies_within(path, one) for one in reach.grant.write))
    return outermost((*code, *kept))


def _real(capability: Capability, base: str) -> str:
    if capability.kind.startswith("net."):
        return capability.scope
    scope = os.path.expanduser(capability.scope)
    if capability.kind == SPAWN and "/" not in scope:
        return find_program(scope, base)
    return os.path.realpath(os.path.join(base, scope))


def worker_recipe(
    place: Confinement,
    findings: Findings,
    between_calls: IdlePolicy = IdlePolicy.RUNNING,
    *,
    unobserved: Iterable[str] | None = None,
) -> Recipe:
    """Recipe of its worker. Raises SandboxUnavailable if this machine cannot provide the level.

    With `unobserved`, what the program names is noted, but for files below these folders.
    """
    is_supervised = place.level is Isolation.STRICT and findings.has_supervisor
    system_calls = for_level(
        place.level,
        may_spawn=True,
        may_connect=place.reach.connects,
        # The filter then lacks timer_create and whatever else could send SIGCONT.
        is_suspendable=between_calls is IdlePolicy.STOPPED,
        is_supervised=is_supervised,
    )
    if unobserved is not None:
        system_calls = observed(system_calls)
    findings.require(place.level, connects=place.reach.connects)
    return Recipe(
        zygote=ZygotePlan(
            level=place.level,
            code=place.code,
            read=place.reach.read_roots,
            write=place.reach.write_roots,
            # A /proc of its own pid namespace: runtimes read /proc/self, and see no process of the host.
            has_proc=True,
        ),
        worker=WorkerPlan(
            tool="",
            is_persistent=True,
            level=place.level,
            filter=system_calls.program(),
            connects=place.reach.connects,
            ports=place.hosts.ports[:MOST_PORTS] if place.reach.connects else (),
            may_spawn=True,
            supervisor=supervision(system_calls, unobserved) if is_supervised else None,
            memory_by=findings.tree_bound or Mechanism.MEMORY_WATCH,
            limits=program_limits(place.memory_bytes),
        ),
        grant=place.reach.grant,
    )


def program_limits(memory_bytes: int) -> ResourceLimits:
    """The limits of a persistent program."""
    return ResourceLimits(
        memory_bytes=memory_bytes,
        open_files=_OPEN_FILES,
        processes=_PROCESSES,
        cpu_s=PROCESSOR_S + 1,  # At the soft limit, a second below, it is told why.
        reserved_bytes=_RESERVED_BYTES,
        file_bytes=_FILE_BYTES,
    )


class _GrantedFolder(NamedTuple):
    """A path named by a call, widened to the granted folder that contains it."""

    kind: str
    pointer: str
    shown: str
    identity: str
    root: str
    root_path: str | None


def _widened(call: PermittedCall, base: str) -> PermittedCall:
    return replace(call, touched=tuple(_widen_to_granted(one, call.tool, base) for one in call.touched))


def _widen_to_granted(one: TouchedThing, tool: RegisteredTool, base: str) -> Any:
    root = one.root_path
    if root is None or one.kind == SPAWN or not one.pointer:
        return one
    scopes = (
        os.path.realpath(os.path.join(base, os.path.expanduser(capability.scope)))
        for capability in tool.definition.capabilities
        if capability.kind == one.kind and capability.scope not in ("", "*")
    )
    # The narrowest of grant and requirement: the process keeps this access until it ends.
    containing = [path for path in scopes if _lies_within(one.shown, path) and _lies_within(path, root)]
    place = max((root, *containing), key=len)
    status = os.stat(place)
    return _GrantedFolder(one.kind, "", place, f"{status.st_dev}:{status.st_ino}", one.root, root)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths that lie in none of the others."""
    found = set(paths)
    inner = {path for path in found if any(path != other and _lies_within(path, other) for other in found)}
    return tuple(sorted(found - inner))


def _lies_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
