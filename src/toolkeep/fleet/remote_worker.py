"""One worker as a server sees it: the sessions with it, its lease, and the jobs that it has."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from toolkeep.config.fleet_settings import TrustedWorker, covers
from toolkeep.fleet import messages
from toolkeep.fleet.identity import PublicKey
from toolkeep.fleet.messages import (
    BUSY,
    Answer,
    Cancel,
    Claims,
    Delivering,
    Heartbeat,
    InstallResult,
    Job,
    NotRun,
    OutputChunk,
    Progress,
    Query,
    RefusalCount,
    Renew,
    Running,
    Signed,
)
from toolkeep.fleet.sealed_session import FRAME_BYTES, FrameInvalid, SealedSession
from toolkeep.fleet.transcript import Transcript

log = logging.getLogger("toolkeep.fleet")

MARGIN_SECONDS: Final = 0.5
"""A worker ends its jobs so long before its lease is over; a server waits twice as long afterwards."""
_QUERY_SECONDS: Final = 1.0
"""A job that the worker does not list is queried."""
_LATE_KEPT: Final = 10_000
_QUERIED: Final = 100
"""Jobs given up that are queried with each heartbeat."""
_SIGNATURES: Final = 16
"""Signatures that wait for an answer that was lost on the way."""


Tool = tuple[str, str, str]
"""Name, hash of its definition, hash of its code."""


class Lost(msgspec.Struct, frozen=True):
    """A worker that had the job is gone; what the job did is not known."""


Outcome = Answer | NotRun | Lost


class PendingJob(msgspec.Struct, eq=False):
    """A job that a worker has."""

    job: Job
    job_hash: bytes
    future: "asyncio.Future[Outcome]"
    sent_at: float
    on_progress: Callable[[float, float | None, str], None] | None = None
    on_output: Callable[[bytes], None] | None = None
    queried_at: float = 0.0
    answer_hash: bytes = b""
    is_spare: bool = False
    """Whether no call ends with its answer."""


class WorkerSession:
    """One session with a worker, from the server's side."""

    def __init__(
        self,
        trusted: TrustedWorker,
        key: PublicKey,
        sealed: SealedSession,
        claims: Claims,
        lease_s: float,
        send: Callable[[bytes], None],
    ) -> None:
        self.trusted = trusted
        self.key = key
        self.claims = claims
        self.tools = {(one.name, one.definition_hash, one.code_hash) for one in claims.tools}
        self.reserved = 0
        """Slots for jobs that are about to be sent."""
        self._others = 0
        self.installing: dict[Tool, float] = {}
        """Tools whose code was sent to it, and when, until its `InstallResult`."""
        self.not_installed: dict[Tool, str] = {}
        """Tools whose code it does not get in this session, and why."""
        self.pending_jobs: dict[str, PendingJob] = {}
        self._delivering: set[str] = set()
        """Those of them that hold no slot any more."""
        self.is_draining = False
        self.is_retired = False
        """Whether there is a newer one: it is kept for the answers that the worker owes."""
        self.seen_at = time.monotonic()
        self._lost: dict[str, tuple[bytes, bool]] = {}
        """Jobs that were given up: the hash of each, and whether it was spare."""
        self._queried: dict[str, bytes] = {}
        """Jobs whose answer may come twice, because they were queried; its hash, once it came."""
        self._signatures: list[Signed] = []
        self._sealed = sealed
        self._lease_s = lease_s
        self._send_frame = send
        self._unacknowledged: list[str] = []
        self._dead_at = float("-inf")
        self._transcript = Transcript(sealed.id)
        self.on_late: Callable[[Answer, bytes], None] = lambda _answer, _hash: None
        self.on_signed: Callable[[list[bytes], bytes], None] = lambda _hashes, _signature: None
        self.on_refused: Callable[[tuple[RefusalCount, ...]], tuple[RefusalCount, ...]] = lambda _counts: ()
        """Returns what is in the log by now."""
        self._reported: tuple[RefusalCount, ...] = ()
        self.on_code_refused: Callable[[str], None] = lambda _why: None

    @property
    def id(self) -> bytes:
        """Names it in frames."""
        return self._sealed.id

    @property
    def free(self) -> int:
        """Slots that are free, as far as is known: other servers take some, too."""
        return self.claims.slots - self._others - self._held - self.reserved

    @property
    def _held(self) -> int:
        """Slots that its jobs hold."""
        return len(self.pending_jobs) - len(self._delivering)

    @property
    def unsigned(self) -> int:
        """Answers that the worker has not signed yet."""
        return len(self._transcript)

    @property
    def has_lease(self) -> bool:
        """Whether the worker may still run what it has; new jobs are sent only then."""
        return time.monotonic() < self._dead_at

    def fits(self, tool: Tool, label: str, level: str, agent: str) -> bool:
        """Whether it may run such a call at all, full or not."""
        return tool in self.tools and self._may_run(label, level, agent)

    def could_install(self, tool: Tool, label: str, level: str, agent: str) -> bool:
        """Whether it may run such a call once it has installed the code."""
        return (
            self.claims.takes_code
            and tool not in self.tools
            and tool not in self.not_installed
            and covers(self.trusted.tools, tool[0])
            and self._may_run(label, level, agent)
        )

    def _may_run(self, label: str, level: str, agent: str) -> bool:
        return (
            (not label or label in self.claims.labels)
            and level in self.claims.levels
            and covers(self.trusted.agents, agent)
        )

    def confirm(self) -> None:
        """Prove to the worker that the hello was not replayed: only who made it can seal."""
        self.send(Renew(0))

    def send(self, message: messages.ToWorker) -> bytes:
        """Seal and send; what was sealed."""
        packed = messages.encode(message)
        if len(packed) > FRAME_BYTES:
            raise FrameInvalid("it is too large")
        self._send_frame(self._sealed.seal(packed))
        return packed

    def leave(self) -> None:
        """Tell the worker what the log has of its report: whoever is started next records the rest alone."""
        if recorded := self.on_refused(self._reported):
            self.send(Renew(0, (), recorded))

    def send_job(self, pending: PendingJob) -> None:
        """Send a job, for which a slot was reserved; raises `FrameInvalid` if no frame can hold it."""
        self.reserved -= 1
        packed = self.send(pending.job)
        pending.job_hash = hashlib.sha256(packed).digest()
        pending.sent_at = time.monotonic()
        self.pending_jobs[pending.job.id] = pending

    def cancel(self, job_id: str) -> None:
        """Have a job ended; its answer still comes."""
        if job_id in self.pending_jobs:
            self.send(Cancel(job_id))

    def open(self, frame: bytes) -> None:
        """Open and handle a frame of the worker; raises `FrameInvalid`."""
        packed = self._sealed.open(frame)
        message = _read(packed)
        self.seen_at = time.monotonic()
        _HANDLERS[type(message)](self, message, packed)

    def _heartbeat(self, heartbeat: Heartbeat, _: bytes) -> None:
        now = time.monotonic()
        self._reported = heartbeat.refused
        recorded = self.on_refused(heartbeat.refused)
        owes = self.pending_jobs or self._lost or heartbeat.running or heartbeat.finished
        if self.is_retired and not owes:
            return  # the worker forgets it
        self.is_draining = heartbeat.is_draining
        self._others = heartbeat.others
        acknowledged, self._unacknowledged = tuple(self._unacknowledged), []
        self.send(Renew(heartbeat.number, acknowledged, recorded))
        self._dead_at = now + self._lease_s + 2 * MARGIN_SECONDS
        known = {*heartbeat.running, *heartbeat.finished}
        for job_id, pending in self.pending_jobs.items():
            is_missing = job_id not in known and now - pending.sent_at > _QUERY_SECONDS
            if (is_missing or job_id in heartbeat.finished) and now - pending.queried_at > _QUERY_SECONDS:
                pending.queried_at = now
                self._query(job_id)
        for job_id in [one for one in self._lost if one not in heartbeat.running][:_QUERIED]:
            self._query(job_id)
        awaited = self.pending_jobs.keys() | self._lost.keys()
        self._unacknowledged += [job_id for job_id in heartbeat.finished if job_id not in awaited]

    def _query(self, job_id: str) -> None:
        self._queried.setdefault(job_id, b"")
        while len(self._queried) > _LATE_KEPT:
            del self._queried[next(iter(self._queried))]
        self.send(Query(job_id))

    def _claims(self, _: Claims, __: bytes) -> None:
        raise FrameInvalid("it claims something anew")

    def _running(self, running: Running, _: bytes) -> None:
        """It was queried and runs: nothing to do but wait."""

    def _deliver(self, delivering: Delivering, _: bytes) -> None:
        if delivering.id in self.pending_jobs:
            self._delivering.add(delivering.id)

    def _not_run(self, not_run: NotRun, _: bytes) -> None:
        self._delivering.discard(not_run.id)
        self._lost.pop(not_run.id, None)
        if (pending := self.pending_jobs.pop(not_run.id, None)) is not None:
            if not_run.why == BUSY:  # until its next heartbeat, which says how busy
                self._others = max(self._others, self.claims.slots - self._held)
            _settle(pending, not_run)

    def _progress(self, progress: Progress, _: bytes) -> None:
        pending = self.pending_jobs.get(progress.id)
        if pending is not None and pending.on_progress is not None:
            pending.on_progress(progress.done, progress.total, progress.message)

    def _output_chunk(self, chunk: OutputChunk, _: bytes) -> None:
        pending = self.pending_jobs.get(chunk.id)
        if pending is not None and pending.on_output is not None:
            pending.on_output(chunk.body)

    def _final(self, answer: Answer, packed: bytes) -> None:
        pending, is_again = self.pending_jobs.pop(answer.id, None), False
        self._delivering.discard(answer.id)
        if answer.id in self._queried:
            first, self._queried[answer.id] = self._queried[answer.id], hashlib.sha256(packed).digest()
            is_again = first == self._queried[answer.id]
        if pending is not None:
            self._unacknowledged.append(answer.id)
            pending.answer_hash = self._transcript.add(answer.id, pending.job_hash, packed)
            _settle(pending, answer)
        elif (lost := self._lost.pop(answer.id, None)) is not None:
            self._unacknowledged.append(answer.id)
            job_hash, is_spare = lost
            answer_hash = self._transcript.add(answer.id, job_hash, packed)
            if not is_spare:
                self.on_late(answer, answer_hash)
        elif not is_again:
            raise FrameInvalid("it answers no job that it has")
        signatures, self._signatures = self._signatures, []
        for signed in signatures:
            self._signed(signed, b"")

    def _install_result(self, result: InstallResult, _: bytes) -> None:
        tool = (result.tool.name, result.tool.definition_hash, result.tool.code_hash)
        # Only what it was sent: a claim of anything else would not be held against what its key may claim.
        if self.installing.pop(tool, None) is None:
            raise FrameInvalid("it installs code that nobody sent")
        if result.why:
            log.warning(
                "a worker does not install code",
                extra={"worker": self.trusted.name, "tool": tool[0], "why": result.why[:300]},
            )
            self.not_installed[tool] = result.why[:300]
            self.on_code_refused(result.why)
        else:
            self.tools.add(tool)

    def _signed(self, signed: Signed, _: bytes) -> None:
        if any(one in self.pending_jobs or one in self._lost for one in signed.ids):
            # An answer was lost on the way, and comes again.
            self._signatures = [*self._signatures, signed][-_SIGNATURES:]
            return
        leaves = self._transcript.check(signed, self.key)
        if leaves is None:
            raise FrameInvalid("it signs other answers than it gave")
        self.on_signed(leaves, signed.signature)

    def give_up(self) -> None:
        """Give up what it has: its lease is over."""
        for job_id, pending in self.pending_jobs.items():
            self._lost[job_id] = pending.job_hash, pending.is_spare
            _settle(pending, Lost())
        self.pending_jobs.clear()
        self._delivering.clear()
        while len(self._lost) > _LATE_KEPT:
            del self._lost[next(iter(self._lost))]


