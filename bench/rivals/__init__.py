"""toolkeep and its rivals, one a file, each driven the way its own documentation shows."""
