"""Runner of confined tools (SBX-1, SBX-2): those named by reference, and live ones that require isolation.

Input: a recorded call and what policy resolved for it. The worker can access that, its code and its scratch
folder, and nothing else; at standard only its resources are limited. No tool code is imported here. A level
that this machine cannot provide is refused, never weakened.
"""

import asyncio
import inspect
import json
import logging
import math
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import FunctionType, ModuleType
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.authoring.code_reference import NoCodeReference, find_reference, is_live
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.calls import Denied, Diagnosis, RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.errors import Code, ToolkeepError
from toolkeep.events import (
    AgentDeclared,
    Bus,
    Event,
    PoliciesChanged,
    ToolQuarantined,
    ToolSwitched,
    ToolUnregistered,
)
from toolkeep.execution.command_tool import RUNNER, fill
from toolkeep.execution.contact_events import ContactEvents, OnContact
from toolkeep.execution.diagnosis import exceeded, in_mebibytes, raised
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.program_errors import program_diagnosis
from toolkeep.execution.program_lookup import find_program, installed_with
from toolkeep.execution.runner import Held, ProgramFailed, RunRefused
from toolkeep.execution.streamed_output import joined, listener_of
from toolkeep.execution.tool_code import find_code
from toolkeep.execution.tool_isolation import (
    has_processes,
    is_built_in,
    is_command,
    is_python,
    level_of,
    may_spawn,
    runs_in_worker,
)
from toolkeep.execution.worker_grant import (
    WRITE,
    Tool,
    WorkerGrant,
    check_code,
    grant_for_call,
    hosts_of,
    resolved_arguments,
)
from toolkeep.json_values.jsonable import NotData, to_json_body
from toolkeep.limits import CANCEL_GRACE_SECONDS, LARGE_OUTPUT, OUTPUT_CAP_BYTES
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.frames import FrameRefused
from toolkeep.sandbox.import_guard import writable_folders
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism, in_use, memory_bound
from toolkeep.sandbox.kernel_probe import Findings
from toolkeep.sandbox.launch import EarlyStart, interpreter
from toolkeep.sandbox.plan import (
    DEFAULT_ENVIRONMENT,
    IMPORTS_VARIABLE,
    NotThere,
    Recipe,
    ResourceLimits,
    WorkerPlan,
    ZygotePlan,
)
from toolkeep.sandbox.seccomp_filters import for_level, templated
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths
from toolkeep.sandbox.unconfined_process import UNCONFINED, UnconfinedPlan, run_unconfined
from toolkeep.sandbox.worker_exchange import Ending, Reply, Request, Serve, Unloaded
from toolkeep.sandbox.worker_pool import Key, Pool

log = logging.getLogger("toolkeep.execution")

_KEYS: Final = 1_000
"""Worker kinds known at once; another definition or grant is another kind."""

_PRELOADED: Final = ("toolkeep.authoring.tool_decorator", "toolkeep.definitions.parameter_marks")
"""What decorated functions import, once in the zygote instead of in each worker."""
_PYDANTIC: Final = ("pydantic.fields", "pydantic.main", "pydantic.type_adapter")
"""100 ms and 12 MiB, for the tools that use it."""

_TOOLS: Final = (
    "toolkeep.tools.read_file",
    "toolkeep.tools.list_directory",
    "toolkeep.tools.grep",
    "toolkeep.tools.write_file",
    "toolkeep.tools.run_command",
    "toolkeep.tools.git",
    "toolkeep.tools.git_push",
    "toolkeep.tools.http_fetch",
)
"""Modules of the built-in tools. They are ours, so the zygote may import them."""

_REVOKING: Final = (ToolSwitched, ToolUnregistered, ToolQuarantined, AgentDeclared, PoliciesChanged)
_TEMPLATE: Final = "template"
"""How a result says that its worker did not import the tool anew."""


