"""MCP client for one upstream server: protocol version negotiation, lists, and calls.

Calls are `tools/call`, `prompts/get`, `resources/read`, `completion/complete` and `resources/subscribe`.

The `initialize` handshake (versions up to 2025-11-25) is tried first, since nearly every server supports it.
A server that supports only 2026-07-28 says so, and is then used without a handshake. Pagination of lists is
bounded: the server is hostile and may list without end.
"""

import asyncio
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.mcp_client.pinned_tools import Entry, ListName
from toolkeep.mcp_client.transport import Progress, Transport, UpstreamError, UpstreamFailed
from toolkeep.mcp_protocol.header_params import mirrored_headers
from toolkeep.mcp_protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION, encode
from toolkeep.mcp_protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    SERVER_KEY,
    VERSION_KEY,
)
from toolkeep.text.display import excerpt

if TYPE_CHECKING:
    from toolkeep.mcp_client.elicitation import Elicitations
    from toolkeep.mcp_client.elicitation_audit import ActiveCall


PAGES: Final = 200
"""Maximum number of pages of one list; each takes a request."""
ENTRIES: Final[dict[ListName, int]] = {
    "tools": 2_000,
    "prompts": 2_000,
    "resources": 20_000,
    "templates": 2_000,
}
"""Maximum number of entries of one server's list."""
LIST_BYTES: Final = DEFINITION_FILE_BYTES
"""Maximum size of all pages of one list together; the lists are pinned in a file."""
_LISTS: Final[dict[ListName, tuple[str, str]]] = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
"""The method of each list, and the key of its result."""

ROUNDS: Final = 4
"""Maximum number of `input_required` rounds of one call."""

UPDATE_SECONDS: Final = 0.5
"""Time between two reports of updates; the last update is never left out."""
PING_SECONDS: Final = 30.0
"""Time without an update after which a server must show that it still answers."""
_UNSUBSCRIBE_SECONDS: Final = 2.0
"""Time to unsubscribe: the end of a call waits for it."""

_CURSOR_CHARS: Final = 4_096
"""Maximum length of a pagination cursor. Every cursor is remembered and sent back: at most 200 pages of them,
less than a megabyte."""
_VERSION_ERRORS: Final = frozenset({METHOD_NOT_FOUND, UNSUPPORTED_VERSION, INVALID_PARAMS})


