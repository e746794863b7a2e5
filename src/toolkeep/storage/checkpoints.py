"""The checkpoints of a log: `checkpoint` is the newest; `checkpoints.jsonl` keeps those that matter later.

Kept are the first one, of size 0, the last of each segment and of each session, and those where one key hands
over to the next: both sign it. `keys/log.signed` remembers outside the log what was signed: every one that is
kept, and once a second the newest. Without it, whoever removes all checkpoints or puts the log back to one
that is kept would have a log that looks whole, and the next call would sign it.

The newest is always written first, so that it is never older than one that was kept or is remembered.
"""

import os
import time
from pathlib import Path
from typing import Final

import orjson

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.note import NOTE_BYTES, Note, Signer, VerifierKey
from toolkeep.files import is_there
from toolkeep.storage.atomic import sync_folder, write_all, write_whole
from toolkeep.storage.keys import Keys
from toolkeep.storage.segments import read_entries_within, segment_ends

REMEMBER_SECONDS: Final = 1.0
"""How old what `keys/log.signed` remembers may grow: each write waits for the disk, with the log locked."""


class Checkpoints:
    """Reads and signs the checkpoints of one log. Whoever signs holds the lock of the log."""

    def __init__(self, audit: Path, keys: Keys) -> None:
        self._audit = audit
        self._newest = audit / "checkpoint"
        self._kept = audit / "checkpoints.jsonl"
        self._keys = keys

    def newest(self) -> str | None:
        """The newest checkpoint as it was written; not checked."""
        return _written(self._newest)

    def remembered(self) -> str | None:
        """What was signed, as it is remembered outside the log; not checked."""
        return _written(self._keys.signed)

    def checked(self) -> Checkpoint | None:
        """The newest checkpoint, signed by this keep's key, and no older than what is remembered.

        None before the log was begun.
        """
        newest = self._opened(self._newest)
        remembered = self._opened(self._keys.signed)
        if remembered is None:
            return newest
        said = f"though a checkpoint of size {remembered.size} was signed"
        if newest is None:
            raise AuditBroken(str(self._newest), f"it is gone, {said}")
        if newest.size < remembered.size:
            raise AuditBroken(str(self._newest), f"it is of size {newest.size}, {said}")
        return newest

    def begin(self, size: int, root: bytes) -> None:
        """Sign the empty log, unless it was begun before; records that were there before are nobody's."""
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
        """The key that they are signed with."""
        return self._keys.public_key()

    def kept(self) -> list[str]:
        """Every checkpoint that was kept, oldest first; a last one cut short by a crash is left out."""
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
        """How long ago the newest was written, by whichever process."""
        return _seconds_old(self._newest)

    def sign(self, size: int, root: bytes, *, is_kept: bool) -> Note:
        """Sign and write the checkpoint of this size."""
        signer = self._keys.signer()
        checkpoint = Checkpoint(origin=signer.name, size=size, root=root)
        following = self._announced()
        note = checkpoint.sign(signer, following) if following else checkpoint.sign(signer)
        is_first = not is_there(self._newest)
        matters_later = is_kept or is_first or following is not None
        write_whole(self._newest, str(note).encode(), is_soon_replaced=not matters_later)
        if matters_later:
            self._keep(str(note))
        elif not 0 <= _seconds_old(self._keys.signed) < REMEMBER_SECONDS:
            write_whole(self._keys.signed, str(note).encode(), is_soon_replaced=True)
        if following:
            self._keys.promote_next(following)
        return note

    def keep_newest(self) -> None:
        """Keep the newest one, unless it is kept already."""
        written = self.newest()
        if written is not None:
            self._keep(written)

    def tidy(self) -> None:
        """Remove what a process left that was stopped while it wrote a checkpoint, or where to read on."""
        left = [*self._audit.glob(f".{self._newest.name}.*"), *self._audit.glob(".resume.json.*")]
        for path in (*left, *self._keys.folder.glob(f".{self._keys.signed.name}.*")):
            path.unlink()

    def _announced(self) -> Signer | None:
        """The key that takes over with the next signature, if its announcement is in the log."""
        following = self._keys.following()
        if following is None:
            return None
        index, signer = following
        if signer.verifier == self._keys.public_key():  # handed over, and stopped before that was noted
            self._keys.drop_next()
            return None
        for entry in read_entries_within(self._audit, segment_ends(self._audit), index, index + 1):
            if entry.record.get("next_key") == str(signer.verifier):
                return signer
        # The process that rotated was stopped before the announcement was durable: nothing has happened.
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
            os.ftruncate(descriptor, start + whole)  # what a crash in the middle of a line left
            write_all(descriptor, line)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            sync_folder(self._audit)


def _written(file: Path) -> str | None:
    try:
        # Bytes, not text: reading text would take \r for \n.
        return file.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None


def _seconds_old(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
