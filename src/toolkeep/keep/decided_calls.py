"""Runs a call that a server elsewhere has decided and recorded (SCL-3).

Its arguments are validated again, and what it touches is resolved on this machine, inside what the server
grants and what this machine lets that server ask for. Policies of this machine apply, too. Nobody is asked
and nothing is recorded here: both were done.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from toolkeep.calls import (
    ApprovedCall,
    PermittedCall,
    RawOutput,
    RecordedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
)
from toolkeep.execution.admission import Admission, Slot
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import DEFAULT_CALL_LIMITS
from toolkeep.policy.policy_settings import Grant
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

if TYPE_CHECKING:
    from toolkeep.execution.execute import Executor
    from toolkeep.policy.authorize import Authorizer

_AGENTS: Final = 1_000
"""Agents with their grants that are known at once."""


class DecidedCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A call as a server sends it."""

    request: ToolCall
    tool: RegisteredTool
    grant: Grant
    """What the server grants the agent."""
    ceiling: Grant
    """The most that this machine lets the server grant."""
    deadline_s: float
    output_bytes: int
    secrets: Mapping[str, str] = {}


class DecidedCalls:
    """Runs them, one keep's."""

    def __init__(self, authorizer: "Authorizer", executor: "Executor") -> None:
        self._authorizer = authorizer
        self._executor = executor
        self._slots = Admission(DEFAULT_CALL_LIMITS)
        self._agents: OrderedDict[str, None] = OrderedDict()

    async def run(self, call: DecidedCall) -> RawOutput | Refusal:
        """Run one; a refusal says why not, or how it failed."""
        permitted = self._permitted(call)
        if isinstance(permitted, Refusal):
            return permitted
        try:
            request, tool = permitted.request, call.tool
            constraints = tool.definition.constraints
            recorded = RecordedCall(
                request=request,
                checked=permitted.checked,
                tool=tool,
                approved=ApprovedCall(permitted=permitted),
                argument_hash="",
                argument_bytes=0,
                deadline_s=min(call.deadline_s, constraints.execution_seconds),
                output_bytes=min(call.output_bytes, constraints.output_bytes),
                began_at=permitted.decision.decided_at,
                has_arguments=False,
            )
            objection = self._executor.objection(recorded)
            if objection is not None:
                return objection
            return await self._executor.execute(recorded, Slot(self._slots, ()), call.secrets)
        finally:
            for one in permitted.touched:
                one.close()

    def _permitted(self, call: DecidedCall) -> PermittedCall | Refusal:
        checked = validate(call.tool, call.request.arguments, RefusalHistory(), call.request.agent)
        if not checked.success:
            return checked
        within = self._authorizer.authorize(self._as(call.request, call.ceiling), checked)
        if isinstance(within, Refusal):
            return within
        for one in within.touched:
            one.close()
        permitted = self._authorizer.authorize(self._as(call.request, call.grant), checked)
        if isinstance(permitted, Refusal):
            return permitted
        return replace(permitted, request=call.request)

    def _as(self, request: ToolCall, grant: Grant) -> ToolCall:
        """The request as an agent of its own, which holds this grant."""
        held: Any = [list(map(str, grant.capabilities)), list(grant.permissions)]
        name = f"{request.agent}#{canonical_hash(held)[:32]}"
        if name not in self._agents:
            self._authorizer.declare(name, grant)
            if len(self._agents) >= _AGENTS:
                self._authorizer.drop(self._agents.popitem(last=False)[0])
        self._agents[name] = None
        self._agents.move_to_end(name)
        return replace(request, agent=name)
