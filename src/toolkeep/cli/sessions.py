"""`toolkeep sessions`: what sessions of agents have seen, and a person's way to end one (FLO-1).

Ending needs a terminal, as `toolkeep approve` does. No token and no route can do it: a model that begins anew
would be rid of what it has read.
"""

import asyncio
import contextlib
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from toolkeep.approval.question_text import name
from toolkeep.cli.approval_prompt import YES, can_ask, person, typed
from toolkeep.cli.approvals import ListByDefault
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table, short_time
from toolkeep.errors import Code, ToolkeepError
from toolkeep.flow.session_state import Snapshot
from toolkeep.host import clock
from toolkeep.host.clock import iso
from toolkeep.limits import LISTED_NAMES
from toolkeep.text.display import echo_name, listing

_ID_CHARS: Final = 8
"""Characters of an id: enough to tell the sessions of one keep apart."""
_COLUMNS: Final = (Column("ID"), Column("STATE"), Column("LAST SEEN"), Column("AGENT"), Column("SESSION"))


class NotEnded(ToolkeepError):
    """A session that cannot be ended so."""

    def __init__(self, reason: str, *, hint: str) -> None:
        super().__init__(Code.ANSWER_REFUSED, reason, hint=hint)


class StoredSession(NamedTuple):
    """One session, as the state folder holds it."""

    key: str
    state: Snapshot
    seen_at: float

    @property
    def id(self) -> str:
        """A short name: keys are long, and sessions of two agents may be called the same."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:_ID_CHARS]

    @property
    def agent(self) -> str:
        """The agent that it belongs to."""
        return self.key.partition("\n")[0]

    @property
    def is_remote(self) -> bool:
        """Whether it belongs to a caller over HTTP or MCP."""
        return self.key.split("\n", 2)[1] == "remote"

    @property
    def named(self) -> str:
        """The name that the program gave it, or its remote caller."""
        return self.key.split("\n", 2)[2]

    @property
    def words(self) -> str:
        """Its state."""
        words = [
            word for word, holds in (("opened", self.state.opened), ("secret", self.state.secret)) if holds
        ]
        return ", ".join(words) or "clean"


@click.group("sessions", cls=ListByDefault)
def command() -> None:
    """List the sessions of agents with what they have seen, and end them.

    Without a command, they are listed.
    """


@command.command("list", short_help="List the sessions.")
@project
@common
def list_sessions(project: Path | None, *, as_json: bool) -> None:
    """List the sessions whose model has seen something, newest first.

    SESSION is the name that your program gave, or the caller: `http` for an agent over HTTP, the client
    process over stdio.
    """
    from toolkeep.keep.open import open_sessions, project_folder

    with contextlib.closing(open_sessions(project_folder(project))) as sessions:
        found = [StoredSession(*row) for row in sessions.stored()]
    if as_json:
        print_json(list(map(_data, found)))
        return
    if not found:
        say("No session is stored.")
        return
    rows = [
        (
            one.id,
            one.words,
            short_time(one.seen_at),
            name(one.agent),
            name(one.named) if one.named else "",
        )
        for one in found
    ]
    say_table(_COLUMNS, rows)


def _data(one: StoredSession) -> dict[str, Any]:
    return {
        "id": one.id,
        "agent": one.agent,
        "session": one.named,
        "is_remote": one.is_remote,
        "opened": one.state.opened,
        "secret": one.state.secret,
        "last_seen_at": iso(one.seen_at),
    }


@command.command("end", short_help="End a session: the next call begins anew.")
@click.argument("session")
@project
@common
def end_session(session: str, project: Path | None, *, as_json: bool) -> None:
    """End the SESSION with this name or ID, so that its next call begins with a clean state.

    Do so when its conversation is over. If it goes on, the model still knows what it read, and nothing guards
    against it any more. Needs a terminal. The log records it.
    """
    if not (can_ask() and is_terminal(sys.stdout)):
        hint = "run it in a terminal; a trusted host begins sessions with a token that has the scope session"
        raise NotEnded("ending a session needs a terminal", hint=hint)
    from toolkeep.keep.open import open_sessions, project_folder

    with contextlib.closing(open_sessions(project_folder(project))) as sessions:
        found = _found([StoredSession(*row) for row in sessions.stored()], session)
        say(f"Session {name(found.named)} of agent {name(found.agent)} is {found.words}.", err=True)
        line = asyncio.run(typed("Is its conversation over? [y]es, end the session, [n]o: "))
        if (line or "").strip().casefold() not in YES:
            raise NotEnded("the session was not ended", hint="answer y to end it")
        _record(found, project)
        sessions.end(found.key, time.time())
    if as_json:
        print_json(_data(found))
    else:
        say_done(f"ended session {name(found.named)} of {name(found.agent)}")


def _found(stored: Sequence[StoredSession], given: str) -> StoredSession:
    found = [one for one in stored if given in (one.named, one.id)]
    if len(found) == 1:
        return found[0]
    these = listing(
        (f"{one.id} ({echo_name(one.agent)} {echo_name(one.named)})" for one in stored),
        len(stored),
        LISTED_NAMES,
    )
    what = "several sessions are called" if found else "no stored session is called"
    raise NotEnded(
        f"{what} {echo_name(given)!r}", hint=f"give an id: {these}" if stored else "none is stored"
    )


def _record(one: StoredSession, project: Path | None) -> None:
    """Record it before it takes effect; without a record nothing ends."""
    import msgspec

    from toolkeep.audit.record_kinds import SessionEnded
    from toolkeep.cli.audit import log_of

    record = SessionEnded(
        agent=one.agent,
        ended_by=f"operator:{person()}",
        opened=one.state.opened,
        secret=one.state.secret,
        session=one.key,
        time=clock.now(),
    )
    with log_of(project) as log:
        log.append(msgspec.to_builtins(record)).result()
