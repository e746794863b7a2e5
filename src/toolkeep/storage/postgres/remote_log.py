"""Reads the logs of other servers from their copies, and verifies them.

A record counts if its leaf hash is the one that the log's own key signed at its index, in the newest
checkpoint whose records are all copied. The key is the one that this server remembers on its disk. `verify`
names what is missing.
"""

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.entry import Entry, parse_entry
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.findings import Finding, Kind, Report
from toolkeep.audit.inclusion_proof import Proof
from toolkeep.audit.log_scan import Scan
from toolkeep.audit.merkle_tree import HASH_BYTES, Frontier, Tree, leaf_hash
from toolkeep.audit.receipt import Receipt
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.audit.verification import VerificationInputs, verify_scan
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.witness_folder import Witness
from toolkeep.storage.postgres.log_copies import FoundCall, LogCopies
from toolkeep.storage.postgres.log_exchange import distrust
from toolkeep.storage.postgres.log_table import LogTable, PublishedLog

log = logging.getLogger("toolkeep.audit")

_ROWS: Final = 1_000
"""Records that are read from the database at once."""
_LEAVES: Final = 100_000
"""Leaf hashes that are read at once: 3 MB."""
_LATE_SECONDS: Final = 60.0
"""How long records may be signed and not copied before that is a finding."""


