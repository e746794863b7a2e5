"""One-time sign-in codes for the web page, made by a process that may write to the state folder.

A code is 32 random bytes, and is stored nowhere but in the link. A file named by its SHA-256 holds when it
expires. Using a code is unlinking the file, which succeeds for one process only: no code works twice.
"""

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from toolkeep.limits import SIGN_IN_CODES, SIGN_IN_SECONDS
from toolkeep.storage.state_folder import make_private

_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class SignInCodes(Protocol):
    """Stores codes until they are used."""

    def make(self) -> str:
        """A new code, told this once."""

    def use(self, code: str) -> bool:
        """Use a code up; False for one that does not count."""


class MemorySignInCodes:
    """Codes in memory."""

    def __init__(self, clock: Callable[[], float] = time.time, ends: dict[str, float] | None = None) -> None:
        self._clock = clock
        self._ends = {} if ends is None else ends

    def make(self) -> str:
        """A new code, told this once."""
        code, now = secrets.token_urlsafe(32), self._clock()
        for name in [name for name, end in self._ends.items() if end <= now]:
            del self._ends[name]
        self._ends[_name(code)] = now + SIGN_IN_SECONDS
        return code

    def use(self, code: str) -> bool:
        """Use a code up; False for one that does not count."""
        return self._clock() < self._ends.pop(_name(code), 0.0)


class FileSignInCodes:
    """Codes in files, for every process of a keep."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """`folder` is the state folder of the keep."""
        self._folder = folder / "sign-in"
        self._clock = clock

    def make(self) -> str:
        """A new code, told this once."""
        make_private(self._folder.parent)  # otherwise another user could replace the folder below
        make_private(self._folder)
        self._forget()
        code = secrets.token_urlsafe(32)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(self._folder / _name(code), flags, 0o600), "w") as file:  # noqa: PTH123 -- a descriptor
            file.write(repr(self._clock() + SIGN_IN_SECONDS))
        return code

    def use(self, code: str) -> bool:
        """Use a code up; False for one that does not count."""
        if not _FORM.fullmatch(code):
            return False
        path = self._folder / _name(code)
        try:
            end = float(path.read_text())
            path.unlink()
        except (OSError, ValueError):
            return False
        return self._clock() < end

    def _forget(self) -> None:
        """Remove expired codes, and the oldest ones above the limit."""
        held: list[tuple[float, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # used in between
                held.append((path.stat().st_mtime, path))
        for number, (made_at, path) in enumerate(sorted(held)):
            is_over = self._clock() - made_at > SIGN_IN_SECONDS
            if is_over or len(held) - number >= SIGN_IN_CODES:
                path.unlink(missing_ok=True)


def _name(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
