"""Approval requests over HTTP: who may see them, and whose answer counts (POL-4).

The scope `approve` shows every request; without it, an agent sees its own. An answer is given in the name of
the token's agent. No agent answers its own requests: the approval store refuses that on every path.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from toolkeep.approval.approval_store import Approvals
from toolkeep.approval.argument_summary import outline, shortest_first, summary
from toolkeep.approval.coverage import Argument
from toolkeep.approval.question import Answer, AnswerRefused, Question, Standing
from toolkeep.approval.question_text import flow_line, preview_answer
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code
from toolkeep.host.clock import iso
from toolkeep.keep.keep import Keep
from toolkeep.limits import APPROVALS_WAITING, RULE_DAYS, SHOWN_CHARS
from toolkeep.server.api.approval_history import AnswerView, ApprovalHistory, PastCalls, SessionCall
from toolkeep.server.api.common_parameters import CURSOR, ID, LIMIT
from toolkeep.server.api.pagination import Page, cut, decode_cursor
from toolkeep.server.api.session_routes import note_shown
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope
from toolkeep.text.display import excerpt

_ABOUT_CHARS: Final = 240  # of the arguments in a list: two or three, and a long path whole
_VALUE_CHARS: Final = 160  # of each of them

WAY = "http"
"""What the log says of an answer that came over HTTP."""


class ChoiceView(msgspec.Struct, frozen=True, kw_only=True):
    """One argument, as an approval for the session or a rule would bind it."""

    name: str
    role: str
    """content or option, which need not be equal unless you say so; else empty."""
    fixed: str
    """Why it must be equal; empty where it may be freed or bounded."""
    bounds: list[str]
    """Bounds that cover this call, narrowest first, such as `folder:/srv/docs`."""
    shown: str
    """The beginning of its value; empty where it is absent."""


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True):
    """One question, whole: the exact call; of each secret only how long it is."""

    id: str
    response: str
    """Questions with the same one are about calls of one response of the model; empty for a call alone."""
    state: str
    call_id: str
    agent: str
    conversation: str
    session: str
    tool: str
    version: str
    definition_hash: str
    argument_hash: str
    danger: str
    why: list[str]
    acts: int
    acts_done: int
    arguments: dict[str, Any]
    """The whole arguments: what the call touches first, options last, long values below all others."""
    outline: str
    """The same for a person to read: every name, and the beginning of every value."""
    touches: list[str]
    flow: list[str]
    difference: str
    policies: list[str]
    choices: list[ChoiceView]
    covers: str
    """Which calls an approval with reach session or rule would cover; empty if there is none."""
    decided_by: str
    """Who answered; empty while it waits."""
    reason: str
    """Why it was denied, as the model reads it."""
    asked_at: str
    expires_at: str
    may_be_remembered: bool
    wants_name: bool
    """Whether the next yes is given by typing the tool's name."""
    is_own: bool
    """Whether it is a call of the caller's own agent, or on their own behalf, which they cannot answer."""


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """One question in a list of them."""

    id: str
    response: str
    agent: str
    tool: str
    danger: str
    about: str
    """The beginning of its arguments, to tell it from others by."""
    asked_at: str
    expires_at: str


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """The questions that are shown, and how many there are."""

    shown: list[WaitingView]
    total: int


class ApprovalPage(Page, frozen=True, kw_only=True):
    """Some of the questions."""

    items: list[ApprovalView]


Choices = Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=4200)]], msgspec.Meta(max_length=1000)]
"""`equal`, `any`, `folder:…`, `host:…`, `domain:…` or `max:…`, by the name of an argument."""


class DecideBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer."""

    verdict: Literal["approve", "deny"]
    reach: Literal["once", "session", "rule"] = "once"
    reason: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    typed_name: Annotated[str, msgspec.Meta(max_length=64)] = ""
    days: Annotated[int, msgspec.Meta(ge=1, le=RULE_DAYS)] = 30
    arguments: Choices = {}


Ids = Annotated[list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=APPROVALS_WAITING)]


class DecideAllBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers to several questions, such as those of one response; each approval is for this call alone."""

    approve: Ids = []
    deny: Ids = []
    reason: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """Why the others are denied."""


