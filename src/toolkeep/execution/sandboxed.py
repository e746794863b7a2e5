"""Runs tools in fresh, confined processes (SBX-1, SBX-2): those named by reference, and live ones that ask.

Comes in: a recorded call, and what it would touch. The worker reaches that, its code and its scratch folder,
and nothing else; at standard it is only bounded. Nothing of the tool is imported here. A level that this
machine cannot give is refused, never weakened.
"""

import asyncio
import errno
import json
import logging
import math
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext, ToolFailed
from toolkeep.definitions.function import FunctionTool
from toolkeep.definitions.reference import Unreachable, find_reference, is_live
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.errors import Code, ToolkeepError
from toolkeep.execution.command import COMMAND, RUNNER, fill
from toolkeep.execution.contacts import Contacts, Told
from toolkeep.execution.machine import Machine
from toolkeep.execution.pieces import joined, listener_of
from toolkeep.execution.programs import find_program, surroundings
from toolkeep.execution.reach import (
    SPAWN,
    WRITE,
    Reach,
    Tool,
    check_code,
    hosts_of,
    reach_of,
    resolved_arguments,
)
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.execution.tool_code import find_code
from toolkeep.limits import CANCEL_GRACE_SECONDS, LARGE_OUTPUT, MIB, OUTPUT_CAP_BYTES
from toolkeep.plain import NotData, json_body
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.exchange import Ending, Reply, Serve, Unloaded
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.filters import for_level
from toolkeep.sandbox.frames import FrameRefused
from toolkeep.sandbox.import_guard import writable_folders
from toolkeep.sandbox.levels import Isolation, Mechanism, in_use
from toolkeep.sandbox.plan import NotThere, Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.pool import Key, Pool
from toolkeep.sandbox.probe import Findings
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths

log = logging.getLogger("toolkeep.execution")

_KEYS: Final = 1_000
"""Kinds of workers that are known at once; another definition or another grant is another kind."""

_PRELOADED: Final = (
    "toolkeep.definitions.function", "toolkeep.definitions.contract", "toolkeep.definitions.data",
    "docstring_parser", "pydantic.main", "pydantic.type_adapter", "toolkeep.definitions.check",
)  # fmt: skip
"""What every function that was made a tool imports: a quarter of a second, once and not for each worker."""

_TOOLS: Final = (
    "toolkeep.tools.reading", "toolkeep.tools.listing", "toolkeep.tools.searching", "toolkeep.tools.writing",
    "toolkeep.tools.running", "toolkeep.tools.gitting", "toolkeep.tools.pushing", "toolkeep.tools.fetching",
)  # fmt: skip
"""The modules of the built-in tools: they are ours, and need not wait for a call."""

BUILT_IN: Final = "built_in"
_KINDS: Final = frozenset(("python", BUILT_IN, COMMAND))


