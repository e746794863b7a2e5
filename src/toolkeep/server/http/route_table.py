"""Routing: method and path to handler, scopes, parameters and responses.

The OpenAPI document is generated from it. Paths are matched segment by segment in a tree: 1 µs whatever the
number of routes.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from toolkeep.errors import Code
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Parameter, Request
from toolkeep.server.http.responses import Response
from toolkeep.stores.api_tokens import Scope

if TYPE_CHECKING:
    from toolkeep.server.service import Service

Handler = Callable[["Service", Request], Awaitable[Response | None]]
"""Handles a request; returns None if it has sent the response itself."""

_NAME: Final = "*"


class ResponseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One response that a route can give."""

    about: str
    kind: Any = None
    """The type of its JSON; None without a body, `bytes` if it is not JSON."""
    media: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    """Names and descriptions."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    """`{name}` stands for one segment, `:verb` may follow."""
    name: str
    about: str
    handler: Handler
    scopes: tuple[Scope, ...] = ()
    """Any one of them suffices. Empty: no authentication."""
    tag: str = "keep"
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    gives: dict[int, ResponseSpec] = {}
    problems: tuple[int, ...] = ()
    """Error statuses besides those of every route."""
    is_long: bool = False
    """Whether it is cancelled when the caller's token is revoked. Short handlers run to their end."""

    @property
    def query(self) -> dict[str, Parameter]:
        """Query parameters by name."""
        return {one.name: one for one in self.parameters if one.place == "query"}

    @property
    def named(self) -> dict[str, Parameter]:
        """Path parameters by name."""
        return {one.name: one for one in self.parameters if one.place == "path"}


class Found(NamedTuple):
    """A route with its parameters sorted by place, computed once."""

    route: Route
    query: dict[str, Parameter]
    named: tuple[Parameter, ...]
    headers: tuple[Parameter, ...]


class _Node:
    __slots__ = ("children", "methods")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.methods: dict[str, Found] = {}


class RouteTable:
    """All routes, by path and method."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for part in _parts(route.path):
            key = _NAME if part.startswith("{") else part
            node = node.children.setdefault(key, _Node())
        if route.method in node.methods:
            raise ValueError(f"{route.method} {route.path} is there twice")
        node.methods[route.method] = Found(
            route,
            route.query,
            tuple(route.named.values()),
            tuple(one for one in route.parameters if one.place == "header"),
        )

    def find(self, method: str, path: str) -> tuple[Found, dict[str, str]]:
        """The route of a request and its path parameters; raises if there is none."""
        node, values = self._root, []
        for part in _parts(path):
            child = node.children.get(part)
            if child is None or part == _NAME:
                child = node.children.get(_NAME)
                if child is None or part.startswith(":"):
                    raise not_found("page")
                values.append(part)
            node = child
        found = node.methods.get(method)
        if found is None:
            raise _other_methods(node)
        return found, {one.name: one.read(text) for one, text in zip(found.named, values, strict=True)}


def _other_methods(node: _Node) -> RequestRefused:
    if not node.methods:
        return not_found("page")
    allowed = ", ".join(node.methods)
    return RequestRefused(
        Code.METHOD_REFUSED, f"only {allowed} is allowed here", headers=((b"allow", allowed.encode()),)
    )


def _parts(path: str) -> list[str]:
    """Split a path into segments; a verb after a colon is a segment of its own."""
    parts = path.split("/")
    last, colon, verb = parts[-1].rpartition(":")
    if colon:
        parts[-1:] = [last, f":{verb}"]
    return parts
