"""One request of the page: whose it is, what its form says, and whether a part of a page is enough."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from toolkeep.errors import Code
from toolkeep.limits import FORM_FIELDS
from toolkeep.mcp.headers import Headers
from toolkeep.mcp.http import TooLong, read_body
from toolkeep.server.answers import Answer
from toolkeep.server.problems import RequestRefused
from toolkeep.server.request import Parameter, Receive, Request, Scope, Send
from toolkeep.server.routing import Route
from toolkeep.tokens import Scope as TokenScope

if TYPE_CHECKING:
    from toolkeep.server.page.rendering import Renderer
    from toolkeep.server.page.sessions import Session
    from toolkeep.server.service import Service

FORM_TYPE: Final = b"application/x-www-form-urlencoded"


class PageRequest(Request):
    """A request by somebody who is signed in."""

    __slots__ = ("nonce", "path", "renderer", "session")

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, body_bytes: int, nonce: str
    ) -> None:
        super().__init__(scope, receive, send, headers, body_bytes)
        self.path: str = scope["path"]
        self.nonce = nonce
        self.session: Session | None = None
        self.renderer: Renderer

    @property
    def wants_part(self) -> bool:
        """Whether htmx asks for a part of the page that it shows."""
        return self.headers.raw(b"hx-request") == b"true"

    async def form(self) -> "Form":
        """The fields of the form that was sent; raises for anything else."""
        kind = self.headers.raw(b"content-type").partition(b";")[0].strip().lower()
        if kind != FORM_TYPE or self.headers.is_doubled(b"content-type"):
            raise RequestRefused(Code.MEDIA_REFUSED, "the body must be a form")
        try:
            raw = await read_body(self.receive, self.headers, self.body_bytes)
            pairs = parse_qsl(
                raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS
            )
        except TooLong:
            raise RequestRefused(Code.REQUEST_TOO_BIG, "the form is too long") from None
        except ValueError as error:
            raise RequestRefused(Code.REQUEST_INVALID, "the form cannot be read") from error
        return Form(pairs)


class Form:
    """The fields of a form, in order; a name may stand for several values."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = [(name, value.replace("\r\n", "\n")) for name, value in pairs]
        self._first: Mapping[str, str] = dict(reversed(self.pairs))

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def get(self, name: str, default: str = "") -> str:
        """The first value of a field."""
        return self._first.get(name, default)

    def all(self, name: str) -> list[str]:
        """Every value of a field."""
        return [value for one, value in self.pairs if one == name]


PageHandler = Callable[["Service", PageRequest], Awaitable[Answer | None]]


def page_route(
    method: str,
    path: str,
    handler: PageHandler,
    scopes: tuple[TokenScope, ...],
    *parameters: Parameter,
    is_long: bool = False,
) -> Route:
    """A route of the page, for whoever has one of the scopes; no document speaks of it."""

    async def handle(service: "Service", request: Request) -> Answer | None:
        if not isinstance(request, PageRequest):
            raise TypeError("a page is asked for by a browser")
        return await handler(service, request)

    return Route(
        method=method,
        path=path,
        name=path,
        about="",
        handler=handle,
        scopes=scopes,
        parameters=parameters,
        is_long=is_long,
    )
