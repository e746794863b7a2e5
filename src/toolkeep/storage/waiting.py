"""Those who wait for a record to be durable, and how they are told.

A waiter is a `concurrent.futures.Future`, or an asyncio future together with its loop. Every loop is woken once
a group: waking it for each future apart costs more than all the rest of a group commit (half the throughput).
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeAlias

from toolkeep.audit.entry import Leaf

Loop: TypeAlias = asyncio.AbstractEventLoop
Waiting: TypeAlias = "tuple[bytes, Future[Leaf], None] | tuple[bytes, asyncio.Future[Leaf], Loop]"
"""A canonical record, who waits for it, and on which loop."""

_Waiter: TypeAlias = "Future[Leaf] | asyncio.Future[Leaf]"
_Told: TypeAlias = list[tuple[_Waiter, Leaf | Exception]]


def tell_all(group: Sequence[Waiting], outcomes: Sequence[Leaf | Exception]) -> None:
    """Tell each where its record stands, or why it was not written."""
    by_loop: dict[Loop, _Told] = {}
    for (_, waiter, loop), outcome in zip(group, outcomes, strict=True):
        if loop is None:
            _settle(waiter, outcome)
        elif loop in by_loop:
            by_loop[loop].append((waiter, outcome))
        else:
            by_loop[loop] = [(waiter, outcome)]
    for loop, told in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_all, told)
        except RuntimeError:
            continue  # the loop was closed: nobody waits any more


def _settle_all(told: _Told) -> None:
    for waiter, outcome in told:
        if not waiter.done():
            _settle(waiter, outcome)


def _settle(waiter: _Waiter, outcome: Leaf | Exception) -> None:
    if type(outcome) is Leaf:
        waiter.set_result(outcome)
    elif isinstance(outcome, Exception):
        waiter.set_exception(outcome)
