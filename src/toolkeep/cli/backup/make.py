"""`toolkeep backup make`: the state of a keep in one file, while the keep goes on."""

from pathlib import Path

import click

from toolkeep.cli.backup.folder import folder_of
from toolkeep.cli.options import common, print_json, project, say, say_done


@click.command("make")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@project
@common
def command(file: Path, project: Path | None, *, as_json: bool) -> None:
    """Write a backup of the keep's state to FILE, which must not exist; nothing has to be stopped.

    It holds the private keys of the keep: keep it as safe as the keep itself. Definitions and tokens that are
    kept in a PostgreSQL are not in it; back that up with its own means.
    """
    from toolkeep.storage.backup import make_backup, manifest_data

    manifest = make_backup(folder_of(project), file)
    if as_json:
        print_json({"file": str(file), **manifest_data(manifest)})
        return
    size = sum(member.size for member in manifest.members)
    say_done(f"{file}: {len(manifest.members)} files, {size} bytes")
    say("  It holds the keep's private keys. Keep it safe.")
