"""Audit stage: records the intent before a call runs and the outcome after it (AUD-1, AUD-3).

An `ApprovedCall` becomes a `RecordedCall` here and nowhere else. A call that may have write effects, or
streams its output, starts only after its intent is durable (write-ahead): otherwise a crash could leave an
effect without a record. No result is returned before its outcome is durable. Records hold hashes; the hashed
bodies lie beside the log, and never contain secrets.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from toolkeep.audit.entry import Leaf
from toolkeep.audit.kept_refusal import kept_body, kept_of
from toolkeep.audit.record_kinds import (
    ApprovalGiven,
    CapabilityCheck,
    PolicyDecision,
    RanElsewhere,
    Record,
    ToolCompleted,
    ToolInvoked,
    written,
)
from toolkeep.calls import (
    Approval,
    ApprovedCall,
    CheckedCall,
    CheckedOutput,
    Decision,
    PermittedCall,
    RanOn,
    RecordedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    ToolResult,
    Waited,
    ran_unrecorded,
    refuse,
)
from toolkeep.errors import Code, ToolkeepError
from toolkeep.host import clock
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import BODY_ARGUMENT_BYTES

log = logging.getLogger("toolkeep.audit")


class Log(Protocol):
    """The append-only audit log."""

    def append_soon(self, *records: bytes, is_alone: bool = False) -> Awaitable[Leaf]:
        """Append canonical records contiguously.

        Resolves to the position of the last one once they are durable.

        The records are written even if the awaiting task is cancelled. `is_alone` says that no other append
        is imminent, so the log need not wait to group them.
        """


class Bodies(Protocol):
    """Content-addressed store of arguments and results."""

    def put_later(self, digest: str, body: bytes, *, refused_by: str = "") -> None:
        """Store a body in the background; of a refused or failed call with its agent, for a while."""


class ReceivedArguments(Protocol):
    """Arguments that were not found valid, as they may be kept."""

    @property
    def value(self) -> Any:
        """JSON data without what may be secret."""

    @property
    def is_whole(self) -> bool:
        """Whether it is exactly what was sent."""


class CallProgress(Protocol):
    """The stages that a call has passed."""

    @property
    def request(self) -> ToolCall:
        """The call as requested."""

    @property
    def tool(self) -> RegisteredTool | None:
        """The resolved tool, if any."""

    @property
    def checked(self) -> CheckedCall | None:
        """The call after validation."""

    @property
    def permitted(self) -> PermittedCall | None:
        """The call after authorization."""

    @property
    def recorded(self) -> RecordedCall | None:
        """The call after recording its intent."""

    @property
    def is_begun(self) -> bool:
        """Whether the intent is in the log already."""

    @property
    def ran_on(self) -> RanOn | None:
        """The worker elsewhere that ran it, if one did."""

    def stage_us(self) -> tuple[int, ...]:
        """How long each stage took, in microseconds, up to the one where the call is."""

    def received(self) -> ReceivedArguments | None:
        """The arguments of a call that did not pass validation, as they may be kept."""

    @property
    def result_hash_before(self) -> str:
        """Hash of the output that hooks of the host were given; empty if there was no hook."""


class HashedArguments(msgspec.Struct, frozen=True, gc=False):
    """Canonical arguments (RFC 8785) and their hash."""

    hash: str
    body: bytes


class Recorder:
    """Writes the audit records of calls."""

    def __init__(
        self,
        log: Log,
        bodies: Bodies,
        secret_key: Callable[[], bytes],
        *,
        now: Callable[[], str] = clock.now,
        is_alone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._log = log
        self._bodies = bodies
        self._secret_key = secret_key
        self._now = now
        self._is_alone = is_alone

    def hashed(self, checked: CheckedCall) -> HashedArguments:
        """Canonical arguments and their hash, with each secret replaced by its HMAC under a key of the keep.

        HMAC, not a plain hash: a short secret could be guessed from its hash by anyone who reads the log.
        Computed before the tool runs, because the tool may modify its arguments.
        """
        secrecy = checked.registered.arguments.secrecy
        arguments = checked.arguments
        # Only for tools with secrets: the others pay for no copy.
        if secrecy.has_secrets:
            arguments = secrecy.replace(arguments, self._hmac_of)
        body = canonical_bytes(arguments)
        return HashedArguments(hash=hashlib.sha256(body).hexdigest(), body=body)

    def sealed(self, body: bytes) -> str:
        """HMAC under a key of the keep."""
        return hmac.new(self._secret_key(), body, hashlib.sha256).hexdigest()

    def _hmac_of(self, secret: Any) -> dict[str, str]:
        return {"hmac": self.sealed(canonical_bytes(secret))}

    async def intent(
        self, call: ApprovedCall, *, arguments: HashedArguments, deadline_s: float, output_bytes: int
    ) -> RecordedCall | Refusal:
        """Record the intent if the call may have effects, and return the call ready for execution."""
        permitted = call.permitted
        recorded = RecordedCall(
            request=permitted.request,
            checked=permitted.checked,
            tool=permitted.tool,
            approved=call,
            argument_hash=arguments.hash,
            argument_bytes=len(arguments.body),
            deadline_s=deadline_s,
            output_bytes=output_bytes,
            # The time of the decision, not of this line: the intent describes the moment that policy judged.
            began_at=permitted.decision.decided_at,
            has_arguments=self._keeps_arguments(permitted.request, permitted.checked, arguments),
        )
        # A read-only call has intent and outcome written together afterwards: one sync instead of two. A
        # crash in between loses a record of something that changed nothing.
        if permitted.is_recorded_first:
            try:
                await self._append(_intent_records(recorded), may_be_alone=True)
            # Fail closed: what cannot be recorded does not run.
            except ToolkeepError as error:
                return _unrecorded(recorded.request, error)
        return recorded

    def note(self, record: Record) -> "asyncio.Future[Leaf]":
        """Record what happens beside the stages of a call: ordered now, durable once awaited."""
        try:
            appended: asyncio.Future[Leaf] = asyncio.ensure_future(self._append([record], may_be_alone=False))
        except ToolkeepError as error:
            appended = asyncio.get_running_loop().create_future()
            appended.set_exception(error)
        # Retrieves the exception, so that asyncio does not report it as never retrieved if nobody awaits.
        appended.add_done_callback(lambda done: done.cancelled() or done.exception())
        return appended

    async def outcome(self, result: ToolResult, trail: CallProgress) -> ToolResult:
        """Record the outcome; returns the result with its log index, or an error if it cannot be written."""
        try:
            # A call that ran nothing has not yielded to the event loop yet: let its record be grouped with
            # others.
            has_run = trail.recorded is not None and not result.is_cached
            leaf = await self._append(self._missing_records(result, trail), may_be_alone=has_run)
        except ToolkeepError as error:
            # The caller must learn whether the tool ran: "nothing was run" invites a retry, which would run
            # it twice.
            ran = trail.recorded is not None and not result.is_repeated
            refusal = _unrecorded_outcome(trail, error) if ran else _unrecorded(trail.request, error)
            # The value is withheld: a result that nobody can audit must not reach the model.
            return replace(result, status="error", value=None, raw=None, error=refusal, hash="")
        # An idempotent repeat keeps the original index: its receipt proves the call that ran.
        return result if result.is_repeated else replace(result, leaf=leaf.index)

    def _missing_records(self, result: ToolResult, trail: CallProgress) -> list[Record]:
        """The records of the call that the log does not have yet, up to the stage where it ended (AUD-1)."""
        if trail.is_begun:
            return [*self._run_elsewhere(trail), self._completed(result, trail)]
        if trail.recorded is not None:
            ran = self._run_elsewhere(trail)
            return [*_intent_records(trail.recorded), *ran, self._completed(result, trail)]
        # Refused by validation: no policy was evaluated, so there is no decision to record.
        if trail.checked is None:
            last = _final_record(self._invoked(trail, result.argument_hash), result, trail)
            return [self._explained(last, result, trail)]
        if result.is_repeated:
            invoked = self._invoked(trail, result.argument_hash)
            return [replace(invoked, status="repeated", repeats=result.call_id)]
        chain = self._decided(trail, trail.checked, result)
        # A denial by a person is an audited act like an approval.
        if result.code in _NOT_APPROVED:
            chain.append(_refused_approval(result.error, self._now(), trail.request.id))
        return [*chain[:-1], self._explained(_final_record(chain[-1], result, trail), result, trail)]

    def _explained(self, record: Record, result: ToolResult, trail: CallProgress) -> Record:
        """The record, with the hash of why the call was refused or failed."""
        if result.error is None:
            return record
        return replace(record, diagnosis_hash=self._keep_refusal(result.error, trail))

    def _run_elsewhere(self, trail: CallProgress) -> tuple[Record, ...]:
        if (ran := trail.ran_on) is None:
            return ()
        return (
            RanElsewhere(
                answer_hash=ran.answer_hash,
                call=trail.request.id,
                enforced=ran.enforced,
                isolation=ran.isolation,
                key=ran.key,
                session=ran.session,
                time=self._now(),
                worker=ran.worker,
            ),
        )

    def _decided(self, trail: CallProgress, checked: CheckedCall, result: ToolResult) -> list[Record]:
        """A call that was authorized or denied but not run.

        It can be replayed against other policies (POL-5).
        """
        argument_hash, kept = result.argument_hash, False
        if not checked.registered.arguments.secrecy.has_secrets:  # the HMAC key itself may be unreadable
            arguments, agent = self.hashed(checked), trail.request.agent
            argument_hash, kept = (
                arguments.hash,
                self._keeps_arguments(trail.request, checked, arguments, refused_by=agent),
            )
        required = () if trail.tool is None else trail.tool.capability_names
        now, call = self._now(), trail.request.id
        return [
            _invoked(trail.request, trail.tool, argument_hash, now, has_arguments=kept),
            CapabilityCheck(time=now, call=call, required=required),
            _decision(result.decision, now, call),
        ]

    def _append(self, records: Sequence[Record], *, may_be_alone: bool) -> Awaitable[Leaf]:
        return self._log.append_soon(*map(written, records), is_alone=may_be_alone and self._is_alone())

    def _keeps_arguments(
        self, request: ToolCall, checked: CheckedCall, arguments: HashedArguments, *, refused_by: str = ""
    ) -> bool:
        """Store the arguments by hash, unless they hold a secret or are too large."""
        has_secrets = checked.registered.arguments.secrecy.has_secrets
        if has_secrets or len(arguments.body) > BODY_ARGUMENT_BYTES:
            return False
        self._bodies.put_later(arguments.hash, arguments.body, refused_by=refused_by)
        if request.written:
            self._bodies.put_later(request.written_hash, request.written, refused_by=refused_by)
        return True

    def keep_result(self, output: CheckedOutput) -> None:
        """Store a result beside the log, unless the tool has secrets: it may echo them.

        A result longer than the output limit is stored when it is truncated.
        """
        call = output.raw.call
        is_cut = len(output.body) > call.output_bytes
        if not (is_cut or call.tool.arguments.secrecy.has_secrets or output.raw.is_cached):
            self._bodies.put_later(output.hash, output.body)

    def _invoked(self, trail: CallProgress, argument_hash: str) -> ToolInvoked:
        return _invoked(trail.request, trail.tool, argument_hash, self._now())

    def _completed(self, result: ToolResult, trail: CallProgress) -> ToolCompleted:
        # Two by position: with more than 15 keyword arguments CPython builds a dict, five times as slow.
        completed = ToolCompleted(
            result.agent,
            result.approval,
            argument_hash=result.argument_hash,
            call=result.call_id,
            codes=_codes(result),
            decision=result.decision,
            definition_hash=result.definition_hash,
            enforced=result.enforced,
            execute_us=int(result.execute_ms * 1000),
            is_cached=result.is_cached,
            isolation=result.isolation,
            result_hash=result.hash,
            stage_us=trail.stage_us(),
            status=result.status,
            time=self._now(),
            tool=result.tool,
            version=result.version,
        )
        if result.error is not None:
            completed = replace(completed, diagnosis_hash=self._keep_refusal(result.error, trail))
        before = trail.result_hash_before
        return replace(completed, result_hash_before=before) if before else completed

    def _keep_refusal(self, refusal: Refusal, trail: CallProgress) -> str:
        """Store why a call was refused or failed beside the log; its hash, or empty if it is not stored.

        Not of a tool with secrets that may have run: it may print one in a form that redaction does not find.
        """
        has_secrets = trail.tool is not None and trail.tool.arguments.secrecy.has_secrets
        if has_secrets and trail.recorded is not None:
            return ""
        is_invalid = trail.checked is None
        hides_values = has_secrets and is_invalid
        sent = trail.received() if is_invalid else None
        body = kept_body(
            kept_of(
                refusal,
                hides_values=hides_values,
                received=None if sent is None else sent.value,
                is_whole=sent is not None and sent.is_whole,
            )
        )
        digest = hashlib.sha256(body).hexdigest()
        self._bodies.put_later(digest, body, refused_by=trail.request.agent or "unnamed")
        return digest


_NOT_APPROVED = (Code.APPROVAL_NEEDED, Code.APPROVAL_DENIED)


def _intent_records(recorded: RecordedCall) -> list[Record]:
    """Intent records of a call: ToolInvoked, CapabilityCheck, PolicyDecision, and Approval if any."""
    permitted = recorded.approved.permitted
    request, decision = permitted.request, permitted.decision
    now, call = recorded.began_at, request.id
    records: list[Record] = [
        _invoked(request, permitted.tool, recorded.argument_hash, now, has_arguments=recorded.has_arguments),
        CapabilityCheck(call=call, required=decision.capabilities, time=now),
        _decision(decision, now, call),
    ]
    if approval := recorded.approved.approval:
        records.append(_approval(approval, recorded.approved.waited, now, call))
    return records


def _refused_approval(error: Refusal | None, time: str, call: str) -> ApprovalGiven:
    if error is None:
        return _approval(Approval(approver="", way="refused"), None, time, call)
    approval = Approval(
        approver=error.denied_by,
        id=error.waited.id if error.waited else "",
        identity=error.denied_identity or UNSET,
        way="refused",
    )
    return _approval(approval, error.waited, time, call)


def _approval(approval: Approval, waited: Waited | None, time: str, call: str) -> ApprovalGiven:
    return ApprovalGiven(
        approver=approval.approver,
        asked_at=clock.stamp(waited.asked_at) if waited else UNSET,
        call=call,
        id=approval.id,
        identity=approval.identity,
        time=time,
        waited_ms=waited.waited_ms if waited else UNSET,
        way=approval.way,
    )


def _invoked(
    request: ToolCall,
    tool: RegisteredTool | None,
    argument_hash: str,
    time: str,
    *,
    has_arguments: bool | UnsetType = UNSET,
) -> ToolInvoked:
    return ToolInvoked(
        agent=request.agent,
        argument_hash=argument_hash,
        argument_hash_before=request.argument_hash_before or UNSET,
        call=request.id,
        conversation=request.conversation,
        correlation_id=request.correlation_id,
        data_hash=request.data_hash or UNSET,
        definition_hash=tool.definition_hash if tool else "",
        has_arguments=has_arguments,
        identity=request.identity or UNSET,
        references=request.references or UNSET,
        session=request.session,
        time=time,
        tool=tool.name if tool else request.tool,
        version=tool.version if tool else "",
        written_hash=request.written_hash or UNSET,
    )


def _decision(decision: Decision | None, time: str, call: str) -> PolicyDecision:
    if decision is None:
        return PolicyDecision(time=time, call=call, decision="deny")
    return PolicyDecision(
        call=call,
        capabilities=decision.capabilities,
        decided_at=decision.decided_at,
        decision=decision.decision,
        policies=decision.policies,
        policy_set_hash=decision.policy_set_hash,
        request_hash=decision.request_hash,
        shadow=decision.shadow,
        spared_by=decision.spared_by,
        asked_by=decision.asked_by,
        flow=decision.flow,
        time=time,
        touches=decision.touches,
    )


def _final_record(record: Record, result: ToolResult, trail: CallProgress) -> Record:
    """The final record of a call that was not run, with the reason."""
    return replace(record, status=result.status, codes=_codes(result), stage_us=trail.stage_us())


def _codes(result: ToolResult) -> tuple[str, ...]:
    return tuple(error.code.value for error in result.error.errors) if result.error else ()


def _unrecorded(request: ToolCall, error: ToolkeepError) -> Refusal:
    _log_unrecorded(error)
    message = f"The call could not be recorded ({type(error).__name__}); nothing was run"
    return refuse(request, Code.NOT_RECORDED, message, "Tell the operator.")


def _unrecorded_outcome(trail: CallProgress, error: ToolkeepError) -> Refusal:
    _log_unrecorded(error)
    return ran_unrecorded(trail.request, type(error).__name__)


def _log_unrecorded(error: ToolkeepError) -> None:
    fields = {"error_code": error.code.value, "reason": error.message, "hint": error.hint}
    log.error("a call was not recorded: %(error_code)s %(reason)s (%(hint)s)", fields, extra=fields)
