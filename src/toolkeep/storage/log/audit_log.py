"""The audit log of a keep: an append-only hash chain, shared by its processes, durable when acknowledged.

Comes in: records as JSON data, without secrets. Goes out: leaves, inclusion and consistency proofs, signed
checkpoints to publish. Under `audit/`: `format`, `segments/`, the newest `checkpoint`, kept ones in
`checkpoints.jsonl`, `resume.json`, and `torn/` for torn writes. It cannot show by itself that log and
checkpoints were rolled back together: that takes a witness, or a checkpoint published elsewhere.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import RECORD_BYTES, Entry, Leaf, record_bytes
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.inclusion_proof import Proof
from toolkeep.audit.merkle_tree import Tree
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.errors import ToolkeepError
from toolkeep.host.after_fork import register_after_fork
from toolkeep.storage.log.cosigned_checkpoints import covering
from toolkeep.storage.log.durability_waiters import Waiting
from toolkeep.storage.log.segments import (
    SEGMENT_BYTES,
    Place,
    entries_at,
    follow_lines,
    place_before,
    read_back,
    read_entries,
    read_leaves,
)
from toolkeep.storage.log.writer import Writer

CHECKPOINT_SECONDS: Final = 0.1
"""How long an entry may wait for a checkpoint: one costs 0.5 ms, so 0.5 % of the writer's time."""


