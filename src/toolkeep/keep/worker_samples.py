"""Has a second worker run a share of the deterministic calls, and quarantines a worker that is wrong (SCL-3).

The caller has its result before: nothing here delays it, and a call that waits for a worker cancels the
second run. Where two results differ, the server runs the call itself, confined at the same level; a tool of
labelled machines, or one that the server cannot run, is run by further workers instead. A worker whose result
differs from theirs is quarantined. Without such a decision nobody is, and the difference is recorded.

Only values are compared: a failure may be the machine's. Two workers that lie alike are not found.
"""

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from toolkeep.audit.record import Recorder
from toolkeep.audit.record_kinds import WorkersDisagreed
from toolkeep.calls import CheckedOutput, PermittedCall, RawOutput, RecordedCall, Refusal
from toolkeep.definitions.tool_context import Cancelled, ToolFailed
from toolkeep.errors import ToolkeepError
from toolkeep.events import Bus
from toolkeep.events import WorkersDisagreed as WorkersDisagreedEvent
from toolkeep.execution.admission import Admission, Slot
from toolkeep.execution.execute import Executor
from toolkeep.execution.result_cache import is_cacheable
from toolkeep.execution.runner import RunRefused
from toolkeep.fleet.dispatcher import Dispatcher, Placement, Ran
from toolkeep.fleet.fleet_runner import value_of
from toolkeep.fleet.messages import Job
from toolkeep.fleet.worker_status import WorkerStatus, quarantined
from toolkeep.host import clock
from toolkeep.limits import DEFAULT_CALL_LIMITS
from toolkeep.registry.registry import ToolRegistry

log = logging.getLogger("toolkeep.fleet")

SERVER: Final = "server"
_RUNS: Final = 2
"""Runs that decide. If they differ, the tool is not deterministic, and says nothing about workers."""
_TRIES: Final = 60
_AGAIN_SECONDS: Final = 1.0
"""Between two tries to find a free worker that decides."""
_UNDECIDED_SECONDS: Final = 600.0
"""How long a tool is not sampled after a difference that nothing decided: it may fill the log otherwise."""

Check = Callable[[RawOutput], Awaitable[CheckedOutput | Refusal]]
"""Checks, normalizes and hashes a value, as for a caller."""
Objection = Callable[[PermittedCall], Refusal | None]


class _Sample(NamedTuple):
    """A call that a worker has run."""

    dispatcher: Dispatcher
    call: RecordedCall
    job: Job
    place: Placement
    first: Ran


class _Decision(NamedTuple):
    by: str
    hash: str
    """Of the right result; empty if that is not known."""


