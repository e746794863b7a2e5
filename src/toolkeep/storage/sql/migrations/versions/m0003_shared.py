"""What servers that share a PostgreSQL decide together (SCL-2); an SQLite file has none of these tables.

Tokens are sealed there now, and those made before have to be made anew.
"""

import sqlalchemy as sa
from alembic import op

from toolkeep.storage.sql.database_location import SCHEMA
from toolkeep.storage.sql.migrations.versions.m0001_initial import create_tokens

revision = "0003"
down_revision = "0002"

# The columns of each, as PostgreSQL reads them.
_TABLES = {
    "servers": "id text PRIMARY KEY, name text NOT NULL, seen_at timestamptz NOT NULL",
    "histories": "server text PRIMARY KEY, version bigint NOT NULL",
    "claims": """
        key text PRIMARY KEY, call_id text NOT NULL, argument_hash text NOT NULL, server text NOT NULL,
        result bytea, mac bytea
    """,
    "logs": """
        origin text PRIMARY KEY, key text NOT NULL, witness_key text NOT NULL, checkpoint text NOT NULL,
        handover text NOT NULL, trouble text NOT NULL, server text NOT NULL, name text NOT NULL,
        copied text NOT NULL, published_us bigint NOT NULL, mac bytea NOT NULL
    """,
    "witness_requests": """
        origin text, witness text, token text NOT NULL, request text NOT NULL, status integer, answer text,
        PRIMARY KEY (origin, witness)
    """,
    "log_parts": """
        origin text, start bigint, stop bigint NOT NULL, leaves bytea NOT NULL, lines bytea NOT NULL,
        PRIMARY KEY (origin, start)
    """,
    # In this collation an index finds prefixes, too.
    "log_calls": """
        call_id text COLLATE "C", other_id text COLLATE "C", origin text, first bigint, last bigint NOT NULL,
        PRIMARY KEY (call_id, other_id, origin, first)
    """,
    "bodies": """
        digest text COLLATE "C" PRIMARY KEY, body bytea, put_at timestamptz NOT NULL,
        erased_at timestamptz, mac bytea, refused_by bytea
    """,
    "registers": """
        kind text PRIMARY KEY, version bigint NOT NULL DEFAULT 0, content bytea NOT NULL DEFAULT '',
        mac bytea, changes text NOT NULL DEFAULT ''
    """,
    "token_uses": "id text PRIMARY KEY, used_at float8 NOT NULL",
    "questions": """
        id text PRIMARY KEY, agent bytea NOT NULL, server text NOT NULL, asked_at float8 NOT NULL,
        expires_at float8 NOT NULL, state text NOT NULL, question bytea NOT NULL, answer bytea,
        token text NOT NULL, mac bytea NOT NULL
    """,
    "session_answers": """
        question text PRIMARY KEY, session text NOT NULL, answer bytea NOT NULL, constraints bytea NOT NULL,
        given_at float8 NOT NULL, mac bytea NOT NULL
    """,
    "mcp_sessions": """
        id text PRIMARY KEY, agent text NOT NULL, about bytea NOT NULL, seen_at timestamptz NOT NULL,
        mac bytea NOT NULL
    """,
    "events": """
        stream text, number integer, frame bytea NOT NULL, is_last boolean NOT NULL,
        made_at timestamptz NOT NULL, mac bytea NOT NULL, PRIMARY KEY (stream, number)
    """,
    "messages": """
        id text PRIMARY KEY, server text NOT NULL, body bytea NOT NULL, made_at timestamptz NOT NULL,
        mac bytea NOT NULL
    """,
    "work": """
        id text PRIMARY KEY, kind text NOT NULL, agent text NOT NULL, server text NOT NULL,
        state bytea NOT NULL, is_over boolean NOT NULL, changed_at timestamptz NOT NULL, mac bytea NOT NULL
    """,
    "sessions": "key text PRIMARY KEY, state bytea NOT NULL, put_at float8 NOT NULL, mac bytea",
    "measures": """
        subject text, source text, version bigint NOT NULL, pruned bigint NOT NULL, folded bigint NOT NULL,
        last_at float8 NOT NULL, mac bytea, PRIMARY KEY (subject, source)
    """,
    "additions": """
        subject text, source text, version bigint, call text NOT NULL, at float8 NOT NULL,
        value bigint NOT NULL, until float8, mac bytea, PRIMARY KEY (subject, source, version)
    """,
}
_INDEXES = (
    "log_calls (other_id)",
    "bodies (erased_at) WHERE erased_at IS NOT NULL",
    "bodies (refused_by, put_at) WHERE refused_by IS NOT NULL",
    "questions (agent, state)",
    "questions (expires_at)",
    "session_answers (session)",
)


def upgrade() -> None:
    """Create the tables."""
    op.drop_table("tokens", schema=_schema())
    for table in ("tool_definitions", "tool_definition_versions"):
        op.add_column(table, sa.Column("mac", sa.Text()), schema=_schema())
    if _schema() is None:
        return
    for table, columns in _TABLES.items():
        op.execute(f"CREATE TABLE {SCHEMA}.shared_{table} ({columns})")
    for index in _INDEXES:
        op.execute(f"CREATE INDEX ON {SCHEMA}.shared_{index}")


def downgrade() -> None:
    """Drop the tables: a call that is repeated with its key runs again."""
    create_tokens()
    for table in ("tool_definitions", "tool_definition_versions"):
        op.drop_column(table, "mac", schema=_schema())
    if _schema() is not None:
        for table in _TABLES:
            op.drop_table(f"shared_{table}", schema=SCHEMA)


def _schema() -> str | None:
    return None if op.get_bind().dialect.name == "sqlite" else SCHEMA
