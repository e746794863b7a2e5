"""Runs tools whose program stays between calls (`run.process`): one line of JSON in, one line out.

In goes `{"id": …, "arguments": …}`, out comes `{"id": …, "result": …}` or `{"id": …, "error": text}`, with
the same id. Calls of one agent take turns. A program that says anything else, says too much, says nothing in
time or ends is ended whole, and the next call starts another. Its standard error goes to the log.
"""

import hashlib
import json
import logging
import secrets
import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext, ToolFailed
from toolkeep.errors import Code, SecretUnavailable, ToolkeepError
from toolkeep.execution.contacts import Contacts, Told
from toolkeep.execution.hiding import Given, hidden
from toolkeep.execution.machine import Machine
from toolkeep.execution.reach import resolved_arguments
from toolkeep.execution.residence import Residence, level_of, recipe, residence
from toolkeep.execution.residents import Described, Residents, User
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.execution.staying import Staying
from toolkeep.execution.way_out import WayOut
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.frames import FrameRefused, aside, parse_unambiguous
from toolkeep.sandbox.levels import Isolation, Mechanism, in_use
from toolkeep.sandbox.plan import NotThere
from toolkeep.sandbox.pool import Pool
from toolkeep.sandbox.probe import Findings
from toolkeep.sandbox.resident import Over, Program, Resident, ResidentOver
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths
from toolkeep.wording import excerpt_lines

log = logging.getLogger("toolkeep.execution")

PROCESS: Final = "process"
_ENVELOPE_BYTES: Final = 1024
_NEXT: Final = "the next call starts it again"
_LOGGED: Final = "what it wrote to its standard error is in the log"


class _Wanted(NamedTuple):
    """What one call wants to talk to."""

    key: tuple[Any, ...]
    place: Residence
    program: Program
    staying: Staying


