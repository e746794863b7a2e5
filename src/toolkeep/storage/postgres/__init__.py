"""The state that several servers share in one PostgreSQL (SCL-2)."""
