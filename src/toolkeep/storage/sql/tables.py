"""The tables after the last migration, for SQLAlchemy Core; a test compares the two."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from toolkeep.storage.sql.database_location import SCHEMA
from toolkeep.storage.sql.definition_rows import COLUMNS


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC: with its zone on PostgreSQL, as text without one on SQLite, which has no times."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """As the database takes it."""
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc


_TYPES: dict[str, Any] = {
    "id": Uuid(),
    "name": String(64),
    "description": String(1024),
    "category": Integer(),
    "constraints_json": String(4096),
    "required_permissions_json": String(4096),
    "version": String(32),
    "license_tier": Integer(),
    "created_by": Uuid(),
    "updated_by": Uuid(),
    "created_at": UtcTime(),
    "updated_at": UtcTime(),
    "revision": BigInteger(),
    "definition_hash": String(64),
    "run_hash": String(64),
    **dict.fromkeys(("result_type", "normalization", "determinism", "danger"), String(32)),
    **dict.fromkeys(
        ("requires_confirmation", "is_built_in", "idempotent", "sensitive", "client_executed", "enabled"),
        Boolean(),
    ),
}

_NULLABLE = frozenset(
    ("version", "created_by", "updated_by", "constraints_json", "required_permissions_json", "result_type",
     "normalization", "determinism", "danger")
)  # fmt: skip
"""Of the columns that have a type here; all others are text and may be null."""

METADATA = MetaData(schema=SCHEMA)


def _definitions(
    name: str, key: Iterable[str], indexed: Iterable[str], *, unique: Iterable[str] = ()
) -> Table:
    columns = [
        Column(
            column,
            _TYPES.get(column, Text()),
            primary_key=column in key,
            nullable=column not in key and (column in _NULLABLE or column not in _TYPES),
            unique=column in unique or None,
        )
        for column in COLUMNS
    ]
    return Table(name, METADATA, *columns, *(Index(f"IX_{name}_{column}", column) for column in indexed))


DEFINITIONS = _definitions(
    "tool_definitions", ("id",), ("name", "category", "license_tier"), unique=("name",)
)
VERSIONS = _definitions("tool_definition_versions", ("id", "version"), ("name",))
NAMES = Table(
    "tool_definition_names",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("definition_id", Uuid(), nullable=False),
)
CHANGES = Table(
    "tool_definition_changes",
    METADATA,
    Column("revision", BigInteger(), primary_key=True, autoincrement=False),
    Column("name", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("changed_by_name", Text()),
    Column("changed_at", UtcTime(), nullable=False),
)
STATE = Table(
    "tool_store_state",
    METADATA,
    Column("id", Integer(), primary_key=True),
    Column("revision", BigInteger(), nullable=False),
)
