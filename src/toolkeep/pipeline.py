"""THE ORDER: takes a call through the stages, one after the other (EXE-1). `Pipeline._stages` lists them.

A stage takes what the stage before it made, and refuses by returning a `Refusal`, which goes straight to
normalise and record. Nothing here raises for what a call, a tool or a full disk did wrong.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from toolkeep.approval.approve import Approver, Asked, Asker
from toolkeep.audit.record import Recorder
from toolkeep.calls import (
    CallOptions,
    CheckedCall,
    CheckedOutput,
    Output,
    PermittedCall,
    Progress,
    RawOutput,
    RecordedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    ToolResult,
)
from toolkeep.config.settings import Run
from toolkeep.errors import Code, ToolkeepError
from toolkeep.events import Bus, CallEnded, ValidationPassed
from toolkeep.execution.admission import Admission, Slot
from toolkeep.execution.breaker import Breaker
from toolkeep.execution.cache import ResultCache, is_cacheable
from toolkeep.execution.contacts import Contacts
from toolkeep.execution.execute import Executor
from toolkeep.execution.http import HttpRunner
from toolkeep.execution.in_process import InProcessRunner
from toolkeep.execution.ledger import NO_CLAIM, claim
from toolkeep.execution.machine import Machine
from toolkeep.execution.pending import PendingCalls
from toolkeep.execution.process import ProcessRunner
from toolkeep.execution.residents import Residents
from toolkeep.execution.runner import Runner
from toolkeep.execution.sandboxed import SandboxRunner
from toolkeep.execution.threads import Threads
from toolkeep.execution.wasm import WasmRunner
from toolkeep.journey import Journey
from toolkeep.limits import LARGE_ANSWER_BYTES, NAMED_CHARS, CallLimits
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.settings import PolicySettings
from toolkeep.random_ids import random_digits
from toolkeep.records import KeepRecord, MemoryRecord
from toolkeep.refusals import ran_unrecorded, refuse
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.unanswered import answering_tool
from toolkeep.results.normalize import normalize, pending, refused
from toolkeep.results.output import Normalizers, check_output, is_large
from toolkeep.sandbox.trusted import TrustedPaths
from toolkeep.sign_ins import KeptTokens
from toolkeep.sources.mcp.runner import McpRunner
from toolkeep.validation.memory import RefusalMemory
from toolkeep.validation.validate import Arguments, validate
from toolkeep.wasm.cache import CompiledModules, cache_folder
from toolkeep.wording import echo_name

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Answerer

log = logging.getLogger("toolkeep.execution")

T = TypeVar("T")


class Spans(Protocol):
    """Who traces calls."""

    def around(self, call: ToolCall, tool_name: str) -> AbstractContextManager[Callable[[ToolResult], None]]:
        """A span around one call, which is told the result."""


class Pipeline:
    """The stages of one keep, assembled."""

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        refusals: RefusalMemory,
        bus: Bus,
        record: KeepRecord,
        limits: CallLimits,
        authorizer: Authorizer,
        policy: PolicySettings,
        trusted: TrustedPaths,
        approver: Approver | None,
        answerer: "Answerer | None",
        normalizers: Normalizers,
        tool_secrets: Mapping[str, Mapping[str, str]],
        sign_ins: KeptTokens | None,
        is_ending: Callable[[], bool],
    ) -> None:
        """`is_ending` says whether the process is about to end: a call cut short may have had an effect."""
        self.record = record
        self.authorizer = authorizer
        self.asker = Asker(
            record.approvals,
            approver=approver,
            is_paranoid=policy.is_paranoid,
            wait_s=policy.wait_s,
            tell=bus.tell,
        )
        self.admission = Admission(limits)
        project = policy.project
        self.recorder = Recorder(
            record.log, record.bodies, record.secret_key, is_alone=self.admission.has_one
        )
        machine, contacts = Machine(), Contacts(bus)
        self.sandbox = SandboxRunner(project, trusted, machine, contacts)
        self.residents = Residents(bus)
        self._threads = Threads()
        runners: list[Runner] = [
            InProcessRunner(self._threads),
            self.sandbox,
            WasmRunner(project, trusted, _compiled_modules(record), self._threads),
            HttpRunner(),
            ProcessRunner(self.residents, machine, contacts, project, trusted),
            McpRunner(
                self.residents,
                machine,
                contacts,
                bus.tell,
                self.recorder.asked,
                trusted,
                sign_ins,
                answerer,
            ),
        ]
        self.executor = Executor(runners, Breaker(limits), ResultCache())
        self._registry = registry
        self._refusals = refusals
        self._bus = bus
        self._pending = PendingCalls()
        self._normalizers = normalizers
        self._secrets = tool_secrets
        self.spans: Spans | None = None
        self._is_ending = is_ending
        self._is_closed = False

    async def end_processes(self) -> None:
        """End every confined process of this event loop."""
        await self.residents.close()
        await self.sandbox.close()

    def close(self) -> None:
        """Let go of the record; calls after this are refused."""
        self._is_closed = True
        self.residents.close_soon()
        self.sandbox.close_soon()
        self._threads.close()
        self.record.close()

    def call(
        self,
        name: object,
        arguments: Arguments,
        *,
        agent: object,
        conversation: object = "",
        session: object = "",
        correlation_id: object = "",
        options: CallOptions,
        on_progress: Progress | None = None,
        on_output: Output | None = None,
        is_direct: bool = False,
    ) -> Awaitable[ToolResult]:
        """One call, from what was asked to what became of it."""
        _check_loop()
        drawn = random_digits()
        request = ToolCall(
            id=drawn[:32],
            tool=named(name),
            arguments=arguments,
            agent=named(agent),
            conversation=named(conversation),
            session=named(session),
            correlation_id=named(correlation_id) or drawn[32:],
            options=options,
            on_progress=on_progress,
            on_output=on_output,
            began_ns=time.monotonic_ns(),
            is_direct=is_direct,
        )
        journey = Journey(request, self._visible(request))
        return self._made(journey) if self.spans is None else self._traced(journey, self.spans)

    async def _traced(self, journey: Journey, spans: Spans) -> ToolResult:
        with spans.around(journey.request, journey.shown_name) as tell:
            result = await self._made(journey)
            tell(result)
        return result

    async def _made(self, journey: Journey) -> ToolResult:
        request = journey.request
        if self._is_closed:
            message = "The keep is closed; nothing was run"
            return journey.refused(refuse(request, Code.NOT_RECORDED, message, "Tell the operator."))
        try:
            slot = await self.admission.admit(request, journey.shown_name)
        except asyncio.CancelledError:
            await self._end(journey, journey.refused(_cancelled(request)))
            raise
        if type(slot) is Refusal:
            return await self._end(journey, journey.refused(slot))
        try:
            return await self._end(journey, await self._through(journey, self._stages(journey, slot)))
        finally:
            journey.let_go()
            slot.release()

    async def _through(self, journey: Journey, stages: Awaitable[ToolResult]) -> ToolResult:
        """What came of the stages, as far as the call came."""
        request = journey.request
        try:
            return await stages
        except _Ended as ended:
            return journey.refused(ended.refusal)
        except asyncio.CancelledError:
            may_have_acted = journey.recorded is not None and journey.recorded.tool.may_write
            is_cut = self._is_ending() and may_have_acted
            refusal = _cut_short(request) if is_cut else _given_up(journey, may_have_acted=may_have_acted)
            await self._end(journey, journey.refused(refusal))
            raise
        except (OSError, ToolkeepError) as error:
            log.error("the state of a call cannot be kept", exc_info=error)  # noqa: TRY400 -- with its cause
            if journey.has_run:
                return journey.refused(ran_unrecorded(request, type(error).__name__))
            message = "What the call needs to remember cannot be read or written; nothing was run"
            return journey.refused(refuse(request, Code.NOT_RECORDED, message, "Tell the operator."))
        except Exception:
            fields = {"tool_name": journey.shown_name, "correlation_id": request.correlation_id}
            log.exception("a call broke in the keep itself", extra=fields)
            return journey.refused(_broken(request))

    async def _stages(self, journey: Journey, slot: Slot) -> ToolResult:
        request = journey.request
        tool = journey.tool = _passed(self._answering(request))
        checked = journey.checked = _passed(self._validate(request, tool))
        permitted = journey.permitted = _passed(self.authorizer.authorize(request, checked))
        deadline_s, output_bytes = _passed(_within(request, tool))
        hashed = self.recorder.hashed(checked)
        journey.argument_hash = hashed.hash
        claimed = claim(self.record.ledger, permitted, hashed.hash)
        if type(claimed) is ToolResult:
            return claimed
        journey.claim = _passed(claimed)
        _passed(self._runnable(permitted))
        asked = _passed(await self.asker.ask(permitted, hashed.body, slot.aside))
        permitted = journey.permitted = _passed(self._still_permitted(permitted, asked))
        approved = _passed(self.asker.approve(permitted, asked))
        is_first = permitted.is_recorded_first
        journey.is_begun = is_first  # also when it is cancelled while its intent is written
        intent = await self.recorder.intent(
            approved,
            arguments=hashed,
            deadline_s=deadline_s,
            output_bytes=output_bytes,
        )
        journey.is_begun = is_first and type(intent) is not Refusal
        recorded = journey.recorded = _passed(intent)
        _passed(self.authorizer.unchanged(permitted))
        _passed(_changed_code(permitted))
        if tool.definition.client_executed:
            return await self._hand_out(journey, recorded, slot)
        journey.executor = self.executor
        raw = _passed(await self.executor.execute(recorded, slot, self._secrets_of(tool)))
        return await self._finished(raw)

    def _secrets_of(self, tool: RegisteredTool) -> Mapping[str, str]:
        """What the host gave to a tool by its name, then what its upstream was given."""
        given = self._secrets.get(tool.name, {})
        of_upstream = getattr(tool.runner, "secrets", None)
        if of_upstream is None or not isinstance(of_upstream, Mapping):
            return given
        return {**of_upstream, **given} if given else of_upstream

    def _visible(self, request: ToolCall) -> RegisteredTool | None:
        """The tool that a call names, unless its agent may not know of it."""
        found = self._registry.snapshot.find(request.tool)
        return found if found is not None and self.authorizer.sees(request.agent, found) else None

    def _answering(self, request: ToolCall) -> RegisteredTool | Refusal:
        sees = partial(self.authorizer.sees, request.agent) if self.authorizer.hides_tools else None
        return answering_tool(request, self._registry.snapshot, self._bus, sees)

    def _still_permitted(self, permitted: PermittedCall, asked: Asked) -> PermittedCall | Refusal:
        """A call that waited for a person is looked at once more: as if it came now (POL-4)."""
        if asked.question is None:
            return permitted
        answering = _passed(self._answering(permitted.request))
        if answering.definition_hash != permitted.tool.definition_hash:
            message = f"Tool '{permitted.tool.name}' is another one than the one that was approved"
            return refuse(
                permitted.request, Code.TOUCHED_CHANGED, message, "Look at the tool, then call again."
            )
        return self.authorizer.authorize_again(permitted)

    def _validate(self, request: ToolCall, tool: RegisteredTool) -> CheckedCall | Refusal:
        began = time.perf_counter() if self._bus.timed else 0.0
        checked = validate(
            tool,
            request.arguments,
            self._refusals,
            request.agent,
            request.conversation,
            request.correlation_id,
        )
        if began and checked.success:
            took_ms = (time.perf_counter() - began) * 1000
            passed = ValidationPassed(tool_name=tool.name, agent=request.agent, validation_ms=took_ms)
            self._bus.tell_passed(passed)
        return checked

    def _runnable(self, permitted: PermittedCall) -> Refusal | None:
        if permitted.tool.definition.client_executed and permitted.tool.runner is None:
            return None
        return _changed_code(permitted) or self.executor.objection(permitted)

    async def _finished(self, raw: RawOutput) -> ToolResult:
        """Output checked, normalised and hashed."""
        output = _passed(await _checked(raw, self._normalizers))
        if not raw.is_cached and is_cacheable(raw.call.tool):
            self.executor.cache.put(raw.call, output.body)
        self.recorder.keep_result(output)
        if len(output.body) > LARGE_ANSWER_BYTES:  # what is cut is kept whole, which takes a while
            return _passed(await asyncio.to_thread(normalize, output, self.record.bodies))
        return _passed(normalize(output, self.record.bodies))

    async def _hand_out(self, journey: Journey, recorded: RecordedCall, slot: Slot) -> ToolResult:
        """A call that the client executes: its server half runs here, the rest is pending (EXE-6)."""
        value = None
        if recorded.tool.runner is not None:
            given = self._secrets_of(recorded.tool)
            journey.executor = self.executor
            raw = _passed(await self.executor.execute(recorded, slot, given))
            value = _passed(await _checked(raw, {}, is_final=False)).value
        return pending(journey.request, recorded.approved.permitted, value, journey.argument_hash)

    async def submit(self, call_id: str, value: Any, *, agent: str) -> ToolResult:
        """The client's result of a pending call, from output check to record."""
        waiting = self._pending.take(call_id, agent)
        if waiting is None:
            request = ToolCall(
                id=named(call_id), tool="", arguments=None, agent=named(agent), began_ns=time.monotonic_ns()
            )
            message = "No call of this id waits for a result of this agent"
            return refused(
                request, refuse(request, Code.NOT_PENDING, message, "Submit each pending call once.")
            )
        journey = Journey.going_on(*waiting)
        raw = RawOutput(call=waiting[0], value=value, isolation="client", execute_ms=0.0)
        return await self._end(journey, await self._through(journey, self._finished(raw)))

    async def _end(self, journey: Journey, result: ToolResult) -> ToolResult:
        """Record what became of the call and settle its claim, also when the caller gives up meanwhile."""
        try:
            result = await self.recorder.outcome(result, journey)
        except asyncio.CancelledError:
            if result.status == "pending":  # nobody was told its id, so that nobody will submit anything
                result = journey.refused(_cancelled(journey.request))
            raise
        finally:
            journey.settle(result)
        if result.status == "pending" and journey.recorded is not None:
            for gave_way in self._pending.put(journey.recorded, journey.claim):
                left = Journey.going_on(*gave_way)
                left.settle(left.refused(_left_waiting(left.request)))
        self._tell(journey, result)
        return result

    def _tell(self, journey: Journey, result: ToolResult) -> None:
        if self._bus.listeners:
            ended = CallEnded(
                tool_name=journey.shown_name,
                agent=journey.request.agent,
                status=result.status,
                error_code=result.error.code.value if result.error else "",
                total_ms=result.total_ms,
                correlation_id=result.correlation_id,
            )
            self._bus.tell(ended)

    def may_write(self, name: object) -> bool:
        """Whether a call of that name may change the world."""
        tool = self._registry.find(named(name))
        return tool is not None and tool.may_write


