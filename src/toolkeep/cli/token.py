"""`toolkeep token`: API tokens for clients of the HTTP server, and sign-in links for its web interface."""

import contextlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_columns, say_done
from toolkeep.errors import TokenRefused
from toolkeep.host.clock import iso
from toolkeep.limits import TOKEN_DAYS
from toolkeep.stores.api_tokens import MadeToken, Scope, Token, Tokens


@click.group("token", cls=CommandGroup)
def command() -> None:
    """Make, list, rotate and revoke the tokens with which clients use the keep over the network."""


@contextlib.contextmanager
def tokens_of(project: Path | None) -> Iterator[Tokens]:
    """Open the token store of a project."""
    from toolkeep.keep.open import open_tokens, project_folder

    with contextlib.closing(open_tokens(project_folder(project))) as tokens:
        yield tokens


def token_data(token: Token) -> dict[str, Any]:
    """A token as JSON data; its secret is not known here."""
    return {
        "id": token.id,
        "name": token.name,
        "agent": token.agent,
        "scopes": [scope.value for scope in token.scopes],
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at),
        "last_used_at": moment(token.last_used_at),
        "revoked_at": moment(token.revoked_at),
    }


def moment(seconds: float | None) -> str | None:
    """A timestamp as text."""
    return None if seconds is None else iso(seconds)


def show_made(tokens: Tokens, made: MadeToken, *, as_json: bool) -> None:
    """Print a new token once; if that fails, revoke it, since nobody knows it."""
    try:
        _print(made, as_json=as_json)
    except OSError as error:
        tokens.revoke(made.token.id)
        hint = f"a new one: toolkeep token make {shlex.quote(made.token.name)}, where it can be written"
        reason = error.strerror or "input or output failed"
        raise TokenRefused(f"the token could not be shown and was revoked: {reason}", hint=hint) from error


def _print(made: MadeToken, *, as_json: bool) -> None:
    """The token alone on stdout, so that it can be piped; everything else on stderr."""
    if as_json:
        print_json({**token_data(made.token), "token": made.text})
        return
    token = made.token
    scopes = ", ".join(scope.value for scope in token.scopes)
    ends = moment(token.expires_at)
    until = "until it is revoked" if ends is None else f"until {ends}"
    click.echo(made.text)
    say_done(f"token {token.id} ({token.name}): {scopes}", err=True)
    say(f"  Its bearer is the agent {token.agent}, {until}. Keep it now; it is not shown again.", err=True)


_CALLING: Final = frozenset((Scope.CALL, Scope.MCP, Scope.ADMIN))
"""Scopes that can call tools."""


@command.command("make", short_help="Make a token; it is shown once.")
@click.argument("name")
@click.option(
    "-s",
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What its bearer may do; may be given several times.",
)
@click.option("--agent", default="", help="As whom its bearer calls tools; by default NAME.")
@click.option("--days", type=click.IntRange(1), help=f"How long it counts; by default {TOKEN_DAYS:.0f}.")
@click.option("--no-end", is_flag=True, help="It counts until it is revoked.")
@project
@common
def make_token(
    name: str,
    scopes: tuple[str, ...],
    agent: str,
    days: int | None,
    project: Path | None,
    *,
    no_end: bool,
    as_json: bool,
) -> None:
    """Make a token called NAME and print it, this once; only a hash of it is kept."""
    if no_end and days is not None:
        raise click.UsageError("Say --days or --no-end.")
    lasts = None if no_end else float(days or TOKEN_DAYS)
    with tokens_of(project) as tokens:
        made = tokens.make(name, scopes, agent=agent, days=lasts)
        show_made(tokens, made, as_json=as_json)
    if not _CALLING.isdisjoint(made.token.scopes):
        from toolkeep.cli.tool_selection import warn_if_undeclared
        from toolkeep.keep.open import project_folder

        warn_if_undeclared(made.token.agent, project_folder(project))


@command.command("list", short_help="List the tokens.")
@click.option("--all", "shows_all", is_flag=True, help="Those that no longer count too.")
@project
@common
def list_tokens(project: Path | None, *, shows_all: bool, as_json: bool) -> None:
    """List the tokens that count, oldest first: id, name, agent, scopes, end, last use."""
    now = time.time()
    with tokens_of(project) as tokens:
        found = [token for token in tokens.list() if shows_all or token.is_live(now)]
    if as_json:
        print_json([token_data(token) for token in found])
        return
    say_columns([_row(token, now) for token in found])
    if not found:
        say("no token counts")


def _row(token: Token, now: float) -> tuple[str, ...]:
    scopes = ",".join(scope.value for scope in token.scopes)
    used = f"last used {moment(token.last_used_at)}" if token.last_used_at else "never used"
    return token.id, token.name, f"as {token.agent}", scopes, _end(token, now), used


def _end(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return f"revoked {moment(token.revoked_at)}"
    if token.expires_at is None:
        return "no end"
    return f"{'ends' if token.is_live(now) else 'ended'} {moment(token.expires_at)}"


_DAY_SECONDS = 86_400  # a unit, no bound


@command.command("rotate", short_help="Put another token in the place of one.")
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap",
    type=click.IntRange(0, 30 * _DAY_SECONDS),
    default=0,
    show_default=True,
    help="Seconds for which the old one still counts.",
)
@project
@common
def rotate_token(token_id: str, overlap: int, project: Path | None, *, as_json: bool) -> None:
    """Make a token like the one of ID, or whose id begins so, and let the old one end."""
    with tokens_of(project) as tokens:
        made = tokens.rotate(token_id, overlap_s=overlap)
        show_made(tokens, made, as_json=as_json)


@command.command("revoke", short_help="Let a token no longer count.")
@click.argument("token_id", metavar="ID")
@project
@common
def revoke_token(token_id: str, project: Path | None, *, as_json: bool) -> None:
    """Let the token of ID, or whose id begins so, no longer count."""
    with tokens_of(project) as tokens:
        token = tokens.revoke(token_id)
    if as_json:
        print_json(token_data(token))
    else:
        say_done(f"revoked {token.id} ({token.name})")


def _web_address(_: click.Context, __: click.Parameter, address: str) -> str:
    if address and not address.startswith(("http://", "https://")):
        raise click.BadParameter("begins with http:// or https://, as `toolkeep serve` says it")
    return address


@command.command("link", short_help="Make a link that signs a person in to the page.")
@click.option(
    "--address",
    callback=_web_address,
    default="",
    metavar="URL",
    help="Address of the server.  [default: the server that runs for this project]",
)
@project
@common
def make_link(address: str, project: Path | None, *, as_json: bool) -> None:
    """Print a link to the page of the server that runs for this project.

    Whoever opens it first, within five minutes, is signed in and may do everything.
    """
    from toolkeep.cli.served_page import sign_in_link
    from toolkeep.errors import StateUnusable
    from toolkeep.keep.open import open_state, project_folder
    from toolkeep.storage.running_servers import running_servers
    from toolkeep.storage.sqlite.sign_in_codes import FileSignInCodes

    state = open_state(project_folder(project))
    if state is None:
        raise StateUnusable("~", "there is no home in which links could be kept", hint="set TOOLKEEP_HOME")
    address = address or next(iter(running_servers(state.folder)), "")
    if not address:
        hint = "start it: toolkeep serve; or name the address of one elsewhere: --address URL"
        raise StateUnusable(str(state.folder), "no server runs for this project", hint=hint)
    link = sign_in_link(address, FileSignInCodes(state.folder))
    if as_json:
        print_json({"link": link})
        return
    say("  It works once, for five minutes:", err=True)
    click.echo(link)
