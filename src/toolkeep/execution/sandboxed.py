"""Runs tools in fresh, confined processes (SBX-1, SBX-2): those named by reference, and functions that ask.

Comes in: a recorded call, and what it would touch. The worker reaches that, its code and its scratch folder,
and nothing else; at standard it is only bounded. Nothing of the tool is imported here. A level that this
machine cannot give is refused, never weakened.
"""

import asyncio
import importlib.machinery
import json
import logging
import math
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import toolkeep
from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.canonical import canonical_hash
from toolkeep.definitions.context import ToolContext, ToolFailed
from toolkeep.definitions.function import FunctionTool
from toolkeep.errors import Code, ToolkeepError
from toolkeep.execution.reached import check_unprotected, resolved_arguments
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.limits import CANCEL_GRACE_SECONDS, OUTPUT_CAP_BYTES
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.exchange import Ending, Reply
from toolkeep.sandbox.filters import Profile, restricted, standard, strict
from toolkeep.sandbox.levels import Isolation
from toolkeep.sandbox.plan import Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.pool import Key, Pool
from toolkeep.sandbox.probe import Findings, probe
from toolkeep.sandbox.syscalls import this_machine

log = logging.getLogger("toolkeep.execution")

_KEYS: Final = 1_000
"""Kinds of workers that are known at once; another definition or another grant is another kind."""

_OURS: Final = os.path.realpath(Path(toolkeep.__file__).parent)

_PRELOADED: Final = (
    "toolkeep.definitions.function", "toolkeep.definitions.data", "docstring_parser", "pydantic.main",
    "pydantic.type_adapter", "toolkeep.definitions.check",
)  # fmt: skip
"""What every function that was made a tool imports: a quarter of a second, once and not for each worker."""

_SITE: Final = ("site-packages", "dist-packages")


class _Code(NamedTuple):
    """Where the code of a tool lies: folders of installed packages, and packages by themselves."""

    site: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """What the worker may read of it."""
        return (*self.site, *self.packages)

    @property
    def ours(self) -> tuple[str, ...]:
        """Where toolkeep itself lies, unless it is among the installed packages."""
        return tuple(path for path in self.packages if path == _OURS)


