"""`toolkeep database`: the PostgreSQL that servers share, as one server sees it."""

from pathlib import Path

import click

from toolkeep.cli.backup import folder_of
from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.errors import BackupRefused


@click.group("database", cls=CommandGroup)
def command() -> None:
    """Manage the database that servers share (`database.url`)."""


@command.command("restored", short_help="Accept a database that was restored from a backup.")
@project
@common
def restored(project: Path | None, *, as_json: bool) -> None:
    """Accept a shared database that you restored from a backup. Stop the server first.

    A server remembers in its state folder how far the database was, and refuses an older one. Run this on
    each server that does.

    What the database learnt after the backup is lost. Tokens that were revoked since count again, disabled
    tools are enabled, withdrawn grants are held, and a call that is repeated with its key runs again.
    """
    from toolkeep.storage.backup import users_of
    from toolkeep.storage.postgres.shared_register import forget_versions

    folder = folder_of(project)
    if users := users_of(folder):
        hint = f"stop what uses it first: process {', '.join(map(str, users[:5]))}"
        raise BackupRefused(str(folder), "is in use", hint=hint)
    forgotten = forget_versions(folder)
    if as_json:
        print_json({"folder": str(folder), "forgotten": forgotten})
        return
    if not forgotten:
        say_done("this server remembers no version of a shared database")
        return
    say_done("this server takes the database as it is now")
    say("  Revoke, disable and withdraw again what was revoked, disabled and withdrawn after the backup.")
