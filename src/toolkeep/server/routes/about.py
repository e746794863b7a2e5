"""Routes about the server itself: its document, its metrics, and what MCP clients ask first."""

import functools
from typing import Any, Final

from toolkeep.errors import Code
from toolkeep.server.answers import Answer, answer, tagged
from toolkeep.server.metadata import PATH, ResourceMetadata, resource_metadata
from toolkeep.server.openapi import document
from toolkeep.server.problems import RequestRefused
from toolkeep.server.request import Request
from toolkeep.server.routes.common import NONE_MATCH, TAG
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.tokens import Scope

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@functools.cache
def whole_document() -> dict[str, Any]:
    """The document of every route there is, made once."""
    from toolkeep.server.api import ROUTES as ALL

    return document(ALL)


async def _openapi(service: Service, request: Request) -> Answer:
    return tagged(whole_document(), request.header("If-None-Match"))


async def _metrics(service: Service, request: Request) -> Answer:
    if service.metrics is None:
        raise RequestRefused(Code.NOTHING_THERE, "metrics are switched off here")
    return Answer(200, service.metrics.page(), METRICS_TYPE.encode())


async def _metadata(service: Service, request: Request) -> Answer:
    return answer(resource_metadata(request.base(service.base), service.issuers))


def _metadata_route(path: str, name: str) -> Route:
    return Route(
        method="GET",
        path=path,
        name=name,
        about="OAuth protected resource metadata (RFC 9728), for MCP clients.",
        handler=_metadata,
        tag="about",
        gives={200: Given(about="The metadata.", kind=ResourceMetadata)},
    )


ROUTES: Final = (
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
            200: Given(about="The document.", kind=dict[str, Any], headers=TAG),
            304: Given(about="The client has it already.", headers=TAG),
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
        gives={200: Given(about="The metrics.", kind=bytes, media=METRICS_TYPE)},
        problems=(404,),
    ),
    _metadata_route(PATH, "showMetadata"),
    _metadata_route(f"{PATH}/mcp", "showMcpMetadata"),
)
