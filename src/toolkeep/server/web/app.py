"""The web interface below `/ui`: static files, session, CSRF checks, then the handler.

The session cookie is valid here only: `/v1` and `/mcp` ignore it, so that no page can use the API with it. A
change needs, besides the cookie, the `Origin` of this server and the token of a tab.
"""

import asyncio
import contextlib
import logging
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolkeep.errors import TITLES, Code, DefinitionError, ToolkeepError
from toolkeep.mcp_server.http_headers import Headers
from toolkeep.server.http.bearer_auth import check_scope
from toolkeep.server.http.problem_details import STATUS, RequestRefused, not_found
from toolkeep.server.http.request import Gone, Receive, Scope, Send
from toolkeep.server.http.responses import Header, Response, send_response
from toolkeep.server.http.revocation import RevocationWatch, Revoked
from toolkeep.server.http.route_table import Found, RouteTable
from toolkeep.server.web import (
    agents_page,
    approvals_page,
    audit_page,
    bulk_page,
    call_page,
    definitions_page,
    flow_page,
    overview_page,
    policies_page,
    session_page,
    start_page,
    tokens_page,
    tools_page,
    try_tool_page,
    undo_page,
)
from toolkeep.server.web.browser_security import (
    KEY_HEADER,
    TAB_HEADER,
    check_origin,
    not_from_page,
    security_headers,
)
from toolkeep.server.web.cookie_sessions import Session, Sessions
from toolkeep.server.web.live_updates import LiveUpdates
from toolkeep.server.web.people_page import ATTEMPT, LOGOUT, PeoplePage, attempt_cookie, cookie_of
from toolkeep.server.web.static_files import PREFIX, Assets
from toolkeep.server.web.templates_env import Renderer
from toolkeep.server.web.web_request import Form, PageRequest
from toolkeep.storage.sqlite.sign_in_codes import SignInCodes
from toolkeep.stores.api_tokens import Scope as TokenScope

if TYPE_CHECKING:
    from toolkeep.server.asgi_app import KeepApp
    from toolkeep.server.oidc.people import PeopleSignIn


log = logging.getLogger("toolkeep.server")

ROUTES: Final = (
    *overview_page.ROUTES,
    *start_page.ROUTES,
    *approvals_page.ROUTES,
    *tools_page.ROUTES,
    *bulk_page.ROUTES,
    *flow_page.ROUTES,
    *try_tool_page.ROUTES,
    *definitions_page.ROUTES,
    *agents_page.ROUTES,
    *audit_page.ROUTES,
    *call_page.ROUTES,
    *session_page.ROUTES,
    *undo_page.ROUTES,
    *policies_page.ROUTES,
    *tokens_page.ROUTES,
)

SIGN_IN: Final = "/ui/sign-in"
_TAB: Final = "/ui/tab"
_FOREVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")


