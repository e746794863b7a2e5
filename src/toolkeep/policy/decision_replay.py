"""Replays recorded calls against another policy set: which would be decided differently (POL-5).

In come audited calls with their retained arguments; out goes a `Replayed` with every call that is decided
differently, and counts of calls that could not be judged, by reason. A call is comparable only if it still
touches the same resources, otherwise the policies would be evaluated for another call.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from toolkeep.calls import CheckedCall, Decision, PermittedCall, Refusal, RegisteredTool, ToolCall
from toolkeep.policy.authorize import Authorizer, Check
from toolkeep.policy.decision_explain import Holder, touches_of

NO_ARGUMENTS = "its arguments were not stored"
NO_TOOL = "its tool is gone or changed"
NO_AGENT = "its agent is not declared"
OTHER_TOUCHES = "it would touch other things by now, or things that its agent no longer holds"


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call with its policy decision."""

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
    """Empty if the arguments were not retained."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A call that would be decided differently."""

    recorded: RecordedDecision
    is_allowed: bool
    policies: tuple[str, ...]
    why: str
    """The refusal that the agent would get now; empty if the call would be allowed."""

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
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
    """The result of a replay."""

    same: int
    differences: tuple[Difference, ...]
    unjudged: Mapping[str, int]
    """Counts of calls that could not be judged, by reason."""


def recorded_decisions(records: Iterable[Mapping[str, Any]]) -> list[RecordedDecision]:
    """The calls in a log that have a policy decision, in order."""
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
    """Evaluates recorded calls against an authorizer."""

    def __init__(
        self,
        authorizer: Authorizer,
        *,
        tool: Callable[[str], RegisteredTool | None],
        arguments: Callable[[str], Mapping[str, Any] | None],
        check: Check,
        holder: Callable[[str], Holder],
    ) -> None:
        """`tool` looks a tool up by `name@version`, `arguments` the retained body of a hash."""
        self._authorizer = authorizer
        self._tool = tool
        self._arguments = arguments
        self._check = check
        self._holder = holder

    def replay(self, calls: Iterable[RecordedDecision]) -> Replayed:
        """Replay every call."""
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
        """The difference; None if there is none, or the reason why it cannot be judged."""
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
            # Denied then and denied now is the same decision, whatever was touched.
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
        # Policies read attributes of the definition: with another one the comparison would mean nothing.
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
        """Whether the policies would be evaluated for the same touched resources as before."""
        if any(touch.objections for touch in touches_of(self._holder(call.agent), checked)):
            return False
        return decision is not None and (
            decision.touches == call.touches or not (call.is_allowed or call.policies)
        )


def _word(is_allowed: bool) -> str:  # noqa: FBT001 -- the flag is the subject
    return "allow" if is_allowed else "deny"
