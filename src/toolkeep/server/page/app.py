"""The app of the page, below `/ui`: static files, who is signed in, is a change theirs, then the action.

A cookie signs a person in here and nowhere else: `/v1` and `/mcp` do not look at it. What changes something
needs the token of a tab and the Origin of this server as well.
"""

import contextlib
import logging
import re
import secrets
from typing import TYPE_CHECKING, Final

from toolkeep.errors import Code, ToolkeepError
from toolkeep.mcp.headers import Headers
from toolkeep.server.answers import Answer, Header
from toolkeep.server.auth import check_scope
from toolkeep.server.page import routes
from toolkeep.server.page.assets import PREFIX, Assets
from toolkeep.server.page.events import Listeners
from toolkeep.server.page.problems import shown_problem
from toolkeep.server.page.rendering import Renderer
from toolkeep.server.page.request import PageRequest
from toolkeep.server.page.security import KEY_HEADER, TAB_HEADER, check_origin, not_from_page, protective
from toolkeep.server.page.sessions import Session, Sessions
from toolkeep.server.problems import RequestRefused, nothing_there
from toolkeep.server.request import Gone, Receive, Scope, Send
from toolkeep.server.routing import Found, RouteTable
from toolkeep.server.stream import send_whole
from toolkeep.server.tenure import NoLonger, Tenure
from toolkeep.storage.sign_in import SignInCodes

if TYPE_CHECKING:
    from toolkeep.server.app import KeepApp

log = logging.getLogger("toolkeep.server")

