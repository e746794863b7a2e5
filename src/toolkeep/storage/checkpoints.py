"""The checkpoints of a log: `checkpoint` is the newest; `checkpoints.jsonl` keeps those that matter later.

Kept are the first one, the last of each segment and of each session, and those where one key hands over to
the next: both sign it. The newest is always written first, so that it is never older than one that was kept.
"""

import os
import time
from pathlib import Path

import orjson

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.note import NOTE_BYTES, Note, Signer, VerifierKey
from toolkeep.files import is_there
from toolkeep.storage.atomic import sync_folder, write_all, write_whole
from toolkeep.storage.keys import Keys
from toolkeep.storage.segments import read_entries_within, segment_ends


class Checkpoints:
    """Reads and signs the checkpoints of one log. Whoever signs holds the lock of the log."""

    def __init__(self, audit: Path, keys: Keys) -> None:
        self._audit = audit
        self._newest = audit / "checkpoint"
        self._kept = audit / "checkpoints.jsonl"
        self._keys = keys

    def newest(self) -> str | None:
        """The newest checkpoint as it was written; not checked."""
        try:
            # Bytes, not text: reading text would take \r for \n.
            return self._newest.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return None

    def checked(self) -> Checkpoint | None:
        """The newest checkpoint, signed by this keep's key."""
        written = self.newest()
        if written is None:
            return None
        try:
            return open_checkpoint(written, [self._keys.public_key()])
        except NoteInvalid as error:
            raise AuditBroken(str(self._newest), error.message) from error

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
        try:
            return time.time() - self._newest.stat().st_mtime
        except FileNotFoundError:
            return float("inf")

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
        for pattern in (f".{self._newest.name}.*", ".resume.json.*"):
            for path in self._audit.glob(pattern):
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
