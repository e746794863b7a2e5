"""The end of the log as one process knows it: reads what others appended, then appends and makes it durable.

Every method wants the lock of the log held. An entry counts as soon as its line is complete, whoever wrote
it; bytes after the last complete line were never acknowledged and are moved aside. Bytes that break the chain
in front of a later entry, or under a checkpoint, are no accident: `AuditBroken`, nothing more is appended.

Entries are written over zeros that are there already, the room: a sync that has no new length to note takes
half the time. A machine that stops may leave any part of the last group unwritten, so a gap of zeros counts
as unfinished too; what is behind it was not acknowledged.
"""

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import chain, parse_entry
from toolkeep.audit.errors import AuditBroken
from toolkeep.audit.tree import Frontier
from toolkeep.canonical import canonical_bytes
from toolkeep.storage.atomic import sync_folder, write_all_at, write_whole
from toolkeep.storage.checkpoints import Checkpoints
from toolkeep.storage.folder import make_private
from toolkeep.storage.resume import find_place, save_place
from toolkeep.storage.segments import Place, segment_numbers, segment_path, segments_folder

_FRESH_LEAVES = 4096
_LITTLE_BYTES = 64 * 1024
_ROOM_BYTES = 1024 * 1024
_ROOM_SHARE = 64


class Busy(Exception):
    """Others write, or have written much, and there is no time to wait for that."""