class _Reach(NamedTuple):
    """What the worker of one call may touch, and the granted folders that this lies in."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    """Which very files these are: rules hold them, not their names."""


class SandboxRunner:
    """Runs what is not to run in this process."""

    def __init__(self, project: str = "") -> None:
        """`project` is looked through for the modules of its own tools."""
        self._project = project
        self._pool = Pool()
        self._keys: dict[tuple[str, _Reach], Key] = {}
        self._lock = threading.Lock()
        self._findings: Findings | None = None

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is Python code that another process can import, and asks for isolation.

        A function that takes a context is not: a worker has none to give.
        """
        if isinstance(tool.runner, FunctionTool) and tool.runner.takes_context:
            return False
        return _reference(tool) is not None and _level(tool) is not Isolation.NONE

    def isolation(self, tool: RegisteredTool) -> str:
        """The level that a call of the tool has."""
        return _level(tool).value

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:  # noqa: ARG002 -- nothing outlives it
        """What the tool gives back. The worker is killed when this is cancelled."""
        try:
            if self._findings is None:
                await asyncio.to_thread(self._look)
            key = self._admitted(call)
            request = json.dumps(resolved_arguments(call), ensure_ascii=False).encode()
            # A moment longer than the call: whoever runs it gives up first, and says so.
            deadline_s = call.deadline_s + CANCEL_GRACE_SECONDS
            reply = await self._pool.run(key, request, deadline_s, OUTPUT_CAP_BYTES)
        except SandboxBroken as error:
            # What went wrong names places of this machine, which are none of a model's business.
            log.error("a worker could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            reason = f"Tool '{call.tool.name}' was not run: the sandbox could not be set up"
            raise RunRefused(error.code, reason) from error
        except ToolkeepError as error:
            raise RunRefused(error.code, f"Tool '{call.tool.name}' was not run: {error.message}") from error
        except ValueError as error:
            reason = f"Tool '{call.tool.name}' was not run: {error}"
            raise RunRefused(Code.ISOLATION_UNAVAILABLE, reason) from error
        return _value(call, reply)

    async def close(self) -> None:
        """End the workers of this event loop."""
        await self._pool.close()

    def close_soon(self) -> None:
        """End all workers, from wherever."""
        self._pool.close_soon()

    def _look(self) -> None:
        """See what this machine can enforce; once is enough."""
        with self._lock:
            if self._findings is None:
                self._findings = probe()

    def _admitted(self, call: RecordedCall) -> Key:
        """The key of the workers that may run a call. Raises where this machine cannot give its level."""
        level = _level(call.tool)
        if self._findings is not None:
            self._findings.require(level)
        reach = _reach(call) if level is Isolation.STRICT else _Reach()
        known = (call.tool.definition_hash, reach)
        if known not in self._keys:
            key, recipe = self._recipe(call.tool, level, reach)
            self._pool.admit(key, recipe)
            if len(self._keys) >= _KEYS:
                self._pool.forget(self._keys.pop(next(iter(self._keys))))
            self._keys[known] = key
        return self._keys[known]

    def _searched(self, tool: RegisteredTool) -> list[str]:
        """Where modules of a tool are looked for; those of a project never stand in for the user's."""
        if isinstance(tool.runner, FunctionTool):
            return []
        return [self._project, *sys.path] if tool.provider == "project" and self._project else sys.path

    def _recipe(self, tool: RegisteredTool, level: Isolation, reach: _Reach) -> tuple[Key, Recipe]:
        reference = _reference(tool) or ""
        code = _code_of(reference, self._searched(tool))
        may_spawn = any(capability.kind == "process.spawn" for capability in tool.definition.capabilities)
        limits = _limits(tool)
        worker = WorkerPlan(
            tool=reference,
            level=level,
            filter=_profile(level, may_spawn=may_spawn).program(),
            import_paths=code.site,
            packages=code.packages,
            read=reach.read,
            write=reach.write,
            may_spawn=may_spawn,
            limits=limits,
        )
        is_ours = isinstance(tool.runner, FunctionTool)
        roots = ZygotePlan(
            level=level,
            code=code.shown,
            read=reach.read_roots,
            write=reach.write_roots,
            preload=_PRELOADED if is_ours else (),
            import_paths=code.site if is_ours else (),
            packages=code.ours if is_ours else (),
        )
        grant = canonical_hash([*map(list, reach), list(code.shown), limits.memory_bytes, may_spawn])
        return Key(tool.definition_hash, level, grant), Recipe(zygote=roots, worker=worker)


def _level(tool: RegisteredTool) -> Isolation:
    constraints = tool.definition.constraints
    if isinstance(tool.runner, FunctionTool):
        asked = constraints.required_isolation
        return Isolation.NONE if asked is None else Isolation(asked.value)
    has_scope = any(capability.scope not in ("", "*") for capability in tool.definition.capabilities)
    if constraints.required_isolation is None and has_scope:
        return Isolation.STRICT
    return Isolation(constraints.isolation.value)


def _reference(tool: RegisteredTool) -> str | None:
    """`module:function`, or the file of a script; None for what no other process can import."""
    runner = tool.runner
    if getattr(runner, "kind", "") == "python":
        return str(runner.target)
    if not isinstance(runner, FunctionTool):
        return None
    name = runner.function.__qualname__
    if "<" in name:  # made inside another function
        return None
    module = runner.function.__module__
    if module != "__main__":
        return f"{module}:{name}"
    file = getattr(sys.modules["__main__"], "__file__", None)
    return f"{os.path.realpath(file)}:{name}" if file else None


def _code_of(reference: str, search: list[str]) -> _Code:
    place = reference.rpartition(":")[0]
    own = [place] if place.startswith("/") else _package(place.partition(".")[0], search)
    site = _site_folders()
    packages = dict.fromkeys([*own, _OURS])
    outside = [path for path in packages if not any(path.startswith(f"{folder}/") for folder in site)]
    return _Code(tuple(site), tuple(outside))


def _package(name: str, search: list[str]) -> list[str]:
    """The folder or file of a top-level package, found and not imported; without a search, the one in use."""
    if not search:
        spec = getattr(sys.modules.get(name), "__spec__", None)
    else:
        spec = importlib.machinery.PathFinder.find_spec(name, search)
    if spec is None:
        raise ValueError(f"there is no module '{name}'")
    found = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    return [os.path.realpath(path) for path in found]


def _site_folders() -> list[str]:
    found = (os.path.realpath(path) for path in sys.path if path.rstrip("/").endswith(_SITE))
    return [path for path in dict.fromkeys(found) if Path(path).is_dir()]


def _reach(call: RecordedCall) -> _Reach:
    """The places of a call: what it reads, what it writes, and in which granted folders that lies."""
    read, write, read_roots, write_roots, identities = [], [], [], [], []
    for one in call.approved.permitted.touched:
        if one.kind.startswith("net."):
            raise ValueError("the network is closed at this level, and there is no way through it yet")
        if not one.kind.startswith("fs.") or one.root_path is None:
            continue
        identities.append(one.identity)
        if one.kind == "fs.read":
            read.append(one.shown)
            read_roots.append(one.root_path)
        else:
            place = _existing(one.shown)
            check_unprotected(place)
            write.append(place)
            write_roots.append(one.root_path)
    found = (read, write, read_roots, write_roots, identities)
    return _Reach(*(tuple(sorted(set(each))) for each in found))


def _existing(path: str) -> str:
    """A file that does not exist yet is made in its folder, which has to be there."""
    while not Path(path).exists():
        path = str(Path(path).parent)
    return path


def _limits(tool: RegisteredTool) -> ResourceLimits:
    definition = tool.definition
    isolation = definition.constraints.isolation
    return ResourceLimits(
        memory_bytes=definition.resource_bounds.memory_bytes(isolation),
        cpu_s=max(1, math.ceil(definition.constraints.execution_seconds)),
    )


def _profile(level: Isolation, *, may_spawn: bool) -> Profile:
    architecture = this_machine()
    if architecture is None:
        raise ValueError("there is no system call filter for this kind of processor")
    if level is Isolation.STANDARD:
        return standard(architecture)
    if level is Isolation.STRICT:
        return strict(architecture, may_spawn=may_spawn, may_connect=False)
    return restricted(architecture)


_ENDINGS: Final = {
    Ending.TOO_BIG: (Code.OUTPUT_TOO_BIG, f"gave more than {OUTPUT_CAP_BYTES} bytes"),
    Ending.BROKEN: (Code.OUTPUT_INVALID, "gave something that is no answer"),
    Ending.DIED: (Code.TOOL_FAILED, "ended without an answer: it crashed, or passed a limit"),
    Ending.TIMED_OUT: (Code.TIMED_OUT, "took too long"),
    Ending.UNLOADED: (Code.NOT_RUNNABLE, "could not be imported"),
}


def _value(call: RecordedCall, reply: Reply) -> Any:
    if reply.ending is Ending.OK:
        return reply.value
    if reply.ending is Ending.FAILED:
        raise ToolFailed(reply.text)
    if reply.ending is Ending.RAISED:
        raise RuntimeError(f"in the sandbox: {reply.text}")
    code, what = _ENDINGS[reply.ending]
    if reply.text:  # the words of a tool, which may quote anything
        log.warning("a worker gave no answer", extra={"tool_name": call.tool.name, "reason": reply.text})
    raise RunRefused(code, f"Tool '{call.tool.name}' {what}")
