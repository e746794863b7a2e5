"""Routes for probes; open to everybody who may speak to the server."""

from typing import Final

import msgspec

from toolkeep.server.answers import Answer, answer
from toolkeep.server.health import Readiness
from toolkeep.server.request import Request
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """That the server lives."""

    status: str


async def _healthz(service: Service, request: Request) -> Answer:
    return answer(Alive(status="alive"))


async def _readyz(service: Service, request: Request) -> Answer:
    readiness = await service.health.readiness()
    return answer(readiness, 200 if readiness.is_ready else 503)


ROUTES: Final = (
    Route(
        method="GET",
        path="/healthz",
        name="isAlive",
        about="That the server lives. Open to everybody.",
        handler=_healthz,
        tag="health",
        gives={200: Given(about="It does.", kind=Alive)},
    ),
    Route(
        method="GET",
        path="/readyz",
        name="isReady",
        about="Whether requests should be sent here: providers are in, log and store can be written.",
        handler=_readyz,
        tag="health",
        gives={
            200: Given(about="It is ready.", kind=Readiness),
            503: Given(about="It is not.", kind=Readiness),
        },
    ),
)
