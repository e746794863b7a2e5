"""Policies over HTTP: list those in force, check others, explain a decision.

Nothing is run, recorded or asked. Decisions about other agents are explained to `admin` only.
`stored_policy_routes` puts policies in force.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from toolkeep.calls import CheckedCall, PermittedCall, Refusal, ToolCall
from toolkeep.errors import Code
from toolkeep.keep.approval_preview import ApprovalPreview, preview_approval_need
from toolkeep.keep.keep import Keep
from toolkeep.policy.active_policies import read_all
from toolkeep.policy.cedar_parser import OURS
from toolkeep.policy.cedar_validation import check_policies
from toolkeep.policy.decision_explain import Explanation, explain
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.server.api.session_routes import ANY_SESSION, state_owner
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in force."""

    id: str
    effect: str
    place: str
    asks: bool
    is_silent: bool
    is_shadow: bool
    """Whether it decides nothing, and what it would decide is only recorded."""
    reason: str
    text: str
    source: str
    """The file or the stored policies that it is in; empty for a built-in one."""
    is_stored: bool
    """Whether a person put it in force, beside the configuration."""
    hits: int
    """How many decisions of the last week it made, alone or with others; in shadow, would have changed."""


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
    """What would have to change; the first gives the `line`, if there is one."""
    line: str
    """The line of the configuration that grants all that the agent lacks; empty if a grant would not do."""
    added: str
    """What is to be copied of it."""
    added_to: str
    """The entry of the configuration that it is added to; empty if it is a line of its own."""
    flow: dict[str, Any] | None
    """What policies could read of the session, if the keep watches sessions."""


def list_policies(keep: Keep, hits: Mapping[str, int]) -> list[PolicyView]:
    """List every policy in force, including the built-in ones; `hits` are counted by `Statistics`."""
    stored = {one.name for one in keep.stored_policies}
    active = keep.authorizer.active_policies
    shadows = () if active.shadow is None else active.shadow.policies.policies
    return [
        PolicyView(
            id=policy.id,
            effect=policy.effect,
            place=f"{PurePath(policy.source).name}:{policy.line}:{policy.column}",
            asks=policy.asks,
            is_silent=policy.is_silent,
            is_shadow=policy.is_shadow,
            reason=policy.reason,
            text=policy.text,
            source="" if policy.id.startswith(OURS) else PurePath(policy.source).name,
            is_stored=policy.source in stored,
            hits=hits.get(policy.id, 0),
        )
        for policy in (*active.engine.policies.policies, *(one for one in shadows if one.is_shadow))
    ]


async def check_texts(keep: Keep, body: CheckBody) -> PolicyReport:
    """Check policies against the registered tools and agents."""
    return await asyncio.to_thread(_checked, keep, body)


def _checked(keep: Keep, body: CheckBody) -> PolicyReport:
    sources = [PolicySource(name=one.name, text=one.text) for one in body.policies]
    try:
        policies = read_all(sources)
    except PoliciesRefused as refused:
        return _report(0, refused.problems)
    own = sum(policy.source in {source.name for source in sources} for policy in policies.policies)
    measures = keep.authorizer.active_policies.measures
    return _report(own, check_policies(policies, keep.tools(kind=None), keep.agents, measures))


def _report(count: int, problems: Any) -> PolicyReport:
    data = [msgspec.to_builtins(one) for one in problems]
    return PolicyReport(success=not data, policies=count, problems=data)


async def explain_call(keep: Keep, caller: Caller, body: ExplainBody) -> ExplainedCall:
    """Explain the decision on a call of the caller's agent; of another agent only with `admin`."""
    agent = body.agent or caller.agent
    if agent != caller.agent and not caller.has_scope(Scope.ADMIN):
        raise RequestRefused(
            Code.SCOPE_MISSING, "asking about another agent needs the scope admin", hint="omit agent"
        )
    owner = state_owner(caller, body.session) if agent == caller.agent else ANY_SESSION
    explained = await asyncio.to_thread(_explained, keep, agent, owner, body)
    return explained if caller.has_scope(Scope.ADMIN) else _without_places(explained)


