"""What servers that share a PostgreSQL decide together (SCL-2), and MACs of their tokens.

Tokens without a MAC are not accepted, and have to be made anew.
"""

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.database_location import SCHEMA

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables."""
    if op.get_bind().dialect.name == "sqlite":
        op.add_column("tokens", sa.Column("mac", sa.LargeBinary()))
        return
    op.add_column("tokens", sa.Column("mac", sa.LargeBinary()), schema=SCHEMA)
    op.create_table(
        "shared_servers",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_claims",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("argument_hash", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("result", sa.LargeBinary()),
        sa.Column("mac", sa.LargeBinary()),
        schema=SCHEMA,
    )
    _make_requests()


def _make_requests() -> None:
    """Create what servers know of each other's clients: sessions, events, messages and running work."""
    op.create_table(
        "shared_mcp_sessions",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("about", sa.LargeBinary(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_events",
        sa.Column("stream", sa.Text(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("frame", sa.LargeBinary(), nullable=False),
        sa.Column("is_last", sa.Boolean(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_messages",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_work",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("is_over", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )


_TABLES = (
    "shared_work",
    "shared_messages",
    "shared_events",
    "shared_mcp_sessions",
    "shared_claims",
    "shared_servers",
)


def downgrade() -> None:
    """Drop the tables: a call that is repeated with its key runs again."""
    if op.get_bind().dialect.name == "sqlite":
        op.drop_column("tokens", "mac")
        return
    op.drop_column("tokens", "mac", schema=SCHEMA)
    for table in _TABLES:
        op.drop_table(table, schema=SCHEMA)
