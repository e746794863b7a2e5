"""The inbox: pending approval requests with the complete call, what was answered, and rules made by "always".

After an answer comes the next request, below what became of the answered one.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from toolkeep.approval.approve import ADVICE
from toolkeep.approval.argument_summary import outline
from toolkeep.limits import SHOWN_CHARS
from toolkeep.server.api import approval_routes, audit_routes
from toolkeep.server.api.common_parameters import ID
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Parameter, converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.cookie_sessions import Session
from toolkeep.server.web.web_request import Form, PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_WAY: Final = "page"
_SHOWN: Final = 100
"""Pending approvals in the list: all that one agent may have (`APPROVALS_WAITING`). The page says how many
more wait."""
_ANSWERS: Final = 20
"""Answered questions below the inbox; the audit page has all."""
_TELL: Final = (b"hx-trigger", b"approvals")
_HEAD_LINES: Final = 2
"""Lines of a difference that name the file."""


def _session(request: PageRequest) -> Session:
    if request.session is None:
        raise not_found("page")
    return request.session


async def _inbox(service: Service, request: PageRequest) -> Response:
    return await _shown(service, request, "")


async def _one(service: Service, request: PageRequest) -> Response:
    return await _shown(service, request, request.names["id"], is_alone=bool(request.query["alone"]))


async def _shown(service: Service, request: PageRequest, wanted: str, *, is_alone: bool = False) -> Response:
    who = _session(request).approver
    inbox = await approval_routes.inbox(service.keep, who, limit=_SHOWN)
    wanted = wanted or next((one.id for one in inbox.shown), "")
    return request.renderer.page(
        request,
        "approvals.html",
        inbox=inbox,
        groups=_groups(inbox),
        **await _panel_data(service, request, wanted, is_alone=is_alone),
        rules=await approval_routes.list_rules(service.keep),
    )


async def _panel_data(
    service: Service, request: PageRequest, wanted: str, *, is_alone: bool = False
) -> dict[str, Any]:
    """Template data of the question that is shown, or of those of its response; nothing without an id."""
    if not wanted:
        return {"chosen": None, "lines": (), "answered": ()}
    chosen = await approval_routes.show_approval(service.keep, _session(request).approver, wanted)
    data = {"lines": (), "answered": (), **await _question_data(service, request, chosen)}
    together = await _of_response(service, request, chosen)
    data["others"] = len(together) - 1 if is_alone and len(together) > 1 else 0
    if len(together) > 1 and not is_alone:
        data |= await _lines_data(service, request, together)
    return data


async def _order(service: Service, request: PageRequest) -> list[str]:
    """The questions that this person can answer, in the order of the list."""
    who = _session(request).approver
    inbox = await approval_routes.inbox(service.keep, who, limit=_SHOWN)
    return [one.id for one in inbox.shown if one.agent != who.agent]


async def _go_on(
    service: Service,
    request: PageRequest,
    answered: Sequence[approval_routes.ApprovalView],
    before: Sequence[str],
) -> dict[str, Any]:
    """What became of the answered questions, and the one that came next in the list before."""
    left = await _order(service, request)
    place = before.index(answered[-1].id) + 1 if answered[-1].id in before else 0
    following = next((one for one in before[place:] if one in left), left[0] if left else "")
    data = await _panel_data(service, request, following)
    return {**data, "answered": [await _answered_data(service, request, one) for one in answered]}


async def _answered_data(
    service: Service, request: PageRequest, view: approval_routes.ApprovalView
) -> dict[str, Any]:
    """An answer, and the result of its call once there is one."""
    found = await _call_of(service, request, view) if view.state == "used" else None
    status = str(found.records[-1].record.get("status", "")) if found else ""
    may_know = _session(request).caller.has_scope(Scope.AUDIT_READ)
    waits = view.state == "approved" or (view.state == "used" and may_know and not status)
    is_late = datetime.fromisoformat(view.expires_at) < datetime.now(UTC) and view.state == "approved"
    return {
        "view": view,
        "status": status,
        "result": found.result if found else None,
        "is_over": not waits or is_late,
    }


async def _outcome(service: Service, request: PageRequest) -> Response:
    """What became of an approved call; asked for until it is over."""
    view = await approval_routes.show_approval(service.keep, _session(request).approver, request.names["id"])
    one = await _answered_data(service, request, view)
    # A rule is made when the call uses the approval.
    tell = [(b"hx-trigger", b"rules")] if one["is_over"] else []
    return request.renderer.part(request, "parts/answered.html", headers=tell, one=one, is_first=False)


def _groups(inbox: approval_routes.Inbox) -> list[list[approval_routes.WaitingView]]:
    """The calls of each response together, in the order of the first."""
    found: dict[str, list[approval_routes.WaitingView]] = {}
    for one in inbox.shown:
        found.setdefault(one.response or one.id, []).append(one)
    return list(found.values())


async def _of_response(
    service: Service, request: PageRequest, view: approval_routes.ApprovalView
) -> list[approval_routes.ApprovalView]:
    """The questions that are asked together with a waiting one."""
    if view.state != "waiting" or not view.response:
        return []
    return await approval_routes.response_approvals(service.keep, _session(request).approver, view.response)


async def _lines_data(
    service: Service,
    request: PageRequest,
    views: Sequence[approval_routes.ApprovalView],
    problems: Mapping[str, str] | None = None,
    *,
    is_selection: bool = False,
) -> dict[str, Any]:
    """Template data of the questions of one response, or of a selection."""
    lines = [
        {**await _question_data(service, request, view), "problem": (problems or {}).get(view.id, "")}
        for view in views
    ]
    waiting = [view for view in views if view.state == "waiting" and not view.acts_done and not view.is_own]
    return {
        "lines": lines,
        "response": "" if is_selection else views[0].response,
        "is_waiting": any(view.state == "waiting" for view in views),
        "can_answer": bool(waiting),
        "can_approve": any(view.may_be_remembered or not is_selection for view in waiting),
        "seen": _seen(views),
    }


def _seen(views: Sequence[approval_routes.ApprovalView]) -> str:
    """Which questions were waiting, to tell whether a page shows what waits now."""
    waiting = sorted(f"{view.id} {view.acts_done}" for view in views if view.state == "waiting")
    return hashlib.sha256("\n".join(waiting).encode()).hexdigest()[:16]


async def _response_standing(service: Service, request: PageRequest) -> Response:
    """204 while the same questions wait, so that the person's input stays."""
    who = _session(request).approver
    views = await approval_routes.response_approvals(service.keep, who, request.names["id"])
    if not views or _seen(views) == request.query["seen"]:
        return Response(204)
    data = await _lines_data(service, request, views)
    return request.renderer.page(request, "parts/questions.html", **data)


