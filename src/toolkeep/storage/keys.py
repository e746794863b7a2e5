"""The keys of a keep, in `keys/`: the log's Ed25519 key, and the key under which secrets are hashed (AUD-5).

Each is made on first use, exactly once however many processes come first, readable by this user alone. Who
can read this folder can sign for the log: that a history was forked with its key, only a witness notices.
"""

import os
import secrets
from pathlib import Path

from toolkeep.audit.checkpoint import parse_size
from toolkeep.audit.note import Algorithm, Signer, VerifierKey
from toolkeep.errors import StateUnusable
from toolkeep.files import is_there
from toolkeep.storage.atomic import sync_folder, write_once, write_whole
from toolkeep.storage.folder import check_private, make_private

_ORIGIN_BYTES = 8
_KEY_BYTES = 32


class Keys:
    """The keys of one keep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "keys"
        self._file = self.folder / "log.key"
        self._next = self.folder / "log.next"
        self.signed = self.folder / "log.signed"
        """The newest checkpoint that `checkpoints` remembers to have signed."""
        self._checkpoint = folder / "audit" / "checkpoint"
        self._signer: Signer | None = None
        self._read_from: tuple[int, int] | None = None

    def signer(self) -> Signer:
        """The log's key; its name is the log's origin. Read anew after another process changed it."""
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
        """Make the log's key, unless the log has been signed: another key would be that of another log."""
        was_signed = is_there(self.signed) or is_there(self._checkpoint)
        if was_signed and not self.has_key():
            hint = "bring it back from a backup, or move the whole folder away to begin anew"
            raise StateUnusable(str(self._file), "is gone, and the log was signed with it", hint=hint)
        make_private(self.folder)
        name = f"toolkeep/{secrets.token_hex(_ORIGIN_BYTES)}"
        write_once(self._file, _new_key(name).to_text().encode())

    @property
    def origin(self) -> str:
        """The name of the log."""
        return (self._signer or self.signer()).name

    def public_key(self) -> VerifierKey:
        """The public half of the log's key; `str()` of it is what others are given."""
        return self.signer().verifier

    def has_key(self) -> bool:
        """Whether there is a key of the log already; asking makes none."""
        return is_there(self._file)

    def secret_key(self) -> bytes:
        """The key for the HMAC that stands for a secret; 32 random bytes."""
        path = self.folder / "secrets.key"
        if not is_there(path):
            make_private(self.folder)
            write_once(path, secrets.token_bytes(_KEY_BYTES))
        check_private(self.folder)
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:  # a secret under a short key could be guessed
            raise StateUnusable(str(path), "is no key", hint="bring it back from a backup, or move it away")
        return key

    def prepare_next(self, index: int) -> Signer:
        """Make the key that follows, before record `index` announces it. It does not sign yet."""
        following = _new_key(self.signer().name)
        write_whole(self._next, f"{index}\n{following.to_text()}".encode())
        return following

    def following(self) -> tuple[int, Signer] | None:
        """The key that follows and the index of its announcement, while a rotation is under way."""
        try:
            index, _, key = _text(self._next).partition("\n")
        except FileNotFoundError:
            return None
        return parse_size(index), Signer.parse(key)

    def promote_next(self, following: Signer) -> None:
        """The key that follows is the log's key from now on; the one before is gone."""
        write_whole(self._file, following.to_text().encode())
        self.drop_next()

    def drop_next(self) -> None:
        """Forget the key that would have followed, and keys that a process left which was stopped."""
        for left in (self._next, *self.folder.glob(".log.*")):
            left.unlink(missing_ok=True)
        sync_folder(self.folder)


def _text(file: Path) -> str:
    """What a file says; whatever else is in it, `parse` refuses by its own name."""
    return file.read_text(errors="replace")


def _new_key(name: str) -> Signer:
    return Signer(name=name, algorithm=Algorithm.ED25519, seed=os.urandom(_KEY_BYTES))
