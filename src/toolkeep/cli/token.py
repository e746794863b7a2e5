"""`toolkeep token`: API tokens for clients of the HTTP server, and sign-in links for its web interface."""

import contextlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from toolkeep.cli.main import CommandGroup
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table, short_time
from toolkeep.errors import TokenRefused
from toolkeep.host.clock import iso
from toolkeep.limits import TOKEN_DAYS
from toolkeep.stores.api_tokens import ROLES, MadeToken, Scope, Token, Tokens
from toolkeep.stores.identity_revocations import Revocation
from toolkeep.text.display import echo_name


@click.group("token", cls=CommandGroup)
def command() -> None:
    """Create, list, rotate and revoke API tokens for the HTTP server."""


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
    say(f"  Its bearer is the agent {token.agent}, {until}. Store it now: it is not shown again.", err=True)


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
    type=click.Choice(
        [scope.value for scope in Scope] + [role for role in ROLES if role != Scope.ADMIN.value]
    ),
    help="What its bearer may do, a scope or a role; repeatable.",
)
@click.option("--agent", default="", help="The agent that its bearer calls tools as; NAME by default.")
@click.option("--days", type=click.IntRange(1), help=f"Days until it expires; by default {TOKEN_DAYS:.0f}.")
@click.option("--no-end", is_flag=True, help="It never expires.")
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
    """Create a token called NAME and print it once; only its hash is stored."""
    if no_end and days is not None:
        raise click.UsageError("Use --days or --no-end, not both.")
    lasts = None if no_end else float(days or TOKEN_DAYS)
    with tokens_of(project) as tokens:
        made = tokens.make(name, scopes, agent=agent, days=lasts)
        show_made(tokens, made, as_json=as_json)
    if not _CALLING.isdisjoint(made.token.scopes):
        from toolkeep.cli.tool_selection import warn_if_undeclared
        from toolkeep.keep.open import project_folder

        warn_if_undeclared(made.token.agent, project_folder(project))


_COLUMNS: Final = (
    Column("ID"),
    Column("STATE"),
    Column("LAST USED"),
    Column("NAME", narrowest=8),
    Column("AGENT", narrowest=8),
    Column("SCOPES", narrowest=12),
)


@command.command("list", short_help="List the tokens.")
@click.option("--all", "shows_all", is_flag=True, help="Include expired and revoked tokens.")
@project
@common
def list_tokens(project: Path | None, *, shows_all: bool, as_json: bool) -> None:
    """List the valid tokens, oldest first."""
    now = time.time()
    with tokens_of(project) as tokens:
        found = [token for token in tokens.list() if shows_all or token.is_live(now)]
    if as_json:
        print_json([token_data(token) for token in found])
    elif found:
        say_table(_COLUMNS, [_row(token, now) for token in found])
    else:
        say("There are no valid tokens. Make one: toolkeep token make NAME --scope call")


def _row(token: Token, now: float) -> tuple[str, ...]:
    used = short_time(token.last_used_at) if token.last_used_at else "never"
    scopes = ",".join(scope.value for scope in token.scopes)
    return token.id, _state(token, now), used, token.name, token.agent, scopes


def _state(token: Token, now: float) -> str:
    if token.revoked_at is not None:
        return f"revoked {short_time(token.revoked_at)}"
    if token.expires_at is None:
        return "no expiry"
    return f"{'expires' if token.is_live(now) else 'expired'} {short_time(token.expires_at)}"


_DAY_SECONDS = 86_400  # a unit, no bound


@command.command("rotate", short_help="Replace a token by a new one.")
@click.argument("token_id", metavar="ID")
@click.option(
    "--overlap",
    type=click.IntRange(0, 30 * _DAY_SECONDS),
    default=0,
    show_default=True,
    help="Seconds for which the old token stays valid.",
)
@project
@common
def rotate_token(token_id: str, overlap: int, project: Path | None, *, as_json: bool) -> None:
    """Replace the token with this ID, or whose id starts with it, by a new one with the same rights."""
    with tokens_of(project) as tokens:
        made = tokens.rotate(token_id, overlap_s=overlap)
        show_made(tokens, made, as_json=as_json)


