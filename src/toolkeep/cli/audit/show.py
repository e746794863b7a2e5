"""`toolkeep audit show`: one record, or all records of a call, with the bodies that are kept."""

import contextlib
import json
from pathlib import Path
from typing import Any, Final

import click

from toolkeep.audit.entry import Entry
from toolkeep.audit.errors import BodyUnavailable
from toolkeep.cli.audit.folder import entries_of_call, log_of, state_of
from toolkeep.cli.options import common, print_json, project
from toolkeep.errors import NotRecorded
from toolkeep.storage.bodies import Bodies
from toolkeep.storage.log import AuditLog

_INDEX_DIGITS: Final = 10
"""Of an index; whatever is longer is the id of a call."""


@click.command("show")
@click.argument("which", metavar="INDEX|CALL")
@project
@common
def command(which: str, project: Path | None, *, as_json: bool) -> None:
    """Show the record at INDEX, or every record of CALL with its arguments and result."""
    state = state_of(project)
    with log_of(project) as log:
        entries = _entries(log, which)
    with contextlib.closing(Bodies(state)) as bodies:
        data = [_data(entry, bodies) for entry in entries]
    if as_json:
        print_json(data)
        return
    for one in data:
        print_json(one)


def _entries(log: AuditLog, which: str) -> list[Entry]:
    if not (which.isascii() and which.isdecimal() and len(which) <= _INDEX_DIGITS):
        return entries_of_call(log, which)
    entries = log.read(int(which), int(which) + 1)
    if not entries:
        raise NotRecorded(f"the log has no record {which}", "`toolkeep audit list` shows the newest ones")
    return entries


def _data(entry: Entry, bodies: Bodies) -> dict[str, Any]:
    data = {"index": entry.index, "hash": entry.hash, **entry.record}
    if entry.record.get("has_arguments"):
        data["arguments"] = _body(bodies, entry.record["argument_hash"])
    if entry.record.get("result_hash"):
        data["result"] = _body(bodies, entry.record["result_hash"])
    return data


def _body(bodies: Bodies, digest: str) -> Any:
    try:
        return json.loads(bodies.get(digest))
    except BodyUnavailable as error:
        return f"({error.message})"
    except ValueError:
        return "(bytes)"
