"""The MCP client of the current call, for tools and prompts that use MCP features.

In-process tools call `current_client()`; None means that the call did not come over MCP. Elicitation,
sampling and roots work in every protocol version. Time that the client takes counts against the tool's
timeout.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.mcp_protocol.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY, ProtocolError, notification
from toolkeep.mcp_protocol.versions import LOG_LEVELS

if TYPE_CHECKING:
    from toolkeep.approval.question import Question
    from toolkeep.mcp_server.approval_notices import ApprovalNotices
    from toolkeep.mcp_server.connection import Connection, Emit
    from toolkeep.mcp_server.progress_notifications import Progress

Requests = dict[str, dict[str, Any]]
"""Requests to the client, each `{"method": …, "params": …}`, keyed by a name that the caller chooses."""

_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class Asks(Protocol):
    """Sends requests to the client: directly in handshake versions, by `input_required` in 2026-07-28."""

    async def ask(self, requests: Requests) -> dict[str, Any]:
        """Return the answers, keyed by the same names."""

    def start_task(self) -> bool:
        """Continue as an MCP task; False if the client does not support tasks."""

    def person_is_asked(self, notice: Callable[[], str]) -> None:
        """Note that the call waits for approval in the inbox, and the words for it."""


class _Nobody:
    """Stands in once the request is over."""

    async def ask(self, requests: Requests) -> dict[str, Any]:  # noqa: ARG002 -- whatever it is
        raise ToolFailed("The call has ended, so its client cannot be asked")

    def start_task(self) -> bool:
        return False

    def person_is_asked(self, notice: Callable[[], str]) -> None:
        pass


OnText = Callable[[], "asyncio.Future[None] | None"]
"""Notes that text is shown; returns what to wait for before it is."""


def _has_failed(noted: "asyncio.Future[None]") -> bool:
    return noted.cancelled() or noted.exception() is not None


class AnsweredWithError(ToolFailed):
    """Raised by a tool to answer with a protocol error instead of a result."""


class Client:
    """The client of one request."""

    def __init__(
        self,
        connection: "Connection",
        emit: "Emit",
        asks: Asks,
        *,
        progress: "Progress | None" = None,
        notices: "ApprovalNotices | None" = None,
        on_text: OnText,
    ) -> None:
        """`on_text` is called before text of the work reaches the client other than as its result.

        What it returns is waited for.
        """
        self._on_text = on_text
        self._connection = connection
        self._asks: Asks = asks
        self._progress = progress
        self._notices = notices
        self.emit = emit
        self.error: ProtocolError | None = None
        """A protocol error that replaces the result."""

    def let_go(self) -> None:
        """Drop the reference to the finished work, which holds its result."""
        self._asks = _NOBODY

    @property
    def connection(self) -> "Connection":
        """The connection of the request."""
        return self._connection

    @property
    def may_answer(self) -> bool:
        """Whether the operator lets this client approve calls."""
        return self._connection.may_answer

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the client declared."""
        return self._connection.capabilities

    def can(self, *methods: str) -> bool:
        """Whether the client declared the capabilities for these methods."""
        return all(_CAPABILITY.get(method) in self.capabilities for method in methods)

    def require(self, *methods: str) -> None:
        """Answer the request with an error if the client lacks a capability."""
        missing: dict[str, Any] = {
            _CAPABILITY[method]: {} for method in methods if _CAPABILITY[method] not in self.capabilities
        }
        if missing:
            data = {"requiredCapabilities": missing}
            raise self.fail(MISSING_CAPABILITY, f"The client does not offer {', '.join(missing)}", data)

    def fail(self, code: int, message: str, data: Any = None) -> AnsweredWithError:
        """Make the exception that answers the request with a protocol error."""
        self.error = ProtocolError(code, message, data)
        return AnsweredWithError(message)

    async def ask(self, requests: Requests) -> dict[str, Any]:
        """Send several requests at once; the answers are keyed by the same names."""
        self.require(*(one["method"] for one in requests.values()))
        if (noted := self._on_text()) is not None:
            await noted
        return await self._ask(requests)

    async def _ask(self, requests: Requests) -> dict[str, Any]:
        try:
            answers = await self._asks.ask(requests)
        except ProtocolError as refused:
            raise ToolFailed(f"The client did not answer: {refused.message}") from refused
        for name, one in requests.items():
            # The client is not trusted: a tool that indexes a malformed answer would fail with an internal
            # error.
            if not fits(one["method"], answers.get(name)):
                raise self.fail(INVALID_PARAMS, f"{name!r} is not a valid response to {one['method']}")
        return answers

    async def elicit(self, message: str, schema: dict[str, Any], *, name: str = "input") -> dict[str, Any]:
        """Ask the user of the client; `action` is accept, decline or cancel, `content` the user's input."""
        params = {"message": message, "requestedSchema": schema}
        answers = await self.ask({name: {"method": "elicitation/create", "params": params}})
        answer: dict[str, Any] = answers[name]
        return answer

    async def sample(
        self, messages: list[dict[str, Any]], *, max_tokens: int, name: str = "sample"
    ) -> dict[str, Any]:
        """Request a completion from the client's model (`sampling/createMessage`)."""
        params = {"messages": messages, "maxTokens": max_tokens}
        answers = await self.ask({name: {"method": "sampling/createMessage", "params": params}})
        answer: dict[str, Any] = answers[name]
        return answer

    async def roots(self, *, name: str = "roots") -> list[dict[str, Any]]:
        """Request the client's root folders (`roots/list`)."""
        answers = await self.ask({name: {"method": "roots/list", "params": {}}})
        roots: list[dict[str, Any]] = answers[name]["roots"]
        return roots

    def start_task(self) -> bool:
        """Continue as a task and release the client; False if it has to wait for the result."""
        return self._asks.start_task()

    @property
    def is_over(self) -> bool:
        """Whether the request has ended."""
        return self._asks is _NOBODY

    def person_is_asked(self, question: "Question") -> None:
        """The call waits for a person: notify the client, which need not wait if it supports tasks."""
        self._asks.person_is_asked(self._notices.begin(self, question) if self._notices else str)

    def note(self, words: str) -> bool:
        """Send words as progress; False if the request asked for no progress."""
        return self._progress is not None and self._progress.note(words)

    def log(self, level: str, data: Any, *, logger: str = "") -> None:
        """Send a log message if the client subscribed to that level."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not one of {', '.join(LOG_LEVELS)}")
        if self._connection.hears(level):
            named = {"logger": logger} if logger else {}
            said = notification("notifications/message", {"level": level, **named, "data": data})
            if (noted := self._on_text()) is None:
                self.emit(said)
            else:
                noted.add_done_callback(lambda done: None if _has_failed(done) else self.emit(said))


async def ask_user(client: Client, message: str, schema: dict[str, Any], *, name: str) -> dict[str, Any]:
    """Ask the user as `Client.elicit` does, in words of the keep: they open no session."""
    client.require("elicitation/create")
    params = {"message": message, "requestedSchema": schema}
    request = {name: {"method": "elicitation/create", "params": params}}
    answer: dict[str, Any] = (await client._ask(request))[name]  # noqa: SLF001 -- of this module
    return answer


def fits(method: str, answer: object) -> bool:
    """Check the shape of an answer to such a request."""
    if not isinstance(answer, dict):
        return False
    if method == "elicitation/create":
        content = answer.get("content")
        is_known = answer.get("action") in ("accept", "decline", "cancel")
        return is_known and (content is None or isinstance(content, dict))
    if method == "sampling/createMessage":
        return "role" in answer and "content" in answer
    roots = answer.get("roots")
    return isinstance(roots, list) and all(isinstance(root, dict) for root in roots)


_NOBODY = _Nobody()
_current: ContextVar[Client | None] = ContextVar("toolkeep_mcp_client", default=None)


def current_client() -> Client | None:
    """Return the client whose request is being handled in this context."""
    return _current.get()


def set_current(client: Client) -> Any:
    """Set the client for everything started in this context; undo with `forget_current`."""
    return _current.set(client)


def forget_current(token: Any) -> None:
    """Undo `set_current`."""
    _current.reset(token)
