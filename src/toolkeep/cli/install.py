"""`toolkeep install`: register the keep in an MCP client's configuration file.

`--remove` removes the entry, and the file if nothing else is in it. Nothing else in the file changes.
"""

import difflib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkeep.cli.json_text import with_member, without_member
from toolkeep.cli.options import (
    common,
    is_agreed,
    is_terminal,
    print_json,
    project,
    say,
    say_done,
    tools_argument,
    warn,
)
from toolkeep.errors import FileUnreadable
from toolkeep.host.files import check_inside, is_there
from toolkeep.limits import CONFIG_FILE_BYTES
from toolkeep.mcp_server.client_entries import CLIENTS, MODULE, McpClient, entry_text, program_entry
from toolkeep.text.display import visible
from toolkeep.text.toml_text import with_table, without_table

if TYPE_CHECKING:
    from toolkeep.config.tools_file import ToolsFile


def _readable(_: click.Context, __: click.Parameter, name: str) -> str:
    if not (name.strip() and name.isprintable()):
        raise click.BadParameter("must be readable: no control characters, not empty")
    return name


@click.command("install")
@click.argument("client", metavar="CLIENT", type=click.Choice(sorted(CLIENTS)))
@tools_argument
@click.option(
    "--name",
    default="toolkeep",
    show_default=True,
    callback=_readable,
    help="Name of the entry in the client.",
)
@click.option(
    "--agent",
    default="mcp-local",
    show_default=True,
    callback=_readable,
    help="The agent that the client's calls are made as.",
)
@click.option(
    "--find-tools", is_flag=True, help="Offer only two tools: one finds the others, one calls them."
)
@click.option("--client-answers", is_flag=True, help="Let the client approve calls of up to medium danger.")
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 86_400),
    metavar="SECONDS",
    help="How long a call waits for approval.  [default: as configured, or 50]",
)
@click.option("--remove", is_flag=True, help="Remove the entry, and the file if it then holds nothing.")
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    client: str,
    tools: tuple[str, ...],
    name: str,
    agent: str,
    project: Path | None,
    *,
    find_tools: bool,
    client_answers: bool,
    wait_s: int | None,
    remove: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Add the keep of this project to the configuration of an MCP CLIENT, or --remove it.

    CLIENT is claude (Claude Code), claude-desktop, codex, cursor, gemini, opencode, vscode or windsurf. FILE
    is a Python file or module of @tool functions to serve too; you accept it first, as by `toolkeep accept`.

    Shows the change and asks before writing; the rest of the file stays as it is. A file in the project names
    the project by a relative path, so that you can commit it. TOOLKEEP_HOME is carried over if it is set.
    Exit status 0 if the client is configured, or with --dry-run, if it can be.
    """
    from toolkeep.keep.open import project_folder

    if tools and remove:
        raise click.UsageError("--remove takes no FILE: the whole entry is removed.")
    root = project_folder(project)
    which = CLIENTS[client]
    served = _tools_files(tools, root)
    if not dry_run and (yes or not as_json):
        _accept(served, root, asks=not as_json)
    named = which.path(root)
    path = Path(os.path.realpath(named))  # the target is rewritten, and the link stays
    if which.folder:
        _check_link(root, named, path, is_agreed_unseen=yes or as_json)
    before = _read(path)
    if remove:
        after = _without_entry(before, path, which, name)
        done, next_step = f"{which.title} has no entry '{name}'", "to stop using it"
    else:
        files = [_name_in_entry(which, root, file) for file in served]
        options = _options(wait_s, find_tools=find_tools, client_answers=client_answers)
        after = _with_entry(before, path, which, name, _entry(which, root, agent, files, options))
        done, next_step = f"{which.title} is already configured", "to use the tools"
    is_left = not remove or before == after or named.is_symlink() or not _is_empty(after, which)
    after = after if is_left else ""
    shown = {"path": str(path), "before": before, "after": after}
    if as_json and (before == after or dry_run or not yes):
        print_json({**shown, "written": False})
        sys.exit(0 if before == after or dry_run else 1)
    if not remove:
        from toolkeep.cli.tool_selection import warn_if_undeclared

        warn_if_undeclared(agent, root)
        _warn_of_unlisted(served, agent, root)
        _say_if_taken(before, path, which, name, root)
    if before == after:
        say_done(f"{done}: {path}")
        return
    if not as_json:
        _show(path, before, after)
    if dry_run or not (yes or _agreed()):
        say("Nothing was written.", err=True)
        sys.exit(0 if dry_run else 1)
    _write(path, after if is_left else None)
    if not remove:
        _say_needed(which, root, has_files=bool(served), client_answers=client_answers)
        _say_same_user(which)
    if as_json:
        print_json({**shown, "written": True})
    else:
        say_done(f"{'wrote' if is_left else 'deleted'} {path}; restart {which.title} {next_step}")


def _options(wait_s: int | None, *, find_tools: bool, client_answers: bool) -> list[str]:
    return [
        *(["--find-tools"] if find_tools else []),
        *(["--client-answers"] if client_answers else []),
        *(["--wait", str(wait_s)] if wait_s is not None else []),
    ]


def _check_link(root: Path, named: Path, path: Path, *, is_agreed_unseen: bool) -> None:
    """Refuse to write through a symbolic link out of the project unless a person saw the target."""
    try:
        check_inside(root, named)
    except FileUnreadable:
        if is_agreed_unseen or not _is_somebody_there():
            raise
        warn(f"{named} is reached through a symlink out of the project, to {path}")


def _tools_files(names: Sequence[str], root: Path) -> "Sequence[ToolsFile]":
    if not names:
        return ()
    from toolkeep.cli.tools_files import find_named

    return [find_named(name, root) for name in names]


def _accept(files: "Sequence[ToolsFile]", root: Path, *, asks: bool) -> None:
    """Have files of tools accepted, since a client names them without a terminal; else `NotAccepted`."""
    for file in files:
        from toolkeep.cli.accept_tools import accept_tools
        from toolkeep.cli.tools_files import check_accepted
        from toolkeep.keep.open import open_state

        state = open_state(root)
        if asks and _is_somebody_there() and state and not state.is_accepted(file.key, file.seal):
            accept_tools(file.shown, root, state, None, as_json=False)
        check_accepted(file, root)


def _name_in_entry(client: McpClient, root: Path, file: "ToolsFile") -> str:
    """What the entry calls a file of tools: in a file of the project by a path in it."""
    from toolkeep.config.project_code import is_path

    if not client.folder or not is_path(file.place):
        return file.place
    if not Path(file.place).is_relative_to(os.path.realpath(root)):
        warn(f"{file.place} is a path of this machine: move the file into the project before you commit")
        return file.place
    return f"{client.folder}/{os.path.relpath(file.place, os.path.realpath(root))}"


def _entry(
    client: McpClient, root: Path, agent: str, tools: Sequence[str], options: list[str]
) -> dict[str, Any]:
    try:
        str(root).encode()
    except UnicodeEncodeError as error:
        reason = "has a name that is not UTF-8, which the file cannot hold; rename the folder"
        raise FileUnreadable(str(root), reason) from error
    program = _program(client, root)
    words = [*program, "mcp", *tools, "--project", client.folder or str(root), "--agent", agent, *options]
    return program_entry(client, words)


def _program(client: McpClient, root: Path) -> list[str]:
    """What starts toolkeep: in a file of the project by a path in it or a name, if there is one."""
    if client.folder:
        python = Path(sys.executable)
        if python.is_relative_to(root):
            return [f"{client.folder}/{python.relative_to(root)}", *MODULE]
        command = shutil.which("toolkeep")
        if command and Path(os.path.realpath(command)).parent == python.parent:
            if sys.prefix != sys.base_prefix and Path(command).parent == python.parent:
                warn("the client finds `toolkeep` only if it is started in this activated environment;")
                warn("else install toolkeep globally, or into a .venv of the project")
            return ["toolkeep"]
        warn(
            f"{python} is a path of this machine: install toolkeep into a .venv of the project, or globally,"
        )
        warn("before you commit the file")
    return [sys.executable, *MODULE]


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
    alone = entry_text(client, name, entry)
    by_hand = f"add this to it by hand:\n{alone}"
    if _servers(before, path, client, by_hand).get(name) == entry:
        return before
    if not before.strip():
        return alone
    if not client.is_toml:
        return with_member(before, (client.key, name), entry)
    try:
        return with_table(before, (client.key, name), entry)
    except ValueError as error:
        raise FileUnreadable(str(path), f"cannot be edited in place; {by_hand}") from error


def _warn_of_unlisted(files: "Sequence[ToolsFile]", agent: str, root: Path) -> None:
    """Warn of tools in the files that the agent could call with no arguments: it is not told of them."""
    from toolkeep.keep.open import open_state

    state = open_state(root)
    files = [file for file in files if state and state.is_accepted(file.key, file.seal)]
    if not files:
        return
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.policy.grant_advice import CONFIG_FILE, line_for_tools
    from toolkeep.registry.tool_provider import FILES

    with keep_with(project=root, tools=files) as keep:
        listed = {tool.name for tool in keep.offered_tools(agent=agent)}
        hidden = [tool for tool in keep.tools() if tool.provider == FILES and tool.name not in listed]
        if not hidden or not keep.has_agent(agent):
            return
        line = line_for_tools(keep.holder(agent).grant, agent, [tool.definition for tool in hidden])
    names = ", ".join(visible(tool.name) for tool in hidden)
    if line:
        warn(f"not listed to {visible(agent)}, which lacks a grant: {names}")
        warn(f"to grant it, add this to {CONFIG_FILE}, then run `toolkeep accept`:", f"  {visible(line)}")
    else:
        warn(f"not listed to {visible(agent)}: {names}; `toolkeep policy explain` says why")


def _say_needed(client: McpClient, root: Path, *, has_files: bool, client_answers: bool) -> None:
    from toolkeep.keep.open import open_state, read_proposed

    if client.note:
        say(f"  {client.note}", err=True)
    if client.hides_waiting and not client_answers:
        say(
            f"  {client.title} does not show calls that wait for approval: keep `toolkeep serve` open, or",
            err=True,
        )
        say("  install with --client-answers, which asks in the client up to medium danger", err=True)
    if not has_files and not read_proposed(root, open_state(root)).tools_files:
        say("  To serve tools of your own, name their file under `tools:` in .agent/config.yml", err=True)


def _say_same_user(client: McpClient) -> None:
    """Say what no check can prevent: commands that run as this user have the rights of this user."""
    say(
        f"  If {client.title} also runs commands as your user, its agent can do what you can: approve",
        err=True,
    )
    say(
        "  calls, make tokens, change the state of the keep. The documentation says how to separate", err=True
    )
    say("  them: the page on threats, Same user", err=True)


def _say_if_taken(before: str, path: Path, client: McpClient, name: str, root: Path) -> None:
    """Warn that the name belongs to another project's keep or another server, whose entry is replaced."""
    held = _servers(before, path, client, "").get(name)
    given = (held.get("args") or held.get("command")) if isinstance(held, dict) else None
    words = given if isinstance(given, list) else []
    if held and not ("mcp" in words and (client.folder or str(root)) in words):
        warn(f"the entry '{name}' of another project or server will be replaced; --name NAME keeps both")


