"""Transport abstraction of the MCP client, and the handling of inbound messages. The server is hostile.

A `Transport` carries JSON-RPC requests and responses. `InboundMessages` handles everything else:
notifications are counted, progress is forwarded, server requests are declined unless an answerer handles
elicitation. A response to an unknown request id ends the session.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolkeep.execution.redact import redacted
from toolkeep.mcp_protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    Id,
    Message,
    ProtocolError,
    Unreadable,
    answer,
    encode,
    read_message,
    refusal,
)
from toolkeep.sandbox.frames import FrameRefused, check_limits
from toolkeep.text.display import excerpt

if TYPE_CHECKING:
    from toolkeep.mcp_client.elicitation import Elicitations
    from toolkeep.sandbox.persistent_process import ProcessExited

NOTIFICATIONS: Final = 2_000
"""Maximum number of notifications between two responses; a tool may report progress a thousand times."""

_TEXT_CHARS: Final = 300
"""Characters of a server's error or progress message that are passed on: a sentence or two."""
_LARGEST: Final = 1e15
"""Bound of progress numbers: below 2**53, so exact as a double."""
Progress = Callable[[float, float | None, str], None]
Say = Callable[[bytes], Awaitable[None]]


class UpstreamFailed(Exception):
    """The upstream gave no usable response; `reason` is our text, safe to show to a model."""

    def __init__(self, reason: str, *, is_over: bool = True, is_slow: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_words = ""
        """The end of the process's stderr: for the operator, never for a model."""
        self.exited: ProcessExited | None = None
        """How its process exited, if it did."""
        self.is_over = is_over
        """Whether the session is dead; the next call reconnects."""
        self.is_slow = is_slow
        """Whether it took longer to start than it may."""


class UpstreamError(UpstreamFailed):
    """A JSON-RPC error response, with the server's own message."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"it answered with error {code}: {message}", is_over=False)
        self.code = code
        self.data = data


class Transport(Protocol):
    """Carries JSON-RPC messages to one server."""

    @property
    def is_alive(self) -> bool:
        """Whether the connection is usable."""

    def take_list_changed(self) -> frozenset[str]:
        """Which of `tools`, `prompts` and `resources` were notified as `list_changed` since the last time."""

    def watching(self, uri: str, heard: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `heard` for each `resources/updated` of a URI meanwhile."""

    def settle(self, version: str) -> None:
        """Use the negotiated protocol version from here on."""

    async def listen(self) -> None:
        """Start receiving server-initiated messages, if the transport needs a stream for them."""

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return its result; raises `UpstreamFailed`. May be cancelled.

        `mirrored` are headers that repeat arguments; ignored without headers.
        """

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""

    def set_active(self, *, is_active: bool) -> None:
        """Tell whether a call is active."""

    async def suspend(self) -> None:
        """Suspend the server process between calls. Raises SandboxBroken."""

    async def resume(self) -> None:
        """Resume the server process. Raises SandboxBroken."""

    async def close(self) -> None:
        """Close the connection."""

    def discard(self) -> None:
        """Discard it without an event loop."""


def read(raw: bytes, secrets: Iterable[str] = ()) -> Message:
    """Parse one message with `secrets` redacted; `UpstreamFailed` if it is malformed or too large."""
    try:
        # Counts values on the raw bytes: parsing a crafted message would take the time that the bound is to
        # prevent.
        check_limits(raw)
        return _without_secrets(read_message(raw), raw, secrets)
    except FrameRefused as refused:
        raise UpstreamFailed(f"it sent an invalid message: {refused}") from None
    except Unreadable:
        what = "an empty line" if not raw.strip() else "something that is not a JSON-RPC message"
        raise UpstreamFailed(f"it sent {what}") from None


def _without_secrets(message: Message, raw: bytes, secrets: Iterable[str]) -> Message:
    """Redact secrets in a message: a server that echoes its own credential must not show it to the model."""
    held = [message.params, message.result, message.error]
    params, result, error = shown = redacted(held, secrets, raw)
    return message if shown is held else Message(message.id, message.method, params, None, result, error)


def answered(message: Message) -> Any:
    """The result of a response; raises `UpstreamError` for an error response."""
    if message.error is None:
        return message.result
    error = message.error if isinstance(message.error, dict) else {}
    code, text = error.get("code"), error.get("message")
    said = excerpt(text, _TEXT_CHARS) if isinstance(text, str) else "without a word"
    # The message is the server's: truncated and escaped, since a model and logs will see it.
    raise UpstreamError(code if type(code) is int else 0, said, error.get("data"))


_LIST_CHANGES: Final = {
    f"notifications/{name}/list_changed": name for name in ("tools", "prompts", "resources")
}


class InboundMessages:
    """Handles server-initiated messages: counts, forwards or declines them."""

    def __init__(self, questions: "Elicitations | None", say: Say) -> None:
        """`questions` handles and audits elicitation; `say` sends the responses."""
        self._questions = questions
        self._say = say
        self._count = 0
        self._listeners: dict[int, Progress] = {}
        self._changed: set[str] = set()
        self._watched: dict[str, list[Callable[[], None]]] = {}

    @contextmanager
    def watching(self, uri: str, heard: Callable[[], None]) -> Iterator[None]:
        """Call `heard` for each `resources/updated` of a URI meanwhile."""
        self._watched.setdefault(uri, []).append(heard)
        try:
            yield
        finally:
            self._watched[uri].remove(heard)

    def take_list_changed(self) -> frozenset[str]:
        """Which of `tools`, `prompts` and `resources` were notified as `list_changed` since the last time."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def answer(self) -> None:
        """A response arrived: reset the notification count."""
        self._count = 0

    def listen(self, token: int, listener: Progress | None) -> None:
        """Forward progress of one request."""
        if listener is not None:
            self._listeners[token] = listener

    def forget(self, token: int) -> None:
        """Stop forwarding progress of a request."""
        self._listeners.pop(token, None)

    def take(self, message: Message) -> bytes | None:
        """Handle a request or notification; returns the response to send, if any. Raises `UpstreamFailed`."""
        self._count += 1
        # Flood protection: a server could keep the event loop busy without ever answering.
        if self._count > NOTIFICATIONS:
            raise UpstreamFailed(f"it sent more than {NOTIFICATIONS} unsolicited messages")
        if message.id is not None:
            if message.method == "ping":
                return answer(message.id, b"{}")
            if message.method == "elicitation/create":
                return self._elicited(message.id, message.params)
            if self._questions is not None:
                self._questions.refuse(message.method, message.params)
            # Sampling and roots would let a server use the host's model, or learn its folders.
            return refusal(message.id, ProtocolError(METHOD_NOT_FOUND, "Method not found"))
        if message.method == "notifications/progress":
            self._progress(message.params)
        elif message.method == "notifications/resources/updated":
            # Only for what was subscribed to: the server must not say of other resources that they exist.
            for heard in self._watched.get(str(message.params.get("uri")), ()):
                heard()
        elif (changed := _LIST_CHANGES.get(message.method)) is not None:
            self._changed.add(changed)
        return None

    def _elicited(self, number: Id, params: dict[str, Any]) -> bytes | None:
        """Hand an elicitation to the answerer; without one it is declined (POL-4)."""

        async def reply(result: dict[str, Any]) -> None:
            await self._say(answer(number, encode(result)))

        if self._questions is not None and self._questions.take(params, reply):
            return None
        return answer(number, b'{"action":"decline"}')

    def _progress(self, params: dict[str, Any]) -> None:
        token, done, total = params.get("progressToken"), params.get("progress"), params.get("total")
        # Only tokens of active requests: a server must not report progress for another call.
        listener = self._listeners.get(token) if type(token) is int else None
        if listener is None or done is None or not _is_number(done):
            return
        text = params.get("message")
        shown = excerpt(text, _TEXT_CHARS) if isinstance(text, str) else ""
        listener(float(done), float(total) if total is not None and _is_number(total) else None, shown)


def _is_number(value: Any) -> bool:
    # The bound also excludes NaN and infinity, which JSON consumers downstream cannot represent.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST
