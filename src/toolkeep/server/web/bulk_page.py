"""Several tools of the list at once: preview, confirm, and what became of it."""

from typing import Any, Final

from toolkeep.errors import ToolkeepError
from toolkeep.server.api import bulk_routes
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import converted
from toolkeep.server.http.responses import Response
from toolkeep.server.service import Service
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.web_request import Form, PageRequest, page_route
from toolkeep.stores.api_tokens import Scope

_TELL: Final = (b"hx-trigger", b"tools-changed")
ACTIONS: Final = (
    ("disable", "Switch off", Scope.TOOLS_WRITE),
    ("enable", "Switch on", Scope.TOOLS_WRITE),
    ("accept", "Accept", Scope.ADMIN),
    ("danger", "Set danger", Scope.ADMIN),
)


def _body(form: Form, seen: str) -> bulk_routes.BulkBody:
    said = {
        "names": form.all("picked"),
        "action": form.get("action"),
        "danger": form.get("danger") or "own",
        "seen": seen,
    }
    return converted(said, bulk_routes.BulkBody)


async def _change(service: Service, request: PageRequest) -> Response:
    """The preview; with `seen`, the change."""
    form = await request.form()
    body = _body(form, form.get("seen"))
    said = page_confirmation(request, form)
    problem: ToolkeepError | None = None
    try:
        view = await bulk_routes.change_tools(service.keep, said, body)
    except RequestRefused as refused:
        if not body.seen:
            raise
        problem = refused
        view = bulk_routes.preview(service.keep, request.caller, body)
    data: dict[str, Any] = {
        "view": view,
        "body": body,
        "problem": problem,
        "label": {action: label for action, label, _ in ACTIONS},
    }
    tell = [_TELL] if view.is_done else []
    return request.renderer.part(request, "parts/bulk.html", headers=tell, **data, **confirm_data(request))


ROUTES: Final = (page_route("POST", "/ui/tools:change", _change, (Scope.TOOLS_WRITE,)),)
