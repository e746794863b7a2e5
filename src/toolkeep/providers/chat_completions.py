"""The chat format of OpenAI, which others adopted: calls in a message, a message for each result."""

from collections.abc import Callable, Sequence
from typing import Any

from toolkeep.providers.model_turn import ModelCall, Turn, from_text, name_in, settled
from toolkeep.providers.replies import Reply
from toolkeep.providers.response_reader import first, inside, items, missing_field, word
from toolkeep.providers.stream_assembly import GrowingCalls
from toolkeep.providers.vendor import Messages, Shown

NO_IDS = ("", "null")
"""Mistral's own types have the text `null` for a call without an id."""


def shape(shown: Shown) -> dict[str, Any]:
    """One tool."""
    function: dict[str, Any] = {"name": shown.alias}
    if shown.description:
        function["description"] = shown.description
    function["parameters"] = shown.schema
    if shown.is_strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def id_in(value: Any) -> str:
    """The id of a call; empty if it has none."""
    found = name_in(value)
    return "" if found in NO_IDS else found


def calls_in(message: dict[str, Any]) -> list[ModelCall]:
    """The calls of a message."""
    return [_call(item) for item in items(message, "tool_calls")]


def _call(item: dict[str, Any]) -> ModelCall:
    function = inside(item, "function")
    if not function and item.get("type") == "custom":
        name = name_in(inside(item, "custom").get("name"))
        why = "it calls a custom tool, and only functions were offered"
        return ModelCall(id=id_in(item.get("id")), name=name, arguments={}, unfinished=why)
    return ModelCall(
        id=id_in(item.get("id")),
        name=name_in(function.get("name")),
        arguments=from_text(function.get("arguments")),
    )


missing: Callable[[dict[str, Any]], str] = missing_field(choices=list)


def is_event(event: dict[str, Any]) -> bool:
    """Whether data is a chunk of a completion."""
    return isinstance((inside(event, "data") or event).get("choices"), (list, tuple))


def reader(executable: frozenset[str]) -> Callable[[dict[str, Any]], Turn]:
    """A reader for the first choice of a completion; these stop reasons complete a call."""

    def read(response: dict[str, Any]) -> Turn:
        choice = first(response, "choices")
        stop = word(choice.get("finish_reason"))
        calls = calls_in(inside(choice, "message"))
        return settled(calls, stop, is_ended=stop in executable, needs_ids=True)

    return read


class ChatStream:
    """The chunks of one streamed completion; only its first choice counts."""

    def __init__(self, executable: frozenset[str]) -> None:
        self._calls = GrowingCalls(executable)

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next chunk."""
        chunk = inside(event, "data") or event
        for choice in items(chunk, "choices"):
            if choice.get("index") in (0, None):
                for piece in items(inside(choice, "delta"), "tool_calls"):
                    self._piece(piece)
                self._calls.end(word(choice.get("finish_reason")))

    def _piece(self, piece: dict[str, Any]) -> None:
        index, function = piece.get("index"), inside(piece, "function")
        call_id, name = id_in(piece.get("id")), name_in(function.get("name"))
        growing = self._calls.at(index)
        # Some servers use index 0 for every call: another id starts another call.
        if growing is None or (call_id and growing.id and call_id != growing.id):
            growing = self._calls.begin_another(index, call_id=call_id, name=name)
        elif name and name != growing.name:
            growing.name = growing.name or name
            if growing.name != name:
                growing.fail("its name changed")
        growing.id = growing.id or call_id
        if self._calls.stop:
            growing.fail("it continues after the end of the response")
        growing.add(function.get("arguments"))
        if piece.get("type") == "custom":
            growing.fail("it calls a custom tool, and only functions were offered")

    def turn(self) -> Turn:
        """The calls so far."""
        return self._calls.turn(must_close=False)


def write(replies: Sequence[Reply]) -> Messages:
    """A message for each call. The format has no images; the text describes them."""
    return [
        {"role": "tool", "tool_call_id": reply.call.id, "content": reply.flagged_text} for reply in replies
    ]
