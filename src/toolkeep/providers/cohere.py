"""Cohere's chat API, version 2."""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.limits import COHERE_STRICT_FIELDS
from toolkeep.providers.chat_completions import calls_in, shape
from toolkeep.providers.model_turn import Turn, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply
from toolkeep.providers.response_reader import inside, missing_field, word
from toolkeep.providers.stream_assembly import GrowingCalls
from toolkeep.providers.vendor import Messages, Vendor

_EXECUTABLE: Final = "TOOL_CALL"


def read(response: dict[str, Any]) -> Turn:
    """The calls of a response."""
    stop = word(response.get("finish_reason"))
    calls = calls_in(inside(response, "message"))
    return settled(calls, stop, is_ended=stop == _EXECUTABLE, needs_ids=True)


class Stream:
    """The events of one streamed response."""

    def __init__(self) -> None:
        self._calls = GrowingCalls(frozenset((_EXECUTABLE,)))

    def feed(self, event: dict[str, Any]) -> None:
        """Take the next event."""
        kind, index = event.get("type"), event.get("index")
        if kind == "message-end":
            self._calls.end(word(inside(event, "delta").get("finish_reason")) or "unknown")
        elif kind in ("tool-call-start", "tool-call-delta"):
            said = inside(event, "delta", "message", "tool_calls")
            function = inside(said, "function")
            if kind == "tool-call-start":
                self._calls.begin(index, call_id=name_in(said.get("id")), name=name_in(function.get("name")))
            if (growing := self._calls.at(index)) is not None:
                growing.add(function.get("arguments"))
        elif kind == "tool-call-end" and (growing := self._calls.at(index)) is not None:
            growing.is_closed = True

    def turn(self) -> Turn:
        """The calls so far."""
        return self._calls.turn()


def write(replies: Sequence[Reply]) -> Messages:
    """A message for each call."""
    return [
        {"role": "tool", "tool_call_id": reply.call.id, "content": reply.flagged_text} for reply in replies
    ]


VENDOR: Final = Vendor(
    profile=Profile(name="cohere", takes_booleans=False, strict_fields=COHERE_STRICT_FIELDS),
    shape=shape,
    missing=missing_field(message=dict, finish_reason=object),
    read=read,
    is_event=lambda event: word(event.get("type")).startswith(("message-", "content-", "tool-", "citation-")),
    stream=Stream,
    write=write,
)
