"""Verifies the audit log in a folder against its checkpoints, and against those of others (AUD-2).

Safe beside running writers: the lock is held only while the lengths of the files are taken.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.findings import Finding, Kind, Report
from toolkeep.audit.log_scan import Scan
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.audit.verification import VerificationInputs, verify_scan
from toolkeep.errors import StateUnusable, ToolkeepError
from toolkeep.host.files import is_there
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_files import Checkpoints
from toolkeep.storage.log.cosigned_checkpoints import cosigned_notes
from toolkeep.storage.log.segments import (
    check_format,
    read_segment,
    segment_ends,
    segment_numbers,
    segment_path,
    segments_folder,
    shared_lock,
)

Found = TypeVar("Found")


def verify(
    log: Path | AuditLog,
    *,
    outside_checkpoints: Mapping[str, str] | None = None,
    public_key: VerifierKey | str | None = None,
    witnesses: Sequence[VerifierKey] = (),
) -> Report:
    """The report on one log. Without a public key the keep's own is used, which its owner may have replaced.

    `outside_checkpoints` are signed notes from other places, by where they come from; notes of other logs are
    skipped. Each of the `witnesses` must have cosigned a checkpoint of the log.
    """
    folder = log.folder if isinstance(log, AuditLog) else log
    audit, keys = folder / "audit", Keys(folder)
    check_format(audit)
    checkpoints = Checkpoints(audit, keys)
    findings: list[Finding] = []
    with _locked(audit, was_signed=is_there(keys.signed)):
        findings += _stray(audit)
        ends = segment_ends(audit)
        newest = _readable(checkpoints.newest, findings)
        remembered = _readable(checkpoints.remembered, findings)
        kept = _readable(checkpoints.kept, findings) or []
        key = _key(public_key, keys, findings)  # under the same lock: a rotation may follow while we read
    scan = _scan(audit, ends, max(map(_size_of, [newest, remembered, *kept])))
    given = VerificationInputs(
        log=str(folder),
        key=key,
        key_source="given" if public_key else "the keep's own",
        newest=newest,
        remembered=remembered,
        is_own=keys.has_key(),
        kept=kept,
        outside=outside_checkpoints or {},
        cosigned=[str(note) for note in cosigned_notes(folder)],
        witnesses=witnesses,
    )
    scan.findings += findings
    return verify_scan(scan, given)


@contextlib.contextmanager
def _locked(audit: Path, *, was_signed: bool) -> Iterator[None]:
    try:
        with contextlib.nullcontext() if was_signed and not is_there(audit) else shared_lock(audit):
            yield
    except OSError as error:
        raise StateUnusable(
            str(audit), f"cannot be read: {error.strerror}", hint="name a keep's folder"
        ) from error


def _scan(audit: Path, ends: Mapping[int, int], covered: int) -> Scan:
    scan = Scan(covered=covered)
    for number, end in ends.items():
        data = read_segment(audit, number, 0)[:end]
        scan.read(f"{number:08d}", data, is_last=number == max(ends))
    scan.finish()
    return scan


def _size_of(checkpoint: str | None) -> int:
    """The size that a checkpoint claims, unverified; 0 where it cannot be parsed."""
    try:
        return Checkpoint.parse(Note.parse(checkpoint).text).size if checkpoint else 0
    except NoteInvalid:
        return 0


def _key(given: VerifierKey | str | None, keys: Keys, findings: list[Finding]) -> VerifierKey | None:
    if isinstance(given, VerifierKey):
        return given
    if given is not None:
        return VerifierKey.parse(given)
    return _readable(keys.public_key, findings) if keys.has_key() else None


def _readable(read: Callable[[], Found], findings: list[Finding]) -> Found | None:
    try:
        return read()
    except (OSError, ToolkeepError) as error:
        findings.append(Finding(kind=Kind.CHECKPOINT, message=str(error)))
        return None


def _stray(audit: Path) -> Iterator[Finding]:
    numbers = segment_numbers(audit)
    for before, after in pairwise([-1, *numbers]):
        if after == before + 2:
            yield Finding(kind=Kind.SEGMENT, message=f"segment {before + 1:08d} is missing")
        elif after > before + 2:
            missing = f"segments {before + 1:08d} to {after - 1:08d} are missing"
            yield Finding(kind=Kind.SEGMENT, message=missing)
    names = {segment_path(audit, number).name for number in numbers}
    for path in sorted(segments_folder(audit).glob("*")):
        if path.name not in names:
            yield Finding(kind=Kind.SEGMENT, message=f"{path.name} is not a segment")
