"""What verifying a log can find, and the report that says so."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from toolkeep.wording import counted

FINDINGS: Final = 1000
"""The most findings in one report; whoever rewrote a log gives no more to learn after that."""


class Kind(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    MISSING = "missing"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out of order"
    FOREIGN = "not an entry"
    SEGMENT = "segment"
    CHECKPOINT = "checkpoint"
    CUT = "cut off"
    ROOT = "not what was signed"
    KEY = "key"


class Spot(msgspec.Struct, frozen=True):
    """A line of a segment; lines count from 1, offsets in bytes from 0."""

    segment: str
    line: int
    offset: int

    def __str__(self) -> str:
        return f"segment {self.segment}, line {self.line}, offset {self.offset}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where."""

    kind: Kind
    message: str
    spot: Spot | None = None
    index: int | None = None

    def __str__(self) -> str:
        record = "" if self.index is None else f"record {self.index}: "
        return f"{self.kind.value}: {record}{self.message}" + (f" ({self.spot})" if self.spot else "")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a log after verifying it."""

    log: str
    origin: str
    records: int
    """Entries that are there."""
    covered: int
    """Entries under a checkpoint that is signed and fits; what comes after is vouched for by nobody yet."""
    torn_bytes: int
    """Bytes after the last complete line: a write that was stopped, never acknowledged."""
    key: str
    """The key it was checked with, as `name+id`, and where that came from."""
    outside: Sequence[str]
    """The outside checkpoints that were used; empty: a log and checkpoint rolled back together go unseen."""
    findings: Sequence[Finding]
    open_calls: int = 0
    """Calls without a record of their end: under way, or their process was killed."""

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def uncovered(self) -> int:
        """Entries that no checkpoint covers yet."""
        return max(0, self.records - self.covered)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {"is_intact": self.is_intact, "uncovered": self.uncovered, **msgspec.to_builtins(self)}

    def __str__(self) -> str:
        used = ", ".join(self.outside) or "none: a rollback of log and checkpoint together would not be seen"
        lines = [
            f"{self.log}: {'intact' if self.is_intact else 'NOT INTACT'}",
            f"  origin {self.origin or 'unknown'}, key {self.key}",
            f"  {self.records} records, {self.covered} under a checkpoint, {self.uncovered} not covered yet",
            f"  outside checkpoints: {used}",
        ]
        if self.torn_bytes:
            lines.append(f"  {self.torn_bytes} bytes of a write that was stopped; never acknowledged")
        if self.open_calls:
            open_calls = counted(self.open_calls, "call")
            lines.append(f"  {open_calls} without an end: under way, or ended with the process")
        return "\n".join([*lines, *(f"  - {finding}" for finding in self.findings)])
