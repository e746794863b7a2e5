"""Workers on other machines, as this server sees them."""

from typing import Final

from toolkeep.server.api.routes import listed_workers
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.templates_env import WORKERS
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope


async def _show(service: Service, request: PageRequest) -> Response:
    template = "parts/workers.html" if request.wants_part else "workers.html"
    return request.renderer.page(request, template, workers=listed_workers(service.keep))


ROUTES: Final = (page_route("GET", WORKERS, _show, (Scope.AUDIT_READ,)),)
