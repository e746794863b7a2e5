"""The execution stage: a `RecordedCall` becomes `RawOutput` or a refusal; nothing else makes one.

One deadline per call. At the deadline, or when the caller cancels, the tool is cancelled; what cannot be
stopped keeps its slot, and the answer says so (EXE-4).
"""

import asyncio
import logging
import time
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jiter
import msgspec
from msgspec import structs

from toolkeep.calls import (
    Denied,
    Diagnosis,
    PermittedCall,
    RanOn,
    RawOutput,
    RecordedCall,
    Refusal,
    RegisteredTool,
    refuse,
)
from toolkeep.definitions.tool_context import Cancelled, ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import FAILURES, Code
from toolkeep.execution.admission import Slot
from toolkeep.execution.circuit_breaker import CircuitBreaker
from toolkeep.execution.contact_events import ContactEvents
from toolkeep.execution.diagnosis import denied, exceeded, sanitized, unexpected
from toolkeep.execution.result_cache import ResultCache, is_cacheable
from toolkeep.execution.runner import Held, ProgramFailed, Runner, RunRefused
from toolkeep.host.log_lines import log_error_with_text
from toolkeep.limits import CANCEL_GRACE_SECONDS, MODEL_TEXT_CHARS, NAMED_CHARS
from toolkeep.sandbox.guest.exception_report import report
from toolkeep.sandbox.tool_exception import ToolException
from toolkeep.text.display import excerpt, truncated_lines

if TYPE_CHECKING:
    from toolkeep.network.egress_proxy import Contact

log = logging.getLogger("toolkeep.execution")

_GLANCE_SECONDS: Final = 0.05
"""Poll interval for whether a person still takes time, when a call has used up its own."""

_DIAGNOSES: Final = 200
"""Diagnoses that are remembered: at 9 KB each at most 2 MB."""


class _Failure(NamedTuple):
    """A run that counts for the circuit breaker; a tool that raises ToolFailed does not."""

    refusal: Refusal


class _Run(msgspec.Struct, eq=False):
    """One run of a call, as its context sees it."""

    call: RecordedCall
    secrets: Mapping[str, str]
    is_cancelled: bool = False

    def context(self) -> ToolContext:
        """The ToolContext for tools that want one."""
        request = self.call.request
        told = {"on_progress": partial(_tell, request.on_progress)} if request.on_progress else {}
        return ToolContext(
            agent=request.agent,
            correlation_id=request.correlation_id,
            conversation_id=request.conversation,
            session_id=request.session,
            data=request.data,
            secrets=self.secrets,
            is_cancelled=lambda: self.is_cancelled,
            **told,
        )


