"""The MCP clients that toolkeep configures: where each has its file, and the form of an entry in it.

An entry starts `toolkeep mcp` on this machine (`program_entry`), or names a server that runs already, with a
token (`address_entry`). Nothing is read or written here.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolkeep.host.files import is_there
from toolkeep.text.toml_text import with_table

MODULE: Final = ("-P", "-m", "toolkeep")
"""What a client passes to Python. It starts it in the project folder: without -P, Python would import a
`click.py` from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """An MCP client: its configuration file, and the form of an entry."""

    title: str
    path: Callable[[Path], Path]
    """Its file, from the folder of the project."""
    key: str = "mcpServers"
    type: str = ""
    """The `type` of an entry, which says that it is a program to start."""
    folder: str = ""
    """How its file names the folder of the project. Such a file lies in the project and may be committed;
    a clone or a tool may have put a link in its place."""
    has_one_list: bool = False
    """Whether program and arguments are one list, and variables are called `environment`."""
    is_toml: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of an entry."""
    note: str = ""
    """What the client needs beside the entry."""
    address_key: str = "url"
    """What an entry calls the address of a server that runs already; empty if the client's file has none."""
    address_type: str = ""
    """The `type` of such an entry."""
    headers_key: str = "headers"
    hides_waiting: bool = False
    """Whether it shows nobody the progress and log messages about a call that waits for approval."""


def _in_project(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _in_home(*parts: str) -> Callable[[Path], Path]:
    return lambda _: Path.home().joinpath(*parts)


def _claude_desktop(_: Path) -> Path:
    folder = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return Path.home() / folder / "Claude" / "claude_desktop_config.json"


def _opencode(project: Path) -> Path:
    """Its file may have comments and is then called .jsonc; of both, the one that is there."""
    plain, commented = project / "opencode.json", project / "opencode.jsonc"
    return commented if is_there(commented) and not is_there(plain) else plain


CLIENTS = {
    "claude": McpClient(
        title="Claude Code",
        path=_in_project(".mcp.json"),
        type="stdio",
        folder="${CLAUDE_PROJECT_DIR:-.}",
        address_type="http",
    ),
    "claude-desktop": McpClient(title="Claude Desktop", path=_claude_desktop, address_key=""),
    "codex": McpClient(
        title="Codex",
        path=_in_project(".codex", "config.toml"),
        key="mcp_servers",
        folder=".",
        is_toml=True,
        # Codex begins without a server that is not ready, and declines calls of tools that write by itself:
        # whether a person must agree is for this keep to decide. It ends if a required server does not start:
        # files of tools that wait to be accepted are therefore left out, and no reason not to start.
        more={"required": True, "default_tools_approval_mode": "approve"},
        note="Codex reads it once you trust the project, and asks for that when it starts here",
        headers_key="http_headers",
        hides_waiting=True,
    ),
    "cursor": McpClient(title="Cursor", path=_in_project(".cursor", "mcp.json"), folder="${workspaceFolder}"),
    "gemini": McpClient(
        title="Gemini CLI",
        path=_in_project(".gemini", "settings.json"),
        folder=".",
        address_key="httpUrl",
    ),
    "opencode": McpClient(
        title="opencode",
        path=_opencode,
        key="mcp",
        type="local",
        folder=".",
        has_one_list=True,
        address_type="remote",
    ),
    "vscode": McpClient(
        title="VS Code",
        path=_in_project(".vscode", "mcp.json"),
        key="servers",
        type="stdio",
        folder="${workspaceFolder}",
        address_type="http",
    ),
    "windsurf": McpClient(
        title="Windsurf",
        path=_in_home(".codeium", "windsurf", "mcp_config.json"),
        address_key="serverUrl",
    ),
}


def program_entry(client: McpClient, words: Sequence[str]) -> dict[str, Any]:
    """An entry that starts a program; it gets TOOLKEEP_HOME of this process."""
    kind = {"type": client.type} if client.type else {}
    home = os.environ.get("TOOLKEEP_HOME")
    variables = {"TOOLKEEP_HOME": str(Path(home).absolute())} if home else {}
    if client.has_one_list:
        more = {"environment": variables} if home else {}
        return {**kind, "command": list(words), "enabled": True, **more}
    start = {"command": words[0], "args": list(words[1:]), **({"env": variables} if home else {})}
    return {**kind, **start, **client.more}


def address_entry(client: McpClient, address: str, token: str) -> dict[str, Any]:
    """An entry for a server that runs already; ValueError if the client's file cannot name one."""
    if not client.address_key:
        raise ValueError(f"{client.title} names programs only")
    kind = {"type": client.address_type} if client.address_type else {}
    switch = {"enabled": True} if client.has_one_list else {}
    headers = {client.headers_key: {"Authorization": f"Bearer {token}"}}
    return {**kind, client.address_key: address, **switch, **headers, **client.more}


def entry_text(client: McpClient, name: str, entry: Mapping[str, Any]) -> str:
    """A whole file with this entry alone."""
    if client.is_toml:
        return with_table("", (client.key, name), entry)
    return json.dumps({client.key: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
