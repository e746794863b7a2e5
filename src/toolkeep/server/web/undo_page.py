"""Take back the writes of a call or a session: the differences, a confirmed act, and what became of it."""

import asyncio
from typing import Final

import msgspec

from toolkeep.server.api import undo_routes
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import converted
from toolkeep.server.http.responses import Response, send_response
from toolkeep.server.service import Service
from toolkeep.server.web.approvals_page import difference_lines
from toolkeep.server.web.fresh_sign_in import confirm_data, page_confirmation
from toolkeep.server.web.web_request import PageRequest, page_route
from toolkeep.stores.api_tokens import Scope


async def has_writes(
    service: Service, caller: Caller, *, call: str = "", session: str = "", agent: str = ""
) -> bool:
    """Whether a page offers to take back what a call, or the calls of a session, wrote."""
    if not caller.has_scope(Scope.ADMIN):
        return False
    return bool(await asyncio.to_thread(service.keep.replaced, call=call, session=session, agent=agent))


async def _undo(service: Service, request: PageRequest) -> Response | None:
    """The preview; with `seen`, the act."""
    form = await request.form()
    said = {key: form.get(key) for key in ("call", "session", "agent", "seen")}
    body = converted(said, undo_routes.UndoBody)
    confirmation = page_confirmation(request, form)
    approver = request.caller if request.session is None else request.session.approver

    def shown(view: undo_routes.UndoView, problem: RequestRefused | None = None) -> Response:
        return request.renderer.part(
            request,
            "parts/undo.html",
            view=view,
            body=body,
            problem=problem,
            difference_lines=difference_lines,
            **confirm_data(request),
        )

    async def send(view: undo_routes.UndoView) -> None:
        await send_response(request.send, shown(view))

    try:
        view = await undo_routes.take_back(service, confirmation, approver, body, send)
    except RequestRefused as refused:
        if not body.seen:
            raise
        preview = msgspec.structs.replace(body, seen="")
        again = await undo_routes.take_back(service, confirmation, approver, preview, send)
        return None if again is None else shown(again, refused)
    return None if view is None else shown(view)


ROUTES: Final = (page_route("POST", "/ui/calls:undo", _undo, (Scope.ADMIN,), is_long=True),)
