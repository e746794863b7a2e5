"""Pinned tool list of a server: a file beside the configuration, written when a person accepted the tools.

A keep opens from it without starting the server. Each session compares it with what the server lists: a tool
whose description changed (rug pull) is not called (REG-3).
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolkeep.errors import FileUnreadable
from toolkeep.host.files import read_named
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.sources.definition_files import data_of

if TYPE_CHECKING:
    from toolkeep.registry.lockfile import LockedPackage

_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""Fields of a tool that are pinned; others are ignored."""


class PinnedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The server info and tools as pinned."""

    server: dict[str, str]
    tools: tuple[dict[str, Any], ...]
    packages: PinnedPackages | None = None
    """What its program is installed from, if a package runner starts it."""

    def locked_packages(self) -> "tuple[LockedPackage, ...]":
        """Its packages as toolkeep.lock lists them."""
        return self.packages.locked() if self.packages is not None else ()

    def to_bytes(self) -> bytes:
        """The file content: readable, and deterministic for the same tools."""
        data: dict[str, Any] = {"server": self.server, "tools": list(self.tools)}
        if self.packages is not None:
            data["packages"] = self.packages.to_dict()
        return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def described(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool reduced to its pinned fields."""
    return {key: tool[key] for key in _FIELDS if tool.get(key) is not None}


def fingerprint(tool: dict[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a tool's pinned fields; empty if it has no canonical form."""
    try:
        return hashlib.sha256(canonical_bytes(described(tool))).hexdigest()
    except (TypeError, ValueError, RecursionError, OverflowError):
        return ""


def read_listing(path: Path) -> tuple[PinnedTools, str]:
    """Read a pinned list and the hash of its bytes; raises `FileUnreadable`."""
    raw = read_named(path, DEFINITION_FILE_BYTES)
    data = data_of(raw, path)
    tools = data.get("tools") if isinstance(data, dict) else None
    server = data.get("server") if isinstance(data, dict) else None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise FileUnreadable(str(path), "holds no tools of an MCP server; run `toolkeep add mcp` again")
    named = server if isinstance(server, dict) else {}
    known = {key: value for key, value in named.items() if isinstance(value, str)}
    digest = hashlib.sha256(raw).hexdigest()
    try:
        packages = PinnedPackages.read(data["packages"]) if "packages" in data else None
    except ValueError as error:
        raise FileUnreadable(str(path), f"{error}; run `toolkeep add mcp` again") from None
    return PinnedTools(server=known, tools=tuple(tools), packages=packages), digest
