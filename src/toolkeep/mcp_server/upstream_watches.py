"""Subscriptions to resources of upstream MCP servers, one lasting call for each agent and resource (MCP-4).

The call is decided, limited and recorded like any other, and made anew when it reaches its deadline or when
grants, policies or tools change. So an update is passed on only while the agent may read the resource.
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from toolkeep.calls import ToolResult
from toolkeep.errors import Code
from toolkeep.keep.keep import Keep
from toolkeep.limits import MCP_UPSTREAM_WATCHED
from toolkeep.mcp_protocol.jsonrpc import OVERLOADED, ProtocolError
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.subscriptions import Subscriptions
from toolkeep.mcp_server.upstream_items import UpstreamItems, value_of

_START_SECONDS: Final = 60.0
"""Time to begin, a person's approval included."""


_AGAIN: Final = (Code.TIMED_OUT, Code.CANCELLED)


class _Key(NamedTuple):
    agent: str
    uri: str


class _Watch:
    """The call of one agent and resource."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the upstream has subscribed; fails with the error for the client."""
        self.call: asyncio.Task[ToolResult] | None = None
        self.task: asyncio.Task[None] | None = None


class UpstreamWatches:
    """Holds a subscription at the upstream while a client wants it."""

    def __init__(self, keep: Keep, items: UpstreamItems, hub: Subscriptions) -> None:
        self._keep = keep
        self._items = items
        self._hub = hub
        self._open: dict[_Key, _Watch] = {}

    async def begin(self, uri: str, connection: Connection) -> None:
        """Subscribe for the agent of a connection; raises `ProtocolError`."""
        key = _Key(connection.agent, uri)
        self._items.find_subscription(uri, key.agent, is_modern=connection.is_modern)
        watch = self._open.get(key)
        if watch is None:
            if sum(one.agent == key.agent for one in self._open) >= MCP_UPSTREAM_WATCHED:
                raise ProtocolError(OVERLOADED, "Too many resources are watched")
            watch = self._open[key] = _Watch()
            watch.task = asyncio.get_running_loop().create_task(
                self._hold(key, watch, connection.session, connection.label)
            )
        try:
            async with asyncio.timeout(_START_SECONDS):
                await asyncio.shield(watch.begun)
        except TimeoutError:
            self._end(key)
            raise ProtocolError(OVERLOADED, "The subscription did not begin in time") from None

    def end_unwanted(self) -> None:
        """End the subscriptions that no client wants any more."""
        wanted = self._hub.wanted()
        for key in [key for key in self._open if key not in wanted and self._open[key].begun.done()]:
            self._end(key)

    def decide_again(self) -> None:
        """Make each call anew: what permits it may have changed."""
        for watch in self._open.values():
            if watch.call is not None:
                watch.call.cancel()

    def close(self) -> None:
        """End all."""
        for key in list(self._open):
            self._end(key)

    def _end(self, key: _Key) -> None:
        watch = self._open.pop(key, None)
        if watch is not None and watch.task is not None:
            watch.task.cancel()

    async def _hold(self, key: _Key, watch: _Watch, session: str, label: str) -> None:
        """Call again and again, until the client or the server ends it."""
        try:
            while True:
                wanted = self._items.find_subscription(key.uri, key.agent, is_modern=False)
                watch.call = asyncio.get_running_loop().create_task(
                    self._keep.call(
                        wanted.tool.name,
                        wanted.arguments,
                        agent=key.agent,
                        session=session,
                        conversation=label,
                        forwarded=True,
                        on_progress=partial(self._heard, key, watch),
                        kind=wanted.tool.definition.kind,
                    )
                )
                await asyncio.wait({watch.call})
                if not watch.call.cancelled() and watch.call.result().code not in _AGAIN:
                    value_of(watch.call.result(), is_modern=False, uri=key.uri)
        except ProtocolError as error:
            self._open.pop(key, None)
            if not watch.begun.done():
                watch.begun.set_exception(error)
                watch.begun.exception()  # marks it as retrieved: the client may be gone
            else:
                # The client hears that it must read again, where it is told what is wrong.
                self._hub.updated(key.uri, key.agent)
                self._hub.forget(key.uri, key.agent)
        finally:
            if watch.call is not None:
                watch.call.cancel()

    def _heard(self, key: _Key, watch: _Watch, count: float, *_: object) -> None:
        """The upstream has subscribed, or the resource has changed."""
        is_first = not watch.begun.done()
        if is_first:
            watch.begun.set_result(None)
        # Also when the call was made anew: an update may have come in between.
        if count or not is_first:
            self._hub.updated(key.uri, key.agent)
