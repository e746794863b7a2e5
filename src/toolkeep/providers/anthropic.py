"""Anthropic's Messages API."""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.providers.model_turn import ModelCall, Turn, from_object, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Blob, Reply
from toolkeep.providers.response_reader import inside, items, missing_field, word
from toolkeep.providers.stream_assembly import GrowingCalls
from toolkeep.providers.vendor import CALLERS, Messages, Shown, Vendor, texts

_EXECUTABLE: Final = "tool_use"

PROFILE: Final = Profile(
    name="anthropic",
    name_pattern=r"[a-zA-Z0-9_-]{1,128}",
    name_chars=128,
    key_pattern=r"[a-zA-Z0-9_.-]{1,64}",
    root_forbids=("oneOf", "allOf", "anyOf"),
    strict="subset",
)


def shape(shown: Shown) -> dict[str, Any]:
    """One tool."""
    made: dict[str, Any] = {"name": shown.alias}
    if shown.description:
        made["description"] = shown.description
    made["input_schema"] = shown.schema
    if shown.is_strict:
        made["strict"] = True
    if shown.examples:
        made["input_examples"] = list(shown.examples)
    if shown.is_deferred:
        made["defer_loading"] = True
    if callers := texts(shown.said("anthropic", CALLERS)):
        made["allowed_callers"] = callers
    return made


def _marked(tools: Messages) -> Messages:
    """The last loaded tool marks the end of the cached prefix."""
    loaded = [number for number, tool in enumerate(tools) if not tool.get("defer_loading")]
    if not loaded:
        return tools
    last = loaded[-1]
    return [
        {**tool, "cache_control": {"type": "ephemeral"}} if number == last else tool
        for number, tool in enumerate(tools)
    ]


def read(response: dict[str, Any]) -> Turn:
    """The calls of a message."""
    calls = [
        ModelCall(
            id=name_in(block.get("id")),
            name=name_in(block.get("name")),
            arguments=from_object(block.get("input")),
            echo=_echo(block),
        )
        for block in items(response, "content")
        if block.get("type") == "tool_use"
    ]
    stop = word(response.get("stop_reason"))
    return settled(calls, stop, is_ended=stop == _EXECUTABLE, needs_ids=True)


def _echo(block: dict[str, Any]) -> dict[str, Any]:
    toolset = block.get("toolset_name")
    return {"toolset_name": toolset} if isinstance(toolset, str) else {}


class Stream:
    """The events of one streamed message."""

    def __init__(self) -> None:
        self._calls = GrowingCalls(frozenset((_EXECUTABLE,)))
        self._is_over = False

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next event; those of the SDK's helpers add nothing."""
        kind = event.get("type")
        if kind == "content_block_start":
            self._start(event.get("index"), inside(event, "content_block"))
        elif kind == "content_block_delta":
            delta = inside(event, "delta")
            block = self._calls.at(event.get("index"))
            if block is not None and delta.get("type") == "input_json_delta":
                block.add(delta.get("partial_json"))
        elif kind == "content_block_stop" and (block := self._calls.at(event.get("index"))) is not None:
            block.is_closed = True
        elif kind == "message_delta":
            self._calls.end(word(inside(event, "delta").get("stop_reason")))
        elif kind == "message_stop":
            self._is_over = True

    def _start(self, index: Any, block: dict[str, Any]) -> None:
        if block.get("type") != "tool_use":
            return
        begun = self._calls.begin(index, call_id=name_in(block.get("id")), name=name_in(block.get("name")))
        begun.echo = _echo(block)
        begun.add(block.get("input") or None)

    def turn(self) -> Turn:
        """The calls so far."""
        return self._calls.turn(is_over=self._is_over)


def write(replies: Sequence[Reply]) -> Messages:
    """One user message with a result for each call."""
    return [{"role": "user", "content": [_result(reply) for reply in replies]}] if replies else []


def _result(reply: Reply) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": reply.call.id, "content": reply.text}
    made.update(reply.call.echo)
    blocks = [block for blob in reply.blobs if (block := _block(blob)) is not None]
    if blocks:
        made["content"] = [{"type": "text", "text": reply.text}, *blocks]
    if reply.is_error:
        made["is_error"] = True
    return made


def _block(blob: Blob) -> dict[str, Any] | None:
    kind = "image" if blob.is_image else "document" if blob.mime_type == "application/pdf" else None
    source = {"type": "base64", "media_type": blob.mime_type, "data": blob.text}
    return {"type": kind, "source": source} if kind else None


VENDOR: Final = Vendor(
    profile=PROFILE,
    shape=shape,
    missing=missing_field(content=list, stop_reason=object),
    read=read,
    is_event=lambda event: word(event.get("type")).startswith(("message_", "content_block_")),
    stream=Stream,
    write=write,
    features=frozenset(("examples", "deferred", "cache", "callers")),
    search_tool={"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    mark_cache=_marked,
)
