"""SQLAlchemy over the connections of a place: transactions that happen whole or not at all."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from toolkeep.errors import StoreUnavailable
from toolkeep.limits import STORE_CONNECT_SECONDS, STORE_CONNECTIONS
from toolkeep.storage.places import SCHEMA, Place


def make_engine(place: Place) -> Engine:
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
    # The driver begins no transaction before DDL, and a writer that begins late may find that it has to lose.
    event.listen(engine, "begin", _begin_immediately)
    return engine.execution_options(schema_translate_map={SCHEMA: None})


def _in_transactions(place: Place) -> Any:
    """A connection whose statements count when the transaction that SQLAlchemy ends is ended."""
    connection = place.connect()
    connection.autocommit = False
    return connection


def _begin_immediately(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextlib.contextmanager
def changing(engine: Engine, place: Place) -> Iterator[Connection]:
    """A transaction; what the database says is raised as ours."""
    try:
        with engine.begin() as connection:
            yield connection
    except PoolTimeout as error:
        hint = "try again; too many changes are being made at once"
        raise StoreUnavailable(place.shown, "all of its connections are in use", hint=hint) from error
    except DBAPIError as error:
        raise place.refuse(error.orig or error) from error
    except SQLAlchemyError as error:
        raise place.refuse(error) from error
    except place.failures() as error:
        raise place.refuse(error) from error
