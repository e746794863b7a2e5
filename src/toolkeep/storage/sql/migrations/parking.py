"""What migrations share: in which schema they work, and how they park what an older layout cannot hold."""

from collections.abc import Iterable

from alembic import op
from sqlalchemy import inspect, text

from toolkeep.storage.places import SCHEMA


def is_embedded() -> bool:
    """Whether the database is SQLite."""
    return op.get_bind().dialect.name == "sqlite"


def schema() -> str | None:
    """The schema of our tables."""
    return None if is_embedded() else SCHEMA


def placed(table: str) -> str:
    """The name of a table in a statement."""
    return table if is_embedded() else f"{SCHEMA}.{table}"


def parked(table: str) -> str:
    """The name of a table while it waits."""
    return f"parked_{table}"


def is_parked(table: str) -> bool:
    """Whether a table waits to be brought back."""
    return inspect(op.get_bind()).has_table(parked(table), schema=schema())


def park(table: str) -> None:
    """Put a table aside with all that it holds."""
    op.rename_table(table, parked(table), schema=schema())


def bring_back(table: str) -> None:
    """The table that was put aside."""
    op.rename_table(parked(table), table, schema=schema())


def park_columns(table: str, columns: Iterable[str], *, beside: Iterable[str] = ()) -> None:
    """Put what columns hold aside, by id, together with what tells whether a row changed meanwhile."""
    names = ", ".join(("id", *beside, *columns))
    statement = f"CREATE TABLE {placed(parked(table))} AS SELECT {names} FROM {placed(table)}"  # noqa: S608 -- our own words
    op.execute(text(statement))


def bring_back_columns(table: str, columns: Iterable[str], *, unless_changed: str) -> None:
    """What columns held, into the rows that are as they were."""
    target, source = placed(table), placed(parked(table))
    same = f"kept.id = {table}.id AND kept.{unless_changed} = {table}.{unless_changed}"
    for column in columns:
        value = f"(SELECT kept.{column} FROM {source} AS kept WHERE {same})"  # noqa: S608 -- our own words
        where = f"EXISTS (SELECT 1 FROM {source} AS kept WHERE {same})"  # noqa: S608 -- our own words
        op.execute(text(f"UPDATE {target} AS {table} SET {column} = {value} WHERE {where}"))  # noqa: S608 -- our own words
    op.drop_table(parked(table), schema=schema())
