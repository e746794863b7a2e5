"""The active policy set: parsed, validated and swapped atomically (POL-2).

A set that fails validation never becomes active: the previous one stays, and the caller gets the problems.
Policies are validated against the registered tools on first use, because most tools are registered after the
policies are read.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from toolkeep.calls import RegisteredTool
from toolkeep.events import Event
from toolkeep.flow.measures import NO_MEASURES, Measures
from toolkeep.policy.cedar_engine import Engine
from toolkeep.policy.cedar_parser import OURS, read_policies
from toolkeep.policy.cedar_schema import CALL, SEE, read_sections
from toolkeep.policy.cedar_validation import check_policies
from toolkeep.policy.policy_set import Policies, PoliciesRefused, Policy, PolicyProblem
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.policy.shadow_policies import ShadowPolicies

Tools = Callable[[], Iterable[RegisteredTool]]


class ActivePolicies:
    """Holds the engine of the active policy set."""

    def __init__(
        self,
        sources: Sequence[PolicySource] = (),
        *,
        held_back: str = "",
        is_flow_standard: bool = False,
        measures: Measures = NO_MEASURES,
        is_trial: bool = False,
        tell: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """`held_back` says why every call is denied: policies that nobody accepted yet.

        It denies everything, not only what those policies forbid: policies of a project mostly forbid, and to
        leave them out would permit more than the project says. `is_flow_standard` adds the shipped policies
        about what passes between calls, to every set; `measures` adds those of their budgets. In a
        trial, policies in shadow decide too. `tell` publishes an alarm.
        """
        self._tell = tell
        self.held_back = held_back
        self.is_flow_standard = is_flow_standard
        self._shipped = shipped_policies(measures, is_flow_standard=is_flow_standard)
        self.declared = measures
        self.measures = measures.by_name
        """What policies may read of earlier calls, by name."""
        self._lock = threading.Lock()
        self._is_trial = is_trial
        self._use(read_all(sources, self._shipped))
        self._is_checked = not sources and not measures  # the shipped ones are checked by a test
        self.hides_tools = _hides_tools(self.engine.policies)
        """Whether any policy forbids the action `see`."""
        self.lacks_permit = lacks_permit(self.engine.policies.policies)
        """Whether there are policies, and none permits a call."""

    @property
    def reads_flow(self) -> bool:
        """Whether any policy reads what only sessions know."""
        read = self.engine.policies if self.shadow is None else self.shadow.policies
        return any(read_sections(policy.context_reads | policy.context_looks) for policy in read.policies)

    def _use(self, policies: Policies) -> None:
        is_apart = bool(policies.shadows) and not self._is_trial
        names = tuple(self.measures)
        self.engine = Engine(policies.in_force if is_apart else policies, names, tell=self._tell)
        """The engine of the active set."""
        self.shadow = ShadowPolicies(_would_be(policies), names, self._tell) if is_apart else None
        """What the policies in shadow would decide; None if there are none."""
        self.counted = self._counted(self.engine.policies)
        """The names of the measures that any policy reads: the others are not filled."""
        self.counted_too = self.counted if self.shadow is None else self._counted(self.shadow.policies)
        """The same, with those that only policies in shadow read."""

    def _counted(self, policies: Policies) -> frozenset[str]:
        found: set[str] = set()
        for policy in policies.policies:
            read = read_sections(policy.context_reads | policy.context_looks).get("measures", ())
            found.update(self.measures if read is None else read)
        return frozenset(found) & self.measures.keys()

    def checked(
        self, sources: Sequence[PolicySource], tools: Iterable[RegisteredTool], agents: Iterable[str]
    ) -> Policies:
        """Another set, if it can be used; raises `PoliciesRefused`."""
        policies = read_all(sources, self._shipped)
        if problems := check_policies(policies, tools, agents, self.measures):
            raise PoliciesRefused(problems)
        return policies

    def _problems(
        self, policies: Policies, tools: Iterable[RegisteredTool], agents: Iterable[str]
    ) -> list[PolicyProblem]:
        """The problems of a set, those of policies in shadow told and left out: they decide nothing."""
        problems = check_policies(policies, tools, agents, self.measures)
        if self.shadow is not None:
            self.shadow.break_with(one for one in problems if one.policy in self.shadow.ids)
        return [one for one in problems if self.shadow is None or one.policy not in self.shadow.ids]

    def swap(
        self,
        sources: Sequence[PolicySource],
        tools: Iterable[RegisteredTool],
        agents: Iterable[str],
        held_back: str = "",
    ) -> None:
        """Activate another set; raises `PoliciesRefused`, and the previous set stays active."""
        held = list(tools)
        policies = read_all(sources, self._shipped)
        in_force = policies.in_force
        # Validation is done before the swap: a reload with a typo must not open or close everything.
        if problems := check_policies(in_force, held, agents, self.measures):
            raise PoliciesRefused(problems)
        with self._lock:
            self._use(policies)
            if self.shadow is not None:
                self._problems(policies, held, agents)
            self._is_checked, self.held_back = True, held_back
            self.hides_tools = _hides_tools(self.engine.policies)
            self.lacks_permit = lacks_permit(self.engine.policies.policies)

    def problem(self, tools: Tools, agents: Iterable[str]) -> str:
        """Why the set cannot be used with the registered tools; empty if it can."""
        if self.held_back or self._is_checked:
            return self.held_back
        with self._lock:
            if not self._is_checked:
                every = self.engine.policies if self.shadow is None else self.shadow.policies
                if problems := self._problems(every, tools(), agents):
                    return str(problems[0])
                self._is_checked = True
        return ""


def lacks_permit(policies: Iterable[Policy]) -> bool:
    """Whether the operator has policies of which none permits a call: often a lone `forbid`."""
    own = [policy for policy in policies if not policy.id.startswith(OURS)]
    return bool(own) and not any(policy.effect == "permit" and policy.applies_to(CALL) for policy in own)


def _hides_tools(policies: Policies) -> bool:
    return any(_hides(policy) for policy in policies.policies)


def _hides(policy: Policy) -> bool:
    return policy.effect == "forbid" and policy.applies_to(SEE)


def read_all(sources: Sequence[PolicySource], shipped: Sequence[PolicySource] = ()) -> Policies:
    """Parse policies together with the built-in ones; raises `PoliciesRefused`."""
    policies = read_policies([ALWAYS, *shipped, *(sources or [WITHOUT_POLICIES])])
    if not policies.shadows or any(not _is_all_shadow(source, policies) for source in sources):
        return policies
    # Sources of shadow policies alone are as good as none: else the first of them would deny every call.
    return read_policies([ALWAYS, *shipped, *sources, WITHOUT_POLICIES])


def _is_all_shadow(source: PolicySource, policies: Policies) -> bool:
    own = [policy.is_shadow for policy in policies.policies if policy.source == source.name]
    return bool(own) and all(own)


def _would_be(policies: Policies) -> Policies:
    """The set as it would be with the policies in shadow."""
    return Policies(tuple(policy for policy in policies.policies if policy.id != "toolkeep.call"))


def shipped_policies(measures: Measures, *, is_flow_standard: bool = False) -> tuple[PolicySource, ...]:
    """The policies that the settings of flow add to every set."""
    budgets = PolicySource(name="flow.budget", is_ours=True, text=measures.policies())
    return (*((FLOW_STANDARD,) if is_flow_standard else ()), *((budgets,) if measures.budgets else ()))


# Part of every set. The forbid holds whatever the user's policies permit: in Cedar forbid wins over permit.
ALWAYS: Final = PolicySource(
    name="toolkeep",
    is_ours=True,
    text="""
