"""`toolkeep install`: register the keep in an MCP client's configuration file.

`--remove` removes the entry. Nothing else in the file changes.
"""

import difflib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from toolkeep.cli.json_text import with_member, without_member
from toolkeep.cli.options import common, is_agreed, is_terminal, print_json, project, say, say_done, warn
from toolkeep.errors import FileUnreadable
from toolkeep.host.files import check_inside, is_there
from toolkeep.limits import CONFIG_FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """An MCP client: its configuration file, and the key of its servers."""

    title: str
    path: Callable[[Path], Path]
    """Its file, from the folder of the project."""
    key: str = "mcpServers"
    has_type: bool = False
    """Whether an entry says that it is a program to start."""
    is_of_project: bool = True
    """Whether its file lies in the project, where a clone or a tool may have put a link in its place."""


def _in_project(*parts: str) -> Callable[[Path], Path]:
    return lambda project: project.joinpath(*parts)


def _in_home(*parts: str) -> Callable[[Path], Path]:
    return lambda _: Path.home().joinpath(*parts)


def _claude_desktop(_: Path) -> Path:
    folder = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return Path.home() / folder / "Claude" / "claude_desktop_config.json"


CLIENTS = {
    "claude": McpClient(title="Claude Code", path=_in_project(".mcp.json"), has_type=True),
    "claude-desktop": McpClient(title="Claude Desktop", path=_claude_desktop, is_of_project=False),
    "cursor": McpClient(title="Cursor", path=_in_project(".cursor", "mcp.json")),
    "gemini": McpClient(title="Gemini CLI", path=_in_project(".gemini", "settings.json")),
    "vscode": McpClient(
        title="VS Code", path=_in_project(".vscode", "mcp.json"), key="servers", has_type=True
    ),
    "windsurf": McpClient(
        title="Windsurf",
        path=_in_home(".codeium", "windsurf", "mcp_config.json"),
        is_of_project=False,
    ),
}


def _readable(_: click.Context, __: click.Parameter, name: str) -> str:
    if not (name.strip() and name.isprintable()):
        raise click.BadParameter("is no name that a person could read")
    return name