class SandboxRunner:
    """Runs what is not to run in this process."""

    def __init__(
        self,
        project: str = "",
        trusted: TrustedPaths = THIS_PROCESS,
        machine: Machine | None = None,
        contacts: Contacts | None = None,
    ) -> None:
        """`project` is looked through for the modules of its own tools; no tool writes what is `trusted`."""
        self._project = project
        self._trusted = trusted
        self._pool = Pool()
        self._keys: dict[Key, None] = {}
        self._plans: dict[tuple[object, ...], tuple[ZygotePlan, WorkerPlan]] = {}
        self._machine = machine or Machine()
        self._contacts = contacts or Contacts()

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is Python code or a program, and asks for isolation."""
        if _is_command(tool) and _level(tool) is Isolation.RESTRICTED:
            return False  # where no process can be started
        is_ours_to_run = is_live(tool.runner) or getattr(tool.runner, "kind", "") in _KINDS
        return is_ours_to_run and _level(tool) is not Isolation.NONE

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
        best = self._machine.tree_bound if has_processes else None
        return best or Mechanism.MEMORY_LIMIT

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """What the tool gives back. The worker is killed when this is cancelled."""
        try:
            findings = await self._machine.findings(_level(call.tool))
            key = self._admitted(call, findings, await self._reach(call))
            known = context()
            request = json.dumps(self._request(call, known), ensure_ascii=False).encode()
            # A moment longer than the call: whoever runs it gives up first, and says so.
            deadline_s = call.deadline_s + CANCEL_GRACE_SECONDS
            owner = call.request.agent
            reply = await self._pool.run(
                key,
                request,
                deadline_s,
                OUTPUT_CAP_BYTES,
                known.on_progress,
                _listener(call),
                _way_out(call, self._contacts.of(call)),
                owner,
            )
        except SandboxBroken as error:
            # What went wrong names places of this machine, which are none of a model's business.
            log.error("a worker could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            reason = f"Tool '{call.tool.name}' was not run: the sandbox could not be set up"
            raise RunRefused(error.code, reason) from error
        except ToolkeepError as error:
            raise RunRefused(error.code, f"Tool '{call.tool.name}' was not run: {error.message}") from error
        except (NotThere, OSError) as error:
            log.warning("a worker was not granted its places", extra={"reason": str(error)})
            reason = f"Tool '{call.tool.name}' was not run: what it would touch has changed meanwhile"
            raise RunRefused(Code.TOUCHED_CHANGED, reason) from error
        except (ValueError, Unreachable) as error:
            reason = f"Tool '{call.tool.name}' was not run: {error}"
            raise RunRefused(Code.ISOLATION_UNAVAILABLE, reason) from error
        if reply.pieces is not None and len(reply.pieces) > LARGE_OUTPUT:
            return await asyncio.to_thread(_value, call, reply)
        return _value(call, reply)

    async def close(self) -> None:
        """End the workers of this event loop."""
        await self._pool.close()

    def close_soon(self) -> None:
        """End all workers, from wherever."""
        self._pool.close_soon()

    async def _reach(self, call: RecordedCall) -> Reach:
        """What the worker of a call may reach; a folder that it may write is looked through off the loop."""
        permitted = call.approved.permitted
        if _level(call.tool) is not Isolation.STRICT:
            return Reach()
        described = self._described(call.tool)
        kinds = (*(one.kind for one in permitted.touched), *(kind for kind, _ in permitted.held))
        if WRITE in kinds:
            return await asyncio.to_thread(reach_of, permitted, described)
        return reach_of(permitted, described)

    def _admitted(self, call: RecordedCall, findings: Findings, reach: Reach) -> Key:
        """The key of the workers that may run a call. Raises where this machine cannot give its level."""
        level = _level(call.tool)
        findings.require(level, connects=reach.connects)
        # With another folder that tools may write, other code is safe to import.
        key = Key(call.tool.definition_hash, level, (reach, writable_folders()))
        if key not in self._keys:
            zygote, worker = self._plans_of(call.tool, level, reach)
            self._pool.admit(key, Recipe(zygote=zygote, worker=worker, grant=reach.grant))
            if len(self._keys) >= _KEYS:
                oldest = next(iter(self._keys))
                del self._keys[oldest]
                self._pool.forget(oldest)
            self._keys[key] = None
        return key

    def _request(self, call: RecordedCall, known: ToolContext) -> dict[str, Any]:
        """What travels to the one worker of the call and nowhere else: arguments, and what it may know."""
        arguments = resolved_arguments(call, is_built_in=_is_built_in(call.tool))
        if _is_command(call.tool):
            return {"arguments": self._command(call, arguments)}
        runner = call.tool.runner
        if _is_built_in(call.tool):
            told: dict[str, Any] = {"arguments": {**arguments, **dict(runner.fixed)}}
            return told | ({"context": _host_secrets(call, known)} if runner.takes_host_secrets else {})
        request: dict[str, Any] = {"arguments": arguments}
        if isinstance(runner, FunctionTool) and not runner.takes_context:
            return request  # what it cannot ask for need not lie in its memory
        ids = ("agent", "correlation_id", "conversation_id", "session_id")
        request["context"] = {name: getattr(known, name) for name in ids} | {"secrets": dict(known.secrets)}
        return request

    def _command(self, call: RecordedCall, arguments: dict[str, Any]) -> dict[str, Any]:
        command = fill(call.tool.runner.target, arguments)
        found = self._program(call.tool)
        return {
            "argv": command.argv,
            "program": (os.path.realpath(found), found),
            "input_text": command.input,
            "seconds": call.deadline_s,
            "gives_text": call.tool.definition.result_type is ResultType.STRING,
        }

    def _described(self, tool: RegisteredTool) -> Tool:
        return Tool(
            is_built_in=_is_built_in(tool),
            writes=tool.runner.writes if _is_built_in(tool) else "",
            programs=self._programs(tool),
            trusted=self._trusted,
        )

    def _programs(self, tool: RegisteredTool) -> tuple[str, ...]:
        """What a tool starts beside what its definition says."""
        if _is_command(tool):
            return (os.path.realpath(self._program(tool)),)
        named = tool.runner.programs if _is_built_in(tool) else ()
        return tuple(path for path in named if os.path.exists(path))

    def _program(self, tool: RegisteredTool) -> str:
        """Where the program of a command is found, links and all."""
        base = self._project if tool.provider == "project" and self._project else "/"
        return find_program(tool.runner.target[0], base)

    def _searched(self, tool: RegisteredTool) -> list[str]:
        """Where modules of a tool are looked for; those of a project never stand in for the user's."""
        if is_live(tool.runner):
            return []
        return [self._project, *sys.path] if tool.provider == "project" and self._project else sys.path

    def _plans_of(
        self, tool: RegisteredTool, level: Isolation, reach: Reach
    ) -> tuple[ZygotePlan, WorkerPlan]:
        """How its workers are made, whatever they are granted; the same for all calls in the same folders."""
        started = set(reach.grant.run)
        if _is_command(tool):  # at every level: it may lie where only its owner may look
            found = self._program(tool)
            started.update(executables(found), surroundings(found))
        programs = tuple(sorted(path for path in started if not path.startswith("/usr/")))
        roots = (reach.read_roots, reach.write_roots, programs, reach.connects)
        known = (tool.definition_hash, level, writable_folders(), *roots)
        if known not in self._plans:
            if len(self._plans) >= _KEYS:
                self._plans.clear()
            self._plans[known] = self._new_plans(tool, level, reach, programs)
        return self._plans[known]

    def _new_plans(
        self, tool: RegisteredTool, level: Isolation, reach: Reach, programs: tuple[str, ...]
    ) -> tuple[ZygotePlan, WorkerPlan]:
        is_live_tool = is_live(tool.runner)
        is_ours = _is_built_in(tool) or _is_command(tool)
        preload = _PRELOADED if is_live_tool else _TOOLS if is_ours else ()
        reference = find_reference(tool.runner) if is_live_tool else _target(tool)
        code = find_code(reference, self._searched(tool))
        if level is not Isolation.STANDARD:
            check_code((*code.shown, *programs), self._trusted.state)
        may_spawn = _may_spawn(tool)
        worker = WorkerPlan(
            tool=reference,
            level=level,
            filter=for_level(level, may_spawn=may_spawn, may_connect=reach.connects).program(),
            connects=reach.connects,
            import_paths=code.site,
            packages=code.packages,
            may_spawn=may_spawn,
            memory_by=self._memory_by(level, may_spawn=may_spawn),
            limits=_limits(tool),
        )
        zygote = ZygotePlan(
            level=level,
            code=(*code.shown, *programs),
            read=reach.read_roots,
            write=reach.write_roots,
            has_proc=worker.has_processes,
            preload=preload,
            import_paths=code.site if preload else (),
            packages=code.ours if preload else (),
        )
        return zygote, worker