class AuditLog:
    """The log of one keep. The first append creates its files; `close` leaves no thread, file or lock."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self.folder = folder
        self._writer = Writer(
            folder, segment_bytes=segment_bytes, checkpoint_seconds=checkpoint_seconds, clock=clock
        )
        self._proving = threading.Lock()
        self._tree, self._place = Tree(), Place()
        register_after_fork(self._writer)

    def append(self, record: Mapping[str, Any]) -> "Future[Leaf]":
        """Append a record; the future resolves when it is durable, and cannot be cancelled."""
        return self.append_all([record])[0]

    def append_all(self, records: Iterable[Mapping[str, Any]]) -> "list[Future[Leaf]]":
        """Append records next to each other, with no other record in between."""
        waiting: list[Waiting] = []
        futures: list[Future[Leaf]] = []
        for record in records:
            future: Future[Leaf] = Future()
            # A cancelled caller must not erase what happened: the record is written all the same.
            future.set_running_or_notify_cancel()
            waiting.append(((_canonical(record),), future, None))
            futures.append(future)
        self._writer.put(*waiting)
        return futures

    def append_soon(self, *records: bytes, is_alone: bool = False) -> "asyncio.Future[Leaf]":
        """Append canonical records from the running asyncio loop; the future is that of the last one.

        `is_alone` says that no other call is about to append: there is no group to wait for.
        """
        for record in records:
            if len(record) > RECORD_BYTES:
                raise _too_long(record)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Leaf] = loop.create_future()
        self._writer.put_soon(records, waiter, loop, is_alone=is_alone)
        return waiter

    def read(self, start: int = 0, stop: int | None = None) -> list[Entry]:
        """The entries with these indexes, as far as there are any; covered by a checkpoint or not."""
        return list(read_entries(self._writer.audit, start, 1 << 62 if stop is None else stop))

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        """The entries before an index, newest first."""
        return read_back(self._writer.audit, 1 << 62 if stop is None else stop)

    def follow_lines(self, place: Place, most: int) -> Iterator[list[tuple[int, bytes]]]:
        """The lines behind a cursor with their positions, up to `most` at a time; advances it."""
        return follow_lines(self._writer.audit, place, most)

    def place_before(self, back: int) -> Place:
        """A cursor at least so many entries before the end, or at the beginning."""
        return place_before(self._writer.audit, back)

    def entries_at(self, positions: Iterable[int]) -> list[Entry]:
        """The entries at positions from `follow_lines`."""
        return entries_at(self._writer.audit, positions)

    def checkpoint(self) -> str:
        """A signed checkpoint over every entry so far; kept here, to be published elsewhere."""
        return self._writer.order(lambda: self._writer.sign_checkpoint(is_kept=True)).result()

    def newest_checkpoint(self) -> str | None:
        """The newest checkpoint that was signed; None before the first."""
        return self._writer.checkpoints.newest()

    def cover(self) -> str:
        """A signed checkpoint over every entry so far, not kept; begins a new log."""
        return self._writer.order(lambda: self._writer.sign_checkpoint(is_kept=False)).result()

    def kept_checkpoints(self) -> list[str]:
        """The checkpoints that were kept, oldest first."""
        return self._writer.checkpoints.kept()

    def is_sound(self) -> bool:
        """Whether the log accepts records, as far as is known; a broken one is checked again."""
        if self._writer.is_broken:
            try:
                self._writer.order(lambda: self._writer.sign_checkpoint(is_kept=False)).result()
            except ToolkeepError:
                return False
            self._writer.is_broken = False
        return True

    def prove(self, index: int, checkpoint: str | None = None) -> Proof:
        """The inclusion proof of a record; signs a checkpoint if none covers the record yet.

        It is against the checkpoint that most witnesses cosigned, or against the given one of this log.
        """
        note = self._covering(index) if checkpoint is None else self._checked(checkpoint, index)
        with self._proving:
            tree, size = self._tree_of(note), _size(note)
            return Proof(index=index, path=tuple(tree.inclusion(index, size)), checkpoint=note)

    def prove_growth(self, old_size: int) -> tuple[list[bytes], str]:
        """For a witness: the consistency proof from the old size to the newest checkpoint, and that one."""
        note = self.checkpoint()
        with self._proving:
            return self._tree_of(note).consistency(old_size, _size(note)), note

    def public_key(self) -> VerifierKey:
        """The public key of the checkpoints; the pair is made now if there is none."""
        return self._writer.keys.public_key()

    def rotate_key(self) -> VerifierKey:
        """Rotate to a new key, announced in the log and signed by the old one."""
        return self._writer.order(self._writer.rotate_key).result()

    def close(self) -> None:
        """Commit what waits, sign the last checkpoint; leaves no thread, file or lock, even if it raises."""
        self._writer.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _covering(self, index: int) -> str:
        if cosigned := covering(self.folder, index, self._writer.keys.origin):
            return cosigned
        note = self._writer.checkpoints.newest()
        if note is None or _size(note) <= index:
            note = self.cover()
        return note

    def _checked(self, note: str, index: int) -> str:
        """A checkpoint of the caller's, if it can prove the record."""
        parsed = Note.parse(note)
        given = Checkpoint.parse(parsed.text)
        if given.origin != self._writer.keys.origin:
            raise NoteInvalid(f"it is a checkpoint of another log, {given.origin}")
        if given.origin not in {signature.name for signature in parsed.signatures}:
            raise NoteInvalid("the log itself did not sign the checkpoint")
        if given.size <= index:
            hint = "let the witness cosign a newer one"
            raise NoteInvalid(
                f"it is a checkpoint over {given.size} records, and this is record {index}", hint
            )
        return note

    def _tree_of(self, note: str) -> Tree:
        checkpoint = Checkpoint.parse(Note.parse(note).text)
        for leaves in read_leaves(self._writer.audit, self._place, checkpoint.size):
            self._tree.extend(leaves)
        if self._tree.root(checkpoint.size) != checkpoint.root:
            reason = f"the first {checkpoint.size} records are not those it signed"
            raise AuditBroken(str(self._writer.audit / "checkpoint"), reason)
        return self._tree


def _canonical(record: Mapping[str, Any]) -> bytes:
    line = record_bytes(record if type(record) is dict else dict(record))
    if len(line) > RECORD_BYTES:
        raise _too_long(line)
    return line


def _too_long(record: bytes) -> ValueError:
    return ValueError(f"a record of {len(record)} bytes is too long: at most {RECORD_BYTES}")


def _size(note: str) -> int:
    return Checkpoint.parse(Note.parse(note).text).size
