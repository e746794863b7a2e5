"""Scans a log line by line and localizes every entry that breaks the hash chain.

Two things place an entry: its index and the hash of the previous one. If both are wrong, the line is foreign;
if one is wrong, the other tells what happened (changed, missing, duplicated, reordered).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolkeep.audit.entry import NO_PREVIOUS, Entry, parse_entry
from toolkeep.audit.findings import FINDINGS, Finding, Kind, Spot
from toolkeep.audit.merkle_tree import HASH_BYTES, leaf_hash
from toolkeep.audit.worker_signatures import WorkerSignatures


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """A key rotation record."""

    index: int
    key: str
    next_key: str


class _Doubt(msgspec.Struct, frozen=True):
    """An entry whose `previous` does not match: either it or the entry before it was changed."""

    index: int
    before: Spot | None
    spot: Spot


class Scan:
    """Scan of a log without checkpoints; feed it each segment in order, then call `finish`.

    `covered` is the number of entries under a checkpoint. Beyond them, a line with NUL bytes in the last
    segment is a torn write (the log preallocates zeros), and so is everything after it.
    """

    def __init__(self, *, covered: int = 0) -> None:
        self.findings: list[Finding] = []
        self.rotations: list[Rotation] = []
        self.leaves = bytearray()
        """Leaf hashes up to the first gap."""
        self.torn_bytes = 0
        self.entries = 0
        self.open_calls: set[str] = set()
        """Calls without an outcome record."""
        self.workers = WorkerSignatures()
        self._covered = covered
        self._expected = 0
        self._previous = NO_PREVIOUS
        self._last: Spot | None = None
        self._is_last_changed = False
        self._has_gap = False
        self._gaps: list[tuple[int, int]] = []
        self._unreadable: list[Spot] = []
        self._doubt: _Doubt | None = None

    def read(self, segment: str, data: bytes, *, is_last: bool) -> None:
        """Scan one segment."""
        lines = data.split(b"\n")
        rest = lines.pop()
        offset = 0
        for number, line in enumerate(lines, start=1):
            # Never inside what a checkpoint covers: there zeros are tampering, since covered records were
            # durable.
            if is_last and b"\0" in line and self._expected >= self._covered:
                self.torn_bytes = len(data) - offset
                return
            self._line(Spot(segment, number, offset), line)
            offset += len(line) + 1
        if rest and is_last:
            self.torn_bytes = len(rest)
        elif rest:
            spot = Spot(segment, len(lines) + 1, offset)
            self._found(Kind.FOREIGN, "the segment does not end with a whole line", spot)
        elif not data and not is_last:
            self._found(Kind.SEGMENT, "the segment is empty", Spot(segment, 1, 0))

    def finish(self) -> None:
        """Report what is still undecided at the end."""
        if self._doubt:
            message = "it or the record before it was changed"
            self._found(Kind.CHANGED, message, self._doubt.spot, self._doubt.index)
        for spot in self._unreadable:
            self._found(Kind.FOREIGN, "the line is not an entry", spot, self._expected)

    def _line(self, spot: Spot, line: bytes) -> None:
        entry = parse_entry(line)
        if entry is None:
            self._unreadable.append(spot)
            return
        leaf = leaf_hash(line)
        # Either witness of its place is enough to keep going: one altered field must not hide the rest of the
        # log.
        follows = entry.previous == self._previous
        if follows or entry.index == self._expected:
            self._in_place(spot, entry, leaf, follows=follows)
        elif entry.index > self._expected:
            self._after_gap(spot, entry, leaf)
        else:
            self._again(spot, entry, leaf)

    def _in_place(self, spot: Spot, entry: Entry, leaf: bytes, *, follows: bool) -> None:
        for foreign in self._unreadable:
            self._found(Kind.FOREIGN, "the line is not an entry", foreign)
        self._unreadable = []
        self._settle_doubt(is_after_good=follows)
        is_changed = entry.index != self._expected
        if is_changed:
            self._found(Kind.CHANGED, f"its index says {entry.index}", spot, self._expected)
        elif not follows and not self._is_last_changed:
            self._doubt = _Doubt(self._expected, self._last, spot)
        self._accept(spot, entry.record, self._expected, leaf, is_changed=is_changed)

    def _after_gap(self, spot: Spot, entry: Entry, leaf: bytes) -> None:
        self._settle_doubt(is_after_good=False)
        start = self._expected
        for changed in self._unreadable[: entry.index - start]:
            self._found(Kind.CHANGED, "the line is not an entry", changed, start)
            start += 1
        for foreign in self._unreadable[entry.index - self._expected :]:
            self._found(Kind.FOREIGN, "the line is not an entry", foreign)
        is_next = start == entry.index
        self._unreadable = []
        if not is_next:
            last = "" if entry.index == start + 1 else f" to {entry.index - 1}"
            self._found(Kind.MISSING, f"not here, with everything up to{last or ' the next'}", spot, start)
            self._gaps.append((start, entry.index))
        self._has_gap = True
        self._accept(spot, entry.record, entry.index, leaf, is_changed=False)

    def _again(self, spot: Spot, entry: Entry, leaf: bytes) -> None:
        if any(start <= entry.index < stop for start, stop in self._gaps):
            self._found(Kind.OUT_OF_ORDER, f"it comes before record {self._expected}", spot, entry.index)
            return
        at = entry.index * HASH_BYTES
        is_same = self.leaves[at : at + HASH_BYTES] == leaf
        message = "the same record occurs earlier" if is_same else "another record has this index"
        self._found(Kind.DUPLICATED, message, spot, entry.index)

    def _settle_doubt(self, *, is_after_good: bool) -> None:
        """Resolve a doubt: the entry after it holds its hash, which tells which of the two was changed."""
        if self._doubt is None:
            return
        doubt, self._doubt = self._doubt, None
        if is_after_good and doubt.index:
            self._found(Kind.CHANGED, "the record after it knows another hash", doubt.before, doubt.index - 1)
        else:
            self._found(Kind.CHANGED, "it does not follow the record before it", doubt.spot, doubt.index)
            self._is_last_changed = True

    def _accept(
        self, spot: Spot, record: Mapping[str, Any], index: int, leaf: bytes, *, is_changed: bool
    ) -> None:
        if record.get("event") == "KeyRotated":
            rotation = Rotation(index=index, key=str(record.get("key")), next_key=str(record.get("next_key")))
            self.rotations.append(rotation)
        self._follow_call(record)
        if problem := self.workers.problem(record):
            self._found(Kind.WORKER, problem, spot, index)
        # A tree with a hole has no meaningful root.
        if not self._has_gap:
            self.leaves += leaf
        self.entries += 1
        self._expected = index + 1
        self._previous = leaf.hex()
        self._last, self._is_last_changed = spot, is_changed

    def _follow_call(self, record: Mapping[str, Any]) -> None:
        call = record.get("call")
        if not isinstance(call, str):
            return
        if record.get("status"):  # only the final record of a call has a status
            self.open_calls.discard(call)
        elif record.get("type") == "ToolInvoked":
            self.open_calls.add(call)

    def _found(self, kind: Kind, message: str, spot: Spot | None, index: int | None = None) -> None:
        # A rewritten log would otherwise fill memory with findings.
        if len(self.findings) < FINDINGS:
            self.findings.append(Finding(kind=kind, message=message, spot=spot, index=index))
