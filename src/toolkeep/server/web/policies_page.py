"""Policies in force, a checker for policy text, and explanations of decisions."""

import asyncio
from typing import Final

import jiter

from toolkeep.errors import Code
from toolkeep.server.api import policy_routes
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Parameter, converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service, sees_as
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_NAMED: Final = 500
"""Tools that the field suggests; more would be slow to draw, and any can be typed."""


async def _show(service: Service, request: PageRequest) -> Response:
    keep = service.keep
    is_admin = request.caller.has_scope(Scope.ADMIN)
    agents = sorted(keep.agents) if is_admin else [request.caller.agent]
    tools = keep.tools(agent=sees_as(request.caller))
    return request.renderer.page(
        request,
        "policies.html",
        policies=policy_routes.list_policies(keep),
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


async def _check(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    body = converted({"policies": [{"text": form.get("text")}]}, policy_routes.CheckBody)
    report = await policy_routes.check_texts(service.keep, body)
    return request.renderer.page(request, "parts/policies_checked.html", report=report)


def _text(name: str) -> Parameter:
    return Parameter(name=name, about="", shortest=0, longest=256, default="")


_SCOPES: Final = (Scope.POLICIES_READ,)

ROUTES: Final = (
    page_route("GET", "/ui/policies", _show, _SCOPES, *map(_text, ("agent", "tool"))),
    page_route("POST", "/ui/policies:explain", _explain, _SCOPES),
    page_route("POST", "/ui/policies:check", _check, _SCOPES),
)
