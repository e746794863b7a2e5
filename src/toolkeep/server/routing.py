"""The one table of routes: what is served, to whom, what it takes and gives. The document is made from it.

A path is looked up segment by segment in a tree: 1 µs whatever the number of routes.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from toolkeep.errors import Code
from toolkeep.server.answers import Answer
from toolkeep.server.problems import RequestRefused, nothing_there
from toolkeep.server.request import Parameter, Request
from toolkeep.tokens import Scope

if TYPE_CHECKING:
    from toolkeep.server.service import Service

Handler = Callable[["Service", Request], Awaitable[Answer | None]]
"""Answers one request; None where it has sent the answer itself."""

_NAME: Final = "*"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a route can give."""

    about: str
    kind: Any = None
    """The type of its JSON; None where there is no body, `bytes` where it is no JSON."""
    media: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    """Names, and what they say."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: str
    path: str
    """`{name}` stands for one segment, `:verb` may follow."""
    name: str
    about: str
    handler: Handler
    scopes: tuple[Scope, ...] = ()
    """Any one of them will do; none: open to everybody who may speak to the server."""
    tag: str = "keep"
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    gives: dict[int, Given] = {}
    problems: tuple[int, ...] = ()
    """Statuses of problem documents, beside those that every route can answer with."""
    is_long: bool = False
    """Whether it may take long: it ends when who asked counts no longer. What is short is done to its end."""

    @property
    def query(self) -> dict[str, Parameter]:
        """What its query may say."""
        return {one.name: one for one in self.parameters if one.place == "query"}

    @property
    def named(self) -> dict[str, Parameter]:
        """What its path names."""
        return {one.name: one for one in self.parameters if one.place == "path"}


class Found(NamedTuple):
    """A route with everything that a request needs of it, worked out before."""

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
    """Every route, by path and method."""

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
        """The route of a request and what its path names; raises where there is none."""
        node, values = self._root, []
        for part in _parts(path):
            child = node.children.get(part)
            if child is None or part == _NAME:
                child = node.children.get(_NAME)
                if child is None or part.startswith(":"):
                    raise nothing_there("page")
                values.append(part)
            node = child
        found = node.methods.get(method)
        if found is None:
            raise _other_methods(node)
        return found, {one.name: one.read(text) for one, text in zip(found.named, values, strict=True)}


def _other_methods(node: _Node) -> RequestRefused:
    if not node.methods:
        return nothing_there("page")
    allowed = ", ".join(node.methods)
    return RequestRefused(
        Code.METHOD_REFUSED, f"only {allowed} is taken here", headers=((b"allow", allowed.encode()),)
    )


def _parts(path: str) -> list[str]:
    """The segments of a path; a verb after a colon is one of its own."""
    parts = path.split("/")
    last, colon, verb = parts[-1].rpartition(":")
    if colon:
        parts[-1:] = [last, f":{verb}"]
    return parts