class WorkerSamples:
    """Of one keep."""

    def __init__(
        self,
        share: float,
        *,
        recorder: Recorder,
        bus: Bus,
        registry: ToolRegistry,
        here: Executor,
        objection: Objection,
        check: Check,
        forget_results: Callable[[], None],
    ) -> None:
        """`here` runs calls on this machine, unless there is an objection.

        `forget_results` clears what quarantined workers may have answered.
        """
        self._share = share
        self._recorder = recorder
        self._bus = bus
        self._registry = registry
        self._here = here
        self._objection = objection
        self._check = check
        self._forget_results = forget_results
        self._slots = Admission(DEFAULT_CALL_LIMITS)
        self._random = random.SystemRandom()
        self._agreed: Counter[str] = Counter()
        self._differed: Counter[str] = Counter()
        """By key."""
        self._quarantining: set[str] = set()
        """Keys that are not stored yet, or could not be."""
        self._undecided: dict[str, float] = {}
        """When a difference of a tool was not decided, by its hash."""
        self._is_deciding = False

    def is_quarantined(self, key: str) -> bool:
        """Whether the worker of this key takes no calls."""
        return key in self._quarantining or self._registry.is_worker_quarantined(key)

    def shown(self, status: WorkerStatus) -> WorkerStatus:
        """What is known of a worker, with its samples."""
        agreed, differed = self._agreed[status.key], self._differed[status.key]
        counted = replace(status, samples_agreed=agreed, samples_differed=differed)
        return quarantined(counted) if self.is_quarantined(status.key) else counted

    def consider(
        self, dispatcher: Dispatcher, call: RecordedCall, job: Job, place: Placement, ran: Ran
    ) -> None:
        """Perhaps have a second worker run a call that has ended; returns at once."""
        # Drawn after the answer: its worker cannot know whether it is compared.
        if self._share and _may_run_twice(call, job) and self._random.random() < self._share:
            dispatcher.start_task(self._sample(_Sample(dispatcher, call, job, place, ran)))

    async def _sample(self, sample: _Sample) -> None:
        try:
            await self._compare(sample)
        except Exception:
            log.exception("results of workers could not be compared")

    async def _compare(self, sample: _Sample) -> None:
        first, call = sample.first, sample.call
        if not (first_hash := await self._hash(call, first)):
            return
        second = await self._spare(sample, {first.worker.key})
        if second is None or not (second_hash := await self._hash(call, second)):
            return
        keys = (first.worker.key, second.worker.key)
        if first_hash == second_hash:
            self._agreed.update(keys)
            return
        self._differed.update(keys)
        last = self._undecided.get(call.tool.definition_hash, float("-inf"))
        if self._is_deciding or time.monotonic() - last < _UNDECIDED_SECONDS:
            return  # one at a time: the next difference is found by the same rule
        self._is_deciding = True
        try:
            decision = await self._decide(sample, frozenset(keys))
            await self._conclude(sample, second, (first_hash, second_hash), decision)
        finally:
            self._is_deciding = False

    async def _decide(self, sample: _Sample, without: frozenset[str]) -> _Decision:
        """The right result, by runs of the server, or else of workers that gave neither result."""
        # A label says that the tool needs machines of some kind, of which the server may not be one.
        if not sample.place.label:
            here = {await self._hash_here(sample.call) for _ in range(_RUNS)}
            if here != {""}:
                return _Decision(SERVER, here.pop() if len(here) == 1 else "")
        name, found = "", set[str]()
        for _ in range(_RUNS):
            ran = await self._spare(sample, without, tries=_TRIES)
            name = "" if ran is None else ran.worker.name
            found.add("" if ran is None else await self._hash(sample.call, ran))
        return _Decision(name, found.pop() if len(found) == 1 else "")

    async def _spare(
        self, sample: _Sample, without: "set[str] | frozenset[str]", tries: int = 1
    ) -> Ran | None:
        for left in reversed(range(tries)):
            # An id of its own, and otherwise the same: a worker cannot tell it from the call of a caller.
            job = replace(
                sample.job, id=f"{os.urandom(16).hex()}.0", wants_progress=False, wants_output=False
            )
            ran = await sample.dispatcher.run_spare(job, sample.place, without)
            if ran is not None or not left or not sample.dispatcher.has_worker(sample.place, without):
                return ran
            await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def _hash(self, call: RecordedCall, ran: Ran) -> str:
        """The hash of a result; empty for a failure, or what no caller would have got."""
        try:
            return await self._checked(call, value_of(call, ran))
        except (RunRefused, ToolFailed, Cancelled):
            return ""

    async def _hash_here(self, call: RecordedCall) -> str:
        # Nobody hears of this run.
        call = replace(call, request=replace(call.request, on_progress=None, on_output=None))
        permitted = call.approved.permitted
        if (self._objection(permitted) or self._here.objection(permitted)) is not None:
            return ""
        raw = await self._here.execute(call, Slot(self._slots, ()), {})
        return "" if isinstance(raw, Refusal) else await self._checked(call, raw.value)

    async def _checked(self, call: RecordedCall, value: Any) -> str:
        checked = await self._check(RawOutput(call=call, value=value, isolation="", execute_ms=0.0))
        return "" if isinstance(checked, Refusal) else checked.hash

    async def _conclude(
        self, sample: _Sample, second: Ran, hashes: tuple[str, str], decision: _Decision
    ) -> None:
        first, call = sample.first, sample.call
        # A third result confirms neither worker: then the tool may not be what it declares.
        pairs = zip((first, second), hashes, strict=True) if decision.hash in hashes else ()
        wrong = [ran.worker for ran, hashed in pairs if hashed != decision.hash]
        if not wrong:
            self._undecided[call.tool.definition_hash] = time.monotonic()
        for worker in wrong:
            await self._quarantine(worker.key)
        names = tuple(worker.name for worker in wrong)
        record = WorkersDisagreed(
            answer_hash=first.answer_hash,
            call=call.request.id,
            decided_by=decision.by,
            decided_hash=decision.hash,
            definition_hash=call.tool.definition_hash,
            key=first.worker.key,
            other_answer_hash=second.answer_hash,
            other_key=second.worker.key,
            other_result_hash=hashes[1],
            other_worker=second.worker.name,
            quarantined=names,
            result_hash=hashes[0],
            time=clock.now(),
            tool=call.tool.name,
            worker=first.worker.name,
        )
        self._bus.tell(
            WorkersDisagreedEvent(
                tool_name=call.tool.name,
                agent=call.request.agent,
                call_id=call.request.id,
                worker=first.worker.name,
                other_worker=second.worker.name,
                decided_by=decision.by,
                quarantined=names,
                correlation_id=call.request.correlation_id,
            )
        )
        await self._recorder.note(record)

    async def _quarantine(self, key: str) -> None:
        self._quarantining.add(key)
        self._forget_results()
        try:
            await asyncio.to_thread(self._registry.quarantine_worker, key)
        except ToolkeepError as error:
            # It stays out while this process lives.
            log.error("a quarantine was not stored", extra={"reason": error.message})  # noqa: TRY400 -- whole
        else:
            self._quarantining.discard(key)


def _may_run_twice(call: RecordedCall, job: Job) -> bool:
    """Whether a second run gives the same result by declaration, changes nothing, and learns no secret."""
    tool = call.tool
    return (
        is_cacheable(tool)
        and not tool.may_write
        and not tool.definition.capabilities
        and not job.secrets
        and not job.data
    )
