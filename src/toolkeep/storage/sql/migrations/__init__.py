"""The Alembic migrations of the store."""
