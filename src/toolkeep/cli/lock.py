"""`toolkeep lock`: write down what was accepted of upstreams, or check it against what they offer."""

import sys
from pathlib import Path
from typing import Any

import click

from toolkeep.assembly import offered_by_project, open_keep, open_state, project_folder
from toolkeep.cli.options import common, print_json, project, say
from toolkeep.errors import ImportRefused, LockInvalid
from toolkeep.registry.locking import (
    LOCK_FILE,
    Lock,
    arriving_lock,
    differences,
    pinned_lock,
)
from toolkeep.storage.lock_file import read_lock_file, write_lock_file
from toolkeep.wording import visible


@click.command("lock")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where upstreams offer something else.")
@project
@common
def command(*, check: bool, project: Path | None, as_json: bool) -> None:
    """Write toolkeep.lock: every upstream of the project and every definition that was accepted of it.

    With --check, compare the file with what the upstreams offer now; for CI. Nothing is accepted by it.
    """
    root = project_folder(project)
    offered, identities = _offered(root)
    if not identities:
        hint = "add one: toolkeep add openapi FILE"
        raise ImportRefused(visible(str(root)), "its configuration names no upstream", hint=hint)
    if check:
        _check(root, offered, as_json=as_json)
    else:
        _write(root, offered, as_json=as_json)


def _offered(root: Path) -> tuple[Lock, dict[str, Any]]:
    """What the upstreams of the project offer now."""
    keep, state, providers = offered_by_project(root)
    for skipped in keep.start_up.skipped:
        if not skipped.tool and skipped.provider.startswith("upstream:"):
            raise skipped.error
    identities = {provider.origin: provider.identity for provider in providers}
    return arriving_lock(state.pins(), identities), identities


def _check(root: Path, offered: Lock, *, as_json: bool) -> None:
    lock = read_lock_file(root)
    if lock is None:
        raise LockInvalid(str(root / LOCK_FILE), 0, "there is none")
    found = differences(lock, offered)
    if as_json:
        print_json({"success": not found, "differences": [one.to_dict() for one in found]})
    elif found:
        for one in found:
            for line in one.lines():
                say(line)
        say(f" {len(found)} differences from {LOCK_FILE}", label="✗", color="red", err=True)
    else:
        say(f" {LOCK_FILE} agrees: {len(offered.tools)} tools are offered", label="✓", color="green")
    sys.exit(1 if found else 0)


def _write(root: Path, offered: Lock, *, as_json: bool) -> None:
    open_keep(project=root).close()  # pins what arrives for the first time
    state = open_state(root)
    pins = [] if state is None else [pin for pin in state.pins() if pin.key in offered.tools]
    lock = pinned_lock(pins, offered.upstreams)
    waiting = sorted(pin.name for pin in pins if not pin.is_accepted or pin.pending is not None)
    path = write_lock_file(root, lock)
    if as_json:
        print_json({"path": str(path), "tools": len(lock.tools), "waiting": waiting})
        return
    say(f" wrote {len(lock.tools)} tools to {visible(str(path))}", label="✓", color="green")
    for name in waiting:
        say(f"  '{visible(name)}' waits to be accepted: toolkeep accept {visible(name)}", err=True)
