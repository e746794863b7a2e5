"""Tools and results as MCP has them: a `RegisteredTool` becomes a tool of a list, a `ToolResult` a result.

What a client sees of a schema is its public form; secrets stay here. The same tools give the same bytes.
"""

import base64
from typing import Any

import msgspec

from toolkeep.calls import RegisteredTool, ToolResult, json_text
from toolkeep.definitions.public import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Danger, SideEffect
from toolkeep.wire.messages import encode

METADATA_KEY = "mcp"
"""What of a definition's metadata is for MCP: `title`, `content`, `mime_type`, `task`."""

_BLOCKS = frozenset(("text", "image", "audio", "resource", "resource_link"))


def for_mcp(definition: ToolDefinition) -> dict[str, Any]:
    """What a definition says for MCP alone."""
    said = definition.metadata.get(METADATA_KEY)
    return said if isinstance(said, dict) else {}


class ToolList:
    """Encodes tools, each once."""

    def __init__(self) -> None:
        self._encoded: dict[tuple[str, str, bool], bytes] = {}

    def encode(self, tools: list[RegisteredTool], *, is_modern: bool) -> msgspec.Raw:
        """The array of these tools."""
        known, kept = self._encoded, {}
        parts = []
        for tool in tools:
            key = (tool.name, tool.definition_hash, is_modern)
            part = known.get(key) or encode(tool_data(tool, is_modern=is_modern))
            kept[key] = part
            parts.append(part)
        if len(known) > 2 * len(kept) + 1000:  # tools that are gone need not be remembered
            self._encoded = kept
        else:
            known.update(kept)
        return msgspec.Raw(b"[" + b",".join(parts) + b"]")


def tool_data(tool: RegisteredTool, *, is_modern: bool) -> dict[str, Any]:
    """One tool of a list."""
    definition = tool.definition
    parameters = public_schema(definition.parameters, is_sensitive=definition.sensitive)
    data: dict[str, Any] = {
        "name": tool.name,
        "title": title(definition),
        "description": definition.full_description,
        "inputSchema": {"type": "object", **parameters},
        "annotations": annotations(tool),
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


def annotations(tool: RegisteredTool) -> dict[str, Any]:
    """Hints from side effects and danger; what is not declared is unknown, and counts as the worse."""
    definition = tool.definition
    effects = definition.side_effects
    is_tame = effects is not None and definition.danger_level.rank < Danger.MEDIUM.rank
    return {
        "readOnlyHint": not tool.may_write,
        "destructiveHint": tool.may_write and not is_tame,
        "idempotentHint": definition.idempotent or not tool.may_write,
        "openWorldHint": effects is None or bool({SideEffect.NET_READ, SideEffect.NET_WRITE} & set(effects)),
    }


def result_data(result: ToolResult, tool: RegisteredTool | None, *, is_modern: bool) -> dict[str, Any]:
    """What a model gets: the value, or an error that it can do something about."""
    data: dict[str, Any]
    if result.error is not None:
        data = {"content": [text(result.error.text)], "isError": True}
    elif result.status == "ok" and tool is not None and result.truncation is None:
        data = _value_data(result.value, tool.definition, result.hash, is_modern=is_modern)
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
    if said.get("content") and _is_content(value):
        return {"content": value}
    if isinstance(value, str) and definition.output_schema is None:
        return {"content": [text(value)]}
    data: dict[str, Any] = {"content": [text(value if isinstance(value, str) else json_text(value))]}
    if isinstance(value, dict) or output_schema(definition, is_modern=is_modern) is not None:
        data["structuredContent"] = value
    return data


def _is_content(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(block, dict) and block.get("type") in _BLOCKS for block in value
    )


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
