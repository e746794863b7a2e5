"""Those who wait for records to be durable, and how they are told.

A waiter is a `concurrent.futures.Future`, or an asyncio future together with its loop. Every loop is woken
once a group: waking it for each future apart costs more than all the rest of a group commit (2 × slower).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeAlias

from toolkeep.audit.entry import Leaf

Loop: TypeAlias = asyncio.AbstractEventLoop

Waiting: TypeAlias = "tuple[tuple[bytes, ...], Future[Leaf] | asyncio.Future[Leaf], Loop | None]"
"""Canonical records that go next to each other, who waits for the last of them, and on which loop."""


def tell_places(
    group: Sequence[Waiting], first: int, leaves: Sequence[bytes], origin: str, running: Loop | None = None
) -> None:
    """Tell each where its last record stands; the first one of the group stands at `first`.

    Those on the loop that is `running` here are told at once.
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
    """Tell each why its records were not written."""
    _tell(group, [error] * len(group))


def _tell(group: Sequence[Waiting], told: "list[Leaf | Exception]") -> None:
    for loop in {loop for _, _, loop in group}:
        if loop is None:
            _settle(group, told, loop)
            continue
        # A loop that was closed: nobody waits there any more.
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