SIGN_IN: Final = "/ui/sign-in"
_TAB: Final = "/ui/tab"
_FOREVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class PageApp:
    """Serves the page of one keep."""

    def __init__(self, app: "KeepApp", codes: SignInCodes) -> None:
        self._app = app
        self._codes = codes
        self._service = app.service
        self._assets = Assets()
        self._renderer = Renderer(self._assets)
        self._table = RouteTable(routes.ROUTES)
        self.sessions = Sessions(app.service.recognizer)
        self._tenure = Tenure(self.sessions.find)
        self._listeners = Listeners(app.service)

    def close(self) -> None:
        """Let go of the tabs that listen."""
        self._listeners.close()
        self._tenure.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["path"].startswith(PREFIX):
            await self._send_file(scope, send)
            return
        headers = Headers(scope["headers"])
        nonce = secrets.token_urlsafe(16)
        request = PageRequest(scope, receive, send, headers, self._service.limits.body_bytes, nonce)
        request.renderer = self._renderer
        try:
            given = await self._answered(request, scope)
        except ToolkeepError as error:
            given = shown_problem(self._renderer, request, error)
        except NoLonger:
            given = self._to_sign_in(request)
        except Gone:
            return
        except Exception:
            log.exception("a request broke the page", extra={"path": request.path[:200]})
            given = shown_problem(self._renderer, request, None)
        if given is not None:
            await send_whole(request, given)

    async def _answered(self, request: PageRequest, scope: Scope) -> Answer | None:
        cookie = self._cookie(request)
        request.session = await self.sessions.find(cookie) if cookie else None
        if request.path == "/ui":
            return Answer(303, b"", b"text/plain", ((b"location", b"/ui/"),))
        if request.path == SIGN_IN:
            return await self._sign_in(request)
        if request.session is None:
            return self._to_sign_in(request)
        if request.method != "GET":
            check_origin(request.headers, self._base(request))
        if request.path == _TAB:
            return self._open_tab(request, request.session)
        if request.method != "GET":
            self._check_tab(request, request.session)
        if request.path == "/ui/sign-out":
            return self._sign_out(request, cookie)
        if request.path == "/ui/events":
            check_scope(request.session.caller, routes.ANY_SCOPE)
            with self._tenure.of(cookie):
                await self._listeners.serve(request, request.session.caller)
            return None
        found, request.names = self._table.find(request.method, request.path)
        if not found.route.is_long:
            return await self._routed(found, request, request.session, scope)
        with self._tenure.of(cookie):
            return await self._routed(found, request, request.session, scope)

    async def _routed(
        self, found: Found, request: PageRequest, session: Session, scope: Scope
    ) -> Answer | None:
        if found.query or scope["query_string"]:
            request.read_query(found.query)
        check_scope(session.caller, found.route.scopes)
        request.caller = session.caller
        with self._app.admitted(session.caller):
            return await found.route.handler(self._service, request)

    # --- signing in ------------------------------------------------------------------------------

    async def _sign_in(self, request: PageRequest) -> Answer:
        if request.method == "GET":
            return self._renderer.page(
                request,
                "sign_in.html",
                is_signed_in=request.session is not None,
                address=self._base(request),
            )
        check_origin(request.headers, self._base(request))
        form = await request.form()
        code, token = form.get("code"), form.get("token").strip()
        begun = None
        if token:
            begun = await self.sessions.begin_bearer(token)
        elif code and self._codes.use(code):
            begun = self.sessions.begin_operator()
        if begun is None:
            raise RequestRefused(
                Code.SIGN_IN_REFUSED,
                "that token does not count" if token else "that link does not count, or not any more",
                hint="a link counts once, for five minutes; make another: toolkeep token link",
            )
        cookie = self._set_cookie(request, begun.cookie)
        return Answer(200, begun.key.encode(), b"text/plain", (cookie, *protective(request.nonce)))

    def _to_sign_in(self, request: PageRequest) -> Answer:
        if request.wants_part or request.method != "GET":
            return Answer(401, b"", b"text/plain", ((b"hx-redirect", SIGN_IN.encode()),))
        return Answer(303, b"", b"text/plain", ((b"location", SIGN_IN.encode()),))

    def _open_tab(self, request: PageRequest, session: Session) -> Answer:
        """A token for one tab, for whoever was told the key when they signed in."""
        if request.method != "POST":
            raise nothing_there("page")
        token = self.sessions.open_tab(session, request.headers.raw(KEY_HEADER).decode("latin-1"))
        if token is None:
            raise not_from_page("this browser does not hold the key of the session")
        return Answer(200, token.encode(), b"text/plain", protective(request.nonce))

    def _check_tab(self, request: PageRequest, session: Session) -> None:
        token = request.headers.raw(TAB_HEADER).decode("latin-1")
        if request.headers.is_doubled(TAB_HEADER) or not self.sessions.is_tab(session, token):
            raise not_from_page("the request does not come from a tab of this page")

    def _sign_out(self, request: PageRequest, cookie: str) -> Answer:
        if request.method != "POST":
            raise nothing_there("page")
        self.sessions.end(cookie)
        gone = self._set_cookie(request, "", ends=True)
        return Answer(200, b"", b"text/plain", (gone, (b"hx-redirect", SIGN_IN.encode())))

    # --- cookies ---------------------------------------------------------------------------------

    def _base(self, request: PageRequest) -> str:
        return request.base(self._service.base)

    def _cookie_name(self, request: PageRequest) -> str:
        """One for each port: a browser would hand that of one keep to another of the same host."""
        port = self._base(request).rpartition(":")[2]
        return f"toolkeep-{port}" if port.isdigit() else "toolkeep"

    def _cookie(self, request: PageRequest) -> str:
        """The session's cookie; empty where there is none, or more than one that could be it."""
        wanted = self._cookie_name(request)
        given = request.headers.raw(b"cookie").decode("latin-1").split(";")
        pairs = (part.strip().partition("=") for part in given)
        found = [value for name, _, value in pairs if name == wanted]
        return found[0] if len(found) == 1 and _COOKIE.fullmatch(found[0]) else ""

    def _set_cookie(self, request: PageRequest, value: str, *, ends: bool = False) -> Header:
        parts = [f"{self._cookie_name(request)}={value}", "Path=/ui", "HttpOnly", "SameSite=Strict"]
        if self._base(request).startswith("https:"):
            parts.append("Secure")
        if ends:
            parts.append("Max-Age=0")
        return b"set-cookie", "; ".join(parts).encode()

    async def _send_file(self, scope: Scope, send: Send) -> None:
        asset = self._assets.find(scope["path"]) if scope["method"] == "GET" else None
        headers: list[Header] = [
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        if asset is None:
            head = {
                "type": "http.response.start",
                "status": 404,
                "headers": [*headers, (b"content-length", b"0")],
            }
            await send(head)
            await send({"type": "http.response.body", "body": b""})
            return
        accepted = Headers(scope["headers"]).raw(b"accept-encoding")
        body = asset.compressed if b"gzip" in accepted else asset.body
        if body is asset.compressed:
            headers.append((b"content-encoding", b"gzip"))
        headers += [(b"content-type", asset.content_type), (b"vary", b"accept-encoding"), _FOREVER]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with contextlib.suppress(Gone):
            await send({"type": "http.response.body", "body": body})


async def to_page(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 -- an ASGI app
    """From `/` to the page."""
    headers = [(b"location", b"/ui/"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