class RemoteLog:
    """The log of another server, as far as its copies are what it signed."""

    def __init__(self, published: PublishedLog, copies: LogCopies) -> None:
        self.origin = published.origin
        self.published = published
        self.server = published.name
        """The name of its server."""
        self._copies = copies
        self._leaves = bytearray()
        self._frontier = Frontier()
        self._covered = (0, "")
        """How many records count, and the checkpoint that signed them."""
        self._tree = Tree()
        """Of the records of the last receipt: to make one takes time for the records since."""
        self._proving = threading.Lock()
        self.reason = ""
        """Why not all of its copies count."""

    @property
    def size(self) -> int:
        """How many records count."""
        return len(self._leaves) // HASH_BYTES

    def follow(self, published: PublishedLog, keys: Sequence[VerifierKey]) -> None:
        """Take over what was copied since."""
        if published.copied == self.published.copied and (self.size or self.reason):
            return
        self.published, self.reason = published, ""
        try:
            signed = open_checkpoint(published.copied, keys) if published.copied else None
        except NoteInvalid as error:
            self.reason = error.message
            return
        if signed is None or signed.size <= self.size:
            return
        frontier = Frontier(self.size, self._frontier.peaks)
        added = bytearray()
        while (done := self.size + len(added) // HASH_BYTES) < signed.size:
            leaves = self._copies.leaves(self.origin, done, min(done + _LEAVES, signed.size))
            if not leaves:
                self.reason = f"the copy of record {done} is missing"
                return
            frontier.extend(leaves)
            added += b"".join(leaves)
        if frontier.root() != signed.root:
            self.reason = f"copies of the first {signed.size} records are not what it signed"
            return
        self._leaves += added
        self._frontier = frontier
        self._covered = (signed.size, published.copied)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """The entries with these indexes; raises `AuditBroken` where a copy is missing or another one."""
        stop = self.size if stop is None else min(stop, self.size)
        while start < stop:
            until = min(start + _ROWS, stop)
            yield from self._checked(start, until)
            start = until

    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        """The entries before an index, newest first."""
        stop = self.size if stop is None else min(stop, self.size)
        while stop > 0:
            start = max(0, stop - _ROWS)
            yield from reversed(self._checked(start, stop))
            stop = start

    def of_call(self, call: FoundCall) -> list[Entry]:
        """The records of a call."""
        spans = self._copies.spans(call)
        found = {entry.index: entry for span in spans for entry in self.read(*span)}
        # By what was signed: with another id in its row, a record would be shown to another agent.
        return [entry for entry in found.values() if entry.record.get("call") == call.call_id]

    def receipt(self, index: int) -> Receipt:
        """The receipt of the record at an index, as its own server would make it."""
        size, checkpoint = self._covered
        (entry,) = self.read(index, index + 1)
        with self._proving:
            self._tree.extend(self._leaves[self._tree.size * HASH_BYTES : size * HASH_BYTES])
            path = tuple(self._tree.inclusion(index, size))
        return Receipt.of(entry, Proof(index=index, path=path, checkpoint=checkpoint))

    def _checked(self, start: int, stop: int) -> list[Entry]:
        lines = dict(self._copies.lines(self.origin, start, stop))
        entries = []
        for index in range(start, stop):
            line = lines.get(index, b"")
            at = index * HASH_BYTES
            entry = parse_entry(line) if leaf_hash(line) == self._leaves[at : at + HASH_BYTES] else None
            if entry is None:
                reason = "its copy in the database is missing, or not what was signed"
                raise AuditBroken(f"{self.origin}, record {index}", reason)
            entries.append(entry)
        return entries

    def lines(self) -> Iterator[bytes]:
        """Every copy there is, verified or not, some at a time, each with a newline."""
        _, end = self._copies.held(self.origin)
        for start in range(0, end, _ROWS):
            found = self._copies.lines(self.origin, start, start + _ROWS)
            yield b"".join(line + b"\n" for _, line in found)


class RemoteLogs:
    """The logs of all other servers."""

    def __init__(self, table: LogTable, copies: LogCopies, folder: Path) -> None:
        self._table = table
        self.copies = copies
        keys = Keys(folder)
        self._origin = keys.origin if keys.has_key() else ""
        self._witness = Witness(folder / "witness", name=f"{keys.origin}/witness")
        self._known: dict[str, RemoteLog] = {}
        self.server = socket.gethostname()
        """The name of this server among the others."""
        self._following = threading.Lock()

    def all(self) -> list[RemoteLog]:
        """The logs that count, with what was copied since the last time."""
        with self._following:
            return self._all()

    def _all(self) -> list[RemoteLog]:
        for seen in self._table.published():
            published = seen.log
            if published.origin == self._origin or not seen.is_authentic:
                continue
            if reason := distrust(published, self._witness):
                fields = {"origin": published.origin, "reason": reason}
                log.error("the log of a server is left out", extra=fields)
                continue
            known = self._known.setdefault(published.origin, RemoteLog(published, self.copies))
            before = known.reason
            known.follow(published, self._witness.keys_of(published.origin))
            if known.reason != before and known.reason:
                fields = {"origin": known.origin, "reason": known.reason}
                log.error("copies of the log of a server are not what it signed", extra=fields)
        self._name_servers()
        return list(self._known.values())

    def _name_servers(self) -> None:
        """Name each server by its machine, and by the start of its log's id where a machine has several."""
        own = socket.gethostname()
        logs = Counter([own, *(one.published.name for one in self._known.values())])

        def name(machine: str, origin: str) -> str:
            return machine if logs[machine] == 1 else f"{machine}/{origin.rpartition('/')[2][:4]}"

        self.server = name(own, self._origin)
        for one in self._known.values():
            one.server = name(one.published.name, one.origin)

    def calls(self, given: str, *, is_prefix: bool) -> list[tuple[RemoteLog, FoundCall]]:
        """The calls of an id, or a prefix of one, and the logs that they are in."""
        logs = {one.origin: one for one in self.all()}
        found = self.copies.calls(given, is_prefix=is_prefix)
        return [(logs[call.origin], call) for call in found if call.origin in logs]

    def verify(self) -> list[Report]:
        """The report on each log that is known here, or published."""
        published = {seen.log.origin: seen for seen in self._table.published()}
        reports = []
        for origin in sorted({*published, *self._witness.peers()} - {self._origin}):
            seen = published.get(origin)
            if seen is None or not seen.is_authentic:
                lost = "the database holds no row of it that a server wrote"
                reports.append(_report(origin, Finding(kind=Kind.MISSING, message=lost)))
            elif reason := distrust(seen.log, self._witness):
                reports.append(_report(origin, Finding(kind=Kind.KEY, message=reason)))
            else:
                reports.append(self._verify(seen.log))
        return reports

    def _verify(self, published: PublishedLog) -> Report:
        origin = published.origin
        scan = Scan(covered=_size(published.copied))
        for data in RemoteLog(published, self.copies).lines():
            scan.read(origin, data, is_last=False)
        scan.finish()
        remembered = self._witness.last(origin)
        notes = {"what this server cosigned": remembered, "its newest": published.checkpoint}
        outside = {name: note for name, note in notes.items() if note and _size(note) <= scan.entries}
        if remembered and _size(remembered) > scan.entries and _age_s(remembered) > _LATE_SECONDS:
            lost = f"{_size(remembered)} records were cosigned here, and {scan.entries} are copied"
            scan.findings.append(Finding(kind=Kind.MISSING, message=lost, index=scan.entries))
        if published.trouble:
            scan.findings.append(Finding(kind=Kind.CHANGED, message=f"its server says: {published.trouble}"))
        given = VerificationInputs(
            log=f"{published.name}, copied to the database",
            key=VerifierKey.parse(published.key),
            key_source="remembered here",
            newest=published.copied or None,
            remembered=None,
            is_own=False,
            kept=[published.handover] if published.handover else [],
            outside=outside,
        )
        return verify_scan(scan, given)


def _report(origin: str, finding: Finding) -> Report:
    return Report(
        log=origin,
        origin=origin,
        records=0,
        covered=0,
        torn_bytes=0,
        key="none",
        outside=(),
        findings=(finding,),
    )


def _size(note: str) -> int:
    try:
        return Checkpoint.parse(Note.parse(note).text).size
    except NoteInvalid:
        return 0


def _age_s(note: str) -> float:
    """How long ago this server cosigned a checkpoint."""
    return time.time() - Note.parse(note).signatures[-1].timestamp
