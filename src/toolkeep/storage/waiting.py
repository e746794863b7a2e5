"""Those who wait for a record to be durable, and how they are told.

A waiter is a `concurrent.futures.Future`, or an asyncio future together with its loop. Every loop is woken
once a group: waking it for each future apart costs more than all the rest of a group commit (2 × slower).
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from toolkeep.audit.entry import Leaf

Loop: TypeAlias = asyncio.AbstractEventLoop
Waiting: TypeAlias = "tuple[bytes, Future[Leaf], None] | tuple[bytes, asyncio.Future[Leaf], Loop]"
"""A canonical record, who waits for it, and on which loop."""

_Waiter: TypeAlias = "Future[Leaf] | asyncio.Future[Leaf]"


def tell_all(group: Sequence[Waiting], outcomes: Sequence[Leaf | Exception]) -> None:
    """Tell each where its record stands, or why it was not written."""
    loops = [loop for _, _, loop in group]
    waiters: list[_Waiter] = [waiter for _, waiter, _ in group]
    for loop in set(loops):
        of_loop = [each is loop for each in loops]
        told = itertools.compress(waiters, of_loop), itertools.compress(outcomes, of_loop)
        if loop is None:
            _settle(*told)
            continue
        # A loop that was closed: nobody waits there any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, *told)


def _settle(waiters: Iterable[_Waiter], outcomes: Iterable[Leaf | Exception]) -> None:
    for waiter, outcome in zip(waiters, outcomes, strict=True):
        if waiter.done():
            continue
        if isinstance(outcome, Leaf):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
