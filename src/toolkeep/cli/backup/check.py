"""`toolkeep backup check`: is a backup one that could be restored?"""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, say_done


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@common
def command(file: Path, *, as_json: bool) -> None:
    """Read FILE whole, check every hash, every database and the log in it; nothing is changed."""
    from toolkeep.storage.backup import check_backup, manifest_data

    manifest = check_backup(file)
    if as_json:
        print_json({"file": str(file), **manifest_data(manifest)})
        return
    count = len(manifest.members)
    say_done(f"{file}: made {manifest.made_at}, {count} files, all as they were")
