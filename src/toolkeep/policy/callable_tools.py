"""Whether a grant could ever allow a call of a tool, whatever its arguments: else it is not listed.

In come a grant and a definition; nothing of the file system is looked at. Errs towards listing: a tool is
left out only if no arguments could be allowed. It decides what a model is told, never what it may do: every
call is authorized.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.parameter_marks import TOUCH_FORMS
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.network.hosts import HostScope
from toolkeep.policy.policy_settings import Grant
from toolkeep.policy.touched_resources import ANY_SCOPE, TouchPlan

if TYPE_CHECKING:
    from toolkeep.policy.authorize import Authorizer

_REMEMBERED: Final = 10_000
"""Definitions of which it is remembered whether an agent could call them."""


class CallableTools:
    """Decides which tools each agent could call, and remembers it for one grant and one policy set."""

    def __init__(self) -> None:
        self._decided: dict[str, tuple[Grant, str, dict[str, bool]]] = {}
        """By agent: grant, hash of the policies, and the decisions by the hash of the definition."""

    def could_call(
        self, agent: str, grant: Grant, tool: RegisteredTool, authorizer: "Authorizer | None"
    ) -> bool:
        """Whether the grant could allow, and the policies could permit, a call with some arguments."""
        rules = authorizer.active_policies.engine.policies.hash if authorizer is not None else ""
        held, ruled, decided = self._decided.get(agent, (grant, rules, {}))
        if held is not grant or ruled != rules or len(decided) > _REMEMBERED:
            decided = {}
        self._decided[agent] = (grant, rules, decided)
        answer = decided.get(tool.definition_hash)
        if answer is None:
            answer = could_allow(grant, tool.definition)
            answer = answer and (authorizer is None or authorizer.could_permit(agent, tool))
            decided[tool.definition_hash] = answer
        return answer


def could_allow(grant: Grant, definition: ToolDefinition) -> bool:
    """Whether there may be arguments with which the grant allows a call."""
    return next(lacking(grant, definition), None) is None


def lacking(grant: Grant, definition: ToolDefinition) -> Iterator[str]:
    """The permissions and capabilities without which no call is allowed, whatever its arguments."""
    yield from (name for name in definition.required_permissions if name not in grant.permissions)
    held = {capability.kind for capability in grant.capabilities if capability.scope not in ANY_SCOPE}
    if all(one.kind in held and not _is_fixed(one.kind) for one in definition.capabilities):
        return
    plan = TouchPlan(definition)
    # A kind that only an argument touches (`only`) is not needed without that argument.
    optional = {mark.kind for _, mark in plan.marks if mark.only} | plan.dispensable
    named = {mark.kind for _, mark in plan.marks} | plan.unread
    for capability in definition.capabilities:
        if capability.kind in optional:
            continue
        # No argument names a host or database of that kind: every call touches the whole scope.
        is_whole = capability.kind not in named
        if capability.kind not in held or (
            is_whole and not _covers(grant, capability.kind, capability.scope)
        ):
            yield str(capability)


def _is_fixed(kind: str) -> bool:
    """Whether scopes of a kind are compared as text: folders and programs are looked up at each call."""
    return TOUCH_FORMS.get(kind) not in (TouchForm.PATH, TouchForm.ARGV)


def _covers(grant: Grant, kind: str, scope: str) -> bool:
    """Whether a grant covers the whole scope of a host or database; other kinds are not decided here."""
    if scope in ANY_SCOPE or not _is_fixed(kind):
        return True
    held = [one.scope for one in grant.capabilities if one.kind == kind and one.scope not in ANY_SCOPE]
    if TOUCH_FORMS.get(kind) is not TouchForm.URL:
        return scope in held
    try:
        wanted = HostScope.read(scope)
        return any(HostScope.read_grant(one).covers(wanted) for one in held)
    except ValueError:
        return True  # for the call to say
