"""Runner of persistent processes (`run.process`): one line of JSON in, one line out per call.

Request: `{"id": …, "arguments": …}`. Answer: `{"id": …, "result": …}` or `{"id": …, "error": text}`, with the
same id. Calls of one agent take turns. A program that says anything else, too much, nothing in time, or
exits, is killed with everything it started, and the next call starts another. Its standard error goes to the
log.
"""

import hashlib
import json
import logging
import secrets
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import structs

from toolkeep.calls import Denied, Diagnosis, RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.errors import Code, SecretUnavailable, ToolkeepError
from toolkeep.execution.contact_events import ContactEvents, OnContact
from toolkeep.execution.diagnosis import exceeded, in_mebibytes
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.persistent.confinement import (
    PROCESSOR_S,
    Confinement,
    confinement_for_call,
    level_of,
    program_limits,
    worker_recipe,
)
from toolkeep.execution.persistent.egress_port import EgressPort
from toolkeep.execution.persistent.pool import ProcessPool, ProcessStatus, User
from toolkeep.execution.persistent.spec import ProcessSpec
from toolkeep.execution.program_errors import program_diagnosis
from toolkeep.execution.redact import KnownSecrets, redacted
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.execution.worker_grant import resolved_arguments
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.frames import FrameRefused, in_thread_if_large, parse_unambiguous
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism, in_use
from toolkeep.sandbox.kernel_probe import Findings
from toolkeep.sandbox.persistent_process import ExitReason, LineProcess, ProcessExited, Program
from toolkeep.sandbox.plan import NotThere, Recipe
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths
from toolkeep.sandbox.unconfined_process import UNCONFINED, start_program
from toolkeep.sandbox.worker_pool import Pool

log = logging.getLogger("toolkeep.execution")

PROCESS: Final = "process"
_ENVELOPE_BYTES: Final = 1024
"""Bytes of an answer around its output: the keys `id` and `result`, and the id, which is ours."""
_NEXT: Final = "the next call starts it again"
_LOGGED: Final = "what it wrote to its standard error is in the log"


class _ProcessRequest(NamedTuple):
    """The process that one call needs."""

    key: tuple[Any, ...]
    place: Confinement
    program: Program
    spec: ProcessSpec

    def recipe(self, findings: Findings) -> Recipe:
        """How its worker is made. Raises SandboxUnavailable if this machine cannot provide the level."""
        return worker_recipe(self.place, findings, self.spec.between_calls)


