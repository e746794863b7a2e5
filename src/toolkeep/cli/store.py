"""`toolkeep store`: custom definitions, their database and its schema version."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done, warn
from toolkeep.cli.progress import progress
from toolkeep.errors import FileUnreadable, NotAccepted, StateUnusable, StoreConflict, UnknownTool
from toolkeep.storage.sql.database_location import HEAD, connected
from toolkeep.storage.sql.definition_reader import find_layout
from toolkeep.stores.definitions import BrokenDefinition

if TYPE_CHECKING:
    from toolkeep.definitions.tool import ToolDefinition
    from toolkeep.keep.keep import Keep
    from toolkeep.storage.sql.definition_store import SqlDefinitionStore
    from toolkeep.stores.definitions import StoredDefinition


@click.group("store", cls=CommandGroup)
def command() -> None:
    """Put custom definitions in the store and take them out; inspect and migrate its database."""


@contextlib.contextmanager
def store_of(project: Path | None) -> "Iterator[SqlDefinitionStore]":
    """Open the definition store of a project."""
    from toolkeep.keep.open import open_state, open_store, project_folder, read_configuration

    root = project_folder(project)
    state = open_state(root)
    store = open_store(read_configuration(root, state), state)
    if store is None:
        raise StateUnusable("~", "there is no state folder for the store", hint="set TOOLKEEP_HOME")
    with contextlib.closing(store):
        yield store


@command.command("status", short_help="Show where definitions are stored, and how many.")
@project
@common
def status(project: Path | None, *, as_json: bool) -> None:
    """Show where custom definitions are stored, how many there are, and which rows are unusable."""
    with store_of(project) as store:
        layout = None
        if store.place.exists():
            with connected(store.place) as connection:
                layout = find_layout(store.place, connection)
        held = store.read().held if layout == HEAD else ()
    broken = [one for one in held if isinstance(one, BrokenDefinition)]
    names = sorted({one.name for one in held if not isinstance(one, BrokenDefinition)})
    if as_json:
        rows = [{"name": one.name, "reason": one.reason} for one in broken]
        data = {"store": store.place.shown, "layout": layout, "tools": names, "broken": rows}
        print_json({**data, "versions": len(held) - len(broken)})
        return
    say(f"store     {store.place.shown}")
    say(f"layout    {layout or 'none yet'}{'' if layout in (None, HEAD) else f', this toolkeep uses {HEAD}'}")
    say(f"tools     {len(names)}, in {len(held) - len(broken)} versions")
    for one in broken:
        warn(f"{one.name} {one.reason}", err=False)


@command.command("put", short_help="Store a custom definition.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--dry-run", is_flag=True, help="Check it and show the difference, and store nothing.")
@click.option("--hash", "given_hash", metavar="HASH", help="Do not ask, if this is the hash of the change.")
@project
@common
def put(file: Path, given_hash: str | None, project: Path | None, *, dry_run: bool, as_json: bool) -> None:
    """Store the definition in FILE, JSON or YAML, or put it in place of the stored one of that name.

    It has the form of a custom tool in a configuration. A change needs a higher version; what FILE leaves out
    goes back to its default. Shows the difference, and asks in a terminal; elsewhere pass --hash.
    """
    from toolkeep.cli.operator_change import agree, terminal_confirmation
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.compat.value_diff import value_difference
    from toolkeep.json_values.canonical import canonical_hash
    from toolkeep.server.api.definition_routes import put_definition
    from toolkeep.server.api.tool_routes import tag_of_tool
    from toolkeep.sources.definition_files import read_data

    data = read_data(file)
    if not isinstance(data, dict) or "name" not in data:
        raise FileUnreadable(str(file), "holds no definition; expected an object with 'name'")
    with keep_with(project=project) as keep:
        keep.check_definition(data, may_run=True)
        name = str(data["name"])
        stored = _stored(keep, name)
        before, after = _before_and_after(stored, data)
        say(*value_difference(before, after), err=True)
        if before == after:
            raise NotAccepted("nothing would change", hint="it is stored already")
        if not dry_run:
            agree(f"Store {name}?", canonical_hash([before, after]), given_hash)
            condition = tag_of_tool(keep, keep.get(name)) if stored else ""
            asyncio.run(put_definition(keep, terminal_confirmation(name), data, condition=condition))
    version = after["version"]
    if as_json:
        print_json({"success": True, "tool": name, "version": version, "stored": not dry_run})
    else:
        say_done(f"{name} {version} {'could be' if dry_run else 'is'} stored")


def _stored(keep: "Keep", name: str) -> "StoredDefinition | None":
    try:
        return keep.definition_versions(name)[0]
    except UnknownTool:
        return None


def _before_and_after(
    stored: "StoredDefinition | None", data: dict[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """A definition with what runs it, as it is stored and as it would be."""
    from toolkeep.registry.custom_definitions import read_definition, with_changes
    from toolkeep.server.api.definition_routes import whole_changes

    if stored is None:
        return None, _data(*read_definition(data))
    definition, run = with_changes(stored, whole_changes(stored, data))
    return _data(stored.definition, stored.run), _data(definition, run)


def _data(definition: "ToolDefinition", run: dict[str, Any] | None) -> dict[str, Any]:
    return {**definition.to_dict(), **({} if run is None else {"run": run})}


@command.command("drop", short_help="Delete a custom definition.")
@click.argument("name")
@click.option(
    "--hash", "given_hash", metavar="HASH", help="Do not ask, if this is the hash of the definition."
)
@project
@common
def drop(name: str, given_hash: str | None, project: Path | None, *, as_json: bool) -> None:
    """Delete the stored definition NAME with all of its versions.

    Asks in a terminal; elsewhere pass --hash.
    """
    from toolkeep.cli.operator_change import agree, terminal_confirmation
    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api.definition_routes import delete_definition
    from toolkeep.server.api.tool_routes import tag_of_tool

    with keep_with(project=project) as keep:
        tool = keep.get(name)
        if tool.provider != "store":
            reason = f"is not kept in the store: it comes from {tool.provider!r}"
            raise StoreConflict(tool.name, reason, hint="remove it where it is written")
        say(f"{tool.name}: {', '.join(one.version for one in keep.versions(tool.name))}", err=True)
        agree(f"Delete {tool.name} with all versions?", tool.definition_hash, given_hash)
        tag = tag_of_tool(keep, tool)
        asyncio.run(delete_definition(keep, terminal_confirmation(name).caller, name, condition=tag))
    if as_json:
        print_json({"success": True, "tool": name})
    else:
        say_done(f"{name} is deleted")


@command.command("seal", short_help="Take over definitions from before database.key.")
@click.option("--yes", is_flag=True, help="Seal them; without it they are only listed.")
@project
@common
def seal_store(project: Path | None, *, yes: bool, as_json: bool) -> None:
    """Take the definitions of a shared database that carry no MAC for those of this keep.

    They are from before the database had this layout, or somebody else wrote them: look at each first.
    """
    with store_of(project) as store:
        bare = sorted({one.name for one in store.read().held if isinstance(one, BrokenDefinition)})
        sealed = store.seal() if yes and not store.place.is_embedded else []
    if as_json:
        print_json({"broken": bare, "sealed": sealed})
    elif sealed:
        say_done(f"sealed: {', '.join(sealed)}")
    elif bare:
        say(f"not used: {', '.join(bare)}; add --yes to seal those without a MAC")
    else:
        say("every definition is used")


@command.command("migrate", short_help="Migrate the tables to another schema version.")
@click.option("--to", default=HEAD, show_default=True, help="Schema version; `base` drops all tables.")
@click.option("--yes", is_flag=True, help="Required for `base`, which deletes every stored definition.")
@project
@common
def migrate_store(to: str, project: Path | None, *, yes: bool, as_json: bool) -> None:
    """Migrate the tables of the store up or down to a schema version, all or nothing.

    A keep migrates up by itself when it first writes. Migrate down to go back to an older toolkeep.
    """
    if to == "base" and not yes:
        raise click.UsageError("`base` deletes every stored definition and shared token; add --yes.")
    from toolkeep.storage.sql.engine import make_engine
    from toolkeep.storage.sql.schema_migration import migrate

    with store_of(project) as store:
        engine = make_engine(store.place)
        try:
            with progress("Migrating the tables"):
                migrate(engine, store.place, to)
        finally:
            engine.dispose()
    if as_json:
        print_json({"store": store.place.shown, "layout": to})
    else:
        say_done(f"{store.place.shown} has the layout {to}")
