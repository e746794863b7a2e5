"""`toolkeep install`: lets an MCP client start the keep, by a few lines in the client's own configuration."""

import difflib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from toolkeep.cli.agents import say_if_undeclared
from toolkeep.cli.options import common, is_terminal, print_json, project, say
from toolkeep.errors import FileUnreadable
from toolkeep.limits import CONFIG_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """A program that starts MCP servers: where it looks for them, and under which key."""

    title: str
    path: Callable[[Path], Path]
    """Its file, from the folder of the project."""
    key: str = "mcpServers"
    has_type: bool = False
    """Whether an entry says that it is a program to start."""


def _in_project(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _in_home(*parts: str) -> Callable[[Path], Path]:
    return lambda _: Path.home().joinpath(*parts)


def _claude_desktop(_: Path) -> Path:
    folder = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return Path.home() / folder / "Claude" / "claude_desktop_config.json"


CLIENTS = {
    "claude": McpClient(title="Claude Code", path=_in_project(".mcp.json"), has_type=True),
    "claude-desktop": McpClient(title="Claude Desktop", path=_claude_desktop),
    "cursor": McpClient(title="Cursor", path=_in_project(".cursor", "mcp.json")),
    "gemini": McpClient(title="Gemini CLI", path=_in_project(".gemini", "settings.json")),
    "vscode": McpClient(
        title="VS Code", path=_in_project(".vscode", "mcp.json"), key="servers", has_type=True
    ),
    "windsurf": McpClient(title="Windsurf", path=_in_home(".codeium", "windsurf", "mcp_config.json")),
}


@click.command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice(sorted(CLIENTS)))
@click.option("--name", default="toolkeep", show_default=True, help="What the client calls it.")
@click.option("--agent", default="mcp-local", show_default=True, help="Whose calls the client's are.")
@click.option("--find-tools", is_flag=True, help="List two tools that find and call all the others.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    client: str,
    name: str,
    agent: str,
    find_tools: bool,  # noqa: FBT001 -- click hands options over by name
    yes: bool,  # noqa: FBT001 -- the same
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Let the MCP client CLIENT start the keep of this project.

    CLIENT is claude (Claude Code), claude-desktop, cursor, gemini, vscode or windsurf. Shows what changes in
    its configuration, and asks before it is written. Everything else in that file stays. Exit status 0 if the
    client is set up.
    """
    from toolkeep.assembly import project_folder

    root = project_folder(project)
    which = CLIENTS[client]
    path = Path(os.path.realpath(which.path(root)))  # a link stays one; what changes goes by its own name
    before = _read(path)
    after = _with_entry(before, path, which, name, _entry(which, root, agent, find_tools=find_tools))
    if as_json and (before == after or not yes):
        print_json({"path": str(path), "before": before, "after": after, "written": False})
        sys.exit(0 if before == after else 1)
    say_if_undeclared(agent, root)
    if before == after:
        say(f" {which.title} is set up already: {path}", label="✓", color="green")
        return
    if not as_json:
        _show(path, before, after)
    if not (yes or _agreed()):
        say("Nothing was written.", err=True)
        sys.exit(1)
    _write(path, after)
    if as_json:
        print_json({"path": str(path), "before": before, "after": after, "written": True})
    else:
        say(f" wrote {path}; restart {which.title} to see the tools", label="✓", color="green")


def _entry(client: McpClient, root: Path, agent: str, *, find_tools: bool) -> dict[str, Any]:
    # Clients start it in the project; without -P, Python would import a click.py that lies there.
    arguments = ["-P", "-m", "toolkeep", "mcp", "--project", str(root), "--agent", agent]
    arguments += ["--find-tools"] if find_tools else []
    entry: dict[str, Any] = {"command": sys.executable, "args": arguments}
    return {"type": "stdio", **entry} if client.has_type else entry


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(CONFIG_FILE_BYTES + 1)
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise FileUnreadable(str(path), "is not UTF-8 text") from error
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be read") from error
    if len(text) > CONFIG_FILE_BYTES:
        raise FileUnreadable(str(path), f"is over {CONFIG_FILE_BYTES} bytes")
    return text


def _with_entry(before: str, path: Path, client: McpClient, name: str, entry: dict[str, Any]) -> str:
    """The file with the entry; raises where that would lose something of what it says."""
    wanted = {client.key: {name: entry}}
    try:
        data = _plain(before) if before.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _by_hand(path, "is no plain JSON", wanted) from error
    if not isinstance(data, dict):
        raise _by_hand(path, "is no JSON object", wanted)
    servers = data.setdefault(client.key, {})
    if not isinstance(servers, dict):
        raise _by_hand(path, f"has no object under {client.key!r}", wanted)
    if servers.get(name) == entry:
        return before
    servers[name] = entry
    return json.dumps(data, indent=_indent(before), ensure_ascii=False) + "\n"


def _plain(text: str) -> Any:
    """The data of JSON text; ValueError where it could not be written back as it stands."""
    data = json.loads(text, object_pairs_hook=_each_once)
    json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    return data


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a key stands there twice")
    return data


def _by_hand(path: Path, reason: str, wanted: dict[str, Any]) -> FileUnreadable:
    return FileUnreadable(str(path), f"{reason}; add this to it by hand:\n{json.dumps(wanted, indent=2)}")


def _indent(text: str) -> str:
    """How the file is indented, by its first line that is."""
    found = re.search(r"^[ \t]+(?=\S)", text, re.MULTILINE)
    return found[0] if found else "  "


def _show(path: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{path} (now)", f"{path} (then)", lineterm=""
    )
    for line in lines:
        color = {"+": "green", "-": "red"}.get(line[:1])
        say(line[1:], label=line[:1], color=color)


def _agreed() -> bool:
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        say("\nAgree with --yes; there is nobody to ask here.", err=True)
        return False
    return click.confirm("\nWrite this?", default=False, err=True)


def _write(path: Path, text: str) -> None:
    from toolkeep.storage.atomic import write_whole

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        write_whole(path, text.encode(), mode=mode)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
