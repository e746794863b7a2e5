"""Those who wait for a record to be durable, and how they are told.

A waiter is a `concurrent.futures.Future`, or an asyncio future together with its loop. Every loop is woken
once a group: waking it for each future apart costs more than all the rest of a group commit (2 × slower).
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from toolkeep.audit.entry import Leaf

Loop: TypeAlias = asyncio.AbstractEventLoop
_Waiter: TypeAlias = "Future[Leaf] | asyncio.Future[Leaf]"
Waiting: TypeAlias = "tuple[bytes, _Waiter | None, Loop | None]"
"""A canonical record, who waits for it, and on which loop; nobody, where a later one is waited for."""


def tell_all(group: Sequence[Waiting], outcomes: Iterable[Leaf | Exception]) -> None:
    """Tell each where its record stands, or why it was not written."""
    told: dict[Loop | None, list[tuple[_Waiter, Leaf | Exception]]] = {}
    for (_, waiter, loop), outcome in zip(group, outcomes, strict=True):
        if waiter is not None:
            told.setdefault(loop, []).append((waiter, outcome))
    for loop, waiters in told.items():
        if loop is None:
            _settle(waiters)
            continue
        # A loop that was closed: nobody waits there any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, waiters)


def _settle(waiters: "list[tuple[_Waiter, Leaf | Exception]]") -> None:
    for waiter, outcome in waiters:
        if waiter.done():
            continue
        if isinstance(outcome, Leaf):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
