"""OpenAI's Responses API."""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.providers.model_turn import ModelCall, Turn, from_text, name_in, settled
from toolkeep.providers.openai import ROOT_FORBIDS
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Blob, Reply
from toolkeep.providers.response_reader import inside, items, missing_field, word
from toolkeep.providers.stream_assembly import GrowingCalls
from toolkeep.providers.vendor import CALLERS, Messages, Shown, Vendor, texts

_DONE: Final = "completed"
_ECHOED: Final = ("caller", "namespace")


def shape(shown: Shown) -> dict[str, Any]:
    """One tool."""
    made: dict[str, Any] = {"type": "function", "name": shown.alias}
    if shown.description:
        made["description"] = shown.description
    made["parameters"] = shown.schema
    made["strict"] = shown.is_strict
    definition = shown.definition
    if definition.output_schema is not None and not definition.gives_bytes:
        made["output_schema"] = public_schema(definition.output_schema, is_sensitive=definition.sensitive)
    if shown.is_deferred:
        made["defer_loading"] = True
    if callers := texts(shown.said("openai", CALLERS)):
        made["allowed_callers"] = callers
    return made


def read(response: dict[str, Any]) -> Turn:
    """The calls of a response."""
    stop = _stop_of(response)
    calls = [_call(item) for item in items(response, "output") if _is_call(item)]
    return settled(calls, stop, is_ended=stop == _DONE, needs_ids=True)


def _is_call(item: dict[str, Any]) -> bool:
    return item.get("type") in ("function_call", "custom_tool_call")


def _stop_of(response: dict[str, Any]) -> str:
    why = inside(response, "incomplete_details").get("reason")
    return word(why) or word(response.get("status"))


def _call(item: dict[str, Any]) -> ModelCall:
    status = word(item.get("status"))
    fault = f"its status is {status}" if status not in ("", _DONE) else ""
    if item.get("type") == "custom_tool_call":
        fault = "it calls a custom tool, and only functions were offered"
    return ModelCall(
        id=name_in(item.get("call_id")),
        name=name_in(item.get("name")),
        arguments=from_text(item.get("arguments")),
        unfinished=fault,
        echo={key: item[key] for key in _ECHOED if item.get(key)},
    )


class Stream:
    """The events of one streamed response."""

    def __init__(self) -> None:
        self._calls = GrowingCalls(frozenset((_DONE,)))

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next event."""
        kind, index, item = event.get("type"), event.get("output_index"), inside(event, "item")
        if kind == "response.output_item.added" and _is_call(item):
            self._calls.begin(index, call_id=name_in(item.get("call_id")), name=name_in(item.get("name")))
        elif kind == "response.function_call_arguments.delta":
            if (growing := self._calls.at(index)) is not None:
                growing.add(event.get("delta"))
        elif kind == "response.output_item.done" and _is_call(item):
            self._end(index, item)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._calls.end(_stop_of(inside(event, "response")) or "unknown")

    def _end(self, index: Any, item: dict[str, Any]) -> None:
        """The whole call; one that differs from its streamed deltas is never executed."""
        call = _call(item)
        growing = self._calls.at(index) or self._calls.begin(index, call_id=call.id, name=call.name)
        if growing.id not in ("", call.id) or growing.name not in ("", call.name):
            growing.fail("it ends as another call than it started")
        growing.id, growing.name = call.id, call.name
        if call.unfinished:
            growing.fail(call.unfinished)
        growing.echo = call.echo
        growing.end(item.get("arguments"))

    def turn(self) -> Turn:
        """The calls so far."""
        return self._calls.turn()


def write(replies: Sequence[Reply]) -> Messages:
    """An item for each call."""
    return [
        {
            "type": "function_call_output",
            "call_id": reply.call.id,
            "output": _output(reply),
            **reply.call.echo,
        }
        for reply in replies
    ]


def _output(reply: Reply) -> str | list[dict[str, Any]]:
    if not reply.blobs:
        return reply.flagged_text
    return [{"type": "input_text", "text": reply.flagged_text}, *map(_part, reply.blobs)]


def _part(blob: Blob) -> dict[str, Any]:
    if blob.is_image:
        return {"type": "input_image", "image_url": blob.url}
    ending = blob.mime_type.rpartition("/")[2]
    return {"type": "input_file", "filename": f"output.{ending}", "file_data": blob.url}


VENDOR: Final = Vendor(
    profile=Profile(
        name="openai-responses",
        root_forbids=ROOT_FORBIDS,
        max_tools=128,
        description_chars=1024,
        needs_items=True,
        takes_booleans=False,
        strict="codec",
    ),
    shape=shape,
    missing=missing_field(output=list),
    read=read,
    is_event=lambda event: word(event.get("type")).startswith("response."),
    stream=Stream,
    write=write,
    features=frozenset(("deferred", "callers", "outputs")),
    search_tool={"type": "tool_search"},
)
