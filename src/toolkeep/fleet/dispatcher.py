"""Hands calls to workers and takes their answers; one for each event loop of a server.

A call that finds no free worker waits, agents taking turns. A worker that is silent until its lease is
over is given up, and what it had may run elsewhere if that does no harm.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from toolkeep.calls import Diagnosis
from toolkeep.config.fleet_settings import FleetSettings, TrustedWorker
from toolkeep.errors import Code, FileUnreadable, ToolkeepError
from toolkeep.execution.runner import RunRefused
from toolkeep.fleet import subjects
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import (
    ELSEWHERE,
    NO_ARGUMENTS,
    Answer,
    Claim,
    Failure,
    Install,
    Job,
    NotRun,
    RefusalCount,
    StoredBody,
)
from toolkeep.fleet.nats_link import NatsLink
from toolkeep.fleet.object_store import INLINE_BYTES, BodyStore, NotDelivered
from toolkeep.fleet.remote_worker import Lost, PendingJob, Tool, WorkerSession, objection, read_claims
from toolkeep.fleet.sealed_session import (
    DECLINED,
    SEALED,
    UNHANDLED,
    WELCOME,
    FrameInvalid,
    Opening,
    SealedSession,
    check_announce,
    read_announce,
    session_of,
)
from toolkeep.fleet.worker_status import WorkerStatus, status_of
from toolkeep.text.display import excerpt
from toolkeep.version import __version__

log = logging.getLogger("toolkeep.fleet")

_TICK_SECONDS: Final = 0.1
_COMPARED: Final = 8
"""So many workers with a free slot are compared for a call."""
_OPEN_SECONDS: Final = 2.0
"""A hello without an answer is repeated."""
_APPEAR_SECONDS: Final = 3.0
"""How long a call waits for a worker that has its tool to appear."""
_QUEUED: Final = 1_000
"""Calls of one agent that wait for a worker."""
_ATTEMPTS: Final = 5
_OLD_SESSIONS: Final = 4
_STRANGERS: Final = 10_000
"""Workers of other servers that are known to announce themselves, so that each is told of once."""
_SIGN_SECONDS: Final = 0.25
"""How long a server that leaves waits for signatures: an idle worker signs at once."""
_STORE_SECONDS: Final = 12.0
"""How long large arguments may take to be stored; without a leader, they are refused for up to 9.2 s."""
_INSTALL_SECONDS: Final = 30.0
"""After so long without an `InstallResult`, the code is sent again."""
_WHY_CHARS: Final = 300
"""Of what a worker says, in a record."""
_FIND_OUT: Final = "Find out what it did before you call again."


class Placement(NamedTuple):
    """Where a call may run."""

    tool: Tool
    label: str
    level: str
    agent: str


Bundled = Callable[[], tuple[bytes, bytes]]
"""Makes the definition of a tool, as JSON, and the bundle of its code; raises `ToolkeepError`."""


class Ran(NamedTuple):
    """An answer, and who gave it."""

    answer: Answer
    worker: TrustedWorker
    session: str
    answer_hash: str = ""
    body: bytes = b""
    """Its value."""


class SignedAnswers(NamedTuple):
    """Answers of one session, and the signature of its worker over them."""

    worker: TrustedWorker
    session: str
    answers: tuple[str, ...]
    """Hashes, in the order that is signed."""
    signature: bytes


class Refused(msgspec.Struct, frozen=True):
    """A frame that counted for nothing."""

    worker: str
    """Its name; empty where that is not known."""
    reason: str


class RefusedElsewhere(msgspec.Struct, frozen=True):
    """What a worker says that it refused."""

    worker: TrustedWorker
    what: Literal["session", "frame", "job", "code"]
    reason: str
    server: str = ""
    """The token of the server in whose name it came; empty if it is of none that the worker trusts."""
    call: str = ""
    """The call whose job it was; empty if it is not of one call."""
    process: bytes = b""
    """Where `count` is the number since this process of the worker began."""
    count: int = 1
    recorded: int = 0
    """How many of them this server has recorded, by an earlier process perhaps, as the worker heard."""


class OutcomeUnknown(Exception):
    """The worker that had the call is gone, and the call may have had an effect."""

    def __init__(self, worker: str) -> None:
        super().__init__(f"worker {worker!r} is gone")
        self.worker = worker


class _Waiter(NamedTuple):
    place: Placement
    bundled: Bundled | None
    future: "asyncio.Future[WorkerSession]"


class _Known:
    """A trusted worker, and the sessions with it."""

    def __init__(self, trusted: TrustedWorker) -> None:
        self.trusted = trusted
        self.key = PublicKey.read(trusted.key)
        self.boot = b""
        self.announced = b""
        """The last announcement that was checked."""
        self.opening: Opening | None = None
        self.opening_boot = b""
        self.opened_at = float("-inf")
        self.opened: SealedSession | None = None
        """A session in which the worker has not said yet what it claims."""
        self.current: WorkerSession | None = None
        self.old: list[WorkerSession] = []
        self.refused = ""
        """Why no session with it was opened."""

    def needs_hello(self, boot: bytes) -> bool:
        """Whether a hello is due, now that its process tells of itself."""
        has_session = self.current is not None and self.boot == boot and self.current.has_lease
        return not has_session and time.monotonic() - self.opened_at >= _OPEN_SECONDS

    def retire(self) -> None:
        """Make place for a new session; the old ones are kept for the answers that they still owe."""
        sessions, self.current = self.sessions, None
        self.old = sessions[-_OLD_SESSIONS:]
        for session in sessions:
            session.is_retired = True
        for session in sessions[:-_OLD_SESSIONS]:
            session.give_up()

    @property
    def sessions(self) -> list[WorkerSession]:
        return [*self.old, *([self.current] if self.current is not None else [])]


class Dispatcher:
    """The workers of a server."""

    def __init__(
        self,
        settings: FleetSettings,
        key: PrivateKey,
        *,
        refused: Callable[[Refused], None],
        late: Callable[[str, Ran], None],
        signed: Callable[[SignedAnswers], None],
        refused_elsewhere: Callable[[RefusedElsewhere], int],
        is_quarantined: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`refused` hears of frames that counted for nothing, `late` of answers to calls given up before,
        `refused_elsewhere` of what workers say that they refused; it returns how many of them are recorded.

        A worker whose key `is_quarantined` gets no jobs.
        """
        self._settings = settings
        self._key = key
        self._refused = refused
        self._late = late
        self._signed = signed
        self._refused_elsewhere = refused_elsewhere
        self._is_quarantined = is_quarantined
        self._spares: set[tuple[WorkerSession, str]] = set()
        self._link = NatsLink(settings.nats, "toolkeep server")
        self._bodies = BodyStore(self._link, replicas=settings.nats.replicas)
        self._reply = os.urandom(8).hex()
        self._hellos = 0
        self._known = {known.key.token: known for known in map(_Known, settings.workers)}
        self._all = tuple(self._known.values())
        self._turn = 0
        self._strangers: dict[PublicKey, None] = {}
        self._frame_received = asyncio.Event()
        """A frame came from a trusted worker, or claims to."""
        self._queue: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        self._transfers: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and look for workers; raises `FleetUnavailable`."""
        await self._link.connect()
        await self._link.subscribe(subjects.to_server(self._key.public, self._reply, "*"), self._on_frame)
        await self._link.subscribe(subjects.ANNOUNCEMENTS, self._on_announcement)
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """Disconnect; what runs ends with its lease."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SIGN_SECONDS):
                await self._have_all_signed()
        for known in self._all:
            if known.current is not None:
                known.current.leave()
        for task in (*self._transfers, *([self._ticking] if self._ticking is not None else [])):
            task.cancel()
        await self._link.close()

    @property
    def workers(self) -> Mapping[str, tuple[TrustedWorker, WorkerSession | None, str]]:
        """Every trusted worker by name, with its session, or why it has none."""
        return {
            known.trusted.name: (known.trusted, known.current, known.refused)
            for known in self._known.values()
        }

    def status(self) -> tuple[WorkerStatus, ...]:
        """Every trusted worker, as far as it is known."""
        return tuple(status_of(*known) for known in self.workers.values())

    async def _have_all_signed(self) -> None:
        sessions = [session for known in self._known.values() for session in known.sessions]
        while any(session.has_lease and session.unsigned for session in sessions):
            await self._next_frame()

    async def wait_for_all(self) -> None:
        """Wait until every trusted worker is there or refused; for ever if one is silent."""
        while any(one.state in ("not seen", "silent") for one in self.status()):
            await self._next_frame()

    async def _next_frame(self) -> None:
        self._frame_received.clear()
        await self._frame_received.wait()

    async def run(
        self,
        job: Job,
        place: Placement,
        *,
        may_repeat: bool,
        bundled: Bundled | None = None,
        on_progress: Callable[[float, float | None, str], None] | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        """Run a job on a worker that fits; raises `RunRefused` or `OutcomeUnknown`.

        With `may_repeat`, it runs elsewhere if its worker is gone. `bundled` is sent to workers that lack
        its code and may install it. Cancellation ends it there.
        """
        call, ends_at = job.id, time.monotonic() + job.deadline_ms / 1000
        for attempt in range(_ATTEMPTS):
            self._install(place, bundled)
            session, sent = await self._place(place, bundled), job
            if oversize := _oversize(job):
                # Others have the slot while these are stored, which takes seconds after a leader died.
                session.reserved -= 1
                sent = await self._with_stored(job, oversize)
                session = await self._place(place, bundled)
            left_ms = max(1, round((ends_at - time.monotonic()) * 1000))
            sent = replace(sent, id=f"{call}.{attempt}", deadline_ms=left_ms)
            future: asyncio.Future[Answer | NotRun | Lost] = asyncio.get_running_loop().create_future()
            pending = PendingJob(sent, b"", future, 0.0, on_progress, on_output)
            try:
                session.send_job(pending)
                outcome = await future
            except FrameInvalid as error:
                reason = f"Tool '{job.tool}' was not run: the call is too large for a worker elsewhere"
                raise RunRefused(Code.NOT_RUNNABLE, reason) from error
            except asyncio.CancelledError:
                session.cancel(sent.id)
                raise
            # A run that this side did not cancel was ended with its lease: what it did is not known.
            if isinstance(outcome, Answer) and (outcome.failure is None or not outcome.failure.is_cancelled):
                ran = Ran(outcome, session.trusted, session.id.hex(), pending.answer_hash.hex())
                return await self._whole(ran)
            if isinstance(outcome, Answer | Lost):
                if not may_repeat:
                    raise OutcomeUnknown(session.trusted.name)
            elif outcome.why not in ELSEWHERE:
                raise self._refused_job(session, job, outcome)
        reason = f"Tool '{job.tool}' was not run: {_ATTEMPTS} workers in turn could not take it"
        raise RunRefused(Code.WORKER_UNAVAILABLE, reason, "Try again soon.")

    def _refused_job(self, session: WorkerSession, job: Job, said: NotRun) -> RunRefused:
        """A worker refused a job as such: no other one is asked."""
        worker, server = session.trusted, self._key.public.token
        why, detail = excerpt(said.why, _WHY_CHARS), excerpt(said.detail, _WHY_CHARS)
        reason = f"{why}: {detail}" if detail else why
        self._refused_elsewhere(RefusedElsewhere(worker, "job", reason, server, call=job.id))
        extra = {"worker": worker.name, "why": why, "detail": detail}
        log.warning("a worker did not run a call", extra=extra)
        if said.why == NO_ARGUMENTS:
            return _not_sent(job, detail)
        told = f"Tool '{job.tool}' was not run: its worker refused it ({why})"
        return RunRefused(
            Code.NOT_RUNNABLE, told, diagnosis=Diagnosis(detail=f"worker '{worker.name}': {reason}")
        )

    async def run_spare(self, job: Job, place: Placement, without: Collection[str]) -> Ran | None:
        """Run a job on a slot that no call wants, by a worker of none of these keys; None if it did not run.

        As soon as a call waits for a worker, it is cancelled, and its answer says so.
        """
        arguments = job.arguments  # if they are large, a slot would be held while they are stored
        is_small = isinstance(arguments, bytes) and len(arguments) <= INLINE_BYTES
        if self._queue or not is_small or (session := self._best(place, without)) is None:
            return None
        future: asyncio.Future[Answer | NotRun | Lost] = asyncio.get_running_loop().create_future()
        pending = PendingJob(job, b"", future, 0.0, is_spare=True)
        spare = (session, job.id)
        self._spares.add(spare)
        try:
            session.send_job(pending)
            outcome = await future
        except FrameInvalid:
            return None
        except asyncio.CancelledError:
            session.cancel(job.id)
            raise
        finally:
            self._spares.discard(spare)
        if not isinstance(outcome, Answer):
            return None
        return await self._whole(Ran(outcome, session.trusted, session.id.hex(), pending.answer_hash.hex()))

    def has_worker(self, place: Placement, without: Collection[str]) -> bool:
        """Whether a worker of none of these keys could run a call, full or not."""
        return any(session.trusted.key not in without for session in self._fitting(place))

    def _install(self, place: Placement, bundled: Bundled | None) -> None:
        """Send the code to workers that lack only that to run a call."""
        if bundled is None:
            return
        for known in self._known.values():
            session = known.current
            if session is None or not session.could_install(*place) or not self._is_usable(session):
                continue
            if time.monotonic() - session.installing.get(place.tool, float("-inf")) >= _INSTALL_SECONDS:
                session.installing[place.tool] = time.monotonic()
                self.start_task(self._send_code(session, place.tool, bundled))

    async def _send_code(self, session: WorkerSession, tool: Tool, bundled: Bundled) -> None:
        try:
            definition, packed = await asyncio.to_thread(bundled)
            session.send(Install(Claim(*tool), definition, await self._bodies.put(packed)))
        except (NotDelivered, ToolkeepError, FrameInvalid, OSError) as error:
            session.installing.pop(tool, None)
            if isinstance(error, FileUnreadable):  # and so it is the next time
                session.not_installed[tool] = f"not sent: {error.message}"
            extra = {"worker": session.trusted.name, "tool": tool[0], "why": str(error)[:300]}
            log.warning("code could not be sent to a worker", extra=extra)

    async def _with_stored(self, job: Job, oversize: Iterable[str]) -> Job:
        """The job, with some of its bodies in the object store."""
        patience_s = min(_STORE_SECONDS, job.deadline_ms / 2000)
        try:
            stored = {
                name: await self._bodies.put(getattr(job, name), patience_s=patience_s) for name in oversize
            }
        except NotDelivered as error:
            raise _not_sent(job, str(error)) from error
        return replace(job, **stored)

    async def _whole(self, ran: Ran) -> Ran:
        """An answer with its value, which the object store may have; a failure if it is lost there."""
        answer = ran.answer
        if not isinstance(answer.body, StoredBody):
            return ran._replace(body=answer.body)
        try:
            return ran._replace(body=await self._bodies.take(answer.body))
        except NotDelivered as error:
            name = ran.worker.name
            log.warning("a result is lost", extra={"worker": name, "job": answer.id, "why": str(error)})
            reason = f"The tool ran, but its result was not delivered: {error}"
            failure = Failure(Code.OUTCOME_UNKNOWN.value, reason, _FIND_OUT)
            return ran._replace(answer=replace(answer, failure=failure))

    def _answered_late(self, ran: Ran) -> None:
        call_id = ran.answer.id.rpartition(".")[0]
        if isinstance(ran.answer.body, bytes):
            self._late(call_id, ran._replace(body=ran.answer.body))
            return

        async def late() -> None:
            self._late(call_id, await self._whole(ran))

        self.start_task(late())

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside calls, until the dispatcher is closed."""
        task = asyncio.create_task(work)
        self._transfers.add(task)
        task.add_done_callback(self._transfers.discard)

    async def _place(self, place: Placement, bundled: Bundled | None) -> WorkerSession:
        """A worker with a free slot, which is reserved."""
        if not self._queue and (best := self._best(place)) is not None:
            return best
        waiting = self._queue.setdefault(place.agent, deque())
        if len(waiting) >= _QUEUED:
            reason = f"{_QUEUED} calls of agent '{place.agent}' wait for a worker"
            raise RunRefused(Code.QUEUE_FULL, reason, "Wait for some of them, then call again.")
        waiter = _Waiter(place, bundled, asyncio.get_running_loop().create_future())
        waiting.append(waiter)
        for session, job_id in self._spares:  # a call is worth more than a comparison
            session.cancel(job_id)
        self._pump()
        patience = asyncio.get_running_loop().call_later(_APPEAR_SECONDS, self._give_up, waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and not waiter.future.exception():
                waiter.future.result().reserved -= 1
            raise
        finally:
            patience.cancel()
            with contextlib.suppress(ValueError, KeyError):
                self._queue[place.agent].remove(waiter)

    def _give_up(self, waiter: _Waiter) -> None:
        """Refuse a call that no worker could take, full or not."""
        if waiter.future.done():
            return
        if any(self._fitting(waiter.place)) or self._is_installing(waiter.place):
            again = asyncio.get_running_loop().call_later(_APPEAR_SECONDS, self._give_up, waiter)
            waiter.future.add_done_callback(lambda _: again.cancel())
            return
        on = f" with the label '{waiter.place.label}'" if waiter.place.label else ""
        reason = f"Tool '{waiter.place.tool[0]}' was not run: no worker{on} has it now"
        why = "\n".join(
            f"worker '{known.trusted.name}': {known.current.not_installed[waiter.place.tool]}"
            for known in self._known.values()
            if known.current is not None and waiter.place.tool in known.current.not_installed
        )
        diagnosis = Diagnosis(detail=why) if why else None
        refused = RunRefused(Code.WORKER_UNAVAILABLE, reason, "Try again later.", diagnosis)
        waiter.future.set_exception(refused)

    def _is_installing(self, place: Placement) -> bool:
        """Whether a worker was sent the code, and has not answered yet."""
        since = time.monotonic() - _INSTALL_SECONDS
        return any(
            known.current is not None and since < known.current.installing.get(place.tool, 0.0)
            for known in self._known.values()
        )

    def _fitting(self, place: Placement, among: "Iterable[_Known]" = ()) -> "Iterator[WorkerSession]":
        """The workers that could run a call, full or not; of many, another is the first each time."""
        if len(self._all) > _COMPARED:
            self._turn = (self._turn + 1) % len(self._all)
        for known in among or chain(islice(self._all, self._turn, None), islice(self._all, self._turn)):
            session = known.current
            if (
                session is not None
                and not session.is_draining
                and session.fits(place.tool, place.label, place.level, place.agent)
                and self._is_usable(session)
            ):
                yield session

    def _is_usable(self, session: WorkerSession) -> bool:
        """Whether its worker may get jobs."""
        return session.has_lease and not self._is_quarantined(session.trusted.key)

    def _best(
        self, place: Placement, without: Collection[str] = (), among: "Iterable[_Known]" = ()
    ) -> WorkerSession | None:
        """The least busy of a few workers that fit, with a slot reserved; None if all are full.

        `without` are keys of workers that are passed over.
        """
        shares = (
            (session.free / session.claims.slots, session)
            for session in self._fitting(place, among)
            if session.free > 0 and session.trusted.key not in without
        )
        _, best = max(islice(shares, _COMPARED), key=itemgetter(0), default=(0.0, None))
        if best is not None:
            best.reserved += 1
        return best

    def _pump(self, among: "Iterable[_Known]" = ()) -> None:
        """Give free slots, or those of some workers, to calls that wait: one of each agent in turn."""
        full: set[Placement] = set()
        is_moving = True
        while is_moving:
            is_moving = False
            for agent in list(self._queue):
                waiting = self._queue[agent]
                while waiting and waiting[0].future.done():
                    waiting.popleft()
                if not waiting:
                    del self._queue[agent]
                    continue
                # An agent's first call may wait for a rare worker, and its others need not.
                for waiter in waiting:
                    if waiter.future.done() or waiter.place in full:
                        continue
                    if (best := self._best(waiter.place, among=among)) is None:
                        full.add(waiter.place)
                        continue
                    waiter.future.set_result(best)
                    self._queue.move_to_end(agent)
                    is_moving = True
                    break

    def _on_announcement(self, _: str, frame: bytes) -> None:
        name = ""
        try:
            announced, key = read_announce(frame)
            known = self._known.get(key.token)
            if known is None:
                self._refuse_stranger(key)
                return
            name = known.trusted.name
            if frame != known.announced:  # a process of a worker sends the same each second
                check_announce(frame, known.key)
                known.announced = frame
            if known.needs_hello(announced.boot):
                self._say_hello(known, announced.boot)
        except FrameInvalid as error:
            self._refused(Refused(name, str(error)))
        except Exception:
            self._refused(Refused(name, UNHANDLED))
            raise

    def _refuse_stranger(self, key: PublicKey) -> None:
        """Tell once of a worker that is not trusted: it may be one of other servers, each second."""
        if key not in self._strangers:
            self._strangers[key] = None
            if len(self._strangers) > _STRANGERS:
                del self._strangers[next(iter(self._strangers))]
            self._refused(Refused("", "its worker is not trusted"))

    def _say_hello(self, known: _Known, boot: bytes) -> None:
        """To a trusted worker that is new, or was started again."""
        known.opened_at = time.monotonic()
        self._hellos += 1
        known.opening = Opening(
            self._key,
            known.key,
            version=__version__,
            reply=self._reply,
            boot=boot,
            number=self._hellos,
            lease_ms=round(self._settings.lease_s * 1000),
        )
        known.opening_boot = boot
        self._send(known, known.opening.frame)

    def _send(self, known: _Known, frame: bytes) -> None:
        self._link.send(subjects.to_worker(known.key), frame)

    def _on_frame(self, subject: str, frame: bytes) -> None:
        known = self._known.get(subject.rpartition(".")[2])
        if known is None:
            self._refused(Refused("", "it is of no trusted worker"))
            return
        try:
            self._handle(known, frame)
        except FrameInvalid as error:
            self._refused(Refused(known.trusted.name, str(error)))
            return
        except Exception:
            self._refused(Refused(known.trusted.name, UNHANDLED))
            raise
        finally:
            self._frame_received.set()
        if self._queue:
            self._pump((known,))

    def _handle(self, known: _Known, frame: bytes) -> None:
        kind = frame[:1]
        if kind == SEALED:
            named = session_of(frame)
            for session in known.sessions:
                if session.id == named:
                    session.open(frame)
                    return
            if known.opened is None or known.opened.id != named:
                raise FrameInvalid("it is of no session")
            self._begin(known, known.opened, frame)
            return
        if known.opening is None:
            raise FrameInvalid("nobody said hello")
        if kind == WELCOME:
            known.opened, known.opening = known.opening.finish(frame), None
        elif kind == DECLINED:
            known.refused, known.opening = excerpt(known.opening.why_declined(frame), _WHY_CHARS), None
            self._refused_by(known, "session", known.refused)
            log.warning("a worker declines", extra={"worker": known.trusted.name, "why": known.refused})
        else:
            raise FrameInvalid("it is of no known kind")

    def _begin(self, known: _Known, sealed: SealedSession, frame: bytes) -> None:
        """Begin a session with the claims of the worker, which must not be more than its key may."""
        claims = read_claims(sealed.open(frame))
        known.opened = None
        if problem := objection(known.trusted, claims):
            known.refused = f"{problem}, which its key may not"
            raise FrameInvalid(known.refused)
        known.retire()
        session = WorkerSession(
            known.trusted,
            known.key,
            sealed,
            claims,
            self._settings.lease_s,
            lambda frame: self._send(known, frame),
        )
        worker, name = known.trusted, session.id.hex()
        session.on_late = lambda answer, hashed: self._answered_late(Ran(answer, worker, name, hashed.hex()))
        session.on_signed = lambda hashes, signature: self._signed(
            SignedAnswers(worker, name, tuple(one.hex() for one in hashes), signature)
        )
        process = known.opening_boot

        def on_refused(counts: tuple[RefusalCount, ...]) -> tuple[RefusalCount, ...]:
            recorded = []
            for one in counts:
                told = RefusedElsewhere(
                    worker, one.what, one.reason, one.server, "", process, one.count, one.recorded
                )
                if (count := self._refused_elsewhere(told)) > one.recorded:
                    recorded.append(replace(one, count=count))
            return tuple(recorded)

        session.on_refused = on_refused
        session.on_code_refused = lambda why: self._refused_by(known, "code", why)
        known.current, known.boot, known.refused = session, process, ""
        session.confirm()

    def _refused_by(self, known: _Known, what: Literal["session", "code"], why: str) -> None:
        reason, server = excerpt(why, _WHY_CHARS), self._key.public.token
        self._refused_elsewhere(RefusedElsewhere(known.trusted, what, reason, server))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for known in self._known.values():
                for session in known.sessions:
                    if session.pending_jobs and not session.has_lease:
                        session.give_up()
            wanted = {one.place: one.bundled for waiting in self._queue.values() for one in waiting}
            for place, bundled in wanted.items():
                self._install(place, bundled)
            if self._queue:
                self._pump()


def _oversize(job: Job) -> list[str]:
    """The bodies of a job that its frame does not hold."""
    room, found = INLINE_BYTES, []
    for name, body in (("arguments", job.arguments), ("data", job.data)):
        size = len(body) if isinstance(body, bytes) else 0
        if size > room:
            found.append(name)
        else:
            room -= size
    return found


def _not_sent(job: Job, why: str) -> RunRefused:
    reason = f"Tool '{job.tool}' was not run: its arguments were not delivered: {why}"
    return RunRefused(Code.WORKER_UNAVAILABLE, reason, "Try again soon, or with smaller arguments.")
