"""The status line at the bottom of every page."""

from typing import Final

from toolkeep.server.api.status_routes import StatusView, status_of
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.cookie_sessions import PERSON, Session
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope


def status_of_session(service: Service, session: Session) -> StatusView:
    """The status for the person of a session."""
    return status_of(service, session.caller, is_by_link=session.approver.agent == PERSON)


async def _status(service: Service, request: PageRequest) -> Response:
    if request.session is None:
        raise not_found("page")
    line = status_of_session(service, request.session)
    return request.renderer.page(request, "parts/status.html", line=line)


ROUTES: Final = (page_route("GET", "/ui/status", _status, tuple(Scope)),)
