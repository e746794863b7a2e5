"""What changed between two schemas: the door is `registry/schema_changes.py`."""
