"""SQLAlchemy engines over the connections of a database location."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool, Pool

from toolkeep.errors import StoreUnavailable
from toolkeep.limits import STORE_CONNECT_SECONDS, STORE_CONNECTIONS
from toolkeep.storage.sql.database_location import SCHEMA, DatabaseLocation


def make_engine(place: DatabaseLocation) -> Engine:
    """An engine; nothing is connected yet."""
    if not place.is_embedded:
        return create_engine(
            "postgresql+psycopg://",
            creator=partial(_in_transactions, place),
            pool_size=STORE_CONNECTIONS,
            max_overflow=0,
            pool_timeout=STORE_CONNECT_SECONDS,
            pool_pre_ping=True,
            hide_parameters=True,
        )
    engine = create_engine("sqlite://", creator=place.connect, poolclass=NullPool, hide_parameters=True)
    # The driver begins no transaction before DDL, so a migration would not be atomic; and a transaction that
    # turns from reading to writing late may fail as SQLITE_BUSY.
    event.listen(engine, "begin", _begin_immediately)
    return engine.execution_options(schema_translate_map={SCHEMA: None})


def leave_to_parent(engine: Engine) -> None:
    """After fork(), in the child: drop the parent's connections without closing them."""
    _INHERITED.append(engine.pool)
    engine.dispose(close=False)


_INHERITED: list[Pool] = []
"""Referenced, because drivers warn of connections that are collected unclosed."""


def _in_transactions(place: DatabaseLocation) -> Any:
    """A connection whose statements count when the transaction that SQLAlchemy ends is ended."""
    connection = place.connect()
    connection.autocommit = False
    return connection


def _begin_immediately(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextlib.contextmanager
def changing(engine: Engine, place: DatabaseLocation) -> Iterator[Connection]:
    """A transaction; database errors become ours."""
    with _as_ours(place), engine.begin() as connection:
        yield connection


@contextlib.contextmanager
def reading(engine: Engine, place: DatabaseLocation) -> Iterator[Connection]:
    """A connection in autocommit mode: one round trip for a statement instead of three."""
    with _as_ours(place), engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


@contextlib.contextmanager
def _as_ours(place: DatabaseLocation) -> Iterator[None]:
    try:
        yield
    except PoolTimeout as error:
        hint = "try again; too many changes are being made at once"
        raise StoreUnavailable(place.shown, "all of its connections are in use", hint=hint) from error
    except DBAPIError as error:
        raise place.refuse(error.orig or error) from error
    except SQLAlchemyError as error:
        raise place.refuse(error) from error
    except place.failures() as error:
        raise place.refuse(error) from error