def _host_secrets(call: RecordedCall, known: ToolContext) -> dict[str, Any]:
    """The secrets that are named as the hosts of a call; no other leaves this process."""
    hosts = {one.shown for one in call.approved.permitted.touched if one.kind.startswith("net.")}
    return {"secrets": {name: value for name, value in known.secrets.items() if name in hosts}}


def _way_out(call: RecordedCall, told: Told) -> Serve | None:
    """What leads a worker to the hosts of its call; made only for one that has any."""
    hosts = hosts_of(call.approved.permitted, trusts_tunnels=_is_built_in(call.tool))
    if hosts.is_empty:
        return None

    def serve(listener: socket.socket) -> AbstractAsyncContextManager[object]:
        from toolkeep.network.budget import Budget  # with it comes HTTP, which most keeps never need
        from toolkeep.network.egress import Egress

        budget = Budget(call.tool.definition.resource_bounds.max_network)
        return Egress(listener, hosts, max_seconds=call.deadline_s, budget=budget, on_contact=told)

    return serve


def _target(tool: RegisteredTool) -> str:
    return RUNNER if _is_command(tool) else str(tool.runner.target)


def _is_command(tool: RegisteredTool) -> bool:
    return getattr(tool.runner, "kind", "") == COMMAND


def _is_built_in(tool: RegisteredTool) -> bool:
    return getattr(tool.runner, "kind", "") == BUILT_IN


