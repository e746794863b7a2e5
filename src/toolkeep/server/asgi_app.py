"""The ASGI app: allowed host, route, authentication, scope, rate limit, then the handler, in that order.

Nothing in a request is trusted. Errors are answered with a problem document; a bug is logged in full and
answered with its code alone.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from toolkeep.calls import caller_identity
from toolkeep.errors import Code, ToolkeepError
from toolkeep.mcp_server.detached_requests import outliving
from toolkeep.mcp_server.http_headers import LOOPBACK, AllowedHosts, Headers
from toolkeep.network.own_endpoints import OwnPorts
from toolkeep.server.http.bearer_auth import Caller, bearer_token, check_scope, unauthenticated
from toolkeep.server.http.oauth_metadata import PATH as METADATA_PATH
from toolkeep.server.http.problem_details import INTERNAL, RequestRefused, of_error
from toolkeep.server.http.rate_limits import RateLimits
from toolkeep.server.http.request import Gone, Receive, Request, Scope, Send
from toolkeep.server.http.responses import Response, send_response
from toolkeep.server.http.revocation import RevocationWatch, Revoked
from toolkeep.server.http.route_table import Found, RouteTable
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope as TokenScope

log = logging.getLogger("toolkeep.server")

App = Callable[[Scope, Receive, Send], Any]

AGENT_KEY: Final = "toolkeep.agent"
"""Key in the ASGI scope under which a mounted app finds the authenticated agent."""

_MCP: Final = (TokenScope.MCP,)
_SHUTDOWN_S: Final = 5.0
"""How long cancelled calls may take at shutdown to record their outcome."""


class KeepApp:
    """Serves the API of a keep, and mounted apps such as MCP and the web interface."""

    def __init__(
        self,
        service: Service,
        table: RouteTable,
        *,
        hosts: Iterable[str] = LOOPBACK,
    ) -> None:
        """`hosts` are the accepted host names."""
        self.service = service
        self._table = table
        self._is_allowed_host = AllowedHosts(hosts)
        self._mounts: dict[str, App] = {}
        self._own_ports = OwnPorts()
        self._rate_limits = RateLimits(service.limits, servers=lambda: service.keep.servers)
        self.revocations = RevocationWatch(service.authenticator.authenticate)
        self._shutdown_start: list[Callable[[], None]] = []
        self._shutdown_end: list[Callable[[], Awaitable[None] | None]] = [self.revocations.close]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the lifespan of the server."""
        if scope["type"] == "http":
            self._own_ports.note(scope)
            await self._request(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers.of(scope)
        request = Request(scope, receive, send, headers, self.service.limits.body_bytes)
        route = ""  # logged in place of the path, which may contain secrets
        try:
            # Before routing and mounts, so that no app can forget it: a web page that reaches this port by
            # DNS rebinding or across origins gets nothing, whatever path it asks for.
            self._check_host(headers)
            mounted = self._mounted(scope["path"])
            if mounted is not None:
                await mounted(scope, receive, send)
                return
            found, request.names = self._table.find(request.method, scope["path"])
            route = found.route.name
            given = await self._routed(found, request, scope)
        except ToolkeepError as error:
            given = of_error(error)
            if given.status >= 500:
                log.warning("a request failed", extra={"error_code": error.code.value, "route": route})
        except Revoked:
            # As if the token had been refused at once: a revoked token is told nothing more.
            given = of_error(self._unauthenticated(request, (), has_token=True))
        except Gone:
            return
        except Exception:
            log.exception("internal error while handling a request", extra={"route": route})
            given = INTERNAL
        if given is not None:
            await send_response(request.send, given)

    def _check_host(self, headers: Headers) -> None:
        if not self._is_allowed_host(headers):
            raise RequestRefused(
                Code.NOT_SPOKEN_TO,
                "the Host or Origin header names another host",
                hint="allow it with `toolkeep serve --allow-host HOST`",
            )

    async def _routed(self, found: Found, request: Request, scope: Scope) -> Response | None:
        """Validate query and headers, authenticate, check scope and rate limit, then run the handler."""
        route = found.route
        if found.query or scope["query_string"]:
            request.read_query(found.query)
        if found.headers:
            request.read_headers(found.headers)
        if not route.scopes:
            return await route.handler(self.service, request)
        text = bearer_token(scope["headers"])
        # Routes without scopes ended above; from here on every request is authenticated.
        caller = request.caller = await self.authenticate(request, text, route.scopes)
        check_scope(caller, route.scopes, partial(self._metadata_url, request))
        account = self._rate_limits.enter(caller.id)
        known = caller_identity.set(caller.identity)
        try:
            if not route.is_long:
                return await route.handler(self.service, request)
            # Long requests end when their token is revoked; short ones are done by then.
            with self.revocations.of(text):
                return await route.handler(self.service, request)
        finally:
            caller_identity.reset(known)  # the next request of the same connection may run in this context
            self._rate_limits.leave(account)

    @contextlib.contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Apply the rate limits to a request of a mounted app, and let its calls name whom it is for.

        Raises if a limit is reached.
        """
        account = self._rate_limits.enter(caller.id)
        known = caller_identity.set(caller.identity)
        try:
            yield
        finally:
            caller_identity.reset(known)
            self._rate_limits.leave(account)

    async def authenticate(self, request: Request, text: str, scopes: Sequence[TokenScope]) -> Caller:
        """Authenticate a request; raises if its token is not valid."""
        caller = await self.service.authenticator.authenticate(text) if text else None
        if caller is None:
            raise self._unauthenticated(request, scopes, has_token=bool(text))
        return caller

    def _unauthenticated(
        self, request: Request, scopes: Sequence[TokenScope], *, has_token: bool
    ) -> RequestRefused:
        return unauthenticated(self._metadata_url(request), scopes, has_token=has_token)

    def _metadata_url(self, request: Request) -> str:
        return request.base(self.service.base) + METADATA_PATH

    def check_mcp_scope(self, request: Request, caller: Caller) -> None:
        """Raise unless the caller may speak MCP."""
        check_scope(caller, _MCP, partial(self._metadata_url, request))

    def _mounted(self, path: str) -> App | None:
        for prefix, app in self._mounts.items():
            if path == prefix or (prefix != "/" and path.startswith(f"{prefix}/")):
                return app
        return None

    def mount(self, prefix: str, app: App) -> None:
        """Serve an app below a path; it authenticates its own requests."""
        self._mounts[prefix] = app

    def on_shutdown_start(self, callback: Callable[[], None]) -> None:
        """Register a callback for the start of the shutdown, to close idle streams."""
        self._shutdown_start.append(callback)

    def begin_shutdown(self) -> None:
        """Start the shutdown: idle streams are closed, calls that wait for approval are withdrawn."""
        self.service.health.stop()
        self.service.calls.withdraw()
        for callback in self._shutdown_start:
            callback()

    def on_shutdown_end(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Register a callback for the end of the server, before its last calls are awaited."""
        self._shutdown_end.append(callback)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                await self.shutdown()
            else:
                await self.service.keep.connect_workers()
            await send({"type": event["type"] + ".complete"})
            if event["type"] == "lifespan.shutdown":
                return

    async def shutdown(self) -> None:
        """Wait until the last calls have recorded their outcome."""
        self._own_ports.release()
        self.service.health.stop()
        self.service.calls.withdraw()
        for callback in self._shutdown_end:
            if (ended := callback()) is not None:
                await ended
        try:
            async with asyncio.timeout(_SHUTDOWN_S):
                while self.service.calls.in_flight:  # noqa: ASYNC110 -- at the end of the process
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.error("calls were still running at shutdown", extra={"count": self.service.calls.in_flight})  # noqa: TRY400 -- a count
        await self.service.keep.disconnect_workers()
        self.service.authenticator.close()


class AuthenticatedMcp:
    """Authentication for MCP: a token with the scope `mcp`, whose agent makes the calls."""

    def __init__(self, app: KeepApp, mcp: App) -> None:
        self._app = app
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        request = Request(scope, receive, send, Headers.of(scope), 0)
        text = bearer_token(scope["headers"])
        caller = await self._app.authenticate(request, text, _MCP)
        self._app.check_mcp_scope(request, caller)
        scope[AGENT_KEY] = caller.agent
        with self._app.admitted(caller), self._app.revocations.of(text):
            told = outliving.set(partial(self._app.revocations.follow, text))
            try:
                await self._mcp(scope, receive, send)
            finally:  # the next request of the same connection may run in this context
                outliving.reset(told)
