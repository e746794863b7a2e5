"""Runs a call that a server elsewhere has decided and recorded (SCL-3).

Its arguments are validated again, and what it touches is resolved on this machine, inside what the server
grants and what this machine lets that server ask for. Policies of this machine apply, too. Nobody is asked
and nothing is recorded here: both were done.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
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
    TouchedThing,
    refuse,
)
from toolkeep.errors import Code
from toolkeep.execution.admission import Admission, Slot
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import DEFAULT_CALL_LIMITS
from toolkeep.network.hosts import HostScope
from toolkeep.policy.policy_settings import Grant
from toolkeep.sandbox.trusted_paths import is_within
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
            _close(permitted.touched)

    def _permitted(self, call: DecidedCall) -> PermittedCall | Refusal:
        checked = validate(call.tool, call.request.arguments, RefusalHistory(), call.request.agent)
        if not checked.success:
            return checked
        within = self._authorizer.authorize(self._as(call.request, call.ceiling), checked)
        if isinstance(within, Refusal):
            return within
        permitted = self._authorizer.authorize(self._as(call.request, call.grant), checked)
        if isinstance(permitted, Refusal):
            _close(within.touched)
            return permitted
        both = _within_both(permitted, within)
        for one in (*permitted.touched, *within.touched):
            if both is None or one not in both.touched:
                one.close()
        if both is None:
            reason = "The grant of the server and what the worker lets it grant have too little in common"
            return refuse(call.request, Code.NOT_PERMITTED, reason, "Ask the operator.")
        return replace(both, request=call.request)

    def _as(self, request: ToolCall, grant: Grant) -> ToolCall:
        """The request as an agent of its own, which holds this grant; policies see the agent's name."""
        held: Any = [list(map(str, grant.capabilities)), list(grant.permissions)]
        name = f"{request.agent}#{canonical_hash(held)[:32]}"
        if name not in self._agents:
            self._authorizer.declare(name, grant, principal=request.agent)
            if len(self._agents) >= _AGENTS:
                self._authorizer.drop(self._agents.popitem(last=False)[0])
        self._agents[name] = None
        self._agents.move_to_end(name)
        return replace(request, agent=name)


def _within_both(call: PermittedCall, ceiling: PermittedCall) -> PermittedCall | None:
    """The call with what both grants hold; None if that is not enough.

    Each was decided alone. Without this the sandbox would get the whole grant of the server, and a path that
    is replaced between the two decisions would be checked against one of them only.
    """
    if [one.identity for one in call.touched] != [one.identity for one in ceiling.touched]:
        return None
    touched = tuple(map(_narrower, call.touched, ceiling.touched))
    held = [one for one in call.held if any(_lies_in(one, limit) for limit in ceiling.held)]
    held += [limit for limit in ceiling.held if any(_lies_in(limit, one) for one in call.held)]
    if None in touched or {kind for kind, _ in held} != {kind for kind, _ in call.held}:
        return None
    return replace(call, touched=touched, held=tuple(dict.fromkeys(held)))


def _narrower(one: TouchedThing, limit: TouchedThing) -> TouchedThing | None:
    """Whichever of two grants of one resource lies inside the other."""
    if one.hosts or limit.hosts:
        if _are_covered(one.hosts, limit.hosts):
            return one
        return limit if _are_covered(limit.hosts, one.hosts) else None
    root, outer = one.root_path, limit.root_path
    return one if root is None or outer is None or is_within(root, outer) else limit


def _lies_in(inner: tuple[str, str], outer: tuple[str, str]) -> bool:
    (kind, scope), (outer_kind, limit) = inner, outer
    if kind != outer_kind:
        return False
    if kind.startswith("net."):
        return _are_covered((HostScope.read(scope),), (HostScope.read(limit),))
    return is_within(scope, limit) if kind.startswith("fs.") else scope == limit


def _are_covered(inner: Iterable[HostScope], outer: Iterable[HostScope]) -> bool:
    """Whether each scope lies in one of the others; both name the addresses that they lead to, or neither."""
    return all(
        any(limit.covers(one) and (limit.leads_to is None) == (one.leads_to is None) for limit in outer)
        for one in inner
    )


def _close(touched: Iterable[TouchedThing]) -> None:
    for one in touched:
        one.close()
