"""What a model said in one response: its calls, each with whether it is whole.

A call is executed only if its response says that the model ended it. A cut stream leaves text that often can
be completed into valid JSON, and then it is another call than the one that was meant.
"""

from collections import Counter
from typing import Any, Final, Protocol

import msgspec

from toolkeep.limits import RESPONSE_BYTES, STREAM_CALLS

NO_ARGUMENTS: Final[tuple[str, ...]] = ("", "null")
"""What models and servers write for a call without arguments."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as a model wrote it."""

    id: str
    """The provider's own; empty where it has none."""
    name: str
    """As the model says it: the alias that the provider knows."""
    arguments: bytes | dict[str, Any]
    unfinished: str = ""
    """Why it may not be executed, where it may not."""
    echo: dict[str, Any] = {}
    """What of the call the provider wants to see again in its answer."""

    def without(self, reason: str) -> "ModelCall":
        """The same call, which may not be executed."""
        return self if self.unfinished else msgspec.structs.replace(self, unfinished=reason)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A response: its calls in order, and why the model stopped."""

    calls: tuple[ModelCall, ...] = ()
    stop: str = ""


class StreamReader(Protocol):
    """Puts the events of one stream together."""

    def feed(self, event: dict[str, Any]) -> None:
        """Take the next event."""

    def turn(self) -> Turn:
        """What was said so far; nothing that may be executed before the stream has ended well."""


def from_text(written: Any) -> bytes | dict[str, Any]:
    """Arguments that a provider sends as JSON text; an object where some send one."""
    if written is None or (isinstance(written, str) and written.strip() in NO_ARGUMENTS):
        return {}
    if isinstance(written, str):
        return written.encode("utf-8", "surrogatepass")
    return from_object(written)


def from_object(written: Any) -> bytes | dict[str, Any]:
    """Arguments that a provider sends as an object. Anything else goes on as JSON, to be refused for it."""
    if written is None:
        return {}
    if isinstance(written, dict):
        return written
    try:
        return msgspec.json.encode(written)
    except (TypeError, OverflowError):
        return b"[]"


def name_in(value: Any) -> str:
    """A name or id, if it is text."""
    return value if isinstance(value, str) else ""


def settled(calls: list[ModelCall], stop: str, *, is_ended: bool, needs_ids: bool) -> Turn:
    """The turn of these calls; executable are those of an ended turn with a name and an id of their own."""
    ids = Counter(call.id for call in calls)
    stopped = f"the response stopped with '{stop}'" if stop else "the response is not complete"
    made: list[ModelCall] = []
    for number, call in enumerate(calls):
        if not is_ended:
            why = stopped
        elif not call.name:
            why = "it names no tool"
        elif needs_ids and not call.id:
            why = "it has no id, so that its answer would reach nobody"
        elif call.id and ids[call.id] > 1:
            why = "another call of the response has the same id"
        elif number >= STREAM_CALLS:
            why = f"a response may hold {STREAM_CALLS} calls"
        else:
            why = ""
        made.append(call.without(why) if why else call)
    return Turn(calls=tuple(made), stop=stop)


class Growing:
    """A call whose arguments come in pieces."""

    def __init__(self, *, call_id: str, name: str) -> None:
        self.id, self.name = call_id, name
        self.is_closed = False
        self.echo: dict[str, Any] = {}
        self._pieces: list[str] = []
        self._chars = 0
        self._whole: Any = None
        self._fault = ""

    def add(self, piece: Any) -> None:
        """The next piece of text; an object is the whole at once."""
        if piece is None or piece == "":
            return
        if self.is_closed:
            self._fault = "it went on after its end"
        elif not isinstance(piece, str) or self._whole is not None:
            self._fault = "" if not self._pieces and self._whole is None else "its parts do not fit together"
            self._whole = piece
        else:
            self._chars += len(piece)
            if self._chars > RESPONSE_BYTES:
                self._fault, self._pieces = "it is too long", []
            else:
                self._pieces.append(piece)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def fail(self, reason: str) -> None:
        """Never let it be executed."""
        self._fault = self._fault or reason

    def call(self, *, must_close: bool) -> ModelCall:
        """The call as it stands."""
        fault = self._fault or ("it was not ended" if must_close and not self.is_closed else "")
        arguments = from_text(self.text if self._whole is None else self._whole)
        return ModelCall(id=self.id, name=self.name, arguments=arguments, unfinished=fault, echo=self.echo)
