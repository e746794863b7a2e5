"""What became of a call, as parts that a model can be given: text, images, files.

The text of an error or of a pending call begins with a fixed line, for providers that have no flag for it.
Text is cut at a limit and says where the rest is; objects are not cut, they come by reference (EXE-2).
"""

import base64
from typing import Any, Final

import msgspec

from toolkeep.calls import ToolResult
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.limits import RESULT_BLOB_BYTES, RESULT_CHARS
from toolkeep.providers.model_turn import ModelCall

ERROR_LINE: Final = "ERROR: this call did not succeed."
PENDING_LINE: Final = "PENDING: this call is not finished."
METADATA_KEY: Final = "mcp"
"""The metadata key that says how an output is read: `content`, `mime_type`."""


class Blob(msgspec.Struct, frozen=True):
    """Bytes with their type."""

    mime_type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """Whether a vision model can see it."""
        return self.mime_type in ("image/png", "image/jpeg", "image/gif", "image/webp")

    @property
    def text(self) -> str:
        """The bytes as base64."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The bytes as a URL."""
        return f"data:{self.mime_type};base64,{self.text}"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one call."""

    call: ModelCall
    text: str
    is_error: bool = False
    is_pending: bool = False
    blobs: tuple[Blob, ...] = ()
    value: Any = None
    """What is shown of the value, if that is an object."""
    result: ToolResult | None = None
    definition: ToolDefinition | None = None

    @property
    def flagged_text(self) -> str:
        """The text for a provider without an error flag."""
        return f"{ERROR_LINE}\n{self.text}" if self.is_error else self.text


def reply_to(call: ModelCall, result: ToolResult, definition: ToolDefinition | None) -> Reply:
    """The answer to a call, from its result."""
    if result.error is not None:
        return Reply(call=call, text=result.error.text, is_error=True, result=result, definition=definition)
    if result.status == "pending":
        text = f"{PENDING_LINE}\n{result.text}"
        return Reply(call=call, text=text, is_pending=True, result=result, definition=definition)
    said, view = _about_output(definition), result.view
    if isinstance(view, bytes):
        text, blobs = _of_bytes(view, said.get("mime_type"), result.hash)
    elif said.get("content") and isinstance(view, list):
        text, blobs = _of_content(view, result.hash)
    else:
        text, blobs = _cut(result), ()
    is_small = isinstance(view, dict) and len(text) <= RESULT_CHARS and text == result.text
    return Reply(
        call=call,
        text=text,
        blobs=blobs,
        value=view if is_small else None,
        result=result,
        definition=definition,
    )


def _about_output(definition: ToolDefinition | None) -> dict[str, Any]:
    said = definition.metadata.get(METADATA_KEY) if definition is not None else None
    return said if isinstance(said, dict) else {}


def _cut(result: ToolResult) -> str:
    text = result.text
    if len(text) <= RESULT_CHARS:
        return text
    reference = result.truncation.reference if result.truncation else f"sha256:{result.hash}"
    if not isinstance(result.view, str):
        return f"The output has {len(text)} characters of JSON, more than is shown here: {reference}"
    return _shortened(text, reference)


def _shortened(text: str, reference: str) -> str:
    if len(text) <= RESULT_CHARS:
        return text
    return f"{text[:RESULT_CHARS]}\n[cut at {RESULT_CHARS} of {len(text)} characters; the whole: {reference}]"


def _of_bytes(data: bytes, mime_type: Any, digest: str) -> tuple[str, tuple[Blob, ...]]:
    mime = mime_type if isinstance(mime_type, str) else "application/octet-stream"
    text = f"[{mime}, {len(data)} bytes, sha256:{digest}]"
    return text, (Blob(mime, data),) if len(data) <= RESULT_BLOB_BYTES else ()


def _of_content(blocks: list[Any], digest: str) -> tuple[str, tuple[Blob, ...]]:
    """MCP content blocks: text joined, images and other bytes separate."""
    words: list[str] = []
    blobs: list[Blob] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            words.append(str(block.get("text", "")))
            continue
        held = _bytes_in(block) if isinstance(block, dict) else None
        if held is not None and len(held.data) <= RESULT_BLOB_BYTES:
            blobs.append(held)
            words.append(f"[{held.mime_type}, {len(held.data)} bytes]")
        else:
            words.append(f"[{kind}: see sha256:{digest}]")
    text = "\n".join(words)
    return _shortened(text, f"sha256:{digest}"), tuple(blobs)


def _bytes_in(block: dict[str, Any]) -> Blob | None:
    resource = block.get("resource")
    inner = resource if isinstance(resource, dict) else block
    data = inner.get("blob") if isinstance(resource, dict) else inner.get("data")
    mime = inner.get("mimeType")
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    try:
        return Blob(mime, base64.b64decode(data, validate=True))
    except ValueError:
        return None