async def _selected(service: Service, request: PageRequest) -> Response:
    """Show the ticked questions of the list one below the other, or deny them."""
    form = await request.form()
    picked, who = form.all("picked")[:_SHOWN], _session(request).approver
    if form.get("act") == "deny":
        return await _decide_many(service, request, form, deny=picked)
    views = [await approval_routes.show_approval(service.keep, who, one) for one in picked]
    data: dict[str, Any] = {"chosen": None, "lines": (), "answered": ()}
    if views:
        data |= await _lines_data(service, request, views, is_selection=True)
    return request.renderer.part(request, "parts/panel.html", **data)


async def _decide_selected(service: Service, request: PageRequest) -> Response:
    return await _decide_many(service, request, await request.form())


async def _decide_many(
    service: Service, request: PageRequest, form: Form, *, deny: Sequence[str] = ()
) -> Response:
    """Answer the questions that were shown, or deny those that were picked."""
    shown, ticked, answer = form.all("shown"), set(form.all("ticked")), form.get("answer")
    approve = [one for one in shown if answer == "all" or (answer == "ticked" and one in ticked)]
    # Those to be approved alone had no box to tick: unless all are denied, they wait on.
    alone = form.all("alone") if answer == "none" else []
    others = [one for one in (*shown, *alone) if one not in approve]
    deny = deny or (others if answer in ("ticked", "none") else [])
    said = {"approve": approve, "deny": deny, "reason": form.get("reason") if deny else ""}
    who, before = _session(request).approver, await _order(service, request)
    body = converted(said, approval_routes.DecideAllBody)
    decided = await approval_routes.decide_all(service.keep, who, body, way=_WAY)
    found = {one.id: one for one in decided if one.state}
    if not found:
        raise not_found("question")
    # In the order in which they were shown.
    order = [one for one in (*shown, *deny) if one in found]
    views = {one: await approval_routes.show_approval(service.keep, who, one) for one in order}
    response = request.names.get("id", "")
    if not response and all(view.state != "waiting" for view in views.values()):
        data = await _go_on(service, request, list(views.values()), before)
        return request.renderer.part(request, "parts/panel.html", headers=[_TELL], **data)
    if response:
        # Also those that came meanwhile: nobody has answered them.
        waiting = await approval_routes.response_approvals(service.keep, who, response)
        views |= {view.id: view for view in waiting}
    problems = {one.id: one.problem for one in decided}
    data = await _lines_data(service, request, list(views.values()), problems, is_selection=not response)
    return request.renderer.part(request, "parts/questions.html", headers=[_TELL], **data)


