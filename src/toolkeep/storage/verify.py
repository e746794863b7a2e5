"""Verifies the audit log in a folder: reads what lies there and holds it against checkpoints (AUD-2).

Safe beside running writers: the lock is held only to see how long each file is.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from toolkeep.audit.findings import Finding, Kind, Report
from toolkeep.audit.note import VerifierKey
from toolkeep.audit.scan import Scan
from toolkeep.audit.verify import Given, compare
from toolkeep.errors import StateUnusable, ToolkeepError
from toolkeep.storage.checkpoints import Checkpoints
from toolkeep.storage.keys import Keys
from toolkeep.storage.log import AuditLog
from toolkeep.storage.segments import segment_numbers, segment_path, segments_folder

Found = TypeVar("Found")


def verify(
    log: Path | AuditLog,
    *,
    outside_checkpoints: Mapping[str, str] | None = None,
    public_key: VerifierKey | str | None = None,
) -> Report:
    """The report on one log. Without a public key the keep's own is used, which its owner may have replaced.

    `outside_checkpoints` are signed notes that others kept, by where they come from; those of other logs are
    passed over.
    """
    folder = log.folder if isinstance(log, AuditLog) else log
    audit, keys = folder / "audit", Keys(folder)
    checkpoints = Checkpoints(audit, keys)
    findings: list[Finding] = []
    with _standing_still(audit):
        findings += _stray(audit)
        numbers = segment_numbers(audit)
        sizes = [segment_path(audit, number).stat().st_size for number in numbers]
        newest = _readable(checkpoints.newest, findings)
        kept = _readable(checkpoints.kept, findings) or []
    scan = _scan(audit, numbers, sizes)
    key = _key(public_key, keys, findings)
    given = Given(
        log=str(folder),
        key=key,
        key_source="given" if public_key else "the keep's own",
        newest=newest,
        kept=kept,
        outside=outside_checkpoints or {},
    )
    scan.findings += findings
    return compare(scan, given)


def verify_all(
    logs: Iterable[Path | AuditLog], *, outside_checkpoints: Mapping[str, str] | None = None
) -> list[Report]:
    """A report on each of several logs, each with its own key."""
    return [verify(log, outside_checkpoints=outside_checkpoints) for log in logs]


@contextlib.contextmanager
def _standing_still(audit: Path) -> Iterator[None]:
    """Nobody appends meanwhile. A folder that cannot be locked is a copy, which nobody appends to."""
    try:
        descriptor = os.open(audit, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StateUnusable(
            str(audit), f"cannot be read: {error.strerror}", hint="name a keep's folder"
        ) from error
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _scan(audit: Path, numbers: list[int], sizes: list[int]) -> Scan:
    scan = Scan()
    for number, size in zip(numbers, sizes, strict=True):
        with segment_path(audit, number).open("rb") as file:
            scan.read(f"{number:08d}", file.read(size), is_last=number == numbers[-1])
    scan.finish()
    return scan


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
    for number in sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers)):
        yield Finding(kind=Kind.SEGMENT, message=f"segment {number:08d} is missing")
    names = {segment_path(audit, number).name for number in numbers}
    for path in sorted(segments_folder(audit).iterdir()):
        if path.name not in names:
            yield Finding(kind=Kind.SEGMENT, message=f"{path.name} is no segment")
