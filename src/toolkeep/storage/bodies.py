"""Arguments and results beside the log, each in a file named by its SHA-256: `bodies/ab/cdef…` (AUD-5).

The log holds only the hash, so that a body can be erased and every proof still holds. Comes in: bytes
without secrets. An erased body leaves an empty file that says so; who erased it, nothing shows.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from toolkeep.audit.errors import BodyState, BodyUnavailable
from toolkeep.storage.atomic import write_whole
from toolkeep.storage.folder import check_private, make_private

_DIGEST = re.compile(r"[0-9a-f]{64}")
_ERASED = ".erased"


class Bodies:
    """The bodies of one keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bodies"

    def put(self, body: bytes) -> str:
        """Keep a body; its hash, in hex. One that is there already only grows younger."""
        digest = hashlib.sha256(body).hexdigest()
        path = self._path(digest)
        try:
            os.utime(path)
        except FileNotFoundError:
            make_private(self.folder)
            make_private(path.parent)
            write_whole(path, body)
            _erased(path).unlink(missing_ok=True)
        return digest

    def get(self, digest: str) -> bytes:
        """A body by its hash; raises `BodyUnavailable` where it was erased, is missing or was changed."""
        path = self._path(digest)
        try:
            check_private(path.parent)
            body = path.read_bytes()
        except FileNotFoundError:
            state = BodyState.ERASED if _erased(path).exists() else BodyState.MISSING
            raise BodyUnavailable(digest, state) from None
        if hashlib.sha256(body).hexdigest() != digest:
            raise BodyUnavailable(digest, BodyState.CHANGED)
        return body

    def erase(self, digest: str) -> bool:
        """Erase a body, and say from now on that it was; whether there was one."""
        path = self._path(digest)
        if not path.exists():
            return False
        write_whole(_erased(path), b"")
        path.unlink(missing_ok=True)
        return True

    def erase_older(self, than: float) -> list[str]:
        """Erase the bodies that were last put before this time, in POSIX seconds; their hashes."""
        old = [digest for digest, put_at in self._all() if put_at < than]
        return [digest for digest in old if self.erase(digest)]

    def _all(self) -> Iterator[tuple[str, float]]:
        if not self.folder.exists():
            return
        for path in sorted(self.folder.glob("??/*")):
            digest = path.parent.name + path.name
            if _DIGEST.fullmatch(digest):
                yield digest, path.stat().st_mtime

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is no SHA-256 in hex")
        return self.folder / digest[:2] / digest[2:]


def _erased(path: Path) -> Path:
    return path.with_name(path.name + _ERASED)
