"""MCP: tools of a list, calls of `tools/call` and their results, in both eras.

What a client sees of a schema is its public form; secrets stay here.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final

from toolkeep.calls import ToolResult, json_text
from toolkeep.definitions.public import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Danger, SideEffect
from toolkeep.providers.content import is_content
from toolkeep.providers.profiles import Profile
from toolkeep.providers.reading import inside
from toolkeep.providers.replies import METADATA_KEY, Reply
from toolkeep.providers.turns import ModelCall, Turn, from_object, name_in, settled
from toolkeep.providers.vendor import Messages, Shown, Vendor

_OPEN_WORLD: Final = frozenset(
    (SideEffect.NET_READ, SideEffect.NET_WRITE, SideEffect.READS, SideEffect.WRITES)
)
"""A class alone does not say that the network is not among it."""


def for_mcp(definition: ToolDefinition) -> dict[str, Any]:
    """What a definition's metadata says for MCP alone: `title`, `content`, `mime_type`, `task`."""
    said = definition.metadata.get(METADATA_KEY)
    return said if isinstance(said, dict) else {}


def tool_data(
    name: str, definition: ToolDefinition, schema: dict[str, Any], *, is_modern: bool
) -> dict[str, Any]:
    """One tool of a list, under this name and with this schema of its arguments."""
    data: dict[str, Any] = {
        "name": name,
        "title": title(definition),
        "description": definition.full_description,
        "inputSchema": {"type": "object", **schema},
        "annotations": annotations(definition),
    }
    if (output := output_schema(definition, is_modern=is_modern)) is not None:
        data["outputSchema"] = output
    return data


def title(definition: ToolDefinition) -> str:
    """What a person reads: `read_file` is Read file, unless the definition says otherwise."""
    said = for_mcp(definition).get("title")
    return said if isinstance(said, str) and said else definition.name.replace("_", " ").strip().capitalize()


def output_schema(definition: ToolDefinition, *, is_modern: bool) -> dict[str, Any] | None:
    """The schema of structured content; the older era has it for objects only."""
    schema = definition.output_schema
    if schema is None or definition.gives_bytes or for_mcp(definition).get("content"):
        return None
    if not is_modern and schema.get("type") != "object":
        return None
    return public_schema(schema, is_sensitive=definition.sensitive)


def annotations(definition: ToolDefinition) -> dict[str, Any]:
    """Hints from side effects and danger; what is not declared is unknown, and counts as the worse."""
    effects = definition.effects
    may_write = effects is None or definition.has_write_effects
    is_tame = effects is not None and definition.danger_level.rank < Danger.MEDIUM.rank
    return {
        "readOnlyHint": not may_write,
        "destructiveHint": may_write and not is_tame,
        "idempotentHint": definition.idempotent or not may_write,
        "openWorldHint": effects is None or bool(_OPEN_WORLD & set(effects)),
    }


def result_data(result: ToolResult, definition: ToolDefinition | None, *, is_modern: bool) -> dict[str, Any]:
    """What a model gets: the value, or an error that it can do something about."""
    data: dict[str, Any]
    if result.error is not None:
        data = {"content": [text(result.error.text)], "isError": True}
    elif result.status == "ok" and definition is not None and result.truncation is None:
        data = _value_data(result.value, definition, result.hash, is_modern=is_modern)
    else:
        # A part of an object satisfies no output schema: a client that checks would refuse it as a fault.
        is_cut = result.truncation is not None and result.value is None
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
    """A block of text."""
    return {"type": "text", "text": words}


def _shaper(*, is_modern: bool) -> Callable[[Shown], dict[str, Any]]:
    return lambda shown: tool_data(shown.alias, shown.definition, shown.schema, is_modern=is_modern)


def read(request: dict[str, Any]) -> Turn:
    """The call of a `tools/call` request, or of its params alone."""
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
        read=read,
        stream=None,
        write=_writer(is_modern=is_modern),
        features=frozenset(("outputs",)),
    )


MODERN: Final = _vendor("mcp", is_modern=True)
BEFORE: Final = _vendor("mcp-2025-11-25", is_modern=False)