def _without_entry(before: str, path: Path, client: McpClient, name: str) -> str:
    """The file without the entry."""
    by_hand = f"remove {name!r} under {client.key!r} by hand"
    if name not in _servers(before, path, client, by_hand):
        return before
    if not client.is_toml:
        return without_member(before, (client.key, name))
    try:
        return without_table(before, (client.key, name))
    except ValueError as error:
        raise FileUnreadable(str(path), f"cannot be edited in place; {by_hand}") from error


def _is_empty(text: str, client: McpClient) -> bool:
    """Whether a file holds nothing but an empty list of servers."""
    if client.is_toml or not text.strip():
        return not text.strip()  # not parsed: comments are somebody's
    return _plain(text) in ({}, {client.key: {}})


def _servers(text: str, path: Path, client: McpClient, by_hand: str) -> dict[str, Any]:
    """The servers in a file; raises if it cannot be edited safely."""
    form = "TOML" if client.is_toml else "plain JSON"
    try:
        data = (tomllib.loads(text) if client.is_toml else _plain(text)) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise FileUnreadable(str(path), f"is not {form}; {by_hand}") from error
    if not isinstance(data, dict):
        raise FileUnreadable(str(path), f"is not a JSON object; {by_hand}")
    servers = data.get(client.key, {})
    if not isinstance(servers, dict):
        raise FileUnreadable(str(path), f"has something other than an object at {client.key!r}; {by_hand}")
    return servers


def _plain(text: str) -> Any:
    """Parse JSON; ValueError if parsers could disagree about it."""
    return json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a key appears twice")
    return data


def _show(path: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{path} (before)", f"{path} (after)", lineterm=""
    )
    for line in lines:
        color = {"+": "green", "-": "red"}.get(line[:1])
        say(line[1:], label=line[:1], color=color)


def _is_somebody_there() -> bool:
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def _agreed() -> bool:
    if not _is_somebody_there():
        say("", "Without a terminal nothing is written. To write, add --yes.", err=True)
        return False
    return is_agreed("\nWrite this?")


def _write(path: Path, text: str | None) -> None:
    """Write the file, or delete it."""
    from toolkeep.storage.atomic_files import write_whole

    if os.path.realpath(path) != str(path):  # a tool could swap a folder for a link while the person reads
        raise FileUnreadable(
            str(path), "is now reached by a link that was not there before; run the command again"
        )
    try:
        if text is None:
            path.unlink()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if is_there(path) else 0o600
        write_whole(path, text.encode(), mode=mode)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be written") from error
