"""What missing roles and labels cost: the questions that the shipped policies would ask in recorded sessions.

In: the steps of a fold over a log (`recorded_sessions.py`), by the tools as they are declared now. Out: for
each tool, its recorded calls, and for how many questions its missing declarations are a reason. The user's
words are not in a log, so a value that nobody is known to have named counts as asked about.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.recorded_sessions import Step
from toolkeep.flow.tracker import Flow
from toolkeep.flow.undeclared import arguments_without_role


class Cost(msgspec.Struct):
    """What one tool costs for want of declarations."""

    calls: int = 0
    """Its recorded calls."""
    by_role: int = 0
    """Of these, those that would ask about an argument without a role."""
    by_role_alone: int = 0
    """And for no other reason."""
    sessions: int = 0
    """Recorded sessions that its result opened: for want of a label, if it has none."""
    by_label: int = 0
    """Calls in those sessions, of any tool, that would ask since they are open."""
    by_label_alone: int = 0


class _Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call would ask."""

    is_opened: bool = False
    is_secret: bool = False
    untrusted: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.is_opened or self.is_secret or bool(self.untrusted)


def costs_of(steps: Iterable[Step], flow: Flow) -> Mapping[str, Cost]:
    """The costs by tool; `flow` is that of the fold, which goes on with each step."""
    costs: dict[str, Cost] = defaultdict(Cost)
    last: dict[str, str] = {}
    opened_by: dict[str, str] = {}
    """The tool whose result opened each session; empty if it was open before its first call."""
    for step in steps:
        if step.session is None:
            continue
        key = step.session.key
        if key not in last and step.call.flow is not None and step.call.flow.opened:
            step.session.fall(opened=True)  # by what was pasted, or by its parent: no result did it
        if step.session.state.opened and key not in opened_by:
            opened_by[key] = last.get(key, "")
            costs[opened_by[key]].sessions += 1
        last[key] = step.call.tool
        if step.tool is None or step.arguments is None:
            continue
        plan, definition = flow.plan(step.tool), step.tool.definition
        cost = costs[step.call.tool]
        cost.calls += 1
        reasons = _reasons(
            plan, FlowFacts(plan, step.session, step.arguments, references=step.call.references)
        )
        step.is_asked = bool(reasons)
        if roleless := reasons.untrusted.intersection(arguments_without_role(plan, definition)):
            cost.by_role += 1
            cost.by_role_alone += reasons == _Reasons(untrusted=roleless)
        if reasons.is_opened:
            costs[opened_by[key]].by_label += 1
            costs[opened_by[key]].by_label_alone += reasons == _Reasons(is_opened=True)
    return costs


def _reasons(plan: Plan, facts: FlowFacts) -> _Reasons:
    """As the shipped policies decide."""
    untrusted = (origin.name for origin in facts.origins if not origin.is_trusted)
    return _Reasons(
        is_opened=plan.acts and facts.state.opened,
        is_secret=plan.leaves and facts.state.secret and not facts.is_endorsed,
        untrusted=frozenset(untrusted if plan.acts else ()),
    )
