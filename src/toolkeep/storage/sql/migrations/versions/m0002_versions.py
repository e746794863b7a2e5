"""Columns for the rest of a definition, earlier versions, names, and what changed in which order."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.migrations.parking import (
    bring_back,
    bring_back_columns,
    is_parked,
    park,
    park_columns,
    placed,
    schema,
)

revision = "0002"
down_revision = "0001"

_TABLES = ("tool_definition_versions", "tool_definition_names", "tool_definition_changes", "tool_store_state")


def _seed_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("description", sa.String(1024), nullable=False),
        sa.Column("category", sa.Integer(), nullable=False),
        sa.Column("parameters_json", sa.Text()),
        sa.Column("output_schema_json", sa.Text()),
        sa.Column("constraints_json", sa.String(4096)),
        sa.Column("required_permissions_json", sa.String(4096)),
        sa.Column("requires_confirmation", sa.Boolean(), nullable=False),
        sa.Column("version", sa.String(32), primary_key=True),
        sa.Column("metadata_json", sa.Text()),
        sa.Column("is_built_in", sa.Boolean(), nullable=False),
        sa.Column("license_tier", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Uuid()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    ]


def _new_columns() -> list[sa.Column[Any]]:
    texts = (
        "resource_bounds_json", "capabilities_json", "side_effects_json", "aliases_json", "source_json",
        "usage_metadata", "run_json", "created_by_name", "updated_by_name",
    )  # fmt: skip
    words = ("result_type", "normalization", "determinism", "danger")
    flags = {"idempotent": False, "sensitive": False, "client_executed": False, "enabled": True}
    return [
        *(sa.Column(name, sa.Text()) for name in texts),
        *(sa.Column(name, sa.String(32)) for name in words),
        *(
            sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.true() if on else sa.false())
            for name, on in flags.items()
        ),
        sa.Column("definition_hash", sa.String(64), nullable=False, server_default=""),
        sa.Column("run_hash", sa.String(64), nullable=False, server_default=""),
        sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("updated_by", sa.Uuid()),
    ]


_COLUMNS = [column.name for column in _new_columns()]


def upgrade() -> None:
    """Make them, or bring them back."""
    for column in _new_columns():
        op.add_column("tool_definitions", column, schema=schema())
    if is_parked("tool_definitions"):
        bring_back_columns("tool_definitions", _COLUMNS, unless_changed="updated_at")
    if is_parked(_TABLES[0]):
        for table in _TABLES:
            bring_back(table)
    else:
        _create_tables()
    _claim_names()


def _create_tables() -> None:
    op.create_table(_TABLES[0], *_seed_columns(), *_new_columns(), schema=schema())
    op.create_index("IX_tool_definition_versions_name", _TABLES[0], ["name"], schema=schema())
    op.create_table(
        _TABLES[1],
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("definition_id", sa.Uuid(), nullable=False),
        schema=schema(),
    )
    op.create_table(
        _TABLES[2],
        sa.Column("revision", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("changed_by_name", sa.Text()),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        schema=schema(),
    )
    op.create_table(
        _TABLES[3],
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        schema=schema(),
    )
    op.execute(sa.text(f"INSERT INTO {placed(_TABLES[3])} (id, revision) VALUES (1, 0)"))  # noqa: S608 -- our own words


def _claim_names() -> None:
    """Rows may have come and gone while there was no table of names."""
    names, definitions = placed("tool_definition_names"), placed("tool_definitions")
    op.execute(
        sa.text(f"DELETE FROM {names} WHERE definition_id NOT IN (SELECT id FROM {definitions})")  # noqa: S608 -- our own words
    )
    op.execute(
        sa.text(
            f"INSERT INTO {names} (name, definition_id) SELECT lower(name), id FROM {definitions} "  # noqa: S608 -- our own words
            f"WHERE lower(name) NOT IN (SELECT name FROM {names})"
        )
    )


def downgrade() -> None:
    """Park them."""
    park_columns("tool_definitions", _COLUMNS, beside=("updated_at",))
    for column in _COLUMNS:
        op.drop_column("tool_definitions", column, schema=schema())
    for table in _TABLES:
        park(table)
