"""Runner of tools that workers on other machines run (SCL-3, SCL-4)."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, Protocol

import jiter
import msgspec

from toolkeep.calls import Denied, Diagnosis, RanOn, RecordedCall, RegisteredTool
from toolkeep.config.fleet_settings import FleetSettings
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.tool_context import Cancelled, ToolContext, ToolFailed
from toolkeep.errors import Code, ToolkeepError
from toolkeep.execution.code_identity import code_hash_of, isolation_of
from toolkeep.execution.runner import RunRefused, Timed
from toolkeep.execution.streamed_output import listener_of
from toolkeep.fleet.code_bundle import is_bundled, pack
from toolkeep.fleet.dispatcher import (
    Dispatcher,
    OutcomeUnknown,
    Placement,
    Ran,
    Refused,
    RefusedElsewhere,
    SignedAnswers,
)
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.messages import Failure, Job
from toolkeep.fleet.sealed_session import FrameInvalid
from toolkeep.fleet.worker_status import WorkerStatus, status_of
from toolkeep.limits import MODEL_TEXT_CHARS
from toolkeep.policy.policy_settings import Grant
from toolkeep.text.display import truncated_lines

log = logging.getLogger("toolkeep.fleet")

GrantOf = Callable[[str], Grant]
"""What an agent holds."""


class FleetReports(Protocol):
    """Hears what workers do beside answering in time."""

    def refused(self, refused: Refused) -> None:
        """A frame counted for nothing."""

    def refused_elsewhere(self, refused: RefusedElsewhere) -> int:
        """A worker says that it refused something; returns how many of a number are in the log."""

    def signed(self, signed: SignedAnswers) -> None:
        """A worker signed answers that it gave."""

    def late(self, call_id: str, ran: Ran) -> None:
        """A worker answered after it was given up."""


class Samples(Protocol):
    """Compares results of workers, and knows which are quarantined."""

    def consider(
        self, dispatcher: Dispatcher, call: RecordedCall, job: Job, place: Placement, ran: Ran
    ) -> None:
        """Perhaps have a second worker run a call that has ended; returns at once."""

    def is_quarantined(self, key: str) -> bool:
        """Whether the worker of this key takes no calls."""

    def shown(self, status: WorkerStatus) -> WorkerStatus:
        """What is known of a worker, with this."""


class FleetRunner:
    """Sends calls of tools that are set to run on workers."""

    def __init__(
        self, settings: FleetSettings, key: Callable[[], PrivateKey], project: str, grant_of: GrantOf
    ) -> None:
        self._settings = settings
        self._key = key
        self._project = project
        self._grant_of = grant_of
        self._reports: FleetReports | None = None
        self._samples: Samples | None = None
        self._dispatchers: dict[asyncio.AbstractEventLoop, asyncio.Task[Dispatcher]] = {}

    def report_to(self, reports: FleetReports, samples: Samples) -> None:
        """Tell what workers do; before the first call."""
        self._reports = reports
        self._samples = samples

    @property
    def sample(self) -> float:
        """Share of the deterministic calls that a second worker runs, too."""
        return self._settings.sample

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether the configuration, or else its definition, sends it to workers."""
        return self._label(tool) is not None

    def _label(self, tool: RegisteredTool) -> str | None:
        stated = tool.definition.constraints.runs_on
        return self._settings.runs_on.get(tool.name, stated)

    def isolation(self, tool: RegisteredTool) -> str:
        """The level that its worker must provide."""
        return isolation_of(tool)

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:  # noqa: ARG002 -- of the protocol
        """Known only from the answer of a worker."""
        return ()

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Timed) -> Any:
        """The tool's value. Cancellation ends it on its worker."""
        dispatcher = await self.dispatcher()
        known, tool = context(), call.tool
        code = code_hash_of(tool, self._project)
        if code is None:
            reason = (
                f"Tool '{tool.name}' cannot be run by a worker elsewhere: its code has no place of its own"
            )
            raise RunRefused(Code.NOT_RUNNABLE, reason)
        job = self._job(call, known, code)
        place = Placement(
            (tool.name, tool.definition_hash, code), self._label(tool) or "", job.level, job.agent
        )
        on_output = listener_of(call)
        try:
            ran = await dispatcher.run(
                job,
                place,
                may_repeat=not tool.may_write or tool.definition.idempotent,
                bundled=partial(self._bundled, tool, code) if is_bundled(tool) else None,
                on_progress=known.on_progress if job.wants_progress else None,
                on_output=None if on_output is None else lambda body: on_output(_output_chunk(body)),
            )
        except OutcomeUnknown as lost:
            log.warning("a worker is gone", extra={"worker": lost.worker, "call": call.request.id})
            reason = f"Tool '{tool.name}' may have run: its worker is gone, and what it did is not known"
            raise RunRefused(
                Code.OUTCOME_UNKNOWN, reason, "Find out what it did before you call again."
            ) from lost
        _note(slot, ran)
        if self._samples is not None:
            self._samples.consider(dispatcher, call, job, place, ran)
        return value_of(call, ran)

    def _bundled(self, tool: RegisteredTool, code: str) -> tuple[bytes, bytes]:
        return msgspec.json.encode(tool.definition.to_dict()), pack(tool, self._project, code)

    def _job(self, call: RecordedCall, known: ToolContext, code: str) -> Job:
        request, grant = call.request, self._grant_of(call.request.agent)
        return Job(
            id=request.id,
            tool=call.tool.name,
            definition_hash=call.tool.definition_hash,
            code_hash=code,
            level=isolation_of(call.tool),
            agent=request.agent,
            capabilities=_in_words(grant.capabilities),
            permissions=grant.permissions,
            arguments=msgspec.json.encode(call.checked.arguments),
            deadline_ms=max(1, round(call.deadline_s * 1000)),
            output_bytes=call.output_bytes,
            wants_progress=request.on_progress is not None,
            wants_output=request.on_output is not None,
            secrets=dict(known.secrets),
            correlation_id=request.correlation_id,
            conversation=request.conversation,
            session=request.session,
            data=msgspec.json.encode(dict(request.data)) if request.data else b"",
            trace=_traceparent(),
        )

    async def dispatcher(self) -> Dispatcher:
        """The one of the running event loop, which is started for its first call."""
        loop = asyncio.get_running_loop()
        started = self._dispatchers.get(loop)
        if started is not None and started.done() and not started.cancelled() and not started.exception():
            return started.result()
        if started is None or (started.done() and (started.cancelled() or started.exception())):
            for gone in [one for one in self._dispatchers if one.is_closed()]:
                del self._dispatchers[gone]
            started = self._dispatchers[loop] = loop.create_task(self._start())
        try:
            return await asyncio.shield(started)
        except ToolkeepError as error:
            # The reason may name the path of a key or an address: for the operator's log, not for a model.
            log.error("workers cannot be reached", extra={"reason": error.message})  # noqa: TRY400 -- whole
            raise RunRefused(error.code, "No worker can be reached", "Try again soon.") from error

    async def _start(self) -> Dispatcher:
        reports, samples = self._reports, self._samples
        if reports is None or samples is None:
            raise RuntimeError("nobody records what workers do")
        dispatcher = Dispatcher(
            self._settings,
            self._key(),
            refused=reports.refused,
            late=reports.late,
            signed=reports.signed,
            refused_elsewhere=reports.refused_elsewhere,
            is_quarantined=samples.is_quarantined,
        )
        await dispatcher.start()
        return dispatcher

    async def connect(self) -> None:
        """Look for workers now; without NATS, with the first call that needs one."""
        try:
            await self.dispatcher()
        except RunRefused as error:
            log.warning("no worker can be reached", extra={"reason": error.reason})

    def workers(self) -> tuple[WorkerStatus, ...]:
        """Every trusted worker, as far as it is known."""
        for started in reversed(list(self._dispatchers.values())):
            if started.done() and not started.cancelled() and not started.exception():
                return self._shown(started.result().status())
        return self._shown(status_of(trusted, None, "") for trusted in self._settings.workers)

    def _shown(self, workers: Iterable[WorkerStatus]) -> tuple[WorkerStatus, ...]:
        return tuple(workers if self._samples is None else map(self._samples.shown, workers))

    async def close(self) -> None:
        """Disconnect on this event loop."""
        started = self._dispatchers.pop(asyncio.get_running_loop(), None)
        if started is not None and started.done() and not started.cancelled() and not started.exception():
            await started.result().close()


