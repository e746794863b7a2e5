"""The first steps with a keep: a checklist, and the configuration of each client, with a token shown once."""

from typing import Any, Final

from toolkeep.server.api import onboarding_routes, token_routes
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_FIRST: Final = "claude"


async def start_data(service: Service, request: PageRequest) -> dict[str, Any]:
    """What `parts/start.html` shows."""
    steps = await onboarding_routes.onboarding(service)
    agents = onboarding_routes.client_agents(service.keep, request.caller)
    return {"onboarding": steps, **_clients(service, request, agents[0], _FIRST), "agents": agents}


def _clients(
    service: Service, request: PageRequest, agent: str, client: str, token: str = onboarding_routes.TOKEN
) -> dict[str, Any]:
    listed = onboarding_routes.list_clients(service.keep, request.base(service.base), agent, token)
    return {
        "clients": listed,
        "chosen": {"client": client, "agent": agent},
        "is_made": token != onboarding_routes.TOKEN,
    }


async def _show(service: Service, request: PageRequest) -> Response:
    if request.wants_part:
        steps = await onboarding_routes.onboarding(service)
        return request.renderer.page(request, "parts/start_steps.html", onboarding=steps)
    return request.renderer.page(request, "start.html", **await start_data(service, request))


async def _connect(service: Service, request: PageRequest) -> Response:
    """Make a token for a client, and show it in its configuration, this once."""
    form = await request.form()
    agents = onboarding_routes.client_agents(service.keep, request.caller)
    agent, client = form.get("agent"), form.get("client")
    if agent not in agents:
        raise not_found("agent")
    listed = onboarding_routes.list_clients(service.keep, "", agent)
    chosen = next((one for one in listed if one.client == client), None)
    if chosen is None:
        raise not_found("client")
    token = onboarding_routes.TOKEN
    if chosen.takes_token:  # none is made that nobody needs
        body = {"name": client, "agent": agent, "scopes": [Scope.MCP.value]}
        said = converted(body, token_routes.TokenBody)
        token = (await token_routes.make_token(service.tokens, request.caller, said)).token
    data = _clients(service, request, agent, client, token)
    return request.renderer.page(request, "parts/connect.html", **data, agents=agents)


ROUTES: Final = (
    page_route("GET", "/ui/start", _show, (Scope.AUDIT_READ,)),
    page_route("POST", "/ui/start:connect", _connect, (Scope.TOKENS,)),
)
