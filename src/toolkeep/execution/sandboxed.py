"""Runs tools in fresh, confined processes (SBX-1, SBX-2): those named by reference, and live ones that ask.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import toolkeep
from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.canonical import canonical_hash
from toolkeep.definitions.context import ToolContext, ToolFailed
from toolkeep.definitions.function import FunctionTool
from toolkeep.definitions.reference import Unreachable, find_reference, is_live
from toolkeep.errors import Code, ToolkeepError
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.limits import CANCEL_GRACE_SECONDS, MIB, OUTPUT_CAP_BYTES, PROTECTED_ENTRIES
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.exchange import Ending, Reply, Unloaded
from toolkeep.sandbox.filters import Profile, restricted, standard, strict
from toolkeep.sandbox.levels import Isolation, Mechanism, in_use
from toolkeep.sandbox.plan import Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.pool import Key, Pool
from toolkeep.sandbox.probe import Findings, probe
from toolkeep.sandbox.syscalls import this_machine

log = logging.getLogger("toolkeep.execution")

_PROTECTED: Final = frozenset((".agent", ".git", "toolkeep.lock"))
"""What no tool may write (POL-7); a folder that holds one of them is not granted for writing as a whole."""

_KEYS: Final = 1_000
"""Kinds of workers that are known at once; another definition or another grant is another kind."""

_OURS: Final = os.path.realpath(Path(toolkeep.__file__).parent)

_PRELOADED: Final = (
    "toolkeep.definitions.function", "toolkeep.definitions.contract", "toolkeep.definitions.data",
    "docstring_parser", "pydantic.main", "pydantic.type_adapter", "toolkeep.definitions.check",
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
        """Whether it is Python code, and asks for isolation."""
        is_python = is_live(tool.runner) or getattr(tool.runner, "kind", "") == "python"
        return is_python and _level(tool) is not Isolation.NONE

    def isolation(self, tool: RegisteredTool) -> str:
        """The level that a call of the tool has."""
        return _level(tool).value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """The mechanisms that confine a call of the tool."""
        level = _level(tool)
        return in_use(level, self._memory_by(level, may_spawn=_may_spawn(tool)))

    def _memory_by(self, level: Isolation, *, may_spawn: bool) -> Mechanism:
        """What bounds the memory: a limit for one process, the best that this machine has for several."""
        has_processes = may_spawn or level is Isolation.STANDARD
        best = self._findings.tree_bound if self._findings is not None and has_processes else None
        return best or Mechanism.MEMORY_LIMIT

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:  # noqa: ARG002 -- nothing outlives it
        """What the tool gives back. The worker is killed when this is cancelled."""
        try:
            if self._findings is None:
                await asyncio.to_thread(self._look)
            key = self._admitted(call)
            known = context()
            request = json.dumps(_request(call, known), ensure_ascii=False).encode()
            # A moment longer than the call: whoever runs it gives up first, and says so.
            deadline_s = call.deadline_s + CANCEL_GRACE_SECONDS
            reply = await self._pool.run(key, request, deadline_s, OUTPUT_CAP_BYTES, known.on_progress)
        except SandboxBroken as error:
            # What went wrong names places of this machine, which are none of a model's business.
            log.error("a worker could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            reason = f"Tool '{call.tool.name}' was not run: the sandbox could not be set up"
            raise RunRefused(error.code, reason) from error
        except ToolkeepError as error:
            raise RunRefused(error.code, f"Tool '{call.tool.name}' was not run: {error.message}") from error
        except (ValueError, Unreachable) as error:
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
        if is_live(tool.runner):
            return []
        return [self._project, *sys.path] if tool.provider == "project" and self._project else sys.path

    def _recipe(self, tool: RegisteredTool, level: Isolation, reach: _Reach) -> tuple[Key, Recipe]:
        is_ours = is_live(tool.runner)
        reference = find_reference(tool.runner) if is_ours else str(tool.runner.target)
        code = _code_of(reference, self._searched(tool))
        may_spawn = _may_spawn(tool)
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
            memory_by=self._memory_by(level, may_spawn=may_spawn),
            limits=limits,
        )
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


def _may_spawn(tool: RegisteredTool) -> bool:
    """Whether it is granted to start processes; at standard nothing stops it in any case."""
    if _level(tool) is Isolation.RESTRICTED:
        return False
    return any(capability.kind == "process.spawn" for capability in tool.definition.capabilities)


def _level(tool: RegisteredTool) -> Isolation:
    constraints = tool.definition.constraints
    if is_live(tool.runner):
        asked = constraints.required_isolation
        return Isolation.NONE if asked is None else Isolation(asked.value)
    has_scope = any(capability.scope not in ("", "*") for capability in tool.definition.capabilities)
    if constraints.required_isolation is None and has_scope:
        return Isolation.STRICT
    return Isolation(constraints.isolation.value)


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
    if spec.origin in ("built-in", "frozen"):
        return []  # part of the interpreter
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
            _check_unprotected(place)
            write.append(place)
            write_roots.append(one.root_path)
    found = (read, write, read_roots, write_roots, identities)
    return _Reach(*(tuple(sorted(set(each))) for each in found))


def _request(call: RecordedCall, known: ToolContext) -> dict[str, Any]:
    """What travels to the one worker of the call and nowhere else: arguments, and what it may know."""
    request: dict[str, Any] = {"arguments": _arguments(call)}
    runner = call.tool.runner
    if isinstance(runner, FunctionTool) and not runner.takes_context:
        return request  # what it cannot ask for need not lie in its memory
    ids = ("agent", "correlation_id", "conversation_id", "session_id")
    request["context"] = {name: getattr(known, name) for name in ids} | {"secrets": dict(known.secrets)}
    return request


def _arguments(call: RecordedCall) -> dict[str, Any]:
    """The arguments, with paths as they were resolved: the worker has another working folder."""
    arguments: dict[str, Any] = json.loads(json.dumps(call.checked.arguments))
    for one in call.approved.permitted.touched:
        if one.kind.startswith("fs.") and one.pointer:
            *way, last = (part.replace("~1", "/").replace("~0", "~") for part in one.pointer.split("/")[1:])
            holder: Any = arguments
            for part in way:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            holder[int(last) if isinstance(holder, list) else last] = one.shown
    return arguments


def _existing(path: str) -> str:
    """A file that does not exist yet is made in its folder, which has to be there."""
    while not Path(path).exists():
        path = str(Path(path).parent)
    return path


def _check_unprotected(place: str) -> None:
    """Refuse to grant a folder for writing that holds what no tool may write."""
    for number, name in enumerate(_names_below(place)):
        if name in _PROTECTED:
            raise ValueError(f"its folder holds '{name}', which no tool may write; grant a folder below it")
        if number > PROTECTED_ENTRIES:
            raise ValueError("its folder holds too much to look through; grant a folder below it")


def _names_below(place: str) -> Iterator[str]:
    for _, folders, files in os.walk(place, onerror=_refuse_unseen):
        yield from (*folders, *files)


def _refuse_unseen(error: OSError) -> None:
    """A folder that its owner closed is not closed to the worker, who is its owner too and may open it."""
    if isinstance(error, PermissionError):
        raise ValueError("its folder holds another that cannot be looked into; open or remove that")


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


_GUARD: Final = 'what it does besides belongs below `if __name__ == "__main__":`'
_REASONS: Final = {
    Unloaded.UNGUARDED: f"a worker imports its file for its definitions, and that opens a keep; {_GUARD}",
    Unloaded.EXITED: f"its file ends the process when a worker imports it for its definitions; {_GUARD}",
    Unloaded.MISSING: "it needs a module that is neither installed nor in the package of the tool",
    Unloaded.ABSENT: "its module has no function or class of that name",
    Unloaded.RAISED: f"its file raises an exception when a worker imports it for its definitions; {_GUARD}",
}
"""In words of ours: what a tool says of itself when it is imported may be meant for a model."""


def _value(call: RecordedCall, reply: Reply) -> Any:
    if reply.ending is Ending.OK:
        return reply.value
    if reply.ending is Ending.FAILED:
        raise ToolFailed(reply.text)
    if reply.ending is Ending.RAISED:
        raise RuntimeError(f"in the sandbox: {reply.text}")
    if reply.ending is Ending.OUT_OF_MEMORY:
        most = _limits(call.tool).memory_bytes / MIB
        raise RunRefused(Code.TOOL_FAILED, f"Tool '{call.tool.name}' took more memory than {most:g} MiB")
    code, what = _ENDINGS[reply.ending]
    if reply.why is not None:
        what = f"{what}: {_REASONS[reply.why]}"
    if reply.text:  # the words of a tool, which may quote anything
        fields = {"tool_name": call.tool.name, "why": what, "reason": reply.text}
        log.warning("a worker gave no answer", extra=fields)
    raise RunRefused(code, f"Tool '{call.tool.name}' {what}")
