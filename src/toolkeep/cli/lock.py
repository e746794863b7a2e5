"""`toolkeep lock`: write the accepted definitions of upstreams to a lock file, or check it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkeep.cli.options import common, print_json, project, say, say_done, say_failed
from toolkeep.config.settings import Settings
from toolkeep.errors import ImportRefused, LockInvalid
from toolkeep.keep.open import (
    check_accepted,
    offered_by_project,
    open_keep,
    open_state,
    project_folder,
    read_configuration,
)
from toolkeep.registry.lockfile import (
    LOCK_FILE,
    Lock,
    arriving_lock,
    differences,
    pinned_lock,
)
from toolkeep.storage.lock_file import read_lock_file, write_lock_file
from toolkeep.text.display import counted, visible

if TYPE_CHECKING:
    from toolkeep.mcp_client.pinned_tools import PinnedTools


@click.command("lock")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if upstreams offer something else.")
@click.option(
    "--ask", is_flag=True, help="With --check: ask MCP servers for their tools instead of reading files."
)
@project
@common
def command(*, check: bool, ask: bool, project: Path | None, as_json: bool) -> None:
    """Write toolkeep.lock: the project's upstreams and their accepted definitions.

    With --check, for CI, compare the file with the documents and lists beside the configuration. It needs no
    acceptance, accepts nothing, starts nothing and connects to nothing. With --ask too, it starts or contacts
    the configured MCP servers, so the configuration must have been accepted here.
    """
    if ask and not check:
        raise click.UsageError("--ask needs --check.")
    root = project_folder(project)
    offered, identities = _offered(root, asks=ask)
    if not identities:
        hint = "add one: `toolkeep add mcp` or `toolkeep add openapi`"
        raise ImportRefused(visible(str(root)), "its configuration has no upstream", hint=hint)
    if check:
        _check(root, offered, as_json=as_json)
    else:
        _write(root, offered, as_json=as_json)


def _offered(root: Path, *, asks: bool) -> tuple[Lock, dict[str, Any]]:
    """What the upstreams of the project offer now."""
    from toolkeep.mcp_client.upstream_provider import McpProvider

    found = offered_by_project(root)
    if asks:
        check_accepted(found.settings, "would start or contact servers")
        found = offered_by_project(root, _listings(root, found.settings))
    for skipped in found.keep.start_up.skipped:
        if not skipped.tool and skipped.provider.startswith("upstream:"):
            raise skipped.error
    identities = {provider.origin: provider.identity for provider in found.providers}
    packages = {
        one.origin: one.packages for one in found.providers if isinstance(one, McpProvider) and one.packages
    }
    return arriving_lock(found.state.pins(), identities, packages), identities


def _listings(root: Path, settings: Settings) -> "dict[str, PinnedTools]":
    """What the MCP servers of the project list now."""
    from toolkeep.cli.upstream_access import access_for, list_server_tools
    from toolkeep.mcp_client.pinned_tools import read_listing

    listings = {}
    for upstream in settings.upstreams.values():
        if upstream.is_project and upstream.kind == "mcp":
            entry = dict(upstream.data)
            access = access_for(root, upstream.name, entry, {}, is_signed_in=False)
            packages = read_listing(Path(upstream.folder) / str(entry["mcp"]))[0].packages
            listings[upstream.name] = list_server_tools(root, upstream.name, entry, {}, access, packages)
    return listings


def _check(root: Path, offered: Lock, *, as_json: bool) -> None:
    lock = read_lock_file(root)
    if lock is None:
        raise LockInvalid(str(root / LOCK_FILE), 0, "the file does not exist", hint="write it: toolkeep lock")
    found = differences(lock, offered)
    if as_json:
        print_json({"success": not found, "differences": [one.to_dict() for one in found]})
    elif found:
        for one in found:
            for line in one.lines():
                say(line)
        say_failed(f"{len(found)} differences from {LOCK_FILE}", err=True)
    else:
        say_done(f"{LOCK_FILE} matches: {counted(len(offered.tools), 'tool')} offered")
    sys.exit(1 if found else 0)


def _write(root: Path, offered: Lock, *, as_json: bool) -> None:
    check_accepted(read_configuration(root, open_state(root)), "the lock holds what you accepted")
    open_keep(project=root).close()  # pins new definitions (trust on first use)
    state = open_state(root)
    pins = [] if state is None else [pin for pin in state.pins() if pin.key in offered.tools]
    lock = pinned_lock(pins, offered)
    waiting = sorted(pin.name for pin in pins if not pin.is_accepted or pin.pending is not None)
    path = write_lock_file(root, lock)
    if as_json:
        print_json({"path": str(path), "tools": len(lock.tools), "waiting": waiting})
        return
    say_done(f"wrote {counted(len(lock.tools), 'tool')} to {visible(str(path))}")
    for name in waiting:
        say(f"  '{visible(name)}' needs acceptance: toolkeep accept {visible(name)}", err=True)