async def _question_data(
    service: Service, request: PageRequest, view: approval_routes.ApprovalView
) -> dict[str, Any]:
    """Template data of a request."""
    told = [view.difference, view.tool, view.agent, *view.touches, *view.flow, str(view.arguments)]
    is_cut = outline(view.arguments, SHOWN_CHARS).is_cut
    texts = {} if is_cut else {name: value for name, value in view.arguments.items() if _is_text(value)}
    others = {name: value for name, value in view.arguments.items() if name not in texts}
    ranks = {name: place for place, name in enumerate(others)}
    found = await _call_of(service, request, view) if view.state == "used" else None
    return {
        "chosen": view,
        "because": [one.partition(ADVICE)[0] for one in view.why],
        "advice": "".join(one.partition(ADVICE)[2] for one in view.why),
        "others": 0,
        "context": await approval_routes.approval_context(service, _session(request).approver, view.id),
        "outcome": str(found.records[-1].record.get("status", "")) if found else "",
        "is_cut": is_cut,
        "outline": outline(others, SHOWN_CHARS, ranks).text if texts else view.outline,
        "texts": texts,
        "choices": [(one, list(_bounds(one))) for one in view.choices],
        "difference": difference_lines(view.difference),
        "reads_backwards": any(_is_backwards(text) for text in told),
    }


def _is_text(value: Any) -> bool:
    """Whether a value is shown with its line breaks, in a box of its own, where it can imitate nothing."""
    return isinstance(value, str) and "\n" in value.strip("\n")


async def _call_of(
    service: Service, request: PageRequest, view: approval_routes.ApprovalView
) -> audit_routes.CallRecords | None:
    """The records of the call that was approved; None if there are none yet, or the caller may not know."""
    try:
        return await audit_routes.call_records(
            service.keep, _session(request).caller, view.call_id, service.index
        )
    except RequestRefused:
        return None


def difference_lines(text: str) -> list[tuple[str, str]]:
    """The lines of a difference, each with its look."""
    lines = text.split("\n") if text else []
    return [(_look(line, number), line) for number, line in enumerate(lines)]


def _look(line: str, number: int) -> str:
    if number < _HEAD_LINES or line.startswith("@@"):
        return "place"
    if line.startswith("+"):
        return "added"
    return "removed" if line.startswith("-") else "same"


def _is_backwards(text: str) -> bool:
    return not text.isascii() and any(unicodedata.bidirectional(char) in ("R", "AL") for char in text)


async def _list(service: Service, request: PageRequest) -> Response:
    inbox = await approval_routes.inbox(service.keep, _session(request).approver, limit=_SHOWN)
    return request.renderer.page(
        request, "parts/waiting.html", inbox=inbox, groups=_groups(inbox), chosen_id=request.query["current"]
    )


async def _count(service: Service, request: PageRequest) -> Response:
    inbox = await approval_routes.inbox(service.keep, _session(request).approver, limit=0)
    return request.renderer.page(request, "parts/count.html", number=inbox.total)


async def _standing(service: Service, request: PageRequest) -> Response:
    """204 while the request is unchanged, so that the person's input stays."""
    view = await approval_routes.show_approval(service.keep, _session(request).approver, request.names["id"])
    if view.state == "waiting" and view.acts_done == request.query["acts"]:
        return Response(204)
    data = await _question_data(service, request, view)
    return request.renderer.page(request, "parts/question.html", **data)


