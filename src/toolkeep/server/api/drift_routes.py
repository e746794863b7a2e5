"""What agents did that they never did before, over HTTP: list it, and acknowledge it (FLO-8)."""

import asyncio
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolkeep.host import clock
from toolkeep.keep.drift_news import SEEN, DriftNews
from toolkeep.keep.keep import Keep
from toolkeep.limits import NAMED_CHARS
from toolkeep.server.api.admin_change import Change, Confirmation, bearer_confirmation, record_change
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope


class SeenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person has looked at."""

    agent: Annotated[str, Meta(max_length=NAMED_CHARS)]
    until: Annotated[str, Meta(max_length=40)]
    """The time of the newest one that was looked at, as it was listed."""


async def list_drift(service: Service) -> list[DriftNews]:
    """What nobody acknowledged, the newest first."""
    return await asyncio.to_thread(service.drift.open, service.keep.record.log)


async def acknowledge(keep: Keep, said: Confirmation, agent: str, until: str) -> None:
    """Note that a person has looked at what an agent did up to then. It changes nothing else."""
    until = min(until, clock.now())  # nothing that is still to come
    await record_change(keep, said, Change(what=SEEN, name=agent, difference=until), lambda: None)


async def _list(service: Service, request: Request) -> Response:
    return json_response(await list_drift(service))


async def _seen(service: Service, request: Request) -> Response:
    body = await request.read(SeenBody)
    await acknowledge(service.keep, bearer_confirmation(request.caller, body.agent), body.agent, body.until)
    return json_response(await list_drift(service))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/drift",
        name="listDrift",
        about="What agents did that they never did before, and that nobody acknowledged.",
        handler=_list,
        scopes=(Scope.AUDIT_READ,),
        tag="policies",
        gives={200: ResponseSpec(about="The newest first.", kind=list[DriftNews])},
    ),
    Route(
        method="POST",
        path="/v1/drift:acknowledge",
        name="acknowledgeDrift",
        about="Note that a person has looked at it.",
        handler=_seen,
        scopes=(Scope.ADMIN,),
        tag="policies",
        body=SeenBody,
        gives={200: ResponseSpec(about="What is left.", kind=list[DriftNews])},
        problems=(422,),
    ),
)