@command.command("revoke", short_help="Revoke a token, or an identity of a provider.")
@click.argument("token_id", metavar="[ID]", default="")
@click.option("--issuer", default="", metavar="URL", help="Of an identity provider, as `iss` of its tokens.")
@click.option("--subject", default="", help="Refuse everything of this subject (`sub`) of the issuer.")
@click.option("--token-id", "foreign_id", default="", help="Refuse the token of the issuer with this `jti`.")
@project
@common
def revoke_token(
    token_id: str, issuer: str, subject: str, foreign_id: str, project: Path | None, *, as_json: bool
) -> None:
    """Revoke the token with this ID, or whose id starts with it.

    With --issuer, refuse a subject or a token of your identity provider instead, until you restore it.
    """
    if bool(token_id) == bool(issuer or subject or foreign_id):
        raise click.UsageError("Name the ID of a token, or --issuer with --subject or --token-id.")
    if not token_id:
        with tokens_of(project) as tokens:
            revoked = tokens.revoke_identity(issuer, subject=subject, token_id=foreign_id)
        if as_json:
            print_json(_revocation_data(revoked))
        else:
            say_done(f"revoked {_what(revoked)} of {revoked.issuer}")
            say(f"  To let it count again: toolkeep token restore {revoked.id}")
        return
    with tokens_of(project) as tokens:
        token = tokens.revoke(token_id)
    if as_json:
        print_json(token_data(token))
    else:
        say_done(f"revoked {token.id} ({token.name})")


def _what(one: Revocation) -> str:
    if one.issued_by is None:
        return f"token {echo_name(one.token_id)}" if one.token_id else f"subject {echo_name(one.subject)}"
    ended = f"session {echo_name(one.session)}" if one.session else "all sessions"
    return f"{ended} of {echo_name(one.subject)}" if one.subject else ended


def _revocation_data(one: Revocation) -> dict[str, Any]:
    return {
        "id": one.id,
        "issuer": one.issuer,
        "subject": one.subject,
        "token_id": one.token_id,
        "session": one.session,
        "issued_by": moment(one.issued_by),
        "revoked_at": moment(one.made_at),
    }


_REVOKED: Final = (
    Column("ID"),
    Column("SINCE"),
    Column("WHAT", narrowest=12),
    Column("ISSUER", narrowest=12),
)


@command.command("revocations", short_help="List revoked identities of providers.")
@project
@common
def list_revocations(project: Path | None, *, as_json: bool) -> None:
    """List the subjects, tokens and sessions of identity providers that do not count, oldest first."""
    with tokens_of(project) as tokens:
        found = tokens.revocations()
    if as_json:
        print_json([_revocation_data(one) for one in found])
    elif found:
        say_table(_REVOKED, [(one.id, short_time(one.made_at), _what(one), one.issuer) for one in found])
    else:
        say("Nothing of an identity provider is revoked.")


@command.command("restore", short_help="Let a revoked identity count again.")
@click.argument("revocation_id", metavar="ID")
@project
@common
def restore_identity(revocation_id: str, project: Path | None, *, as_json: bool) -> None:
    """Remove the revocation with this ID, or whose id starts with it."""
    with tokens_of(project) as tokens:
        restored = tokens.restore(revocation_id)
    if as_json:
        print_json(_revocation_data(restored))
    else:
        say_done(f"restored {_what(restored)} of {restored.issuer}")


def _web_address(_: click.Context, __: click.Parameter, address: str) -> str:
    if address and not address.startswith(("http://", "https://")):
        raise click.BadParameter("must start with http:// or https://, as printed by `toolkeep serve`")
    return address


@command.command("link", short_help="Create a link that signs you in to the page.")
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
    """Print a sign-in link to the page of this project's server.

    The link works once, within five minutes, and grants all rights.
    """
    from toolkeep.cli.served_page import sign_in_link
    from toolkeep.errors import StateUnusable
    from toolkeep.keep.open import open_sign_in_codes, open_state, project_folder
    from toolkeep.storage.running_servers import running_servers

    root = project_folder(project)
    state = open_state(root)
    if state is None:
        raise StateUnusable("~", "there is no state folder to store the link in", hint="set TOOLKEEP_HOME")
    address = address or next(iter(running_servers(state.folder)), "")
    if not address:
        hint = "start it: toolkeep serve; or name the address of one elsewhere: --address URL"
        raise StateUnusable(str(state.folder), "no server runs for this project", hint=hint)
    link = sign_in_link(address, open_sign_in_codes(root))
    if as_json:
        print_json({"link": link})
        return
    say("  This link works once, within five minutes:", err=True)
    click.echo(link)
