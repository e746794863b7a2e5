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
    _create_approvals()


def _create_approvals() -> None:
    op.create_table(
        "shared_questions",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("agent", sa.LargeBinary(), nullable=False),
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False, index=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("question", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary()),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )
    op.create_index("shared_questions_of_agents", "shared_questions", ["agent", "state"], schema=SCHEMA)
    op.create_table(
        "shared_session_answers",
        sa.Column("question", sa.Text(), primary_key=True),
        sa.Column("session", sa.Text(), nullable=False, index=True),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("constraints", sa.LargeBinary(), nullable=False),
        sa.Column("given_at", sa.Double(), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )


def downgrade() -> None:
    """Drop the tables: a call that is repeated with its key runs again."""
    if op.get_bind().dialect.name == "sqlite":
        op.drop_column("tokens", "mac")
        return
    op.drop_column("tokens", "mac", schema=SCHEMA)
    for table in ("shared_session_answers", "shared_questions", "shared_claims", "shared_servers"):
        op.drop_table(table, schema=SCHEMA)
