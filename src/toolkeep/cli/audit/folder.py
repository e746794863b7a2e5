"""The log that an audit command works on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkeep.assembly import open_state, project_folder
from toolkeep.audit.entry import Entry
from toolkeep.errors import NotRecorded
from toolkeep.storage.log import AuditLog


def state_of(project: Path | None) -> Path:
    """The state folder of a project; raises where nothing was ever recorded."""
    state = open_state(project_folder(project))
    if state is None or not (state.folder / "audit").exists():
        raise NotRecorded("no call of this project was recorded yet")
    return state.folder


@contextlib.contextmanager
def log_of(project: Path | None) -> Iterator[AuditLog]:
    """The log of a project, open."""
    with AuditLog(state_of(project)) as log:
        yield log


def entries_of_call(log: AuditLog, call_id: str) -> list[Entry]:
    """The records of one call, in order; raises where there are none."""
    found = [entry for entry in log.read() if entry.record.get("call") == call_id]
    if not found:
        raise NotRecorded(f"no call {call_id[:64]!r} is in the log")
    return found


def summary(entry: Entry) -> dict[str, Any]:
    """What a list shows of a record."""
    record = entry.record
    return {
        "index": entry.index,
        "time": record.get("time", ""),
        "type": record.get("type", ""),
        "call": record.get("call", ""),
        "tool": record.get("tool", ""),
        "agent": record.get("agent", ""),
        "status": record.get("status") or record.get("decision", ""),
        "codes": record.get("codes", []),
    }
