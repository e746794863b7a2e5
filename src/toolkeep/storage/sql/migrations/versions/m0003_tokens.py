"""The table of tokens, for keeps that share a PostgreSQL. An embedded keep has a file of its own for them."""

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.migrations.parking import bring_back, is_parked, park, schema

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make it, or bring it back."""
    if is_parked("tokens"):
        bring_back("tokens")
        return
    op.create_table(
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
        schema=schema(),
    )


def downgrade() -> None:
    """Park it."""
    park("tokens")
