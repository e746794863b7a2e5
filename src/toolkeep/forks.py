"""Forks of the process: a child has its parent's objects, without their threads and whoever holds a lock."""

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """What a child may not go on with as it is."""

    def leave_to_parent(self) -> None:
        """In a fork of the process: forget locks, threads and open files, which are the parent's."""


def tell_in_forks(one: Inherited) -> None:
    """Tell an object in each fork of the process, as long as it lives."""
    _TOLD.add(one)


def _tell() -> None:
    for one in list(_TOLD):
        one.leave_to_parent()


_TOLD: "weakref.WeakSet[Inherited]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_tell)
