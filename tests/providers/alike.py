"""What calls leave in the log, without what differs between any two calls."""

from typing import Any

from toolkeep.stores.records import MemoryRecord

_OWN = frozenset(
    (
        "at", "time", "began_at", "ended_at", "decided_at", "call", "call_id", "id", "correlation_id",
        "request_hash", "duration", "approval_id",
    )
)  # fmt: skip


def records(record: MemoryRecord) -> list[Any]:
    """The records in order."""
    return [_alike(entry.record) for entry in record.log.entries]


def _alike(entry: Any) -> Any:
    if isinstance(entry, dict):
        own = {key for key in entry if key in _OWN or key.endswith(("_ms", "_us", "_at"))}
        return {key: _alike(value) for key, value in entry.items() if key not in own}
    return [_alike(value) for value in entry] if isinstance(entry, list) else entry
