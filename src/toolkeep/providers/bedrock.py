"""Amazon Bedrock's Converse API."""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.providers.model_turn import ModelCall, Turn, from_object, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Blob, Reply
from toolkeep.providers.response_reader import inside, items, missing_field, word
from toolkeep.providers.stream_assembly import GrowingCalls
from toolkeep.providers.vendor import Messages, Shown, Vendor

_EXECUTABLE: Final = "tool_use"
_EVENTS: Final = frozenset(
    ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
)
_DOCUMENTS: Final = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}


def shape(shown: Shown) -> dict[str, Any]:
    """One tool."""
    spec: dict[str, Any] = {"name": shown.alias}
    if shown.description:
        spec["description"] = shown.description
    spec["inputSchema"] = {"json": shown.schema}
    if shown.is_strict:
        spec["strict"] = True
    return {"toolSpec": spec}


def _marked(tools: Messages) -> Messages:
    return [*tools, {"cachePoint": {"type": "default"}}] if tools else tools


def read(response: dict[str, Any]) -> Turn:
    """The calls of a response."""
    used = [
        inside(block, "toolUse")
        for block in items(inside(response, "output", "message"), "content")
        if "toolUse" in block
    ]
    calls = [
        ModelCall(
            id=name_in(use.get("toolUseId")),
            name=name_in(use.get("name")),
            arguments=from_object(use.get("input")),
        )
        for use in used
        if use.get("type") != "server_tool_use"
    ]
    stop = word(response.get("stopReason"))
    return settled(calls, stop, is_ended=stop == _EXECUTABLE, needs_ids=True)


class Stream:
    """The events of one streamed response."""

    def __init__(self) -> None:
        self._calls = GrowingCalls(frozenset((_EXECUTABLE,)))

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next event."""
        for kind, said in event.items():
            index = said.get("contentBlockIndex") if isinstance(said, dict) else None
            block = self._calls.at(index)
            if kind == "contentBlockStart" and (use := inside(said, "start", "toolUse")):
                self._start(index, use)
            elif kind == "contentBlockDelta" and block is not None:
                block.add(inside(said, "delta", "toolUse").get("input"))
            elif kind == "contentBlockStop" and block is not None:
                block.is_closed = True
            elif kind == "messageStop":
                self._calls.end(word(inside(said).get("stopReason")) or "unknown")

    def _start(self, index: Any, use: dict[str, Any]) -> None:
        if use.get("type") == "server_tool_use":
            return
        self._calls.begin(index, call_id=name_in(use.get("toolUseId")), name=name_in(use.get("name")))

    def turn(self) -> Turn:
        """The calls so far."""
        return self._calls.turn()


def write(replies: Sequence[Reply]) -> Messages:
    """One user message with a result for each call."""
    content = [{"toolResult": _result(reply)} for reply in replies]
    return [{"role": "user", "content": content}] if content else []


def _result(reply: Reply) -> dict[str, Any]:
    blocks = [block for blob in reply.blobs if (block := _block(blob)) is not None]
    return {
        "toolUseId": reply.call.id,
        "content": [{"text": reply.text}, *blocks],
        "status": "error" if reply.is_error else "success",
    }


def _block(blob: Blob) -> dict[str, Any] | None:
    if blob.is_image:
        kind = blob.mime_type.rpartition("/")[2]
        return {"image": {"format": kind, "source": {"bytes": blob.data}}}
    if ending := _DOCUMENTS.get(blob.mime_type):
        return {"document": {"format": ending, "name": "output", "source": {"bytes": blob.data}}}
    return None


VENDOR: Final = Vendor(
    profile=Profile(
        name="bedrock",
        key_pattern=r"[a-zA-Z0-9_.-]{1,64}",
        root_forbids=("oneOf", "allOf", "anyOf"),
        # Nova takes a root of `type`, `properties` and `required`.
        closes_root=False,
        takes_booleans=False,
        strict="subset",
    ),
    shape=shape,
    missing=missing_field(output=dict, stopReason=object),
    read=read,
    is_event=lambda event: not _EVENTS.isdisjoint(event),
    stream=Stream,
    write=write,
    features=frozenset(("cache",)),
    mark_cache=_marked,
)
