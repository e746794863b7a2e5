"""What the ledger of a keep holds, as its file says."""

import contextlib
import sqlite3
from pathlib import Path


def open_claims(folder: Path) -> int:
    """Claims that have no result yet."""
    with contextlib.closing(sqlite3.connect(folder / "ledger.db")) as connection:
        count: int = connection.execute("SELECT count(*) FROM claims WHERE result IS NULL").fetchone()[0]
        return count
