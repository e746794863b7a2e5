"""Runs a call that a server elsewhere has decided and recorded (SCL-3).

Its arguments are validated again, and what it touches is resolved on this machine, inside what the server
grants and what this machine lets that server ask for. Policies of this machine apply, too. Nobody is asked
and nothing is recorded here: both were done.
"""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

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
    refuse,
)
from toolkeep.errors import Code
from toolkeep.execution.admission import Admission, Slot
from toolkeep.limits import DEFAULT_CALL_LIMITS
from toolkeep.policy.policy_settings import Grant
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

if TYPE_CHECKING:
    from toolkeep.execution.execute import Executor
    from toolkeep.policy.authorize import Authorizer

_AGENTS: Final = 1_000
"""Agents with their grants that are known at once."""
_CEILING: Final = "ceiling"


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
        self._agents: dict[tuple[str, Grant], str] = {}
        self._numbers = itertools.count(1)

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
        request = call.request
        checked = validate(call.tool, request.arguments, RefusalHistory(), request.agent)
        if not checked.success:
            return checked
        permitted = self._authorizer.authorize(
            replace(request, agent=self._declared(request.agent, call.grant)), checked
        )
        if isinstance(permitted, Refusal):
            return permitted
        takes_nothing = not permitted.touched and not permitted.held
        ceiling = "" if takes_nothing else self._declared(_CEILING, call.ceiling)
        if not takes_nothing and (excess := self._authorizer.excess_over(ceiling, permitted)):
            for one in permitted.touched:
                one.close()
            message = f"The worker does not let this server ask for {excess}"
            return refuse(request, Code.NOT_PERMITTED, message, "Do without it, or ask the operator.")
        return replace(permitted, request=request)

    def _declared(self, agent: str, grant: Grant) -> str:
        """The name of an agent of its own, which holds this grant; policies see the agent's name."""
        name = self._agents.get((agent, grant))
        if name is None:
            name = self._agents[agent, grant] = f"{agent}#{next(self._numbers)}"
            self._authorizer.declare(name, grant, principal=agent)
            if len(self._agents) > _AGENTS:
                self._authorizer.drop(self._agents.pop(next(iter(self._agents))))
        return name
