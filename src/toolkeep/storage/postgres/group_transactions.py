"""Runs the changes of many requests together, one transaction for each group."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toolkeep.storage.group_commit import GroupCommit
from toolkeep.storage.postgres.shared_database import SharedDatabase

Result = TypeVar("Result")


class GroupTransactions:
    """The changes of one server's event loop."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database
        self._groups: GroupCommit[Callable[[Any], Any], Any] = GroupCommit(self._make, quick_s=0.0)

    def run(self, work: Callable[[Any], Result]) -> "asyncio.Future[Result]":
        """Run statements; they may run twice, as in `SharedDatabase.change`, and must not fail on data."""
        return self._groups.put(work)

    def _make(self, works: Sequence[Callable[[Any], Any]]) -> list[Any]:
        return self._database.change(lambda connection: [work(connection) for work in works])
