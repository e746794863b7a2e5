"""The state of one call on its way through the stages of `pipeline`, and the resources it holds."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from toolkeep.audit.record_kinds import STAGES
from toolkeep.calls import (
    CheckedCall,
    PermittedCall,
    RanOn,
    RecordedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    ToolResult,
    refuse,
)
from toolkeep.errors import FAILURES, NOT_BEGUN, Code
from toolkeep.execution.admission import Slot
from toolkeep.execution.execute import Executor
from toolkeep.execution.idempotency import NO_CLAIM, Claim
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.keep.received_arguments import Received, received
from toolkeep.limits import KIB
from toolkeep.results.normalize import refused
from toolkeep.validation.parse import NotStrictJson, Snapshot


class Foreseen(msgspec.Struct, frozen=True):
    """A call of a response that was decided before its turn."""

    id: str
    """Of the call."""
    response: str
    prepared: ToolCall | Refusal | None = None
    """The request after the hooks of the host, if they ran."""
    permitted: PermittedCall | None = None


class CallState:
    """How far a call came."""

    __slots__ = (
        "argument_hash", "body", "checked", "claim", "executor", "is_begun", "is_labelled",
        "passed_ns", "permitted", "prepared", "ran_ns", "recorded", "request", "result_hash_before", "slot",
        "tool",
    )  # fmt: skip

    def __init__(self, request: ToolCall, found: RegisteredTool | None) -> None:
        self.request = request
        self.tool = found
        self.prepared: ToolCall | Refusal | None = None
        """The request after the hooks of the host, if they ran before."""
        self.checked: CheckedCall | None = None
        self.permitted: PermittedCall | None = None
        self.recorded: RecordedCall | None = None
        self.argument_hash = ""
        self.result_hash_before = ""
        self.body = b""
        """The checked output as canonical JSON, once there is one."""
        self.claim: Claim = NO_CLAIM
        self.is_begun = False
        """Whether its intent is in the log already."""
        self.is_labelled = True
        """Whether the labels of the tool describe its result."""
        self.executor: Executor | None = None
        """The executor that was asked to run it."""
        self.ran_ns = 0
        """When it was asked to, on the monotonic clock."""
        self.passed_ns: list[int] | None = []
        """When each stage ended, on the monotonic clock; None for the result of a client."""
        self.slot: Slot | None = None
        """Its concurrency slot, which knows what the run took."""

    @classmethod
    def going_on(cls, recorded: RecordedCall, claimed: Claim) -> "CallState":
        """The state of a call that was handed out to its client."""
        state = cls(recorded.request, recorded.tool)
        state.checked, state.permitted = recorded.checked, recorded.approved.permitted
        state.recorded, state.passed_ns = recorded, None
        state.argument_hash, state.claim, state.is_begun = recorded.argument_hash, claimed, True
        return state

    @property
    def shown_name(self) -> str:
        """The tool's name, if it exists: a name that a model invented must not become a metric label."""
        return self.tool.name if self.tool else "unknown"

    @property
    def ran_on(self) -> RanOn | None:
        """The worker elsewhere that ran it, if one did."""
        return self.slot.ran_on if self.slot is not None else None

    def passed(self) -> None:
        """Note that a stage ended, in the order of `STAGES`."""
        if self.passed_ns is not None:
            self.passed_ns.append(time.monotonic_ns())

    def stage_us(self) -> tuple[int, ...]:
        """How long each stage took, in microseconds, up to the one where the call is."""
        if self.passed_ns is None:
            return ()
        ends = self.passed_ns
        if len(ends) < len(STAGES):
            ends = [*ends, time.monotonic_ns()]
        return tuple((end - begin) // 1000 for begin, end in pairwise((self.request.began_ns, *ends)))

    def received(self) -> Received | None:
        """The arguments of a call that did not pass validation, as they may be kept."""
        return received(self.tool, self.request.arguments)

    @property
    def has_run(self) -> bool:
        """Whether the tool's code was run."""
        return self.executor is not None and self.recorded is not None

    def run_by(self, executor: Executor) -> Executor:
        """Note that an executor is asked to run it."""
        self.executor, self.ran_ns = executor, time.monotonic_ns()
        return executor

    def is_unrun(self, result: ToolResult) -> bool:
        """Whether nothing was run, as far as a result tells."""
        return self.recorded is None or result.code in NOT_BEGUN

    def let_go(self) -> None:
        """Close what the call held open."""
        if self.permitted is not None:
            for one in self.permitted.touched:
                one.close()

    async def settle(self, result: ToolResult) -> None:
        """Release the claim if nothing was run; else store the outcome of the call."""
        if self.claim is NO_CLAIM:
            return
        if self.recorded is None or self.is_unrun(result):
            await self.claim.release()
        elif result.status != "pending":
            keeps_value = not self.recorded.tool.arguments.secrecy.has_secrets
            await self.claim.finish(result, keeps_value=keeps_value)

    def refused(self, refusal: Refusal) -> ToolResult:
        """The result of a call that ends here; if its tool was run, says so."""
        isolation, enforced = _NOT_RUN
        if self.executor is not None and self.recorded is not None and refusal.code in _RAN:
            isolation, enforced = self.executor.confinement(self.recorded, self.slot)
        return refused(
            self.request,
            refusal,
            tool=self.tool,
            permitted=self.permitted,
            approval=self.recorded.approved.approval if self.recorded is not None else None,
            argument_hash=self.argument_hash,
            isolation=isolation,
            enforced=enforced,
            resource_use=self.slot.resource_use if self.slot is not None else None,
        )


_NOT_RUN: Final[tuple[str, tuple[str, ...]]] = ("", ())
_RAN: Final = FAILURES | {Code.NOT_RUNNABLE, Code.NOTHING_THERE}
"""After these the tool's code was run; an import that failed counts too."""

DATA_BYTES: Final = 64 * KIB
"""Every worker gets a copy: ids, flags and small settings, not documents."""
_DATA_DEPTH: Final = 20
"""As deep as a schema may be."""


def with_data(request: ToolCall, sealed: Callable[[bytes], str]) -> ToolCall | Refusal:
    """The request with its own copy of the host's per-call data, which the host may go on to change (DEF-14).

    It reaches no model, no policy and no record but as its HMAC: a tenant could be guessed from a plain hash.
    """
    if type(request.data) is not dict:
        return _data_refused(request, "is not a dict")
    try:
        data = Snapshot(request.data, depth=_DATA_DEPTH, values=DATA_BYTES).value
    except NotStrictJson as error:
        return _data_refused(request, f"is not JSON of at most {DATA_BYTES} bytes: {error.reason}")
    body = canonical_bytes(data)
    if len(body) > DATA_BYTES:
        return _data_refused(request, f"is longer than {DATA_BYTES} bytes")
    return replace(request, data=data, data_hash=sealed(body))


def _data_refused(request: ToolCall, why: str) -> Refusal:
    return refuse(request, Code.OPTION_REFUSED, f"data {why}", "Tell the operator.")
