"""The ASGI app: who is spoken to, which route, who calls, may they, is there room, then the action.

Nothing of a request is trusted. Whatever goes wrong is answered with a problem document; a bug of ours is
logged whole and answered with nothing but its code.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from toolkeep.errors import Code, ToolkeepError
from toolkeep.mcp.headers import LOOPBACK, Headers, SpokenTo
from toolkeep.mcp.tasks import outliving
from toolkeep.server.answers import Answer
from toolkeep.server.auth import Caller, check_scope, presented, unknown_caller
from toolkeep.server.limits import Turnstile
from toolkeep.server.metadata import PATH as METADATA_PATH
from toolkeep.server.problems import INTERNAL, RequestRefused, of_error
from toolkeep.server.request import Gone, Receive, Request, Scope, Send
from toolkeep.server.routing import Found, RouteTable
from toolkeep.server.service import Service
from toolkeep.server.stream import send_whole
from toolkeep.server.tenure import NoLonger, Tenure
from toolkeep.tokens import Scope as TokenScope

log = logging.getLogger("toolkeep.server")

App = Callable[[Scope, Receive, Send], Any]

AGENT_KEY: Final = "toolkeep.agent"
"""Where a mounted app finds in its scope who calls."""

_END_S: Final = 5.0
"""How long the last calls may take to record that they were cut short."""


class KeepApp:
    """Serves a keep over HTTP, and apps of their own below a path, such as MCP and the page."""

    def __init__(
        self,
        service: Service,
        table: RouteTable,
        *,
        hosts: Iterable[str] = LOOPBACK,
    ) -> None:
        """`hosts` are the names by which it is spoken to."""
        self.service = service
        self._table = table
        self._is_spoken_to = SpokenTo(hosts)
        self._mounts: dict[str, App] = {}
        self._turnstile = Turnstile(service.limits)
        self.tenure = Tenure(service.recognizer.find)
        self._listeners: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = [self.tenure.close]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the server around all of them."""
        if scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers.of(scope)
        request = Request(scope, receive, send, headers, self.service.limits.body_bytes)
        route = ""  # not the path, which may hold what is nobody's business
        try:
            self._check_spoken_to(headers)
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
        except NoLonger:
            given = of_error(self._unknown_caller(request))
        except Gone:
            return
        except Exception:
            log.exception("a request broke the server", extra={"route": route})
            given = INTERNAL
        if given is not None:
            await send_whole(request, given)

    def _check_spoken_to(self, headers: Headers) -> None:
        if not self._is_spoken_to(headers):
            raise RequestRefused(
                Code.NOT_SPOKEN_TO,
                "the request is meant for another host, or comes from a page of another",
                hint="the operator names further hosts with `toolkeep serve --allow-host`",
            )

    async def _routed(self, found: Found, request: Request, scope: Scope) -> Answer | None:
        route = found.route
        if found.query or scope["query_string"]:
            request.read_query(found.query)
        if found.headers:
            request.read_headers(found.headers)
        if not route.scopes:
            return await route.handler(self.service, request)
        text = presented(scope["headers"])
        caller = request.caller = await self.identify(request, text)
        check_scope(caller, route.scopes)
        account = self._turnstile.enter(caller.id)
        try:
            if not route.is_long:
                return await route.handler(self.service, request)
            with self.tenure.of(text):
                return await route.handler(self.service, request)
        finally:
            self._turnstile.leave(account)

    @contextlib.contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Around a request that a mounted app answers; raises where there is no room."""
        account = self._turnstile.enter(caller.id)
        try:
            yield
        finally:
            self._turnstile.leave(account)

    async def identify(self, request: Request, text: str) -> Caller:
        """Whose request it is; raises where the token that came with it does not count."""
        caller = await self.service.recognizer.find(text) if text else None
        if caller is None:
            raise self._unknown_caller(request)
        return caller

    def _unknown_caller(self, request: Request) -> RequestRefused:
        return unknown_caller(request.base(self.service.base) + METADATA_PATH)

    def _mounted(self, path: str) -> App | None:
        for prefix, app in self._mounts.items():
            if path == prefix or (prefix != "/" and path.startswith(f"{prefix}/")):
                return app
        return None

    def mount(self, prefix: str, app: App) -> None:
        """Serve an app of its own below a path; it asks who calls by itself."""
        self._mounts[prefix] = app

    def at_stop(self, let_go: Callable[[], None]) -> None:
        """Have those let go who only listen when the server is told to end."""
        self._listeners.append(let_go)

    def let_go(self) -> None:
        """The server is told to end: whoever only listens is not waited for."""
        self.service.health.stop()
        self.service.calls.withdraw()
        for let_go in self._listeners:
            let_go()

    def at_end(self, close: Callable[[], None]) -> None:
        """Have something closed when the server ends, before its last calls are waited for."""
        self._at_end.append(close)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            event = await receive()
            if event["type"] == "lifespan.shutdown":
                await self.end()
            await send({"type": event["type"] + ".complete"})
            if event["type"] == "lifespan.shutdown":
                return

    async def end(self) -> None:
        """Wait until the last calls have recorded how they ended."""
        self.service.health.stop()
        self.service.calls.withdraw()
        for close in self._at_end:
            close()
        try:
            async with asyncio.timeout(_END_S):
                while self.service.calls.in_flight:  # noqa: ASYNC110 -- at the end of the process
                    await asyncio.sleep(0.01)
        except TimeoutError:
            log.error("calls were left behind", extra={"count": self.service.calls.in_flight})  # noqa: TRY400 -- a count
        self.service.recognizer.close()


class McpDoor:
    """MCP below the same checks: a token with the scope `mcp`, and its agent is who calls."""

    def __init__(self, app: KeepApp, mcp: App) -> None:
        self._app = app
        self._mcp = mcp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request = Request(scope, receive, send, Headers.of(scope), 0)
        text = presented(scope["headers"])
        caller = await self._app.identify(request, text)
        check_scope(caller, (TokenScope.MCP,))
        scope[AGENT_KEY] = caller.agent
        with self._app.admitted(caller), self._app.tenure.of(text):
            told = outliving.set(partial(self._app.tenure.follow, text))
            try:
                await self._mcp(scope, receive, send)
            finally:  # the next request of the connection may begin in this context
                outliving.reset(told)
