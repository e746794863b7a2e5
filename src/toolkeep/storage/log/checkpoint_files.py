"""The checkpoints of a log: `checkpoint` is the newest, `checkpoints.jsonl` keeps the ones needed later.

Kept are the first one, of size 0, the last of each segment and of each session, and each key rotation, signed
by both keys. `keys/log.signed` remembers outside the log what was signed: every kept checkpoint, and once a
second the newest. Without it, an attacker who deletes all checkpoints, or rolls the log back to a kept one,
has a log that looks whole, and the next call would sign it.

Write order: the newest first, so that it is never older than a kept or a remembered one.
"""

import os
import time
from pathlib import Path
from typing import Final

import orjson

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.signed_note import NOTE_BYTES, Note, Signer, VerifierKey
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import sync_data, sync_folder, write_all, write_whole
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.segments import read_entries_within, segment_ends

REMEMBER_SECONDS: Final = 1.0
"""How old `keys/log.signed` may become: each write of it waits for the disk while the log is locked."""


class Checkpoints:
    """Reads and signs the checkpoints of one log. To sign, hold the lock of the log."""

    def __init__(self, audit: Path, keys: Keys) -> None:
        self._audit = audit
        self._newest = audit / "checkpoint"
        self._kept = audit / "checkpoints.jsonl"
        self._keys = keys

    def newest(self) -> str | None:
        """The newest checkpoint, unverified."""
        return _written(self._newest)

    def remembered(self) -> str | None:
        """The checkpoint remembered outside the log, unverified."""
        return _written(self._keys.signed)

    def checked(self) -> Checkpoint | None:
        """The newest checkpoint, verified: signed by this keep's key, and not older than the remembered one.

        None before the log was begun. An older one than remembered is a rollback.
        """
        newest = self._opened(self._newest)
        remembered = self._opened(self._keys.signed)
        if remembered is None:
            return newest
        said = f"though a checkpoint of size {remembered.size} was signed"
        if newest is None:
            raise AuditBroken(str(self._newest), f"it is gone, {said}")
        if newest.size < remembered.size:
            raise AuditBroken(str(self._newest), f"its size is {newest.size}, {said}")
        return newest

    def begin(self, size: int, root: bytes) -> None:
        """Sign the empty log, unless it was begun before.

        Refuses a log that has entries and was never signed: signing it would adopt somebody else's records.
        """
        if is_there(self._keys.signed):
            return
        if size:
            reason = "it is gone, or the log was made by a toolkeep that did not write it yet"
            raise AuditBroken(str(self._keys.signed), reason)
        self.sign(size, root, is_kept=True)

    def _opened(self, file: Path) -> Checkpoint | None:
        written = _written(file)
        if written is None:
            return None
        try:
            return open_checkpoint(written, [self._keys.public_key()])
        except NoteInvalid as error:
            raise AuditBroken(str(file), error.message) from error

    def public_key(self) -> VerifierKey:
        """The key that checkpoints are signed with."""
        return self._keys.public_key()

    def kept(self) -> list[str]:
        """Every kept checkpoint, oldest first; a torn write at the end is left out."""
        try:
            *lines, last = self._kept.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        if last.count(b'"') > 1 and not last.endswith(b'"'):
            raise AuditBroken(str(self._kept), "it ends with something else than a checkpoint")
        return [self._parse_kept(number, line) for number, line in enumerate(lines, start=1)]

    def _parse_kept(self, number: int, line: bytes) -> str:
        try:
            written = orjson.loads(line)
        except ValueError:
            written = None
        if not isinstance(written, str) or orjson.dumps(written) != line:
            raise AuditBroken(f"{self._kept}, line {number}", "the line holds no checkpoint")
        return written

    def seconds_old(self) -> float:
        """The age of the newest checkpoint, whichever process wrote it."""
        return _seconds_old(self._newest)

    def sign(self, size: int, root: bytes, *, is_kept: bool) -> Note:
        """Sign and write the checkpoint of this size and root."""
        signer = self._keys.signer()
        checkpoint = Checkpoint(origin=signer.name, size=size, root=root)
        next_key = self._announced()
        note = checkpoint.sign(signer, next_key) if next_key else checkpoint.sign(signer)
        is_first = not is_there(self._newest)
        matters_later = is_kept or is_first or next_key is not None
        write_whole(self._newest, str(note).encode(), is_soon_replaced=not matters_later)
        if matters_later:
            self._keep(str(note))
        elif not 0 <= _seconds_old(self._keys.signed) < REMEMBER_SECONDS:
            write_whole(self._keys.signed, str(note).encode(), is_soon_replaced=True)
        if next_key:
            self._keys.promote_next(next_key)
        return note

    def keep_newest(self) -> None:
        """Keep the newest checkpoint, unless it is kept already."""
        written = self.newest()
        if written is not None:
            self._keep(written)

    def tidy(self) -> None:
        """Remove temporary files of processes that were killed while they wrote one of these files."""
        left = [
            path
            for name in (self._newest.name, "resume.json", "format")
            for path in self._audit.glob(f".{name}.*")
        ]
        for path in (*left, *self._keys.folder.glob(f".{self._keys.signed.name}.*")):
            path.unlink()

    def _announced(self) -> Signer | None:
        """The key that takes over with the next signature, if its announcement is in the log.

        Without the announcement a verifier could not tell a rotation from a stolen log.
        """
        prepared = self._keys.next_key()
        if prepared is None:
            return None
        index, signer = prepared
        if signer.verifier == self._keys.public_key():  # promoted, and killed before the file was removed
            self._keys.drop_next()
            return None
        for entry in read_entries_within(self._audit, segment_ends(self._audit), index, index + 1):
            if entry.record.get("next_key") == str(signer.verifier):
                return signer
        # The rotating process was killed before the announcement was durable: no rotation took place.
        self._keys.drop_next()
        return None

    def _keep(self, written: str) -> None:
        self._list(written)
        if self.remembered() != written:
            write_whole(self._keys.signed, written.encode())

    def _list(self, written: str) -> None:
        line = orjson.dumps(written) + b"\n"
        is_new = not is_there(self._kept)
        descriptor = os.open(self._kept, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            start = max(0, size - 2 * NOTE_BYTES)
            end = os.pread(descriptor, size - start, start)
            whole = end.rfind(b"\n") + 1
            if end[:whole].endswith(line):
                return
            os.ftruncate(descriptor, start + whole)  # a torn write
            write_all(descriptor, line)
            sync_data(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            sync_folder(self._audit)


def _written(file: Path) -> str | None:
    try:
        # Bytes, not text: text mode would turn \r into \n, and accept what was not signed.
        return file.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None


def _seconds_old(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
