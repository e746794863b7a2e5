"""Labels of results, which belong to a definition (FLO-1)."""

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.database_location import SCHEMA

revision = "0002"
down_revision = "0001"

_TABLES = ("tool_definitions", "tool_definition_versions")


def _schema() -> str | None:
    return None if op.get_bind().dialect.name == "sqlite" else SCHEMA


def upgrade() -> None:
    """Add the column; definitions without labels keep their hash."""
    for table in _TABLES:
        op.add_column(table, sa.Column("flow_json", sa.Text()), schema=_schema())


def downgrade() -> None:
    """Drop the column, with all labels."""
    for table in _TABLES:
        op.drop_column(table, "flow_json", schema=_schema())
