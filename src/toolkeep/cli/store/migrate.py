"""`toolkeep store migrate`: the tables in the layout of this toolkeep, or of an older one."""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.cli.store.place import store_of
from toolkeep.storage.places import HEAD


@click.command("migrate")
@click.option("--to", default=HEAD, show_default=True, help="The layout; `base` takes all tables away.")
@click.option("--yes", is_flag=True, help="Needed for `base`, which deletes every stored definition.")
@project
@common
def command(to: str, project: Path | None, *, yes: bool, as_json: bool) -> None:
    """Move the tables of the store to a layout, up or down, whole or not at all.

    A keep does that by itself when it first writes; down is for going back to an older toolkeep. What an
    older layout has no place for is parked in the database, and comes back with the next step up.
    """
    if to == "base" and not yes:
        raise click.UsageError("`base` deletes every stored definition and shared token; say --yes too.")
    from toolkeep.storage.sql.engine import make_engine
    from toolkeep.storage.sql.migrate import migrate

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
