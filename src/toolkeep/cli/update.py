"""`toolkeep update`: resolve the packages of a server anew, and write them if a person agrees."""

from pathlib import Path

import click

from toolkeep.cli.config_edit import check_agreed, check_name
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.package_install import (
    InstallOptions,
    package_options,
    remove_unused,
    resolved_packages,
)
from toolkeep.cli.upstream_access import known_server, list_server_tools
from toolkeep.errors import FileUnreadable, ImportRefused
from toolkeep.keep.open import Offered, offered_by_project, project_folder
from toolkeep.mcp_client.pinned_tools import PinnedTools
from toolkeep.registry.lockfile import Difference, Lock, arriving_lock, differences, of_origins
from toolkeep.storage.atomic_files import write_whole
from toolkeep.text.display import visible


@click.command("update")
@click.argument("name")
@package_options
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    name: str,
    allow_scripts: tuple[str, ...],
    *,
    allow_new: bool,
    yes: bool,
    project: Path | None,
    as_json: bool,
) -> None:
    """Update the packages of the MCP server NAME, which npx, uvx or the like would start.

    They are resolved and installed anew, beside those in use, and the server is asked for its tools. Install
    scripts run as before, or as --allow-scripts says. What would change is shown first: packages, and the
    definitions and danger of tools. The old packages stay in use until you agree and accept the new list with
    `toolkeep accept`.
    """
    root = project_folder(project)
    check_name(name)
    entry, before = known_server(root, name)
    if before.packages is None:
        hint = f"to list its tools again: toolkeep add mcp {name} --refresh"
        raise ImportRefused(f"'{name}'", "does not run from installed packages", hint=hint)
    scripts = allow_scripts or before.packages.scripts
    options = InstallOptions(allow_new=allow_new, allow_scripts=scripts, as_json=as_json)
    with resolved_packages(root, entry, options) as packages:
        if packages is None:
            raise ImportRefused(f"'{name}'", "has another command than its packages were pinned for")
        after = list_server_tools(root, name, entry, {}, None, packages)
        changes = _changes(root, name, after)
        if changes:
            if not as_json:
                _show(changes)
            if not yes:
                check_agreed("Write this?", as_json=as_json)
            _write(root / ".agent" / str(entry["mcp"]), after)
    remove_unused(root, {before.packages.digest, packages.digest})
    if as_json:
        print_json({"upstream": name, "changes": [change.to_dict() for change in changes]})
    elif not changes:
        say_done(f"'{name}' is up to date")
    else:
        say_done(f"updated '{name}'")
        say("  To use it, accept the configuration, then write the lock: toolkeep accept, toolkeep lock")


def _changes(root: Path, name: str, after: PinnedTools) -> list[Difference]:
    now, then = offered_by_project(root), offered_by_project(root, {name: after})
    return differences(_offered(now, name), _offered(then, name))


def _offered(offered: Offered, name: str) -> Lock:
    """What one server offers, as a lock."""
    origin = f"mcp:{name}"
    (provider,) = (one for one in offered.providers if one.origin == origin)
    packages = {origin: getattr(provider, "packages", ())}
    return of_origins(arriving_lock(offered.state.pins(), {origin: provider.identity}, packages), [origin])


def _show(changes: list[Difference]) -> None:
    for change in changes:
        for line in change.lines():
            say(line)


def _write(path: Path, listing: PinnedTools) -> None:
    try:
        write_whole(path, listing.to_bytes())
        path.chmod(0o644)
    except OSError as error:
        raise FileUnreadable(visible(str(path)), error.strerror or "cannot be written") from error
