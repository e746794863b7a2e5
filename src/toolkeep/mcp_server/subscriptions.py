"""Change notifications to subscribed clients, at most one of each kind per loop iteration."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Literal

from toolkeep.calls import RegisteredTool
from toolkeep.keep.keep import Keep
from toolkeep.limits import MCP_URI_CHARS
from toolkeep.mcp_protocol.jsonrpc import Id, notification
from toolkeep.mcp_protocol.versions import SUBSCRIPTION_KEY
from toolkeep.mcp_server.connection import Connection, Emit

Kind = Literal["tools", "prompts", "resources"]
_FILTERS: dict[str, Kind] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class Subscription:
    """One `subscriptions/listen` stream (2026-07-28) with its filters."""

    def __init__(self, stream_id: Id, agent: str, wanted: object, emit: Emit) -> None:
        self.agent = agent
        asked = wanted if isinstance(wanted, dict) else {}
        uris = asked.get("resourceSubscriptions")
        self.kinds = {kind for key, kind in _FILTERS.items() if asked.get(key) is True}
        named = uris if isinstance(uris, list) else []
        self.uris = {uri for uri in named if isinstance(uri, str) and len(uri) <= MCP_URI_CHARS}
        self.task_ids: set[str] = set()
        """Tasks of its own agent only: the caller checks, or another agent's results would be sent here."""
        self._meta = {SUBSCRIPTION_KEY: stream_id}
        self._emit = emit
        self._is_acknowledged = False

    def acknowledge(self) -> None:
        """Send the accepted filters; always the first message."""
        self._is_acknowledged = True
        honored: dict[str, Any] = {key: True for key, kind in _FILTERS.items() if kind in self.kinds}
        if self.uris:
            honored["resourceSubscriptions"] = sorted(self.uris)
        if self.task_ids:
            honored["taskIds"] = sorted(self.task_ids)
        self.tell("notifications/subscriptions/acknowledged", {"notifications": honored})

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send one notification with the id of the stream."""
        if self._is_acknowledged:
            self._emit(notification(method, {**params, "_meta": self._meta}))


class Subscriptions:
    """All subscribers of one server."""

    def __init__(self, concerned: Callable[[Kind, set[str]], set[str]]) -> None:
        """`concerned` returns those of the agents who are told that a list has changed."""
        self._concerned = concerned
        self.connections: set[Connection] = set()
        self.subscriptions: set[Subscription] = set()
        self._changed: set[Kind] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_leave: Callable[[], None] = lambda: None
        """Called when a client has disconnected."""
        self.hold_watched: Callable[[Connection], Coroutine[Any, Any, None]] = _hold_nothing
        """Subscribes to the upstream resources that a client watches, which it may have named elsewhere."""

    def attend(self) -> None:
        """Remember the event loop for notifications; changes may come from any thread."""
        self._loop = asyncio.get_running_loop()

    def changed(self, kind: Kind) -> None:
        """A list has changed."""
        self.soon(lambda: self._note(kind))

    def leave(self, connection: Connection) -> None:
        """A client has disconnected."""
        self.connections.discard(connection)
        self.on_leave()

    def wanted(self) -> set[tuple[str, str]]:
        """Agents, each with a URI that a client of it is subscribed to."""
        watching = [(one.agent, uri) for one in self.connections for uri in one.watched]
        return {*watching, *((one.agent, uri) for one in self.subscriptions for uri in one.uris)}

    def forget(self, uri: str, agent: str) -> None:
        """End the subscriptions of an agent to a resource."""
        self.soon(lambda: self._forget(uri, agent))

    def _forget(self, uri: str, agent: str) -> None:
        for connection in self.connections:
            if connection.agent == agent:
                connection.watched.discard(uri)
        for subscription in self.subscriptions:
            if subscription.agent == agent:
                subscription.uris.discard(uri)

    def updated(self, uri: str, agent: str | None = None) -> None:
        """A resource has changed, for one agent or for all."""
        self.soon(lambda: self._tell_updated(uri, agent))

    def task_changed(self, task_id: str, view: Callable[[], dict[str, Any]]) -> None:
        """Notify the subscribers of a task, at once and in the loop of its work."""
        listening = [one for one in self.subscriptions if task_id in one.task_ids]
        for subscription in listening:
            subscription.tell("notifications/tasks", view())

    def soon(self, act: Callable[[], None]) -> None:
        """Act in the event loop of the clients."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def _note(self, kind: Kind) -> None:
        if not self._changed and self._loop is not None:
            self._loop.call_soon(self._tell_changed)
        self._changed.add(kind)

    def _tell_changed(self) -> None:
        changed, self._changed = sorted(self._changed), set()
        for kind in changed:
            method = f"notifications/{kind}/list_changed"
            plain = notification(method)
            # Over stdio, a client without a handshake is told only what it subscribed to (2026-07-28).
            connections = [one for one in self.connections if one.emit is not None and one.version]
            subscriptions = [one for one in self.subscriptions if kind in one.kinds]
            agents = {one.agent for one in connections} | {one.agent for one in subscriptions}
            concerned = self._concerned(kind, agents)
            for connection in connections:
                if connection.emit is not None and connection.agent in concerned:
                    connection.emit(plain)
            for subscription in subscriptions:
                if subscription.agent in concerned:
                    subscription.tell(method, {})

    def _tell_updated(self, uri: str, agent: str | None) -> None:
        method, params = "notifications/resources/updated", {"uri": uri}
        for connection in list(self.connections):
            is_meant = agent in (None, connection.agent) and uri in connection.watched
            if connection.emit is not None and is_meant:
                connection.emit(notification(method, params))
        for subscription in list(self.subscriptions):
            if uri in subscription.uris and agent in (None, subscription.agent):
                subscription.tell(method, params)


async def _hold_nothing(connection: Connection) -> None:
    """A hub without upstream servers."""


_COMPARED: Final = 200_000
"""The most tools × agents to compare after one change; about a tenth of a second."""


class SeenLists:
    """Fingerprints of the tool lists that agents were given."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._marks: dict[str, set[int]] = {}
        """Fingerprints by agent; several if the list changed between two of its requests."""

    def note(self, agent: str, tools: Iterable[RegisteredTool]) -> None:
        """Note that an agent was given this list, or a page of it."""
        self._marks.setdefault(agent, set()).add(_mark(tools))

    def outdated(self, agents: set[str]) -> set[str]:
        """Agents whose tool list changed; marks them notified.

        Only those are told: a notification to the others would reveal that a tool hidden from them changed.
        """
        if len(self._keep) * len(agents) > _COMPARED:
            for agent in agents:
                self._marks.pop(agent, None)
            return agents
        return {agent for agent in agents if self._is_outdated(agent)}

    def _is_outdated(self, agent: str) -> bool:
        if agent not in self._marks:
            return True
        now = {_mark(self._keep.offered_tools(agent=agent))}
        before, self._marks[agent] = self._marks[agent], now
        return before != now


def _mark(tools: Iterable[RegisteredTool]) -> int:
    return hash(frozenset((tool.name, tool.definition_hash) for tool in tools))
