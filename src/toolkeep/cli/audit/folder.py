"""The log that an audit command works on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from toolkeep.assembly import open_state, project_folder
from toolkeep.audit.entry import Entry
from toolkeep.errors import NotRecorded
from toolkeep.files import is_there
from toolkeep.storage.keys import Keys
from toolkeep.storage.log import AuditLog

_PREFIX: Final = 8
"""Characters of a call's id that stand for all of it; fewer could be an index that somebody mistyped."""


def state_of(project: Path | None) -> Path:
    """The state folder of a project; raises where nothing was ever recorded."""
    state = open_state(project_folder(project))
    # A log that was removed is not one that never was: `verify` says so, and reading finds nothing.
    if state is None or not (is_there(state.folder / "audit") or is_there(Keys(state.folder).signed)):
        hint = "there is a log after the first call; --project names the folder of another project"
        raise NotRecorded("no call of this project was recorded yet", hint)
    return state.folder


@contextlib.contextmanager
def log_of(project: Path | None) -> Iterator[AuditLog]:
    """The log of a project, open."""
    with AuditLog(state_of(project)) as log:
        yield log


def entries_of_call(log: AuditLog, call_id: str) -> list[Entry]:
    """The records of the one call whose id this is, or begins so; raises where there is none or another."""
    found: dict[str, list[Entry]] = {}
    for entry in log.read():
        if _is_meant(call := str(entry.record.get("call", "")), call_id):
            found.setdefault(call, []).append(entry)
    if not found:
        hint = f"`toolkeep audit list` shows the ids of calls; {_PREFIX} characters of one are enough"
        raise NotRecorded(f"no call {call_id[:64]!r} is in the log", hint)
    if len(found) > 1:
        raise NotRecorded(f"{len(found)} calls begin with {call_id[:64]!r}", "give more of the id")
    return found.popitem()[1]


def _is_meant(call: str, given: str) -> bool:
    return call == given or (len(given) >= _PREFIX and call.startswith(given))


def summary(entry: Entry) -> dict[str, Any]:
    """What a list shows of a record."""
    record = entry.record
    return {
        "index": entry.index,
        "time": record.get("time", ""),
        "type": record.get("type") or record.get("event", ""),  # the log itself tells events
        "call": record.get("call", ""),
        "tool": record.get("tool", ""),
        "agent": record.get("agent", ""),
        "status": record.get("status") or record.get("decision") or record.get("outcome", ""),
        "codes": record.get("codes", []),
    }
