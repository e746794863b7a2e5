"""The tail of the write-ahead log as one process sees it: catch up with other writers, append, fsync.

The caller holds the advisory lock of the log for every method. An entry counts once its line is complete,
whichever process wrote it. Bytes after the last complete line are a torn write: never acknowledged, and moved
aside. Bytes that break the hash chain before a later entry, or below a checkpoint, are tampering:
`AuditBroken`, and nothing more is appended.

Entries overwrite preallocated zeros, the room: an fdatasync that does not have to record a new file length
takes half the time. A crash of the machine may leave any part of the last group unwritten, so a run of zeros
is a torn write, too; what follows it was never acknowledged.
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
from toolkeep.audit.merkle_tree import Frontier
from toolkeep.host.files import is_there
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.storage.atomic_files import sync_data, sync_folder, write_all_at, write_once, write_whole
from toolkeep.storage.log.checkpoint_files import Checkpoints
from toolkeep.storage.log.resume_point import find_place, save_place
from toolkeep.storage.log.segments import (
    LOG_FORMAT,
    Place,
    check_format,
    format_file,
    segment_numbers,
    segment_path,
    segments_folder,
)
from toolkeep.storage.state_folder import make_private

_RESUME = "resume.json"
_FRESH_LEAVES = 4096
"""Leaf hashes that are gathered before the Merkle tree takes them."""
_LITTLE_BYTES = 64 * 1024
"""What an event loop catches up with itself; more is left to the writer thread."""
_ROOM_BYTES = 1024 * 1024
_ROOM_SHARE = 64
"""Preallocation takes at most this part of the free disk."""


class Busy(Exception):
    """Another process holds the lock or has appended much, and the caller must not block."""


class Appender:
    """The tail of one log."""

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
        self._end = 0  # of the file, with its preallocated room
        self._written = 0
        self._following = ""
        self._announcements: list[bytes] = []
        self._is_synced = True
        self._is_in_doubt = False
        self.sync_seconds = math.inf
        """How long an fdatasync takes: a moving average."""

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
        """Whether the log has a record of its own to append: a torn write that it moved."""
        return bool(self._announcements)

    def open(self) -> None:
        """Read the log from its start or the resume point, and check it against the newest checkpoint."""
        check_format(self._audit)  # first: a checkpoint of a later format may be no checkpoint here
        checkpoint = self._checkpoints.checked()
        covered = checkpoint.size if checkpoint else 0
        make_private(self._audit)
        if not is_there(segments_folder(self._audit)):
            write_once(format_file(self._audit), f"{LOG_FORMAT}\n".encode())
        make_private(segments_folder(self._audit))
        self._checkpoints.tidy()
        numbers = segment_numbers(self._audit)
        # Reading would stop at the gap, and the next append would create the missing segment again.
        if numbers != list(range(len(numbers))):
            raise AuditBroken(str(segments_folder(self._audit)), "a segment is missing")
        if checkpoint and not self._is_in_doubt:
            self._resume()
        self._use(self._place.number)
        self._read_on(checkpoint, is_whole=True)
        # The signed checkpoint is what shows a truncated log; the hash chain alone cannot.
        if self.size < covered:
            raise AuditBroken(str(self._place), f"a checkpoint says that there are {covered} records")
        self._checkpoints.begin(self.size, self.root())

    def catch_up(self, *, is_patient: bool = True) -> None:
        """Read what other processes appended; raises `Busy` where that is much and one must not block."""
        if not is_patient and self._is_in_doubt:
            raise Busy
        if self._is_in_doubt:
            self._start_over()
            return
        self._read_on(None, is_whole=False, is_patient=is_patient)

    def append(self, records: Sequence[bytes]) -> list[bytes]:
        """Append canonical records as one group commit; durable when this returns. Their leaf hashes."""
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
        except BaseException:  # a signal, at any step: what is on disk is unknown
            self._is_in_doubt = True
            raise
        self._announcements = []
        return leaves[len(own) :]

    def cut_room(self) -> None:
        """Truncate the preallocated room, so that the file ends with its last entry."""
        if self._end > self._place.offset:
            os.ftruncate(self._descriptor, self._place.offset)
            self._end, self._is_synced = self._place.offset, False

    def root(self) -> bytes:
        """The Merkle root over every entry; all of them are durable."""
        # A checkpoint over entries that a crash can still lose would make an honest log look tampered with.
        if not self._is_synced:
            self._sync()
        self._frontier.extend(self._fresh)
        self._fresh.clear()
        return self._frontier.root()

    def save_place(self, checkpoint: str) -> None:
        """Write the resume point, right after the checkpoint over the whole log was signed."""
        save_place(self._audit / _RESUME, self._place, self._frontier, checkpoint)

    def close(self) -> None:
        """Close the segment."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _resume(self) -> None:
        known = find_place(self._audit / _RESUME, self._audit, self._checkpoints.public_key())
        if known:
            self._place, self._frontier = known

    def _read_on(self, checkpoint: Checkpoint | None, *, is_whole: bool, is_patient: bool = True) -> None:
        while True:
            status = os.fstat(self._descriptor)
            self._end = status.st_size
            # No link count: the file was deleted, and what is appended to it nobody would ever find.
            if self._end < self._place.offset or not status.st_nlink:
                raise AuditBroken(str(self._place), "the segment was cut or replaced")
            if data := self._unread(is_whole=is_whole):
                if not is_patient and len(data) >= _LITTLE_BYTES:
                    raise Busy
                self._take(data, checkpoint)
            # A segment is truncated before the next one is made; after a crash it may have its room again.
            has_room = not is_whole and self._place.offset < self._end
            # Look for the next file instead of comparing sizes: processes may differ in their segment size.
            if has_room or not os.access(self._following, os.F_OK):
                return
            if not is_patient:
                raise Busy
            self._use(self._place.number + 1)

    def _unread(self, *, is_whole: bool) -> bytes:
        """The unread bytes of the segment; unless the whole file is wanted, up to the preallocated room."""
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
                reason = f"the first {checkpoint.size} records are not those it signed"
                raise AuditBroken(str(self._audit / "checkpoint"), reason)
        self._grow(leaves)
        if rest:
            self._set_aside(rest)

    def _set_aside(self, rest: bytes) -> None:
        """Move a torn write out of the log, after making sure that it is one.

        Kept in `torn/` instead of deleted, and announced in the log: whoever cuts entries off and blames a
        crash leaves a record that says so.
        """
        covered = self._checkpoints.checked()
        is_covered = covered is not None and covered.size > self._place.size
        lines = rest.split(b"\0")[0].split(b"\n")[:-1]
        # No crash leaves a complete entry, a signed one or a later segment behind a torn write.
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
            self._sync()  # also what a killed process wrote to the sealed segment without an fdatasync
        self._use(self._place.number + 1)

    def _use(self, number: int) -> None:
        path = segment_path(self._audit, number)
        # O_NOFOLLOW: a symbolic link in its place would have us append to, and truncate, any file.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            # A new segment whose name is not durable is gone after a crash, with every entry in it. Whoever
            # made it may have been killed before this point.
            if not os.fstat(descriptor).st_size:
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
        """Write after the last entry, and preallocate more room where there is too little."""
        offset, room = self._place.offset, b""
        if offset + len(data) > self._end:
            room = bytes(self._more_room())
            self._end = offset + len(data) + len(room)
        write_all_at(self._descriptor, data + room, offset)
        self._written += len(data)

    def _more_room(self) -> int:
        """As much as was written so far, so that a few calls preallocate nothing; never all of the disk."""
        disk = os.fstatvfs(self._descriptor)
        return min(self._written, _ROOM_BYTES, disk.f_bavail * disk.f_frsize // _ROOM_SHARE)

    def _sync(self) -> None:
        began = time.perf_counter()
        try:
            sync_data(self._descriptor)
        except OSError:
            # After a failed fsync the kernel may drop the dirty pages and mark them clean: a second fsync
            # would succeed and prove nothing. So read the log from the disk again before appending.
            self._is_in_doubt = True
            raise
        self._is_synced = True
        took, before = time.perf_counter() - began, self.sync_seconds
        self.sync_seconds = took if before == math.inf else before + (took - before) / 8

    def _take_back(self) -> None:
        try:
            self.cut_room()
            sync_data(self._descriptor)
        except OSError:
            self._is_in_doubt = True

    def _start_over(self) -> None:
        """Forget what was read, and read it again from the disk, past the page cache."""
        for number in segment_numbers(self._audit):
            with contextlib.suppress(OSError), segment_path(self._audit, number).open("rb") as file:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._place, self._frontier, self._fresh = Place(), Frontier(), []
        self.open()
        self._is_in_doubt = False