@lru_cache(maxsize=1_000)
def _in_words(capabilities: tuple[Capability, ...]) -> tuple[str, ...]:
    return tuple(map(str, capabilities))


def _traceparent() -> str:
    """The trace that this call belongs to, if calls of this process are traced."""
    spans = sys.modules.get("toolkeep.telemetry.spans")
    return "" if spans is None else str(spans.current_traceparent())


def _note(slot: Any, ran: Ran) -> None:
    slot.ran_on = ran_on(ran)
    slot.note_use(ran.answer.cpu_ms, ran.answer.peak_bytes)


def ran_on(ran: Ran) -> RanOn:
    """Who answered, and what it says of the run."""
    answer = ran.answer
    return RanOn(
        worker=ran.worker.name,
        key=ran.worker.key,
        session=ran.session,
        answer_hash=ran.answer_hash,
        isolation=answer.isolation,
        enforced=answer.enforced,
    )


def _output_chunk(body: bytes) -> Any:
    try:
        return jiter.from_json(body)
    except ValueError as error:
        raise FrameInvalid("it holds no chunk of output") from error


def value_of(call: RecordedCall, ran: Ran) -> Any:
    """What the tool returned, or raised, as a run here would have."""
    answer = ran.answer
    if answer.failure is not None:
        raise _raised(answer.failure)
    if answer.isolation != isolation_of(call.tool):
        reason = (
            f"Tool '{call.tool.name}' may have run: its worker does not say that it was confined as asked"
        )
        raise RunRefused(Code.OUTPUT_INVALID, reason, "Tell the operator.")
    if answer.is_bytes:
        return ran.body
    try:
        return jiter.from_json(ran.body)
    except ValueError as error:
        reason = f"Tool '{call.tool.name}' returned something that is not an answer"
        raise RunRefused(Code.OUTPUT_INVALID, reason) from error


def _raised(failure: Failure) -> Exception:
    """What the worker says as the error that a run here would have raised."""
    if failure.is_cancelled:
        return Cancelled()
    # A worker that lies would fill results and what is stored beside the log.
    reason, suggestion, limit, remedy, path = (
        truncated_lines(text, MODEL_TEXT_CHARS)
        for text in (failure.reason, failure.suggestion, failure.limit, failure.remedy, failure.path)
    )
    diagnosis = Diagnosis(
        denied=Denied(failure.denied) if failure.denied in set(Denied) else None,
        subject=failure.subject,
        limit=limit,
        remedy=remedy,
        detail=failure.detail,
    )
    try:
        code = Code(failure.code)
    except ValueError:
        return ToolFailed(reason)
    return RunRefused(code, reason, suggestion, diagnosis, path=path)
