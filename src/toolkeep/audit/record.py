"""The door of the log: intent before a call runs, outcome after it (AUD-1, AUD-3).

An `ApprovedCall` becomes a `RecordedCall` here and nowhere else. A call that may change the world does not
start before its intent is durable; no result goes out before its outcome is. Records hold hashes; what they
hash lies beside the log, without secrets, or nowhere.
"""

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec
import orjson

from toolkeep.audit.entry import Leaf
from toolkeep.calls import (
    ApprovedCall,
    CheckedCall,
    CheckedOutput,
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
from toolkeep.refusals import refuse

log = logging.getLogger("toolkeep.audit")

Record = dict[str, Any]


class Log(Protocol):
    """Where records become durable."""

    def append_soon(self, *records: bytes) -> Awaitable[Leaf]:
        """Append canonical records next to each other; where the last one stands, when they are durable.

        What happened is recorded even if nobody waits for it any more.
        """


class Bodies(Protocol):
    """Where arguments and results are kept, by their hash."""

    def put_later(self, digest: str, body: bytes) -> None:
        """Keep a body soon; nobody waits for it."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


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


class HashedArguments(NamedTuple):
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
        now: Callable[[], str] = _now,
    ) -> None:
        self._log = log
        self._bodies = bodies
        self._secret_key = secret_key
        self._now = now

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
        """The call, ready to be executed; its intent is durable first if it may change the world."""
        recorded = RecordedCall(
            approved=call,
            argument_hash=arguments.hash,
            deadline_s=deadline_s,
            output_bytes=output_bytes,
            began_at=call.permitted.decision.decided_at,
            has_arguments=self._keeps_arguments(call.permitted.checked, arguments),
        )
        if may_write(recorded.tool):
            try:
                await self._append(self._beginning(recorded))
            except ToolkeepError as error:
                return _unrecorded(recorded.request, error, "nothing was run")
        return recorded

    async def outcome(self, result: ToolResult, trail: Trail) -> ToolResult:
        """The result with its place in the log; an error in its place where that cannot be written."""
        try:
            leaf = await self._append(self._chain(result, trail))
        except ToolkeepError as error:
            ran = trail.recorded is not None and not result.is_repeated
            what = "the tool ran, and what it did is not recorded" if ran else "nothing was run"
            refusal = _unrecorded(trail.request, error, what)
            return msgspec.structs.replace(result, status="error", value=None, error=refusal, hash="")
        # A repeated result keeps its own place: the receipt is that of the call that ran.
        return result if result.is_repeated else msgspec.structs.replace(result, leaf=leaf.index)

    def _chain(self, result: ToolResult, trail: Trail) -> list[Record]:
        """What the log does not have yet of the call, up to where it ended (AUD-1)."""
        decision = result.decision.to_dict() if result.decision else None
        if trail.is_begun:
            return [self._completed(result, decision)]
        if trail.recorded is not None:
            return [*self._beginning(trail.recorded), self._completed(result, decision)]
        if trail.checked is None:
            return [self._invoked(trail.request, trail.tool, result.argument_hash) | _end_of(result)]
        if result.is_repeated:
            again = {"status": "repeated", "repeats": result.call_id}
            return [self._invoked(trail.request, trail.tool, result.argument_hash) | again]
        chain = self._decided(trail, trail.checked, result, decision or {"decision": "deny"})
        if result.code in _NOT_APPROVED:
            denied_by = result.error.denied_by if result.error else ""
            here = {"time": self._now(), "call": trail.request.id}
            chain.append({"type": "Approval", **here, "approver": denied_by, "way": "refused", "id": ""})
        chain[-1] |= _end_of(result)
        return chain

    def _decided(
        self, trail: Trail, checked: CheckedCall, result: ToolResult, decision: Record
    ) -> list[Record]:
        """A call that policy looked at, and that was not run; other policies can be tried on it (POL-5)."""
        argument_hash, kept = result.argument_hash, False
        if not checked.registered.arguments.secrecy.has_secrets:  # else the key may be what could not be read
            arguments = self.hashed(checked)
            argument_hash, kept = arguments.hash, self._keeps_arguments(checked, arguments)
        definition = None if trail.tool is None else trail.tool.definition
        required = [] if definition is None else list(map(str, definition.capabilities))
        here = {"time": self._now(), "call": trail.request.id}
        return [
            {**self._invoked(trail.request, trail.tool, argument_hash), "has_arguments": kept},
            {"type": "CapabilityCheck", **here, "required": required, "verdict": _VERDICT},
            {"type": "PolicyDecision", **here, **decision},
        ]

    async def _append(self, records: Sequence[Record]) -> Leaf:
        return await self._log.append_soon(*map(_written, records))

    def _beginning(self, recorded: RecordedCall) -> list[Record]:
        """ToolInvoked, CapabilityCheck, PolicyDecision, and Approval where there was one."""
        permitted = recorded.approved.permitted
        request, decision = permitted.request, permitted.decision
        here = {"time": recorded.began_at, "call": request.id}
        invoked = self._invoked(request, permitted.tool, recorded.argument_hash, recorded.began_at)
        invoked["has_arguments"] = recorded.has_arguments
        records: list[Record] = [
            invoked,
            {
                "type": "CapabilityCheck",
                **here,
                "required": list(decision.capabilities),
                "verdict": _VERDICT,
            },
            {"type": "PolicyDecision", **here, **decision.to_dict()},
        ]
        if approval := recorded.approved.approval:
            records.append({"type": "Approval", **here, **approval.to_dict()})
        return records

    def _keeps_arguments(self, checked: CheckedCall, arguments: HashedArguments) -> bool:
        """Keep the arguments under their hash, unless they hold a secret or are too large."""
        has_secrets = checked.registered.arguments.secrecy.has_secrets
        if has_secrets or len(arguments.body) > BODY_ARGUMENT_BYTES:
            return False
        self._bodies.put_later(arguments.hash, arguments.body)
        return True

    def keep_result(self, output: CheckedOutput) -> None:
        """Keep a result beside the log, unless the tool has secrets, which it may give back."""
        if not output.raw.call.tool.arguments.secrecy.has_secrets and not output.raw.is_cached:
            self._bodies.put_later(output.hash, output.body)

    def _invoked(
        self, request: ToolCall, tool: RegisteredTool | None, argument_hash: str, time: str = ""
    ) -> Record:
        return {
            "type": "ToolInvoked",
            "time": time or self._now(),
            **_who(request),
            "tool": tool.name if tool else request.tool,
            "version": tool.version if tool else "",
            "definition_hash": tool.definition_hash if tool else "",
            "argument_hash": argument_hash,
        }

    def _completed(self, result: ToolResult, decision: Record | None) -> Record:
        """Everything that a receipt shows, in one record."""
        return {
            "type": "ToolCompleted",
            "time": self._now(),
            "call": result.call_id,
            "agent": result.agent,
            "tool": result.tool,
            "version": result.version,
            "definition_hash": result.definition_hash,
            "argument_hash": result.argument_hash,
            "decision": decision,
            "approval": result.approval.to_dict() if result.approval else None,
            "isolation": result.isolation,
            "enforced": list(result.enforced),
            "status": result.status,
            "codes": [error.code.value for error in result.error.errors] if result.error else [],
            "result_hash": result.hash,
            "is_cached": result.is_cached,
            "execute_us": int(result.execute_ms * 1000),
        }


_NOT_APPROVED = (Code.APPROVAL_NEEDED, Code.APPROVAL_DENIED)
_VERDICT = "required by the tool; enforced only by a sandbox that the result names"


def _written(record: Record) -> bytes:
    """The canonical form of a record of ours: its keys are ASCII; it has no float and no large integer."""
    try:
        return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return canonical_bytes(record)


def _end_of(result: ToolResult) -> Record:
    codes = [error.code.value for error in result.error.errors] if result.error else []
    return {"status": result.status, "codes": codes}


def may_write(tool: RegisteredTool) -> bool:
    """Whether a call may change the world; what is not declared is unknown, and counts (DEF-7)."""
    return tool.definition.side_effects is None or tool.definition.has_write_effects


def _who(request: ToolCall) -> dict[str, str]:
    return {
        "call": request.id,
        "agent": request.agent,
        "conversation": request.conversation,
        "session": request.session,
        "correlation_id": request.correlation_id,
    }


def _unrecorded(request: ToolCall, error: ToolkeepError, what: str) -> Refusal:
    log.error("a call was not recorded", extra={"error_code": error.code.value, "reason": error.message})
    return refuse(request, Code.NOT_RECORDED, f"The call could not be recorded; {what}", "Tell the operator.")
