"""Copies the log of this server, with its bodies, to the database that it shares with others.

Reads the log's files, in batches, up to the newest checkpoint, which covers durable records alone: no call
waits, and what waits is in the files, not in memory. After a restart it goes on where the copies end.
"""

import time
from typing import Final

import msgspec

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import RECORD_BYTES
from toolkeep.audit.errors import AuditBroken
from toolkeep.audit.merkle_tree import HASH_BYTES, Frontier
from toolkeep.audit.signed_note import Note
from toolkeep.host.files import is_there
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.segments import Place, read_leaves, segment_path
from toolkeep.storage.postgres.log_copies import BODY_BYTES, PART_ENTRIES, LogCopies
from toolkeep.storage.sqlite.body_writer import BodyWriter

_READ_BYTES: Final = 4 * RECORD_BYTES
"""What is read of a segment at once: at least some records, of whatever size."""
_BATCH: Final = PART_ENTRIES
"""Records of one transaction, and bodies."""
_BODIES_AT_ONCE: Final = 64
"""Bodies that are read at once."""
_BODIES_BYTES: Final = 4 << 20
"""Bodies of one transaction: no more than this, and what is read at once."""
_BODIES_WAIT_SECONDS: Final = 5.0
"""How long after its record a body is waited for; it is stored in the background."""
_BODIES_WAITING: Final = 10_000
"""Bodies that are waited for at once; of more, the newest are not copied."""
_ERASED_EVERY_SECONDS: Final = 5.0
"""How often it is looked for erased bodies."""
_ERASED_SLACK_SECONDS: Final = 60.0
"""How much earlier than the last look an erasure may have begun that was not visible then."""


class LogCopier:
    """Copies one log."""

    def __init__(self, log: AuditLog, bodies: BodyWriter, copies: LogCopies) -> None:
        self._log = log
        self._bodies = bodies
        self._copies = copies
        self._audit = log.folder / "audit"
        self._place = Place()
        self._wanted: dict[str, float] = {}
        self._erased: dict[str, float] = {}
        self._looked_at = float("-inf")
        self.copied = ""
        """The newest checkpoint whose records are all copied."""

    def begin(self) -> None:
        """Raise `AuditBroken` unless every record is what the newest checkpoint signed.

        A record that was changed long ago, and not signed again, is found by nobody else.
        """
        checkpoint = Checkpoint.parse(Note.parse(self._log.cover()).text)
        end, _ = self._copies.held(checkpoint.origin)
        held = min(end, checkpoint.size)  # what somebody removed is copied again, and what follows it
        place, frontier = Place(), Frontier()
        self._grow(place, frontier, held)
        start = msgspec.structs.replace(place)
        self._grow(place, frontier, checkpoint.size)
        if frontier.root() != checkpoint.root:
            reason = f"the first {checkpoint.size} records are not those it signed"
            raise AuditBroken(str(self._audit / "checkpoint"), reason)
        self._place = start

    def _grow(self, place: Place, frontier: Frontier, stop: int) -> None:
        for leaves in read_leaves(self._audit, place, stop):
            frontier.extend(leaves[at : at + HASH_BYTES] for at in range(0, len(leaves), HASH_BYTES))

    def copy(self, checkpoint: str) -> bool:
        """Copy some of what is not copied up to a checkpoint; whether that was all."""
        signed = Checkpoint.parse(Note.parse(checkpoint).text)
        if self._place.size < signed.size:
            lines, leaves = self._read(min(_BATCH, signed.size - self._place.size))
            said = self._copies.put(signed.origin, self._place.size - len(lines), lines, leaves)
            until = time.monotonic() + _BODIES_WAIT_SECONDS
            self._wanted |= {digest: until for one in said for digest in one.bodies()}
        self._copy_bodies()
        self._follow_erased()
        if self._place.size < signed.size:
            return False
        self.copied = checkpoint
        return True

    def has_more(self) -> bool:
        """Whether the log has records after what is copied, or one is being written."""
        return bool(self._unread(1))

    def _read(self, most: int) -> tuple[list[bytes], list[bytes]]:
        """The next entries, whose lines follow each other, and their leaf hashes."""
        if not (data := self._unread(_READ_BYTES)):
            raise AuditBroken(str(self._place), "the log ends here, before what it signed")
        leaves, _ = self._place.take(data, most)
        if not leaves:
            raise AuditBroken(str(self._place), "the log breaks here, before what it signed")
        return data.split(b"\n", len(leaves))[: len(leaves)], leaves

    def _unread(self, most: int) -> bytes:
        """What follows the cursor, which moves on to the next segment; empty at the end of the log.

        Without a lock, which would hold up calls: nobody asks for more than a checkpoint covers.
        """
        while True:
            # First: once there is a next segment, nothing is appended to this one.
            is_sealed = is_there(segment_path(self._audit, self._place.number + 1))
            try:
                with segment_path(self._audit, self._place.number).open("rb") as file:
                    file.seek(self._place.offset)
                    data = file.read(most)
            except FileNotFoundError as error:
                raise AuditBroken(str(self._place), "the segment is missing") from error
            if data and not data.startswith(b"\0"):
                return data
            if not is_sealed:
                return b""
            self._place.next_segment()

    def _copy_bodies(self) -> None:
        found: dict[str, bytes] = {}
        now, wanted = time.monotonic(), list(self._wanted)[:_BATCH]
        over: list[str] = []
        while wanted and sum(map(len, found.values())) < _BODIES_BYTES:
            some, wanted = wanted[:_BODIES_AT_ONCE], wanted[_BODIES_AT_ONCE:]
            found |= self._bodies.get_all(some, most_bytes=BODY_BYTES)
            over += [digest for digest in some if digest in found or now >= self._wanted[digest]]
        if found:
            self._copies.put_bodies(found, self._bodies.refusers(list(found)))
        for digest in [*over, *list(self._wanted)[_BODIES_WAITING:]]:
            self._wanted.pop(digest, None)

    def _follow_erased(self) -> None:
        """Erase here what any server erased."""
        now = time.monotonic()
        if now - self._looked_at < _ERASED_EVERY_SECONDS:
            return
        within = min(now - self._looked_at + _ERASED_SLACK_SECONDS, 1e9)
        erased = self._copies.erased_within(within)
        for digest in erased.keys() - self._erased.keys():
            self._bodies.erase(digest, before=erased[digest])
        self._erased, self._looked_at = erased, now
