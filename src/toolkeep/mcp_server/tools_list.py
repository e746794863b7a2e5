"""Encodes tool lists for MCP. Equal tools give equal bytes."""

from typing import Any

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.mcp_protocol.jsonrpc import encode
from toolkeep.providers import mcp as provider
from toolkeep.providers.typed_views import for_typed_views
from toolkeep.validation.stated_closing import state_closed_root, state_closing


class ToolList:
    """Encodes tools, with a cache."""

    def __init__(self, *, has_typed_views: bool = False) -> None:
        self._has_typed_views = has_typed_views
        self._encoded: dict[tuple[str, str, bool], bytes] = {}

    def encode(self, tools: list[RegisteredTool], *, is_modern: bool) -> msgspec.Raw:
        """Encode an array of tools."""
        known, kept = self._encoded, {}
        parts = []
        for tool in tools:
            key = (tool.name, tool.definition_hash, is_modern)
            part = known.get(key) or encode(self._data(tool, is_modern=is_modern))
            kept[key] = part
            parts.append(part)
        if len(known) > 2 * len(kept) + 1000:  # drop tools that no longer exist
            self._encoded = kept
        else:
            known.update(kept)
        return msgspec.Raw(b"[" + b",".join(parts) + b"]")

    def _data(self, tool: RegisteredTool, *, is_modern: bool) -> dict[str, Any]:
        return tool_data(for_typed_views(tool) if self._has_typed_views else tool, is_modern=is_modern)


def tool_data(tool: RegisteredTool, *, is_modern: bool) -> dict[str, Any]:
    """One tool of a list, with the secret parts of its schema removed (VAL-6) and closed objects stated."""
    definition = tool.definition
    parameters = public_schema(definition.parameters, is_sensitive=definition.sensitive)
    if state_closing(parameters):
        parameters = state_closed_root(parameters)
    return provider.tool_data(tool.name, definition, parameters, is_modern=is_modern)
