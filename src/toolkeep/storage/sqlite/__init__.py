"""The SQLite files of the state folder, by plain statements."""