class SandboxRunner:
    """Runs tools in one-shot workers."""

    def __init__(
        self,
        project: str = "",
        trusted: TrustedPaths = THIS_PROCESS,
        machine: IsolationCheck | None = None,
        contacts: ContactEvents | None = None,
        bus: Bus | None = None,
        early: EarlyStart | None = None,
    ) -> None:
        """`project` is searched for modules of its own tools; no tool may write what is `trusted`.

        `early` are the processes that were started for the first call.
        """
        self._bus = bus
        self._unsubscribe: Callable[[], None] | None = None
        self._project = project
        self._trusted = trusted
        self._pool = Pool()
        self._keys: dict[Key, None] = {}
        self._plans: dict[tuple[object, ...], tuple[ZygotePlan, WorkerPlan]] = {}
        self._templated: dict[str, bool] = {}
        """Whether the last call of a tool ran in a worker from a template, by definition."""
        self._machine = machine or IsolationCheck()
        self._contacts = contacts or ContactEvents()
        self._early = early

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is Python code or a program, and requires isolation."""
        return runs_in_worker(tool)

    def isolation(self, tool: RegisteredTool) -> str:
        """Level of a call of the tool."""
        return (Isolation.NONE if self._is_unconfined(tool) else level_of(tool)).value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """Mechanisms that confine a call of the tool."""
        if self._is_unconfined(tool):
            return (UNCONFINED,)
        used = in_use(level_of(tool), self._memory_by(tool))
        return (*used, _TEMPLATE) if self._templated.get(tool.definition_hash) else used

    def _is_unconfined(self, tool: RegisteredTool) -> bool:
        return self._machine.is_unconfined(tool, level_of(tool), has_processes=has_processes(tool))

    def _note_template(self, tool: RegisteredTool, *, is_templated: bool) -> None:
        if len(self._templated) >= _KEYS:
            self._templated.clear()
        self._templated[tool.definition_hash] = is_templated

    def _memory_by(self, tool: RegisteredTool) -> Mechanism:
        """Memory bound: an rlimit for one process, the best that this machine has for several."""
        best = self._machine.tree_bound if has_processes(tool) else None
        return best or Mechanism.MEMORY_LIMIT

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """The tool's value. Cancellation kills the worker."""
        try:
            reply = await self._reply(call, context())
            if reply.use is not None:
                slot.note_use(reply.use.cpu_ms, reply.use.peak_bytes)
        except SandboxBroken as error:
            # The reason names host paths: for the operator's log, not for a model.
            log.error("a worker could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            reason = f"Tool '{call.tool.name}' was not run: the sandbox could not be set up"
            raise RunRefused(error.code, reason) from error
        except ToolkeepError as error:
            reason = f"Tool '{call.tool.name}' was not run: {error.message}"
            raise RunRefused(error.code, reason, diagnosis=Diagnosis(remedy=error.hint)) from error
        except (NotThere, OSError) as error:
            log.warning("a worker could not be given its granted paths", extra={"reason": str(error)})
            reason = f"Tool '{call.tool.name}' was not run: a resource has changed since authorization"
            raise RunRefused(Code.TOUCHED_CHANGED, reason) from error
        except (ValueError, NoCodeReference) as error:
            reason = f"Tool '{call.tool.name}' was not run: {error}"
            raise RunRefused(Code.ISOLATION_UNAVAILABLE, reason) from error
        if reply.pieces is not None and len(reply.pieces) > LARGE_OUTPUT:
            return await asyncio.to_thread(_value, call, reply)
        return _value(call, reply)

    async def _reply(self, call: RecordedCall, known: ToolContext) -> Reply:
        """Run a call confined, or unconfined where the operator allows that and the machine has no choice."""
        worker_grant = await self._worker_grant(call)
        found = await self._mechanisms(call, worker_grant)
        if self._is_unconfined(call.tool):
            return await self._answer_unconfined(call, known)
        try:
            return await self._answer(call, known, found, worker_grant)
        except SandboxBroken:
            # No line of the tool has run. Perhaps no worker of its level comes up here at all.
            level = level_of(call.tool)
            whole = await self._machine.findings(level)
            if self._is_unconfined(call.tool):
                return await self._answer_unconfined(call, known)
            whole.require(level)
            raise

    async def _mechanisms(self, call: RecordedCall, worker_grant: WorkerGrant) -> Findings:
        """What works here of the level of a call."""
        level, several = level_of(call.tool), has_processes(call.tool)
        found = self._machine.known_mechanisms(level, has_processes=several)
        if found is None:
            if sys.platform == "linux":
                # Meanwhile: both take time, and a zygote runs no line of the tool.
                zygote = self._plans_of(call.tool, level, worker_grant)[0]
                self._pool.start_zygote(zygote, self._early.zygote if self._early else None)
            early, self._early = self._early, None
            trial = early.trial if early else None
            found = await self._machine.mechanisms(level, has_processes=several, trial=trial)
        return found

    async def _answer(
        self, call: RecordedCall, known: ToolContext, findings: Findings, worker_grant: WorkerGrant
    ) -> Reply:
        key = self._admitted(call, findings, worker_grant)
        request = json.dumps(self._request(call, known), ensure_ascii=False).encode()
        reply = await self._pool.run(
            key,
            request,
            _seconds(call),
            OUTPUT_CAP_BYTES,
            known.on_progress,
            _listener(call),
            _egress_proxy(call, self._contacts.of(call)),
            call.request.agent,
        )
        self._note_template(call.tool, is_templated=reply.is_templated)
        return reply

    async def _answer_unconfined(self, call: RecordedCall, known: ToolContext) -> Reply:
        """The answer of a tool that the operator lets run unconfined on this machine."""
        tool, permitted = call.tool, call.approved.permitted
        granted = {one.kind for one in permitted.touched} | {kind for kind, _ in permitted.held}
        # Confined, such a tool can do without the grant, because it can then write nothing.
        if WRITE in {capability.kind for capability in tool.definition.capabilities} - granted:
            raise ValueError(f"the agent has no grant for {WRITE}, and nothing here keeps it from writing")
        reference = _target(tool)
        code = find_code(reference, self._searched(tool), _places(tool))
        environment = _environment(tool, reference, code.packages)
        plan = UnconfinedPlan(reference, code.site, code.packages, _limits(tool), environment)
        request = Request(
            json.dumps(self._request(call, known), ensure_ascii=False).encode(),
            asyncio.get_running_loop().time() + _seconds(call),
            OUTPUT_CAP_BYTES,
            known.on_progress,
            _listener(call),
            _egress_proxy(call, self._contacts.of(call)),
        )
        return await run_unconfined(plan, request)

    def on_event(self, event: Event) -> None:
        """End templates, which serve one agent and its right to a tool, when either changes (SBX-2)."""
        if isinstance(event, _REVOKING) and getattr(event, "state", "disabled") == "disabled":
            self._pool.end_templates()

    async def close(self) -> None:
        """End the workers of this event loop."""
        self._end_early()
        await self._pool.close()

    def close_soon(self) -> None:
        """End all workers, from any thread."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        self._end_early()
        self._pool.close_soon()

    def _end_early(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            early.end()

    async def _worker_grant(self, call: RecordedCall) -> WorkerGrant:
        """Grant of a call's worker; a writable folder is scanned in a thread, off the event loop."""
        permitted = call.approved.permitted
        if level_of(call.tool) is not Isolation.STRICT:
            return WorkerGrant()
        described = self._described(call.tool)
        kinds = (*(one.kind for one in permitted.touched), *(kind for kind, _ in permitted.held))
        if WRITE in kinds:
            return await asyncio.to_thread(grant_for_call, permitted, described)
        return grant_for_call(permitted, described)

    def _admitted(self, call: RecordedCall, findings: Findings, worker_grant: WorkerGrant) -> Key:
        """Key of the workers that may run a call. Raises if this machine cannot provide its level."""
        level = level_of(call.tool)
        if self._bus is not None and self._unsubscribe is None:
            self._unsubscribe = self._bus.subscribe(self.on_event)
        # Fail closed: before any worker exists.
        findings.require(level, connects=worker_grant.connects)
        # Another writable folder changes which code is safe to import, so it is part of the key.
        key = Key(call.tool.definition_hash, level, (worker_grant, writable_folders(), _code_key(call.tool)))
        if key not in self._keys:
            zygote, worker = self._plans_of(call.tool, level, worker_grant)
            worker = replace(worker, memory_by=self._memory_by(call.tool))
            self._pool.admit(key, Recipe(zygote=zygote, worker=worker, grant=worker_grant.grant))
            # Bounded: each key may keep idle workers, and a caller chooses the paths that make a new key.
            if len(self._keys) >= _KEYS:
                oldest = next(iter(self._keys))
                del self._keys[oldest]
                self._pool.forget(oldest)
            self._keys[key] = None
        return key

    def _request(self, call: RecordedCall, known: ToolContext) -> dict[str, Any]:
        """The request to this call's worker: arguments, and context if the tool takes one."""
        arguments = resolved_arguments(call, is_built_in=is_built_in(call.tool))
        if is_command(call.tool):
            return {"arguments": self._command(call, arguments)}
        runner = call.tool.runner
        if is_built_in(call.tool):
            told: dict[str, Any] = {"arguments": {**arguments, **dict(runner.fixed)}}
            return told | ({"context": _host_secrets(call, known)} if runner.takes_host_secrets else {})
        request: dict[str, Any] = {"arguments": arguments}
        if isinstance(runner, FunctionTool) and not runner.takes_context:
            return request  # What it cannot ask for should not be in its memory.
        ids = ("agent", "correlation_id", "conversation_id", "session_id")
        told = {name: getattr(known, name) for name in ids}
        request["context"] = told | {"data": dict(known.data), "secrets": dict(known.secrets)}
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
            is_built_in=is_built_in(tool),
            writes=tool.runner.writes if is_built_in(tool) else "",
            programs=self._programs(tool),
            trusted=self._trusted,
        )

    def _programs(self, tool: RegisteredTool) -> tuple[str, ...]:
        """Programs that a tool starts besides those in its definition."""
        if is_command(tool):
            return (os.path.realpath(self._program(tool)),)
        if is_python(tool):
            # What `multiprocessing` spawns. It can do nothing that a forked child of the worker could not.
            return (interpreter(),) if may_spawn(tool) else ()
        named = tool.runner.programs
        return tuple(path for path in named if os.path.exists(path))

    def _program(self, tool: RegisteredTool) -> str:
        """Path of a command's program, symlinks kept."""
        base = self._project if tool.provider == "project" and self._project else "/"
        return find_program(tool.runner.target[0], base)

    def _searched(self, tool: RegisteredTool) -> list[str]:
        """Module search path; a project's modules never shadow those of the user's own tools."""
        if is_live(tool.runner):
            return []
        return [self._project, *sys.path] if tool.provider == "project" and self._project else sys.path

    def _plans_of(
        self, tool: RegisteredTool, level: Isolation, worker_grant: WorkerGrant
    ) -> tuple[ZygotePlan, WorkerPlan]:
        """Plans of a tool's workers, independent of the grant; cached for calls in the same folders."""
        started = set(worker_grant.grant.run)
        # At every level: the program may lie in a folder that only its owner can read.
        if is_command(tool):
            found = self._program(tool)
            started.update(executables(found), installed_with(found))
        programs = tuple(sorted(path for path in started if not path.startswith("/usr/")))
        roots = (worker_grant.read_roots, worker_grant.write_roots, programs, worker_grant.connects)
        known = (tool.definition_hash, level, writable_folders(), _code_key(tool), *roots)
        if known not in self._plans:
            if len(self._plans) >= _KEYS:
                self._plans.clear()
            self._plans[known] = self._new_plans(tool, level, worker_grant, programs)
        return self._plans[known]

    def _new_plans(
        self, tool: RegisteredTool, level: Isolation, worker_grant: WorkerGrant, programs: tuple[str, ...]
    ) -> tuple[ZygotePlan, WorkerPlan]:
        """Build the zygote and worker plans."""
        is_live_tool = is_live(tool.runner)
        is_ours = is_built_in(tool) or is_command(tool)
        reference = find_reference(tool.runner) if is_live_tool else _target(tool)
        preload = _preloaded(tool.runner) if is_live_tool else _TOOLS if is_ours else ()
        code = find_code(reference, self._searched(tool), _places(tool))
        if level is not Isolation.STANDARD:
            # Code is mounted as whole folders: toolkeep's own keys and databases must not lie in one.
            check_code((*code.shown, *programs), self._trusted.state)
        spawns = may_spawn(tool)
        profile = for_level(level, may_spawn=spawns, may_connect=worker_grant.connects)
        worker = WorkerPlan(
            tool=reference,
            level=level,
            filter=profile.program(),
            template_filter=templated(profile).program(),
            connects=worker_grant.connects,
            import_paths=code.site,
            packages=code.packages,
            may_spawn=spawns,
            memory_by=memory_bound(level, may_spawn=spawns),
            limits=_limits(tool),
            environment=_environment(tool, reference, code.packages),
        )
        zygote = ZygotePlan(
            level=level,
            code=(*code.shown, *programs),
            read=worker_grant.read_roots,
            write=worker_grant.write_roots,
            has_proc=level is not Isolation.RESTRICTED,
            preload=preload,
            import_paths=code.site if preload else (),
            # Only toolkeep's own package: a zygote never imports tool code.
            packages=code.ours if preload else (),
        )
        return zygote, worker


