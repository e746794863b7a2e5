"""Online backup of a keep's state into one tar file, and restore.

The order decides what a restored keep knows. First a snapshot of the log with its keys and newest checkpoint,
under the lock of the log. The databases follow, each a snapshot of its own: a claim or a used approval may
then be newer than the log, never older, so that no call can run twice. A backup holds the private keys:
whoever reads it can sign for the log, and whoever writes it can replace everything. It protects against disk
loss. Not included: OAuth tokens of upstream servers (`sign-ins/`) and what is in a shared PostgreSQL. What a
server remembers of that database is never lowered by a restore, so that an older database is noticed.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from toolkeep.errors import BackupRefused, ToolkeepError
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import sync_folder
from toolkeep.storage.log.segments import segment_ends, segment_path, shared_lock
from toolkeep.storage.sqlite.database import check_not_empty
from toolkeep.storage.state_folder import check_private, make_private

FORMAT: Final = 1
DATABASES: Final = (
    "state.db",
    "store.db",
    "tokens.db",
    "revocations.db",
    "ledger.db",
    "approvals.db",
    "sessions.db",
    "measures.db",
    "bodies.db",
    "undo.db",
)
_MANIFEST: Final = "manifest.json"
_SMALL: Final = re.compile(
    r"keys/[A-Za-z0-9._-]{1,64}|audit/(format|checkpoint|checkpoints\.jsonl|resume\.json)"
    r"|shared-versions/[A-Za-z0-9._-]{1,64}"
)
_SMALL_FOLDERS: Final = ("keys", "audit", "shared-versions")
_NAME: Final = re.compile(
    rf"{'|'.join(map(re.escape, DATABASES))}|{_SMALL.pattern}|audit/segments/\d{{8}}\.jsonl"
)
_CHUNK_BYTES: Final = 1 << 20
"""Bytes of a file that are in memory at once while it is unpacked; a database may have gigabytes."""
_MANIFEST_BYTES: Final = 16 << 20
"""Maximum size of the manifest, which is read whole. A file takes some 150 bytes of it, so 100,000 segments
of the log fit."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The list of contents of a backup."""

    format: int
    made_at: str
    members: tuple[Member, ...]


def make_backup(folder: Path, target: Path) -> Manifest:
    """Write a backup of a state folder to a new file, readable by this user alone."""
    if not is_there(folder):
        raise BackupRefused(str(folder), "holds nothing yet", hint="there is a state after the first call")
    check_private(folder)
    with _scratch(target) as scratch, _new_file(target) as file:
        return _write(folder, file, scratch)


def check_backup(source: Path) -> Manifest:
    """Verify a backup by unpacking all of it; raises `BackupRefused` where anything is wrong."""
    with _scratch(source, or_elsewhere=True) as scratch:  # backups are often on read-only media
        return _unpack(source, scratch / "state")


def restore_backup(source: Path, folder: Path, *, replaces: bool = False) -> Path | None:
    """Verify a backup and put it in place of a state folder; where the old state was moved to, if any."""
    has_state = is_there(folder) and any(folder.iterdir())
    if has_state and not replaces:
        hint = "pass --replace to move it aside, or set TOOLKEEP_HOME to another folder"
        raise BackupRefused(str(folder), "already contains a state", hint=hint)
    if has_state and (users := users_of(folder)):
        hint = f"stop what uses it first: process {', '.join(map(str, users[:5]))}"
        raise BackupRefused(str(folder), "is in use", hint=hint)
    if not is_there(folder.parent):
        make_private(folder.parent)
    with _scratch(folder) as scratch:
        unpacked = scratch / "state"
        _unpack(source, unpacked)
        for made in (unpacked, *filter(Path.is_dir, unpacked.rglob("*"))):
            sync_folder(made)
        _take_over_versions(folder, unpacked)
        aside = _move_aside(folder) if has_state else None
        unpacked.rename(folder)  # replaces an empty folder, in one step
    sync_folder(folder.parent)
    return aside


def _take_over_versions(folder: Path, restored: Path) -> None:
    """Let a restored folder remember the highest versions of the shared database that the old one has seen.

    With those of the backup, an older database would be taken for the newest.
    """
    from toolkeep.storage.postgres.shared_register import VERSIONS, SeenVersion

    for file in (folder / VERSIONS).glob("[!.]*"):
        SeenVersion(restored, file.name).rise(SeenVersion(folder, file.name).remembered())


