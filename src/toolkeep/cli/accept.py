"""`toolkeep accept`: accept the configuration of a project, or the changed definition of an imported tool."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from toolkeep.cli.acceptance import confirm, difference_lines, finish
from toolkeep.cli.options import common, project, say
from toolkeep.cli.tool_selection import keep_with
from toolkeep.compat.definition_diff import changes_between
from toolkeep.config.paths import PROJECT_FILE, home_folder, outer_projects
from toolkeep.config.project_code import is_of_environment
from toolkeep.config.settings import ConfigFile
from toolkeep.definitions.injection_scan import scan_for_injection
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.errors import NotAccepted
from toolkeep.host.files import is_there
from toolkeep.keep.open import open_state, project_folder, project_origins, read_configuration
from toolkeep.limits import LISTED_NAMES
from toolkeep.registry.lockfile import LOCK_FILE, Difference, differences, of_origins, pinned_lock, read_lock
from toolkeep.registry.pending_review import review_of
from toolkeep.storage.lock_file import lock_bytes
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.stores.registry_state import Pin, accepted
from toolkeep.text.display import echo_name, visible

_TITLES = {"loosens": "It would loosen:", "grants": "It would grant:", "runs": "It would run:"}
"""The worst last, beside the question."""


@click.command("accept")
@click.argument("name", required=False)
@click.option("--hash", "given_hash", metavar="SHA256", help="Accept without asking, if this is the hash.")
@click.option("--keep-out", is_flag=True, help="Keep the changed tool NAME in quarantine, as reviewed.")
@project
@common
def command(
    name: str | None, given_hash: str | None, project: Path | None, *, keep_out: bool, as_json: bool
) -> None:
    """Show what .agent/config.yml would run, grant or loosen, and accept it; or the changed tool NAME.

    NAME may also be a Python file or module of @tool functions: accepted, it may be named without a terminal,
    as in the entry of an MCP client. Its imports from the project are accepted with it. A running `toolkeep
    mcp` or `toolkeep serve` with that file takes it over.

    A file inside another project's folder is accepted as a project of its own, whatever it would do. Next
    come a toolkeep.lock that differs from what was accepted here, and Python files that were accepted before
    and have changed.

    Asks in a terminal. Elsewhere, or with --json, pass --hash with the SHA-256 that is shown: of the file
    together with the code that it names, or of the changed definition.
    """
    root = project_folder(project)
    state = open_state(root)
    if state is None:
        raise NotAccepted(
            "there is no state folder to store the acceptance in",
            hint="set TOOLKEEP_HOME to a folder that only you can write",
        )
    if keep_out:
        _keep_out(name or "", root, state, given_hash, as_json=as_json)
    elif name is None:
        _accept_project(root, state, given_hash, as_json=as_json)
    elif "." in name or "/" in name:  # no tool's name has either
        from toolkeep.cli.accept_tools import accept_tools

        accept_tools(name, root, state, given_hash, as_json=as_json)
    else:
        _accept_tool(name, root, state, given_hash, as_json=as_json)


def _accept_project(root: Path, state: KeepState, given_hash: str | None, *, as_json: bool) -> None:
    """Accept the configuration first, then the lock file that it names, then files of tools that changed."""
    from toolkeep.cli.accept_tools import accept_tools, changed_files

    changed = changed_files(root, state)
    is_over = _accept_configuration(root, state, given_hash, as_json=as_json, has_more=bool(changed))
    if is_over and (as_json or given_hash is not None):
        return
    if given_hash is not None:
        wanted = given_hash.removeprefix("sha256:").lower()
        changed = [file for file in changed if file.seal == wanted] or changed
    for file in changed:
        accept_tools(file.place, root, state, given_hash, as_json=as_json)


def _accept_configuration(
    root: Path, state: KeepState, given_hash: str | None, *, as_json: bool, has_more: bool
) -> bool:
    """Whether there was something to accept, or nothing more is to come."""
    settings = read_configuration(root, state)
    file = next((f for f in settings.files if f.is_project), None)
    if file is None:
        if has_more:
            return False
        raise NotAccepted(
            f"{visible(str(root))} has no .agent/config.yml", hint="write one with `toolkeep init`"
        )
    outer = [str(folder / PROJECT_FILE) for folder in outer_projects(root, home_folder())]
    is_open = not file.counts or (bool(outer) and not state.is_accepted(file.path, file.seal))
    if is_open:
        _accept_file(file, outer, state, given_hash, as_json=as_json)
        if as_json:
            return True
        settings = read_configuration(root, state)
        if settings.tools_files:
            # Reads their definitions, since clients do not wait; warns of tools that are skipped.
            keep_with(project=root).close()
        if given_hash is not None:
            return True
    origins = project_origins(settings)
    raw = lock_bytes(root) if origins else None
    proposed = [] if raw is None else _proposed(raw, root, state, origins)
    if raw is not None and proposed:
        _accept_lock(raw, root, state, proposed, given_hash, as_json=as_json)
    elif not is_open and has_more:
        return False
    elif not is_open:
        _say_accepted(file, state, as_json=as_json)
    return True


def _proposed(raw: bytes, root: Path, state: KeepState, origins: frozenset[str]) -> list[Difference]:
    """How the lock differs from what was accepted, for the upstreams that the project names."""
    lock = of_origins(read_lock(raw, str(root / LOCK_FILE)), origins)
    return differences(pinned_lock(state.pins(), lock), lock)


def _accept_lock(
    raw: bytes,
    root: Path,
    state: KeepState,
    proposed: list[Difference],
    given_hash: str | None,
    *,
    as_json: bool,
) -> None:
    path, digest = str(root / LOCK_FILE), hashlib.sha256(raw).hexdigest()
    shown = {
        "accepted": False,
        "path": path,
        "hash": digest,
        "differences": [one.to_dict() for one in proposed],
    }
    if not as_json:
        say(path, f"SHA-256: {digest}", "", "Changes against what was accepted here:")
        for difference in proposed:
            for line in difference.lines():
                say(f"  {visible(line)}")
    confirm(digest, given_hash, shown if as_json else None)
    lock = of_origins(read_lock(raw, path), project_origins(read_configuration(root, state)))
    state.replace_pins(lock.upstreams, lock.tools.values())
    finish(
        {**shown, "accepted": True}, f"accepted {visible(path)}; it takes effect at the next start", as_json
    )


def _say_accepted(file: ConfigFile, state: KeepState, *, as_json: bool) -> None:
    is_accepted = state.is_accepted(file.path, file.seal)
    why = (
        "is already accepted"
        if is_accepted
        else "runs, grants and loosens nothing, so it is in effect without acceptance"
    )
    data = {"accepted": True, "path": file.path, "hash": file.seal}
    finish(data, f"{visible(file.path)} {why}", as_json)


def _accept_file(
    file: ConfigFile, outer: list[str], state: KeepState, given_hash: str | None, *, as_json: bool
) -> None:
    """Show a file and ask; `outer` are the configurations of enclosing projects."""
    data = {"path": file.path, "hash": file.seal, "effects": _effects(file)}
    if outer:
        data["outer"] = outer
    shown = {"accepted": False, **data}
    before = state.accepted_content(file.path)
    if before:
        shown["changes"] = list(difference_lines(before, file.content))
    if not as_json:
        for line in (*_file_lines(file, before), *_outer_lines(outer)):
            say(line)
    confirm(file.seal, given_hash, shown if as_json else None)
    state.accept(file.path, file.seal, file.content)
    finish({"accepted": True, **data}, f"accepted {visible(file.path)}", as_json)
    if not as_json:
        say("  Restart `toolkeep serve`, `toolkeep mcp` or `toolkeep worker` to apply it", err=True)


def _outer_lines(outer: list[str]) -> Iterator[str]:
    if outer:
        yield ""
        yield "Once accepted, it is a project of its own. These configurations no longer apply in it:"
        yield from (f"  - {visible(path)}" for path in outer)


def _file_lines(file: ConfigFile, before: str | None) -> Iterator[str]:
    yield visible(file.path)
    yield f"SHA-256: {file.seal}"
    if before:
        yield ""
        yield "Changed since it was accepted:"
        yield from (f"  {line}" for line in difference_lines(before, file.content))
    if file.code:
        yield ""
        yield "Code that it names:"
        yield from (
            f"  - {visible(name)} {digest or '(missing)'}"
            for name, digest in file.code.items()
            if digest or not is_of_environment(name)
        )
    for kind, title in _TITLES.items():
        found = [effect for effect in file.effects if effect.kind == kind]
        if found:
            yield from ("", title)
            yield from (f"  - {effect.what} (line {effect.place.line})" for effect in found)
    counts = Counter(effect.kind for effect in file.effects)
    yield ""
    yield f"{counts['loosens']} to loosen, {counts['grants']} to grant, {counts['runs']} to run"


def _effects(file: ConfigFile) -> list[dict[str, Any]]:
    return [
        {"kind": effect.kind, "what": effect.what, "line": effect.place.line, "column": effect.place.column}
        for effect in file.effects
    ]


def _accept_tool(name: str, root: Path, state: KeepState, given_hash: str | None, *, as_json: bool) -> None:
    pin = _pending(name, state.pins())
    new, taken = definition_from_dict(pin.pending or {}), accepted(pin)
    changes = changes_between(definition_from_dict(pin.definition), new) if pin.is_accepted else ()
    suspicions = scan_for_injection(new)
    if not as_json:
        for line in review_of(pin).lines():
            say(line)
        moved = f"{pin.version} becomes {taken.version}" if pin.is_accepted else taken.version
        say("", f"Version: {moved}", f"SHA-256: {pin.pending_hash}", "")
    data = {"accepted": False, "tool": pin.name, "version": taken.version, "hash": pin.pending_hash}
    shown = {**data, "changes": [msgspec.to_builtins(change) for change in changes]}
    if not pin.is_accepted:
        shown["definition"] = pin.pending
    if suspicions:
        shown["suspicions"] = [msgspec.to_builtins(suspicion) for suspicion in suspicions]
    confirm(pin.pending_hash, given_hash, shown if as_json else None)
    if not state.take(pin):
        raise NotAccepted(f"{pin.name!r} has changed again", hint="review it again: toolkeep accept NAME")
    data = {"accepted": True, "tool": pin.name, "version": taken.version, "hash": taken.definition_hash}
    has_flow = any(flow.key == pin.key for flow in state.flows())
    then = (
        f"declare its flow again: toolkeep flow declare {visible(pin.name)}"
        if has_flow
        else "it can be called now"
    )
    finish(data, f"accepted {pin.name} {taken.version}; {then}", as_json)
    if not as_json and is_there(root / LOCK_FILE):
        say("  toolkeep.lock still has the previous definition; update it: toolkeep lock", err=True)


def _keep_out(name: str, root: Path, state: KeepState, given_hash: str | None, *, as_json: bool) -> None:
    """Keep a changed tool in quarantine: it no longer asks for attention until it changes again."""
    from toolkeep.cli.operator_change import agree, terminal_confirmation
    from toolkeep.server.api.review_routes import reject_tool

    pin = _pending(name, state.pins())
    if not as_json:
        say(*review_of(pin).lines(), "", f"SHA-256: {pin.pending_hash}", "")
    agree(f"Keep {pin.name} out?", pin.pending_hash, given_hash)
    with keep_with(project=root) as keep:
        asyncio.run(reject_tool(keep, terminal_confirmation(""), pin.name, pin.pending_hash))
    data = {"kept_out": True, "tool": pin.name, "hash": pin.pending_hash}
    finish(data, f"{pin.name} stays in quarantine", as_json)


def _pending(name: str, pins: Iterable[Pin]) -> Pin:
    waiting = [pin for pin in pins if pin.pending is not None]
    for pin in waiting:
        if pin.name.casefold() == name.casefold():
            return pin
    names = ", ".join(pin.name for pin in waiting[:LISTED_NAMES])
    hint = f"changed tools: {names}" if names else "no imported tool has changed"
    raise NotAccepted(f"no changed definition of {echo_name(name)!r} needs acceptance", hint=hint)
