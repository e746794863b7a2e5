"""Policies over HTTP: those in force, whether others could be, and why a call would be allowed or denied.

Nothing is run, recorded or asked. About agents other than the token's own only `admin` is told.
"""

import asyncio
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from toolkeep.asking import Asking, asking
from toolkeep.calls import CheckedCall, PermittedCall, Refusal, ToolCall
from toolkeep.errors import Code
from toolkeep.keep import Keep
from toolkeep.policy.checking import check_policies
from toolkeep.policy.explain import Explanation, explain
from toolkeep.policy.policies import PoliciesRefused
from toolkeep.policy.rulebook import read_all
from toolkeep.policy.settings import PolicySource
from toolkeep.server.auth import Caller
from toolkeep.server.problems import RequestRefused
from toolkeep.tokens import Scope


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in force."""

    id: str
    effect: str
    place: str
    asks: bool
    is_silent: bool
    reason: str


class PolicyText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text of Cedar policies."""

    text: Annotated[str, Meta(max_length=200_000)]
    name: Annotated[str, Meta(min_length=1, max_length=200)] = "policies"


class CheckBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies that somebody would like to use."""

    policies: Annotated[list[PolicyText], Meta(min_length=1, max_length=50)]


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether policies can be used."""

    success: bool
    policies: int
    problems: list[dict[str, Any]]


class ExplainBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that nobody makes."""

    tool: Annotated[str, Meta(min_length=1, max_length=128)]
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    agent: Annotated[str, Meta(max_length=256)] = ""
    session: Annotated[str, Meta(max_length=256)] = ""


class ExplainedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a call would be allowed, why, and what would have to change."""

    allowed: bool
    agent: str
    tool: str
    refusal: dict[str, str] | None
    decided_by: list[str]
    touches: list[dict[str, Any]]
    policies: list[dict[str, Any]]
    asks: dict[str, Any]
    changes: list[str]


def list_policies(keep: Keep) -> list[PolicyView]:
    """Every policy in force, toolkeep's own too."""
    return [
        PolicyView(
            id=policy.id,
            effect=policy.effect,
            place=f"{PurePath(policy.source).name}:{policy.line}:{policy.column}",
            asks=policy.asks,
            is_silent=policy.is_silent,
            reason=policy.reason,
        )
        for policy in keep.authorizer.rulebook.engine.policies.policies
    ]


async def check_texts(keep: Keep, body: CheckBody) -> PolicyReport:
    """Whether policies fit the tools and agents there are."""
    return await asyncio.to_thread(_checked, keep, body)


def _checked(keep: Keep, body: CheckBody) -> PolicyReport:
    sources = [PolicySource(name=one.name, text=one.text) for one in body.policies]
    try:
        policies = read_all(sources)
    except PoliciesRefused as refused:
        return _report(0, refused.problems)
    own = sum(policy.source in {source.name for source in sources} for policy in policies.policies)
    return _report(own, check_policies(policies, keep.tools(), keep.agents))


def _report(count: int, problems: Any) -> PolicyReport:
    data = [msgspec.to_builtins(one) for one in problems]
    return PolicyReport(success=not data, policies=count, problems=data)


async def explain_call(keep: Keep, caller: Caller, body: ExplainBody) -> ExplainedCall:
    """Why a call of the caller's agent would be allowed or denied; of another agent only with admin."""
    agent = body.agent or caller.agent
    if agent != caller.agent and not caller.has_scope(Scope.ADMIN):
        raise RequestRefused(
            Code.SCOPE_MISSING, "about another agent only the scope admin is told", hint="leave agent out"
        )
    explained = await asyncio.to_thread(_explained, keep, agent, body)
    return explained if caller.has_scope(Scope.ADMIN) else _without_places(explained)


def _without_places(explained: ExplainedCall) -> ExplainedCall:
    """Without what lies outside of what the agent holds: it would learn which files there are."""
    if not any(touch["objections"] for touch in explained.touches):
        return explained
    said = [] if explained.refusal is None else [explained.refusal["message"]]
    held = [touch for touch in explained.touches if not touch["objections"]]
    return msgspec.structs.replace(explained, touches=held, policies=[], changes=said)


def _explained(keep: Keep, agent: str, body: ExplainBody) -> ExplainedCall:
    checked = keep.try_validate_arguments(body.tool, body.arguments, agent=agent)
    if isinstance(checked, Refusal):
        changes = tuple(f"{error.message}: {error.suggestion}" for error in checked.errors)
        return _shown(agent, checked.tool, Explanation(outcome=checked, changes=changes), Asking())
    return _decided(keep, agent, body, checked)


def _decided(keep: Keep, agent: str, body: ExplainBody, checked: CheckedCall) -> ExplainedCall:
    request = ToolCall(id="explain", tool=checked.tool, arguments=None, agent=agent, session=body.session)
    explained = explain(keep.authorizer, keep.holder(agent), request, checked)
    outcome = explained.outcome
    if not isinstance(outcome, PermittedCall):
        return _shown(agent, checked.tool, explained, Asking())
    try:
        asked = asking(outcome, keep.record.approvals, is_paranoid=keep.is_paranoid)
        return _shown(agent, checked.tool, explained, asked)
    finally:
        for one in outcome.touched:
            one.close()


def _shown(agent: str, tool: str, explained: Explanation, asked: Asking) -> ExplainedCall:
    outcome = explained.outcome
    return ExplainedCall(
        allowed=explained.is_allowed,
        agent=agent,
        tool=tool,
        refusal=dict(_refusal(outcome)) or None,
        decided_by=list(outcome.decision.policies) if outcome.decision else [],
        touches=[touch.to_dict() for touch in explained.touches],
        policies=[policy.to_dict() for policy in explained.policies],
        asks={
            "why": list(asked.why),
            "acts": asked.acts,
            "earlier": asked.earlier,
            "spared_by": explained.spared_by,
        },
        changes=list(explained.changes),
    )


def _refusal(outcome: PermittedCall | Refusal) -> Iterator[tuple[str, str]]:
    if isinstance(outcome, Refusal):
        yield "code", outcome.code.value
        yield "message", outcome.errors[0].message
