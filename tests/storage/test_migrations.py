"""The tables of the store: made whole or not at all, dropped, and left alone where they are another's."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import op
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData, inspect, text

from tests.storage.cluster import Cluster
from tests.storage.keeps import WEATHER, KeepOnStore
from tests.storage.test_definitions import rows
from toolkeep.errors import StoreLayoutUnfit, StoreUnavailable
from toolkeep.storage.sql.database_location import (
    HEAD,
    LAYOUT_TABLE,
    SCHEMA,
    DatabaseLocation,
    PostgresLocation,
    SqliteLocation,
    connected,
)
from toolkeep.storage.sql.definition_store import SqlDefinitionStore
from toolkeep.storage.sql.engine import make_engine
from toolkeep.storage.sql.schema_migration import BASE, layouts, migrate
from toolkeep.storage.sql.tables import METADATA

pytestmark = pytest.mark.spec("STO-1")


@contextlib.contextmanager
def opened(place: DatabaseLocation) -> Iterator[Connection]:
    engine = make_engine(place)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def shape(place: DatabaseLocation) -> dict[str, Any]:
    """Every table with its columns, as the database has them."""
    schema = None if place.is_embedded else SCHEMA
    with opened(place) as connection:
        found = inspect(connection)
        tables = found.get_table_names(schema=schema) if schema in (None, *found.get_schema_names()) else []
        return {
            table: sorted(
                (column["name"], str(column["type"])) for column in found.get_columns(table, schema)
            )
            for table in sorted(tables)
        }


def is_shared(name: str) -> bool:
    """Whether a table is one of those that only servers on a PostgreSQL have, with statements of its own."""
    return name.startswith("shared_")


def move(place: DatabaseLocation, to: str) -> None:
    engine = make_engine(place)
    try:
        migrate(engine, place, to)
    finally:
        engine.dispose()


def test_the_last_layout_is_the_one_that_this_toolkeep_works_with() -> None:
    assert layouts()[-1] == HEAD


def test_the_migrations_make_the_tables_that_statements_are_written_for(
    empty_place: DatabaseLocation,
) -> None:
    move(empty_place, HEAD)
    schema = None if empty_place.is_embedded else SCHEMA
    with opened(empty_place) as connection:
        options = {
            "include_schemas": not empty_place.is_embedded,
            "include_name": lambda name, kind, _: kind != "schema" or name == schema,
            "include_object": lambda _object, name, *_rest: name != LAYOUT_TABLE and not is_shared(name),
        }
        context = MigrationContext.configure(connection, opts=options)
        tables = MetaData()
        for table in METADATA.tables.values():
            table.to_metadata(tables, schema=schema)  # type: ignore[arg-type]  # None: no schema, on SQLite
        assert compare_metadata(context, tables) == []


def test_the_indexes_have_the_names_of_the_specification(empty_place: DatabaseLocation) -> None:
    move(empty_place, HEAD)
    schema = None if empty_place.is_embedded else SCHEMA
    with opened(empty_place) as connection:
        named = {
            index["name"]: index["column_names"]
            for index in inspect(connection).get_indexes("tool_definitions", schema)
            if str(index["name"]).startswith("IX_")
        }
    assert named == {
        f"IX_tool_definitions_{column}": [column] for column in ("name", "category", "license_tier")
    }


def test_taken_down_to_the_base_nothing_is_left(empty_place: DatabaseLocation) -> None:
    move(empty_place, HEAD)
    move(empty_place, BASE)
    assert shape(empty_place) == {}
    move(empty_place, HEAD)
    assert rows(empty_place, "SELECT * FROM @tool_definitions") == []


def test_a_migration_that_fails_leaves_the_tables_as_they_were(
    empty_place: DatabaseLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(op, "execute", fail)
    with pytest.raises(ZeroDivisionError):
        move(empty_place, HEAD)
    monkeypatch.undo()
    assert shape(empty_place) == {}
    move(empty_place, HEAD)


def test_those_who_come_at_the_same_time_make_the_tables_once(empty_place: DatabaseLocation) -> None:
    stores = [SqlDefinitionStore(empty_place) for _ in range(4)]
    barrier = threading.Barrier(4)

    def write(store: SqlDefinitionStore) -> str:
        barrier.wait()
        store.note_built_ins([])
        return "done"

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write, stores)) == ["done"] * 4
    for store in stores:
        store.close()


def test_whoever_comes_while_another_begins_with_the_file_waits_for_it(tmp_path: Path) -> None:
    place = SqliteLocation(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as maker:
        maker.execute("CREATE TABLE begun (something TEXT)")
        maker.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as threads:
            coming = threads.submit(place.connect)
            with pytest.raises(TimeoutError):
                coming.result(timeout=0.2)
            maker.execute("COMMIT")
            coming.result(timeout=30).close()


def test_tables_of_a_newer_toolkeep_are_left_alone(place: DatabaseLocation) -> None:
    with connected(place) as connection:
        connection.execute(f"UPDATE {place.prefix}{LAYOUT_TABLE} SET version_num = '0999'")  # noqa: S608
    store = SqlDefinitionStore(place)
    for use in (store.read, lambda: store.note_built_ins([]), lambda: move(place, HEAD)):
        with pytest.raises(StoreLayoutUnfit):
            use()


def test_tables_that_somebody_else_made_are_left_alone(empty_place: DatabaseLocation) -> None:
    with opened(empty_place) as connection:
        if not empty_place.is_embedded:
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        connection.execute(text(f"CREATE TABLE {empty_place.prefix}tool_definitions (id INTEGER)"))
    with KeepOnStore(empty_place) as keep, pytest.raises(StoreLayoutUnfit):
        keep.create_definition(WEATHER)


def test_a_user_who_owns_nothing_but_the_schema_is_enough(postgres: Cluster) -> None:
    url = postgres.empty()
    postgres.execute(
        "empty",
        f"DROP ROLE IF EXISTS narrow; CREATE ROLE narrow LOGIN; CREATE SCHEMA {SCHEMA} AUTHORIZATION narrow",
    )
    with KeepOnStore(PostgresLocation(url.replace("keep@", "narrow@"))) as keep:
        keep.create_definition(WEATHER)
        assert [one.name for one in keep.definition_versions("weather")] == ["weather"]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "store.db").write_bytes(b"This is no database at all, and never was one." * 40)
    keep = KeepOnStore(SqliteLocation(folder))
    assert [skipped.provider for skipped in keep.start_up.skipped] == ["store"]
    assert "read_file" in keep
    with pytest.raises(StoreUnavailable):
        keep.create_definition(WEATHER)
