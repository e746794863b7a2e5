"""API tokens. A new token is shown once."""

from typing import Any, Final

from toolkeep.server.api import token_routes
from toolkeep.server.api.common_parameters import ID
from toolkeep.server.http.bearer_auth import SCOPES
from toolkeep.server.http.request import converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_DAYS: Final = {"7": "a week", "30": "30 days", "90": "90 days", "365": "a year"}


async def _show(service: Service, request: PageRequest) -> Response:
    return request.renderer.page(request, "tokens.html", **await _data(service, request))


async def _data(service: Service, request: PageRequest, **more: Any) -> dict[str, Any]:
    caller = request.caller
    given = {scope: about for scope, about in SCOPES.items() if caller.has_scope(scope)}
    return {
        "tokens": await token_routes.list_tokens(service.tokens, caller),
        "scopes": given,
        "agents": sorted(service.keep.agents) if caller.has_scope(Scope.ADMIN) else [caller.agent],
        "days": _DAYS,
        "made": None,
        "revoked": "",
        **more,
    }


async def _make(service: Service, request: PageRequest) -> Response:
    form = await request.form()
    days = form.get("days")
    said = {
        "name": form.get("name").strip(),
        "scopes": form.all("scope"),
        "agent": form.get("agent").strip(),
        "days": int(days) if days in _DAYS else 0,
    }
    made = await token_routes.make_token(
        service.tokens, request.caller, converted(said, token_routes.TokenBody)
    )
    return request.renderer.page(request, "parts/tokens.html", **await _data(service, request, made=made))


async def _rotate(service: Service, request: PageRequest) -> Response:
    made = await token_routes.rotate_token(service.tokens, request.caller, request.names["id"])
    service.authenticator.forget()
    return request.renderer.page(request, "parts/tokens.html", **await _data(service, request, made=made))


async def _revoke(service: Service, request: PageRequest) -> Response:
    await token_routes.revoke_token(service.tokens, request.caller, request.names["id"])
    service.authenticator.forget()
    data = await _data(service, request)
    revoked = next(one.name for one in data["tokens"] if one.id == request.names["id"])
    return request.renderer.page(request, "parts/tokens.html", **{**data, "revoked": revoked})


_SCOPES: Final = (Scope.TOKENS,)

ROUTES: Final = (
    page_route("GET", "/ui/tokens", _show, _SCOPES),
    page_route("POST", "/ui/tokens", _make, _SCOPES),
    page_route("POST", "/ui/tokens/{id}:rotate", _rotate, _SCOPES, ID),
    page_route("POST", "/ui/tokens/{id}:revoke", _revoke, _SCOPES, ID),
)
