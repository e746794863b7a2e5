"""What servers that share a PostgreSQL decide together (SCL-2).

Tokens are sealed there now, and those made before have to be made anew; an SQLite file never held any.
"""

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.database_location import SCHEMA

revision = "0003"
down_revision = "0002"

_SAID = ("checkpoint", "handover", "trouble", "server", "name", "copied")
"""What a server publishes of its log, beside its keys."""


def upgrade() -> None:
    """Create the tables."""
    op.drop_table("tokens", schema=_schema())
    for table in ("tool_definitions", "tool_definition_versions"):
        op.add_column(table, sa.Column("mac", sa.Text()), schema=_schema())
    if _schema() is None:
        return
    op.create_table(
        "shared_servers",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_histories",
        sa.Column("server", sa.Text(), primary_key=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
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
        "shared_logs",
        *(
            sa.Column(name, sa.Text(), primary_key=name == "origin", nullable=False)
            for name in ("origin", "key", "witness_key", *_SAID)
        ),
        sa.Column("published_us", sa.BigInteger(), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_witness_requests",
        sa.Column("origin", sa.Text(), primary_key=True),
        sa.Column("witness", sa.Text(), primary_key=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("answer", sa.Text()),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_log_parts",
        sa.Column("origin", sa.Text(), primary_key=True),
        sa.Column("start", sa.BigInteger(), primary_key=True),
        sa.Column("stop", sa.BigInteger(), nullable=False),
        sa.Column("leaves", sa.LargeBinary(), nullable=False),
        sa.Column("lines", sa.LargeBinary(), nullable=False),
        schema=SCHEMA,
    )
    # Of this collation an index finds prefixes, too.
    op.create_table(
        "shared_log_calls",
        sa.Column("call_id", sa.Text(collation="C"), primary_key=True),
        sa.Column("other_id", sa.Text(collation="C"), primary_key=True, index=True),
        sa.Column("origin", sa.Text(), primary_key=True),
        sa.Column("first", sa.BigInteger(), primary_key=True),
        sa.Column("last", sa.BigInteger(), nullable=False),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_bodies",
        sa.Column("digest", sa.Text(collation="C"), primary_key=True),
        sa.Column("body", sa.LargeBinary()),
        sa.Column("put_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("erased_at", sa.DateTime(timezone=True)),
        sa.Column("mac", sa.LargeBinary()),
        schema=SCHEMA,
    )
    op.create_index(
        "shared_bodies_erased_at",
        "shared_bodies",
        ["erased_at"],
        schema=SCHEMA,
        postgresql_where=sa.text("erased_at IS NOT NULL"),
    )
    op.create_table(
        "shared_registers",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("version", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("content", sa.LargeBinary(), nullable=False, server_default=""),
        sa.Column("mac", sa.LargeBinary()),
        sa.Column("changes", sa.Text(), nullable=False, server_default=""),
        schema=SCHEMA,
    )
    op.create_table(
        "shared_token_uses",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("used_at", sa.Float(53), nullable=False),
        schema=SCHEMA,
    )
    _create_approvals()
    _make_requests()
    _make_sessions()


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


def _make_sessions() -> None:
    """Create what sessions have seen, and what calls added to measures."""
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
        schema=_schema(),
    )
    for table in ("tool_definitions", "tool_definition_versions"):
        op.drop_column(table, "mac", schema=_schema())
    if _schema() is None:
        return
    entered = ("witness_requests", "logs", "additions", "measures", "sessions", "token_uses", "registers")
    for table in ("bodies", "log_calls", "log_parts", *entered, "claims", "histories", "servers"):
        op.drop_table(f"shared_{table}", schema=SCHEMA)
    for table in ("work", "messages", "events", "mcp_sessions", "session_answers", "questions"):
        op.drop_table(f"shared_{table}", schema=SCHEMA)


def _schema() -> str | None:
    return None if op.get_bind().dialect.name == "sqlite" else SCHEMA
