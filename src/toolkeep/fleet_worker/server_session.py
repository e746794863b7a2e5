"""One server as a worker sees it: the session with it, its lease, and the jobs that it gave."""

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.fleet import messages
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import (
    ELSEWHERE,
    NEVER_SEEN,
    Answer,
    Cancel,
    Delivering,
    Heartbeat,
    Install,
    Job,
    NotRun,
    Query,
    Renew,
    Running,
)
from toolkeep.fleet.remote_worker import MARGIN_SECONDS
from toolkeep.fleet.sealed_session import UNHANDLED, FrameInvalid, SealedSession
from toolkeep.fleet.transcript import BATCH, Transcript
from toolkeep.fleet_worker.worker_refusals import Refusals

log = logging.getLogger("toolkeep.fleet")

_UNACKNOWLEDGED: Final = 10_000
"""Answers that are kept for a server that has not acknowledged them."""
_REFUSED: Final = 100_000
"""Jobs that are remembered as never to be run, because a server was told so."""
_SILENT_LEASES: Final = 5
"""A session whose server is silent for so long is forgotten."""
_ANSWERS_SECONDS: Final = 600
"""The same, with answers that its server has not acknowledged: after a long cut it still wants them."""


def now() -> float:
    """On a clock that also counts while the machine sleeps: a lease must not outlive a suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class JobHandler(Protocol):
    """What a worker does with jobs."""

    def begin(self, session: "ServerSession", job: Job) -> None:
        """Run a job."""

    def end(self, session: "ServerSession", job_id: str) -> None:
        """Cancel a job."""

    def taken(self) -> int:
        """Slots that jobs hold."""

    def install(self, session: "ServerSession", request: Install) -> None:
        """Install a tool."""


class ServerSession:
    """One session with a server, from the worker's side."""

    def __init__(
        self,
        trusted: TrustedServer,
        key: PrivateKey,
        sealed: SealedSession,
        lease_s: float,
        send: Callable[[bytes], None],
        jobs: JobHandler,
        refusals: Refusals,
    ) -> None:
        self.trusted = trusted
        self.server = PublicKey.read(trusted.key).token
        """Names the server."""
        self.is_confirmed = False
        """Whether a sealed frame came: a hello alone may have been replayed."""
        self.running: dict[str, bytes] = {}
        """Hashes of the jobs."""
        self._delivering: set[str] = set()
        """Those of them that hold no slot any more."""
        self._jobs = jobs
        self._refusals = refusals
        self._key = key
        self._sealed = sealed
        self._lease_s = lease_s
        self._send_frame = send
        self._heard_at = now()
        self.lease_ends = float("-inf")
        """On the worker's own clock; beyond, the watchdog ends the worker."""
        self._heartbeats: dict[int, float] = {}
        self._number = 0
        self._answers: dict[str, bytes] = {}
        """Final answers that the server has not acknowledged."""
        self._never: dict[str, None] = {}
        self._transcript = Transcript(sealed.id)

    @property
    def id(self) -> bytes:
        """Names it in frames."""
        return self._sealed.id

    @property
    def has_lease(self) -> bool:
        """Whether jobs may run: a margin before its end, the worker ends them."""
        return now() < self.lease_ends - MARGIN_SECONDS

    @property
    def is_forgotten(self) -> bool:
        """Whether its server is gone, or has a newer session."""
        silent_s = now() - self._heard_at
        longest_s = _SILENT_LEASES * self._lease_s
        return not self.running and silent_s > (
            max(longest_s, _ANSWERS_SECONDS) if self._answers else longest_s
        )

    def send(self, message: messages.ToServer) -> bytes:
        """Seal and send; what was sealed."""
        packed = messages.encode(message)
        self._send_frame(self._sealed.seal(packed))
        return packed

    def heartbeat(self, *, is_draining: bool = False) -> None:
        """Send a heartbeat, which asks for the lease."""
        self._number += 1
        self._heartbeats[self._number] = now()
        while len(self._heartbeats) > 64:
            del self._heartbeats[next(iter(self._heartbeats))]
        finished = tuple(self._answers)[:1000]
        self.send(
            Heartbeat(
                self._number,
                self._jobs.taken() - len(self.running) + len(self._delivering),
                tuple(self.running),
                finished,
                is_draining,
                self._refusals.counts(self.server),
            )
        )
        self.sign()

    def sign(self) -> None:
        """Sign answers that are not signed yet."""
        if len(self._transcript):
            self.send(self._transcript.sign(self._key))

    def open(self, frame: bytes) -> None:
        """Open and handle a frame of the server; raises `FrameInvalid`."""
        packed = self._sealed.open(frame)
        try:
            message = messages.decode_to_worker(packed)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise FrameInvalid("it cannot be read") from error
        self._heard_at = now()
        is_new, self.is_confirmed = not self.is_confirmed, True
        if is_new:
            self.heartbeat()
        if isinstance(message, Job):
            self._job(message, packed)
        else:
            _HANDLERS[type(message)](self, message)

    def _job(self, job: Job, packed: bytes) -> None:
        if job.id in self._never or job.id in self.running or job.id in self._answers:
            raise FrameInvalid("it names a job of before")
        self.running[job.id] = hashlib.sha256(packed).digest()
        try:
            self._jobs.begin(self, job)
        except Exception:
            log.exception("a job could not be begun", extra={"job": job.id})
            self.refuse(job.id, UNHANDLED)  # its server would wait for it for ever

    def _cancel(self, cancel: Cancel) -> None:
        if cancel.id in self.running:
            self._jobs.end(self, cancel.id)

    def _renew(self, renew: Renew) -> None:
        sent_at = self._heartbeats.get(renew.heartbeat)
        if sent_at is not None:
            self.lease_ends = max(self.lease_ends, sent_at + self._lease_s)
        self._refusals.note_recorded(self.server, renew.recorded)
        for job_id in renew.acknowledged:
            self._answers.pop(job_id, None)

    def _install(self, request: Install) -> None:
        self._jobs.install(self, request)

    def _query(self, query: Query) -> None:
        if query.id in self.running:
            self.send(Running(query.id))
        elif query.id in self._answers:
            self._send_frame(self._sealed.seal(self._answers[query.id]))
        else:
            self._never[query.id] = None
            while len(self._never) > _REFUSED:
                del self._never[next(iter(self._never))]
            self.send(NotRun(query.id, NEVER_SEEN))

    def refuse(self, job_id: str, why: str, detail: str = "") -> None:
        """Report that no line of a job ran."""
        if why not in ELSEWHERE:
            self._refusals.add("job", why, self.server)
        self.running.pop(job_id, None)
        self._delivering.discard(job_id)
        self.send(NotRun(job_id, why, detail[:300]))

    def deliver(self, job_id: str) -> None:
        """Report that the tool of a job has ended, and its result is being stored."""
        self._delivering.add(job_id)
        self.send(Delivering(job_id))

    def finish(self, answer: Answer) -> None:
        """Report how a job ended; the answer is kept until the server has it."""
        job_hash = self.running.pop(answer.id, None)
        self._delivering.discard(answer.id)
        if job_hash is None:
            return
        packed = self.send(answer)
        self._answers[answer.id] = packed
        while len(self._answers) > _UNACKNOWLEDGED:
            del self._answers[next(iter(self._answers))]
        self._transcript.add(answer.id, job_hash, packed)
        if len(self._transcript) >= BATCH:
            self.sign()


_HANDLERS: Final[dict[type, Callable[[ServerSession, Any], None]]] = {
    Cancel: ServerSession._cancel,  # noqa: SLF001 -- its own methods, by the kind of message
    Renew: ServerSession._renew,  # noqa: SLF001
    Query: ServerSession._query,  # noqa: SLF001
    Install: ServerSession._install,  # noqa: SLF001
}
