"""Who wants to hear that something changed; each kind of change is told once in a turn of the loop."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from toolkeep.limits import MCP_URI_CHARS
from toolkeep.mcp.connection import Connection, Emit
from toolkeep.wire.era import SUBSCRIPTION_KEY
from toolkeep.wire.messages import Id, notification

Kind = Literal["tools", "prompts", "resources"]
_FILTERS: dict[str, Kind] = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class Subscription:
    """One stream of the newer era, with what it asked for."""

    def __init__(self, stream_id: Id, agent: str, wanted: object, emit: Emit) -> None:
        self.agent = agent
        asked = wanted if isinstance(wanted, dict) else {}
        uris = asked.get("resourceSubscriptions")
        self.kinds = {kind for key, kind in _FILTERS.items() if asked.get(key) is True}
        named = uris if isinstance(uris, list) else []
        self.uris = {uri for uri in named if isinstance(uri, str) and len(uri) <= MCP_URI_CHARS}
        self.task_ids: set[str] = set()
        """Tasks of its own agent; whoever adds them has made sure of that."""
        self._meta = {SUBSCRIPTION_KEY: stream_id}
        self._emit = emit

    def acknowledge(self) -> None:
        """Say what will be told; it comes first."""
        honored: dict[str, Any] = {key: True for key, kind in _FILTERS.items() if kind in self.kinds}
        if self.uris:
            honored["resourceSubscriptions"] = sorted(self.uris)
        if self.task_ids:
            honored["taskIds"] = sorted(self.task_ids)
        self.tell("notifications/subscriptions/acknowledged", {"notifications": honored})

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """One notification, with the name of the stream."""
        self._emit(notification(method, {**params, "_meta": self._meta}))


class Hub:
    """Everyone who listens to one server."""

    def __init__(self, outdated: Callable[[set[str]], set[str]]) -> None:
        """`outdated` says for which agents the list of tools is another than the one that they have."""
        self._outdated = outdated
        self.connections: set[Connection] = set()
        self.subscriptions: set[Subscription] = set()
        self._changed: set[Kind] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def attend(self) -> None:
        """Remember the loop in which clients are told; changes may come from any thread."""
        self._loop = asyncio.get_running_loop()

    def changed(self, kind: Kind) -> None:
        """A list is not what it was."""
        self._soon(lambda: self._note(kind))

    def updated(self, uri: str) -> None:
        """A resource is not what it was."""
        self._soon(lambda: self._tell_updated(uri))

    def task_changed(self, task_id: str, view: Callable[[], dict[str, Any]]) -> None:
        """A task is not what it was; told at once, in the loop of its work."""
        listening = [one for one in self.subscriptions if task_id in one.task_ids]
        for subscription in listening:
            subscription.tell("notifications/tasks", view())

    def _soon(self, act: Callable[[], None]) -> None:
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
            connections = [one for one in self.connections if one.emit is not None]
            subscriptions = [one for one in self.subscriptions if kind in one.kinds]
            agents = {one.agent for one in connections} | {one.agent for one in subscriptions}
            concerned = self._outdated(agents) if kind == "tools" else agents
            for connection in connections:
                if connection.emit is not None and connection.agent in concerned:
                    connection.emit(plain)
            for subscription in subscriptions:
                if subscription.agent in concerned:
                    subscription.tell(method, {})

    def _tell_updated(self, uri: str) -> None:
        method, params = "notifications/resources/updated", {"uri": uri}
        for connection in list(self.connections):
            if connection.emit is not None and uri in connection.watched:
                connection.emit(notification(method, params))
        for subscription in list(self.subscriptions):
            if uri in subscription.uris:
                subscription.tell(method, params)
