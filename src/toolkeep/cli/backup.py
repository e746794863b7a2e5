"""`toolkeep backup`: write the state of a keep to one file, check such a file, restore it."""

from pathlib import Path

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.errors import BackupRefused


@click.group("backup", cls=CommandGroup)
def command() -> None:
    """Back up what a keep remembers: definitions, tokens, approvals, ledger, log and keys."""


def folder_of(project: Path | None) -> Path:
    """The state folder of a project, which need not exist."""
    from toolkeep.keep.open import open_state, project_folder

    state = open_state(project_folder(project))
    if state is None:
        raise BackupRefused("~", "there is no home that could hold a state", hint="set TOOLKEEP_HOME")
    return state.folder


@command.command("make", short_help="Write a backup; the keep goes on meanwhile.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@project
@common
def make(file: Path, project: Path | None, *, as_json: bool) -> None:
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


@command.command("check", short_help="Read a backup whole, as if to restore it.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@common
def check(file: Path, *, as_json: bool) -> None:
    """Read FILE whole, check every hash, every database and the log in it; nothing is changed."""
    from toolkeep.storage.backup import check_backup, manifest_data

    manifest = check_backup(file)
    if as_json:
        print_json({"file": str(file), **manifest_data(manifest)})
        return
    count = len(manifest.members)
    say_done(f"{file}: made {manifest.made_at}, {count} files, all as they were")


@command.command("restore", short_help="Put a backup in the place of the state.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--replace", "replaces", is_flag=True, help="Move a state that is there aside.")
@project
@common
def restore(file: Path, project: Path | None, *, replaces: bool, as_json: bool) -> None:
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
