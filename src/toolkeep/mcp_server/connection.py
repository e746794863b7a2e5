"""State of one client: for the life of a connection or, in 2026-07-28, for one request.

Everything in it is the client's own claim, except `agent`, which the transport sets (POL-8). No decision may
rest on `client_info` or `capabilities`.
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolkeep.limits import MCP_ASKED, MCP_CLIENT_CHARS
from toolkeep.mcp_protocol.jsonrpc import OVERLOADED, Id, Message, ProtocolError, request
from toolkeep.mcp_protocol.versions import CAPABILITIES_KEY, CLIENT_KEY, LOG_LEVELS, TASKS

if TYPE_CHECKING:
    from toolkeep.mcp_server.resumable_streams import Streams

Emit = Callable[[bytes], None]
"""Sends one encoded message to the client; called in the thread of the event loop."""


_ASKABLE = frozenset(("elicitation", "sampling", "roots", "extensions"))


class Connection:
    """One client connection."""

    __slots__ = (
        "_asked",
        "_numbers",
        "_response",
        "agent",
        "caller",
        "capabilities",
        "client_info",
        "emit",
        "form",
        "home",
        "is_modern",
        "log_level",
        "may_answer",
        "running",
        "session",
        "streams",
        "version",
        "watched",
    )

    def __init__(
        self,
        agent: str,
        version: str = "",
        *,
        is_modern: bool = False,
        session: str = "",
        caller: str = "http",
    ) -> None:
        self.agent = agent
        self.caller = caller
        """To whom the state of flow belongs: the client process, or over HTTP the agent (FLO-1)."""
        self.version = version
        self.is_modern = is_modern
        self.session = session
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] = {}
        self.log_level = ""
        """The lowest log level that the client subscribed to; empty for none."""
        self.watched: set[str] = set()
        """URIs of subscribed resources."""
        self.may_answer = False
        """Whether the operator lets the client approve calls (POL-4)."""
        self.running: dict[Id, asyncio.Task[Any]] = {}
        self.emit: Emit | None = None
        """Sends messages that belong to no request; None while no stream is open."""
        self.streams: Streams | None = None
        """Replay buffers for resumed streams; None without a session."""
        self.home = ""
        """The server that asks, in ids of its requests: an answer may reach another one."""
        self.form: Any = None
        """The approval form that more calls may join, if one is about to be sent (`client_approvals.py`)."""
        self._response = ""
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)

    @classmethod
    def of_request(cls, agent: str, version: str, meta: dict[str, Any], *, session: str = "") -> "Connection":
        """Build the state from the `_meta` of a self-contained request (2026-07-28)."""
        connection = cls(agent, version, is_modern=True, session=session)
        connection.introduce(meta.get(CAPABILITIES_KEY), meta.get(CLIENT_KEY))
        return connection

    def introduce(self, capabilities: object, client_info: object) -> None:
        """Store the capabilities and the client info that the client declares."""
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.client_info = client_info if isinstance(client_info, dict) else {}

    @property
    def is_askable(self) -> bool:
        """Whether the client accepts requests, or supports tasks."""
        return not _ASKABLE.isdisjoint(self.capabilities)

    @property
    def has_tasks(self) -> bool:
        """Whether the client supports tasks."""
        extensions = self.capabilities.get("extensions")
        return self.is_modern and isinstance(extensions, dict) and TASKS in extensions

    @property
    def label(self) -> str:
        """The name and version that the client declares, for the audit record; not an identity."""
        said = "mcp"
        for key in ("name", "version"):
            part = self.client_info.get(key)
            if isinstance(part, str) and part:
                said = f"{said} {part}"
        # Truncated: the client controls it, and every record of its calls would carry it.
        return said[:MCP_CLIENT_CHARS]

    @property
    def response(self) -> str:
        """An id for the model's response that a call is part of.

        MCP names none. Calls of one connection that run at the same time count as one response.
        """
        own = asyncio.current_task()
        if not self._response or all(task is own for task in self.running.values()):
            self._response = secrets.token_hex(8)
        return self._response

    def hears(self, level: str) -> bool:
        """Whether the client subscribed to log messages of a level."""
        return self.log_level != "" and LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.log_level)

    # --- requests of ours ------------------------------------------------------------------------

    async def ask(self, method: str, params: dict[str, Any], emit: Emit) -> Any:
        """Send a request to the client (handshake versions); raises `ProtocolError` with its error."""
        if len(self._asked) >= MCP_ASKED:
            raise ProtocolError(OVERLOADED, "The client has too many open questions")
        # Random: any holder of the session may post an answer, so a predictable id would let one of them
        # answer a question that was put to another.
        asked_id = f"{next(self._numbers)}-{secrets.token_hex(8)}"
        if self.home:
            asked_id = f"{asked_id}-{self.home}"
        waiting = self._asked[asked_id] = asyncio.get_running_loop().create_future()
        try:
            emit(request(asked_id, method, params))
            return await waiting
        finally:
            del self._asked[asked_id]

    def answered(self, message: Message) -> bool:
        """Take the client's response to a request of ours; False if none is pending."""
        waiting = self._asked.get(message.id) if isinstance(message.id, str) else None
        if waiting is None or waiting.done():
            return False
        if message.error is not None:
            said = message.error if isinstance(message.error, dict) else {}
            text, code = said.get("message"), said.get("code")
            error = ProtocolError(
                code if type(code) is int else OVERLOADED,
                text if isinstance(text, str) else "The client refused",
            )
            waiting.set_exception(error)
        else:
            waiting.set_result(message.result)
        return True

    def cancel(self, message_id: Id) -> None:
        """Cancel the work of a request, if it still runs."""
        task = self.running.get(message_id)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Cancel everything that runs for the client."""
        self.emit = None
        if self.streams is not None:
            self.streams.close()
        for task in list(self.running.values()):
            task.cancel()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.cancel()
