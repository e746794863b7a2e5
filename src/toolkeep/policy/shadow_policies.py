"""Policies annotated `@shadow`: what they would have decided, for the record alone (FLO-8).

In come the facts of a call and the verdict of the policies in force; out goes what the verdict would be if
the shadow policies were in force too, where that differs. It never reaches a decision. Whatever fails in here
publishes an alarm, and refuses nothing.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal

from toolkeep.calls import RegisteredTool, ShadowDecision
from toolkeep.events import Event, ShadowPolicyFailed
from toolkeep.policy.cedar_engine import AgentEntity, CallFacts, Engine, Verdict
from toolkeep.policy.policy_set import Policies, PolicyProblem

Word = Literal["allow", "ask", "deny"]
_ALARMS: Final = 20
"""Different problems that are published; a broken policy must not flood those who listen."""


class ShadowPolicies:
    """The set as it would be with the shadow policies in force."""

    def __init__(
        self,
        would_be: Policies,
        measures: tuple[str, ...],
        tell: Callable[[Event], None],
    ) -> None:
        self.ids = would_be.shadows
        self.policies = would_be
        self._engine = Engine(would_be, measures)
        self._tell = tell
        self._told: set[str] = set()
        self._is_broken = False

    def read_measures(self, tool: RegisteredTool) -> Collection[str]:
        """The measures that are read about calls of a tool."""
        return self._engine.read_measures(tool)

    def break_with(self, problems: Iterable[PolicyProblem]) -> None:
        """Do without them: they do not fit the registered tools."""
        for problem in problems:
            self._is_broken = True
            self._alarm(str(problem))

    def difference(
        self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts, verdict: Verdict
    ) -> ShadowDecision | None:
        """What would be decided otherwise; None if nothing is."""
        if self._is_broken:
            return None
        would = self._engine.decide(agent, tool, facts)
        if would.errors:
            self._alarm(would.errors[0])
            return None
        if (word := _word(would)) == _word(verdict):
            return None
        deciding = {*would.policies, *would.yielding} & self.ids
        return ShadowDecision(decision=word, policies=tuple(sorted(deciding)))

    def _alarm(self, problem: str) -> None:
        if problem in self._told or len(self._told) >= _ALARMS:
            return
        self._told.add(problem)
        self._tell(ShadowPolicyFailed(policies=tuple(sorted(self.ids)), problem=problem))


def _word(verdict: Verdict) -> Word:
    if not verdict.is_allowed:
        return "deny"
    return "ask" if verdict.yielding or verdict.asks else "allow"
