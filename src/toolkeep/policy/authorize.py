"""The door of policy: a checked call becomes a `PermittedCall`, or a refusal. Nothing else makes one.

Until there is a policy language this is the whole policy: declared agents may call what is safe, and nothing
above. It denies by default; the decision it leaves says which rule allowed the call.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Final

from toolkeep.calls import CheckedCall, Decision, PermittedCall, Refusal, ToolCall
from toolkeep.canonical import canonical_hash
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code
from toolkeep.refusals import refuse

SAFE_ONLY: Final = "toolkeep.safe-only"
"""The id of the only policy."""

POLICY_SET_HASH: Final = canonical_hash([SAFE_ONLY])


def _now() -> str:
    return datetime.now(UTC).isoformat()


def authorize(
    request: ToolCall,
    checked: CheckedCall,
    agents: Collection[str],
    now: Callable[[], str] = _now,
) -> PermittedCall | Refusal:
    """Permit a call of a declared agent to a safe tool."""
    definition = checked.registered.definition
    if request.agent not in agents:
        return refuse(
            request, Code.AGENT_UNKNOWN, f"Agent '{request.agent}' is not declared", "Ask the operator."
        )
    if definition.danger_level is not Danger.SAFE:
        message = f"Tool '{definition.name}' is {definition.danger_level.value}, and no policy permits it"
        return refuse(request, Code.NOT_PERMITTED, message, "Do without it, or ask the operator.")
    decision = Decision(
        policies=(SAFE_ONLY,),
        policy_set_hash=POLICY_SET_HASH,
        capabilities=tuple(map(str, definition.capabilities)),
        decided_at=now(),
    )
    return PermittedCall(request=request, checked=checked, decision=decision)