def read_claims(packed: bytes) -> Claims:
    """The first message of a worker in a session; raises `FrameInvalid`."""
    claims = _read(packed)
    if not isinstance(claims, Claims):
        raise FrameInvalid("it does not say what the worker claims")
    return claims


def _read(packed: bytes) -> messages.ToServer:
    try:
        message: messages.ToServer = messages.decode_to_server(packed)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FrameInvalid("it cannot be read") from error
    return message


def _settle(pending: PendingJob, outcome: Outcome) -> None:
    if not pending.future.done():
        pending.future.set_result(outcome)


_HANDLERS: Final[dict[type, Callable[[WorkerSession, Any, bytes], None]]] = {
    Claims: WorkerSession._claims,  # noqa: SLF001 -- its own methods, by the kind of message
    Heartbeat: WorkerSession._heartbeat,  # noqa: SLF001
    Running: WorkerSession._running,  # noqa: SLF001
    Delivering: WorkerSession._deliver,  # noqa: SLF001
    NotRun: WorkerSession._not_run,  # noqa: SLF001
    Progress: WorkerSession._progress,  # noqa: SLF001
    OutputChunk: WorkerSession._output_chunk,  # noqa: SLF001
    Answer: WorkerSession._final,  # noqa: SLF001
    InstallResult: WorkerSession._install_result,  # noqa: SLF001
    Signed: WorkerSession._signed,  # noqa: SLF001
}


def objection(trusted: TrustedWorker, claims: Claims) -> str:
    """What a worker claims beyond what its key may; empty if nothing."""
    for label in claims.labels:
        if label not in trusted.labels:
            return f"it claims the label {label!r}"
    for level in claims.levels:
        if level not in trusted.levels:
            return f"it claims the level {level!r}"
    for tool in claims.tools:
        if not covers(trusted.tools, tool.name):
            return f"it claims the tool {tool.name!r}"
    return ""
