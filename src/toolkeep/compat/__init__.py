"""What changed between two schemas: begin with `compat/definition_diff.py`."""
