"""Ollama's chat API. Its server keeps only some keywords of a schema, and no references."""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.providers.chat_completions import id_in, shape
from toolkeep.providers.model_turn import ModelCall, Turn, from_object, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply
from toolkeep.providers.response_reader import inside, items, missing_field, word
from toolkeep.providers.stream_assembly import add_call, lasting
from toolkeep.providers.vendor import Messages, Vendor

_EXECUTABLE: Final = frozenset(("stop",))

PROFILE: Final = Profile(
    name="ollama",
    keywords=frozenset(("type", "items", "description", "enum", "properties", "required", "anyOf")),
    root_forbids=("oneOf", "anyOf", "allOf", "enum", "const", "not"),
    closes_root=False,
    inlines_references=True,
    takes_booleans=False,
)


missing = missing_field(message=dict, done=bool)


def read(response: dict[str, Any]) -> Turn:
    """The calls of a response."""
    stream = Stream()
    stream.feed(response)
    return stream.turn()


class Stream:
    """The responses of one stream; a whole response is a stream of one."""

    def __init__(self) -> None:
        self._calls: list[ModelCall] = []
        self._stop = ""

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next response; calls arrive whole."""
        for item in items(inside(event, "message"), "tool_calls"):
            function = inside(item, "function")
            call = ModelCall(
                id=id_in(item.get("id")),
                name=name_in(function.get("name")),
                arguments=from_object(function.get("arguments")),
            )
            add_call(
                self._calls, call.without("it came after the end of the response") if self._stop else call
            )
        if event.get("done") is True:
            self._stop = lasting(self._stop, word(event.get("done_reason")) or "unknown", _EXECUTABLE)

    def turn(self) -> Turn:
        """The calls so far."""
        return settled(self._calls, self._stop, is_ended=self._stop in _EXECUTABLE, needs_ids=False)


def write(replies: Sequence[Reply]) -> Messages:
    """A message for each call."""
    return [
        {
            "role": "tool",
            "tool_name": reply.call.name,
            "content": reply.flagged_text,
            **({"tool_call_id": reply.call.id} if reply.call.id else {}),
        }
        for reply in replies
    ]


VENDOR: Final = Vendor(
    profile=PROFILE,
    shape=shape,
    missing=missing,
    read=read,
    is_event=lambda event: not missing(event),
    stream=Stream,
    write=write,
)
