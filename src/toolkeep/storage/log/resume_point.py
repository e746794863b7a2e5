"""The position of the log at a checkpoint, to read on from there: `resume.json`, and a file for each witness.

A shortcut, trusted only as far as it can be checked: the Merkle tree must have the root that this keep's key
signed, and the entry before the position must be the last leaf of that tree. Otherwise the log is read from
its start. `verify` finds changes further back; a writer never signs them, because its tree is the signed one.
"""

from pathlib import Path

import msgspec

from toolkeep.audit.checkpoint import open_checkpoint
from toolkeep.audit.entry import RECORD_BYTES, parse_entry
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.merkle_tree import Frontier
from toolkeep.audit.signed_note import VerifierKey
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.log.segments import Place, segment_path

_LINE_BYTES = RECORD_BYTES + 1024


class _Resume(msgspec.Struct, frozen=True, kw_only=True):
    checkpoint: str
    segment: int
    offset: int
    previous: str
    peaks: list[str]


def save_place(file: Path, place: Place, frontier: Frontier, checkpoint: str) -> None:
    """Write the position that the checkpoint was signed at."""
    resume = _Resume(
        checkpoint=checkpoint,
        segment=place.number,
        offset=place.offset,
        previous=place.previous,
        peaks=[peak.hex() for peak in frontier.peaks],
    )
    write_whole(file, msgspec.json.encode(resume))


def saved_checkpoint(file: Path) -> str | None:
    """The checkpoint of a saved position, unverified; None where there is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Resume).checkpoint
    except (OSError, ValueError):
        return None


def find_place(file: Path, audit: Path, key: VerifierKey) -> tuple[Place, Frontier] | None:
    """A cursor to read on from, with the tree up to there; None where none can be trusted."""
    try:
        resume = msgspec.json.decode(file.read_bytes(), type=_Resume)
        checkpoint = open_checkpoint(resume.checkpoint, [key])
        frontier = Frontier(checkpoint.size, map(bytes.fromhex, resume.peaks))
    except (OSError, ValueError, NoteInvalid):
        return None
    place = Place(number=resume.segment, offset=resume.offset, size=checkpoint.size, previous=resume.previous)
    # Without both checks, whoever edits this file could have the writer skip entries that they changed.
    is_signed = frontier.root() == checkpoint.root
    return (place, frontier) if is_signed and _is_after_last(audit, place) else None


def _is_after_last(audit: Path, place: Place) -> bool:
    """Whether the cursor is right behind the newline of the last entry of its tree."""
    start = max(0, place.offset - _LINE_BYTES)
    try:
        with segment_path(audit, place.number).open("rb") as file:
            file.seek(start)
            before = file.read(place.offset - start)
    except (OSError, ValueError):
        return False
    *_, line, rest = [b"", *before.split(b"\n")]
    if rest or start + len(before) != place.offset:
        return False
    entry = parse_entry(line)
    return entry is not None and (entry.index, entry.hash) == (place.size - 1, place.previous)
