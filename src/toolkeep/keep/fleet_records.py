"""Records and events of what workers elsewhere do beside answering in time (SCL-3, SCL-4).

Frames that were refused, what workers refused, signatures over answers, and answers to calls that had ended
before, their outcome unknown: these are settled. All of it runs on the event loop that the workers are
connected on.
"""

import asyncio
import base64
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.audit.entry import Leaf
from toolkeep.audit.record import Recorder
from toolkeep.audit.record_kinds import AnsweredLate, AnswersSigned, Record, WorkerRefused
from toolkeep.audit.record_kinds import RefusedElsewhere as RefusedElsewhereRecord
from toolkeep.calls import ToolResult
from toolkeep.errors import Code, ToolkeepError
from toolkeep.events import Bus
from toolkeep.events import RefusedElsewhere as RefusedElsewhereEvent
from toolkeep.events import WorkerAnsweredLate as WorkerAnsweredLateEvent
from toolkeep.events import WorkerRefused as WorkerRefusedEvent
from toolkeep.fleet.dispatcher import Ran, Refused, RefusedElsewhere, SignedAnswers
from toolkeep.fleet.messages import REFUSAL_KINDS
from toolkeep.host import clock
from toolkeep.keep.call_state import CallState
from toolkeep.keep.refusal_counts import RefusalCounts

log = logging.getLogger("toolkeep.fleet")

_TELL_SECONDS: Final = 60.0
"""After which an early answer is recorded: its call has ended otherwise by then."""
_OTHER: Final = Refused("", "of many other kinds")
_CALLS: Final = 1_000
"""Calls with an unknown outcome, each with its arguments, that wait for a late answer."""

Finish = Callable[[CallState, Ran], Awaitable[ToolResult]]
"""Checks what a late answer says, as it would have been checked in time."""


class _Elsewhere:
    """What one worker says that it refused."""

    def __init__(self, counts: RefusalCounts[RefusedElsewhere]) -> None:
        self.counts = counts
        self._process = b""
        self._told: dict[tuple[str, str, str], int] = {}
        """By that process of the worker; every session with it tells the same numbers."""
        self._unwritten = Counter[tuple[str, str, str]]()
        """How many of them are to be written yet."""
        self._has_too_many = False

    def new(self, refused: RefusedElsewhere) -> int | None:
        """How many of them were not told before; None for the first kind beyond those that a worker has."""
        if not refused.process:
            return refused.count
        if refused.process != self._process:
            self._process, self._told, self._unwritten = refused.process, {}, Counter()
            self._has_too_many = False
        kind = _kind(refused)
        if kind not in self._told and len(self._told) >= REFUSAL_KINDS:
            was_told, self._has_too_many = self._has_too_many, True
            return 0 if was_told else None
        before = max(self._told.get(kind, 0), refused.recorded)
        self._told[kind] = max(before, refused.count)
        self._unwritten[kind] += self._told[kind] - before
        return self._told[kind] - before

    def note_written(self, refused: RefusedElsewhere, count: int) -> None:
        """So many of them are in the log now."""
        if refused.process == self._process:
            self._unwritten[_kind(refused)] -= count

    def recorded(self, refused: RefusedElsewhere) -> int:
        """How many of them are in the log."""
        return self._told.get(_kind(refused), 0) - self._unwritten[_kind(refused)]


