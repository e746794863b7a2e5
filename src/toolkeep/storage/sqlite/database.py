"""One SQLite file of the state folder: opened on first use, shared by threads and processes.

The only way to these files: creation, locking, forks and versions are handled here once.
"""

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolkeep.errors import StateUnusable
from toolkeep.host.after_fork import register_after_fork
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import sync_folder, write_once
from toolkeep.storage.state_folder import make_private, newer_format

if TYPE_CHECKING:
    import sqlite3

_BUSY_SECONDS = 10.0
"""How long a connection waits for the transactions of other processes, which are short."""
_BUSY_PAUSE_SECONDS = 0.01
"""Poll interval while another process creates the file: an opening waits at most this much too long."""
_BUSY = ("SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED")
SCHEMA_VERSION: Final = 1
"""`user_version` of every file; a toolkeep that changes any of their tables raises it."""
_HINT: Final = "check that the folder is writable and the disk is not full"


class Database:
    """One file, with one connection, which one thread at a time uses."""

    def __init__(
        self,
        file: Path,
        pragmas: str,
        tables: str,
        *,
        mark: Path | None = None,
        stays_open: bool = True,
        hint: str = _HINT,
    ) -> None:
        """`pragmas` run on every new connection, `tables` when the file is created.

        A table that is gone later is an error, and not created again: what it held would be forgotten. `mark`
        is a file elsewhere in the state folder that records the creation: with it, a deleted database is an
        error, too. Unless it stays open, each use opens the file for itself.
        """
        self.file = file
        self._pragmas = pragmas
        self._tables = f"{tables}; PRAGMA user_version = {SCHEMA_VERSION};"
        self._mark = mark
        self._stays_open = stays_open
        self._hint = hint
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None
        self.openings = 0
        """Connections so far: what SQLite says of one does not hold for the next."""
        register_after_fork(self)

    def exists(self) -> bool:
        """Whether there is anything to read. Creates nothing."""
        try:
            return is_there(self.file)
        except OSError as error:
            raise self.unusable(error) from error

    def is_made(self) -> bool:
        """Whether it was ever created, also if it is gone by now. Creates nothing."""
        try:
            return self.exists() or (self._mark is not None and is_there(self._mark))
        except OSError as error:
            raise self.unusable(error) from error

    def unusable(self, error: Exception) -> StateUnusable:
        """The error for a failure of the file."""
        reason = getattr(error, "strerror", None) or error  # without errno and path
        return StateUnusable(str(self.file), f"cannot be used: {reason}", hint=self._hint)

    @contextlib.contextmanager
    def using(self) -> Iterator["sqlite3.Connection"]:
        """The connection, in autocommit mode."""
        import sqlite3

        with self._lock:
            try:
                if self._connection is not None and not self._is_in_place():
                    self._let_go()
                if self._connection is None:
                    self._connection = self._open()
                    self.openings += 1
                    self._opened = self.file.stat()
                yield self._connection
                if not self._stays_open:
                    self._let_go()
            except (sqlite3.Error, OSError) as error:
                self._let_go()
                raise self.unusable(error) from error
            except BaseException:
                self._let_go()  # rolls an open transaction back
                raise

    @contextlib.contextmanager
    def changing(self) -> Iterator["sqlite3.Connection"]:
        """The connection inside a transaction."""
        with self.using() as connection:
            # IMMEDIATE: a transaction that turns from reading to writing may have to fail as SQLITE_BUSY.
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file. A call that outlives its keep opens it for each use."""
        with self._lock:
            self._stays_open = False
            self._let_go()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: drop the parent's connection without closing it."""
        self._lock = threading.Lock()
        _INHERITED.append(self._connection)
        self._connection = None

    def _is_in_place(self) -> bool:
        """Whether the open file still has its name: writes to a deleted file are lost."""
        try:
            return self._opened is not None and os.path.samestat(self._opened, self.file.stat())
        except FileNotFoundError:
            return False

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> "sqlite3.Connection":
        if self._mark is not None and is_there(self._mark) and not is_there(self.file):
            hint = f"restore it from a backup; to start over, remove {self._mark} too"
            raise StateUnusable(str(self.file), "was removed: what it remembered is lost", hint=hint)
        connection = open_file(self.file, self._pragmas, self._tables, busy_s=_BUSY_SECONDS)
        # Before the first row: a process killed in between leaves an empty database, which lost nothing.
        if self._mark is not None and not is_there(self._mark):
            make_private(self._mark.parent)
            write_once(self._mark, b"")
        return connection


def open_file(file: Path, pragmas: str, tables: str, *, busy_s: float) -> "sqlite3.Connection":
    """A connection with the pragmas set; a missing file is created, private to this user."""
    import sqlite3

    make_private(file.parent)
    until = time.monotonic() + busy_s
    while True:
        try:
            _make_whole(file, f"{pragmas};{tables}")
            return _prepared(file, pragmas, busy_s)
        except sqlite3.OperationalError as error:
            # SQLite's busy timeout does not cover a change of the journal mode while the file is created.
            if error.sqlite_errorname not in _BUSY or time.monotonic() > until:
                raise
            time.sleep(_BUSY_PAUSE_SECONDS)


def _make_whole(file: Path, script: str) -> None:
    """Create the file where it is missing, with all its tables; an empty one was truncated, and is refused.

    An existing file is not opened: closing any descriptor of it drops every POSIX lock that this process has
    on it, and another process that closes the database would then delete the write-ahead log in use here.
    """
    try:
        check_not_empty(file)
    except FileNotFoundError:
        _make(file, script)
    if file.is_symlink():
        raise OSError(errno.ELOOP, "Is a link")


def check_not_empty(file: Path) -> None:
    """Raise for an empty file: SQLite takes it for a new database, and all that it held is forgotten."""
    if not file.lstat().st_size:
        hint = "restore it from a backup, or remove it to start over"
        raise StateUnusable(str(file), "was emptied: what it remembered is lost", hint=hint)


def _make(file: Path, script: str) -> None:
    """Create it under a temporary name, then link it: SQLite would create it empty, with the default mode."""
    made = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _prepared(made, script, 0.0).close()
        with contextlib.suppress(FileExistsError):  # another process was faster
            file.hardlink_to(made)
    finally:
        for left in file.parent.glob(f"{made.name}*"):
            left.unlink(missing_ok=True)
    sync_folder(file.parent)


def _prepared(file: Path, script: str, busy_s: float) -> "sqlite3.Connection":
    import sqlite3

    connection = sqlite3.connect(file, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _refuse_newer(file, connection)  # first: the script may change what this toolkeep does not know
        connection.executescript(script)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_newer(file: Path, connection: "sqlite3.Connection") -> None:
    """An older toolkeep would write rows that the newer one reads otherwise."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise newer_format(file, version, SCHEMA_VERSION)


_INHERITED: "list[sqlite3.Connection | None]" = []
"""Referenced, so that they are never closed: closing would drop the locks of the parent."""
