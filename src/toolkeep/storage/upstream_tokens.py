"""Tokens of upstream servers in the state folder: a file for each, which nobody else can read.

They stand in no project, and no tool may look into the folder. Whoever can read the files of this user can
read them: they are not encrypted.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

import msgspec

from toolkeep.errors import StateUnusable
from toolkeep.files import is_there
from toolkeep.sign_ins import Kept
from toolkeep.storage.atomic import sync_folder, write_whole
from toolkeep.storage.folder import check_private, make_private

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FILE_BYTES: Final = 256 * 1024


class FileTokens:
    """What is kept of sign-ins, shared by every process of a keep."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the state folder of the keep."""
        self._state = folder
        self._folder = folder / "sign-ins"

    def get(self, upstream: str) -> Kept | None:
        """What is kept of a sign-in; raises `StateUnusable` where others may read or write it."""
        path = self._path(upstream)
        if not is_there(self._folder):
            return None
        check_private(self._folder)
        raw = self._raw(path)
        try:
            return None if raw is None else msgspec.json.decode(raw, type=Kept)
        except msgspec.DecodeError:
            raise self._unusable(path) from None  # without its words, which hold what is secret

    def _raw(self, path: Path) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(path) from error
        try:
            status = os.fstat(descriptor)
            is_open = status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077
            if is_open or not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES:
                raise self._unusable(path)
            return os.read(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)

    def put(self, upstream: str, kept: Kept) -> None:
        """Keep it, instead of what was kept before."""
        path = self._path(upstream)
        make_private(self._state)
        make_private(self._folder)
        write_whole(path, msgspec.json.encode(kept))

    def forget(self, upstream: str) -> bool:
        """Keep nothing; says whether there was something."""
        try:
            self._path(upstream).unlink()
        except FileNotFoundError:
            return False
        sync_folder(self._folder)
        return True

    def _path(self, upstream: str) -> Path:
        if not _NAME.fullmatch(upstream):
            raise StateUnusable(
                str(self._folder), "keeps nothing under that name", hint="use a-z, 0-9, _ and -"
            )
        return self._folder / f"{upstream}.json"

    def _unusable(self, path: Path) -> StateUnusable:
        hint = "remove it, and sign in again"
        return StateUnusable(str(path), "is no file of yours alone that holds tokens", hint=hint)
