"""`toolkeep backup`: write the state of a keep to one file, check such a file, restore it."""

from pathlib import Path

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.progress import progress
from toolkeep.errors import BackupRefused


@click.group("backup", cls=CommandGroup)
def command() -> None:
    """Back up and restore the state of a keep: definitions, tokens, approvals, ledger, log and keys."""


def folder_of(project: Path | None) -> Path:
    """The state folder of a project, which need not exist."""
    from toolkeep.keep.open import open_state, project_folder

    state = open_state(project_folder(project))
    if state is None:
        raise BackupRefused("~", "there is no state folder", hint="set TOOLKEEP_HOME")
    return state.folder


@command.command("make", short_help="Write a backup while the keep runs.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@project
@common
def make(file: Path, project: Path | None, *, as_json: bool) -> None:
    """Write a backup of the keep's state to FILE, which must not exist. Nothing has to be stopped.

    It contains the private keys of the keep: protect it like the keep itself. It does not contain what is
    shared in PostgreSQL: back that up after the servers, with PostgreSQL's own tools.
    """
    from toolkeep.storage.backup import make_backup, manifest_data

    with progress("Writing the backup"):
        manifest = make_backup(folder_of(project), file)
    if as_json:
        print_json({"file": str(file), **manifest_data(manifest)})
        return
    size = sum(member.size for member in manifest.members)
    say_done(f"{file}: {len(manifest.members)} files, {size} bytes")
    say("  It contains the keep's private keys: protect it.")


@command.command("check", short_help="Verify a backup without restoring it.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@common
def check(file: Path, *, as_json: bool) -> None:
    """Read all of FILE and check every hash, every database and the log in it. Nothing is changed."""
    from toolkeep.storage.backup import check_backup, manifest_data

    with progress("Checking the backup"):
        manifest = check_backup(file)
    if as_json:
        print_json({"file": str(file), **manifest_data(manifest)})
        return
    count = len(manifest.members)
    say_done(f"{file}: made {manifest.made_at}, {count} files, all intact")


@command.command("restore", short_help="Restore a backup.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--replace", "replaces", is_flag=True, help="Move an existing state aside.")
@project
@common
def restore(file: Path, project: Path | None, *, replaces: bool, as_json: bool) -> None:
    """Check FILE and restore it as the state of the project. Stop the keep first.

    What happened after the backup is lost: the log continues from the backup. A witness, or the holder of a
    later checkpoint, will notice.
    """
    from toolkeep.storage.backup import restore_backup

    folder = folder_of(project)
    with progress("Restoring the backup"):
        aside = restore_backup(file, folder, replaces=replaces)
    if as_json:
        print_json({"folder": str(folder), "moved_aside": str(aside) if aside else None})
        return
    say_done(f"restored to {folder}")
    if aside is not None:
        say(f"  The previous state is in {aside}")
