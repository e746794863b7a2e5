"""The tools of a list, encoded as MCP has them. The same tools give the same bytes."""

from typing import Any

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.public import public_schema
from toolkeep.providers import mcp as provider
from toolkeep.wire.messages import encode


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
    return provider.tool_data(tool.name, definition, parameters, is_modern=is_modern)
