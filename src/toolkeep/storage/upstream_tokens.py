"""OAuth tokens of upstream servers in the state folder: a private file for each.

They are in no project, and no tool may open the folder. They are not encrypted: a program that can read this
user's files can read them.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

import msgspec

from toolkeep.errors import StateUnusable
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import sync_folder, write_whole
from toolkeep.storage.state_folder import check_private, make_private, newer_format
from toolkeep.stores.sign_ins import SIGN_IN_VERSION, StoredSignIn

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FILE_BYTES: Final = 256 * 1024
"""Maximum size of a stored sign-in: several times two tokens of 16 KiB with scopes, client id and secret."""


class _Versioned(msgspec.Struct):
    version: int = SIGN_IN_VERSION


class FileSignIns:
    """Stored sign-ins, shared by every process of a keep."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the state folder of the keep."""
        self._state = folder
        self._folder = folder / "sign-ins"

    def get(self, upstream: str) -> StoredSignIn | None:
        """A stored sign-in; raises `StateUnusable` where other users may read or write it."""
        path = self._path(upstream)
        if not is_there(self._folder):
            return None
        check_private(self._folder)
        raw = self._raw(path)
        if raw is None:
            return None
        try:
            # Alone first: the rest of a later version may have another shape.
            version = msgspec.json.decode(raw, type=_Versioned).version
            if version > SIGN_IN_VERSION:
                raise newer_format(path, version, SIGN_IN_VERSION)
            return msgspec.json.decode(raw, type=StoredSignIn)
        except msgspec.DecodeError:
            raise self._unusable(path) from None  # without its message, which quotes the secret

    def _raw(self, path: Path) -> bytes | None:
        try:
            # No link, and no waiting for a pipe; owner and mode are checked on the opened file, so that
            # nobody can swap it between check and use.
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

    def put(self, upstream: str, kept: StoredSignIn) -> None:
        """Store a sign-in, replacing the one before."""
        path = self._path(upstream)
        make_private(self._state)
        make_private(self._folder)
        write_whole(path, msgspec.json.encode(kept))

    def forget(self, upstream: str) -> bool:
        """Delete a sign-in; whether there was one."""
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
        return StateUnusable(str(path), "is not a token file that only you can access", hint=hint)