class DecidedView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of several answers."""

    id: str
    state: str
    """As of a question; empty if there is none. A critical one still waits for its second approval."""
    problem: str
    """Why the answer does not count; empty if it does."""


class PreviewBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an approval for the session or a rule would leave open."""

    arguments: Choices = {}


class PreviewView(msgspec.Struct, frozen=True, kw_only=True):
    """What would pass unasked."""

    covers: str


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """What helps to judge a question, beside the call itself."""

    description: str
    """Of the tool, as its author wrote it; empty if its definition has changed since."""
    provider: str
    grant: list[str]
    """What the agent holds of the capabilities that the tool requires."""
    past: PastCalls
    session: list[SessionCall]
    """The last calls of the same session, else conversation, that ended before it; the oldest first."""


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """An approval rule, which covers every call like the approved one."""

    id: str
    text: str
    agent: str
    tool: str
    approver: str
    made_at: str
    ends_at: str


async def list_approvals(keep: Keep, caller: Caller, *, limit: int, cursor: str | None = None) -> Page:
    """List pending approval requests that the caller may see, oldest first."""
    start = decode_cursor(cursor, tuple[float, str]) if cursor else None
    waiting = await asyncio.to_thread(_store(keep).waiting)
    seen = sorted((one for one in waiting if _may_see(caller, one.question)), key=_place)
    later = [one for one in seen if start is None or _place(one) > start]
    await _note_shown(keep, caller, later[:limit])
    return cut(later, limit, _place, lambda one: view_of(one, caller))


async def inbox(keep: Keep, caller: Caller, *, limit: int) -> Inbox:
    """A selection of pending requests, taken from the agents in turn; the most dangerous first, then the
    oldest.

    By age alone, one agent could hide the requests of others behind a flood of its own.
    """
    waiting = await asyncio.to_thread(_store(keep).waiting)
    seen = sorted((one for one in waiting if _may_see(caller, one.question)), key=_place)
    before: Counter[str] = Counter()
    turns: list[tuple[int, Standing]] = []
    for one in seen:
        turns.append((before[one.question.agent], one))
        before[one.question.agent] += 1
    shown = [one for _, one in sorted(turns, key=lambda turn: turn[0])[:limit]]
    await _note_shown(keep, caller, shown)
    return Inbox(shown=[_waiting(one.question) for one in sorted(shown, key=_urgency)], total=len(seen))


def _waiting(question: Question) -> WaitingView:
    return WaitingView(
        id=question.id,
        response=question.response,
        agent=question.agent,
        tool=question.tool,
        danger=question.danger,
        about=excerpt(
            summary(
                question.argument_data,
                _ABOUT_CHARS,
                value_chars=_VALUE_CHARS,
                ranks=_ranks(question),
            ),
            _ABOUT_CHARS,
        ),
        asked_at=iso(question.asked_at),
        expires_at=iso(question.expires_at),
    )


async def show_approval(keep: Keep, caller: Caller, question_id: str) -> ApprovalView:
    """Show one request, also after it was answered."""
    return view_of(await _find(keep, caller, question_id), caller)


async def approval_context(service: Service, caller: Caller, question_id: str) -> ContextView:
    """What helps to judge a request: the tool's description, the grant, and how earlier calls went."""
    question = (await _find(service.keep, caller, question_id)).question
    return await asyncio.to_thread(context_of, service.keep, service.history, question)


def context_of(keep: Keep, history: ApprovalHistory, question: Question) -> ContextView:
    """The same, of a question that the caller may see."""
    tool = keep.try_get(f"{question.tool}@{question.version}")
    is_known = tool is not None and tool.definition_hash == question.definition_hash
    definition = tool.definition if tool is not None and is_known else None
    wanted = {one.kind for one in definition.capabilities} if definition else set()
    grant = keep.agents.get(question.agent)
    return ContextView(
        description=definition.description if definition else "",
        provider=tool.provider if tool is not None and is_known else "",
        grant=[str(one) for one in (grant.capabilities if grant else ()) if one.kind in wanted],
        past=history.past(keep, question.agent, question.tool),
        session=history.of_session(
            keep, question.agent, question.session, question.conversation, before=question.asked_at
        ),
    )