class Executor:
    """Runs recorded calls, each exactly once."""

    def __init__(
        self,
        runners: Sequence[Runner],
        breaker: CircuitBreaker,
        cache: ResultCache,
        contacts: ContactEvents | None = None,
    ) -> None:
        """`contacts` knows the hosts that calls were refused."""
        self._runners = tuple(runners)
        self._breaker = breaker
        self.cache = cache
        self._contacts = contacts or ContactEvents()
        self.diagnoses: dict[str, Diagnosis] = {}
        """Of the last failed calls of this keep, by call id."""

    def objection(self, call: PermittedCall | RecordedCall) -> Refusal | None:
        """Why a call cannot run here at all; checked before anything is claimed or recorded."""
        request, tool = call.request, call.tool
        if self._runner(tool) is None:
            code, why = unrunnable_reason(tool)
            message = f"Tool '{tool.name}' {why}"
            return refuse(request, code, message, "Do without it, or ask the operator.")
        return self._breaker.check(request, tool.run_key)

    def _runner(self, tool: RegisteredTool) -> Runner | None:
        for runner in self._runners:
            if runner.runs(tool):
                return runner
        return None

    async def execute(
        self, call: RecordedCall, slot: Slot, secrets: Mapping[str, str]
    ) -> RawOutput | Refusal:
        """Run one call within its deadline, or answer it from the cache."""
        cacheable = is_cacheable(call.tool) and not call.request.data_hash and not call.request.options.fresh
        if cacheable and (body := self.cache.get(call)) is not None:
            value = body if call.tool.definition.gives_bytes else jiter.from_json(body)
            return RawOutput(call=call, value=value, isolation="", execute_ms=0.0, is_cached=True)
        runner = self._runner(call.tool)
        if runner is None:
            return self.objection(call) or refuse(
                call.request, Code.NOT_RUNNABLE, "The tool cannot be run", "Tell the operator."
            )
        # Again, although `objection` checked: the circuit may have opened while the call waited for approval.
        if (refusal := self._breaker.begin(call.request, call.tool.run_key)) is not None:
            return refusal
        began = time.perf_counter_ns()
        outcome = await self._run(runner, call, slot, secrets)
        execute_ms = (time.perf_counter_ns() - began) // 1000 / 1000
        slot.wall_ms = execute_ms
        if type(outcome) is Refusal:
            return outcome
        if isinstance(outcome, _Failure):
            self._breaker.note(call.tool.run_key, is_failure=True)
            return outcome.refusal
        self._breaker.note(call.tool.run_key, is_failure=False)
        isolation, enforced = self.confinement(call, slot)
        return RawOutput(
            call=call,
            value=outcome[0],
            isolation=isolation,
            execute_ms=execute_ms,
            enforced=enforced,
            resource_use=slot.resource_use,
        )

    def late_outcome(
        self, call: RecordedCall, value: Callable[[], Any], ran_on: RanOn, secrets: Mapping[str, str]
    ) -> RawOutput | Refusal:
        """The outcome of a run whose answer came after its call had ended; `value` returns or raises it."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            answered.set_result(value())
        except Exception as error:  # noqa: BLE001 -- what the worker says became of it
            answered.set_exception(error)
        outcome = self._outcome(_Run(call, secrets), answered)
        if isinstance(outcome, _Failure):
            return outcome.refusal
        if type(outcome) is Refusal:
            return outcome
        return RawOutput(
            call=call,
            value=outcome[0],
            isolation=ran_on.isolation,
            execute_ms=0.0,
            enforced=ran_on.enforced,
        )

    def confinement(self, call: RecordedCall, slot: Slot | None) -> tuple[str, tuple[str, ...]]:
        """Isolation level and mechanisms of a run of the call."""
        if slot is not None and slot.ran_on is not None:
            return slot.ran_on.isolation, slot.ran_on.enforced
        runner = self._runner(call.tool)
        return ("", ()) if runner is None else (runner.isolation(call.tool), runner.enforced(call.tool))

    async def _run(
        self, runner: Runner, call: RecordedCall, slot: Slot, secrets: Mapping[str, str]
    ) -> "tuple[Any] | Refusal | _Failure":
        run = _Run(call, secrets)
        task = asyncio.get_running_loop().create_task(_contained(runner, run, slot))
        try:
            await _turn()  # Many finish in their first step, and need no timer.
            if not task.done():
                await _wait_until_deadline(task, call.deadline_s, slot)
        except asyncio.CancelledError:
            # Set before the cancellation: a tool in a thread polls it.
            run.is_cancelled = True
            await stop(task, slot)
            raise
        if not task.done():
            run.is_cancelled = True
            await stop(task, slot)
            # The answer must not claim that nothing happened: a thread cannot be killed.
            return _Failure(self._diagnosed(run, _timed_out(call, still_runs=slot.is_shared)))
        return self._outcome(run, task)

    def _outcome(self, run: _Run, task: "asyncio.Future[Any]") -> "tuple[Any] | Refusal | _Failure":
        call = run.call
        if task.cancelled() or isinstance(task.exception(), Cancelled):
            return refuse(
                call.request, Code.CANCELLED, "The tool was cancelled", "Call it again if it is needed."
            )
        error = task.exception()
        if error is None:
            return (task.result(),)
        if isinstance(error, ToolFailed):
            words = said(error) or f"Tool '{call.tool.name}' failed and did not say why"
            suggestion = "Try another way, or tell the user."
            diagnosis = error.diagnosis if isinstance(error, ProgramFailed) else None
            return self._diagnosed(run, RunRefused(Code.TOOL_FAILED, words, suggestion, diagnosis))
        if not isinstance(error, RunRefused):
            error = unexpected(call, ToolException.read(report(error)))
        refusal = self._diagnosed(run, error)
        return _Failure(refusal) if error.code in FAILURES else refusal

    def _diagnosed(self, run: _Run, failed: RunRefused) -> Refusal:
        """The refusal for the model; the diagnosis goes to the log, and to who operates this keep."""
        call = run.call
        if (contact := self._contacts.take_denied(call)) is not None:
            failed = _with_host(call, failed, contact)
        refusal = refuse(call.request, failed.code, failed.reason, failed.suggestion, path=failed.path)
        if failed.diagnosis is None:
            return refusal
        diagnosis = sanitized(call, failed.diagnosis, run.secrets.values())
        fields = {"tool_name": call.tool.name, "correlation_id": call.request.correlation_id}
        ids = f"call {call.request.id}, correlation id {excerpt(call.request.correlation_id, NAMED_CHARS)}"
        text = f"Tool '{call.tool.name}', {ids}\n{diagnosis}"
        log_error_with_text(log, "a tool failed", text, {**fields, **structs.asdict(diagnosis)})
        if len(self.diagnoses) >= _DIAGNOSES:
            self.diagnoses.pop(next(iter(self.diagnoses)), None)
        self.diagnoses[call.request.id] = diagnosis
        return structs.replace(refusal, diagnosis=diagnosis)


def _with_host(call: RecordedCall, failed: RunRefused, contact: "Contact") -> RunRefused:
    """A failure, told as that of a denied host unless it has another reason."""
    diagnosis = failed.diagnosis or Diagnosis()
    if diagnosis.denied not in (None, Denied.HOST):
        return failed
    subject = f"{contact.host}:{contact.port}" if contact.host and contact.port else contact.host
    detail = "\n".join(filter(None, (contact.problem, diagnosis.detail)))
    named = denied(call, Denied.HOST, subject, detail=detail, remedy=contact.remedy)
    if failed.is_unexplained or diagnosis.denied is Denied.HOST:
        return named
    # The words of the tool, or how its program ended, say more to a model.
    return RunRefused(failed.code, failed.reason, failed.suggestion, named.diagnosis)


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Yield to the event loop once: what `asyncio.sleep(0)` awaits, without the layer around it."""
    yield


