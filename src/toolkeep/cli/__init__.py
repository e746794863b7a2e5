"""The command: one file each."""
