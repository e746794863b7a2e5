"""Protocols of what outlives a call, with their in-memory implementations."""
