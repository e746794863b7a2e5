"""The keys of a keep, in `keys/`: the log's Ed25519 key, and the HMAC key for secrets (AUD-5).

Each is made on first use, once, however many processes start together, and is readable by this user alone.
Whoever can read this folder can sign for the log: only a witness notices a history forked with its key.
"""

import os
import secrets
from pathlib import Path

from toolkeep.audit.checkpoint import parse_size
from toolkeep.audit.signed_note import Algorithm, Signer, VerifierKey
from toolkeep.errors import StateUnusable
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import sync_folder, write_once, write_whole
from toolkeep.storage.state_folder import check_private, make_private

_ORIGIN_BYTES = 8
"""Random bytes in the name of a log: 64 bits, so that no two logs of a witness share a name."""
_KEY_BYTES = 32
"""Size of an Ed25519 seed (RFC 8032), and of an HMAC-SHA256 key: as long as the hash (RFC 2104 section 3)."""


class Keys:
    """The keys of one keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "keys"
        self._file = self.folder / "log.key"
        self._next = self.folder / "log.next"
        self.signed = self.folder / "log.signed"
        """The newest signed checkpoint, remembered outside the log; see `checkpoint_files`."""
        self._checkpoint = folder / "audit" / "checkpoint"
        self._signer: Signer | None = None
        self._read_from: tuple[int, int] | None = None

    def signer(self) -> Signer:
        """The log's key; its name is the log's origin. Read again after another process rotated it."""
        try:
            status = self._file.stat()
        except FileNotFoundError:
            self._make_first()
            status = self._file.stat()
        found = (status.st_ino, status.st_mtime_ns)
        if self._signer is None or self._read_from != found:
            check_private(self.folder)
            self._signer = Signer.parse(_text(self._file))
            self._read_from = found
        return self._signer

    def _make_first(self) -> None:
        """Make the log's key, unless the log was signed before.

        A new key for a signed log would let whoever deletes the old one continue it under their own.
        """
        was_signed = is_there(self.signed) or is_there(self._checkpoint)
        if was_signed and not self.has_key():
            hint = "restore it from a backup, or move the whole folder away to start over"
            raise StateUnusable(str(self._file), "is missing, but the log was signed with it", hint=hint)
        make_private(self.folder)
        name = f"toolkeep/{secrets.token_hex(_ORIGIN_BYTES)}"
        write_once(self._file, _new_key(name).to_text().encode())

    @property
    def origin(self) -> str:
        """The name of the log."""
        return (self._signer or self.signer()).name

    def public_key(self) -> VerifierKey:
        """The public half of the log's key; publish its `str()`."""
        return self.signer().verifier

    def has_key(self) -> bool:
        """Whether the log has a key. Asking makes none."""
        return is_there(self._file)

    def secret_key(self) -> bytes:
        """The HMAC key under which secrets are recorded; 32 random bytes."""
        path = self.folder / "secrets.key"
        if not is_there(path):
            make_private(self.folder)
            write_once(path, secrets.token_bytes(_KEY_BYTES))
        check_private(self.folder)
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:  # with a short key, secrets could be guessed offline
            raise StateUnusable(str(path), "is not a key", hint="restore it from a backup, or move it away")
        return key

    def prepare_next(self, index: int) -> Signer:
        """Make the next key, before record `index` announces it. It does not sign yet."""
        next_key = _new_key(self.signer().name)
        write_whole(self._next, f"{index}\n{next_key.to_text()}".encode())
        return next_key

    def next_key(self) -> tuple[int, Signer] | None:
        """The next key and the index of its announcement, while a rotation is under way."""
        try:
            index, _, key = _text(self._next).partition("\n")
        except FileNotFoundError:
            return None
        return parse_size(index), Signer.parse(key)

    def promote_next(self, next_key: Signer) -> None:
        """Make the next key the log's key; the old one is gone."""
        write_whole(self._file, next_key.to_text().encode())
        self.drop_next()

    def drop_next(self) -> None:
        """Remove the next key, and temporary key files of killed processes."""
        for left in (self._next, *self.folder.glob(".log.*")):
            left.unlink(missing_ok=True)
        sync_folder(self.folder)


def _text(file: Path) -> str:
    """The text of a file; `parse` refuses invalid contents by name."""
    return file.read_text(errors="replace")


def _new_key(name: str) -> Signer:
    return Signer(name=name, algorithm=Algorithm.ED25519, seed=os.urandom(_KEY_BYTES))
