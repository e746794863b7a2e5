"""Hostile tools, one module per kind. Imported by workers, so standard library only."""
