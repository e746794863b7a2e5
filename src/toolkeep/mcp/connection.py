"""What is known of one client: for as long as it is connected, or for one request of the newer era.

Everything in it is the client's own word, but for `agent`, which whoever serves the connection says (POL-8).
"""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolkeep.limits import MCP_ASKED, MCP_CLIENT_CHARS
from toolkeep.wire.era import CAPABILITIES_KEY, CLIENT_KEY, LOG_LEVELS, TASKS
from toolkeep.wire.messages import OVERLOADED, Id, Message, ProtocolError, request

if TYPE_CHECKING:
    from toolkeep.mcp.resuming import Streams

Emit = Callable[[bytes], None]
"""Hands one encoded message to the client; called in the thread of the loop."""


_ASKABLE = frozenset(("elicitation", "sampling", "roots", "extensions"))


class Connection:
    """One client."""

    __slots__ = (
        "_asked",
        "_numbers",
        "agent",
        "capabilities",
        "client_info",
        "emit",
        "is_modern",
        "log_level",
        "may_answer",
        "running",
        "session",
        "streams",
        "version",
        "watched",
    )

    def __init__(self, agent: str, version: str = "", *, is_modern: bool = False, session: str = "") -> None:
        self.agent = agent
        self.version = version
        self.is_modern = is_modern
        self.session = session
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] = {}
        self.log_level = ""
        """The lowest level that the client wants to hear of; empty where it wants none."""
        self.watched: set[str] = set()
        """The resources of which it wants to hear."""
        self.may_answer = False
        """Whether the operator lets the client say that a call may be made (POL-4)."""
        self.running: dict[Id, asyncio.Task[Any]] = {}
        self.emit: Emit | None = None
        """Where messages go that belong to no request; None where nobody listens."""
        self.streams: Streams | None = None
        """What is kept for a client that comes back; None where nothing is."""
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)

    @classmethod
    def of_request(cls, agent: str, version: str, meta: dict[str, Any], *, session: str = "") -> "Connection":
        """What a request of the newer era says of itself."""
        connection = cls(agent, version, is_modern=True, session=session)
        connection.introduce(meta.get(CAPABILITIES_KEY), meta.get(CLIENT_KEY))
        return connection

    def introduce(self, capabilities: object, client_info: object) -> None:
        """Note what the client says of itself."""
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.client_info = client_info if isinstance(client_info, dict) else {}

    @property
    def is_askable(self) -> bool:
        """Whether the client can be asked for anything, or knows tasks."""
        return not _ASKABLE.isdisjoint(self.capabilities)

    @property
    def has_tasks(self) -> bool:
        """Whether the client knows tasks."""
        extensions = self.capabilities.get("extensions")
        return self.is_modern and isinstance(extensions, dict) and TASKS in extensions

    @property
    def label(self) -> str:
        """What the client calls itself, for the record; never who it is."""
        said = "mcp"
        for key in ("name", "version"):
            part = self.client_info.get(key)
            if isinstance(part, str) and part:
                said = f"{said} {part}"
        return said[:MCP_CLIENT_CHARS]

    def hears(self, level: str) -> bool:
        """Whether the client wants messages of a level."""
        return self.log_level != "" and LOG_LEVELS.index(level) >= LOG_LEVELS.index(self.log_level)

    # --- requests of ours ------------------------------------------------------------------------

    async def ask(self, method: str, params: dict[str, Any], emit: Emit) -> Any:
        """Ask the client, in the older era; raises `ProtocolError` with what it says instead."""
        if len(self._asked) >= MCP_ASKED:
            raise ProtocolError(OVERLOADED, "The client has too many open questions")
        # Not to be guessed: an answer is taken from whoever knows the session.
        asked_id = f"{next(self._numbers)}-{secrets.token_hex(8)}"
        waiting = self._asked[asked_id] = asyncio.get_running_loop().create_future()
        try:
            emit(request(asked_id, method, params))
            return await waiting
        finally:
            del self._asked[asked_id]

    def answered(self, message: Message) -> bool:
        """Take the client's answer to a request of ours; whether there was one."""
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
        """End what runs for a request, if it still does."""
        task = self.running.get(message_id)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """Nobody is there any more: what runs for it ends."""
        self.emit = None
        if self.streams is not None:
            self.streams.close()
        for task in list(self.running.values()):
            task.cancel()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.cancel()