class FleetRecords:
    """Of one keep."""

    def __init__(self, recorder: Recorder, bus: Bus, finish: Finish) -> None:
        self._recorder = recorder
        self._bus = bus
        self._finish = finish
        self._refused = RefusalCounts(self._tell_refused, _OTHER)
        self._elsewhere: dict[str, _Elsewhere] = {}
        """By the key of the worker: one that lies takes no room from what others report."""
        self._ended: dict[str, CallState] = {}
        """Calls with an unknown outcome."""
        self._early: dict[str, Ran] = {}
        """Late answers to calls that have not ended as unknown, or never will: they ran elsewhere again."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        """What is being written."""

    def refused(self, refused: Refused) -> None:
        """Tell of the first frame of a kind at once; of others, their number once a minute."""
        self._refused.add(refused)

    def refused_elsewhere(self, refused: RefusedElsewhere) -> int:
        """Record that a worker refused the job of a call, or count what else it says that it refused.

        Returns how many of a number are in the log.
        """
        if refused.call:
            self._note(_elsewhere_record(refused, 1))
            return 1
        worker = refused.worker
        known = self._elsewhere.get(worker.key)
        if known is None:
            other = RefusedElsewhere(worker, "frame", "of many other kinds")
            known = self._elsewhere[worker.key] = _Elsewhere(RefusalCounts(self._tell_elsewhere, other))
        count = known.new(refused)
        if count is None:
            self.refused(Refused(worker.name, "it reports more kinds of refusals than there are"))
        elif count:
            known.counts.add(replace(refused, count=1, recorded=0), count)
        return known.recorded(refused)

    def signed(self, signed: SignedAnswers) -> None:
        """Record the signature of a worker: it proves to others who answered."""
        self._note(
            AnswersSigned(
                answers=signed.answers,
                key=signed.worker.key,
                session=signed.session,
                signature=base64.b64encode(signed.signature).decode(),
                time=clock.now(),
                worker=signed.worker.name,
            )
        )

    def late(self, call_id: str, ran: Ran) -> None:
        """Settle a call by an answer that came after its worker was given up."""
        state = self._ended.pop(call_id, None)
        if state is not None:
            self._settle(state, ran)
            return
        self._early[call_id] = ran
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell_early)

    def ended(self, state: CallState) -> None:
        """Wait for the answer to a call that ended with its outcome unknown."""
        call_id = state.request.id
        ran = self._early.pop(call_id, None)
        if ran is not None:
            self._settle(state, ran)
            return
        self._ended[call_id] = state
        if len(self._ended) > _CALLS:
            del self._ended[next(iter(self._ended))]

    async def write_refusals(self) -> None:
        """Write what workers say that they refused, before they are told how much of it is in the log."""
        for known in self._elsewhere.values():
            known.counts.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Tell what was counted, and end."""
        await self.write_refusals()
        self._refused.close()
        self._tell_early()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _tell_early(self) -> None:
        self._timer = None
        early, self._early = self._early, {}
        for call_id, ran in early.items():
            self._note(_late_record(call_id, ran, None))

    def _tell_refused(self, refused: Refused, count: int) -> None:
        worker, reason = refused.worker, refused.reason
        self._bus.tell(WorkerRefusedEvent(worker=worker, reason=reason, count=count))
        self._note(WorkerRefused(count=count, reason=reason, time=clock.now(), worker=worker))

    def _tell_elsewhere(self, refused: RefusedElsewhere, count: int) -> None:
        self._bus.tell(
            RefusedElsewhereEvent(
                worker=refused.worker.name,
                what=refused.what,
                reason=refused.reason,
                server=refused.server,
                count=count,
            )
        )
        noted = self._note(_elsewhere_record(refused, count))
        noted.add_done_callback(partial(self._written, refused, count))

    def _written(self, refused: RefusedElsewhere, count: int, done: "asyncio.Future[Leaf]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._elsewhere[refused.worker.key].note_written(refused, count)

    def _settle(self, state: CallState, ran: Ran) -> None:
        task = asyncio.get_running_loop().create_task(self._settled(state, ran))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settled(self, state: CallState, ran: Ran) -> None:
        try:
            result = await self._finish(state, ran)
            record = _late_record(state.request.id, ran, result)
            # Before the result is stored for its key: one that nobody can audit must not reach a model.
            leaf = await self._recorder.note(record)
        except Exception:
            log.exception("a late answer was not recorded", extra={"call": state.request.id})
            return
        if record.is_settled:
            await state.settle(replace(result, leaf=leaf.index))
        self._bus.tell(
            WorkerAnsweredLateEvent(
                tool_name=state.shown_name,
                agent=state.request.agent,
                worker=ran.worker.name,
                status=result.status,
                is_settled=record.is_settled,
                correlation_id=state.request.correlation_id,
            )
        )

    def _note(self, record: Record) -> "asyncio.Future[Leaf]":
        noted = self._recorder.note(record)
        self._tasks.add(noted)
        noted.add_done_callback(self._tasks.discard)
        noted.add_done_callback(_log_failure)
        return noted


def _late_record(call_id: str, ran: Ran, result: ToolResult | None) -> AnsweredLate:
    """`result` is None for a call that ended otherwise, with the answer of another worker."""
    failure = ran.answer.failure
    codes: tuple[str, ...] = (failure.code,) if failure is not None and failure.code else ()
    if result is not None:
        codes = tuple(error.code.value for error in result.error.errors) if result.error else ()
    status = result.status if result is not None else ("ok" if failure is None else "error")
    return AnsweredLate(
        answer_hash=ran.answer_hash,
        call=call_id,
        codes=codes,
        enforced=ran.answer.enforced,
        # A worker that ends a call with its lease does not know how far it came.
        is_settled=result is not None and result.code is not Code.CANCELLED,
        isolation=ran.answer.isolation,
        key=ran.worker.key,
        result_hash=result.hash if result is not None else "",
        session=ran.session,
        status=status,
        time=clock.now(),
        worker=ran.worker.name,
    )


def _kind(refused: RefusedElsewhere) -> tuple[str, str, str]:
    return refused.what, refused.reason, refused.server


def _log_failure(done: "asyncio.Future[Leaf]") -> None:
    if not done.cancelled() and isinstance(error := done.exception(), ToolkeepError):
        log.error("a record of a worker was not written", extra={"reason": error.message})


def _elsewhere_record(refused: RefusedElsewhere, count: int) -> RefusedElsewhereRecord:
    return RefusedElsewhereRecord(
        call=refused.call,
        count=count,
        key=refused.worker.key,
        reason=refused.reason,
        server=refused.server,
        time=clock.now(),
        what=refused.what,
        worker=refused.worker.name,
    )