async def _decide(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    verdict, _, reach = form.get("answer").partition(":")
    days = form.get("days") or "30"
    said: dict[str, Any] = {
        "verdict": verdict,
        "reach": reach or "once",
        "reason": form.get("reason") if verdict == "deny" else "",
        "typed_name": form.get("typed_name"),
        "days": int(days) if days.isascii() and days.isdigit() and len(days) < 5 else days,
    }
    who, wanted = _session(request).approver, request.names["id"]
    if reach in ("session", "rule"):
        said["arguments"] = _chosen(await approval_routes.show_approval(service.keep, who, wanted), form)
    body, before = converted(said, approval_routes.DecideBody), await _order(service, request)
    try:
        view = await approval_routes.decide(service.keep, who, wanted, body, way=_WAY)
    except RequestRefused as refused:
        view = await approval_routes.show_approval(service.keep, who, wanted)
        data = {**await _question_data(service, request, view), "problem": refused}
        return request.renderer.part(request, "parts/question.html", headers=[_TELL], **data)
    if view.state == "waiting":  # for its second yes
        data = await _question_data(service, request, view)
        return request.renderer.part(request, "parts/question.html", headers=[_TELL], **data)
    data = await _go_on(service, request, [view], before)
    return request.renderer.part(request, "parts/panel.html", headers=[_TELL], **data)


async def _preview(service: Service, request: PageRequest) -> Response:
    """What the current choices would cover, while the person changes them."""
    who, wanted = _session(request).approver, request.names["id"]
    view = await approval_routes.show_approval(service.keep, who, wanted)
    said = approval_routes.PreviewBody(arguments=_chosen(view, await request.form()))
    try:
        shown = await approval_routes.preview_approval(service.keep, who, wanted, said)
    except RequestRefused as refused:
        return request.renderer.part(request, "parts/covers.html", covers="", problem=refused)
    return request.renderer.part(request, "parts/covers.html", covers=shown.covers)


def _chosen(view: approval_routes.ApprovalView, form: Form) -> dict[str, str]:
    """The choice for each argument; one that the form leaves out must be equal."""
    chosen = {}
    for number, one in enumerate(view.choices):
        how = form.get(f"how.{number}")
        if one.fixed or form.get(f"equal.{number}") or not how:
            how = "equal"
        elif how == "max":
            how = f"max:{form.get(f'max.{number}')}"
        elif how != "any":
            # By index: a browser may return the text normalized, and then it would name another constraint.
            how = next((bound for place, (bound, _) in enumerate(_bounds(one)) if str(place) == how), how)
        chosen[one.name] = how
    return chosen


_BOUNDS: Final = {
    "folder": "in the folder",
    "host": "at the host",
    "domain": "at the mail domain",
    "max": "at most",
}


def _bounds(one: approval_routes.ChoiceView) -> Iterator[tuple[str, str]]:
    """The constraints that may be chosen for an argument, as text."""
    for bound in one.bounds:
        kind, _, of = bound.partition(":")
        yield bound, f"{_BOUNDS[kind]} {of}"


async def _rules(service: Service, request: PageRequest) -> Response:
    return request.renderer.page(
        request, "parts/rules.html", rules=await approval_routes.list_rules(service.keep)
    )


async def _answers(service: Service, request: PageRequest) -> Response:
    answers = await approval_routes.list_answers(service, limit=_ANSWERS)
    return request.renderer.page(request, "parts/answers.html", answers=answers)


async def _revoke(service: Service, request: PageRequest) -> Response:
    await approval_routes.revoke_rule(service.keep, request.names["id"])
    return await _rules(service, request)


_SCOPES: Final = (Scope.APPROVE,)

ROUTES: Final = (
    page_route("GET", "/ui/approvals", _inbox, _SCOPES),
    page_route("GET", "/ui/approvals/count", _count, _SCOPES),
    page_route(
        "GET",
        "/ui/approvals/list",
        _list,
        _SCOPES,
        Parameter(name="current", about="", shortest=0, default=""),
    ),
    page_route(
        "GET",
        "/ui/approvals/{id}",
        _one,
        _SCOPES,
        ID,
        Parameter(name="alone", about="", shortest=0, longest=1, default=""),
    ),
    page_route(
        "GET",
        "/ui/responses/{id}/standing",
        _response_standing,
        _SCOPES,
        ID,
        Parameter(name="seen", about="", shortest=0, longest=16, default=""),
    ),
    page_route("POST", "/ui/responses/{id}:decide", _decide_selected, _SCOPES, ID),
    page_route("POST", "/ui/approvals:selected", _selected, _SCOPES),
    page_route("POST", "/ui/approvals:decide", _decide_selected, _SCOPES),
    page_route("GET", "/ui/approvals/{id}/outcome", _outcome, _SCOPES, ID),
    page_route("GET", "/ui/rules", _rules, _SCOPES),
    page_route("GET", "/ui/answers", _answers, _SCOPES),
    page_route(
        "GET",
        "/ui/approvals/{id}/standing",
        _standing,
        _SCOPES,
        ID,
        Parameter(name="acts", about="", kind="integer", minimum=0, maximum=2, default=0),
    ),
    page_route("POST", "/ui/approvals/{id}:decide", _decide, _SCOPES, ID),
    page_route("POST", "/ui/approvals/{id}:preview", _preview, _SCOPES, ID),
    page_route("POST", "/ui/rules/{id}:revoke", _revoke, _SCOPES, ID),
)