async def list_answers(service: Service, *, limit: int) -> list[AnswerView]:
    """The last answers to requests, newest first, as the log of this server has them."""
    return await asyncio.to_thread(_answers_of, service, limit)


def _answers_of(service: Service, limit: int) -> list[AnswerView]:
    """The log has no reasons: they are in the questions, which are kept for a while."""
    answers = []
    for one in service.history.answers(service.keep, limit):
        standing = _store(service.keep).standing(one.id)
        reason = standing.answer.reason if standing and standing.answer else ""
        answers.append(msgspec.structs.replace(one, reason=reason))
    return answers


async def decide(
    keep: Keep, caller: Caller, question_id: str, said: DecideBody, *, way: str = WAY
) -> ApprovalView:
    """Record an answer in the name of the caller's agent; raises if it does not count."""
    await _find(keep, caller, question_id)
    answer = Answer(
        verdict=said.verdict,
        # From the token, never from the body: else anybody could answer in a person's name.
        approver=caller.agent,
        identity=caller.identity,
        way=way,
        reach=said.reach,
        reason=said.reason,
        typed_name=said.typed_name,
        days=said.days,
        arguments=said.arguments,
    )
    try:
        standing = await asyncio.to_thread(_store(keep).answer, question_id, answer)
    except AnswerRefused as refused:
        raise RequestRefused(Code.ANSWER_REFUSED, refused.reason) from refused
    return view_of(standing, caller)


def _is_own(question: Question, caller: Caller) -> bool:
    is_person = caller.identity is not None and caller.identity.is_same_person(question.identity)
    return is_person or question.agent == caller.agent


async def decide_all(keep: Keep, caller: Caller, said: DecideAllBody, *, way: str = WAY) -> list[DecidedView]:
    """Record an answer to each question by its id: only to what the caller was shown, never to "all"."""
    alone = await asyncio.to_thread(_answered_alone, keep, said.approve)
    answers = {question_id: DecideBody(verdict="approve") for question_id in said.approve}
    # A question in both lists is denied.
    answers |= {question_id: DecideBody(verdict="deny", reason=said.reason) for question_id in said.deny}
    refused = {one: DecidedView(id=one, state="waiting", problem=_ALONE) for one in alone - set(said.deny)}
    return [
        refused.get(question_id) or await _decided(keep, caller, question_id, answer, way=way)
        for question_id, answer in answers.items()
    ]


_ALONE: Final = "a call of high or critical danger is approved alone, or with its response"


def _answered_alone(keep: Keep, approve: list[str]) -> set[str]:
    """Questions that a yes to several cannot approve: nobody has judged each of them (POL-4).

    The calls of one response are one question with several lines.
    """
    waiting = {one.question.id: one.question for one in _store(keep).waiting()}
    chosen = [waiting[one] for one in approve if one in waiting]
    responses = {one.response for one in chosen}
    if len(chosen) == 1 or (len(responses) == 1 and "" not in responses):
        return set()
    return {one.id for one in chosen if not one.may_be_remembered}


async def _decided(
    keep: Keep, caller: Caller, question_id: str, said: DecideBody, *, way: str
) -> DecidedView:
    try:
        view = await decide(keep, caller, question_id, said, way=way)
    except RequestRefused as refused:
        standing = await asyncio.to_thread(_store(keep).standing, question_id)
        is_seen = standing is not None and _may_see(caller, standing.question)
        state = standing.state if standing is not None and is_seen else ""
        return DecidedView(id=question_id, state=state, problem=refused.message)
    return DecidedView(id=question_id, state=view.state, problem="")


async def response_approvals(keep: Keep, caller: Caller, response: str) -> list[ApprovalView]:
    """The pending requests of one response, oldest first."""
    waiting = await asyncio.to_thread(_store(keep).waiting)
    of_it = [one for one in waiting if one.question.response == response and _may_see(caller, one.question)]
    await _note_shown(keep, caller, of_it)
    return [view_of(one, caller) for one in sorted(of_it, key=_place)]


