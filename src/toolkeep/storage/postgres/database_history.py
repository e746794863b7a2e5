"""Notices that the shared database was restored from a backup: it does not know what this server did since.

Then a call whose key was used would run again, and a used approval would count again. So each server counts
in a row of its own and remembers the count in its state folder. A row that is behind refuses every change,
until a person says that the database was restored on purpose: `toolkeep database restored`. It counts once a
second, so a backup of the last second before the server stopped is not told from its last state.
"""

import logging
import secrets
import time
from pathlib import Path
from typing import Any, Final

from toolkeep.errors import StoreUnavailable
from toolkeep.storage.atomic_files import write_once
from toolkeep.storage.postgres.shared_register import VERSIONS, SeenVersion
from toolkeep.storage.state_folder import make_private

log = logging.getLogger("toolkeep.store")

_EVERY_SECONDS: Final = 1.0
"""The count is a row to update and a file to sync: too much for each change."""
_SERVER: Final = ".server"
_COUNT = """
INSERT INTO shared_histories AS histories (server, version) VALUES (%s, 1)
ON CONFLICT (server) DO UPDATE SET version = histories.version + 1 RETURNING version
"""


class DatabaseHistory:
    """What one server remembers of the database, for all its connections."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the state folder."""
        self._folder = folder / VERSIONS
        self._seen = SeenVersion(folder, "history")
        self._counted_at = float("-inf")
        self.is_behind = False
        """Whether the database knew less than this server, when it was asked last."""

    def count(self, connection: Any, place: str) -> int:
        """Count, as part of a transaction, if it is time to; raises where the database is behind."""
        now = time.monotonic()
        if not self.is_behind and now - self._counted_at < _EVERY_SECONDS:
            return 0
        (version,) = connection.execute(_COUNT, (self._server(),)).fetchone()
        # What is remembered was committed before this row was locked.
        was_behind, self.is_behind = self.is_behind, version <= (seen := self._seen.remembered())
        if self.is_behind:
            hint = "if you restored a backup of the database on purpose, run: toolkeep database restored"
            if not was_behind:
                log.error(
                    "the shared database is older than before", extra={"version": version - 1, "seen": seen}
                )
            reason = f"it is older than before: version {version - 1}, and this server has seen {seen}"
            raise StoreUnavailable(place, reason, hint=hint)
        self._counted_at = now
        return int(version)

    def remember(self, version: int) -> None:
        """The transaction of `count` was committed."""
        if version:
            self._seen.rise(version)

    def _server(self) -> str:
        file = self._folder / _SERVER
        try:
            return file.read_text()
        except FileNotFoundError:
            make_private(self._folder)
            write_once(file, secrets.token_hex(16).encode())
            return file.read_text()