class McpClient:
    """Client session with one server over a transport."""

    def __init__(
        self, transport: Transport, protocol: str = "", questions: "Elicitations | None" = None
    ) -> None:
        """`protocol` is the server's protocol version, if it is known.

        `questions` handles elicitation; without an answerer no elicitation capability is declared.
        """
        self._transport = transport
        self._questions = questions
        self._is_answered = questions is not None and questions.has_answerer
        # Least privilege: a server must not learn of a capability that nobody serves.
        self._capabilities: dict[str, Any] = {"elicitation": {}} if self._is_answered else {}
        """Declared client capabilities: elicitation in form mode only, neither sampling nor roots."""
        self._version = ""
        self._protocol = protocol
        self._schemas: dict[str, Any] = {}
        """Input schemas by tool name, for arguments mirrored into headers."""
        self.asked = ""
        """Method of the last request, to say what a server did not answer."""
        self.server: dict[str, str] = {}
        """`serverInfo`: name and version, sanitized. Unauthenticated, so nothing is decided by it."""

    @property
    def is_alive(self) -> bool:
        """Whether the connection is usable."""
        return self._transport.is_alive

    @property
    def last_words(self) -> str:
        """The end of its process's stderr; empty over HTTP."""
        return str(getattr(self._transport, "last_words", ""))

    def set_active(self, *, is_active: bool) -> None:
        """Tell the transport whether a call is active."""
        self._transport.set_active(is_active=is_active)

    async def suspend(self) -> None:
        """Suspend the server process between calls. Raises SandboxBroken."""
        await self._transport.suspend()

    async def resume(self) -> None:
        """Resume the server process. Raises SandboxBroken."""
        await self._transport.resume()

    async def close(self) -> None:
        """Close the session."""
        if self._questions is not None:
            self._questions.close()
        await self._transport.close()

    def discard(self) -> None:
        """Discard it without an event loop."""
        self._transport.discard()

    def take_list_changed(self) -> frozenset[str]:
        """Which of `tools`, `prompts` and `resources` were notified as `list_changed` since the last time."""
        return self._transport.take_list_changed()

    async def begin(self) -> None:
        """Negotiate the protocol version. Raises `UpstreamFailed`."""
        if self._protocol in MODERN_VERSIONS:
            await self._begin_modern()
            return
        wanted = {
            "protocolVersion": self._protocol or HANDSHAKE_VERSIONS[-1],
            "capabilities": self._capabilities,
            "clientInfo": _client_info(),
        }
        self.asked = "initialize"
        try:
            result = await self._transport.request("initialize", wanted)
        except UpstreamError as error:
            # No fallback for a pinned version: a server must not downgrade what a person accepted.
            if error.code not in _VERSION_ERRORS or self._protocol:
                raise
            await self._begin_modern()
            return
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if version not in HANDSHAKE_VERSIONS:
            raise UpstreamFailed("it speaks an unsupported version of MCP")
        self._version = str(version)
        self.server = _server_info(result.get("serverInfo"))
        self._transport.settle(self._version)
        await self._transport.notify("notifications/initialized")

    async def _begin_modern(self) -> None:
        self._version = MODERN_VERSIONS[-1]
        self._transport.settle(self._version)
        try:
            result = await self._request("server/discover", {})
        except UpstreamError as error:
            if not _supports_version(error, self._version):
                raise
            result = await self._request("server/discover", {})
        meta = result.get("_meta")
        self.server = _server_info(meta.get(SERVER_KEY) if isinstance(meta, dict) else None) or _server_info(
            result.get("serverInfo")
        )

    async def list_entries(self, of: ListName) -> list[Entry]:
        """All entries of a list; raises `UpstreamFailed` for an endless list.

        A server that does not know the method has none.
        """
        found: list[Entry] = []
        size, most = 0, ENTRIES[of]
        seen: set[str] = set()
        cursor: str | None = None
        method, key = _LISTS[of]
        for _ in range(PAGES):
            try:
                page = await self._request(method, {} if cursor is None else {"cursor": cursor})
            except UpstreamError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                return []
            entries = page.get(key)
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise UpstreamFailed(f"its list of {of} is not a list of objects")
            # Counted over all pages: each page alone may be small.
            size += len(encode(entries))
            if size > LIST_BYTES:
                raise UpstreamFailed(f"its list of {of} has more than {LIST_BYTES} bytes")
            found += entries
            cursor = page.get("nextCursor")
            if len(found) > most:
                break
            if cursor is None:
                if of == "tools":
                    self._schemas = {str(tool.get("name")): tool.get("inputSchema") for tool in found}
                return found
            # A repeated cursor is an endless loop.
            if not isinstance(cursor, str) or len(cursor) > _CURSOR_CHARS or cursor in seen:
                raise UpstreamFailed(f"its list of {of} repeats a cursor, or has an invalid one")
            seen.add(cursor)
        raise UpstreamFailed(f"its list of {of} has more than {most} entries or {PAGES} pages")

    async def call(
        self,
        method: str,
        params: dict[str, Any],
        call: "ActiveCall | None" = None,
        on_progress: Progress | None = None,
    ) -> dict[str, Any]:
        """A call by its method; raises `UpstreamFailed`. The server may elicit only while it is active."""
        # Opened before the call, since the server may ask as soon as it has the request.
        if self._is_answered:
            await self._transport.listen()
        # Outside of this block every question is refused.
        heard = self._questions.during_call(call) if self._questions and call else nullcontext()
        with heard:
            return await self._call_with_input(method, params, on_progress)

    async def watch(self, uri: str, call: "ActiveCall", on_update: Progress) -> NoReturn:
        """Subscribe to a resource and report its updates as progress, beginning with 0 for the subscription.

        Ends by cancellation only; raises `UpstreamFailed`.
        """
        updated, count = asyncio.Event(), 0
        await self._transport.listen()  # updates belong to no request
        with self._transport.watching(uri, updated.set):
            await self.call("resources/subscribe", {"uri": uri}, call)
            try:
                while True:
                    on_update(count, None, "")
                    await asyncio.sleep(UPDATE_SECONDS)
                    while not updated.is_set():
                        await self._wait_or_ping(updated)
                    updated.clear()
                    count += 1
            finally:
                await self._unsubscribe(uri)

    async def _unsubscribe(self, uri: str) -> None:
        """Best effort: updates that nobody watches are dropped anyway."""
        with suppress(UpstreamFailed, TimeoutError):
            async with asyncio.timeout(_UNSUBSCRIBE_SECONDS):
                await self._request("resources/unsubscribe", {"uri": uri})

    async def _wait_or_ping(self, updated: asyncio.Event) -> None:
        """Wait for an update, or ask whether the server still answers."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await updated.wait()
        except TimeoutError:
            await self._request("ping", {})

    async def _call_with_input(
        self, method: str, params: dict[str, Any], on_progress: Progress | None
    ) -> dict[str, Any]:
        """Make a call and answer `input_required` results; most requests are declined (POL-4)."""
        more: dict[str, Any] = {}
        for _ in range(ROUNDS):
            result = await self._request(method, {**params, **more}, on_progress)
            is_modern = self._version in MODERN_VERSIONS
            responses = await input_responses(result, self._questions) if is_modern else None
            if responses is None:
                return result
            more = responses
        raise UpstreamFailed(f"it asked for input {ROUNDS} times and never answered", is_over=False)

    async def _request(
        self, method: str, params: dict[str, Any], on_progress: Progress | None = None
    ) -> dict[str, Any]:
        """Send a request, with per-request metadata if the protocol version has no handshake."""
        self.asked = method
        headers: dict[str, str] = {}
        if self._version in MODERN_VERSIONS:
            meta = {
                VERSION_KEY: self._version,
                CAPABILITIES_KEY: self._capabilities,
                CLIENT_KEY: _client_info(),
            }
            params = {**params, "_meta": meta}
            schema = self._schemas.get(str(params.get("name"))) if method == "tools/call" else None
            headers = mirrored_headers(schema, params["arguments"]) if isinstance(schema, dict) else {}
        result = await self._transport.request(method, params, on_progress, headers)
        if not isinstance(result, dict):
            raise UpstreamFailed(f"its answer to {method} is not an object")
        return result


def _supports_version(error: UpstreamError, version: str) -> bool:
    """Whether a server rejected a version that it lists as supported; the request is retried once."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return error.code == UNSUPPORTED_VERSION and isinstance(supported, list) and version in supported