@click.command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice(sorted(CLIENTS)))
@click.option(
    "--name", default="toolkeep", show_default=True, callback=_readable, help="What the client calls it."
)
@click.option(
    "--agent",
    default="mcp-local",
    show_default=True,
    callback=_readable,
    help="Whose calls the client's are.",
)
@click.option("--find-tools", is_flag=True, help="List two tools that find and call all the others.")
@click.option("--remove", is_flag=True, help="Take the entry out again.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    client: str,
    name: str,
    agent: str,
    project: Path | None,
    *,
    find_tools: bool,
    remove: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Let the MCP client CLIENT start the keep of this project, or --remove it from there.

    CLIENT is claude (Claude Code), claude-desktop, cursor, gemini, vscode or windsurf. Shows what changes in
    its configuration, and asks before it is written. Everything else in that file stays, to the letter. Exit
    status 0 if the client is set up, or with --dry-run, if it can be.
    """
    from toolkeep.keep.open import project_folder

    root = project_folder(project)
    which = CLIENTS[client]
    named = which.path(root)
    path = Path(os.path.realpath(named))  # the target is rewritten, and the link stays
    if which.is_of_project:
        _check_link(root, named, path, is_agreed_unseen=yes or as_json)
    before = _read(path)
    if remove:
        after = _without_entry(before, path, which, name)
        done, next_step = f"{which.title} has no '{name}'", "to let go of it"
    else:
        after = _with_entry(before, path, which, name, _entry(which, root, agent, find_tools=find_tools))
        done, next_step = f"{which.title} is set up already", "to see the tools"
    shown = {"path": str(path), "before": before, "after": after}
    if as_json and (before == after or dry_run or not yes):
        print_json({**shown, "written": False})
        sys.exit(0 if before == after or dry_run else 1)
    if not remove:
        from toolkeep.cli.tool_selection import warn_if_undeclared

        warn_if_undeclared(agent, root)
        _say_if_taken(before, path, which, name, root)
    if before == after:
        say_done(f"{done}: {path}")
        return
    if not as_json:
        _show(path, before, after)
    if dry_run or not (yes or _agreed()):
        say("Nothing was written.", err=True)
        sys.exit(0 if dry_run else 1)
    _write(path, after)
    if not remove:
        _say_same_user(which)
    if as_json:
        print_json({**shown, "written": True})
    else:
        say_done(f"wrote {path}; restart {which.title} {next_step}")


def _check_link(root: Path, named: Path, path: Path, *, is_agreed_unseen: bool) -> None:
    """Refuse to write through a symbolic link out of the project unless a person saw the target."""
    try:
        check_inside(root, named)
    except FileUnreadable:
        if is_agreed_unseen or not _is_somebody_there():
            raise
        warn(f"{named} is reached by a link that leads out of the project, to {path}")


def _entry(client: McpClient, root: Path, agent: str, *, find_tools: bool) -> dict[str, Any]:
    try:
        str(root).encode()
    except UnicodeEncodeError as error:
        reason = "is a folder that JSON has no words for: its name is not UTF-8; rename it"
        raise FileUnreadable(str(root), reason) from error
    # Clients start it in the project folder: without -P, Python would import a `click.py` from there.
    arguments = ["-P", "-m", "toolkeep", "mcp", "--project", str(root), "--agent", agent]
    arguments += ["--find-tools"] if find_tools else []
    entry: dict[str, Any] = {"command": sys.executable, "args": arguments}
    return {"type": "stdio", **entry} if client.has_type else entry


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:  # line endings stay
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
    """The file with the entry."""
    by_hand = f"add this to it by hand:\n{json.dumps({client.key: {name: entry}}, indent=2)}"
    if _servers(before, path, client, by_hand).get(name) == entry:
        return before
    if not before.strip():
        return json.dumps({client.key: {name: entry}}, indent=2, ensure_ascii=False) + "\n"
    return with_member(before, (client.key, name), entry)


def _say_same_user(client: McpClient) -> None:
    """Say what no check can prevent: commands that run as this user have the rights of this user."""
    say(
        f"  If {client.title} also runs commands as your user, its agent can do what you can: approve",
        err=True,
    )
    say("  calls, make tokens, change what the keep remembers. Keep them apart: docs/threats.md", err=True)


def _say_if_taken(before: str, path: Path, client: McpClient, name: str, root: Path) -> None:
    """Warn that the name belongs to another project's keep or another server, whose entry is replaced."""
    held = _servers(before, path, client, "").get(name)
    arguments = held.get("args") if isinstance(held, dict) else None
    if held and not (isinstance(arguments, list) and str(root) in arguments):
        text = f" '{name}' is the entry of another project or server there, which goes; --name keeps both"
        say(text, label="!", color="yellow", err=True)


def _without_entry(before: str, path: Path, client: McpClient, name: str) -> str:
    """The file without the entry."""
    by_hand = f"remove {name!r} under {client.key!r} by hand"
    if name not in _servers(before, path, client, by_hand):
        return before
    return without_member(before, (client.key, name))


def _servers(text: str, path: Path, client: McpClient, by_hand: str) -> dict[str, Any]:
    """The servers in a file; raises if it cannot be edited safely."""
    try:
        data = _plain(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise FileUnreadable(str(path), f"is no plain JSON; {by_hand}") from error
    if not isinstance(data, dict):
        raise FileUnreadable(str(path), f"is no JSON object; {by_hand}")
    servers = data.get(client.key, {})
    if not isinstance(servers, dict):
        raise FileUnreadable(str(path), f"has no object under {client.key!r}; {by_hand}")
    return servers


def _plain(text: str) -> Any:
    """Parse JSON; ValueError if parsers could disagree about it."""
    return json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a key stands there twice")
    return data


def _show(path: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{path} (now)", f"{path} (then)", lineterm=""
    )
    for line in lines:
        color = {"+": "green", "-": "red"}.get(line[:1])
        say(line[1:], label=line[:1], color=color)


def _is_somebody_there() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def _agreed() -> bool:
    if not _is_somebody_there():
        say("", "Agree with --yes; there is nobody to ask here.", err=True)
        return False
    return is_agreed("\nWrite this?")


def _write(path: Path, text: str) -> None:
    from toolkeep.storage.atomic_files import write_whole

    if os.path.realpath(path) != str(path):  # a tool could swap a folder for a link while the person reads
        raise FileUnreadable(str(path), "is reached by a link that was not there before; look at it again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if is_there(path) else 0o600
        write_whole(path, text.encode(), mode=mode)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