def _preloaded(runner: Any) -> tuple[str, ...]:
    """What the zygote of live code imports."""
    is_function = isinstance(runner, FunctionTool)
    code = runner.function if is_function else type(runner)
    uses_pydantic = (is_function and runner.makes_instances) or _holds_pydantic(sys.modules[code.__module__])
    # A class of an agent's tool is called by its own async method.
    is_async = not is_function or inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)
    return (*_PRELOADED, *(_PYDANTIC if uses_pydantic else ()), *(("asyncio",) if is_async else ()))


def _holds_pydantic(module: ModuleType) -> bool:
    """Whether a module has something of pydantic among its names. It only saves time to be right."""
    for value in list(vars(module).values()):
        # Exact types: reading an attribute of any other object may run its code.
        if type(value) is ModuleType:
            home = vars(value).get("__name__")
        else:
            known = value if type(value) in (FunctionType, type) else type(value)
            home = getattr(known, "__module__", "")
        if str(home).partition(".")[0] == "pydantic":
            return True
    return False


def _seconds(call: RecordedCall) -> float:
    """Slightly longer than the call's deadline: the executor gives up first, and reports it."""
    return call.deadline_s + CANCEL_GRACE_SECONDS


def _host_secrets(call: RecordedCall, known: ToolContext) -> dict[str, Any]:
    """Secrets named like a host of the call; no other secret leaves this process."""
    hosts = {one.shown for one in call.approved.permitted.touched if one.kind.startswith("net.")}
    return {"secrets": {name: value for name, value in known.secrets.items() if name in hosts}}


