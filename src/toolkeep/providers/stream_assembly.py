"""Assemble the calls of a stream from pieces, each at the provider's index.

A call that contradicts itself, or continues after the end of its response, is never executed. The memory that
a stream can take is bounded.
"""

from typing import Any, TypeVar

from toolkeep.limits import RESPONSE_BYTES, STREAM_CALLS_MOST
from toolkeep.providers.model_turn import ModelCall, Turn, from_text, settled

T = TypeVar("T")


class StreamTooLong(Exception):
    """A response holds more calls than are answered."""

    def __init__(self) -> None:
        super().__init__(f"it holds more than {STREAM_CALLS_MOST} calls")


class Growing:
    """A call whose arguments arrive in pieces; made by `GrowingCalls`."""

    def __init__(self, stream: "GrowingCalls", *, call_id: str, name: str) -> None:
        self.id, self.name = call_id, name
        self.is_closed = False
        self.echo: dict[str, Any] = {}
        self._stream = stream
        self._pieces: list[str] = []
        self._whole: Any = None
        self._fault = ""

    def add(self, piece: Any) -> None:
        """Add the next piece of text; an object is the whole at once."""
        if piece is None or piece == "":
            return
        if self._stream.stop:
            self.fail("it continues after the end of the response")
        elif self.is_closed:
            self.fail("it continues after its end")
        elif self._whole is not None or (self._pieces and not isinstance(piece, str)):
            self.fail("its parts do not fit together")
        elif not isinstance(piece, str):
            self._whole = piece
        elif self._stream.has_room_for(piece):
            self._pieces.append(piece)
        else:
            self._pieces = []
            self.fail("it is too long")

    def end(self, whole: Any) -> None:
        """The whole again, at its end."""
        if self.is_closed:
            self.fail("it ends twice")
        if not self._pieces:
            self.add(whole)
        elif "".join(self._pieces) != whole:
            self.fail("it ended with other arguments than it was written with")
        self.is_closed = True

    def fail(self, reason: str) -> None:
        """Mark it as never executable."""
        self._fault = self._fault or reason

    def call(self, *, must_close: bool) -> ModelCall:
        """The call so far."""
        fault = self._fault or ("it is incomplete" if must_close and not self.is_closed else "")
        arguments = from_text("".join(self._pieces) if self._whole is None else self._whole)
        return ModelCall(id=self.id, name=self.name, arguments=arguments, unfinished=fault, echo=self.echo)


class GrowingCalls:
    """The calls of one stream so far, and the stop reason."""

    def __init__(self, executable: frozenset[str]) -> None:
        self.stop = ""
        self._executable = executable
        self._calls: list[Growing] = []
        self._at: dict[int | str, Growing] = {}
        self._chars = 0

    def at(self, index: Any) -> Growing | None:
        """The last call begun at an index."""
        return self._at.get(_place(index))

    def begin(self, index: Any, *, call_id: str, name: str) -> Growing:
        """Begin a call at an index; a second one there invalidates the first."""
        known = self.at(index)
        if known is None:
            return self.begin_another(index, call_id=call_id, name=name)
        known.fail("it starts twice")
        return known

    def begin_another(self, index: Any, *, call_id: str, name: str) -> Growing:
        """Begin a call at an index, whether there is another or not."""
        made = Growing(self, call_id=call_id, name=name)
        if self.stop:
            made.fail("it came after the end of the response")
        add_call(self._calls, made)
        self._at[_place(index)] = made
        return made

    def end(self, reason: str) -> None:
        """Set the stop reason; one that completes no call is final."""
        self.stop = lasting(self.stop, reason, self._executable)

    def has_room_for(self, piece: str) -> bool:
        """Whether this much more text is within the limit."""
        self._chars += len(piece)
        return self._chars <= RESPONSE_BYTES

    def turn(self, *, must_close: bool = True, is_over: bool = True) -> Turn:
        """The calls so far; executable if the response is complete and stopped for them."""
        calls = [growing.call(must_close=must_close) for growing in self._calls]
        is_ended = is_over and self.stop in self._executable
        return settled(calls, self.stop, is_ended=is_ended, needs_ids=True)


def add_call(calls: list[T], call: T) -> None:
    """Add a call of a response; raises `StreamTooLong` if there are too many."""
    if len(calls) >= STREAM_CALLS_MOST:
        raise StreamTooLong
    calls.append(call)


def lasting(before: str, reason: str, executable: frozenset[str]) -> str:
    """The later of two stop reasons, unless the earlier one completes no call."""
    return before if not reason or (before and before not in executable) else reason


def _place(index: Any) -> int | str:
    """The key of a call; everything that is no index is the same one."""
    return index if isinstance(index, (int, str)) else ""