async def _checked(
    raw: RawOutput, normalizers: Normalizers, *, is_final: bool = True
) -> CheckedOutput | Refusal:
    """The output as data, made by a thread where that takes long: an answer must not hold up other calls."""
    if is_large(raw.value):
        return await asyncio.to_thread(check_output, raw, normalizers, is_final=is_final)
    return check_output(raw, normalizers, is_final=is_final)


def _compiled_modules(record: KeepRecord) -> CompiledModules | None:
    """Where compiled modules outlive the process: only where the key to tell them from others' does."""
    folder = cache_folder(os.environ)
    if folder is None or isinstance(record, MemoryRecord):
        return None
    return CompiledModules(folder, record.secret_key)


class _Ended(Exception):
    """A stage refused the call; the stages after it are not reached."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def _passed(outcome: T | Refusal) -> T:
    """What a stage made of the call; ends the journey where it refused."""
    if type(outcome) is Refusal:
        raise _Ended(outcome)
    return outcome


def _check_loop() -> None:
    """Raise under trio and the like, before anything is begun that could not be recorded there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(
            "keep.call needs a running asyncio loop; elsewhere use keep.call_sync, in a thread of its own"
        ) from error


def named(given: object) -> str:
    """A name or id as the log can hold it, whatever a model or client sent."""
    if given == "":
        return ""
    text = given if type(given) is str else str(given)
    if text.isascii() and len(text) <= NAMED_CHARS:
        return text
    return text[:NAMED_CHARS].encode("utf-8", "replace").decode()


