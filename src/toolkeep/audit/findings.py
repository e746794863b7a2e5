"""Findings of audit log verification, and the report."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from toolkeep.text.display import counted

FINDINGS: Final = 1000
"""Maximum number of findings in a report: a rewritten log would yield one per line."""


class Kind(StrEnum):
    """Kind of finding."""

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
    WORKER = "signature of a worker"


class Spot(msgspec.Struct, frozen=True):
    """A position in a segment: one-based line, zero-based byte offset."""

    segment: str
    line: int
    offset: int

    def __str__(self) -> str:
        return f"segment {self.segment}, line {self.line}, offset {self.offset}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding and its position."""

    kind: Kind
    message: str
    spot: Spot | None = None
    index: int | None = None

    def __str__(self) -> str:
        record = "" if self.index is None else f"record {self.index}: "
        return f"{self.kind.value}: {record}{self.message}" + (f" ({self.spot})" if self.spot else "")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a log."""

    log: str
    origin: str
    records: int
    """Entries found."""
    covered: int
    """Entries covered by a valid signed checkpoint; later ones are not authenticated yet."""
    torn_bytes: int
    """Bytes after the last complete line: an interrupted write that was never acknowledged."""
    key: str
    """The verification key as `name+id`, and its origin."""
    outside: Sequence[str]
    """External checkpoints that were used. Without one, a rollback of log and checkpoint together is not
    detected."""
    findings: Sequence[Finding]
    cosigned: Sequence[str] = ()
    """What the given witnesses cosigned last, and when."""
    open_calls: int = 0
    """Calls without an outcome record: in progress, or their process was killed."""
    unsigned_answers: int = 0
    """Answers of workers elsewhere that they have not signed (yet)."""

    @property
    def is_intact(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def uncovered(self) -> int:
        """Entries that no checkpoint covers yet."""
        return max(0, self.records - self.covered)

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        return {"is_intact": self.is_intact, "uncovered": self.uncovered, **msgspec.to_builtins(self)}

    def __str__(self) -> str:
        used = (
            ", ".join(self.outside)
            or "none, so a rollback of the log together with its checkpoint would go unnoticed"
        )
        lines = [
            f"{self.log}: {'intact' if self.is_intact else 'NOT INTACT'}",
            f"  origin {self.origin or 'unknown'}, key {self.key}",
            f"  {self.records} records, {self.covered} under a checkpoint, {self.uncovered} not covered yet",
            f"  external checkpoints: {used}",
        ]
        lines += [f"  cosigned by {said}" for said in self.cosigned]
        if self.torn_bytes:
            lines.append(f"  {self.torn_bytes} bytes of an interrupted write that was never acknowledged")
        if self.open_calls:
            open_calls = counted(self.open_calls, "call")
            lines.append(f"  {open_calls} without an outcome: still running, or their process was killed")
        if self.unsigned_answers:
            answers = counted(self.unsigned_answers, "answer")
            lines.append(f"  {answers} of workers without their signature, which follows within a second")
        return "\n".join([*lines, *(f"  - {finding}" for finding in self.findings)])
