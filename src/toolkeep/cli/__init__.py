"""The `toolkeep` command: one module for each command or command group."""