def _within(request: ToolCall, tool: RegisteredTool) -> tuple[float, int] | Refusal:
    """Deadline and output limit in force: the definition's, or the caller's if they are tighter (EXE-9)."""
    constraints = tool.definition.constraints
    deadline_s, output_bytes = constraints.execution_seconds, constraints.output_bytes
    seconds, size = request.options.timeout_s, request.options.max_output_bytes
    if seconds is not None:
        if not _is_tighter(seconds, deadline_s, (int, float)):
            message = f"timeout_s must be a number above 0 and at most {deadline_s:g}"
            return refuse(request, Code.OPTION_REFUSED, message, "Ask for less time.")
        deadline_s = seconds
    if size is not None:
        if not _is_tighter(size, output_bytes, (int,)):
            message = f"max_output_bytes must be an integer above 0 and at most {output_bytes}"
            return refuse(request, Code.OPTION_REFUSED, message, "Ask for less output.")
        output_bytes = size
    return deadline_s, output_bytes


def _is_tighter(asked: object, most: float, kinds: tuple[type[int | float], ...]) -> bool:
    return isinstance(asked, kinds) and 0 < asked <= most


def _cancelled(request: ToolCall) -> Refusal:
    return refuse(request, Code.CANCELLED, "The caller gave up", "Call it again if it is needed.")


