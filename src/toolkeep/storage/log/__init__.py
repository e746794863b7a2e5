"""The audit log on disk."""