class PageApp:
    """Serves the web interface of one keep."""

    def __init__(self, app: "KeepApp", codes: SignInCodes, people: "PeopleSignIn | None" = None) -> None:
        self._app = app
        self._codes = codes
        self._service = app.service
        self._assets = Assets()
        self._renderer = Renderer(
            self._assets,
            has_workers=app.service.keep.workers() is not None,
            status_of=partial(overview_page.status_of_session, app.service),
        )
        self._table = RouteTable(ROUTES)
        shared = app.service.keep.shared
        self.sessions = Sessions(
            app.service.authenticator,
            key=shared.page_key() if shared else None,
            signed_out=shared.signed_out() if shared else None,
        )
        self._people = PeoplePage(people, self.sessions, app.service) if people else None
        self._revocations = RevocationWatch(self.sessions.find)
        self._listeners = LiveUpdates(app.service)

    def close(self) -> None:
        """Close the event streams of open tabs."""
        self._listeners.close()
        self._revocations.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["path"].startswith(PREFIX):
            await self._send_file(scope, send)
            return
        headers = Headers(scope["headers"])
        # A new nonce for every response: injected markup cannot know it, so the CSP stops its scripts.
        nonce = secrets.token_urlsafe(16)
        request = PageRequest(scope, receive, send, headers, self._service.limits.body_bytes, nonce)
        request.renderer = self._renderer
        try:
            given = await self._answered(request, scope)
        except ToolkeepError as error:
            given = shown_problem(self._renderer, request, error)
        except Revoked:
            given = self._to_sign_in(request)
        except Gone:
            return
        except Exception:
            log.exception("internal error while handling a page request", extra={"path": request.path[:200]})
            given = shown_problem(self._renderer, request, None)
        if given is not None:
            await send_response(request.send, given)

    async def _answered(self, request: PageRequest, scope: Scope) -> Response | None:
        cookie = self._cookie(request)
        request.session = await self.sessions.find(cookie) if cookie else None
        if request.path == "/ui":
            return Response(303, b"", b"text/plain", ((b"location", b"/ui/"),))
        if request.path == SIGN_IN:
            return await self._sign_in(request)
        if request.path == LOGOUT and self._people is not None:
            return await self._people.log_out(request)
        if request.session is None:
            return self._to_sign_in(request)
        if request.method != "GET":
            check_origin(request.headers, self._base(request))
        if request.path == _TAB:
            return self._open_tab(request, request.session)
        if request.method != "GET":
            # The cookie and the origin are not enough: another program on this host gets the cookie too, and
            # can forge `Origin`. Only a tab of the signed-in browser has a tab token.
            self._check_tab(request, request.session)
        if request.path == "/ui/sign-out":
            return await self._sign_out(request, request.session)
        if request.path == "/ui/events":
            check_scope(request.session.caller, tuple(TokenScope))
            with self._revocations.of(cookie):
                await self._listeners.serve(request, request.session.caller)
            return None
        found, request.names = self._table.find(request.method, request.path)
        if not found.route.is_long:
            return await self._routed(found, request, request.session, scope)
        with self._revocations.of(cookie):
            return await self._routed(found, request, request.session, scope)

    async def _routed(
        self, found: Found, request: PageRequest, session: Session, scope: Scope
    ) -> Response | None:
        if found.query or scope["query_string"]:
            request.read_query(found.query)
        check_scope(session.caller, found.route.scopes)
        request.caller = session.caller
        with self._app.admitted(session.caller):
            return await found.route.handler(self._service, request)

    # --- signing in ------------------------------------------------------------------------------

    async def _sign_in(self, request: PageRequest) -> Response:
        if request.method == "GET":
            return self._renderer.page(
                request,
                "sign_in.html",
                is_signed_in=request.session is not None,
                address=self._base(request),
                providers=self._people.choices() if self._people else (),
            )
        try:
            check_origin(request.headers, self._base(request))
        except RequestRefused as error:
            if self._people is not None:
                self._people.tell_refused(error.message)
            raise
        form = await request.form()
        if self._people is not None and "begin" in form:
            return await self._people.begin(request, form, self._base(request), self._cookie_name(request))
        if self._people is not None and "answer" in form:
            return await self._answer_of_provider(request, form, self._people)
        # The code comes in the body of a POST: the page takes it from the URL's fragment, which browsers send
        # neither to servers nor in `Referer`, so it is in no access log.
        code, token = form.get("code"), form.get("token").strip()
        begun = None
        if token:
            begun = await self.sessions.begin_bearer(token)
        elif code:
            counts = await asyncio.to_thread(self._codes.use, code)  # a shared database may take its time
            begun = self.sessions.begin_operator() if counts else None
        if begun is None:
            raise RequestRefused(
                Code.SIGN_IN_REFUSED,
                "the token is not valid" if token else "the link is not valid or was already used",
                hint="a link works once, within five minutes; create another: toolkeep token link",
            )
        cookie = self._set_cookie(request, begun.cookie)
        return Response(200, begun.key.encode(), b"text/plain", (cookie, *security_headers(request.nonce)))

    async def _answer_of_provider(self, request: PageRequest, form: Form, people: "PeoplePage") -> Response:
        name = self._cookie_name(request)
        begun = await people.finish(request, form, cookie_of(request, f"{name}{ATTEMPT}"))
        over = attempt_cookie(name, "", self._base(request))
        headers = (self._set_cookie(request, begun.cookie), over, *security_headers(request.nonce))
        return Response(200, begun.key.encode(), b"text/plain", headers)

    def _to_sign_in(self, request: PageRequest) -> Response:
        if request.wants_part or request.method != "GET":
            return Response(401, b"", b"text/plain", ((b"hx-redirect", SIGN_IN.encode()),))
        return Response(303, b"", b"text/plain", ((b"location", SIGN_IN.encode()),))

    def _open_tab(self, request: PageRequest, session: Session) -> Response:
        """Issue a token for one tab, to a client that knows the key of the session."""
        if request.method != "POST":
            raise not_found("page")
        token = self.sessions.open_tab(session, request.headers.raw(KEY_HEADER).decode("latin-1"))
        if token is None:
            raise not_from_page("this browser does not have the key of the session")
        return Response(200, token.encode(), b"text/plain", security_headers(request.nonce))

    def _check_tab(self, request: PageRequest, session: Session) -> None:
        token = request.headers.raw(TAB_HEADER).decode("latin-1")
        if request.headers.is_doubled(TAB_HEADER) or not self.sessions.is_tab(session, token):
            raise not_from_page("the request does not come from a tab of this page")

    async def _sign_out(self, request: PageRequest, session: Session) -> Response:
        if request.method != "POST":
            raise not_found("page")
        await self.sessions.end(session)
        gone = self._set_cookie(request, "", ends=True)
        return Response(200, b"", b"text/plain", (gone, (b"hx-redirect", SIGN_IN.encode())))

    # --- cookies ---------------------------------------------------------------------------------

    def _base(self, request: PageRequest) -> str:
        return request.base(self._service.base)

    def _cookie_name(self, request: PageRequest) -> str:
        """One name for each port: browsers send cookies to every port of a host."""
        port = self._base(request).rpartition(":")[2]
        return f"toolkeep-{port}" if port.isdigit() else "toolkeep"

    def _cookie(self, request: PageRequest) -> str:
        """The session cookie; empty if there is none, or more than one candidate.

        Another program on this host can set a second cookie of the same name; neither is trusted then.
        """
        return cookie_of(request, self._cookie_name(request))

    def _set_cookie(self, request: PageRequest, value: str, *, ends: bool = False) -> Header:
        # HttpOnly: scripts cannot read it. SameSite=Strict: other sites cannot send it. Path: not sent to the
        # API.
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
        body, encoding = asset.encoded(Headers(scope["headers"]).raw(b"accept-encoding"))
        if encoding:
            headers.append((b"content-encoding", encoding))
        headers += [(b"content-type", asset.content_type), (b"vary", b"accept-encoding"), _FOREVER]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with contextlib.suppress(Gone):
            await send({"type": "http.response.body", "body": body})


