"""WHERE TOOLS COME FROM: one file per kind."""
