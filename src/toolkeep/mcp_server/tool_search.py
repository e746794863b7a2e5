"""`find_tools` and `call_tool`: search instead of listing every tool.

The model searches and gets the few definitions that match, among those that its agent may see. Calls run
under the tool's own name, through the same checks as any other call.
"""

from typing import Any, Final

import jiter
import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.keep.keep import Keep
from toolkeep.limits import FOUND_TOOLS, QUERY_CHARS
from toolkeep.mcp_protocol.jsonrpc import encode
from toolkeep.mcp_server.tools_list import tool_data
from toolkeep.providers.mcp import text
from toolkeep.providers.typed_views import for_typed_views

FIND: Final = "find_tools"
CALL: Final = "call_tool"

STANDING_FOR_ALL: Final[list[dict[str, Any]]] = [
    {
        "name": FIND,
        "title": "Find tools",
        "description": "Find the tools that fit a task. Returns their names, descriptions and input schemas. "
        f"Call one of them with {CALL}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What the tool should do, in plain words.",
                    "maxLength": QUERY_CHARS,
                },
                "limit": {"type": "integer", "minimum": 1, "maximum": FOUND_TOOLS, "default": 5},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": CALL,
        "title": "Call a found tool",
        "description": f"Call a tool that {FIND} returned, with arguments that fit its input schema.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": f"The name of the tool, as {FIND} gave it."},
                "arguments": {"type": "object", "description": "The arguments of that tool."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "annotations": {"readOnlyHint": False, "openWorldHint": True},
    },
]


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    limit: int = 5


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def find(keep: Keep, agent: str, arguments: bytes, *, is_modern: bool) -> dict[str, Any]:
    """The result of `find_tools`."""
    try:
        wanted = msgspec.json.decode(arguments, type=_Query)
    except (ValueError, RecursionError) as error:
        return _refused(FIND, error)
    offered = {tool.name for tool in keep.offered_tools(agent=agent)}
    ranked: list[RegisteredTool] = keep.search(wanted.query[:QUERY_CHARS], limit=len(keep), agent=agent)
    found = [tool for tool in ranked if tool.name in offered][: max(1, min(wanted.limit, FOUND_TOOLS))]
    described = map(for_typed_views, found) if keep.has_typed_views else found
    shown = [_shown(tool, is_modern=is_modern) for tool in described]
    data = {"tools": shown, "total": len(offered)}
    return {"content": [text(encode(data).decode())], "structuredContent": data}


def _shown(tool: RegisteredTool, *, is_modern: bool) -> dict[str, Any]:
    data = tool_data(tool, is_modern=is_modern)
    return {key: data[key] for key in ("name", "description", "inputSchema")}


def read_call(arguments: bytes) -> tuple[str, bytes] | dict[str, Any]:
    """The tool and arguments of a `call_tool`, or the result that says what is wrong."""
    try:
        called = msgspec.json.decode(arguments, type=_Named)
        # Duplicate keys: this parser would take the last `name`, another one (a proxy, a log) the first.
        jiter.from_json(arguments.replace(bytes(called.arguments), b"0", 1), catch_duplicate_keys=True)
    except (ValueError, RecursionError) as error:
        return _refused(CALL, error)
    return called.name, bytes(called.arguments)


def _refused(name: str, error: Exception) -> dict[str, Any]:
    return {"content": [text(f"{name} was not called: {error}.")], "isError": True}
