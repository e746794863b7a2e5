"""On-disk cache of compiled WASM modules, in the user's cache folder.

Its files become machine code in this process. So a file counts only with an HMAC under a key of the keep's
state, which no tool can be granted (POL-7): a tool that may write the user's whole home cannot plant code.
The folder must also be private to this user. Not protected: whoever can read the keep's keys.
"""

import hashlib
import hmac
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from toolkeep.limits import CACHED_MODULES, COMPILED_BYTES

log = logging.getLogger("toolkeep.wasm")

_TAG_BYTES: Final = 32
"""Size of an HMAC-SHA256 tag (RFC 2104), appended to each file."""
_PURPOSE: Final = b"toolkeep compiled wasm modules"


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """`$XDG_CACHE_HOME/toolkeep/wasm`; None for a user without a home."""
    named = environment.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named) / "toolkeep" / "wasm"
    home = environment.get("HOME", "")
    return Path(home) / ".cache" / "toolkeep" / "wasm" if home.startswith("/") else None


class CompiledModules:
    """Files of one folder that this keep wrote; other keeps use other names."""

    def __init__(self, folder: Path, secret_key: Callable[[], bytes]) -> None:
        self._folder = folder
        self._secret_key = secret_key

    def get(self, sha256: str, fingerprint: str) -> bytes | None:
        """The compiled form of a module; None if there is none that can be trusted."""
        name = self._name(sha256, fingerprint)
        try:
            # lstat: a symlinked cache folder is not ours. Defence in depth beside the HMAC.
            if not _is_private(self._folder.lstat()):
                return None
            body = _read(self._folder / name)
        except OSError:
            return None
        # Verified on the bytes that were read, in constant time. The name is part of the MAC: otherwise a
        # valid file could be renamed to stand for another module.
        compiled, tag = body[:-_TAG_BYTES], body[-_TAG_BYTES:]
        return compiled if hmac.compare_digest(tag, self._tag(name, compiled)) else None

    def put(self, sha256: str, fingerprint: str, compiled: bytes) -> None:
        """Store it; on failure it is compiled again next time."""
        if len(compiled) + _TAG_BYTES > COMPILED_BYTES:
            return
        name = self._name(sha256, fingerprint)
        try:
            for missing in (*reversed(self._folder.parents[:2]), self._folder):
                missing.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(self._folder.lstat()):
                log.warning("compiled modules are not kept: the folder for them is open to others")
                return
            _write(self._folder, name, compiled + self._tag(name, compiled))
            self._forget_old()
        except OSError as error:
            log.warning("a compiled module was not kept", extra={"reason": error.strerror})

    def _name(self, sha256: str, fingerprint: str) -> str:
        return self._tag(sha256, fingerprint.encode()).hex()

    def _tag(self, name: str, body: bytes) -> bytes:
        # Domain separation: the same state key is used for other purposes.
        key = hmac.digest(self._secret_key(), _PURPOSE, hashlib.sha256)
        return hmac.digest(key, f"{name}\n".encode() + body, hashlib.sha256)

    def _forget_old(self) -> None:
        kept = sorted(self._folder.iterdir(), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
        for path in kept[CACHED_MODULES:]:
            path.unlink(missing_ok=True)


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def _read(path: Path) -> bytes:
    # O_NOFOLLOW and O_NONBLOCK: a planted symlink or FIFO must neither redirect nor block the read.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_private(status):
            return b""
        return file.read(COMPILED_BYTES)


def _write(folder: Path, name: str, body: bytes) -> None:
    """Write atomically (temporary file, then rename): others may read meanwhile. mkstemp uses mode 0600."""
    descriptor, made = tempfile.mkstemp(dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(body)
        Path(made).replace(folder / name)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise
