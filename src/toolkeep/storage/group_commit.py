"""Changes of many calls in one transaction, so that they share one sync of the disk.

What the calls of an event loop ask for in one of its rounds, or while an earlier group is written, is written
together. On a fast disk the loop writes its groups itself: the hand-over to a thread and back takes longer. A
waiter is told when its change is durable, never before.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from toolkeep.host.after_fork import register_after_fork

Change = TypeVar("Change")
Answer = TypeVar("Answer")

_QUICK_SECONDS: Final = 0.001
"""A slower disk is left to a thread."""


class _Group(Generic[Change, Answer]):
    """What waits on one event loop."""

    __slots__ = ("is_due", "waiters", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Change] = []
        self.waiters: list[asyncio.Future[Answer]] = []
        self.is_due = False
        """Whether it will be written, or an earlier one is being written."""

    def take(self) -> "tuple[list[Change], list[asyncio.Future[Answer]]]":
        taken = self.waiting, self.waiters
        self.waiting, self.waiters = [], []
        return taken


class GroupCommit(Generic[Change, Answer]):
    """Gathers changes, and makes them in groups."""

    def __init__(
        self, make: Callable[[Sequence[Change]], Sequence[Answer]], *, quick_s: float = _QUICK_SECONDS
    ) -> None:
        """`make` makes all changes or raises; it has an answer for each, in their order.

        `quick_s` is how long a group may block an event loop; with 0 a thread writes all of them.
        """
        self._make = make
        self._quick_s = quick_s
        self._took_s = 0.0
        self.leave_to_parent()
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: what waits belongs to event loops of the parent."""
        self._gate = threading.Lock()
        self._groups: WeakKeyDictionary[asyncio.AbstractEventLoop, _Group[Change, Answer]] = (
            WeakKeyDictionary()
        )

    def put(self, change: Change) -> "asyncio.Future[Answer]":
        """Make a change; it is made even if nobody waits for the answer any more."""
        loop = asyncio.get_running_loop()
        with self._gate:
            group = self._groups.get(loop)
            if group is None:
                group = self._groups[loop] = _Group()
        waiter: asyncio.Future[Answer] = loop.create_future()
        group.waiting.append(change)
        group.waiters.append(waiter)
        if not group.is_due:
            group.is_due = True
            loop.call_soon(self._write, loop, group)
        return waiter

    def _write(self, loop: asyncio.AbstractEventLoop, group: _Group[Change, Answer]) -> None:
        changes, waiters = group.take()
        if self._took_s >= self._quick_s:
            try:
                made = loop.run_in_executor(None, self._made, changes)
            except RuntimeError:  # the loop ends, and takes no more work for its threads
                pass
            else:
                made.add_done_callback(lambda done: self._told(loop, group, waiters, done.result()))
                return
        self._told(loop, group, waiters, self._made(changes))

    def _made(self, changes: Sequence[Change]) -> Sequence[Answer] | Exception:
        began = time.perf_counter()
        try:
            return self._make(changes)
        except Exception as error:  # noqa: BLE001 -- whoever waits must hear of our own mistakes too
            return error
        finally:
            self._took_s += (time.perf_counter() - began - self._took_s) / 8

    def _told(
        self,
        loop: asyncio.AbstractEventLoop,
        group: _Group[Change, Answer],
        waiters: "list[asyncio.Future[Answer]]",
        made: Sequence[Answer] | Exception,
    ) -> None:
        for number, waiter in enumerate(waiters):
            if waiter.done():  # the caller was cancelled
                continue
            if isinstance(made, Exception):
                waiter.set_exception(made)
            else:
                waiter.set_result(made[number])
        group.is_due = bool(group.waiting)
        if group.is_due:
            loop.call_soon(self._write, loop, group)


class _Waiting(Generic[Change, Answer]):
    """A thread that waits."""

    __slots__ = ("answer", "change", "error", "is_made")

    def __init__(self, change: Change) -> None:
        self.change = change
        self.is_made = False
        self.answer: Answer
        self.error: BaseException | None = None


class ThreadGroupCommit(Generic[Change, Answer]):
    """The same for threads: what they ask for while a group is made, the first of them makes together."""

    def __init__(self, make: Callable[[Sequence[Change]], Sequence[Answer]]) -> None:
        """`make` is as that of `GroupCommit`."""
        self._make = make
        self.leave_to_parent()
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: what waits are threads of the parent."""
        self._gate, self._turn = threading.Lock(), threading.Lock()
        self._waiting: list[_Waiting[Change, Answer]] = []

    def put(self, change: Change) -> Answer:
        """Make a change, and wait for it."""
        own: _Waiting[Change, Answer] = _Waiting(change)
        with self._gate:
            self._waiting.append(own)
        with self._turn:
            if not own.is_made:
                with self._gate:
                    group, self._waiting = self._waiting, []
                self._made(group)
        if own.error is not None:
            raise own.error
        return own.answer

    def _made(self, group: list[_Waiting[Change, Answer]]) -> None:
        try:
            for one, answer in zip(group, self._make([one.change for one in group]), strict=True):
                one.answer = answer
        except BaseException as error:  # noqa: BLE001 -- raised in each thread that waits
            for one in group:
                one.error = error
        for one in group:
            one.is_made = True