@id("toolkeep.see")
permit (principal, action == Action::"see", resource);

@id("toolkeep.permissions")
@reason("the agent lacks a permission that the tool requires")
forbid (principal, action == Action::"call", resource)
unless { principal.permissions.containsAll(resource.requires) };
""",
)

# Permit-all for a keep without policies, else nobody could call a first tool. Capabilities are checked all
# the same. Deny by default begins with the first policy that is written.
WITHOUT_POLICIES: Final = PolicySource(
    name="toolkeep, because you have no policies",
    is_ours=True,
    text="""
@id("toolkeep.call")
permit (principal, action == Action::"call", resource);
""",
)


# `flow: {policy: standard}` (FLO-5). All of them forbid, so that they never permit what the operator's own
# policies do not; a person's approval of the call lifts them.
FLOW_STANDARD: Final = PolicySource(
    name="toolkeep, flow: standard",
    is_ours=True,
    text="""
@id("toolkeep.flow.outside_text") @ask
@reason("the session has read text from outside, which may have chosen this call")
forbid (principal, action == Action::"call", resource)
when { resource.consequential && context.state.opened };

@id("toolkeep.flow.origin") @ask
@reason("neither the user nor a service named everything that the call acts on")
forbid (principal, action == Action::"call", resource)
when { resource.consequential && context.authority != "trusted" };

@id("toolkeep.flow.secret") @ask
@reason("the session has read what only the user may know, and the call may send it out")
forbid (principal, action == Action::"call", resource)
when { resource.egress && context.state.secret } unless { context.endorsed };
""",
)
