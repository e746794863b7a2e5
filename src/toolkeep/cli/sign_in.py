"""`toolkeep sign-in`: sign in to an upstream MCP server with OAuth, and store its tokens."""

import asyncio
import webbrowser
from pathlib import Path
from typing import Any

import click

from toolkeep.cli.options import common, print_json, project, say_done
from toolkeep.cli.upstream_access import client_settings, show_sign_in_url, sign_in_store
from toolkeep.errors import SignInFailed, ToolkeepError
from toolkeep.keep.open import open_state, project_folder, read_configuration
from toolkeep.mcp_client.inspect_server import inspect_mcp_server
from toolkeep.mcp_client.oauth.credentials import InteractiveSignIn
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.sandbox.trusted_paths import THIS_PROCESS
from toolkeep.text.display import visible


@click.command("sign-in")
@click.argument("name")
@click.option("--open", "opens", is_flag=True, help="Open the address in a browser.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Local port for the browser's redirect.")
@click.option("--forget", is_flag=True, help="Delete the stored tokens instead.")
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
    tokens = sign_in_store(root)
    if forget:
        was_there = tokens.forget(name)
        _tell({"upstream": name, "forgotten": was_there}, f"forgot '{name}'", as_json=as_json)
        return

    def tell(url: str) -> None:
        show_sign_in_url(url)
        if opens:
            webbrowser.open(url)

    try:
        before = tokens.get(name)
        access = InteractiveSignIn(
            entry["url"], client_settings(entry, {}), tell, before=before, port=port or 0
        )
        asyncio.run(_signed_in(entry, root, access, is_wanted=bool(before and before.wanted)))
    except UpstreamFailed as failed:
        raise SignInFailed(name, failed.reason) from None
    if access.kept is None:
        raise SignInFailed(name, "its server does not require signing in")
    tokens.put(name, access.kept)
    _tell({"upstream": name, "issuer": access.kept.issuer}, f"signed in to '{name}'", as_json=as_json)


async def _signed_in(
    entry: dict[str, Any], root: Path, access: InteractiveSignIn, *, is_wanted: bool
) -> None:
    """Sign in when the server requires it, or at once if it asked for more scopes last time."""
    if is_wanted:
        await access.begin()
    try:
        await inspect_mcp_server(entry, str(root), str, THIS_PROCESS, access)
    except ToolkeepError as error:
        raise SignInFailed(str(entry["url"]), error.message) from None


def _entry(root: Path, name: str) -> dict[str, Any]:
    """The configuration of an upstream with OAuth; only accepted configuration counts.

    Otherwise a cloned project could name a server of its own and collect the person's consent for it.
    """
    found = read_configuration(root, open_state(root)).upstreams.get(name)
    if found is None:
        hint = "add it: toolkeep add mcp NAME URL --sign-in; and accept it: toolkeep accept"
        raise SignInFailed(visible(name), "is not an upstream of the accepted configuration", hint=hint)
    entry = dict(found.data)
    if "oauth" not in entry or entry["oauth"].get("grant") == "client_credentials":
        raise SignInFailed(
            name, "it is configured without sign-in", hint="add `oauth: {}` to it in the configuration"
        )
    return entry


def _tell(data: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        say_done(text)