class ProcessRunner:
    """Runs what a configuration, or a `ProcessSource`, says that a program answers."""

    def __init__(
        self,
        residents: Residents,
        machine: Machine,
        contacts: Contacts,
        project: str = "",
        trusted: TrustedPaths = THIS_PROCESS,
    ) -> None:
        """`project` is where the paths of its own tools begin; no program writes what is `trusted`."""
        self._residents = residents
        self._machine = machine
        self._contacts = contacts
        self._project = project
        self._trusted = trusted

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is a program that stays, at a level at which one can be started."""
        is_ours = getattr(tool.runner, "kind", "") == PROCESS
        return is_ours and level_of(tool) in (Isolation.STANDARD, Isolation.STRICT)

    def isolation(self, tool: RegisteredTool) -> str:
        """The level that a call of the tool has."""
        return level_of(tool).value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """The mechanisms that confine a call of the tool."""
        return in_use(level_of(tool), self._machine.tree_bound or Mechanism.MEMORY_WATCH)

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """What the program answers. It is ended when this is cancelled."""
        given = Given(context().secret)
        try:
            wanted = self._wanted(call, given)
            findings = await self._machine.findings(wanted.place.level)

            async def start(pool: Pool) -> _Talker:
                return await _Talker.start(pool, wanted, findings)

            user = User(call.tool.name, call.request.agent)
            staying = wanted.staying
            async with self._residents.use(
                wanted.key,
                start,
                user=user,
                idle_s=staying.idle_s,
                between_calls=staying.between_calls,
                described=Described(call.tool.name, wanted.place.level.value, wanted.place.words),
            ) as talker:
                talker.begin(call.tool, self._contacts.of(call))
                said = await _answer(call, talker.resident, self._request(call), given.given)
        except ResidentOver as over:
            raise _ended(call, over, given) from over
        except SandboxBroken as error:
            log.error("a program could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            reason = f"Tool '{call.tool.name}' was not run: the sandbox could not be set up"
            raise RunRefused(error.code, reason) from error
        except SecretUnavailable as error:
            raise RunRefused(error.code, f"Tool '{call.tool.name}' was not run: {error.message}") from error
        except ToolkeepError as error:
            raise RunRefused(error.code, f"Tool '{call.tool.name}' was not run: {error.message}") from error
        except (NotThere, OSError) as error:
            log.warning("a program was not granted its places", extra={"reason": str(error)})
            reason = f"Tool '{call.tool.name}' was not run: what it would touch has changed meanwhile"
            raise RunRefused(Code.TOUCHED_CHANGED, reason) from error
        except ValueError as error:
            raise RunRefused(Code.NOT_RUNNABLE, f"Tool '{call.tool.name}' was not run: {error}") from error
        if said.failure is not None:
            raise ToolFailed(said.failure)
        return said.value

    def _wanted(self, call: RecordedCall, given: Given) -> _Wanted:
        tool = call.tool
        base = self._project if tool.provider == "project" and self._project else "/"
        staying = Staying.read(tool.runner.target)
        program = staying.program(base, given.secret)
        place = residence(call.approved.permitted, program.path, staying.shown(base), self._trusted, base)
        told = hashlib.sha256(json.dumps(program.environment).encode()).digest()
        who = (tool.definition_hash, call.request.agent)
        key = (*who, program.argv, told, staying.between_calls, *place.key)
        return _Wanted(key, place, program, staying)

    def _request(self, call: RecordedCall) -> dict[str, Any]:
        return {"id": secrets.token_hex(8), "arguments": resolved_arguments(call)}


class _Talker:
    """A program, and its way out where it has one."""

    def __init__(self, resident: Resident, way_out: "WayOut") -> None:
        self.resident = resident
        self._way_out = way_out

    @classmethod
    async def start(cls, pool: Pool, wanted: _Wanted, findings: Findings) -> "_Talker":
        way_out = WayOut(wanted.place.hosts)
        resident = await Resident.start(
            pool,
            recipe(wanted.place, findings, wanted.staying.between_calls),
            wanted.program,
            line_bytes=OUTPUT_CAP_BYTES + _ENVELOPE_BYTES,
            serve=None if wanted.place.hosts.is_empty else way_out.serve,
        )
        return cls(resident, way_out)

    @property
    def is_alive(self) -> bool:
        return self.resident.is_alive

    def attend(self, *, closely: bool) -> None:
        self.resident.attend(closely=closely)

    async def suspend(self) -> None:
        await self.resident.suspend()

    async def resume(self) -> None:
        await self.resident.resume()

    async def close(self) -> None:
        await self.resident.close()

    def abandon(self) -> None:
        self.resident.abandon()

    def begin(self, tool: RegisteredTool, told: Told) -> None:
        """Count requests and bytes anew, and tell of contacts: both are of one call."""
        self._way_out.begin(tool, told)


class _Said(NamedTuple):
    """What a program answered: both are well, and it stays."""

    value: Any = None
    failure: str | None = None


async def _answer(
    call: RecordedCall, resident: Resident, request: dict[str, Any], known: tuple[str, ...]
) -> _Said:
    await resident.send(json.dumps(request, ensure_ascii=False).encode() + b"\n")
    line = await resident.line()
    return await aside(len(line), partial(_understood, call, line, request["id"], known))


def _understood(call: RecordedCall, line: bytes, wanted: str, known: tuple[str, ...]) -> _Said:
    try:
        said = hidden(parse_unambiguous(line), known, line)
    except FrameRefused as refused:
        what = "an empty line" if not line.strip() else f"a line that is no answer: {refused}"
        raise _invalid(call, f"wrote {what}") from refused
    match said:
        case {"id": str(given)} if given != wanted:
            raise _invalid(call, "answered another request than the one it was asked")
        case {"id": str(), "result": value, **rest} if not rest:
            return _Said(value)
        case {"id": str(), "error": str(text), **rest} if not rest:
            return _Said(failure=text)
        case _:
            raise _invalid(call, 'wrote an object that is no answer: it has "id" and "result", or "error"')


def _invalid(call: RecordedCall, what: str) -> RunRefused:
    reason = f"Tool '{call.tool.name}' gave no answer: its program {what}; {_NEXT}"
    return RunRefused(Code.OUTPUT_INVALID, reason)


def _ended(call: RecordedCall, over: ResidentOver, given: Given) -> RunRefused:
    name = call.tool.name
    if over.last_words or over.text:
        words = hidden(over.last_words or over.text, given.given, shortest=1)
        fields = {"tool_name": name, "reason": excerpt_lines(words, 1000)}
        log.warning("a program that stays gave no answer", extra=fields)
    if over.why is Over.UNSTARTED:
        return RunRefused(Code.NOT_RUNNABLE, f"Tool '{name}' was not run: its program cannot be started")
    if over.why is Over.TOO_LONG:
        return RunRefused(Code.OUTPUT_TOO_BIG, f"Tool '{name}' gave more than {OUTPUT_CAP_BYTES} bytes")
    if over.why is Over.OUT_OF_MEMORY:
        return RunRefused(Code.TOOL_FAILED, f"Tool '{name}' took more memory than it is granted")
    said = f"; {_LOGGED}" if over.last_words else ""
    how = "closed its standard output" if over.why is Over.CLOSED else f"ended{_how(over.status)}"
    reason = f"Tool '{name}' gave no answer: its program {how}{said}; {_NEXT}"
    return RunRefused(Code.TOOL_FAILED, reason)


def _how(status: int | None) -> str:
    if status is None:
        return ""
    if status < 0:
        return f" by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
    return f" with exit status {status}"