def _may_spawn(tool: RegisteredTool) -> bool:
    """Whether it is granted to start processes; at standard nothing stops it in any case."""
    if _level(tool) is Isolation.RESTRICTED:
        return False
    spawns = any(capability.kind == SPAWN for capability in tool.definition.capabilities)
    return spawns or _is_command(tool)


def _level(tool: RegisteredTool) -> Isolation:
    constraints = tool.definition.constraints
    if is_live(tool.runner):
        asked = constraints.required_isolation
        return Isolation.NONE if asked is None else Isolation(asked.value)
    has_scope = any(capability.scope not in ("", "*") for capability in tool.definition.capabilities)
    if constraints.required_isolation is None and (has_scope or _is_command(tool)):
        return Isolation.STRICT
    return Isolation(constraints.isolation.value)


def _limits(tool: RegisteredTool) -> ResourceLimits:
    definition = tool.definition
    isolation = definition.constraints.isolation
    return ResourceLimits(
        memory_bytes=definition.resource_bounds.memory_bytes(isolation),
        cpu_s=max(1, math.ceil(definition.constraints.execution_seconds)),
    )


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


def _listener(call: RecordedCall) -> Callable[[Any], None] | None:
    """Who hears of the pieces of a call, as far as they are no more than the caller gets."""
    tell, left = listener_of(call), call.output_bytes
    if tell is None:
        return None

    def hear(piece: Any) -> None:
        nonlocal left
        try:
            left -= len(json_body(piece))
        except NotData as error:
            raise FrameRefused(f"it tells a piece that is no data: {error}") from error
        if left >= 0:
            tell(piece)

    return hear


_DENIED: Final = "the sandbox denied it something that its call was not granted"
_KERNEL_REASONS: Final = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
    errno.ENOENT: "a file, folder or program that it uses does not exist, or was not granted",
    errno.ENOSPC: "there is no room left where it writes",
    errno.EFBIG: "it wrote a file that is larger than allowed",
    errno.EMFILE: "it has more files open than allowed",
    errno.EAGAIN: "it has more processes or threads than allowed",
    errno.ENOMEM: "it needs more memory than it is granted",
}
"""What a model is told of an exception that the kernel is the reason of; no path, which may be a value."""


def _value(call: RecordedCall, reply: Reply) -> Any:
    if reply.ending is Ending.OK:
        return reply.value if reply.pieces is None else joined(call, reply.pieces)
    if reply.ending is Ending.FAILED:
        raise ToolFailed(reply.text)
    if reply.ending is Ending.RAISED and (why := _KERNEL_REASONS.get(reply.errno)):
        fields = {"tool_name": call.tool.name, "reason": reply.text}
        log.error("a tool raised an exception", extra=fields)
        raise RunRefused(Code.TOOL_FAILED, f"Tool '{call.tool.name}' failed: {why}")
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
