"""Quarantined tools over HTTP: review what changed, accept exactly that, or keep it out (WEB-2).

An acceptance is bound to the hash of the reviewed definition: one that changed meanwhile is not accepted.
"""

import asyncio
from typing import Annotated, Final

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.errors import NotAccepted
from toolkeep.keep.keep import Keep
from toolkeep.registry.pending_review import Review
from toolkeep.server.api import tool_routes
from toolkeep.server.api.admin_change import (
    Change,
    Confirmation,
    bearer_confirmation,
    put_in_force,
    record_change,
)
from toolkeep.server.api.common_parameters import NAME
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope


class ReviewView(Review, frozen=True, kw_only=True):
    """A definition that awaits acceptance."""

    is_rejected: bool
    """Whether a person keeps it out."""


class AcceptBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The acceptance of a reviewed definition."""

    hash: Annotated[str, msgspec.Meta(max_length=64)]
    typed_name: Annotated[str, msgspec.Meta(max_length=256)]
    """The name of the tool, to confirm."""


class RejectBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The definition that is kept out."""

    hash: Annotated[str, msgspec.Meta(max_length=64)]


async def review_tool(keep: Keep, caller: Caller, name: str) -> ReviewView:
    """How a definition that awaits acceptance differs; raises if none does."""
    found = await asyncio.to_thread(pending_review, keep, caller, name)
    if found is None:
        raise not_found("definition that awaits acceptance")
    return found


def pending_review(keep: Keep, caller: Caller, name: str) -> ReviewView | None:
    """How a definition that awaits acceptance differs; None if none does."""
    tool = tool_routes.find_tool(keep, caller, name)
    review = keep.review(tool.name)
    if review is None:
        return None
    return ReviewView(**msgspec.structs.asdict(review), is_rejected=keep.is_rejected(tool.name))


async def _reviewed(
    keep: Keep, caller: Caller, name: str, definition_hash: str
) -> tuple[RegisteredTool, ReviewView]:
    """What waits now, if it is what the person reviewed: else the record would have another difference."""
    review = await review_tool(keep, caller, name)
    if review.hash != definition_hash:
        raise NotAccepted("another definition waits by now", hint="review it again: it has changed")
    return tool_routes.find_tool(keep, caller, name), review


async def accept_tool(
    keep: Keep, said: Confirmation, name: str, definition_hash: str
) -> tool_routes.ToolView:
    """Accept a reviewed definition; raises if it is not confirmed, or another one waits by now."""
    tool, review = await _reviewed(keep, said.caller, name, definition_hash)
    change = Change(what="tool accepted", name=tool.name, difference="\n".join(review.lines()))
    await put_in_force(keep, said, change, lambda: keep.accept(tool.name, definition_hash=definition_hash))
    return tool_routes.show_tool(keep, said.caller, tool.name)


async def reject_tool(keep: Keep, said: Confirmation, name: str, definition_hash: str) -> ReviewView:
    """Keep a definition out: it stays quarantined and no longer needs attention."""
    tool, review = await _reviewed(keep, said.caller, name, definition_hash)
    change = Change(what="tool kept out", name=tool.name, difference="\n".join(review.lines()))
    await record_change(keep, said, change, lambda: keep.reject(tool.name, definition_hash=definition_hash))
    return await review_tool(keep, said.caller, name)


async def _show(service: Service, request: Request) -> Response:
    return json_response(await review_tool(service.keep, request.caller, request.names["name"]))


async def _accept(service: Service, request: Request) -> Response:
    body = await request.read(AcceptBody)
    said = bearer_confirmation(request.caller, body.typed_name)
    return json_response(await accept_tool(service.keep, said, request.names["name"], body.hash))


async def _reject(service: Service, request: Request) -> Response:
    body = await request.read(RejectBody)
    said = bearer_confirmation(request.caller, "")
    return json_response(await reject_tool(service.keep, said, request.names["name"], body.hash))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/tools/{name}/review",
        name="reviewTool",
        about="How the definition of a quarantined tool differs from the accepted one.",
        handler=_show,
        scopes=(Scope.ADMIN,),
        tag="tools",
        parameters=(NAME,),
        gives={200: ResponseSpec(about="What an acceptance would put in use.", kind=ReviewView)},
        problems=(404,),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:accept",
        name="acceptTool",
        about="Accept the reviewed definition of a quarantined tool, by its hash and the typed name.",
        handler=_accept,
        scopes=(Scope.ADMIN,),
        tag="tools",
        parameters=(NAME,),
        body=AcceptBody,
        gives={200: ResponseSpec(about="The tool as it is now.", kind=tool_routes.ToolView)},
        problems=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/tools/{name}:reject",
        name="rejectTool",
        about="Keep the reviewed definition of a quarantined tool out.",
        handler=_reject,
        scopes=(Scope.ADMIN,),
        tag="tools",
        parameters=(NAME,),
        body=RejectBody,
        gives={200: ResponseSpec(about="It stays quarantined.", kind=ReviewView)},
        problems=(404, 409),
    ),
)