def _changed_code(permitted: PermittedCall) -> Refusal | None:
    """Why a project's tool may not run, where its code is not what a person accepted (REG-5)."""
    runner = permitted.tool.runner
    changed = runner.code.changed() if isinstance(runner, Run) and runner.code is not None else ""
    if not changed:
        return None
    message = f"The code of tool '{permitted.tool.name}' changed since it was accepted: {echo_name(changed)}"
    hint = "Do without it; the operator sees and accepts it with `toolkeep accept`."
    return refuse(permitted.request, Code.TOOL_QUARANTINED, message, hint)


def _given_up(journey: Journey, *, may_have_acted: bool) -> Refusal:
    """The caller gave up; what its key answers from now on must not invite to run the call twice."""
    request = journey.request
    if may_have_acted:
        message = "The caller gave up while the call was under way: whether it had an effect is unknown"
        return refuse(request, Code.CANCELLED, message, "Find out before you call again, with a new key.")
    if journey.claim is not NO_CLAIM and journey.recorded is not None:
        return refuse(
            request, Code.CANCELLED, "The caller gave up", "Call it again, with a new key, if it is needed."
        )
    return _cancelled(request)


def _cut_short(request: ToolCall) -> Refusal:
    message = "The keep ended while the call was under way: whether it had an effect is unknown"
    return refuse(request, Code.OUTCOME_UNKNOWN, message, "Find out before you call again.")


def _left_waiting(request: ToolCall) -> Refusal:
    message = "Too many calls wait for their client's result, and this one gave way: its outcome is unknown"
    return refuse(request, Code.OUTCOME_UNKNOWN, message, "Find out before you call again, with a new key.")


def _broken(request: ToolCall) -> Refusal:
    message = "The call could not be made: something is wrong in the keep itself"
    return refuse(request, Code.CHECK_FAILED, message, "Tell the operator.")
