"""The calls of one model response, each with whether it is complete.

A call is executed only if its response says that the model completed it. Truncated text can often be
completed into valid JSON, but then it is another call than the model meant: `rm -r /tmp/x` cut to `rm -r /`.
"""

from collections import Counter
from typing import Any, Final, Protocol

import msgspec

from toolkeep.limits import STREAM_CALLS

NO_ARGUMENTS: Final[tuple[str, ...]] = ("", "null")
"""What models and servers write for a call without arguments."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as a model wrote it."""

    id: str
    """The provider's id; empty if it has none."""
    name: str
    """As the model wrote it: the provider's alias."""
    arguments: bytes | dict[str, Any]
    unfinished: str = ""
    """Why it must not be executed; empty if it may."""
    echo: dict[str, Any] = {}
    """What the provider wants to see again in the result."""

    def without(self, reason: str) -> "ModelCall":
        """The same call, marked as not executable."""
        return self if self.unfinished else msgspec.structs.replace(self, unfinished=reason)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A response: its calls in order, and the stop reason."""

    calls: tuple[ModelCall, ...] = ()
    stop: str = ""


class StreamReader(Protocol):
    """Assembles the events of one stream."""

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next event."""

    def turn(self) -> Turn:
        """The response so far; nothing is executable before the stream has ended properly."""


def from_text(written: Any) -> bytes | dict[str, Any]:
    """Arguments that a provider sends as JSON text; some send an object."""
    if written is None or (isinstance(written, str) and written.strip() in NO_ARGUMENTS):
        return {}
    if isinstance(written, str):
        return written.encode("utf-8", "surrogatepass")
    return from_object(written)


def from_object(written: Any) -> bytes | dict[str, Any]:
    """Arguments that a provider sends as an object. Anything else is passed on as JSON, to be refused."""
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
    """The turn of these calls; executable if the turn is complete and each has a name and a unique id.

    Two calls with one id would get one answer, so neither is executed.
    """
    ids = Counter(call.id for call in calls)
    stopped = f"the response stopped with '{stop}'" if stop else "the response is not complete"
    made: list[ModelCall] = []
    for number, call in enumerate(calls):
        if not is_ended:
            why = stopped
        elif not call.name:
            why = "it names no tool"
        elif needs_ids and not call.id:
            why = "it has no id, so it cannot be answered"
        elif call.id and ids[call.id] > 1:
            why = "another call of the response has the same id"
        elif number >= STREAM_CALLS:
            why = f"a response may hold {STREAM_CALLS} calls"
        else:
            why = ""
        made.append(call.without(why) if why else call)
    return Turn(calls=tuple(made), stop=stop)
