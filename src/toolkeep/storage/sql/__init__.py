"""What SQLAlchemy does: definitions and tokens written, tables moved. Loaded by the first change."""
