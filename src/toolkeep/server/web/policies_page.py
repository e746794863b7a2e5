"""Policies in force with their text and hits, an editor that tries and puts them in force, explanations."""

import asyncio
import re
from typing import Final

import jiter
from markupsafe import Markup

from toolkeep.calls import DEFAULT_POLICY
from toolkeep.errors import Code
from toolkeep.server.api import policy_routes, stored_policy_routes
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Parameter, converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service, sees_as
from toolkeep.server.web.fresh_sign_in import TYPED_NAME, confirm_data, page_confirmation
from toolkeep.server.web.templates_env import shown_text
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_NAMED: Final = 500
"""Tools that the field suggests; more would be slow to draw, and any can be typed."""


async def _show(service: Service, request: PageRequest) -> Response:
    keep = service.keep
    is_admin = request.caller.has_scope(Scope.ADMIN)
    agents = sorted(keep.agents) if is_admin else [request.caller.agent]
    tools = keep.tools(agent=sees_as(request.caller))
    hits = await asyncio.to_thread(service.statistics.by_policy, keep)
    views = policy_routes.list_policies(keep, hits)
    sources = dict.fromkeys(one.source for one in sorted(views, key=lambda one: (not one.source, one.source)))
    return request.renderer.page(
        request,
        "policies.html",
        groups={source: [one for one in views if one.source == source] for source in sources},
        stored={one.name: one for one in keep.stored_policies},
        highlighted=highlighted,
        is_counting=service.statistics.is_counting,
        problem=await asyncio.to_thread(keep.authorizer.problem) if is_admin else "",
        agents=agents,
        asked={name: str(request.query[name]) for name in ("agent", "tool")},
        tools=[tool.name for tool in tools[:_NAMED]],
        set_hash=keep.authorizer.active_policies.engine.policies.hash,
    )


async def _explain(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    text = form.get("arguments").strip() or "{}"
    try:
        arguments = jiter.from_json(text.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise RequestRefused(
            Code.REQUEST_INVALID, "the arguments are not JSON", hint=str(error)[:200]
        ) from None
    said = {"tool": form.get("tool").strip(), "arguments": arguments, "agent": form.get("agent")}
    body = converted(said, policy_routes.ExplainBody)
    explained = await policy_routes.explain_call(service.keep, request.caller, body)
    return request.renderer.page(request, "parts/explained.html", explained=explained)


async def _edit(service: Service, request: PageRequest) -> Response:
    name = str(request.query["name"])
    held = next((one for one in service.keep.stored_policies if one.name == name), None)
    if name and held is None:
        raise not_found("policies of that name in the state")
    in_force = service.keep.authorizer.active_policies.engine.policies.policies
    return request.renderer.page(
        request,
        "policy_edit.html",
        held=held,
        words=_WORDS,
        is_first=any(one.id == DEFAULT_POLICY for one in in_force),
        **confirm_data(request),
    )


async def _try(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    said = {key: form.get(key) for key in ("text", "examples")}
    name = form.get("name").strip()
    name = name if _NAME.fullmatch(name) else "new"  # while it is typed; `put` refuses it
    body = converted({"name": name, **said, "replay": "replay" in form}, stored_policy_routes.TryBody)
    report = await stored_policy_routes.try_policies(service.keep, request.caller, body)
    return request.renderer.page(request, "parts/policies_tried.html", report=report, name=name)


async def _put(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    said = {key: form.get(key) for key in ("name", "text", "examples", TYPED_NAME)}
    body = converted({**said, "name": said["name"].strip()}, stored_policy_routes.PutBody)
    await stored_policy_routes.put_policies(service.keep, page_confirmation(request, form), body)
    return _to_list()


async def _drop(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    said = {key: form.get(key) for key in ("name", TYPED_NAME)}
    body = converted(said, stored_policy_routes.DropBody)
    await stored_policy_routes.drop_policies(service.keep, page_confirmation(request, form), body)
    return _to_list()


def _to_list() -> Response:
    return Response(200, b"", b"text/plain", ((b"hx-redirect", b"/ui/policies"),))


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_WORDS: Final = (
    "permit|forbid|when|unless|if|then|else|in|has|like|is|true|false|principal|action|resource|context"
)
"""The words of Cedar, here and in the editor."""
_CEDAR: Final = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<string>"(?:[^"\\]|\\.)*+"?)|(?P<note>@[A-Za-z_]+)"""
    rf"""|\b(?P<key>{_WORDS})\b""",
    re.DOTALL,
)


def highlighted(text: str) -> Markup:
    """Cedar as HTML, its parts marked by what they are."""
    pieces, end = [], 0
    for found in _CEDAR.finditer(text):
        pieces.append(shown_text(text[end : found.start()]))
        mark = Markup('<span class="cedar-{}">{}</span>')
        pieces.append(mark.format(found.lastgroup, shown_text(found[0])))
        end = found.end()
    return Markup("").join([*pieces, shown_text(text[end:])])


def _text(name: str) -> Parameter:
    return Parameter(name=name, about="", shortest=0, longest=256, default="")


_SCOPES: Final = (Scope.POLICIES_READ,)

ROUTES: Final = (
    page_route("GET", "/ui/policies", _show, _SCOPES, *map(_text, ("agent", "tool"))),
    page_route("POST", "/ui/policies:explain", _explain, _SCOPES),
    page_route("GET", "/ui/policies/edit", _edit, (Scope.ADMIN,), _text("name")),
    page_route("POST", "/ui/policies:check", _try, _SCOPES),
    page_route("POST", "/ui/policies:put", _put, (Scope.ADMIN,)),
    page_route("POST", "/ui/policies:drop", _drop, (Scope.ADMIN,)),
)