async def _wait_until_deadline(task: "asyncio.Future[Any]", deadline_s: float, slot: Slot) -> None:
    """Wait for the task until its deadline, extended by the time that people took."""
    granted_s = deadline_s
    await _wait_for(task, deadline_s)
    while not task.done() and (more_s := deadline_s + slot.paused_s - granted_s) > 0:
        granted_s += more_s
        await _wait_for(task, max(more_s, _GLANCE_SECONDS))


async def _wait_for(task: "asyncio.Future[Any]", timeout_s: float) -> None:
    """Wait for a task or a timeout; like `asyncio.wait`, for one task and in half the time."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(timeout_s, wake)
    task.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        task.remove_done_callback(wake)


async def _contained(runner: Runner, run: _Run, slot: Slot) -> Any:
    """Run the tool; SystemExit and KeyboardInterrupt become failures instead of ending the host."""
    try:
        return await runner.run(run.call, run.context, slot)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"the tool raised {type(error).__name__}") from error


def _tell(listener: Callable[..., None], done: float, total: float | None, message: str) -> None:
    """Forward progress; a failing listener must not fail the tool."""
    try:
        listener(done, total, message)
    except Exception as error:  # noqa: BLE001 -- the tool has nothing to do with it
        log.warning("a progress listener failed", extra={"error_type": type(error).__name__})


async def stop(task: "asyncio.Future[Any]", slot: Held) -> None:
    """Cancel a tool or hook and wait a grace period; if it does not end, it keeps its slot."""
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS)
    finally:  # Also if the caller is cancelled again.
        if not task.done():
            slot.hold()
            task.add_done_callback(lambda _: slot.release())
        elif not task.cancelled():
            task.exception()  # Retrieved, so that asyncio does not log it.


def said(error: ToolFailed) -> str:
    """Text of a ToolFailed; empty if its __str__ raises."""
    try:
        words = str(error).strip()
    except Exception:
        log.exception("a tool failed and could not say why")
        return ""
    return truncated_lines(words, MODEL_TEXT_CHARS // 2).removesuffix(".")


def _timed_out(call: RecordedCall, *, still_runs: bool) -> RunRefused:
    failed = exceeded(call, Denied.TIME, f"{call.deadline_s:g} s", code=Code.TIMED_OUT)
    reason = f"{failed.reason} and cannot be stopped: it still runs" if still_runs else failed.reason
    return RunRefused(failed.code, reason, "Ask for less, or tell the user.", failed.diagnosis)


def unrunnable_reason(tool: RegisteredTool) -> tuple[Code, str]:
    """Error code, and the rest of a sentence that starts with the tool's name."""
    if tool.runner is None:
        return Code.NOT_RUNNABLE, "has no runner"
    kind = getattr(tool.runner, "kind", "")
    wanted = tool.definition.constraints.isolation
    if kind == "http":
        why = f"requires isolation {wanted}, but runs on a server whose isolation is unknown"
        return Code.ISOLATION_UNAVAILABLE, why
    if kind in ("command", "process") and wanted is Isolation.RESTRICTED:
        return Code.ISOLATION_UNAVAILABLE, "requires isolation restricted, which starts no programs"
    if kind in ("python", "command", "process") and wanted is Isolation.NONE:
        why = "requires isolation none, but configured tools never run in the keep's own process"
        return Code.ISOLATION_UNAVAILABLE, why
    return Code.NOT_RUNNABLE, f"is run by a {type(tool.runner).__name__}, which is not supported here"
