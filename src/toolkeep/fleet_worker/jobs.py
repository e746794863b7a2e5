"""The jobs of a worker: takes them within its slots, runs them, and sends how they end."""

import asyncio
import logging
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from toolkeep.calls import RawOutput, Refusal, RegisteredTool, ToolCall
from toolkeep.config.fleet_settings import covers
from toolkeep.errors import FAILURES, NOT_BEGUN, TITLES, Code
from toolkeep.execution.code_identity import code_hash_of, isolation_of
from toolkeep.fleet.messages import (
    BUSY,
    DRAINING,
    NO_ARGUMENTS,
    NO_LEASE,
    NO_LEVEL,
    NOT_GRANTED,
    OTHER_CODE,
    UNKNOWN_TOOL,
    Answer,
    Claim,
    Failure,
    Install,
    InstallResult,
    Job,
    OutputChunk,
    Progress,
    StoredBody,
)
from toolkeep.fleet.object_store import INLINE_BYTES, BodyStore, NotDelivered
from toolkeep.fleet_worker.delivered_code import CodeRefused, DeliveredCode
from toolkeep.fleet_worker.server_session import ServerSession
from toolkeep.fleet_worker.worker_refusals import Refusals
from toolkeep.json_values.jsonable import NotData, TooMuch, to_json_body
from toolkeep.keep.decided_calls import DecidedCall
from toolkeep.keep.keep import Keep
from toolkeep.limits import MIB
from toolkeep.policy.policy_settings import Grant

log = logging.getLogger("toolkeep.fleet")

_INSTALLING: Final = 64
"""Tools that are installed at once."""
_DELIVER_SECONDS: Final = 30.0
"""How long a large result is tried to be stored, while the lease lasts."""
_WAITING_BYTES: Final = 256 * MIB
"""Results that are being stored without holding a slot: each slot could leave one of 100 MiB behind."""


