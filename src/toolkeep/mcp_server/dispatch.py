"""`McpServer`: dispatches MCP requests to a keep; one method table for all protocol versions and transports.

A transport passes messages in with their connection and carries the answers back. Messages are not trusted:
unknown methods are refused, and the agent of a call is always that of the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import jiter
import msgspec

from toolkeep.calls import RegisteredTool, caller_identity
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.events import (
    AgentDeclared,
    ApprovalDecided,
    Event,
    PoliciesChanged,
    ToolAccepted,
    ToolQuarantined,
    ToolRegistered,
    ToolSwitched,
    ToolUnregistered,
)
from toolkeep.flow.typed_view import HINT
from toolkeep.host.token_bucket import TokenBucket
from toolkeep.keep.keep import Keep
from toolkeep.limits import (
    DEFAULT_MCP_LIMITS,
    MCP_CACHE_MS,
    MCP_INTRODUCTION_BYTES,
    MCP_PAGE,
    MCP_URI_CHARS,
    McpLimits,
)
from toolkeep.mcp_protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    Message,
    ProtocolError,
    answer,
    encode,
    is_id,
    notification,
    refusal,
)
from toolkeep.mcp_protocol.resource_uris import split_namespaced
from toolkeep.mcp_protocol.versions import (
    LISTEN,
    LOG_LEVEL_KEY,
    LOG_LEVELS,
    MODERN_VERSIONS,
    ONLY_HANDSHAKE,
    ONLY_MODERN,
    SERVER_KEY,
    TASKS,
    negotiated,
)
from toolkeep.mcp_server.approval_notices import INSTRUCTIONS
from toolkeep.mcp_server.connection import Connection, Emit
from toolkeep.mcp_server.features import Completer, Features, Prompt, Resource
from toolkeep.mcp_server.subscriptions import Kind, SeenLists, Subscription, Subscriptions
from toolkeep.mcp_server.tool_search import STANDING_FOR_ALL
from toolkeep.mcp_server.tools_call import RESUME, PassedOn, ToolCallHandler, from_any_thread, peers_of
from toolkeep.mcp_server.tools_list import ToolList
from toolkeep.mcp_server.upstream_items import UpstreamItems, value_of
from toolkeep.mcp_server.upstream_watches import UpstreamWatches

DEFAULT_AGENT = "mcp-local"
Handler = Callable[[Message, Connection, Emit], Awaitable[dict[str, Any]]]
_LIST_CHANGES = (
    AgentDeclared,  # policies may hide tools from it, or from others
    PoliciesChanged,
    ToolAccepted,
    ToolQuarantined,
    ToolRegistered,
    ToolSwitched,
    ToolUnregistered,
)


class McpServer:
    """Serves a keep over MCP; `serve_stdio` and `McpApp` are its transports."""

    def __init__(
        self,
        keep: Keep,
        *,
        agent: str = DEFAULT_AGENT,
        instructions: str = INSTRUCTIONS,
        find_tools: bool = False,
        client_answers: bool = False,
        page_url: str | Callable[[], str] = "",
        limits: McpLimits = DEFAULT_MCP_LIMITS,
    ) -> None:
        """`agent` makes the calls; `find_tools` lists two search tools in place of all tools.

        `client_answers` lets the client of a connection approve calls of up to medium danger (POL-4); without
        it, approval requests go to the inbox. `page_url` is the address of the page with the inbox, or a
        function that returns it: clients whose call waits are told.
        """
        self.keep = keep
        self.peers = peers_of(keep)
        """The other servers that share the database; None for a server that is alone."""
        self.agent = agent
        self.limits = limits
        self.client_answers = client_answers
        self.features = Features()
        self._items = UpstreamItems(keep)
        self._given = SeenLists(keep)
        self._own_lists: set[Kind] = set()
        """Lists that the host changed itself; they are the same for every client."""
        self.hub = Subscriptions(self._concerned)
        self._watches = UpstreamWatches(keep, self._items, self.hub)
        self.hub.on_leave = self._watches.end_unwanted
        self.hub.hold_watched = self._hold_watched
        self.calling = ToolCallHandler(keep, finds_tools=find_tools, page_url=page_url)
        self.calling.tasks.tell = lambda record: self.hub.task_changed(record.id, record.view)
        self._finds_tools = find_tools
        self._instructions = instructions
        self._info = {"name": "toolkeep", "title": "toolkeep", "version": _version()}
        self._encoded_info = msgspec.Raw(encode(self._info))
        self._tools = ToolList(has_typed_views=keep.has_typed_views)
        self._in_flight = 0
        self._rate_limiter = TokenBucket(limits.messages_per_second, limits.burst)
        self._handlers = self._by_era()
        self._stop_listening = keep.subscribe(self._hear)
        self._told: dict[str, dict[str, Any]] = {}
        """States of other servers' tasks that subscribers were told."""
        if self.peers is not None:
            from toolkeep.storage.postgres.work_table import WORK_TOPIC

            self.peers.on(RESUME, self._resume)
            self.peers.listen(WORK_TOPIC, self._task_changed)

    def close(self) -> None:
        """Cancel suspended requests and tasks, and unsubscribe from the keep's events."""
        self._stop_listening()
        self._watches.close()
        self.calling.close()
        if self.peers is not None:
            self.peers.close()

    # --- what the host's own code registers ------------------------------------------------------

    def add_resource(self, resource: Resource) -> None:
        """Register a resource."""
        self.features.resources[resource.uri] = resource
        self._own_list_changed("resources")

    def add_prompt(self, prompt: Prompt) -> None:
        """Register a prompt."""
        self.features.prompts[prompt.name] = prompt
        self._own_list_changed("prompts")

    def remove_prompt(self, name: str) -> None:
        """Unregister a prompt."""
        self.features.prompts.pop(name, None)
        self._own_list_changed("prompts")

    def _own_list_changed(self, kind: Kind) -> None:
        self._own_lists.add(kind)
        self.hub.changed(kind)

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource."""
        self.hub.updated(uri)

    def complete_with(self, completer: Completer) -> None:
        """Register a completer for arguments."""
        self.features.completer = completer

    def enable_logging(self) -> None:
        """Let tools send log messages to clients that subscribe to them."""
        self.features.has_logging = True

    # --- messages --------------------------------------------------------------------------------

    async def handle(self, message: Message, connection: Connection, emit: Emit) -> bytes:
        """Handle one request and return its encoded result; raises `ProtocolError`."""
        method = message.method
        handler = self._handlers[connection.is_modern].get(method)
        if handler is None or (
            method in _OFFERED_IF_REGISTERED and not self._offers(method, connection.agent)
        ):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method[:64]}")
        if not connection.version and method not in ("initialize", "ping"):
            raise ProtocolError(INVALID_REQUEST, "Send initialize first")
        self._check_rate_limit()
        connection.may_answer = self.client_answers
        self._in_flight += 1
        try:
            result = await handler(message, connection, from_any_thread(emit))
        finally:
            self._in_flight -= 1
        return self._encode(result, method, connection)

    def notice(self, message: Message, connection: Connection) -> None:
        """Handle a notification; unknown ones are ignored."""
        missing = self.keep.start_up.notice
        if message.method == "notifications/initialized" and missing and connection.hears("warning"):
            # Instructions are for the model; a person reads the client's log.
            told = {"level": "warning", "logger": "toolkeep", "data": missing}
            if connection.emit is not None:
                connection.emit(notification("notifications/message", told))
        if message.method == "notifications/cancelled":
            wanted = message.params.get("requestId")
            if is_id(wanted):
                # Deferred: a task cancelled before its first step never reaches its `finally` blocks.
                asyncio.get_running_loop().call_soon(connection.cancel, wanted)

    def _check_rate_limit(self) -> None:
        # Refused, not queued: a queue that clients can fill is memory that they control.
        if self._in_flight >= self.limits.in_flight:
            raise ProtocolError(OVERLOADED, "Too many concurrent requests; wait for responses")
        if not self._rate_limiter.take():
            raise ProtocolError(OVERLOADED, "Too many requests; slow down")

    def _offers(self, method: str, agent: str) -> bool:
        features = self.features
        match method.split("/"):
            case ["resources", "subscribe" | "unsubscribe"]:
                return bool(features.resources) or self._items.has_any(CallKind.SUBSCRIPTION, agent)
            case ["resources", *_]:
                return bool(features.resources) or self._items.has_any(CallKind.RESOURCE, agent)
            case ["prompts", _]:
                return bool(features.prompts) or self._items.has_any(CallKind.PROMPT, agent)
            case ["completion", _]:
                return features.completer is not None or self._items.has_any(CallKind.COMPLETION, agent)
            case ["logging", _]:
                return features.has_logging
        return True

    def _encode(self, result: dict[str, Any], method: str, connection: Connection) -> bytes:
        if connection.is_modern:
            meta = {**result.get("_meta", {}), SERVER_KEY: self._encoded_info}
            kind = result.get("resultType", "complete")
            result = {**result, **_CACHED.get(method, {}), "resultType": kind, "_meta": meta}
        return encode(result)

    def _by_era(self) -> dict[bool, dict[str, Handler]]:
        """The methods of 2026-07-28 (True) and of the handshake versions (False)."""
        table = self._table()
        return {
            True: {name: handler for name, handler in table.items() if name not in ONLY_HANDSHAKE},
            False: {name: handler for name, handler in table.items() if name not in ONLY_MODERN},
        }

    def _table(self) -> dict[str, Handler]:
        return {
            "initialize": self._initialize,
            "ping": _nothing,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self.calling.call,
            "tasks/get": self._soon(self.calling.tasks.get),
            "tasks/update": self._soon(self.calling.tasks.update),
            "tasks/cancel": self._soon(self.calling.tasks.cancel),
            LISTEN: self._listen,
            "resources/list": self._now(partial(self._list_resources, are_templates=False)),
            "resources/templates/list": self._now(partial(self._list_resources, are_templates=True)),
            "resources/read": self._read_resource,
            "resources/subscribe": self._watch,
            "resources/unsubscribe": self._now(self._unwatch),
            "prompts/list": self._now(self._list_prompts),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._now(_set_level),
        }

    @staticmethod
    def _now(handle: Callable[[Connection, dict[str, Any]], dict[str, Any]]) -> Handler:
        """Wrap a handler that neither waits nor sends anything to the client."""

        async def handler(message: Message, connection: Connection, _: Emit) -> dict[str, Any]:
            return handle(connection, message.params)

        return handler

    @staticmethod
    def _soon(handle: Callable[[Connection, dict[str, Any]], Awaitable[dict[str, Any]]]) -> Handler:
        """Wrap a handler that sends nothing to the client."""

        async def handler(message: Message, connection: Connection, _: Emit) -> dict[str, Any]:
            return await handle(connection, message.params)

        return handler

    # --- handlers --------------------------------------------------------------------------------

    def _capabilities(self, agent: str, *, is_modern: bool) -> dict[str, Any]:
        passed_on: dict[str, Any] = {}
        if self._items.has_any(CallKind.RESOURCE, agent):
            passed_on["resources"] = {"listChanged": True}
            if self._items.has_any(CallKind.SUBSCRIPTION, agent):
                passed_on["resources"]["subscribe"] = True
        if self._items.has_any(CallKind.PROMPT, agent):
            passed_on["prompts"] = {"listChanged": True}
        if self._items.has_any(CallKind.COMPLETION, agent):
            passed_on["completions"] = {}
        own = self.features.capabilities(is_modern=is_modern)
        found = {"tools": {"listChanged": True}, **passed_on, **own}
        return {**found, "extensions": {TASKS: {}}} if is_modern else found

    def _said(self) -> dict[str, Any]:
        hint = HINT if self.keep.has_typed_views else ""
        text = "\n".join(filter(None, (self._instructions, self.keep.start_up.notice, hint)))
        return {"instructions": text} if text else {}

    async def _initialize(self, message: Message, connection: Connection, _: Emit) -> dict[str, Any]:
        if connection.version:
            raise ProtocolError(INVALID_REQUEST, "Already initialized")
        params = message.params
        said = params.get("capabilities"), params.get("clientInfo")
        # Kept for the whole session, so bounded: else each session could pin a message of the full size.
        if len(encode(said)) > MCP_INTRODUCTION_BYTES:
            raise ProtocolError(
                INVALID_PARAMS, f"capabilities and clientInfo exceed {MCP_INTRODUCTION_BYTES} bytes"
            )
        connection.version = negotiated(params.get("protocolVersion"))
        connection.introduce(*said)
        connection.log_level = "info" if self.features.has_logging else ""
        return {
            "protocolVersion": connection.version,
            "capabilities": self._capabilities(connection.agent, is_modern=False),
            "serverInfo": self._info,
            **self._said(),
        }

    async def _discover(self, _: Message, connection: Connection, *__: object) -> dict[str, Any]:
        return {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": self._capabilities(connection.agent, is_modern=True),
            **self._said(),
        }

    async def _list_tools(self, message: Message, connection: Connection, _: Emit) -> dict[str, Any]:
        if self._finds_tools:
            return {"tools": STANDING_FOR_ALL}
        tools, cursor = self._page(connection.agent, message.params.get("cursor"))
        encoded = self._tools.encode(tools, is_modern=connection.is_modern)
        return {"tools": encoded, **({"nextCursor": cursor} if cursor else {})}

    def _page(self, agent: str, cursor: object) -> tuple[list[RegisteredTool], str]:
        """One page of tools; the cursor is the last name shown, so pages stay stable while tools change."""
        if cursor is not None and not isinstance(cursor, str):
            raise ProtocolError(INVALID_PARAMS, "cursor must be a string")
        tools = sorted(self.keep.offered_tools(agent=agent), key=lambda tool: tool.name)
        self._given.note(agent, tools)
        if cursor is not None:
            tools = [tool for tool in tools if tool.name > cursor]
        shown = tools[:MCP_PAGE]
        return shown, shown[-1].name if len(tools) > len(shown) else ""

    async def _listen(self, message: Message, connection: Connection, emit: Emit) -> dict[str, Any]:
        """Send change notifications until the client closes the stream."""
        if message.id is None or len(self.hub.subscriptions) >= self.limits.in_flight:
            raise ProtocolError(OVERLOADED, "Too many subscriptions")
        wanted = message.params.get("notifications")
        subscription = Subscription(message.id, connection.agent, wanted, emit)
        if len(subscription.uris) > self.limits.watched:
            raise ProtocolError(OVERLOADED, "Too many resources are watched")
        asked = wanted.get("taskIds") if isinstance(wanted, dict) else None
        tasks = await self.calling.tasks.own(connection, asked)
        subscription.task_ids = set(tasks)
        self.hub.subscriptions.add(subscription)
        self._in_flight -= 1  # an idle subscription must not block calls
        try:
            for uri in sorted(filter(self._is_upstream, subscription.uris)):
                try:
                    await self._watches.begin(uri, connection)
                except ProtocolError:
                    subscription.uris.discard(uri)  # the acknowledgment leaves it out
            subscription.acknowledge()
            for name in tasks:  # a task may have ended before the client subscribed
                view = await self.calling.tasks.view(connection.agent, name)
                if view is not None:
                    subscription.tell("notifications/tasks", view)
            await asyncio.get_running_loop().create_future()
        finally:
            self._in_flight += 1
            self.hub.subscriptions.discard(subscription)
            self._watches.end_unwanted()
        return {}

    def _task_changed(self, name: str) -> None:
        """The state of a task has changed on another server; at an empty name, any may have."""
        listening = {
            (one.agent, task)
            for one in self.hub.subscriptions
            for task in one.task_ids
            if name in ("", task) and not self.calling.tasks.is_here(task)
        }
        if not name:
            known = {task for _, task in listening}
            self._told = {task: view for task, view in self._told.items() if task in known}
        if self.peers is not None:
            for agent, task in listening:
                self.peers.spawn(self._tell_task(agent, task))

    async def _tell_task(self, agent: str, name: str) -> None:
        view = await self.calling.tasks.view(agent, name)
        if view is not None and self._told.get(name) != view:
            self._told[name] = view
            self.hub.task_changed(name, lambda: view)

    async def _resume(self, data: bytes, emit: Emit) -> bytes:
        """Handle a request that another server received, and whose work is suspended here."""
        request = msgspec.json.decode(data, type=PassedOn)
        message = request.message
        connection = Connection.of_request(request.agent, request.version, message.meta)
        connection.log_level = request.log_level
        message_id = 0 if message.id is None else message.id
        known = caller_identity.set(request.identity)
        try:
            return answer(message_id, await self.handle(message, connection, emit))
        except ProtocolError as error:
            return refusal(message_id, error)
        finally:
            caller_identity.reset(known)

    def _is_upstream(self, uri: str) -> bool:
        return split_namespaced(uri) is not None and not self.features.has_resource(uri)

    def _list_resources(
        self, connection: Connection, params: dict[str, Any], *, are_templates: bool
    ) -> dict[str, Any]:
        """The host's own, all on the first page, then those of upstream servers."""
        cursor = params.get("cursor")
        own = self.features.list_templates() if are_templates else self.features.list_resources()
        found, following = self._items.resources(connection.agent, cursor, are_templates=are_templates)
        return _joined(own, found, cursor, following)

    def _list_prompts(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        cursor, own = params.get("cursor"), self.features.list_prompts()
        found, following = self._items.prompts(connection.agent, cursor, self.features.prompts)
        return _joined(own, found, cursor, following)

    async def _read_resource(self, message: Message, connection: Connection, emit: Emit) -> dict[str, Any]:
        uri, is_modern = _uri(message.params), connection.is_modern
        if not self._is_upstream(uri):
            work = self.features.read_resource(message.params, is_modern=is_modern)
            return await self.calling.run_own(work, message, connection, emit)
        wanted = self._items.find_resource(uri, connection.agent, is_modern=is_modern)
        finish = partial(value_of, is_modern=is_modern, uri=uri)
        return await self.calling.call_item(wanted, finish, message, connection, emit)

    async def _get_prompt(self, message: Message, connection: Connection, emit: Emit) -> dict[str, Any]:
        arguments = message.arguments
        if isinstance(arguments, bytes):
            try:
                arguments = jiter.from_json(arguments, allow_inf_nan=False, catch_duplicate_keys=True)
            except ValueError as error:
                raise ProtocolError(INVALID_PARAMS, "arguments are not strict JSON") from error
        name = message.params.get("name")
        if isinstance(name, str) and name in self.features.prompts:
            work = self.features.get_prompt(message.params, arguments)
            return await self.calling.run_own(work, message, connection, emit)
        wanted = self._items.find_prompt(name, connection.agent, arguments)
        finish = partial(value_of, is_modern=connection.is_modern)
        return await self.calling.call_item(wanted, finish, message, connection, emit)

    async def _complete(self, message: Message, connection: Connection, emit: Emit) -> dict[str, Any]:
        wanted = self._items.find_completion(message.params, connection.agent)
        if wanted is None and self.features.completer is None:
            raise ProtocolError(INVALID_PARAMS, "Nothing is completed for this ref")
        if wanted is None or message.params["ref"].get("name") in self.features.prompts:
            completed = await self.features.complete(message.params)
            if (noted := self.calling.note_text(connection)) is not None:
                await noted
            return completed
        finish = partial(value_of, is_modern=connection.is_modern)
        return await self.calling.call_item(wanted, finish, message, connection, emit)

    async def _watch(self, message: Message, connection: Connection, _: Emit) -> dict[str, Any]:
        uri = _uri(message.params)
        if len(connection.watched) >= self.limits.watched:
            raise ProtocolError(OVERLOADED, "Too many resources are watched")
        connection.watched.add(uri)
        if self._is_upstream(uri):
            try:
                await self._watches.begin(uri, connection)
            except BaseException:
                connection.watched.discard(uri)
                self._watches.end_unwanted()
                raise
        return {}

    async def _hold_watched(self, connection: Connection) -> None:
        for uri in sorted(filter(self._is_upstream, connection.watched)):
            try:
                await self._watches.begin(uri, connection)
            except ProtocolError:
                connection.watched.discard(uri)

    def _unwatch(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        connection.watched.discard(_uri(params))
        self._watches.end_unwanted()
        return {}

    def _concerned(self, kind: Kind, agents: set[str]) -> set[str]:
        """Agents to tell of a changed list; the others must not learn of what they were never given."""
        if kind == "tools":
            return self._given.outdated(agents)
        return agents if kind in self._own_lists else self._items.concerned(kind, agents)

    def _hear(self, event: Event) -> None:
        """Notify clients of events that change a list; end the notices of an approval."""
        if isinstance(event, _LIST_CHANGES):
            name = getattr(event, "tool_name", "")
            self.hub.soon(self._watches.decide_again)
            for kind, method in _LIST_OF.items():
                # A changed grant or policy names no tool, and may change every list that is not empty.
                if kind_of(name) is kind if name else kind is CallKind.TOOL or self.keep.tools(kind=kind):
                    self.hub.changed(method)
        elif isinstance(event, ApprovalDecided):
            self.calling.notices.end(event.approval_id)


_LIST_OF: dict[CallKind, Kind] = {
    CallKind.TOOL: "tools",
    CallKind.PROMPT: "prompts",
    CallKind.RESOURCE: "resources",
}


def _joined(
    own: dict[str, Any], found: list[dict[str, Any]], cursor: object, following: str
) -> dict[str, Any]:
    """A page of the host's own entries and of those that upstream servers pass on."""
    ((key, entries),) = own.items()
    page = {key: [*(entries if cursor is None else ()), *found]}
    return {**page, "nextCursor": following} if following else page


_OFFERED_IF_REGISTERED = frozenset(
    (
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
    )
)
_FRESH: dict[str, Any] = {"ttlMs": MCP_CACHE_MS, "cacheScope": "private"}
_CACHED = dict.fromkeys(
    (
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ),
    _FRESH,
)
"""What clients may cache. Private: a shared cache would show one agent the tools of another."""


async def _nothing(*_: object) -> dict[str, Any]:
    return {}


def _set_level(connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
    level = params.get("level")
    if level not in LOG_LEVELS:
        raise ProtocolError(INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
    connection.log_level = level
    return {}


def log_level_of(meta: dict[str, Any]) -> str:
    """The log level that a request asks for (2026-07-28); empty for none."""
    level = meta.get(LOG_LEVEL_KEY)
    return level if level in LOG_LEVELS else ""


def _uri(params: dict[str, Any]) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str) or len(uri) > MCP_URI_CHARS:
        raise ProtocolError(INVALID_PARAMS, f"uri must be text of at most {MCP_URI_CHARS} characters")
    return uri


def _version() -> str:
    from toolkeep import __version__

    return __version__