async def redirect_to_page(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 -- an ASGI app
    """Redirect `/` to the web interface."""
    headers = [(b"location", b"/ui/"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


_OURS: Final = "Internal error; see the keep's log."
_AS_MESSAGE: Final[tuple[Header, ...]] = ((b"hx-retarget", b"#messages"), (b"hx-reswap", b"innerHTML"))


def problem_data(error: ToolkeepError | None) -> dict[str, Any]:
    """What a person is told about an error; of a bug, only that there is one."""
    if error is None:
        return {
            "status": 500,
            "code": Code.CHECK_FAILED.value,
            "title": "something broke",
            "message": _OURS,
            "hint": "",
        }
    status = error.status if isinstance(error, RequestRefused) else STATUS.get(error.code, 500)
    message = error.message.split("\n")[0] if isinstance(error, DefinitionError) else error.message
    return {
        "status": status,
        "code": error.code.value,
        "title": TITLES[error.code],
        "message": message,
        "hint": error.hint,
    }


def shown_problem(renderer: Renderer, request: PageRequest, error: ToolkeepError | None) -> Response:
    """An error as a page or a part of one."""
    data = problem_data(error)
    is_operator = request.session is not None and request.session.caller.has_scope(TokenScope.ADMIN)
    if data["status"] >= 500 and not is_operator:
        data |= {"message": _OURS, "hint": ""}  # it may contain paths and addresses
    more = error.headers if isinstance(error, RequestRefused) else ()
    kept = tuple(header for header in more if header[0] == b"x-toolkeep-tab")
    if request.wants_part:
        return renderer.part(
            request, "parts/problem.html", status=data["status"], headers=(*_AS_MESSAGE, *kept), problem=data
        )
    return renderer.part(request, "problem.html", status=data["status"], headers=kept, problem=data)
