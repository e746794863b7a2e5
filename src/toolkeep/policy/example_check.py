"""Checks the examples beside policies: each is a session of one or more calls, clean at first (POL-5).

Nothing is run: the example says what a call returned. Sessions and measures are those of the example alone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from toolkeep.calls import CheckedCall, PermittedCall, Refusal, RegisteredTool, ToolCall
from toolkeep.flow.session_state import Earlier, SessionState
from toolkeep.flow.tracker import Flow
from toolkeep.policy.policy_settings import Example

Check = Callable[[RegisteredTool, Mapping[str, Any]], CheckedCall | Refusal]
Evaluate = Callable[[ToolCall, CheckedCall], PermittedCall | Refusal]


class ExampleCheck:
    """Decides the calls of one example in order."""

    def __init__(
        self, flow: Flow, *, tools: Iterable[RegisteredTool], check: Check | None, evaluate: Evaluate
    ) -> None:
        """`flow` knows nothing yet, and `evaluate` decides with it."""
        self._flow = flow
        self._tools = {tool.name: tool for tool in tools}
        self._check = check
        self._evaluate = evaluate

    def problem(self, example: Example) -> str:
        """Why an example fails; empty if it holds."""
        session = self._flow.session_of(example.agent, "example")
        for number, call in enumerate((example, *example.then)):
            if problem := self._problem(session, call, f"example {number}"):
                return f"{call.place}: {problem}"
        return ""

    def _problem(self, session: SessionState, call: Example, name: str) -> str:
        tool = self._tools.get(call.tool)
        if tool is None or self._check is None:
            return f"there is no tool '{call.tool}'"
        checked = self._check(tool, call.arguments)
        if isinstance(checked, Refusal):
            return f"the arguments are not valid: {checked.errors[0].message}"
        session.said(call.said)
        request = ToolCall(id=name, tool=tool.name, arguments=None, agent=call.agent, flow=session)
        outcome = self._evaluate(request, checked)
        if isinstance(outcome, PermittedCall):
            self._run(session, outcome, call.result)
        return _mismatch(call, outcome)

    def _run(self, session: SessionState, permitted: PermittedCall, result: Any) -> None:
        """Go on as if a person had agreed, where one is asked, and the call had returned this."""
        hosts = [one.shown for one in permitted.touched if one.kind.startswith("net.")]
        for one in permitted.touched:
            one.close()
        if permitted.asked_by:
            self._flow.endorse(permitted.flow)
        if result is UNSET:  # it may be anything
            self._flow.open(session, permitted.tool, hosts)
            return
        body = msgspec.json.encode(result)
        self._flow.observe(
            session,
            permitted.tool,
            result,
            body,
            Earlier(permitted.tool.name, b""),
            arguments=permitted.checked.arguments,
            hosts=hosts,
        )


def _mismatch(call: Example, outcome: PermittedCall | Refusal) -> str:
    """How the decision differs from the expected one; empty if it does not."""
    is_allowed = isinstance(outcome, PermittedCall)
    told = "it is allowed" if isinstance(outcome, PermittedCall) else outcome.errors[0].message
    if is_allowed != call.is_allowed:
        return f"the example should be {'allowed' if call.is_allowed else 'denied'}; {told}"
    decision = outcome.decision
    decided = decision.policies if decision is not None else ()
    if call.policy and call.policy not in decided:
        return f"policy '{call.policy}' should decide it, not {', '.join(decided) or f'none: {told}'}"
    if isinstance(outcome, PermittedCall) and call.asks is not None:
        return _wrongly_asked(call.asks, outcome)
    return ""


def _wrongly_asked(asks: bool | str, outcome: PermittedCall) -> str:  # noqa: FBT001 -- as it was written
    asking: Collection[str] = outcome.decision.asked_by or ()
    is_asked = bool(asking or outcome.asks)
    if is_asked != bool(asks):
        because = f": {'; '.join(outcome.asked_by)}" if outcome.asked_by else ""
        return f"a policy asks a person{because}" if is_asked else "no policy asks a person"
    if isinstance(asks, str) and asks not in (*asking, *(outcome.decision.policies if outcome.asks else ())):
        return f"policy '{asks}' should ask, not {', '.join(asking) or 'another'}"
    return ""