def _without_places(explained: ExplainedCall) -> ExplainedCall:
    """Remove resources outside the agent's grant: they would tell it which files exist."""
    if not any(touch["objections"] for touch in explained.touches):
        return explained
    said = [] if explained.refusal is None else [explained.refusal["message"]]
    held = [touch for touch in explained.touches if not touch["objections"]]
    return msgspec.structs.replace(
        explained, touches=held, policies=[], changes=said, line="", added="", added_to=""
    )


def _explained(keep: Keep, agent: str, owner: str, body: ExplainBody) -> ExplainedCall:
    checked = keep.try_validate_arguments(body.tool, body.arguments, agent=agent)
    if isinstance(checked, Refusal):
        changes = tuple(f"{error.message}: {error.suggestion}" for error in checked.errors)
        return _shown(agent, checked.tool, Explanation(outcome=checked, changes=changes), ApprovalPreview())
    return _decided(keep, agent, owner, body, checked)


def _decided(keep: Keep, agent: str, owner: str, body: ExplainBody, checked: CheckedCall) -> ExplainedCall:
    """Decide as if the caller made the call now: with the state of its session, and nothing is counted."""
    kept = keep.record.approvals  # before `flow`, which begins with the record
    flow = keep.authorizer.flow
    request = ToolCall(
        id="explain",
        tool=checked.tool,
        arguments=None,
        agent=agent,
        session=body.session,
        flow=None if flow is None else flow.look_up(agent, body.session, caller=owner),
    )
    authorizer = keep.authorizer.beside(None if flow is None else flow.dry())
    explained = explain(authorizer, keep.holder(agent), request, checked)
    outcome = explained.outcome
    if not isinstance(outcome, PermittedCall):
        return _shown(agent, checked.tool, explained, ApprovalPreview())
    try:
        asked = preview_approval_need(outcome, kept, is_paranoid=keep.is_paranoid)
        return _shown(agent, checked.tool, explained, asked)
    finally:
        for one in outcome.touched:
            one.close()


def _shown(agent: str, tool: str, explained: Explanation, asked: ApprovalPreview) -> ExplainedCall:
    outcome, line = explained.outcome, explained.line
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
        line=str(line or ""),
        added=line.added if line else "",
        added_to=line.entry if line else "",
        flow=msgspec.to_builtins(decision.flow) if (decision := outcome.decision) and decision.flow else None,
    )


def _refusal(outcome: PermittedCall | Refusal) -> Iterator[tuple[str, str]]:
    if isinstance(outcome, Refusal):
        yield "code", outcome.code.value
        yield "message", outcome.errors[0].message


async def _list(service: Service, request: Request) -> Response:
    hits = await asyncio.to_thread(service.statistics.by_policy, service.keep)
    return json_response(list_policies(service.keep, hits))


async def _check(service: Service, request: Request) -> Response:
    return json_response(await check_texts(service.keep, await request.read(CheckBody)))


async def _explain(service: Service, request: Request) -> Response:
    body = await request.read(ExplainBody)
    return json_response(await explain_call(service.keep, request.caller, body))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/policies",
        name="listPolicies",
        about="The policies in force.",
        handler=_list,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        gives={200: ResponseSpec(about="The policies.", kind=list[PolicyView])},
    ),
    Route(
        method="POST",
        path="/v1/policies:check",
        name="checkPolicies",
        about="Check policies against the registered tools and agents.",
        handler=_check,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        body=CheckBody,
        gives={200: ResponseSpec(about="All problems.", kind=PolicyReport)},
    ),
    Route(
        method="POST",
        path="/v1/policies:explain",
        name="explainCall",
        about="Why a call would be allowed or denied, and what would have to change. Nothing is run.",
        handler=_explain,
        scopes=(Scope.POLICIES_READ,),
        tag="policies",
        body=ExplainBody,
        gives={200: ResponseSpec(about="The explanation.", kind=ExplainedCall)},
    ),
)
