"""`toolkeep store status`: where definitions are kept, in which layout, and how many."""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say, warn
from toolkeep.cli.store.place import store_of
from toolkeep.registry.store import BrokenDefinition
from toolkeep.storage.definition_reader import find_layout
from toolkeep.storage.places import HEAD, connected


@click.command("status")
@project
@common
def command(project: Path | None, *, as_json: bool) -> None:
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
