"""Replays recorded calls against another policy set: which would be decided differently (POL-5).

In come audited calls with their sessions (`flow/recorded_sessions.py`); out goes a `Replayed` with every call
that is decided differently, and counts of calls that could not be judged, by reason. A call is comparable
only if it still touches the same resources, otherwise the policies would be evaluated for another call.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from toolkeep.calls import CheckedCall, Decision, FlowRecord, PermittedCall, Refusal, ToolCall
from toolkeep.flow.recorded_sessions import RecordedDecision, Step
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.decision_explain import Holder, touches_of
from toolkeep.policy.example_check import Check

NO_ARGUMENTS = "its arguments were not stored"
NO_TOOL = "its tool is gone or changed"
NO_AGENT = "its agent is not declared"
OTHER_TOUCHES = "it would touch other things by now, or things that its agent no longer holds"


Word = Literal["allow", "ask", "deny"]
"""`ask`: allowed if a person approves, because a `forbid` with `@ask` holds."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A call that would be decided differently."""

    recorded: RecordedDecision
    decision: Word
    policies: tuple[str, ...]
    why: str
    """The refusal that the agent would get now, or why a person would be asked; empty if neither."""
    flow: FlowRecord | None = None
    """What the policies could read of the session, if they read it."""

    @property
    def was(self) -> Word:
        """The recorded decision."""
        return word_of(self.recorded)

    @property
    def was_by(self) -> tuple[str, ...]:
        """The policies that decided then."""
        return self.recorded.asked_by or self.recorded.policies

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        recorded = self.recorded
        data = {
            "call": recorded.call,
            "time": recorded.time,
            "agent": recorded.agent,
            "tool": recorded.tool,
            "was": {"decision": self.was, "policies": list(self.was_by)},
            "would_be": {"decision": self.decision, "policies": list(self.policies), "why": self.why},
        }
        return data if self.flow is None else {**data, "flow": msgspec.to_builtins(self.flow)}


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    same: int
    differences: tuple[Difference, ...]
    unjudged: Mapping[str, int]
    """Counts of calls that could not be judged, by reason."""


class Replayer:
    """Evaluates recorded calls against an authorizer."""

    def __init__(self, authorizer: Authorizer, *, check: Check, holder: Callable[[str], Holder]) -> None:
        """The authorizer's `flow` is that of the fold which gives the steps."""
        self._authorizer = authorizer
        self._check = check
        self._holder = holder

    def replay(self, steps: Iterable[Step], older: int = 0) -> Replayed:
        """Replay every call but the first `older`, which only belong to the sessions of later ones."""
        same = 0
        differences: list[Difference] = []
        unjudged: Counter[str] = Counter()
        for number, step in enumerate(steps):
            if number < older:
                continue
            judged = self._judge(step)
            if isinstance(judged, str):
                unjudged[judged] += 1
            elif judged is None:
                same += 1
            else:
                differences.append(judged)
        return Replayed(same=same, differences=tuple(differences), unjudged=dict(unjudged))

    def _judge(self, step: Step) -> Difference | str | None:
        """The difference; None if there is none, or the reason why it cannot be judged."""
        call = step.call
        checked = self._checked(step)
        if isinstance(checked, str):
            return checked
        request = ToolCall(
            id=call.call,
            tool=call.tool,
            arguments=None,
            agent=call.agent,
            conversation=call.conversation,
            session=call.session,
            flow=step.session,
            references=call.references,
        )
        outcome = self._authorizer.authorize(request, checked)
        if isinstance(outcome, PermittedCall):
            step.is_asked = bool(outcome.asked_by)
            for one in outcome.touched:
                one.close()
        if not self._is_comparable(call, checked, outcome.decision):
            # Denied then and denied now is the same decision, whatever was touched.
            return OTHER_TOUCHES if call.is_allowed or isinstance(outcome, PermittedCall) else None
        decided = _decided(outcome)
        return None if decided == word_of(call) else _difference(call, decided, outcome)

    def _checked(self, step: Step) -> CheckedCall | str:
        # Policies read attributes of the definition: with another one the comparison would mean nothing.
        if step.tool is None:
            return NO_TOOL
        if self._holder(step.call.agent).grant is None:
            return NO_AGENT
        if step.arguments is None:
            return NO_ARGUMENTS
        checked = self._check(step.tool, step.arguments)
        return NO_TOOL if isinstance(checked, Refusal) else checked

    def _is_comparable(self, call: RecordedDecision, checked: CheckedCall, decision: Decision | None) -> bool:
        """Whether the policies would be evaluated for the same touched resources as before."""
        if any(touch.objections for touch in touches_of(self._holder(call.agent), checked)):
            return False
        return decision is not None and (
            decision.touches == call.touches or not (call.is_allowed or call.policies)
        )


def word_of(call: RecordedDecision) -> Word:
    """How a recorded call was decided."""
    if not call.is_allowed:
        return "deny"
    return "ask" if call.asked_by else "allow"


def _decided(outcome: PermittedCall | Refusal) -> Word:
    if isinstance(outcome, Refusal):
        return "deny"
    return "ask" if outcome.asked_by else "allow"


def _difference(call: RecordedDecision, decided: Word, outcome: PermittedCall | Refusal) -> Difference:
    decision = outcome.decision
    why = outcome.errors[0].message if isinstance(outcome, Refusal) else "; ".join(outcome.asked_by)
    policies = () if decision is None else (decision.asked_by or decision.policies)
    flow = None if decision is None else (decision.flow or None)
    return Difference(recorded=call, decision=decided, policies=policies, why=why, flow=flow)