def _egress_proxy(call: RecordedCall, told: OnContact) -> Serve | None:
    """Factory of the egress proxy for the hosts of a call; None if it has none."""
    hosts = hosts_of(call.approved.permitted, trusts_tunnels=is_built_in(call.tool))
    if hosts.is_empty:
        return None

    def serve(listeners: Sequence[socket.socket]) -> AbstractAsyncContextManager[object]:
        from toolkeep.network.budget import Budget  # Imports HTTP, which most keeps never need.
        from toolkeep.network.egress_proxy import EgressProxy

        budget = Budget(call.tool.definition.resource_bounds.max_network)
        return EgressProxy(listeners, hosts, max_seconds=call.deadline_s, budget=budget, on_contact=told)

    return serve


def _environment(
    tool: RegisteredTool, reference: str, packages: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Variables of a worker; Python code that may start processes can spawn some that import as it does."""
    copy = None if is_live(tool.runner) else getattr(tool.runner, "copy", None)
    variables = (*DEFAULT_ENVIRONMENT, *(copy.variables if copy is not None else ()))
    if not is_python(tool) or not has_processes(tool):
        return variables
    return (*variables, (IMPORTS_VARIABLE, json.dumps({"tool": reference, "packages": packages})))


def _places(tool: RegisteredTool) -> tuple[str, ...]:
    return getattr(tool.runner, "seen", ())


def _code_key(tool: RegisteredTool) -> tuple[str, ...]:
    """Name and places of code that may be exchanged under the same definition, when its file is reloaded."""
    places = _places(tool)
    return (str(tool.runner.target), *places) if places else ()


def _target(tool: RegisteredTool) -> str:
    return RUNNER if is_command(tool) else str(tool.runner.target)


def _limits(tool: RegisteredTool) -> ResourceLimits:
    definition = tool.definition
    isolation = definition.constraints.isolation
    bounds = definition.resource_bounds
    cores = 1.0 if bounds.max_cpu_cores is None else bounds.max_cpu_cores
    return ResourceLimits(
        memory_bytes=bounds.memory_bytes(isolation),
        # So many cores for as long as a call may take; it also ends a spinning worker if this process is
        # suspended. A second more than stated: at the stated one the worker itself says why it ends.
        cpu_s=max(1, math.ceil(definition.constraints.execution_seconds * cores)) + 1,
    )


_ENDINGS: Final = {
    Ending.BROKEN: (Code.OUTPUT_INVALID, "returned something that is not an answer"),
    Ending.DIED: (Code.TOOL_FAILED, "ended without an answer: it crashed, or passed a limit"),
    Ending.TIMED_OUT: (Code.TIMED_OUT, "took too long"),
    Ending.UNLOADED: (Code.NOT_RUNNABLE, "could not be imported"),
}


_GUARD: Final = 'what it does besides belongs below `if __name__ == "__main__":`'
_REASONS: Final = {
    Unloaded.UNGUARDED: f"a worker imports its file for its definitions, and that makes a call; {_GUARD}",
    Unloaded.EXITED: f"its file ends the process when a worker imports it for its definitions; {_GUARD}",
    Unloaded.MISSING: "it needs a module that is neither installed nor in the package of the tool",
    Unloaded.ABSENT: "its module has no function or class of that name",
    Unloaded.RAISED: f"its file raises an exception when a worker imports it for its definitions; {_GUARD}",
}
"""In our own words: a tool's own import error may be addressed to a model (prompt injection)."""


def _listener(call: RecordedCall) -> Callable[[Any], None] | None:
    """Listener for streamed pieces, limited to what the caller may get."""
    tell, left = listener_of(call), call.output_bytes
    if tell is None:
        return None

    def on_piece(piece: Any) -> None:
        nonlocal left
        try:
            # The caller's limit also applies to streamed pieces, or streaming would bypass it.
            left -= len(to_json_body(piece))
        except NotData as error:
            raise FrameRefused(f"it tells a piece that is no data: {error}") from error
        if left >= 0:
            tell(piece)

    return on_piece


def _value(call: RecordedCall, reply: Reply) -> Any:
    if reply.ending is Ending.OK:
        return reply.value if reply.pieces is None else joined(call, reply.pieces)
    limits = _limits(call.tool)
    if reply.ending is Ending.FAILED and not is_command(call.tool):
        raise ToolFailed(reply.text)
    if reply.ending is Ending.FAILED:
        said = program_diagnosis(call, reply.text, limits, level_of(call.tool))
        raise ProgramFailed(reply.text, said)
    if reply.exception is not None:
        raise raised(call, reply.exception, limits, level_of(call.tool))
    if reply.ending is Ending.OUT_OF_MEMORY:
        raise exceeded(call, Denied.MEMORY, in_mebibytes(limits.memory_bytes))
    if reply.ending is Ending.TOO_BIG:
        raise exceeded(call, Denied.OUTPUT_SIZE, in_mebibytes(OUTPUT_CAP_BYTES), code=Code.OUTPUT_TOO_BIG)
    code, what = _ENDINGS[reply.ending]
    if reply.why is not None:
        what = f"{what}: {_REASONS[reply.why]}"
    # Libraries in C exit or crash where Python would raise MemoryError.
    remedy = (
        f"{in_mebibytes(limits.memory_bytes)} of memory may be too little: raise resource_bounds.max_memory"
    )
    remedy = remedy if reply.ending is Ending.DIED else ""
    # The tool's own text, which may quote anything: for the operator alone.
    diagnosis = Diagnosis(remedy=remedy, detail="\n".join(filter(None, (what, reply.text))))
    raise RunRefused(code, f"Tool '{call.tool.name}' {what}", diagnosis=diagnosis)
