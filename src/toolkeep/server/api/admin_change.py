"""Changes that put something in force: accepted tools, danger, flow, policies, grants (WEB-2).

`put_in_force` is the one way to make them. It needs the scope `admin` and the typed name of what is changed;
from the page (`server/web/fresh_sign_in.py`) also a sign-in younger than five minutes. A bearer token has no
sign-in, so over `/v1` the scope and the name in the body are all. Who made the change and the difference are
in the log before it takes effect.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import msgspec

from toolkeep.audit.record_kinds import OperatorChange, written
from toolkeep.errors import Code, ToolkeepError
from toolkeep.host import clock
from toolkeep.keep.keep import Keep
from toolkeep.limits import FRESH_SIGN_IN_SECONDS
from toolkeep.server.http.bearer_auth import Caller, check_scope
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.stores.api_tokens import Scope

Result = TypeVar("Result")
_DIFFERENCE_CHARS: Final = 16_384
"""Of a difference, in a record: every server and witness stores each record for good."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is put in force."""

    what: Literal["tool accepted", "tool kept out", "danger", "flow", "policies", "grant", "drift seen"]
    name: str
    """What has to be typed: the name of the tool, agent or policies."""
    difference: str


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants a change, and what they did to confirm it."""

    caller: Caller
    person: str
    """Who the log says it was."""
    way: Literal["page", "http", "terminal"]
    typed_name: str
    signed_in_at: float | None
    """POSIX seconds; None for a bearer token."""


def bearer_confirmation(caller: Caller, typed_name: str) -> Confirmation:
    """The confirmation of a request over `/v1`."""
    return Confirmation(
        caller=caller, person=caller.agent, way="http", typed_name=typed_name, signed_in_at=None
    )


async def put_in_force(
    keep: Keep, said: Confirmation, change: Change, apply: Callable[[], Result], *, now: float | None = None
) -> Result:
    """Record a confirmed change, then make it, in a thread; raises `RequestRefused` if it is not confirmed.

    A change that fails is recorded a second time, with the code of the failure.
    """
    check_confirmed(said, change.name, time.time() if now is None else now)
    return await record_change(keep, said, change, apply)


async def record_change(
    keep: Keep, said: Confirmation, change: Change, apply: Callable[[], Result]
) -> Result:
    """Record a change that needs no confirmation, since it permits nothing, then make it."""
    record = _record(said, change)
    # Before it takes effect: a change that cannot be recorded is not made.
    await keep.record.log.append_soon(written(record), is_alone=True)
    try:
        return await asyncio.to_thread(apply)
    except ToolkeepError as error:
        failed = msgspec.structs.replace(record, codes=(error.code.value,), time=clock.now())
        await keep.record.log.append_soon(written(failed), is_alone=True)
        raise


def check_confirmed(said: Confirmation, name: str, now: float) -> None:
    """Raise unless the caller has the scope, has signed in lately, and typed the name."""
    check_scope(said.caller, (Scope.ADMIN,))
    if said.signed_in_at is not None and not is_fresh(said.signed_in_at, now):
        raise RequestRefused(
            Code.NOT_CONFIRMED,
            "your sign-in is older than five minutes",
            hint="sign in again in this browser (provider, or toolkeep token link), then repeat it here",
        )
    if said.typed_name.strip() != name:
        raise RequestRefused(
            Code.NOT_CONFIRMED, "the typed name is not the one that is shown", hint=f"type: {name}"
        )


def is_fresh(signed_in_at: float, now: float) -> bool:
    """Whether a sign-in is young enough; another server's clock may be ahead."""
    return abs(now - signed_in_at) <= FRESH_SIGN_IN_SECONDS


def _record(said: Confirmation, change: Change) -> OperatorChange:
    whole = change.difference.encode("utf-8", "backslashreplace").decode()
    return OperatorChange(
        difference=whole[:_DIFFERENCE_CHARS],
        difference_hash=hashlib.sha256(whole.encode()).hexdigest(),
        identity=said.caller.identity or msgspec.UNSET,
        name=change.name,
        person=said.person,
        time=clock.now(),
        way=said.way,
        what=change.what,
    )
