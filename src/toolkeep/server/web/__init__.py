"""The page: a person's way to the keep. Every action is one that `/v1` has too; nothing is decided here."""
