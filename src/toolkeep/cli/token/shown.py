"""How a token is shown: once whole, when it is made, and never after."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from toolkeep.assembly import open_tokens, project_folder
from toolkeep.cli.options import print_json, say, say_done
from toolkeep.clock import iso
from toolkeep.errors import TokenRefused
from toolkeep.tokens import MadeToken, Token, Tokens


@contextlib.contextmanager
def tokens_of(project: Path | None) -> Iterator[Tokens]:
    """The tokens of a project, open."""
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
    """A time in JSON."""
    return None if seconds is None else iso(seconds)


def show_made(tokens: Tokens, made: MadeToken, *, as_json: bool) -> None:
    """Print a token, this once; one that cannot be printed is revoked, since nobody would know it."""
    try:
        _print(made, as_json=as_json)
    except OSError as error:
        tokens.revoke(made.token.id)
        hint = f"a new one: toolkeep token make {shlex.quote(made.token.name)}, where it can be written"
        reason = error.strerror or "input or output failed"
        raise TokenRefused(f"the token could not be shown and was revoked: {reason}", hint=hint) from error


def _print(made: MadeToken, *, as_json: bool) -> None:
    """The token itself alone on standard output, what there is to say of it beside."""
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