class PersistentRunner:
    """Runs tools of a configuration or a `ProcessSource` that a persistent program answers."""

    def __init__(
        self,
        processes: ProcessPool,
        machine: IsolationCheck,
        contacts: ContactEvents,
        project: str = "",
        trusted: TrustedPaths = THIS_PROCESS,
    ) -> None:
        """`project` is the base of its own tools' paths; no program may write what is `trusted`."""
        self._processes = processes
        self._machine = machine
        self._contacts = contacts
        self._project = project
        self._trusted = trusted

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is a persistent program, at a level that allows starting one."""
        is_ours = getattr(tool.runner, "kind", "") == PROCESS
        return is_ours and level_of(tool) in (Isolation.STANDARD, Isolation.STRICT)

    def isolation(self, tool: RegisteredTool) -> str:
        """Level of a call of the tool."""
        is_unconfined = self._machine.is_unconfined(tool, level_of(tool))
        return (Isolation.NONE if is_unconfined else level_of(tool)).value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """Mechanisms that confine a call of the tool."""
        if self._machine.is_unconfined(tool, level_of(tool)):
            return (UNCONFINED,)
        return in_use(level_of(tool), self._machine.tree_bound or Mechanism.MEMORY_WATCH)

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """The program's answer. Cancellation kills the program."""
        given = KnownSecrets(context().secret)
        try:
            requested = self._wanted(call, given)
            findings = await self._machine.findings(requested.place.level)

            is_unconfined = self._machine.is_unconfined(call.tool, requested.place.level)

            async def start(pool: Pool) -> _ProcessClient:
                recipe = None if is_unconfined else requested.recipe(findings)
                return await _ProcessClient.start(pool, requested, recipe, told)

            told = self._contacts.of(call)
            user = User(call.tool.name, call.request.agent)
            spec = requested.spec
            async with self._processes.use(
                requested.key,
                start,
                user=user,
                idle_s=spec.idle_s,
                between_calls=spec.between_calls,
                described=ProcessStatus(call.tool.name, self.isolation(call.tool), requested.place.words),
            ) as client:
                client.begin(call.tool, told)
                said = await _answer(call, client.process, self._request(call), given.given)
        except ProcessExited as over:
            raise _ended(call, over) from over
        except SandboxBroken as error:
            log.error("a program could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            reason = f"Tool '{call.tool.name}' was not run: the sandbox could not be set up"
            raise RunRefused(error.code, reason) from error
        except SecretUnavailable as error:
            raise RunRefused(error.code, f"Tool '{call.tool.name}' was not run: {error.message}") from error
        except ToolkeepError as error:
            reason = f"Tool '{call.tool.name}' was not run: {error.message}"
            raise RunRefused(error.code, reason, diagnosis=Diagnosis(remedy=error.hint)) from error
        except (NotThere, OSError) as error:
            log.warning("a program could not be given its granted paths", extra={"reason": str(error)})
            reason = (
                f"Tool '{call.tool.name}' was not run: what it would touch has changed since authorization"
            )
            raise RunRefused(Code.TOUCHED_CHANGED, reason) from error
        except ValueError as error:
            raise RunRefused(Code.NOT_RUNNABLE, f"Tool '{call.tool.name}' was not run: {error}") from error
        if said.failure is not None:
            raise ToolFailed(said.failure)
        return said.value

    def _wanted(self, call: RecordedCall, given: KnownSecrets) -> _ProcessRequest:
        tool = call.tool
        base = self._project if tool.provider == "project" and self._project else "/"
        spec = ProcessSpec.read(tool.runner.target)
        program = spec.program(base, given.secret)
        place = confinement_for_call(call.approved.permitted, program.path, spec, self._trusted, base)
        # The environment may hold secrets: the pool key gets their digest. A rotated secret starts a new
        # process.
        told = hashlib.sha256(json.dumps(program.environment).encode()).digest()
        # The agent is part of the key: what a program remembers of one agent must never reach another.
        who = (tool.definition_hash, call.request.agent)
        key = (*who, program.argv, told, spec.between_calls, *place.key)
        return _ProcessRequest(key, place, program, spec)

    def _request(self, call: RecordedCall) -> dict[str, Any]:
        # Random id: a program cannot answer a request before it has read it.
        return {"id": secrets.token_hex(8), "arguments": resolved_arguments(call)}


class _ProcessClient:
    """A program and its egress proxy."""

    def __init__(self, process: LineProcess, egress: "EgressPort") -> None:
        self.process = process
        self._egress = egress

    @classmethod
    async def start(
        cls, pool: Pool, requested: _ProcessRequest, recipe: Recipe | None, told: OnContact
    ) -> "_ProcessClient":
        egress = EgressPort(requested.place.hosts, told)
        process = await start_program(
            pool,
            recipe,
            requested.program,
            line_bytes=OUTPUT_CAP_BYTES + _ENVELOPE_BYTES,
            serve=None if requested.place.hosts.is_empty else egress.serve,
        )
        return cls(process, egress)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive

    def set_active(self, *, is_active: bool) -> None:
        self.process.set_active(is_active=is_active)

    async def suspend(self) -> None:
        await self.process.suspend()

    async def resume(self) -> None:
        await self.process.resume()

    async def close(self) -> None:
        await self.process.close()

    def discard(self) -> None:
        self.process.discard()

    def begin(self, tool: RegisteredTool, told: OnContact) -> None:
        """Start a call: budget and contacts are per call."""
        self._egress.begin(tool, told)


class _Reply(NamedTuple):
    """Answer of a program: value or failure. Either way it stays alive."""

    value: Any = None
    failure: str | None = None


async def _answer(
    call: RecordedCall, process: LineProcess, request: dict[str, Any], known: tuple[str, ...]
) -> _Reply:
    await process.send(json.dumps(request, ensure_ascii=False).encode() + b"\n")
    line = await process.line()
    return await in_thread_if_large(len(line), partial(_understood, call, line, request["id"], known))


def _understood(call: RecordedCall, line: bytes, requested: str, known: tuple[str, ...]) -> _Reply:
    try:
        # Duplicate keys are refused: the check and a later reader might see different ids.
        said = redacted(parse_unambiguous(line), known, line)
    except FrameRefused as refused:
        what = "an empty line" if not line.strip() else f"a line that is not a response: {refused}"
        raise _invalid(call, f"wrote {what}") from refused
    match said:
        # An answer to an earlier, cancelled request must not be taken for this one.
        case {"id": str(given)} if given != requested:
            raise _invalid(call, "answered another request")
        case {"id": str(), "result": value, **rest} if not rest:
            return _Reply(value)
        case {"id": str(), "error": str(text), **rest} if not rest:
            return _Reply(failure=text)
        case _:
            raise _invalid(call, 'wrote an object that is no answer: it has "id" and "result", or "error"')


def _invalid(call: RecordedCall, what: str) -> RunRefused:
    reason = f"Tool '{call.tool.name}' gave no answer: its program {what}; {_NEXT}"
    return RunRefused(Code.OUTPUT_INVALID, reason)


def _ended(call: RecordedCall, over: ProcessExited) -> RunRefused:
    name = call.tool.name
    if (limit := exceeded_limit(call, over)) is not None:
        return limit
    if over.why is ExitReason.UNSTARTED:
        reason = f"Tool '{name}' was not run: its program cannot be started"
        return RunRefused(Code.NOT_RUNNABLE, reason, diagnosis=unstarted(call.tool.runner.target, over))
    said = f"; {_LOGGED}" if over.last_words else ""
    how = "closed its standard output" if over.why is ExitReason.CLOSED else f"ended{_how(over.status)}"
    reason = f"Tool '{name}' gave no answer: its program {how}{said}; {_NEXT}"
    return RunRefused(Code.TOOL_FAILED, reason, diagnosis=denied_by_words(call, over.last_words))


def denied_by_words(call: RecordedCall, last_words: str) -> Diagnosis:
    """The diagnosis of a program by the end of its standard error."""
    limits = program_limits(_memory_bytes(call))
    found = program_diagnosis(call, last_words, limits, level_of(call.tool))
    return structs.replace(found or Diagnosis(), detail=last_words)


def _memory_bytes(call: RecordedCall) -> int:
    definition = call.tool.definition
    return definition.resource_bounds.memory_bytes(definition.constraints.isolation)


def exceeded_limit(call: RecordedCall, over: ProcessExited) -> RunRefused | None:
    """The failure of a program that ended because it exceeded a limit; None if it ended otherwise."""
    if over.why is ExitReason.TOO_LONG:
        limit = in_mebibytes(OUTPUT_CAP_BYTES)
        return exceeded(call, Denied.OUTPUT_SIZE, limit, code=Code.OUTPUT_TOO_BIG, detail=over.last_words)
    if over.why is ExitReason.OUT_OF_MEMORY:
        return exceeded(call, Denied.MEMORY, in_mebibytes(_memory_bytes(call)), detail=over.last_words)
    if over.status == -signal.SIGXCPU:
        return exceeded(call, Denied.PROCESSOR_TIME, f"{PROCESSOR_S} s", detail=over.last_words)
    return None


def unstarted(command: Any, over: ProcessExited) -> Diagnosis:
    """The diagnosis of a program that could not be started; `command` is what its configuration names."""
    argv = command.get("argv") if isinstance(command, dict) else command
    remedy = "see that it exists, can be executed, and that its interpreter and files are shown to it"
    return Diagnosis(
        denied=Denied.PROGRAM, subject=str(argv[0]) if argv else "", remedy=remedy, detail=over.text
    )


def _how(status: int | None) -> str:
    if status is None:
        return ""
    if status < 0:
        return f" by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
    return f" with exit status {status}"
