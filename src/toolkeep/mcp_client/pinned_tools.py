"""Pinned lists of a server: a file beside the configuration, written when a person accepted the tools.

It holds the tools, and the prompts, resources and resource templates where these are passed on. A keep opens
from it without starting the server. Each session compares it with what the server lists: a tool whose
description changed (rug pull) is not called (REG-3).
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from toolkeep.errors import FileUnreadable
from toolkeep.host.files import read_named
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.sources.definition_files import data_of

if TYPE_CHECKING:
    from toolkeep.registry.lockfile import LockedPackage

ListName = Literal["tools", "prompts", "resources", "templates"]
Entry = dict[str, Any]

_RESOURCE: Final = ("name", "title", "description", "mimeType")
_FIELDS: Final[dict[ListName, tuple[str, ...]]] = {
    "tools": ("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    "prompts": ("name", "title", "description", "arguments"),
    "resources": ("uri", *_RESOURCE),
    "templates": ("uriTemplate", *_RESOURCE),
}
"""Fields of an entry that are pinned, the one that identifies it first; others are ignored."""


class PinnedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The server info and lists as pinned."""

    server: dict[str, str]
    tools: tuple[Entry, ...]
    prompts: tuple[Entry, ...] = ()
    resources: tuple[Entry, ...] = ()
    templates: tuple[Entry, ...] = ()
    packages: PinnedPackages | None = None
    """What its program is installed from, if a package runner starts it."""

    def locked_packages(self) -> "tuple[LockedPackage, ...]":
        """Its packages as toolkeep.lock lists them."""
        return self.packages.locked() if self.packages is not None else ()

    def to_bytes(self) -> bytes:
        """The file content: readable, and deterministic for the same lists."""
        more = {"prompts": self.prompts, "resources": self.resources, "templates": self.templates}
        passed_on: dict[str, Any] = {name: entries for name, entries in more.items() if entries}
        if self.packages is not None:
            passed_on["packages"] = self.packages.to_dict()
        data = {"server": self.server, "tools": list(self.tools), **passed_on}
        return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def identity(entry: Entry, of: ListName = "tools") -> str:
    """What a call names the entry of a list by: a name, a URI, or a URI template."""
    return str(entry.get(_FIELDS[of][0], ""))


def described(entry: Entry, of: ListName = "tools") -> Entry:
    """An entry reduced to its pinned fields."""
    return {key: entry[key] for key in _FIELDS[of] if entry.get(key) is not None}


def fingerprint(entry: Entry, of: ListName = "tools") -> str:
    """SHA-256 over the canonical JSON of an entry's pinned fields; empty if it has no canonical form."""
    try:
        return hashlib.sha256(canonical_bytes(described(entry, of))).hexdigest()
    except (TypeError, ValueError, RecursionError, OverflowError):
        return ""


def read_listing(path: Path) -> tuple[PinnedTools, str]:
    """Read a pinned list and the hash of its bytes; raises `FileUnreadable`."""
    raw = read_named(path, DEFINITION_FILE_BYTES)
    data = data_of(raw, path)
    stated = data if isinstance(data, dict) else {}
    lists = {
        "tools": stated.get("tools"),
        **{name: stated.get(name, []) for name in _FIELDS if name in stated},
    }
    for entries in lists.values():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise FileUnreadable(str(path), "holds no tools of an MCP server; run `toolkeep add mcp` again")
    server = stated.get("server")
    named = server if isinstance(server, dict) else {}
    known = {key: value for key, value in named.items() if isinstance(value, str)}
    digest = hashlib.sha256(raw).hexdigest()
    try:
        packages = PinnedPackages.read(data["packages"]) if "packages" in data else None
    except ValueError as error:
        raise FileUnreadable(str(path), f"{error}; run `toolkeep add mcp` again") from None
    listed = {name: tuple(entries) for name, entries in lists.items()}
    return PinnedTools(server=known, packages=packages, **listed), digest
