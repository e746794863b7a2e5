"""The active policy set: parsed, validated and swapped atomically (POL-2).

A set that fails validation never becomes active: the previous one stays, and the caller gets the problems.
Policies are validated against the registered tools on first use, because most tools are registered after the
policies are read.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from toolkeep.calls import RegisteredTool
from toolkeep.policy.cedar_engine import Engine
from toolkeep.policy.cedar_parser import OURS, read_policies
from toolkeep.policy.cedar_schema import CALL, SEE
from toolkeep.policy.cedar_validation import check_policies
from toolkeep.policy.policy_set import Policies, PoliciesRefused, Policy
from toolkeep.policy.policy_settings import PolicySource

Tools = Callable[[], Iterable[RegisteredTool]]


class ActivePolicies:
    """Holds the engine of the active policy set."""

    def __init__(self, sources: Sequence[PolicySource] = (), *, held_back: str = "") -> None:
        """`held_back` says why every call is denied: policies that nobody accepted yet.

        It denies everything, not only what those policies forbid: policies of a project mostly forbid, and to
        leave them out would permit more than the project says.
        """
        self.held_back = held_back
        self._lock = threading.Lock()
        self.engine = Engine(read_all(sources))
        """The engine of the active set."""
        self._is_checked = not sources
        self.hides_tools = _hides_tools(self.engine.policies)
        """Whether any policy forbids the action `see`."""
        self.lacks_permit = lacks_permit(self.engine.policies.policies)
        """Whether there are policies, and none permits a call."""

    def swap(
        self, sources: Sequence[PolicySource], tools: Iterable[RegisteredTool], agents: Iterable[str]
    ) -> None:
        """Activate another set; raises `PoliciesRefused`, and the previous set stays active."""
        policies = read_all(sources)
        if problems := check_policies(policies, tools, agents):
            raise PoliciesRefused(problems)
        # Validation is done before the swap: a reload with a typo must not open or close everything.
        with self._lock:
            self.engine, self._is_checked, self.held_back = Engine(policies), True, ""
            self.hides_tools = _hides_tools(policies)
            self.lacks_permit = lacks_permit(policies.policies)

    def problem(self, tools: Tools, agents: Iterable[str]) -> str:
        """Why the set cannot be used with the registered tools; empty if it can."""
        if self.held_back or self._is_checked:
            return self.held_back
        with self._lock:
            if not self._is_checked:
                if problems := check_policies(self.engine.policies, tools(), agents):
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


def read_all(sources: Sequence[PolicySource]) -> Policies:
    """Parse policies together with the built-in ones; raises `PoliciesRefused`."""
    return read_policies([ALWAYS, *(sources or [WITHOUT_POLICIES])])


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
