"""`toolkeep sessions`: what sessions of agents have seen, their calls, and a person's way to end one (FLO-1).

Ending needs a terminal, as `toolkeep approve` does. No token and no route can do it: a model that begins anew
would be rid of what it has read.
"""

import asyncio
import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from toolkeep.approval.question_text import name
from toolkeep.cli.approval_prompt import YES, can_ask, person, typed
from toolkeep.cli.approvals import ListByDefault
from toolkeep.cli.options import common, is_terminal, print_json, project, say, say_done
from toolkeep.cli.tables import Column, say_table, short_time
from toolkeep.errors import Code, NotRecorded, ToolkeepError
from toolkeep.flow.session_state import Snapshot
from toolkeep.host import clock
from toolkeep.host.clock import iso
from toolkeep.limits import LISTED_NAMES
from toolkeep.text.display import counted, echo_name, listing, size, visible

if TYPE_CHECKING:
    from toolkeep.audit.call_timeline import TimelineCall
    from toolkeep.server.api.session_timeline import SessionTimeline

_ID_CHARS: Final = 8
"""Characters of an id: enough to tell the sessions of one keep apart."""
_LOOKED_AT: Final = 500
"""Calls of a session, among which its agents are looked for."""
_SCANS: Final = 40
"""Of 5,000 records each: as many as the charts of the page look back."""
_INDENT: Final = " " * 10
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
    """List the sessions of agents with what they have seen, show their calls, and end them.

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


@command.command("show", short_help="Show the calls of a session in order.")
@click.argument("session")
@click.option("--agent", help="Its agent, if several have a session with this name.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Newest calls.")
@click.option("--before", metavar="CURSOR", help="Calls before those shown last.")
@project
@common
def show_session(
    session: str,
    agent: str | None,
    limit: int,
    before: str | None,
    project: Path | None,
    *,
    as_json: bool,
) -> None:
    """Show the calls of the SESSION or conversation with this name, oldest first.

    For each: what came of it and why, who answered, how many bytes went in and out, where its arguments came
    from; then the state of the session, its measures and its budgets, as on the page.
    """
    import msgspec

    from toolkeep.cli.tool_selection import keep_with
    from toolkeep.server.api.recorded_calls import CallFilters
    from toolkeep.server.api.session_timeline import find_calls
    from toolkeep.server.api.session_timeline import show_session as show
    from toolkeep.stores.api_tokens import Scope, Token

    reader = Token(id="", name="", scopes=(Scope.AUDIT_READ,), agent="operator", created_at=0.0)

    async def look() -> "SessionTimeline":
        agents: list[str] = []
        for named, conversation in ((session, ""), ("", session)):
            filters = CallFilters(agent=agent, session=named or None, conversation=conversation or None)
            found, _ = await find_calls(keep, reader, filters, limit=_LOOKED_AT, scans=_SCANS)
            agents = sorted({one.newest.agent for one in found})
            if len(agents) == 1:
                return await show(
                    keep,
                    reader,
                    agents[0],
                    session=named,
                    conversation=conversation,
                    limit=limit,
                    cursor=before,
                    scans=_SCANS,
                )
            if agents:
                break
        raise _not_shown(session, agents)

    with keep_with(project=project) as keep:
        timeline = asyncio.run(look())
    if as_json:
        print_json(msgspec.to_builtins(timeline))
    else:
        say(*_timeline_lines(timeline))


def _not_shown(session: str, agents: Sequence[str]) -> ToolkeepError:
    if agents:
        said = f"{len(agents)} agents have a session {echo_name(session)!r}"
        return NotRecorded(said, f"name one: --agent {echo_name(agents[0])}")
    said = f"no session or conversation {echo_name(session)!r} is among the newest calls"
    return NotRecorded(said, "`toolkeep audit list` shows the newest records")


def _timeline_lines(timeline: "SessionTimeline") -> Iterator[str]:
    from toolkeep.audit.call_timeline import CHANGE_WORDS

    totals = timeline.totals
    said = [counted(totals.calls, "call"), f"{totals.refused} refused", f"{totals.failed} failed"]
    said += [f"{totals.unknown} unknown"] if totals.unknown else []
    kind = "Session" if timeline.session else "Conversation"
    named = name(timeline.session or timeline.conversation)
    yield f"{kind} {named} of {name(timeline.agent)}: {', '.join(said)}"
    for call in timeline.items:
        yield from (f"{_INDENT}{CHANGE_WORDS[change]}" for change in call.changes)
        at = short_time(datetime.fromisoformat(call.time).timestamp())
        yield f"{at}  {call.call[:_ID_CHARS]}  {call.outcome:<9}  {name(call.tool) or 'a call'}{_sizes(call)}"
        yield from (f"{_INDENT}{line}" for line in _details(call))
    if (state := timeline.state) is not None:
        yield from (f"{_INDENT}{CHANGE_WORDS[change]}" for change in state.changes)
        words = [word for word, holds in (("opened", state.opened), ("secret", state.secret)) if holds]
        yield f"State: {', '.join(words) or 'clean'}"
        if state.shown_by:
            yield f"The model was shown results of: {', '.join(map(name, state.shown_by))}"
    for one in timeline.measures:
        budget = f" of {one.budget}" if one.budget is not None else ""
        yield f"{name(one.name)}: {one.value}{budget} in {one.over}{', used up' if one.is_used_up else ''}"
    if timeline.next:
        yield f"Earlier calls: --before {timeline.next}"


def _sizes(call: "TimelineCall") -> str:
    from toolkeep.audit.call_verdict import duration_text

    found = [f"{size(call.sent_bytes)} in"] if call.sent_bytes is not None else []
    found += [f"{size(call.shown_bytes)} out"] if call.shown_bytes is not None else []
    found += [duration_text(call.took_us)] if call.took_us else []
    return f": {', '.join(found)}" if found else ""


def _details(call: "TimelineCall") -> Iterator[str]:
    if call.outcome != "ok":
        yield visible(call.why)
    if call.answer is not None:
        by = f" by {name(call.answer.approver)}" if call.answer.approver else ""
        yield f"{call.answer.verdict}{by}, way: {call.answer.way}"
    for argument, origins in (call.facts.origins if call.facts else {}).items():
        yield f"{name(argument)} from {visible(', '.join(origins))}"


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
