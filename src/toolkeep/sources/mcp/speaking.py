"""What is said between us and one MCP server, whatever carries it; everything from the server is hostile.

A `Speaker` carries requests there and answers back. `Heard` judges what comes besides: notifications are
counted, progress is handed on, what the server asks of us is declined or refused unless somebody answers its
questions, and an answer to a request that nobody made ends the conversation.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolkeep.execution.hiding import hidden
from toolkeep.sandbox.frames import FrameRefused, weigh
from toolkeep.wire.messages import (
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
from toolkeep.wording import excerpt

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Questions

NOTIFICATIONS: Final = 2_000
"""That a server may send between two answers; a tool may tell progress a thousand times."""

_TEXT_CHARS: Final = 300
_LARGEST: Final = 1e15
Progress = Callable[[float, float | None, str], None]
Say = Callable[[bytes], Awaitable[None]]


class UpstreamFailed(Exception):
    """A server gave no usable answer; the reason is for a model, in words of ours."""

    def __init__(self, reason: str, *, is_over: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_words = ""
        """The end of what its program wrote to its standard error: for an operator, and not for a model."""
        self.is_over = is_over
        """Whether nothing more can be said to it; the next call begins anew."""


class UpstreamError(UpstreamFailed):
    """A server answered a request with an error, in words of its own."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"it answered with error {code}: {message}", is_over=False)
        self.code = code
        self.data = data


class Speaker(Protocol):
    """Carries what is said to one server."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""

    def take_change(self) -> bool:
        """Whether the server said since the last time that its tools are others by now."""

    def settle(self, version: str) -> None:
        """The version that both sides speak from here on."""

    async def listen(self) -> None:
        """Hear from here on what the server says besides answers, where that takes something."""

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        on_progress: Progress | None = None,
        mirrored: Mapping[str, str] | None = None,
    ) -> Any:
        """The result of a request; raises `UpstreamFailed`. May be cancelled.

        `mirrored` are headers that repeat arguments, where there are headers.
        """

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell it something that it does not answer."""

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now."""

    async def suspend(self) -> None:
        """Stop its program between calls. Raises SandboxBroken."""

    async def resume(self) -> None:
        """Let its program go on. Raises SandboxBroken."""

    async def close(self) -> None:
        """End it."""

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""


def read(raw: bytes, secrets: Iterable[str] = ()) -> Message:
    """One message of a server, `secrets` hidden; `UpstreamFailed` where it is none, or too much to read."""
    try:
        weigh(raw)
        return _without_secrets(read_message(raw), raw, secrets)
    except FrameRefused as refused:
        raise UpstreamFailed(f"it sent a message that is not read: {refused}") from None
    except Unreadable:
        what = "an empty line" if not raw.strip() else "what is no JSON-RPC message"
        raise UpstreamFailed(f"it sent {what}") from None


def _without_secrets(message: Message, raw: bytes, secrets: Iterable[str]) -> Message:
    """The message that `raw` holds, with each of these secrets hidden."""
    held = [message.params, message.result, message.error]
    params, result, error = shown = hidden(held, secrets, raw)
    return message if shown is held else Message(message.id, message.method, params, None, result, error)


def answered(message: Message) -> Any:
    """The result that an answer holds; raises `UpstreamError` where it is an error."""
    if message.error is None:
        return message.result
    error = message.error if isinstance(message.error, dict) else {}
    code, text = error.get("code"), error.get("message")
    said = excerpt(text, _TEXT_CHARS) if isinstance(text, str) else "without a word"
    raise UpstreamError(code if type(code) is int else 0, said, error.get("data"))


class Heard:
    """Counts and judges what a server says without being asked."""

    def __init__(self, questions: "Questions | None", say: Say) -> None:
        """`questions` may be put to somebody, and are told of; `say` carries the answers."""
        self._questions = questions
        self._say = say
        self._count = 0
        self._listeners: dict[int, Progress] = {}
        self._has_changed = False

    def take_change(self) -> bool:
        """Whether it said since the last time that its tools are others by now."""
        changed, self._has_changed = self._has_changed, False
        return changed

    def answer(self) -> None:
        """An answer came: what was said before it is forgiven."""
        self._count = 0

    def listen(self, token: int, listener: Progress | None) -> None:
        """Hand progress of one request on."""
        if listener is not None:
            self._listeners[token] = listener

    def forget(self, token: int) -> None:
        """The request is over."""
        self._listeners.pop(token, None)

    def take(self, message: Message) -> bytes | None:
        """What to say to a message that answers nothing; None for nothing. Raises `UpstreamFailed`."""
        self._count += 1
        if self._count > NOTIFICATIONS:
            raise UpstreamFailed(f"it sent more than {NOTIFICATIONS} messages that nobody asked for")
        if message.id is not None:
            if message.method == "ping":
                return answer(message.id, b"{}")
            if message.method == "elicitation/create":
                return self._elicited(message.id, message.params)
            if self._questions is not None:
                self._questions.refuse(message.method, message.params)
            return refusal(message.id, ProtocolError(METHOD_NOT_FOUND, "Method not found"))
        if message.method == "notifications/progress":
            self._progress(message.params)
        elif message.method == "notifications/tools/list_changed":
            self._has_changed = True
        return None

    def _elicited(self, number: Id, params: dict[str, Any]) -> bytes | None:
        """Where nobody is asked, no answer is a no (POL-4)."""

        async def reply(result: dict[str, Any]) -> None:
            await self._say(answer(number, encode(result)))

        if self._questions is not None and self._questions.take(params, reply):
            return None
        return answer(number, b'{"action":"decline"}')

    def _progress(self, params: dict[str, Any]) -> None:
        token, done, total = params.get("progressToken"), params.get("progress"), params.get("total")
        listener = self._listeners.get(token) if type(token) is int else None
        if listener is None or done is None or not _is_number(done):
            return
        text = params.get("message")
        shown = excerpt(text, _TEXT_CHARS) if isinstance(text, str) else ""
        listener(float(done), float(total) if total is not None and _is_number(total) else None, shown)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _LARGEST