def _client_info() -> dict[str, str]:
    from toolkeep import __version__

    return {"name": "toolkeep", "version": __version__}


def _server_info(result: Any) -> dict[str, str]:
    if not isinstance(result, dict):
        return {}
    return {
        key: excerpt(value, 100) for key in ("name", "version") if isinstance(value := result.get(key), str)
    }


_STATE_CHARS: Final = 64 * 1024
_INPUT_REQUESTS: Final = 20
"""Questions that one answer may put: each may have to be read by a person."""
_ELICITATION: Final = "elicitation/create"
_DECLINED: Final[dict[str, dict[str, Any]]] = {
    _ELICITATION: {"action": "decline"},
    "roots/list": {"roots": []},
}


async def input_responses(
    result: dict[str, Any], questions: "Elicitations | None" = None
) -> dict[str, Any] | None:
    """Parameters to add when the call is repeated after `input_required`; None for other results.

    Raises `UpstreamFailed`.
    """
    if result.get("resultType") != "input_required":
        return None
    requests, state = result.get("inputRequests"), result.get("requestState")
    if requests is None and state is None:
        raise UpstreamFailed("it requires input without saying which", is_over=False)
    if not isinstance(requests, dict | None) or len(requests or ()) > _INPUT_REQUESTS:
        raise UpstreamFailed("it requires input in an invalid form", is_over=False)
    # Opaque to us and sent back verbatim; bounded, because the server could grow it with every round.
    if not isinstance(state, str | None) or len(state or "") > _STATE_CHARS:
        raise UpstreamFailed("it sent a state that is not a string, or is too long", is_over=False)
    more: dict[str, Any] = {} if state is None else {"requestState": state}
    if requests is not None:
        no = {name: _declined(request, questions) for name, request in requests.items()}
        asked = {name: request for name, request in requests.items() if request["method"] == _ELICITATION}
        yes = (
            {name: await questions.answer(request.get("params")) for name, request in asked.items()}
            if questions
            else {}
        )
        more["inputResponses"] = {**no, **yes}
    return more


def _declined(request: Any, questions: "Elicitations | None") -> dict[str, Any]:
    """Decline a request for input that is no elicitation: roots are empty, sampling is refused."""
    method = request.get("method") if isinstance(request, dict) else None
    if questions is not None and method != _ELICITATION:
        questions.refuse(str(method), request.get("params") if isinstance(request, dict) else None)
    if method not in _DECLINED:
        raise UpstreamFailed("it requires sampling, which toolkeep does not offer", is_over=False)
    return _DECLINED[method]


def value_of(result: dict[str, Any], *, wants_structure: bool) -> Any:
    """The value of a `tools/call` result; `isError` is a failed call.

    It is the structured content if the tool declares an output schema, else its text, or all content blocks.
    """
    if result.get("resultType", "complete") != "complete":
        raise UpstreamFailed(
            "it requires more input before it answers, which is not possible here", is_over=False
        )
    content = result.get("content", [])
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise UpstreamFailed("its answer has no list of content", is_over=False)
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    words = "\n".join(text for text in texts if isinstance(text, str))
    if result.get("isError") is True:
        raise ToolFailed(words or "the server reported a failure without a reason")
    structured = result.get("structuredContent")
    # Without a declared output schema nothing checks structured content, so the text is preferred.
    if structured is not None and (wants_structure or not content):
        return structured
    if wants_structure:
        raise UpstreamFailed("its answer lacks the structured content that the tool promises", is_over=False)
    return words if len(texts) == len(content) else content
