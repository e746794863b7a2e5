"""Tries policies before they are put in force: their problems, their examples, and recorded calls.

In come policies that would replace those of the same name in the state. They are judged together with those
of the configuration and the others of the state. Nothing is run, recorded or changed.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.events import Bus
from toolkeep.flow.recorded_sessions import RecordedDecision, RecordedSessions, recorded_decisions
from toolkeep.keep.keep import Keep
from toolkeep.policy.decision_replay import Replayed, Replayer
from toolkeep.policy.policy_settings import Example
from toolkeep.stores.registry_state import StoredPolicies
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

REPLAYED: Final = 2_000
"""Recorded calls that are decided again on the page, the newest: about two seconds."""


class ExampleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One example beside the policies, and whether they decide it as it says."""

    place: str
    agent: str
    tool: str
    expected: str
    problem: str
    """How it is decided otherwise; empty if it holds."""


class Trial:
    """The set of policies as it would be."""

    def __init__(self, keep: Keep, name: str, stored: StoredPolicies | None) -> None:
        """Raises `PoliciesRefused` if the set cannot be used, `ConfigurationInvalid` for its examples."""
        self._keep = keep
        self.authorizer, self._examples = keep.trial_of(name, stored, is_trial=True)
        self._refusals = RefusalHistory(bus=Bus())

    @property
    def lacks_permit(self) -> bool:
        """Whether no policy of the set permits a call."""
        return self.authorizer.active_policies.lacks_permit

    def examples(self) -> list[ExampleOutcome]:
        """How the examples of the set are decided, those of tools that are not registered left out."""
        here = {tool.name for tool in self._keep.tools(kind=None)}
        return [
            ExampleOutcome(
                place=one.place,
                agent=one.agent,
                tool=one.tool,
                expected=_expected(one),
                problem=self.authorizer.example_problem(one),
            )
            for one in self._examples
            if one.tools <= here
        ]

    def replay(self, limit: int = REPLAYED) -> tuple[Replayed, int]:
        """The newest recorded calls, decided by the set, and how many older ones were left out."""
        keep = self._keep
        records = [entry.record for entry in keep.record.log.read_back()]
        records.reverse()
        total = sum(1 for _ in recorded_decisions(records))
        flow = keep.flow_settings
        sessions = RecordedSessions(
            flow if keep.watches_flow or self.authorizer.active_policies.reads_flow else None,
            tool=self._tool,
            body=self._body,
            counted=self.authorizer.active_policies.counted,
        )
        authorizer = self.authorizer.beside(sessions.flow)
        replayer = Replayer(authorizer, check=self._check, holder=keep.holder)
        older = max(total - limit, 0)
        return replayer.replay(sessions.walk(records), older=older), older

    def _tool(self, call: RecordedDecision) -> RegisteredTool | None:
        tool = self._keep.try_get(f"{call.tool}@{call.version}")
        return tool if tool is not None and tool.definition_hash == call.definition_hash else None

    def _body(self, digest: str) -> bytes | None:
        try:
            return self._keep.record.bodies.get(digest)
        except (BodyUnavailable, KeyError):
            return None

    def _check(self, tool: RegisteredTool, arguments: Mapping[str, Any]) -> CheckedCall | Refusal:
        return validate(tool, dict(arguments), self._refusals, "example")


def _expected(example: Example) -> str:
    if not example.is_allowed:
        return "denied"
    return "asks" if example.asks else "allowed"
