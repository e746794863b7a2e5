"""`toolkeep token link`: a link that signs a person in to the page, once."""

from pathlib import Path

import click

from toolkeep.cli.options import common, print_json, project, say


def _web_address(_: click.Context, __: click.Parameter, address: str) -> str:
    if not address.startswith(("http://", "https://")):
        raise click.BadParameter("begins with http:// or https://, as `toolkeep serve` says it")
    return address


@click.command("link")
@click.option(
    "--address",
    callback=_web_address,
    default="http://127.0.0.1:8765",
    show_default=True,
    help="Where the server is, as `toolkeep serve` says.",
)
@project
@common
def command(address: str, project: Path | None, *, as_json: bool) -> None:
    """Print a link to the page of the server that runs for this project.

    Whoever opens it first, within five minutes, is signed in and may do everything.
    """
    from toolkeep.assembly import open_state, project_folder
    from toolkeep.errors import StateUnusable
    from toolkeep.storage.sign_in import FileSignInCodes

    state = open_state(project_folder(project))
    if state is None:
        raise StateUnusable("~", "there is no home in which links could be kept", hint="set TOOLKEEP_HOME")
    link = f"{address.rstrip('/')}/ui/sign-in#{FileSignInCodes(state.folder).make()}"
    if as_json:
        print_json({"link": link})
        return
    say("  It counts once, for five minutes:", err=True)
    click.echo(link)