# --- out -----------------------------------------------------------------------------------------


def _write(folder: Path, file: IO[bytes], scratch: Path) -> Manifest:
    sizes, small = _log_snapshot(folder)
    members: list[Member] = []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in small.items():
            members.append(_add_bytes(archive, name, data))
        for name, size in sizes.items():
            with (folder / name).open("rb") as source:
                members.append(_add(archive, name, source, size))
        for name in DATABASES:
            if is_there(folder / name):
                copy = _snapshot(folder / name, scratch / name)
                with copy.open("rb") as source:
                    members.append(_add(archive, name, source, copy.stat().st_size))
                copy.unlink()
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = Manifest(format=FORMAT, made_at=made_at, members=tuple(members))
        _add_bytes(archive, _MANIFEST, msgspec.json.encode(manifest))
    return manifest


def _log_snapshot(folder: Path) -> tuple[dict[str, int], dict[str, bytes]]:
    """The length of each segment, and the small files that belong to it: one snapshot under the lock."""
    audit = folder / "audit"
    with shared_lock(audit) if is_there(audit) else contextlib.nullcontext():
        ends = segment_ends(audit)
        sizes = {str(segment_path(audit, number).relative_to(folder)): end for number, end in ends.items()}
        found = [path for name in _SMALL_FOLDERS for path in (folder / name).glob("*")]
        named = {str(path.relative_to(folder)): path for path in found if path.is_file()}
        return sizes, {name: named[name].read_bytes() for name in sorted(named) if _SMALL.fullmatch(name)}


