"""The door of the log: intent before a call runs, outcome after it (AUD-1, AUD-3).

An `ApprovedCall` becomes a `RecordedCall` here and nowhere else. A call that may change the world, or whose
output is heard as it comes, does not start before its intent is durable; no result goes out before its
outcome is. Records hold hashes; what they hash lies beside the log, without secrets, or nowhere.
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

from toolkeep import clock
from toolkeep.audit.entry import Leaf
from toolkeep.audit.kinds import (
    ApprovalGiven,
    CapabilityCheck,
    PolicyDecision,
    Record,
    ServerAsked,
    ToolCompleted,
    ToolInvoked,
    written,
)
from toolkeep.calls import (
    ApprovedCall,
    CheckedCall,
    CheckedOutput,
    Decision,
    PermittedCall,
    RecordedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    ToolResult,
)
from toolkeep.canonical import canonical_bytes
from toolkeep.errors import Code, ToolkeepError
from toolkeep.limits import BODY_ARGUMENT_BYTES
from toolkeep.refusals import ran_unrecorded, refuse

log = logging.getLogger("toolkeep.audit")


class Log(Protocol):
    """Where records become durable."""

    def append_soon(self, *records: bytes, is_alone: bool = False) -> Awaitable[Leaf]:
        """Append canonical records next to each other; where the last one stands, when they are durable.

        What happened is recorded even if nobody waits for it any more. `is_alone` says that nobody else is
        about to append.
        """


class Bodies(Protocol):
    """Where arguments and results are kept, by their hash."""

    def put_later(self, digest: str, body: bytes) -> None:
        """Keep a body soon; nobody waits for it."""


class Trail(Protocol):
    """How far a call came."""

    @property
    def request(self) -> ToolCall:
        """The call as it was asked for."""

    @property
    def tool(self) -> RegisteredTool | None:
        """The tool, where there is one."""

    @property
    def checked(self) -> CheckedCall | None:
        """The call with valid arguments."""

    @property
    def permitted(self) -> PermittedCall | None:
        """The call after policy."""

    @property
    def recorded(self) -> RecordedCall | None:
        """The call that could be run."""

    @property
    def is_begun(self) -> bool:
        """Whether the log has its intent already."""


class HashedArguments(msgspec.Struct, frozen=True, gc=False):
    """The arguments of a call as the log names and keeps them."""

    hash: str
    body: bytes


class Recorder:
    """Writes what happens to calls."""

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
        """The canonical arguments and their hash, each secret replaced by its HMAC under a key of the keep.

        Worked out before the tool runs: it may change what it is given.
        """
        secrecy = checked.registered.arguments.secrecy
        arguments = checked.arguments
        if secrecy.has_secrets:
            arguments = secrecy.replace(arguments, self._stand_in)
        body = canonical_bytes(arguments)
        return HashedArguments(hash=hashlib.sha256(body).hexdigest(), body=body)

    def _stand_in(self, secret: Any) -> dict[str, str]:
        digest = hmac.new(self._secret_key(), canonical_bytes(secret), hashlib.sha256).hexdigest()
        return {"hmac": digest}

    async def intent(
        self, call: ApprovedCall, *, arguments: HashedArguments, deadline_s: float, output_bytes: int
    ) -> RecordedCall | Refusal:
        """The call, ready to be executed; its intent is durable first where that is due."""
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
            began_at=permitted.decision.decided_at,
            has_arguments=self._keeps_arguments(permitted.checked, arguments),
        )
        if permitted.is_recorded_first:
            try:
                await self._append(_beginning(recorded), may_be_alone=True)
            except ToolkeepError as error:
                return _unrecorded(recorded.request, error)
        return recorded

    def asked(self, record: ServerAsked) -> "asyncio.Future[Leaf]":
        """Append what a server wanted during a call: it has its place now, and is durable once awaited."""
        try:
            appended: asyncio.Future[Leaf] = asyncio.ensure_future(self._append([record], may_be_alone=False))
        except ToolkeepError as error:
            appended = asyncio.get_running_loop().create_future()
            appended.set_exception(error)
        appended.add_done_callback(lambda done: done.cancelled() or done.exception())
        return appended

    async def outcome(self, result: ToolResult, trail: Trail) -> ToolResult:
        """The result with its place in the log; an error in its place where that cannot be written."""
        try:
            # A call that ran nothing gave way to nobody yet: it takes its turn with the others.
            has_run = trail.recorded is not None and not result.is_cached
            leaf = await self._append(self._chain(result, trail), may_be_alone=has_run)
        except ToolkeepError as error:
            ran = trail.recorded is not None and not result.is_repeated
            refusal = _unrecorded_outcome(trail, error) if ran else _unrecorded(trail.request, error)
            return replace(result, status="error", value=None, error=refusal, hash="")
        # A repeated result keeps its own place: the receipt is that of the call that ran.
        return result if result.is_repeated else replace(result, leaf=leaf.index)

    def _chain(self, result: ToolResult, trail: Trail) -> list[Record]:
        """What the log does not have yet of the call, up to where it ended (AUD-1)."""
        if trail.is_begun:
            return [self._completed(result)]
        if trail.recorded is not None:
            return [*_beginning(trail.recorded), self._completed(result)]
        if trail.checked is None:
            return [_ended(self._invoked(trail, result.argument_hash), result)]
        if result.is_repeated:
            invoked = self._invoked(trail, result.argument_hash)
            return [replace(invoked, status="repeated", repeats=result.call_id)]
        chain = self._decided(trail, trail.checked, result)
        if result.code in _NOT_APPROVED:
            denied_by = result.error.denied_by if result.error else ""
            call = trail.request.id
            chain.append(ApprovalGiven(time=self._now(), call=call, approver=denied_by, way="refused", id=""))
        return [*chain[:-1], _ended(chain[-1], result)]

    def _decided(self, trail: Trail, checked: CheckedCall, result: ToolResult) -> list[Record]:
        """A call that policy looked at, and that was not run; other policies can be tried on it (POL-5)."""
        argument_hash, kept = result.argument_hash, False
        if not checked.registered.arguments.secrecy.has_secrets:  # else the key may be what could not be read
            arguments = self.hashed(checked)
            argument_hash, kept = arguments.hash, self._keeps_arguments(checked, arguments)
        required = () if trail.tool is None else trail.tool.capability_names
        now, call = self._now(), trail.request.id
        return [
            replace(self._invoked(trail, argument_hash), has_arguments=kept),
            CapabilityCheck(time=now, call=call, required=required),
            _decision(result.decision, now, call),
        ]

    def _append(self, records: Sequence[Record], *, may_be_alone: bool) -> Awaitable[Leaf]:
        return self._log.append_soon(*map(written, records), is_alone=may_be_alone and self._is_alone())

    def _keeps_arguments(self, checked: CheckedCall, arguments: HashedArguments) -> bool:
        """Keep the arguments under their hash, unless they hold a secret or are too large."""
        has_secrets = checked.registered.arguments.secrecy.has_secrets
        if has_secrets or len(arguments.body) > BODY_ARGUMENT_BYTES:
            return False
        self._bodies.put_later(arguments.hash, arguments.body)
        return True

    def keep_result(self, output: CheckedOutput) -> None:
        """Keep a result beside the log, unless the tool has secrets, which it may give back.

        One that is longer than the caller gets is kept when it is cut.
        """
        call = output.raw.call
        is_cut = len(output.body) > call.output_bytes
        if not (is_cut or call.tool.arguments.secrecy.has_secrets or output.raw.is_cached):
            self._bodies.put_later(output.hash, output.body)

    def _invoked(self, trail: Trail, argument_hash: str) -> ToolInvoked:
        return _invoked(trail.request, trail.tool, argument_hash, self._now())

    def _completed(self, result: ToolResult) -> ToolCompleted:
        # Two by position: more than 15 by name go through a dict, which takes five times as long.
        return ToolCompleted(
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
            status=result.status,
            time=self._now(),
            tool=result.tool,
            version=result.version,
        )


_NOT_APPROVED = (Code.APPROVAL_NEEDED, Code.APPROVAL_DENIED)


def _beginning(recorded: RecordedCall) -> list[Record]:
    """A call that is about to run: ToolInvoked, CapabilityCheck, PolicyDecision, and Approval if any."""
    permitted = recorded.approved.permitted
    request, decision = permitted.request, permitted.decision
    now, call = recorded.began_at, request.id
    records: list[Record] = [
        _invoked(request, permitted.tool, recorded.argument_hash, now, has_arguments=recorded.has_arguments),
        CapabilityCheck(call=call, required=decision.capabilities, time=now),
        _decision(decision, now, call),
    ]
    if approval := recorded.approved.approval:
        records.append(
            ApprovalGiven(time=now, call=call, approver=approval.approver, way=approval.way, id=approval.id)
        )
    return records


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
        call=request.id,
        conversation=request.conversation,
        correlation_id=request.correlation_id,
        definition_hash=tool.definition_hash if tool else "",
        has_arguments=has_arguments,
        session=request.session,
        time=time,
        tool=tool.name if tool else request.tool,
        version=tool.version if tool else "",
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
        spared_by=decision.spared_by,
        time=time,
        touches=decision.touches,
    )


def _ended(record: Record, result: ToolResult) -> Record:
    """The last record of a call that was not run: it says why."""
    return replace(record, status=result.status, codes=_codes(result))


def _codes(result: ToolResult) -> tuple[str, ...]:
    return tuple(error.code.value for error in result.error.errors) if result.error else ()


def _unrecorded(request: ToolCall, error: ToolkeepError) -> Refusal:
    log.error("a call was not recorded", extra={"error_code": error.code.value, "reason": error.message})
    message = f"The call could not be recorded ({type(error).__name__}); nothing was run"
    return refuse(request, Code.NOT_RECORDED, message, "Tell the operator.")


def _unrecorded_outcome(trail: Trail, error: ToolkeepError) -> Refusal:
    log.error("a call was not recorded", extra={"error_code": error.code.value, "reason": error.message})
    return ran_unrecorded(trail.request, type(error).__name__)
