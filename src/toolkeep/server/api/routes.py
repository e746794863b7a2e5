"""The route table of the API, in the order of its OpenAPI document.

Each resource has its routes in its own module; here are those of the server itself: persistent programs,
health, metrics, the OpenAPI document and OAuth metadata.
"""

import functools
from typing import Any, Final

import msgspec

from toolkeep.errors import Code
from toolkeep.execution.persistent.pool import PersistentProgram
from toolkeep.fleet.worker_status import WorkerStatus
from toolkeep.keep.keep import Keep
from toolkeep.server.api import (
    agent_routes,
    approval_routes,
    audit_routes,
    bulk_routes,
    call_routes,
    definition_routes,
    drift_routes,
    flow_routes,
    grant_routes,
    onboarding_routes,
    policy_routes,
    review_routes,
    session_routes,
    session_timeline,
    status_routes,
    stored_policy_routes,
    token_routes,
    tool_routes,
    undo_routes,
)
from toolkeep.server.api.common_parameters import NONE_MATCH, TAG
from toolkeep.server.api.health import Readiness
from toolkeep.server.http.oauth_metadata import PATH, ResourceMetadata, resource_metadata
from toolkeep.server.http.openapi_document import document
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response, tagged
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def _list_programs(service: Service, request: Request) -> Response:
    return json_response(service.keep.persistent_programs())


async def _list_workers(service: Service, request: Request) -> Response:
    return json_response(listed_workers(service.keep))


def listed_workers(keep: Keep) -> tuple[WorkerStatus, ...]:
    """The workers on other machines; raises where the configuration has no `fleet`."""
    workers = keep.workers()
    if workers is None:
        raise not_found("fleet")
    return workers


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """That the server lives."""

    status: str


async def _healthz(service: Service, request: Request) -> Response:
    return json_response(Alive(status="alive"))


async def _readyz(service: Service, request: Request) -> Response:
    readiness = await service.health.readiness()
    return json_response(readiness, 200 if readiness.is_ready else 503)


@functools.cache
def whole_document() -> dict[str, Any]:
    """The OpenAPI document of all routes, built once."""
    return document(ROUTES)


async def _openapi(service: Service, request: Request) -> Response:
    return tagged(whole_document(), request.header("If-None-Match"))


async def _metrics(service: Service, request: Request) -> Response:
    if service.metrics is None:
        raise RequestRefused(Code.NOTHING_THERE, "metrics are switched off here")
    return Response(200, service.metrics.page(), METRICS_TYPE.encode())


async def _metadata(service: Service, request: Request) -> Response:
    return json_response(
        resource_metadata(service.resource or f"{request.base(service.base)}/mcp", service.issuers)
    )


def _metadata_route(path: str, name: str) -> Route:
    return Route(
        method="GET",
        path=path,
        name=name,
        about="OAuth protected resource metadata (RFC 9728), for MCP clients.",
        handler=_metadata,
        tag="about",
        gives={200: ResponseSpec(about="The metadata.", kind=ResourceMetadata)},
    )


_PROGRAMS: Final = (
    Route(
        method="GET",
        path="/v1/programs",
        name="listPrograms",
        about="The persistent programs of all agents: each with its grant, running or stopped.",
        handler=_list_programs,
        scopes=(Scope.AUDIT_READ,),
        tag="tools",
        gives={200: ResponseSpec(about="The programs.", kind=tuple[PersistentProgram, ...])},
    ),
)

_WORKERS: Final = (
    Route(
        method="GET",
        path="/v1/workers",
        name="listWorkers",
        about="The workers on other machines, as this server sees them.",
        handler=_list_workers,
        scopes=(Scope.AUDIT_READ,),
        tag="tools",
        gives={200: ResponseSpec(about="The workers.", kind=tuple[WorkerStatus, ...])},
        problems=(404,),
    ),
)

_HEALTH: Final = (
    Route(
        method="GET",
        path="/healthz",
        name="isAlive",
        about="Liveness. Needs no token.",
        handler=_healthz,
        tag="health",
        gives={200: ResponseSpec(about="It does.", kind=Alive)},
    ),
    Route(
        method="GET",
        path="/readyz",
        name="isReady",
        about="Readiness: not draining, providers are registered, log, store and database answer.",
        handler=_readyz,
        tag="health",
        gives={
            200: ResponseSpec(about="It is ready.", kind=Readiness),
            503: ResponseSpec(about="It is not.", kind=Readiness),
        },
    ),
)

_ABOUT: Final = (
    Route(
        method="GET",
        path="/openapi.json",
        name="showDocument",
        about="This document.",
        handler=_openapi,
        scopes=(Scope.OPENAPI,),
        tag="about",
        parameters=(NONE_MATCH,),
        gives={
            200: ResponseSpec(about="The document.", kind=dict[str, Any], headers=TAG),
            304: ResponseSpec(about="Not modified.", headers=TAG),
        },
    ),
    Route(
        method="GET",
        path="/metrics",
        name="showMetrics",
        about="Metrics in Prometheus's text form.",
        handler=_metrics,
        scopes=(Scope.METRICS,),
        tag="about",
        gives={200: ResponseSpec(about="The metrics.", kind=bytes, media=METRICS_TYPE)},
        problems=(404,),
    ),
    _metadata_route(PATH, "showMetadata"),
    _metadata_route(f"{PATH}/mcp", "showMcpMetadata"),
)

ROUTES: Final = (
    *tool_routes.ROUTES,
    *review_routes.ROUTES,
    *bulk_routes.ROUTES,
    *flow_routes.ROUTES,
    *definition_routes.ROUTES,
    *_PROGRAMS,
    *_WORKERS,
    *call_routes.ROUTES,
    *session_routes.ROUTES,
    *session_timeline.ROUTES,
    *undo_routes.ROUTES,
    *approval_routes.ROUTES,
    *audit_routes.ROUTES,
    *policy_routes.ROUTES,
    *stored_policy_routes.ROUTES,
    *agent_routes.ROUTES,
    *grant_routes.ROUTES,
    *drift_routes.ROUTES,
    *token_routes.ROUTES,
    *_HEALTH,
    *status_routes.ROUTES,
    *onboarding_routes.ROUTES,
    *_ABOUT,
)