def _snapshot(database: Path, copy: Path) -> Path:
    """A snapshot of a database, while others write to it.

    SQLite's backup API: a plain copy could mix pages of two transactions, or miss the write-ahead log.
    """
    import sqlite3

    check_not_empty(database)
    try:
        with (
            contextlib.closing(
                sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
            ) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.execute("PRAGMA busy_timeout = 10000")
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        hint = "check that the disk is not full; a file that is broken can be moved away"
        raise BackupRefused(str(database), f"cannot be read: {error}", hint=hint) from error
    return copy


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> Member:
    import io

    return _add(archive, name, io.BytesIO(data), len(data))


def _add(archive: tarfile.TarFile, name: str, source: IO[bytes], size: int) -> Member:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    reader = _Hashing(source, size)
    archive.addfile(info, reader)
    return Member(name=name, size=size, sha256=reader.digest.hexdigest())


class _Hashing:
    """Reads the first bytes of a file and hashes them."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size
        self.digest = hashlib.sha256()

    def read(self, count: int = -1) -> bytes:
        """The next bytes."""
        data = self._file.read(self._left if count < 0 else min(count, self._left))
        self._left -= len(data)
        self.digest.update(data)
        return data


# --- in ------------------------------------------------------------------------------------------


def _unpack(source: Path, folder: Path) -> Manifest:
    """Unpack a backup into a new folder: every file matches the manifest, databases and log verify."""
    folder.mkdir(mode=0o700)
    try:
        with tarfile.open(source, mode="r:") as archive:
            manifest = _read_members(archive, folder, source)
    except (tarfile.TarError, EOFError) as error:
        raise _broken(source, "is not a backup, or is truncated") from error
    except OSError as error:
        raise _broken(source, f"cannot be read: {error.strerror}") from error
    _check_databases(manifest, folder, source)
    _check_log(folder, source)
    return manifest


def _read_members(archive: tarfile.TarFile, folder: Path, source: Path) -> Manifest:
    found: dict[str, Member] = {}
    most = source.stat().st_size
    manifest: Manifest | None = None
    for info in archive:
        if info.name == _MANIFEST and _is_plain(info, _MANIFEST_BYTES):
            manifest = _read_manifest(archive, info, source)
        # Names from our own list alone, and each once: a hostile archive could write `../` or a link.
        elif not _is_plain(info, most) or not _NAME.fullmatch(info.name) or info.name in found:
            raise _broken(source, "contains an unexpected file")
        else:
            found[info.name] = _extract(archive, info, folder)
    if manifest is None:
        raise _broken(source, "is truncated: it has no manifest")
    if set(manifest.members) != set(found.values()):
        raise _broken(source, "does not match its manifest")
    return manifest


def _is_plain(info: tarfile.TarInfo, most: int) -> bool:
    """Whether it is a regular file; a sparse one could claim terabytes and fill the disk."""
    return info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.sparse and info.size <= most


def _read_manifest(archive: tarfile.TarFile, info: tarfile.TarInfo, source: Path) -> Manifest:
    file = archive.extractfile(info)
    try:
        manifest = msgspec.json.decode(file.read() if file else b"", type=Manifest)
    except msgspec.DecodeError as error:
        raise _broken(source, "has an unreadable manifest") from error
    if manifest.format != FORMAT:
        reason = f"has format {manifest.format}, but this toolkeep supports only up to {FORMAT}"
        raise BackupRefused(str(source), reason, hint="use the toolkeep that wrote it, or a later one")
    return manifest


def _extract(archive: tarfile.TarFile, info: tarfile.TarInfo, folder: Path) -> Member:
    """Write one file under a known name; owner, mode and links of the archive are ignored."""
    path = folder / info.name
    for parent in (*(folder / name for name in _SMALL_FOLDERS), folder / "audit" / "segments"):
        if parent in path.parents:
            parent.mkdir(mode=0o700, exist_ok=True)
    digest = hashlib.sha256()
    content = archive.extractfile(info)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 -- a descriptor
        while content and (data := content.read(_CHUNK_BYTES)):
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(descriptor)
        size = file.tell()
    return Member(name=info.name, size=size, sha256=digest.hexdigest())


def _check_databases(manifest: Manifest, folder: Path, source: Path) -> None:
    import sqlite3

    for name in [member.name for member in manifest.members if member.name in DATABASES]:
        try:
            with contextlib.closing(sqlite3.connect(folder / name)) as connection:
                (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
        except sqlite3.Error as error:
            raise _broken(source, f"contains a {name} that is not a database") from error
        if answer != "ok":
            raise _broken(source, f"holds a {name} that is broken")


def _check_log(folder: Path, source: Path) -> None:
    if not is_there(folder / "audit" / "segments"):
        return
    from toolkeep.storage.log.verify_folder import verify

    try:
        report = verify(folder)
    except (OSError, ToolkeepError) as error:
        raise _broken(source, "holds a log that cannot be checked") from error
    if not report.is_intact:
        raise _broken(source, "holds a log that does not verify")


def _broken(source: Path, reason: str) -> BackupRefused:
    return BackupRefused(str(source), reason, hint="use another backup; nothing was changed")


# --- files ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _scratch(beside: Path, *, or_elsewhere: bool = False) -> Iterator[Path]:
    """A private temporary folder, on the same file system as the target, so that a rename is atomic."""
    try:
        made = tempfile.mkdtemp(prefix=".toolkeep-", dir=beside.absolute().parent)
    except OSError as error:
        if not or_elsewhere:
            reason = f"its folder cannot be written: {error.strerror}"
            raise BackupRefused(str(beside), reason, hint="name another place") from error
        made = tempfile.mkdtemp(prefix=".toolkeep-")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _new_file(target: Path) -> Iterator[IO[bytes]]:
    """A new file, durable when this ends, and removed again where it fails."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise BackupRefused(str(target), "exists already", hint="name another file") from error
    except OSError as error:
        raise _unwritten(target, error) from error
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 -- a descriptor
            yield file
            file.flush()
            os.fsync(descriptor)
        sync_folder(target.absolute().parent)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise _unwritten(target, error) from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _unwritten(target: Path, error: OSError) -> BackupRefused:
    hint = "check that the folder is writable and the disk is not full"
    return BackupRefused(str(target), f"cannot be written: {error.strerror}", hint=hint)


def _move_aside(folder: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = folder.with_name(f"{folder.name}.before-{stamp}")
    folder.rename(aside)
    return aside


def users_of(folder: Path) -> list[int]:
    """Processes that have a file of the folder open, as far as this user can see.

    Their open files would stay in the state that was moved aside, and their writes would be lost.
    """
    if not Path("/proc/self/fd").is_dir():
        reason = "this system does not tell which processes use it"
        raise BackupRefused(str(folder), reason, hint="name a folder that does not exist yet")
    real = os.path.realpath(folder)
    others = [process for process in Path("/proc").glob("[0-9]*") if int(process.name) != os.getpid()]
    return sorted(
        int(process.name) for process in others if any(_is_below(real, path) for path in _open_files(process))
    )


def _open_files(process: Path) -> Iterable[str]:
    with contextlib.suppress(OSError):
        for entry in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _is_below(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """A manifest as JSON data."""
    data: dict[str, Any] = json.loads(msgspec.json.encode(manifest))
    return data
