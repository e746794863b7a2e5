"""Migrates the tables up or down, in one transaction.

The migrations are Alembic's, written by hand, in `migrations/versions`. All steps to the wanted layout run in
one transaction, on SQLite too; whoever comes second waits and finds the work done.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, Engine, inspect, text

from toolkeep.errors import StoreLayoutUnfit
from toolkeep.storage.sql.database_location import HEAD, LAYOUT_TABLE, SCHEMA, DatabaseLocation
from toolkeep.storage.sql.engine import changing

BASE: Final = "base"
_FOLDER: Final = Path(__file__).parent / "migrations"
_RUNNING: Final = threading.Lock()
"""Alembic keeps its context in module globals: one migration at a time in a process."""
_LOCK: Final = 0x746F6F6C6B656570
"""PostgreSQL advisory lock for migrations, the bytes of `toolkeep`: without it two keeps that start at once
both create the tables, and one fails."""


def migrate(engine: Engine, place: DatabaseLocation, to: str = HEAD) -> None:
    """Bring the tables to a layout; `base` takes them away."""
    with _RUNNING, changing(engine, place) as connection:
        if not place.is_embedded:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            if not inspect(connection).has_schema(SCHEMA):  # IF NOT EXISTS would need the right to make one
                connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        try:
            _run(connection, place, to)
        except CommandError as error:
            hint = f"there are {BASE}, {', '.join(layouts())}; newer ones are another toolkeep's"
            raise StoreLayoutUnfit(place.shown, f"cannot be moved to {to!r}", hint=hint) from error
        if to == BASE:
            _leave_nothing(connection, place)


def layouts() -> Sequence[str]:
    """Every layout that this toolkeep knows, oldest first."""
    return [step.revision for step in reversed(list(_scripts().walk_revisions()))]


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(_FOLDER))


def _run(connection: Connection, place: DatabaseLocation, to: str) -> None:
    script = _scripts()
    order = [BASE, *layouts()]

    def steps(found: Any, _: MigrationContext) -> Any:
        here = found[0] if isinstance(found, tuple) and found else found or BASE
        if here not in order or to not in order:
            hint = f"there are {', '.join(order)}; a newer toolkeep made other ones"
            raise StoreLayoutUnfit(place.shown, f"cannot go from {here!r} to {to!r}", hint=hint)
        if order.index(to) < order.index(here):
            return script._downgrade_revs(to, found)  # noqa: SLF001 -- what Alembic's own commands call
        if here == BASE:
            _refuse_others(connection, place)
        return script._upgrade_revs(to, found)  # noqa: SLF001 -- the same

    with EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(
            connection=connection,
            version_table=LAYOUT_TABLE,
            version_table_schema=None if place.is_embedded else SCHEMA,
            transactional_ddl=True,
        )
        environment.run_migrations()


def _refuse_others(connection: Connection, place: DatabaseLocation) -> None:
    """Refuse tables of these names that toolkeep did not create: they belong to another program."""
    schema = None if place.is_embedded else SCHEMA
    if inspect(connection).has_table("tool_definitions", schema=schema):
        hint = "keep toolkeep's tables in a database of their own"
        raise StoreLayoutUnfit(place.shown, "hold a tool_definitions that toolkeep did not make", hint=hint)


def _leave_nothing(connection: Connection, place: DatabaseLocation) -> None:
    """Drop Alembic's version table, and the schema where nothing else is in it."""
    connection.execute(text(f"DROP TABLE IF EXISTS {place.prefix}{LAYOUT_TABLE}"))
    if not place.is_embedded and not inspect(connection).get_table_names(schema=SCHEMA):
        connection.execute(text(f"DROP SCHEMA {SCHEMA}"))