class Jobs:
    """Jobs of all servers."""

    def __init__(
        self, keep: Keep, slots: int, levels: tuple[str, ...], bodies: BodyStore, refusals: Refusals
    ) -> None:
        self._keep = keep
        self._refusals = refusals
        self._bodies = bodies
        self._delivered = DeliveredCode(keep, levels)
        self._installing: dict[Claim, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._calls = keep.decided_calls()
        self._slots = slots
        self._levels = levels
        self._tasks: dict[tuple[bytes, str], asyncio.Task[None]] = {}
        self._delivering: dict[tuple[bytes, str], int] = {}
        """Bytes of the results that are being stored, of jobs that hold no slot any more."""
        self.is_draining = False

    def taken(self) -> int:
        """Slots that jobs hold."""
        return len(self._tasks) - len(self._delivering)

    @property
    def is_idle(self) -> bool:
        """Whether there is no job at all."""
        return not self._tasks

    def claims(self) -> tuple[Claim, ...]:
        """The tools that this worker has and can confine."""
        found = []
        for tool in self._keep.tools():
            code = code_hash_of(tool, self._keep.project)
            if code is not None and isolation_of(tool) in self._levels:
                found.append(Claim(tool.name, tool.definition_hash, code))
        return tuple(found)

    def install(self, session: ServerSession, request: Install) -> None:
        """Install a tool that a server sends, or say why not."""
        if not session.trusted.code or len(self._installing) >= _INSTALLING:
            why = "it may install no code" if not session.trusted.code else BUSY
            self._refusals.add("code", why, session.server)
            session.send(InstallResult(request.tool, why))
        elif request.tool not in self._installing:
            task = asyncio.ensure_future(self._install(session, request))
            self._installing[request.tool] = task
            task.add_done_callback(lambda _: self._installing.pop(request.tool, None))

    async def _install(self, session: ServerSession, request: Install) -> None:
        server, why = session.trusted, ""
        try:
            packed = await self._bodies.take(request.code)
            async with self._one_at_a_time:
                await asyncio.to_thread(self._delivered.install, server, request, packed)
        except (NotDelivered, CodeRefused) as error:
            why = str(error)
        except Exception:
            log.exception("code could not be installed", extra={"tool": request.tool.name})
            why = "the worker failed"
        if why:
            # Why is told to this server alone: it may name its files and what is installed here.
            self._refusals.add("code", "it was not installed", session.server)
            extra = {"server": server.name or server.key, "tool": request.tool.name, "why": why}
            log.warning("code of a server was refused", extra=extra)
        session.send(InstallResult(request.tool, why[:300]))

    def close(self) -> None:
        """Install no more code, and remove what was installed."""
        for task in self._installing.values():
            task.cancel()
        self._delivered.close()

    def begin(self, session: ServerSession, job: Job) -> None:
        """Run a job, or say why not."""
        tool = self._keep.try_get(job.tool)
        why, detail = self._objection(session, job, tool)
        if why or tool is None:
            if why not in (BUSY, DRAINING, NO_LEASE):
                server = session.trusted.name or session.trusted.key
                log.warning("a job was refused", extra={"server": server, "why": why, "detail": detail})
            session.refuse(job.id, why, detail)
            return
        task = asyncio.ensure_future(self._run(session, job, tool))
        self._tasks[session.id, job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop((session.id, job.id), None))

    def _objection(self, session: ServerSession, job: Job, tool: RegisteredTool | None) -> tuple[str, str]:
        trusted = session.trusted
        if not session.has_lease:
            return NO_LEASE, ""
        if self.is_draining:
            return DRAINING, ""
        if self.taken() >= self._slots:
            return BUSY, ""
        if tool is None or not tool.is_enabled or tool.definition_hash != job.definition_hash:
            return UNKNOWN_TOOL, job.tool
        if code_hash_of(tool, self._keep.project) != job.code_hash:
            return OTHER_CODE, job.tool
        if isolation_of(tool) != job.level or job.level not in self._levels:
            return NO_LEVEL, job.level
        if not covers(trusted.tools, job.tool) or not covers(trusted.agents, job.agent):
            return NOT_GRANTED, f"{job.tool} for {job.agent}"
        return "", ""

    def end(self, session: ServerSession, job_id: str) -> None:
        """Cancel a job."""
        if (task := self._tasks.get((session.id, job_id))) is not None:
            task.cancel()

    def end_all(self, session: ServerSession) -> None:
        """Cancel every job of a session: its lease is over."""
        for job_id in list(session.running):
            self.end(session, job_id)

    async def settle(self) -> None:
        """Wait for what runs."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _run(self, session: ServerSession, job: Job, tool: RegisteredTool) -> None:
        try:
            arguments, data = await self._body(job.arguments), await self._body(job.data)
            with _span(job):
                outcome = await self._calls.run(self._decided(session, job, tool, arguments, data))
            if isinstance(outcome, Refusal) and outcome.code not in FAILURES | NOT_BEGUN:
                # Arguments or a grant that no honest server sends: it decided about the same definition.
                self._refusals.add("job", TITLES[outcome.code], session.server)
            answer = await self._fitted(self._answer(job, outcome), tool, session)
        except _NoArguments as error:
            self._tasks.pop((session.id, job.id), None)
            session.refuse(job.id, NO_ARGUMENTS, str(error))
            return
        except asyncio.CancelledError:
            answer = self._failed(job, Failure("", "", is_cancelled=True))
        except Exception:
            log.exception("a job failed", extra={"job": job.id})
            self._refusals.add("job", "it cannot be run", session.server)
            answer = self._failed(job, Failure("", "The worker failed", is_unexplained=True))
        self._tasks.pop((session.id, job.id), None)
        session.finish(answer)

    async def _body(self, body: bytes | StoredBody) -> bytes:
        """What the object store may have; raises `_NoArguments`."""
        if not isinstance(body, StoredBody):
            return body
        try:
            return await self._bodies.take(body)
        except NotDelivered as error:
            raise _NoArguments(str(error)) from error

    async def _fitted(self, answer: Answer, tool: RegisteredTool, session: ServerSession) -> Answer:
        """The answer as a frame holds it: a large result goes through the object store."""
        body = answer.body
        if isinstance(body, StoredBody) or len(body) <= INLINE_BYTES:
            return answer
        key = (session.id, answer.id)
        if sum(self._delivering.values()) + len(body) <= _WAITING_BYTES:
            self._delivering[key] = len(body)
            session.deliver(answer.id)
        try:
            return replace(answer, body=await self._bodies.put(body, patience_s=_DELIVER_SECONDS))
        except NotDelivered as error:
            reason = f"Tool '{tool.name}' ran, but its result of {len(body)} bytes was not delivered: {error}"
            next_step = "Find out what it did before you call again." if tool.may_write else "Call it again."
            failure = Failure(Code.OUTCOME_UNKNOWN.value, reason, next_step)
            return replace(answer, body=b"", is_bytes=False, failure=failure)
        finally:
            self._delivering.pop(key, None)

    def _decided(
        self, session: ServerSession, job: Job, tool: RegisteredTool, arguments: bytes, data: bytes
    ) -> DecidedCall:
        call_id = job.id.rpartition(".")[0]

        def on_progress(done: float, total: float | None, message: str) -> None:
            session.send(Progress(job.id, done, total, message))

        def on_output(chunk: Any) -> None:
            body = to_json_body(chunk)
            if len(body) <= INLINE_BYTES:  # a larger one comes with the result alone
                session.send(OutputChunk(job.id, body))

        request = ToolCall(
            id=call_id,
            tool=job.tool,
            arguments=arguments.decode(),
            agent=job.agent,
            conversation=job.conversation,
            session=job.session,
            correlation_id=job.correlation_id,
            data=msgspec.json.decode(data) if data else {},
            on_progress=on_progress if job.wants_progress else None,
            on_output=on_output if job.wants_output else None,
        )
        return DecidedCall(
            request=request,
            tool=tool,
            grant=_grant(job.capabilities, job.permissions),
            ceiling=Grant(capabilities=session.trusted.capabilities, permissions=job.permissions),
            deadline_s=job.deadline_ms / 1000,
            output_bytes=job.output_bytes,
            secrets=job.secrets,
        )

    def _answer(self, job: Job, outcome: RawOutput | Refusal) -> Answer:
        if isinstance(outcome, Refusal):
            return self._failed(job, _failure(outcome))
        is_bytes = isinstance(outcome.value, bytes)
        try:
            body = outcome.value if is_bytes else to_json_body(outcome.value)
        except (NotData, TooMuch) as error:
            return self._failed(job, Failure("ACODE-TSR-035", f"Tool '{job.tool}' returned no data: {error}"))
        used = outcome.resource_use
        return Answer(
            job.id,
            outcome.isolation,
            outcome.enforced,
            body,
            is_bytes,
            None,
            (used.cpu_ms or 0.0) if used else 0.0,
            used.peak_memory_bytes if used else None,
        )

    def _failed(self, job: Job, failure: Failure) -> Answer:
        return Answer(job.id, "", (), failure=failure)


@lru_cache(maxsize=1_000)
def _grant(capabilities: tuple[str, ...], permissions: tuple[str, ...]) -> Grant:
    return Grant.read(capabilities=capabilities, permissions=permissions)


def _span(job: Job) -> AbstractContextManager[None]:
    """A span in the trace that the job belongs to, where OpenTelemetry is installed."""
    if not job.trace or find_spec("opentelemetry") is None:
        return nullcontext()
    from toolkeep.telemetry.spans import worker_span

    return worker_span(job.trace, job.tool, job.id.rpartition(".")[0])


class _NoArguments(Exception):
    """Arguments in the object store are not to be had, so nothing ran."""


def _failure(refusal: Refusal) -> Failure:
    first, diagnosis = refusal.errors[0], refusal.diagnosis
    return Failure(
        code=first.code.value,
        reason=first.message,
        suggestion=first.suggestion,
        path=first.path,
        denied=diagnosis.denied.value if diagnosis and diagnosis.denied else "",
        subject=diagnosis.subject if diagnosis else "",
        limit=diagnosis.limit if diagnosis else "",
        remedy=diagnosis.remedy if diagnosis else "",
        detail=diagnosis.detail if diagnosis else "",
    )
