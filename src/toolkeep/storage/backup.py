"""A backup of a keep's state while the keep goes on, in one file; and the way back.

What comes first decides what a restored keep knows: the log is cut at one moment, together with its keys and
its newest checkpoint, under the lock that everybody appends under. The databases follow, each as a snapshot
of its own: a claim or a used-up approval may then be newer than the log, and never older, so that nothing
that ran can run twice. A backup holds the keep's private keys: who has it can sign for the log, and who can
write to it can replace all of it. It protects against the loss of a disk.
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
from toolkeep.files import is_there
from toolkeep.storage.atomic import sync_folder
from toolkeep.storage.database import check_not_empty
from toolkeep.storage.folder import check_private, make_private
from toolkeep.storage.segments import segment_ends, segment_path, standing_still

FORMAT: Final = 1
DATABASES: Final = ("state.db", "store.db", "tokens.db", "ledger.db", "approvals.db", "bodies.db")
_MANIFEST: Final = "manifest.json"
_SMALL: Final = re.compile(r"keys/[A-Za-z0-9._-]{1,64}|audit/(checkpoint|checkpoints\.jsonl|resume\.json)")
_NAME: Final = re.compile(
    rf"{'|'.join(map(re.escape, DATABASES))}|{_SMALL.pattern}|audit/segments/\d{{8}}\.jsonl"
)
_CHUNK_BYTES: Final = 1 << 20
_MANIFEST_BYTES: Final = 16 << 20


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself."""

    format: int
    made_at: str
    members: tuple[Member, ...]


def make_backup(folder: Path, target: Path) -> Manifest:
    """Write a backup of a state folder to a file that does not exist yet; readable by this user alone."""
    if not is_there(folder):
        raise BackupRefused(str(folder), "holds nothing yet", hint="there is a state after the first call")
    check_private(folder)
    with _scratch(target) as scratch, _new_file(target) as file:
        return _write(folder, file, scratch)


def check_backup(source: Path) -> Manifest:
    """Read a backup whole, as if to restore it; raises `BackupRefused` where something is wrong with it."""
    with _scratch(source, or_elsewhere=True) as scratch:  # backups often lie where nobody may write
        return _unpack(source, scratch / "state")


def restore_backup(source: Path, folder: Path, *, replaces: bool = False) -> Path | None:
    """Put a checked backup where a state folder is or will be; where what was there was moved to, if any."""
    has_state = is_there(folder) and any(folder.iterdir())
    if has_state and not replaces:
        hint = "say --replace to move it aside, or set TOOLKEEP_HOME to another folder"
        raise BackupRefused(str(folder), "holds a state already", hint=hint)
    if has_state and (users := _users(folder)):
        hint = f"stop what uses it first: process {', '.join(map(str, users[:5]))}"
        raise BackupRefused(str(folder), "is in use", hint=hint)
    if not is_there(folder.parent):
        make_private(folder.parent)
    with _scratch(folder) as scratch:
        unpacked = scratch / "state"
        _unpack(source, unpacked)
        for made in (unpacked, *filter(Path.is_dir, unpacked.rglob("*"))):
            sync_folder(made)
        aside = _move_aside(folder) if has_state else None
        unpacked.rename(folder)  # an empty folder gives way
    sync_folder(folder.parent)
    return aside


# --- out -----------------------------------------------------------------------------------------


def _write(folder: Path, file: IO[bytes], scratch: Path) -> Manifest:
    cut, small = _cut(folder)
    members: list[Member] = []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in small.items():
            members.append(_add_bytes(archive, name, data))
        for name, size in cut.items():
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


def _cut(folder: Path) -> tuple[dict[str, int], dict[str, bytes]]:
    """How long each segment is, and the small files that belong to exactly that, of one moment."""
    audit = folder / "audit"
    with standing_still(audit) if is_there(audit) else contextlib.nullcontext():
        ends = segment_ends(audit)
        sizes = {str(segment_path(audit, number).relative_to(folder)): end for number, end in ends.items()}
        found = [*(folder / "keys").glob("*"), *(folder / "audit").glob("*")]
        named = {str(path.relative_to(folder)): path for path in found if path.is_file()}
        return sizes, {name: named[name].read_bytes() for name in sorted(named) if _SMALL.fullmatch(name)}


def _snapshot(database: Path, copy: Path) -> Path:
    """A database as it is at one moment, whoever writes to it meanwhile."""
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
        hint = "see that the disk is not full; a file that is broken can be moved away"
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
    """Reads so much of a file, and knows the hash of what was read."""

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
    """The files of a backup in a new folder, each of them what the backup says, and all together sound."""
    folder.mkdir(mode=0o700)
    try:
        with tarfile.open(source, mode="r:") as archive:
            manifest = _read_members(archive, folder, source)
    except (tarfile.TarError, EOFError) as error:
        raise _broken(source, "is no backup, or cut off") from error
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
        elif not _is_plain(info, most) or not _NAME.fullmatch(info.name) or info.name in found:
            raise _broken(source, "holds something that no backup holds")
        else:
            found[info.name] = _extract(archive, info, folder)
    if manifest is None:
        raise _broken(source, "is cut off: it does not say what it holds")
    if set(manifest.members) != set(found.values()):
        raise _broken(source, "does not hold what it says that it holds")
    return manifest


def _is_plain(info: tarfile.TarInfo, most: int) -> bool:
    """Whether it is a file that holds what its size says, and not one that only claims to."""
    return info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.sparse and info.size <= most


def _read_manifest(archive: tarfile.TarFile, info: tarfile.TarInfo, source: Path) -> Manifest:
    file = archive.extractfile(info)
    try:
        manifest = msgspec.json.decode(file.read() if file else b"", type=Manifest)
    except msgspec.DecodeError as error:
        raise _broken(source, "does not say in words that are known what it holds") from error
    if manifest.format != FORMAT:
        raise _broken(source, "was made by a newer toolkeep")
    return manifest


def _extract(archive: tarfile.TarFile, info: tarfile.TarInfo, folder: Path) -> Member:
    """One file, written by us under a name that we know; nothing else of the archive counts."""
    path = folder / info.name
    for parent in (folder / "keys", folder / "audit", folder / "audit" / "segments"):
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
            raise _broken(source, f"holds a {name} that is no database") from error
        if answer != "ok":
            raise _broken(source, f"holds a {name} that is broken")


def _check_log(folder: Path, source: Path) -> None:
    if not is_there(folder / "audit" / "segments"):
        return
    from toolkeep.storage.verify import verify

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
    """A folder for this user alone, on the same disk as what it is for; elsewhere only if that will do."""
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
    """A file that was not there before, durable in the end, and gone again where that fails."""
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
    hint = "see that the folder is writable and the disk not full"
    return BackupRefused(str(target), f"cannot be written: {error.strerror}", hint=hint)


def _move_aside(folder: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = folder.with_name(f"{folder.name}.before-{stamp}")
    folder.rename(aside)
    return aside


def _users(folder: Path) -> list[int]:
    """Processes of this user that hold a file of the folder open, as far as that can be seen."""
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
