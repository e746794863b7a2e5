"""`toolkeep sign-in`: a person signs in to an upstream MCP server, and its tokens are kept."""

import asyncio
import webbrowser
from pathlib import Path
from typing import Any

import click

from toolkeep.assembly import open_state, project_folder, read_configuration
from toolkeep.cli.add.signing import show, tokens_of, wanted_of
from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.errors import SignInFailed, ToolkeepError
from toolkeep.sandbox.trusted import THIS_PROCESS
from toolkeep.sources.mcp.looking import look
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.access import SigningIn
from toolkeep.wording import visible


@click.command("sign-in")
@click.argument("name")
@click.option("--open", "opens", is_flag=True, help="Open the address in a browser.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Where the browser comes back to.")
@click.option("--forget", is_flag=True, help="Forget the tokens instead.")
@project
@common
def command(
    name: str, *, opens: bool, port: int | None, forget: bool, project: Path | None, as_json: bool
) -> None:
    """Sign in to the upstream NAME, an MCP server with `oauth` in its configuration.

    The address to open is shown. What you agree to there is kept in the state folder, for calls of the tools
    of this server and for nothing else, until you forget it.
    """
    root = project_folder(project)
    entry = _entry(root, name)
    tokens = tokens_of(root)
    if forget:
        was_there = tokens.forget(name)
        _tell({"upstream": name, "forgotten": was_there}, f"forgot '{name}'", as_json=as_json)
        return

    def tell(url: str) -> None:
        show(url)
        if opens:
            webbrowser.open(url)

    try:
        before = tokens.get(name)
        access = SigningIn(entry["url"], wanted_of(entry, {}), tell, before=before, port=port or 0)
        asyncio.run(_signed_in(entry, root, access, is_wanted=bool(before and before.wanted)))
    except UpstreamFailed as failed:
        raise SignInFailed(name, failed.reason) from None
    if access.kept is None:
        raise SignInFailed(name, "its server does not ask for it")
    tokens.put(name, access.kept)
    _tell({"upstream": name, "issuer": access.kept.issuer}, f"signed in to '{name}'", as_json=as_json)


async def _signed_in(entry: dict[str, Any], root: Path, access: SigningIn, *, is_wanted: bool) -> None:
    """Sign in when the server asks, or at once where it wanted more than it was shown last time."""
    if is_wanted:
        await access.begin()
    try:
        await look(entry, str(root), str, THIS_PROCESS, access)
    except ToolkeepError as error:
        raise SignInFailed(str(entry["url"]), error.message) from None


def _entry(root: Path, name: str) -> dict[str, Any]:
    """What the configuration says of an upstream that is signed in to; only what a person accepted counts."""
    found = read_configuration(root, open_state(root)).upstreams.get(name)
    if found is None:
        hint = "add it: toolkeep add mcp NAME URL --sign-in; and accept it: toolkeep accept"
        raise SignInFailed(visible(name), "is no upstream of the accepted configuration", hint=hint)
    entry = dict(found.data)
    if "oauth" not in entry or entry["oauth"].get("grant") == "client_credentials":
        raise SignInFailed(name, "nobody signs in to it", hint="give it `oauth: {}` in the configuration")
    return entry


def _tell(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        say_done(text)
