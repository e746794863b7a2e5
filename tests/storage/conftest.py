"""The stores that the tests of this folder run against: each test of definitions runs on all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from tests.storage.keeps import KeepOnStore, OpenKeep
from toolkeep.storage.sql.database_location import DatabaseLocation, PostgresLocation, SqliteLocation


@pytest.fixture(params=["sqlite", "postgres"])
def empty_place(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseLocation:
    """A database without any table, of either kind."""
    if request.param == "sqlite":
        return SqliteLocation(tmp_path / "state")
    running: Cluster = request.getfixturevalue("postgres")
    return PostgresLocation(running.empty())


@pytest.fixture
def open_there(place: DatabaseLocation) -> Iterator[OpenKeep]:
    """Opens keeps on one database; all are closed in the end."""
    opened: list[KeepOnStore] = []

    def open_one(**settings: Any) -> KeepOnStore:
        opened.append(KeepOnStore(place, **settings))
        return opened[-1]

    yield open_one
    for keep in opened:
        keep.close()