async def preview_approval(keep: Keep, caller: Caller, question_id: str, said: PreviewBody) -> PreviewView:
    """Preview what an approval for the session, or a rule, would cover; raises for an impossible choice."""
    question = (await _find(keep, caller, question_id)).question
    try:
        return PreviewView(covers=_covers(question, said.arguments))
    except AnswerRefused as refused:
        raise RequestRefused(Code.ANSWER_REFUSED, refused.reason) from refused


def _covers(question: Question, arguments: dict[str, str]) -> str:
    if not question.may_be_remembered:
        return ""
    return preview_answer(question, Answer(verdict="approve", approver="", way="", arguments=arguments))


async def list_rules(keep: Keep) -> list[RuleView]:
    """List the rules in force."""
    return [
        RuleView(
            id=rule.id,
            text=rule.text,
            agent=rule.agent,
            tool=rule.tool,
            approver=rule.approver,
            made_at=iso(rule.made_at),
            ends_at=iso(rule.ends_at),
        )
        for rule in await asyncio.to_thread(_store(keep).rules)
    ]


async def revoke_rule(keep: Keep, rule_id: str) -> None:
    """Revoke a rule; raises if there is none."""
    held = await asyncio.to_thread(_store(keep).rules)
    if rule_id not in {rule.id for rule in held} or not await asyncio.to_thread(_store(keep).revoke, rule_id):
        raise not_found("rule")


def view_of(standing: Standing, caller: Caller) -> ApprovalView:
    """An approval request as JSON data."""
    question = standing.question
    return ApprovalView(
        id=question.id,
        response=question.response,
        state=standing.state,
        call_id=question.call_id,
        agent=question.agent,
        conversation=question.conversation,
        session=question.session,
        tool=question.tool,
        version=question.version,
        definition_hash=question.definition_hash,
        argument_hash=question.argument_hash,
        danger=question.danger,
        why=list(question.why),
        acts=question.acts,
        acts_done=question.acts_done,
        arguments=shortest_first(question.argument_data, _ranks(question)),
        outline=outline(question.argument_data, SHOWN_CHARS, _ranks(question)).text,
        touches=list(question.touches),
        flow=list(map(flow_line, question.flow)),
        difference=question.difference,
        policies=list(question.policies),
        choices=[_choice(one) for one in question.choices],
        covers=_covers(question, {}),
        decided_by=standing.answer.approver if standing.answer and standing.state != "waiting" else "",
        reason=standing.answer.reason if standing.answer else "",
        asked_at=iso(question.asked_at),
        expires_at=iso(question.expires_at),
        may_be_remembered=question.may_be_remembered,
        wants_name=question.wants_name,
        is_own=_is_own(question, caller),
    )


def _choice(one: Argument) -> ChoiceView:
    return ChoiceView(name=one.name, role=one.role, fixed=one.fixed, bounds=list(one.bounds), shown=one.shown)


async def _find(keep: Keep, caller: Caller, question_id: str) -> Standing:
    standing = await asyncio.to_thread(_store(keep).standing, question_id)
    if standing is None or not _may_see(caller, standing.question):
        raise not_found("question")
    await _note_shown(keep, caller, [standing])
    return standing


async def _note_shown(keep: Keep, caller: Caller, shown: Sequence[Standing]) -> None:
    """Note what a caller reads of its own agent's calls: it stands whole there, also behind a reference."""
    for tool in {one.question.tool for one in shown if one.question.agent == caller.agent}:
        await asyncio.to_thread(note_shown, keep, caller, tool)


def _may_see(caller: Caller, question: Question) -> bool:
    return caller.has_scope(Scope.APPROVE) or question.agent == caller.agent


def _ranks(question: Question) -> dict[str, int]:
    """The order of the arguments for a person: what the call touches or binds first, options last."""
    return {one.name: _rank(one) for one in question.choices}


def _rank(argument: Argument) -> int:
    if argument.role:
        return 2 if argument.role == "content" else 3
    if argument.fixed or argument.paths or argument.hosts or argument.domains or argument.number is not None:
        return 0
    return 2 if argument.shown in ("true", "false", "null") else 1


def _store(keep: Keep) -> Approvals:
    return keep.record.approvals


def _place(standing: Standing) -> tuple[float, str]:
    return standing.question.asked_at, standing.question.id


