"""`toolkeep store`: the database of custom definitions and its schema version."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done, warn
from toolkeep.errors import StateUnusable
from toolkeep.storage.sql.database_location import HEAD, connected
from toolkeep.storage.sql.definition_reader import find_layout
from toolkeep.stores.definitions import BrokenDefinition

if TYPE_CHECKING:
    from toolkeep.storage.sql.definition_store import SqlDefinitionStore


@click.group("store", cls=CommandGroup)
def command() -> None:
    """Look after the database in which custom definitions and tokens are kept."""


@contextlib.contextmanager
def store_of(project: Path | None) -> "Iterator[SqlDefinitionStore]":
    """Open the definition store of a project."""
    from toolkeep.keep.open import open_state, open_store, project_folder, read_configuration

    root = project_folder(project)
    state = open_state(root)
    store = open_store(read_configuration(root, state), state)
    if store is None:
        raise StateUnusable("~", "there is no home that could hold a store", hint="set TOOLKEEP_HOME")
    with contextlib.closing(store):
        yield store


@command.command("status", short_help="Say where definitions are kept, and how many.")
@project
@common
def status(project: Path | None, *, as_json: bool) -> None:
    """Say where custom definitions are kept, how many there are, and which rows cannot be used."""
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


@command.command("migrate", short_help="Move the tables to another layout.")
@click.option("--to", default=HEAD, show_default=True, help="The layout; `base` takes all tables away.")
@click.option("--yes", is_flag=True, help="Needed for `base`, which deletes every stored definition.")
@project
@common
def migrate_store(to: str, project: Path | None, *, yes: bool, as_json: bool) -> None:
    """Move the tables of the store to a layout, up or down, whole or not at all.

    A keep does that by itself when it first writes; down is for going back to an older toolkeep.
    """
    if to == "base" and not yes:
        raise click.UsageError("`base` deletes every stored definition and shared token; say --yes too.")
    from toolkeep.storage.sql.engine import make_engine
    from toolkeep.storage.sql.schema_migration import migrate

    with store_of(project) as store:
        engine = make_engine(store.place)
        try:
            migrate(engine, store.place, to)
        finally:
            engine.dispose()
    if as_json:
        print_json({"store": store.place.shown, "layout": to})
    else:
        say_done(f"{store.place.shown} has the layout {to}")
