"""The OpenAPI 3.1 document, generated from the route table, so that the two cannot differ."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from toolkeep import __version__
from toolkeep.server.http.bearer_auth import SCOPES
from toolkeep.server.http.route_table import ResponseSpec, Route

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_ABOUT: Final = {
    400: "The request is invalid.",
    401: "No valid token.",
    403: "The token lacks a scope, the host is not allowed, or a policy or a person denied the call.",
    404: "Not found, or not visible to this token.",
    409: "It conflicts with the current state.",
    412: "It has changed since it was read.",
    413: "The body is too long.",
    415: "The body is not JSON.",
    422: "The arguments or the definition are invalid.",
    428: "If-Match is missing.",
    429: "Too many requests.",
    500: "Internal error.",
    501: "The tool cannot be run here as it requires.",
    502: "The tool failed.",
    503: "The server is busy or shutting down, or cannot record calls.",
    504: "The tool took too long.",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem document (RFC 9457); docs/errors explains each code."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Build the document."""
    kinds = [kind for route in routes for kind in _kinds(route)]
    schemas, components = msgspec.json.schema_components([Problem, *kinds], ref_template=_REF)
    by_kind = dict(zip(map(repr, kinds), schemas[1:], strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toolkeep",
            "version": __version__,
            "description": "A keep over HTTP: its tools, calls, approvals, log and policies.",
        },
        "paths": _paths(routes, by_kind),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Scopes: " + "; ".join(f"`{s}`: {why}" for s, why in SCOPES.items()),
                }
            },
        },
    }


def _kinds(route: Route) -> list[Any]:
    given = [one.kind for one in route.gives.values() if one.kind is not None and one.kind is not bytes]
    return given if route.body is None else [route.body, *given]


def _paths(routes: Sequence[Route], schemas: dict[str, Any]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return paths


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "tags": [route.tag],
        "security": [{"token": []}] if route.scopes else [],
    }
    if route.scopes:
        operation["description"] = "Needs the scope " + " or ".join(f"`{one}`" for one in route.scopes) + "."
        operation["x-scopes"] = [scope.value for scope in route.scopes]
    if route.parameters:
        operation["parameters"] = [
            {
                "name": one.name,
                "in": one.place,
                "required": one.is_required or one.place == "path",
                "description": one.about,
                "schema": one.schema(),
            }
            for one in route.parameters
        ]
    if route.body is not None:
        content = {"application/json": {"schema": schemas[repr(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(route, schemas)
    return operation


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    found = {str(status): _given(one, schemas) for status, one in route.gives.items()}
    for status in problems_of(route):
        content = {"application/problem+json": {"schema": _PROBLEM}}
        found.setdefault(str(status), {"description": _ABOUT[status], "content": content})
    return dict(sorted(found.items()))


def problems_of(route: Route) -> list[int]:
    """Every error status that a route can answer with."""
    always = {400, 403, 503, 500} | ({401, 429} if route.scopes else set())
    body = {413, 415} if route.body is not None else set()
    named = {404} if route.named else set()
    return sorted({*always, *body, *named, *route.problems})


def _given(one: ResponseSpec, schemas: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"description": one.about}
    if one.kind is bytes:
        data["content"] = {one.media: {"schema": {"type": "string"}}}
    elif one.kind is not None:
        data["content"] = {one.media: {"schema": schemas[repr(one.kind)]}}
    if one.headers:
        data["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in one.headers
        }
    return data
