"""The client behind the call that runs now, for tools and prompts that know of MCP.

A tool of the host's own code asks `current_client()`: None means that it was not called over MCP. What it
asks of the client reaches the client in either era. Time that the client takes is time of the tool.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from toolkeep.definitions.context import ToolFailed
from toolkeep.wire.era import LOG_LEVELS
from toolkeep.wire.messages import INVALID_PARAMS, MISSING_CAPABILITY, ProtocolError, notification

if TYPE_CHECKING:
    from toolkeep.mcp.connection import Connection, Emit

Requests = dict[str, dict[str, Any]]
"""Requests to the client, each `{"method": …, "params": …}`, by a name of the asker's own."""

_CAPABILITY = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class Asks(Protocol):
    """How a client is asked: at once in the older era, by an answer of its own in the newer."""

    async def ask(self, requests: Requests) -> dict[str, Any]:
        """The answers, by the same names."""

    def start_task(self) -> bool:
        """Go on as a task."""

    def person_is_asked(self) -> None:
        """The call waits in the inbox."""


class _Nobody:
    """There is nobody to ask any more."""

    async def ask(self, requests: Requests) -> dict[str, Any]:  # noqa: ARG002 -- whatever it is
        raise ToolFailed("The call is over; its client cannot be asked")

    def start_task(self) -> bool:
        return False

    def person_is_asked(self) -> None:
        pass


class AnsweredWithError(ToolFailed):
    """A tool that answers with a protocol error instead of a result."""


class Client:
    """One client, while one request of it is handled."""

    def __init__(self, connection: "Connection", emit: "Emit", asks: Asks) -> None:
        self._connection = connection
        self._asks: Asks = asks
        self.emit = emit
        self.error: ProtocolError | None = None
        """What the request is answered with, whatever else comes of it."""

    def let_go(self) -> None:
        """The work for the request has ended, and goes with its result: nobody who asks holds it any more."""
        self._asks = _NOBODY

    @property
    def connection(self) -> "Connection":
        """The connection that it speaks over."""
        return self._connection

    @property
    def may_answer(self) -> bool:
        """Whether the operator lets this client say that a call may be made."""
        return self._connection.may_answer

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the client says that it can do."""
        return self._connection.capabilities

    def can(self, *methods: str) -> bool:
        """Whether the client takes such requests."""
        return all(_CAPABILITY.get(method) in self.capabilities for method in methods)

    def require(self, *methods: str) -> None:
        """Answer the request with an error if the client does not take such requests."""
        missing: dict[str, Any] = {
            _CAPABILITY[method]: {} for method in methods if _CAPABILITY[method] not in self.capabilities
        }
        if missing:
            data = {"requiredCapabilities": missing}
            raise self.fail(MISSING_CAPABILITY, f"The client does not offer {', '.join(missing)}", data)

    def fail(self, code: int, message: str, data: Any = None) -> AnsweredWithError:
        """The exception to raise where a request is to be answered with a protocol error."""
        self.error = ProtocolError(code, message, data)
        return AnsweredWithError(message)

    async def ask(self, requests: Requests) -> dict[str, Any]:
        """Ask several things at once; the answers by the same names."""
        self.require(*(one["method"] for one in requests.values()))
        try:
            answers = await self._asks.ask(requests)
        except ProtocolError as refused:
            raise ToolFailed(f"The client did not answer: {refused.message}") from refused
        for name, one in requests.items():
            if not fits(one["method"], answers.get(name)):
                raise self.fail(INVALID_PARAMS, f"The answer to {name!r} is none to {one['method']}")
        return answers

    async def elicit(self, message: str, schema: dict[str, Any], *, name: str = "input") -> dict[str, Any]:
        """Ask the person at the client; `action` is accept, decline or cancel, `content` what was entered."""
        params = {"message": message, "requestedSchema": schema}
        answers = await self.ask({name: {"method": "elicitation/create", "params": params}})
        answer: dict[str, Any] = answers[name]
        return answer

    async def sample(
        self, messages: list[dict[str, Any]], *, max_tokens: int, name: str = "sample"
    ) -> dict[str, Any]:
        """Ask the model of the client."""
        params = {"messages": messages, "maxTokens": max_tokens}
        answers = await self.ask({name: {"method": "sampling/createMessage", "params": params}})
        answer: dict[str, Any] = answers[name]
        return answer

    async def roots(self, *, name: str = "roots") -> list[dict[str, Any]]:
        """The folders that the client works in."""
        answers = await self.ask({name: {"method": "roots/list", "params": {}}})
        roots: list[dict[str, Any]] = answers[name]["roots"]
        return roots

    def start_task(self) -> bool:
        """Let the client go on while this runs; False where it has to wait for the result."""
        return self._asks.start_task()

    def person_is_asked(self) -> None:
        """The call waits in the inbox; a client that knows tasks need not wait with it."""
        self._asks.person_is_asked()

    def log(self, level: str, data: Any, *, logger: str = "") -> None:
        """Tell the client, if it wants to hear of that level."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not one of {', '.join(LOG_LEVELS)}")
        if self._connection.hears(level):
            named = {"logger": logger} if logger else {}
            self.emit(notification("notifications/message", {"level": level, **named, "data": data}))


def fits(method: str, answer: object) -> bool:
    """Whether an answer has the shape that answers to such a request have."""
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
    """The client whose request is handled here."""
    return _current.get()


def set_current(client: Client) -> Any:
    """Make it the client of everything that begins in this context; `forget_current` takes it back."""
    return _current.set(client)


def forget_current(token: Any) -> None:
    """Undo `set_current`."""
    _current.reset(token)
