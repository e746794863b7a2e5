"""Recorded calls judged by other policies: which would be decided differently (POL-5).

In come calls as the log has them, with the arguments that were kept; out goes a `Replayed` with every call
that another set of policies decides otherwise, and how many could not be judged, by reason. What a recorded
call touched must still be what it touches now, else the policies would be asked about another call.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from toolkeep.calls import CheckedCall, Decision, PermittedCall, Refusal, RegisteredTool, ToolCall
from toolkeep.policy.authorize import Authorizer, Check
from toolkeep.policy.explain import Holder, touches_of

NO_ARGUMENTS = "its arguments were not kept"
NO_TOOL = "its tool is gone or changed"
NO_AGENT = "its agent is not declared"
OTHER_TOUCHES = "it would touch other things by now, or things that its agent no longer holds"


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was decided, as the log has it."""

    call: str
    time: str
    agent: str
    tool: str
    version: str
    definition_hash: str
    conversation: str = ""
    session: str = ""
    is_allowed: bool
    policies: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    argument_hash: str = ""
    """Empty where the arguments were not kept."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A call that would be decided otherwise."""

    recorded: RecordedDecision
    is_allowed: bool
    policies: tuple[str, ...]
    why: str
    """What its agent would be told now; empty where the call would be allowed."""

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON data."""
        recorded = self.recorded
        return {
            "call": recorded.call,
            "time": recorded.time,
            "agent": recorded.agent,
            "tool": recorded.tool,
            "was": {"decision": _word(recorded.is_allowed), "policies": list(recorded.policies)},
            "would_be": {
                "decision": _word(self.is_allowed),
                "policies": list(self.policies),
                "why": self.why,
            },
        }


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay."""

    same: int
    differences: tuple[Difference, ...]
    unjudged: Mapping[str, int]
    """How many could not be judged, by reason."""


def recorded_decisions(records: Iterable[Mapping[str, Any]]) -> list[RecordedDecision]:
    """The calls of a log that policy decided about, in their order."""
    invoked: dict[str, Mapping[str, Any]] = {}
    found: list[RecordedDecision] = []
    for record in records:
        call = record.get("call", "")
        if record.get("type") == "ToolInvoked":
            invoked[call] = record
        elif record.get("type") == "PolicyDecision" and (begin := invoked.pop(call, None)) is not None:
            found.append(_recorded(begin, record))
    return found


def _recorded(invoked: Mapping[str, Any], decision: Mapping[str, Any]) -> RecordedDecision:
    return RecordedDecision(
        call=invoked["call"],
        time=invoked["time"],
        agent=invoked["agent"],
        tool=invoked["tool"],
        version=invoked["version"],
        definition_hash=invoked["definition_hash"],
        conversation=invoked.get("conversation", ""),
        session=invoked.get("session", ""),
        is_allowed=decision["decision"] == "allow",
        policies=tuple(decision.get("policies", ())),
        touches=tuple(decision.get("touches", ())),
        argument_hash=invoked["argument_hash"] if invoked.get("has_arguments") else "",
    )


class Replayer:
    """Judges recorded calls."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        tool: Callable[[str], RegisteredTool | None],
        arguments: Callable[[str], Mapping[str, Any] | None],
        check: Check,
        holder: Callable[[str], Holder],
    ) -> None:
        """`tool` finds a tool by `name@version`, `arguments` what was kept under a hash."""
        self._authorizer = authorizer
        self._tool = tool
        self._arguments = arguments
        self._check = check
        self._holder = holder

    def replay(self, calls: Iterable[RecordedDecision]) -> Replayed:
        """Judge every call."""
        same = 0
        differences: list[Difference] = []
        unjudged: Counter[str] = Counter()
        for call in calls:
            judged = self._judge(call)
            if isinstance(judged, str):
                unjudged[judged] += 1
            elif judged is None:
                same += 1
            else:
                differences.append(judged)
        return Replayed(same=same, differences=tuple(differences), unjudged=dict(unjudged))

    def _judge(self, call: RecordedDecision) -> Difference | str | None:
        """How it would be decided otherwise; None where it would not, text why that cannot be told."""
        checked = self._checked(call)
        if isinstance(checked, str):
            return checked
        request = ToolCall(
            id=call.call,
            tool=call.tool,
            arguments=None,
            agent=call.agent,
            conversation=call.conversation,
            session=call.session,
        )
        outcome = self._authorizer.authorize(request, checked)
        if isinstance(outcome, PermittedCall):
            for one in outcome.touched:
                one.close()
        if not self._is_comparable(call, checked, outcome.decision):
            # Whoever was refused a thing before, and is refused it now, is decided the same.
            return OTHER_TOUCHES if call.is_allowed or isinstance(outcome, PermittedCall) else None
        if isinstance(outcome, PermittedCall) == call.is_allowed:
            return None
        return Difference(
            recorded=call,
            is_allowed=not call.is_allowed,
            policies=outcome.decision.policies if outcome.decision else (),
            why=outcome.errors[0].message if isinstance(outcome, Refusal) else "",
        )

    def _checked(self, call: RecordedDecision) -> CheckedCall | str:
        tool = self._tool(f"{call.tool}@{call.version}")
        if tool is None or tool.definition_hash != call.definition_hash:
            return NO_TOOL
        if self._holder(call.agent).grant is None:
            return NO_AGENT
        arguments = self._arguments(call.argument_hash) if call.argument_hash else None
        if arguments is None:
            return NO_ARGUMENTS
        checked = self._check(tool, arguments)
        return NO_TOOL if isinstance(checked, Refusal) else checked

    def _is_comparable(self, call: RecordedDecision, checked: CheckedCall, decision: Decision | None) -> bool:
        """Whether the policies were asked about the same call as before."""
        if any(touch.objections for touch in touches_of(self._holder(call.agent), checked)):
            return False
        return decision is not None and (
            decision.touches == call.touches or not (call.is_allowed or call.policies)
        )


def _word(is_allowed: bool) -> str:  # noqa: FBT001 -- it is what is said
    return "allow" if is_allowed else "deny"
