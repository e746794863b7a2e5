"""The table of custom definitions, with the columns and indexes that every layout has."""

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.migrations.parking import is_embedded, schema

revision = "0001"
down_revision = None

_INDEXED = ("name", "category", "license_tier")


def upgrade() -> None:
    """Make it."""
    new_id = None if is_embedded() else sa.text("gen_random_uuid()")
    op.create_table(
        "tool_definitions",
        sa.Column("id", sa.Uuid(), primary_key=True, server_default=new_id),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("description", sa.String(1024), nullable=False),
        sa.Column("category", sa.Integer(), nullable=False),
        sa.Column("parameters_json", sa.Text()),
        sa.Column("output_schema_json", sa.Text()),
        sa.Column("constraints_json", sa.String(4096)),
        sa.Column("required_permissions_json", sa.String(4096)),
        sa.Column("requires_confirmation", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("version", sa.String(32)),
        sa.Column("metadata_json", sa.Text()),
        sa.Column("is_built_in", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("license_tier", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("created_by", sa.Uuid()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        schema=schema(),
    )
    for column in _INDEXED:
        op.create_index(f"IX_tool_definitions_{column}", "tool_definitions", [column], schema=schema())


def downgrade() -> None:
    """Take it away, with all that it holds."""
    op.drop_table("tool_definitions", schema=schema())