def _urgency(standing: Standing) -> tuple[int, float, str]:
    return -Danger(standing.question.danger).rank, *_place(standing)


async def _list(service: Service, request: Request) -> Response:
    query = request.query
    return json_response(
        await list_approvals(service.keep, request.caller, limit=query["limit"], cursor=query["cursor"])
    )


async def _show(service: Service, request: Request) -> Response:
    return json_response(await show_approval(service.keep, request.caller, request.names["id"]))


async def _decide(service: Service, request: Request) -> Response:
    said = await request.read(DecideBody)
    return json_response(await decide(service.keep, request.caller, request.names["id"], said))


async def _decide_all(service: Service, request: Request) -> Response:
    said = await request.read(DecideAllBody)
    return json_response(await decide_all(service.keep, request.caller, said))


async def _show_context(service: Service, request: Request) -> Response:
    return json_response(await approval_context(service, request.caller, request.names["id"]))


async def _answers(service: Service, request: Request) -> Response:
    return json_response(await list_answers(service, limit=request.query["limit"]))


async def _preview(service: Service, request: Request) -> Response:
    said = await request.read(PreviewBody)
    return json_response(await preview_approval(service.keep, request.caller, request.names["id"], said))


async def _rules(service: Service, request: Request) -> Response:
    return json_response(await list_rules(service.keep))


async def _revoke(service: Service, request: Request) -> Response:
    await revoke_rule(service.keep, request.names["id"])
    return Response(204)


_SEERS: Final = (Scope.APPROVE, Scope.CALL)

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/approvals",
        name="listApprovals",
        about="Calls that wait for approval: all with the scope approve, else those of the token's agent.",
        handler=_list,
        scopes=_SEERS,
        tag="approvals",
        parameters=(LIMIT, CURSOR),
        gives={200: ResponseSpec(about="One page, oldest first.", kind=ApprovalPage)},
    ),
    Route(
        method="GET",
        path="/v1/approvals/{id}",
        name="showApproval",
        about="One approval request: the exact call; of each secret only its length.",
        handler=_show,
        scopes=_SEERS,
        tag="approvals",
        parameters=(ID,),
        gives={200: ResponseSpec(about="The question.", kind=ApprovalView)},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/approvals/{id}/context",
        name="showApprovalContext",
        about="The tool's description, what the agent holds, and how its earlier calls of the tool went.",
        handler=_show_context,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        gives={200: ResponseSpec(about="What helps to judge it.", kind=ContextView)},
        problems=(404,),
    ),
    Route(
        method="GET",
        path="/v1/answers",
        name="listAnswers",
        about="The last answers to approval requests, newest first.",
        handler=_answers,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(LIMIT,),
        gives={200: ResponseSpec(about="The answers.", kind=list[AnswerView])},
    ),
    Route(
        method="POST",
        path="/v1/approvals/{id}:decide",
        name="decideApproval",
        about="Answer in the name of the token's agent, which cannot answer for itself.",
        handler=_decide,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        body=DecideBody,
        gives={200: ResponseSpec(about="The answer was recorded.", kind=ApprovalView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/approvals:decide",
        name="decideApprovals",
        about="Answer several requests at once, such as all of one response: approve some, deny others.",
        handler=_decide_all,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        body=DecideAllBody,
        gives={200: ResponseSpec(about="What became of each answer.", kind=list[DecidedView])},
    ),
    Route(
        method="POST",
        path="/v1/approvals/{id}:preview",
        name="previewApproval",
        about="Which calls an approval for the session or a rule would cover. Nothing is decided.",
        handler=_preview,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        body=PreviewBody,
        gives={200: ResponseSpec(about="What later calls must satisfy.", kind=PreviewView)},
        problems=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/rules",
        name="listRules",
        about="The approval rules in effect.",
        handler=_rules,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        gives={200: ResponseSpec(about="The rules.", kind=list[RuleView])},
    ),
    Route(
        method="DELETE",
        path="/v1/rules/{id}",
        name="revokeRule",
        about="End a rule.",
        handler=_revoke,
        scopes=(Scope.APPROVE,),
        tag="approvals",
        parameters=(ID,),
        gives={204: ResponseSpec(about="It is revoked.")},
        problems=(404,),
    ),
)
