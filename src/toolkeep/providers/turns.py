"""What a model said in one response: its calls, each with whether it is whole.

A call is executed only if its response says that the model ended it. A cut stream leaves text that often can
be completed into valid JSON, and then it is another call than the one that was meant.
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
