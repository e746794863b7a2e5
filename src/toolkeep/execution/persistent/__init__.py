"""Persistent processes: one program answers many calls."""
