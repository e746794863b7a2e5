"""The tools of a server as they were when a person took them over: a file beside the configuration.

A keep opens from it without starting the server, and each conversation compares what the server says then: a
tool that is described otherwise by now does not answer (REG-3).
"""

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.canonical import canonical_bytes
from toolkeep.errors import FileUnreadable
from toolkeep.files import read_named
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.sources.files import data_of

_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""What a description of a tool consists of; what else a server says of it is not looked at."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said of itself and its tools."""

    server: dict[str, str]
    tools: tuple[dict[str, Any], ...]

    def to_bytes(self) -> bytes:
        """The file, readable and the same for the same tools."""
        data = {"server": self.server, "tools": list(self.tools)}
        return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def described(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool with what describes it, and nothing else."""
    return {key: tool[key] for key in _FIELDS if tool.get(key) is not None}


def fingerprint(tool: dict[str, Any]) -> str:
    """SHA-256 of what describes a tool; empty where that has no canonical form."""
    try:
        return hashlib.sha256(canonical_bytes(described(tool))).hexdigest()
    except (TypeError, ValueError, RecursionError, OverflowError):
        return ""


def read_listing(path: Path) -> tuple[Listing, str]:
    """The listing of a file and the hash of its bytes; `FileUnreadable` where it is none."""
    raw = read_named(path, DEFINITION_FILE_BYTES)
    data = data_of(raw, path)
    tools = data.get("tools") if isinstance(data, dict) else None
    server = data.get("server") if isinstance(data, dict) else None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise FileUnreadable(str(path), "holds no tools of an MCP server; run `toolkeep add mcp` again")
    named = server if isinstance(server, dict) else {}
    known = {key: value for key, value in named.items() if isinstance(value, str)}
    digest = hashlib.sha256(raw).hexdigest()
    return Listing(server=known, tools=tuple(tools)), digest
