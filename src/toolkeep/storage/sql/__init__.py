"""The store of definitions, on SQLite or PostgreSQL. Only the first change imports SQLAlchemy."""