class Appender:
    """The open end of one log."""

    def __init__(
        self, audit: Path, checkpoints: Checkpoints, *, segment_bytes: int, clock: Callable[[], float]
    ) -> None:
        self._audit = audit
        self._checkpoints = checkpoints
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._place = Place()
        self._frontier = Frontier()
        self._fresh: list[bytes] = []
        self._descriptor = -1
        self._end = 0  # of the file, with its room
        self._written = 0
        self._following = ""
        self._announcements: list[bytes] = []
        self._is_synced = True
        self._is_in_doubt = False
        self.sync_seconds = math.inf
        """How long a sync takes, the last ones counting most."""

    @property
    def size(self) -> int:
        """How many entries the log has."""
        return self._place.size

    @property
    def segment(self) -> int:
        """The number of the segment that is written to."""
        return self._place.number

    @property
    def has_announcements(self) -> bool:
        """Whether the log itself has something to record."""
        return bool(self._announcements)

    def open(self) -> None:
        """Read the log from its start or a place that is known, and hold it against the newest checkpoint."""
        checkpoint = self._checkpoints.checked()
        covered = checkpoint.size if checkpoint else 0
        make_private(self._audit)
        make_private(segments_folder(self._audit))
        self._checkpoints.tidy()
        numbers = segment_numbers(self._audit)
        if numbers != list(range(len(numbers))):
            raise AuditBroken(str(segments_folder(self._audit)), "a segment is missing")
        if checkpoint and not self._is_in_doubt:
            self._resume()
        self._use(self._place.number)
        self._read_on(checkpoint, is_whole=True)
        if self.size < covered:
            raise AuditBroken(str(self._place), f"a checkpoint says that there are {covered} records")
        self._checkpoints.begin(self.size, self.root())

    def catch_up(self, *, is_patient: bool = True) -> None:
        """Take in what other processes appended; raises `Busy` where that is much and one is not patient."""
        if not is_patient and self._is_in_doubt:
            raise Busy
        if self._is_in_doubt:
            self._start_over()
            return
        self._read_on(None, is_whole=False, is_patient=is_patient)

    def append(self, records: Sequence[bytes]) -> list[bytes]:
        """Append canonical records; durable when this returns. Their leaf hashes."""
        own = self._announcements
        if self._place.offset >= self._segment_bytes:
            self._start_segment()
        lines, leaves = chain([*own, *records], self._place.size, self._place.previous)
        lines.append(b"")
        data = b"\n".join(lines)
        try:
            self._write(data)
            self._sync()
            if leaves:
                self._place.previous = leaves[-1].hex()
                self._place.offset += len(data)
                self._place.size += len(leaves)
                self._grow(leaves)
        except OSError:
            self._take_back()
            raise
        except BaseException:  # a signal, at whichever step
            self._is_in_doubt = True
            raise
        self._announcements = []
        return leaves[len(own) :]

    def cut_room(self) -> None:
        """Let the file end with its last entry."""
        if self._end > self._place.offset:
            os.ftruncate(self._descriptor, self._place.offset)
            self._end, self._is_synced = self._place.offset, False

    def root(self) -> bytes:
        """The root over every entry; all of them are durable."""
        if not self._is_synced:
            self._sync()
        self._frontier.extend(self._fresh)
        self._fresh.clear()
        return self._frontier.root()

    def save_place(self, checkpoint: str) -> None:
        """Remember how far the log is, right after the checkpoint over all of it was signed."""
        save_place(self._audit, self._place, self._frontier, checkpoint)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _resume(self) -> None:
        known = find_place(self._audit, self._checkpoints.public_key())
        if known:
            self._place, self._frontier = known

    def _read_on(self, checkpoint: Checkpoint | None, *, is_whole: bool, is_patient: bool = True) -> None:
        while True:
            status = os.fstat(self._descriptor)
            self._end = status.st_size
            if self._end < self._place.offset or not status.st_nlink:
                raise AuditBroken(str(self._place), "the segment was cut or replaced")
            if data := self._unread(is_whole=is_whole):
                if not is_patient and len(data) >= _LITTLE_BYTES:
                    raise Busy
                self._take(data, checkpoint)
            # A segment loses its room before the next one is made; a machine that stops may give it back.
            has_room = not is_whole and self._place.offset < self._end
            # A rule by size alone would bind all processes to one segment size.
            if has_room or not os.access(self._following, os.F_OK):
                return
            if not is_patient:
                raise Busy
            self._use(self._place.number + 1)

    def _unread(self, *, is_whole: bool) -> bytes:
        """What is written behind the place; where others may write, up to the first room."""
        offset, end = self._place.offset, self._end
        if is_whole:
            return os.pread(self._descriptor, end - offset, offset).rstrip(b"\0")
        if offset == end or os.pread(self._descriptor, 1, offset) == b"\0":
            return b""
        blocks = []
        while block := os.pread(self._descriptor, _LITTLE_BYTES, offset):
            blocks.append(block)
            offset += len(block)
            if block.endswith(b"\0"):
                break
        return b"".join(blocks).rstrip(b"\0")

    def _take(self, data: bytes, checkpoint: Checkpoint | None) -> None:
        before = self._place.size
        leaves, rest = self._place.take(data)
        self._is_synced = False
        if checkpoint and before < checkpoint.size <= self._place.size:
            self._grow(leaves[: checkpoint.size - before])
            leaves = leaves[checkpoint.size - before :]
            if self.root() != checkpoint.root:
                raise AuditBroken(
                    "checkpoint", f"the first {checkpoint.size} records are not those it signed"
                )
        self._grow(leaves)
        if rest:
            self._set_aside(rest)

    def _set_aside(self, rest: bytes) -> None:
        """Move a torn tail out of the log, after making sure that it is one."""
        covered = self._checkpoints.checked()
        is_covered = covered is not None and covered.size > self._place.size
        lines = rest.split(b"\0")[0].split(b"\n")[:-1]
        if is_covered or os.access(self._following, os.F_OK) or any(map(parse_entry, lines)):
            raise AuditBroken(str(self._place), "the line is not the entry that belongs here")
        torn = self._audit / "torn"
        make_private(torn)
        path = torn / f"{self._place.number:08d}-{self._place.offset}-{hashlib.sha256(rest).hexdigest()[:16]}"
        write_whole(path, rest)
        self.cut_room()
        self._announce(
            event="TailMoved", bytes=len(rest), file=path.name, sha256=hashlib.sha256(rest).hexdigest()
        )

    def _announce(self, **record: str | int) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        self._announcements.append(canonical_bytes({**record, "time": now}))

    def _start_segment(self) -> None:
        self.cut_room()
        if not self._is_synced:
            self._sync()  # also what others wrote into the old one and did not live to sync
        self._use(self._place.number + 1)

    def _use(self, number: int) -> None:
        path = segment_path(self._audit, number)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            if not os.fstat(descriptor).st_size:  # new; who made it may have been stopped before this
                sync_folder(path.parent)
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self._end = descriptor, 0
        self._following = str(segment_path(self._audit, number + 1))
        if number != self._place.number:
            self._place.next_segment()

    def _grow(self, leaves: Iterable[bytes]) -> None:
        # Inner nodes are hashed many at a time: 1.4 × faster than group by group.
        self._fresh += leaves
        if len(self._fresh) >= _FRESH_LEAVES:
            self._frontier.extend(self._fresh)
            self._fresh.clear()

    def _write(self, data: bytes) -> None:
        """Write behind the last entry, and make room behind that where there is too little."""
        offset, room = self._place.offset, b""
        if offset + len(data) > self._end:
            room = bytes(self._more_room())
            self._end = offset + len(data) + len(room)
        write_all_at(self._descriptor, data + room, offset)
        self._written += len(data)

    def _more_room(self) -> int:
        """As much as was written so far, so that a few calls make none; never the last of the disk."""
        disk = os.fstatvfs(self._descriptor)
        return min(self._written, _ROOM_BYTES, disk.f_bavail * disk.f_frsize // _ROOM_SHARE)

    def _sync(self) -> None:
        began = time.perf_counter()
        try:
            os.fdatasync(self._descriptor)
        except OSError:
            # The kernel may have dropped what it could not write and call the pages clean: a second sync
            # would succeed and mean nothing. So the log is read again from the disk before it goes on.
            self._is_in_doubt = True
            raise
        self._is_synced = True
        took, before = time.perf_counter() - began, self.sync_seconds
        self.sync_seconds = took if before == math.inf else before + (took - before) / 8

    def _take_back(self) -> None:
        try:
            self.cut_room()
            os.fdatasync(self._descriptor)
        except OSError:
            self._is_in_doubt = True

    def _start_over(self) -> None:
        """Forget what was read, and read it again from the disk."""
        for number in segment_numbers(self._audit):
            with contextlib.suppress(OSError), segment_path(self._audit, number).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._place, self._frontier, self._fresh = Place(), Frontier(), []
        self.open()
        self._is_in_doubt = False
