"""`toolkeep store`: the database of custom definitions and its schema version."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done, warn
from toolkeep.cli.progress import progress
from toolkeep.errors import StateUnusable
from toolkeep.storage.sql.database_location import HEAD, connected
from toolkeep.storage.sql.definition_reader import find_layout
from toolkeep.stores.definitions import BrokenDefinition

if TYPE_CHECKING:
    from toolkeep.storage.sql.definition_store import SqlDefinitionStore


@click.group("store", cls=CommandGroup)
def command() -> None:
    """Inspect and migrate the database of custom definitions and tokens."""


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
