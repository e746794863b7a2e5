"""`toolkeep backup restore`: a backup in the place of the state."""

from pathlib import Path

import click

from toolkeep.cli.backup.folder import folder_of
from toolkeep.cli.options import common, print_json, project, say, say_done


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--replace", "replaces", is_flag=True, help="Move a state that is there aside.")
@project
@common
def command(file: Path, project: Path | None, *, replaces: bool, as_json: bool) -> None:
    """Check FILE and put it where the state of the project belongs; the keep must be stopped.

    What the keep did after the backup was made is not in it: the log goes on from then, which a witness, or
    who holds a later checkpoint, will notice.
    """
    from toolkeep.storage.backup import restore_backup

    folder = folder_of(project)
    aside = restore_backup(file, folder, replaces=replaces)
    if as_json:
        print_json({"folder": str(folder), "moved_aside": str(aside) if aside else None})
        return
    say_done(f"restored to {folder}")
    if aside is not None:
        say(f"  What was there is in {aside}")
