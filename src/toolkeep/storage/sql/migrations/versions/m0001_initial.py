"""The tables of toolkeep 0.1.0: definitions, their earlier versions, names and changes, and API tokens.

Written out instead of made from `tables.py`: a migration must go on making what it made when it was released,
whatever the tables become later.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.database_location import SCHEMA

revision = "0001"
down_revision = None

_INDEXED = ("name", "category", "license_tier")


def _is_embedded() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _create(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(name, *columns, schema=None if _is_embedded() else SCHEMA)


def _index(table: str, column: str) -> None:
    schema = None if _is_embedded() else SCHEMA
    op.create_index(f"IX_{table}_{column}", table, [column], schema=schema)


def _definition_columns() -> list[sa.Column[Any]]:
    """What a definition and its earlier versions have in common."""
    texts = (
        "parameters_json", "output_schema_json", "metadata_json", "resource_bounds_json", "capabilities_json",
        "side_effects_json", "aliases_json", "source_json", "usage_metadata", "run_json", "created_by_name",
        "updated_by_name",
    )  # fmt: skip
    flags = ("requires_confirmation", "is_built_in", "idempotent", "sensitive", "client_executed")
    hashes = ("definition_hash", "run_hash")
    times = ("created_at", "updated_at")
    return [
        sa.Column("description", sa.String(1024), nullable=False),
        sa.Column("category", sa.Integer(), nullable=False),
        sa.Column("license_tier", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("enabled", sa.Boolean(), nullable=False, server_default=sa.true()),
        sa.Column("created_by", sa.Uuid()),
        sa.Column("updated_by", sa.Uuid()),
        *(sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()) for name in flags),
        *(sa.Column(name, sa.Text()) for name in texts),
        *(sa.Column(name, sa.String(4096)) for name in ("constraints_json", "required_permissions_json")),
        *(
            sa.Column(name, sa.String(32))
            for name in ("result_type", "normalization", "determinism", "danger")
        ),
        *(sa.Column(name, sa.String(64), nullable=False, server_default="") for name in hashes),
        *(
            sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now())
            for name in times
        ),
    ]


def upgrade() -> None:
    """Make the tables."""
    new_id = None if _is_embedded() else sa.text("gen_random_uuid()")
    _create(
        "tool_definitions",
        sa.Column("id", sa.Uuid(), primary_key=True, server_default=new_id),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("version", sa.String(32)),
        *_definition_columns(),
    )
    for column in _INDEXED:
        _index("tool_definitions", column)
    _create(
        "tool_definition_versions",
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("version", sa.String(32), primary_key=True),
        *_definition_columns(),
    )
    _index("tool_definition_versions", "name")
    _create(
        "tool_definition_names",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("definition_id", sa.Uuid(), nullable=False),
    )
    _create(
        "tool_definition_changes",
        sa.Column("revision", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("changed_by_name", sa.Text()),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
    )
    _create(
        "tool_store_state",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
    )
    create_tokens()
    prefix = "" if _is_embedded() else f"{SCHEMA}."
    op.execute(sa.text(f"INSERT INTO {prefix}tool_store_state (id, revision) VALUES (1, 0)"))  # noqa: S608 -- our own words


def create_tokens() -> None:
    """Create the table of tokens, which revision 0003 drops."""
    _create(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("agent", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53)),
        sa.Column("last_used_at", sa.Float(53)),
        sa.Column("revoked_at", sa.Float(53)),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    """Drop the tables, with all that they hold."""
    for table in (
        "tokens", "tool_store_state", "tool_definition_changes", "tool_definition_names",
        "tool_definition_versions", "tool_definitions",
    ):  # fmt: skip
        op.drop_table(table, schema=None if _is_embedded() else SCHEMA)
