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
    op.create_table(
        "shared_sessions",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("put_at", sa.Double(), nullable=False),
        sa.Column("mac", sa.LargeBinary()),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_measures",
        sa.Column("subject", sa.Text(), primary_key=True),
        sa.Column("source", sa.Text(), primary_key=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("pruned", sa.BigInteger(), nullable=False),
        sa.Column("folded", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("mac", sa.LargeBinary()),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_additions",
        sa.Column("subject", sa.Text(), primary_key=True),
        sa.Column("source", sa.Text(), primary_key=True),
        sa.Column("version", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("call", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.Double()),
        sa.Column("mac", sa.LargeBinary()),
        schema=SCHEMA,
    )


def downgrade() -> None:
    """Drop the tables: a call that is repeated with its key runs again."""
    if op.get_bind().dialect.name == "sqlite":
        op.drop_column("tokens", "mac")
        return
    op.drop_column("tokens", "mac", schema=SCHEMA)
    tables = ("shared_additions", "shared_measures", "shared_sessions", "shared_claims", "shared_servers")
    for table in tables:
        op.drop_table(table, schema=SCHEMA)
