"""Futures that wait for a group commit, and how they are resolved.

A waiter is a `concurrent.futures.Future`, or an asyncio future with its loop. Each loop is woken once for a
group: a wake-up for each future costs more than the rest of the group commit (2 × slower).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeAlias

from toolkeep.audit.entry import Leaf

Loop: TypeAlias = asyncio.AbstractEventLoop

Waiting: TypeAlias = "tuple[tuple[bytes, ...], Future[Leaf] | asyncio.Future[Leaf], Loop | None]"
"""Canonical records that are appended next to each other, the future of the last one, and its loop."""


def tell_places(
    group: Sequence[Waiting], first: int, leaves: Sequence[bytes], origin: str, running: Loop | None = None
) -> None:
    """Resolve each future with the leaf of its last record; the first record of the group has index `first`.

    Futures of the loop that is `running` in this thread are resolved at once.
    """
    last = -1
    elsewhere: list[Waiting] = []
    told: list[Leaf | Exception] = []
    for waiting in group:
        records, waiter, loop = waiting
        last += len(records)
        leaf = Leaf(first + last, leaves[last].hex(), origin)
        if loop is not running:
            elsewhere.append(waiting)
            told.append(leaf)
        elif not waiter.done():
            waiter.set_result(leaf)
    if elsewhere:
        _tell(elsewhere, told)


def tell_failure(group: Sequence[Waiting], error: Exception) -> None:
    """Fail each future with the reason why its records were not written."""
    _tell(group, [error] * len(group))


def _tell(group: Sequence[Waiting], told: "list[Leaf | Exception]") -> None:
    for loop in {loop for _, _, loop in group}:
        if loop is None:
            _settle(group, told, loop)
            continue
        # A closed loop: nobody waits there any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, group, told, loop)


def _settle(group: Sequence[Waiting], told: "list[Leaf | Exception]", here: Loop | None) -> None:
    for (_, waiter, loop), outcome in zip(group, told, strict=True):
        if loop is not here or waiter.done():
            continue
        if isinstance(outcome, Leaf):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
