"""What commands share that put something in force: the answer of the person, and who the log says it was."""

import asyncio
import sys
from collections.abc import Callable

from toolkeep.cli.approval_prompt import person
from toolkeep.cli.options import is_agreed, is_terminal
from toolkeep.errors import NotAccepted
from toolkeep.keep.keep import Keep
from toolkeep.server.api.admin_change import Change, Confirmation, record_change
from toolkeep.stores.api_tokens import Scope, Token


def agree(question: str, digest: str, given_hash: str | None) -> None:
    """Raise `NotAccepted` unless the person at the terminal agrees, or the hash is the one that was given."""
    if given_hash is not None:
        if given_hash.removeprefix("sha256:").lower() != digest:
            raise NotAccepted("the hash is another one", hint=f"review it; it is {digest}")
    elif not is_terminal(sys.stdin):
        raise NotAccepted("nobody is at the terminal to agree", hint=f"review it, then pass --hash {digest}")
    elif not is_agreed(question):
        raise NotAccepted("nothing was changed", hint="run it again to review it")


def terminal_confirmation(typed_name: str) -> Confirmation:
    """The confirmation of a person who agreed."""
    who = f"operator:{person()}"
    operator = Token(id="terminal", name=who, scopes=(Scope.ADMIN,), agent="operator", created_at=0.0)
    return Confirmation(caller=operator, person=who, way="terminal", typed_name=typed_name, signed_in_at=None)


def apply(keep: Keep, change: Change, make: "Callable[[], None]") -> None:
    """Record a change, then make it."""
    asyncio.run(record_change(keep, terminal_confirmation(change.name), change, make))
