"""The policies in force: read and checked as a whole, swapped as a whole (POL-2).

A set that cannot be used never comes into force: the one before it stays, and who tried is told why. Policies
are checked against the tools there are when they are first asked: most tools are registered after they are
read.
"""

import threading
from collections.abc import Callable, Iterable, Sequence

from toolkeep.calls import RegisteredTool
from toolkeep.policy.cedar_schema import SEE
from toolkeep.policy.checking import check_policies
from toolkeep.policy.defaults import ALWAYS, WITHOUT_POLICIES
from toolkeep.policy.engine import Engine
from toolkeep.policy.policies import Policies, PoliciesRefused, Policy
from toolkeep.policy.reading import read_policies
from toolkeep.policy.settings import PolicySource

Tools = Callable[[], Iterable[RegisteredTool]]


class Rulebook:
    """Holds the engine that decides now."""

    def __init__(self, sources: Sequence[PolicySource] = (), *, held_back: str = "") -> None:
        """`held_back` says why nothing may be permitted: policies that nobody accepted yet."""
        self.held_back = held_back
        self._lock = threading.Lock()
        self.engine = Engine(read_all(sources))
        """What decides now."""
        self._is_checked = not sources
        self.hides_tools = _hides_tools(self.engine.policies)
        """Whether any policy keeps agents from knowing of tools."""

    def swap(
        self, sources: Sequence[PolicySource], tools: Iterable[RegisteredTool], agents: Iterable[str]
    ) -> None:
        """Put other policies in force; raises `PoliciesRefused`, and the ones before stay."""
        policies = read_all(sources)
        if problems := check_policies(policies, tools, agents):
            raise PoliciesRefused(problems)
        with self._lock:
            self.engine, self._is_checked, self.held_back = Engine(policies), True, ""
            self.hides_tools = _hides_tools(policies)

    def problem(self, tools: Tools, agents: Iterable[str]) -> str:
        """Why the policies cannot be used with the tools there are; empty where they can."""
        if self.held_back or self._is_checked:
            return self.held_back
        with self._lock:
            if not self._is_checked:
                if problems := check_policies(self.engine.policies, tools(), agents):
                    return str(problems[0])
                self._is_checked = True
        return ""


def _hides_tools(policies: Policies) -> bool:
    return any(_hides(policy) for policy in policies.policies)


def _hides(policy: Policy) -> bool:
    return policy.effect == "forbid" and policy.applies_to(SEE)


def read_all(sources: Sequence[PolicySource]) -> Policies:
    """Policies with those that every set has; raises `PoliciesRefused`."""
    return read_policies([ALWAYS, *(sources or [WITHOUT_POLICIES])])
