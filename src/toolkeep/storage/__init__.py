"""What a keep stores: the audit log, keys and SQLite files of its state folder, and the store of definitions.

SQL is written in two ways. `sql` uses SQLAlchemy Core and Alembic for every change to the store of
definitions and to the tokens of a shared PostgreSQL. `sqlite` uses plain statements over `sqlite/database.py`
for the state folder: calls and start-up read it, and importing SQLAlchemy takes 0.33 s of processor time,
with Alembic 0.8 s, where `sqlite3` takes 0.015 s. For the same reason `sql/definition_reader.py` reads
definitions by plain statements, which SQLite and PostgreSQL share: every start reads, few processes write.
"""
