"""One request to the web interface: session, form data, and whether htmx asks for a part of a page."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from toolkeep.errors import Code
from toolkeep.limits import FORM_FIELDS
from toolkeep.mcp_server.http_app import TooLong, read_body
from toolkeep.mcp_server.http_headers import Headers
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Parameter, Receive, Request, Scope, Send
from toolkeep.server.http.responses import Response
from toolkeep.server.http.route_table import Route
from toolkeep.stores.api_tokens import Scope as TokenScope

if TYPE_CHECKING:
    from toolkeep.server.service import Service
    from toolkeep.server.web.cookie_sessions import Session
    from toolkeep.server.web.templates_env import Renderer

FORM_TYPE: Final = b"application/x-www-form-urlencoded"


class PageRequest(Request):
    """A request with a session."""

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
        """Whether htmx asks for a part of the page."""
        return self.headers.raw(b"hx-request") == b"true"

    async def form(self) -> "Form":
        """Parse the submitted form; raises for anything else."""
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
    """Form fields in order; a name may occur several times."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = [(name, value.replace("\r\n", "\n")) for name, value in pairs]
        self._first: Mapping[str, str] = dict(reversed(self.pairs))

    def __contains__(self, name: str) -> bool:
        return name in self._first

    def get(self, name: str, default: str = "") -> str:
        """The first value of a field."""
        return self._first.get(name, default)

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for one, value in self.pairs if one == name]


PageHandler = Callable[["Service", PageRequest], Awaitable[Response | None]]


def page_route(
    method: str,
    path: str,
    handler: PageHandler,
    scopes: tuple[TokenScope, ...],
    *parameters: Parameter,
    is_long: bool = False,
) -> Route:
    """A route of the web interface; not in the OpenAPI document."""

    async def handle(service: "Service", request: Request) -> Response | None:
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
