"""Audit of server requests: that a server asked and the outcome, never the content.

Each request is recorded once in the log of every call that it may belong to, and emitted as an event.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from toolkeep.audit.record_kinds import ServerAsked
from toolkeep.events import UpstreamAsked
from toolkeep.host import clock
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.mcp_client.elicitation_form import FORM_BYTES

Tell = Callable[[UpstreamAsked], None]
Record = Callable[[ServerAsked], "asyncio.Future[Any]"]


class ActiveCall(msgspec.Struct, frozen=True, eq=False):
    """An active call of a server."""

    id: str
    """The call id in the audit log."""
    pause: Callable[[], AbstractContextManager[None]] = nullcontext
    """Pauses the call's deadline while a person is asked."""


class ElicitationRecord(msgspec.Struct, eq=False):
    """A server request and the calls that it may belong to."""

    method: str
    calls: list[ActiveCall]
    """Calls whose log does not have the outcome yet."""
    of_calls: int
    hash: str = ""


class ElicitationAudit:
    """Records the server requests of one session."""

    def __init__(self, upstream: str, agent: str, tell: Tell, record: Record) -> None:
        self._upstream = upstream
        self._agent = agent
        self._tell = tell
        self._record = record

    def write(
        self, record: ElicitationRecord, calls: list[ActiveCall], outcome: str, by: str = ""
    ) -> "list[asyncio.Future[Any]]":
        """Append the outcome to the log of these calls; durable once awaited."""
        # Each call's log gets the outcome once, even if the question ends in several steps.
        record.calls = [call for call in record.calls if call not in calls]
        return [
            self._record(
                ServerAsked(
                    answerer=by,
                    call=call.id,
                    method=record.method,
                    of_calls=record.of_calls,
                    outcome=outcome,
                    question_hash=record.hash,
                    time=clock.now(),
                    upstream=self._upstream,
                )
            )
            for call in calls
        ]

    def tell(self, record: ElicitationRecord, outcome: str, reason: str) -> None:
        """Emit the event."""
        self._tell(
            UpstreamAsked(
                upstream=self._upstream,
                agent=self._agent,
                method=record.method,
                outcome=outcome,
                reason=reason,
            )
        )


def hash_of(params: object) -> str:
    """SHA-256 of the request parameters; empty if they are too large or have no canonical JSON."""
    try:
        return canonical_hash(params) if len(msgspec.json.encode(params)) <= FORM_BYTES else ""
    except (TypeError, ValueError, RecursionError, OverflowError):
        return ""
