"""MCP: tools of a list, calls of `tools/call` and their results, in both protocol generations.

A client sees the public form of a schema, without secrets.
"""

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolkeep.calls import ToolResult, json_text
from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Danger, SideEffect
from toolkeep.providers.model_turn import ModelCall, Turn, from_object, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import METADATA_KEY, Reply
from toolkeep.providers.response_reader import inside, missing_field
from toolkeep.providers.vendor import Messages, Shown, Vendor

_NETWORK: Final = frozenset((SideEffect.NET_READ, SideEffect.NET_WRITE))
_CLASSES: Final = frozenset((SideEffect.READS, SideEffect.WRITES))
"""They do not exclude the network; capabilities for files alone do."""


def for_mcp(definition: ToolDefinition) -> dict[str, Any]:
    """What a definition's metadata says for MCP only: `title`, `content`, `mime_type`, `task`."""
    said = definition.metadata.get(METADATA_KEY)
    return said if isinstance(said, dict) else {}


def tool_data(
    name: str, definition: ToolDefinition, schema: dict[str, Any], *, is_modern: bool
) -> dict[str, Any]:
    """One tool of a list, with this name and argument schema."""
    data: dict[str, Any] = {
        "name": name,
        "title": title(definition),
        "description": definition.full_description,
        # Some clients fail on a schema without `properties`, and then list no tool of the server at all.
        "inputSchema": {"type": "object", "properties": {}, **schema},
        "annotations": annotations(definition),
    }
    if (output := output_schema(definition, is_modern=is_modern)) is not None:
        data["outputSchema"] = output
    return data


def title(definition: ToolDefinition) -> str:
    """The title for people: `read_file` is Read file, unless the definition says otherwise."""
    said = for_mcp(definition).get("title")
    return said if isinstance(said, str) and said else definition.name.replace("_", " ").strip().capitalize()


def output_schema(definition: ToolDefinition, *, is_modern: bool) -> dict[str, Any] | None:
    """The schema of structured content; older protocol versions allow objects only."""
    schema = definition.output_schema
    if schema is None or definition.gives_bytes or for_mcp(definition).get("content"):
        return None
    if not is_modern and schema.get("type") != "object":
        return None
    return public_schema(schema, is_sensitive=definition.sensitive)


def annotations(definition: ToolDefinition) -> dict[str, Any]:
    """Hints from side effects and danger; what is not declared counts as the worse."""
    effects = definition.effects
    may_write = effects is None or definition.has_write_effects
    is_tame = effects is not None and definition.danger_level.rank < Danger.MEDIUM.rank
    return {
        "readOnlyHint": not may_write,
        "destructiveHint": may_write and not is_tame,
        "idempotentHint": definition.idempotent or not may_write,
        "openWorldHint": effects is None or _is_open(definition, set(effects)),
    }


def _is_open(definition: ToolDefinition, effects: set[SideEffect]) -> bool:
    stays_here = definition.capabilities and all(
        one.kind.startswith("fs.") for one in definition.capabilities
    )
    return bool(_NETWORK & effects or (_CLASSES & effects and not stays_here))


def result_data(result: ToolResult, definition: ToolDefinition | None, *, is_modern: bool) -> dict[str, Any]:
    """The result for a model: the value, or an error that it can act on."""
    data: dict[str, Any]
    if result.error is not None:
        data = {"content": [text(result.error.text)], "isError": True}
    elif result.status == "ok" and definition is not None and result.truncation is None:
        data = _value_data(result.view, definition, result.hash, is_modern=is_modern)
    else:
        # A truncated object matches no output schema: a client that checks would report a fault.
        is_cut = result.truncation is not None and result.view is None
        data = {"content": [text(result.text)], "isError": is_cut}
    data["_meta"] = {"toolkeep/call": result.call_id}
    return data


def _value_data(value: Any, definition: ToolDefinition, digest: str, *, is_modern: bool) -> dict[str, Any]:
    said = for_mcp(definition)
    if isinstance(value, bytes):
        return {"content": [_blob(value, said.get("mime_type"), digest)]}
    if said.get("content") and is_content(value):
        return {"content": value}
    if isinstance(value, str) and definition.output_schema is None:
        return {"content": [text(value)]}
    data: dict[str, Any] = {"content": [text(value if isinstance(value, str) else json_text(value))]}
    if isinstance(value, dict) or output_schema(definition, is_modern=is_modern) is not None:
        data["structuredContent"] = value
    return data


def _blob(value: bytes, mime_type: object, digest: str) -> dict[str, Any]:
    mime = mime_type if isinstance(mime_type, str) else "application/octet-stream"
    data = base64.b64encode(value).decode()
    kind = mime.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": mime}
    uri = f"toolkeep://results/{digest}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": data}}


def text(words: str) -> dict[str, str]:
    """A text block."""
    return {"type": "text", "text": words}


def _shaper(*, is_modern: bool) -> Callable[[Shown], dict[str, Any]]:
    return lambda shown: tool_data(shown.alias, shown.definition, shown.schema, is_modern=is_modern)


def missing(request: dict[str, Any]) -> str:
    """A call names its tool."""
    return _NAMED(inside(request, "params") or request)


_NAMED: Final = missing_field(name=str)


def read(request: dict[str, Any]) -> Turn:
    """The call of a `tools/call` request, or of its params only."""
    params = inside(request, "params") or request
    call_id = request.get("id") if isinstance(request.get("id"), (str, int)) else ""
    call = ModelCall(
        id=str(call_id), name=name_in(params.get("name")), arguments=from_object(params.get("arguments"))
    )
    return settled([call], "", is_ended=True, needs_ids=False)


def _writer(*, is_modern: bool) -> Callable[[Sequence[Reply]], Messages]:
    def write(replies: Sequence[Reply]) -> Messages:
        results = [
            result_data(reply.result, reply.definition, is_modern=is_modern)
            for reply in replies
            if reply.result is not None
        ]
        return [{"resultType": "complete", **data} for data in results] if is_modern else results

    return write


def _vendor(name: str, *, is_modern: bool) -> Vendor:
    return Vendor(
        profile=Profile(name=name, name_pattern=r"[A-Za-z0-9_.-]{1,128}", name_chars=128),
        shape=_shaper(is_modern=is_modern),
        missing=missing,
        read=read,
        stream=None,
        write=_writer(is_modern=is_modern),
        features=frozenset(("outputs",)),
    )


MODERN: Final = _vendor("mcp", is_modern=True)
BEFORE: Final = _vendor("mcp-2025-11-25", is_modern=False)


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*")


def is_content(value: Any) -> bool:
    """Whether a value is a list of content blocks."""
    return isinstance(value, list) and all(map(_is_block, value))


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict) or not all(isinstance(block.get(key, {}), dict) for key in _ABOUT):
        return False
    match block:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image" | "audio", "data": str(data), "mimeType": str()}:
            return _is_base64(data)
        case {"type": "resource_link", "uri": str(uri), "name": str()}:
            return _is_uri(uri)
        case {"type": "resource", "resource": {"uri": str(uri), **held}}:
            return _is_uri(uri) and _is_held(held)
    return False


_ABOUT: Final = ("annotations", "_meta")


def _is_held(held: dict[Any, Any]) -> bool:
    """Whether a resource holds text or bytes."""
    match held:
        case {"text": str()}:
            return "blob" not in held
        case {"blob": str(blob)}:
            return _is_base64(blob)
    return False


def _is_uri(text: str) -> bool:
    """Whether it looks like a URI: a scheme, and no invisible characters."""
    return _URI.fullmatch(text) is not None


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True
