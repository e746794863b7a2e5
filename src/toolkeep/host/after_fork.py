"""Fork handlers: after fork(), objects drop inherited locks, threads and descriptors.

A child has its parent's objects but only the forking thread: a lock that another thread held is never
released, and shared descriptors would mix both processes' data.
"""

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """An object that must reset itself in a forked child."""

    def leave_to_parent(self) -> None:
        """Called in the child: drop locks, threads and open files, which belong to the parent."""


def register_after_fork(one: ForkAware) -> None:
    """Register an object for after-fork reset, as long as it lives."""
    _REGISTERED.add(one)


def _reset_all() -> None:
    for one in list(_REGISTERED):
        one.leave_to_parent()


_REGISTERED: "weakref.WeakSet[ForkAware]" = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_reset_all)
