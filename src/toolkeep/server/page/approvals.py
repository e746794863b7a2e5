"""The inbox: calls that wait for a person, each whole, and the rules that people said "always" to."""

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from toolkeep.approval.outline import outline
from toolkeep.limits import SHOWN_CHARS
from toolkeep.server import approvals
from toolkeep.server.answers import Answer
from toolkeep.server.page.request import Form, PageRequest, page_route
from toolkeep.server.page.sessions import Session
from toolkeep.server.problems import RequestRefused, nothing_there
from toolkeep.server.request import Parameter, converted
from toolkeep.server.routes.common import ID
from toolkeep.server.service import Service
from toolkeep.tokens import Scope

_WAY: Final = "page"
_SHOWN: Final = 100
_TELL: Final = (b"hx-trigger", b"approvals")
_HEAD_LINES: Final = 2
"""Lines of a difference that name the file."""


def _session(request: PageRequest) -> Session:
    if request.session is None:
        raise nothing_there("page")
    return request.session


async def _inbox(service: Service, request: PageRequest) -> Answer:
    return await _shown(service, request, "")


async def _one(service: Service, request: PageRequest) -> Answer:
    return await _shown(service, request, request.names["id"])


async def _shown(service: Service, request: PageRequest, wanted: str) -> Answer:
    who = _session(request).approver
    inbox = await approvals.inbox(service.keep, who, limit=_SHOWN)
    wanted = wanted or next((one.id for one in inbox.shown), "")
    chosen = await approvals.show_approval(service.keep, who, wanted) if wanted else None
    return request.renderer.page(
        request,
        "approvals.html",
        inbox=inbox,
        **(question_data(chosen) if chosen else {"chosen": None}),
        rules=await approvals.list_rules(service.keep),
    )


def question_data(view: approvals.ApprovalView) -> dict[str, Any]:
    """What templates want beside the question itself."""
    told = [view.difference, view.tool, view.agent, *view.touches, str(view.arguments)]
    return {
        "chosen": view,
        "is_cut": outline(view.arguments, SHOWN_CHARS).is_cut,
        "choices": [(one, list(_bounds(one))) for one in view.choices],
        "difference": list(_difference(view.difference)),
        "reads_backwards": any(_is_backwards(text) for text in told),
    }


def _difference(text: str) -> list[tuple[str, str]]:
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


async def _list(service: Service, request: PageRequest) -> Answer:
    inbox = await approvals.inbox(service.keep, _session(request).approver, limit=_SHOWN)
    return request.renderer.page(
        request, "parts/waiting.html", inbox=inbox, chosen_id=request.query["current"]
    )


async def _count(service: Service, request: PageRequest) -> Answer:
    inbox = await approvals.inbox(service.keep, _session(request).approver, limit=0)
    return request.renderer.page(request, "parts/count.html", number=inbox.total)


async def _standing(service: Service, request: PageRequest) -> Answer:
    """Nothing, while a question stands as it is shown: what somebody types meanwhile stays."""
    view = await approvals.show_approval(service.keep, _session(request).approver, request.names["id"])
    if view.state == "waiting" and view.acts_done == request.query["acts"]:
        return Answer(204)
    return request.renderer.page(request, "parts/question.html", **question_data(view))


async def _decide(service: Service, request: PageRequest) -> Answer:
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
        said["arguments"] = _chosen(await approvals.show_approval(service.keep, who, wanted), form)
    body = converted(said, approvals.DecideBody)
    try:
        view = await approvals.decide(service.keep, who, wanted, body, way=_WAY)
    except RequestRefused as refused:
        view = await approvals.show_approval(service.keep, who, wanted)
        return request.renderer.part(
            request, "parts/question.html", headers=[_TELL], problem=refused, **question_data(view)
        )
    return request.renderer.part(request, "parts/question.html", headers=[_TELL], **question_data(view))


async def _preview(service: Service, request: PageRequest) -> Answer:
    """The text beside the ticks, while the person changes them."""
    who, wanted = _session(request).approver, request.names["id"]
    view = await approvals.show_approval(service.keep, who, wanted)
    said = approvals.PreviewBody(arguments=_chosen(view, await request.form()))
    try:
        shown = await approvals.preview_approval(service.keep, who, wanted, said)
    except RequestRefused as refused:
        return request.renderer.part(request, "parts/covers.html", covers="", problem=refused)
    return request.renderer.part(request, "parts/covers.html", covers=shown.covers)


def _chosen(view: approvals.ApprovalView, form: Form) -> dict[str, str]:
    """What the ticks say of each argument; one that the form does not speak of must be equal."""
    chosen = {}
    for number, one in enumerate(view.choices):
        how = form.get(f"how.{number}")
        if one.fixed or form.get(f"equal.{number}") or not how:
            how = "equal"
        elif how == "max":
            how = f"max:{form.get(f'max.{number}')}"
        elif how != "any":
            # By number: the text that a browser gives back may not be the one that stands in the bound.
            how = next((bound for place, (bound, _) in enumerate(_bounds(one)) if str(place) == how), how)
        chosen[one.name] = how
    return chosen


_BOUNDS: Final = {
    "folder": "in the folder",
    "host": "at the host",
    "domain": "at the mail domain",
    "max": "at most",
}


def _bounds(one: approvals.ChoiceView) -> Iterator[tuple[str, str]]:
    """The bounds that may be chosen for an argument, in words."""
    for bound in one.bounds:
        kind, _, of = bound.partition(":")
        yield bound, f"{_BOUNDS[kind]} {of}"


async def _revoke(service: Service, request: PageRequest) -> Answer:
    await approvals.revoke_rule(service.keep, request.names["id"])
    return request.renderer.page(request, "parts/rules.html", rules=await approvals.list_rules(service.keep))


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
    page_route("GET", "/ui/approvals/{id}", _one, _SCOPES, ID),
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
