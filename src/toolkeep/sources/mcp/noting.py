"""What is told and recorded of that which one server wants: that it asked and what became of it, never what.

It goes into the log of the calls that it may have been asked for, each once, and is told as an event.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from toolkeep import clock
from toolkeep.audit.kinds import ServerAsked
from toolkeep.canonical import canonical_hash
from toolkeep.events import UpstreamAsked
from toolkeep.sources.mcp.forms import FORM_BYTES

Tell = Callable[[UpstreamAsked], None]
Record = Callable[[ServerAsked], "asyncio.Future[Any]"]


class UnderWay(msgspec.Struct, frozen=True, eq=False):
    """A call that a server has."""

    id: str
    """Under which the log has it."""
    pause: Callable[[], AbstractContextManager[None]] = nullcontext
    """Held while a person is asked, so that this is none of its time."""


class Wish(msgspec.Struct, eq=False):
    """Something that a server wants, and the calls that it may want it for."""

    method: str
    calls: list[UnderWay]
    """Those whose log does not say yet what became of it."""
    of_calls: int
    hash: str = ""


class Notes:
    """Those about one conversation."""

    def __init__(self, upstream: str, agent: str, tell: Tell, record: Record) -> None:
        self._upstream = upstream
        self._agent = agent
        self._tell = tell
        self._record = record

    def write(
        self, wish: Wish, calls: list[UnderWay], outcome: str, by: str = ""
    ) -> "list[asyncio.Future[Any]]":
        """Say in the log of these calls what became of it; durable once awaited."""
        wish.calls = [call for call in wish.calls if call not in calls]
        return [
            self._record(
                ServerAsked(
                    answerer=by,
                    call=call.id,
                    method=wish.method,
                    of_calls=wish.of_calls,
                    outcome=outcome,
                    question_hash=wish.hash,
                    time=clock.now(),
                    upstream=self._upstream,
                )
            )
            for call in calls
        ]

    def tell(self, wish: Wish, outcome: str, reason: str) -> None:
        """Tell that a server asked, and how it ended."""
        self._tell(
            UpstreamAsked(
                upstream=self._upstream, agent=self._agent, method=wish.method, outcome=outcome, reason=reason
            )
        )


def hash_of(params: object) -> str:
    """SHA-256 of what a server sent along; empty where that is too much, or has no canonical form."""
    try:
        return canonical_hash(params) if len(msgspec.json.encode(params)) <= FORM_BYTES else ""
    except (TypeError, ValueError, RecursionError, OverflowError):
        return ""
