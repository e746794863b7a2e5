"""One SQLite file in the state folder: opened by its first use, shared by threads and processes."""

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from toolkeep.errors import StateUnusable
from toolkeep.files import is_there
from toolkeep.forks import tell_in_forks
from toolkeep.storage.atomic import sync_folder, write_once
from toolkeep.storage.folder import make_private

if TYPE_CHECKING:
    import sqlite3

_BUSY_SECONDS = 10.0
_BUSY_PAUSE_SECONDS = 0.01
_BUSY = ("SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED")


class Database:
    """Tables that are made where they are missing. One thread at a time uses the connection."""

    def __init__(self, file: Path, script: str, *, mark: Path | None = None) -> None:
        """`script` is run on every new connection: pragmas, and tables if they do not exist.

        `mark` is a file elsewhere in the state folder that remembers that the database was made: one that is
        gone then was removed, and is not made anew.
        """
        self.file = file
        self._script = script
        self._mark = mark
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None
        self._is_closed = False
        tell_in_forks(self)

    @contextlib.contextmanager
    def using(self) -> Iterator["sqlite3.Connection"]:
        """The connection, each statement a transaction of its own unless one is begun."""
        import sqlite3

        with self._lock:
            try:
                if self._connection is not None and not self._is_in_place():
                    self._let_go()
                if self._connection is None:
                    self._connection = self._open()
                    self._opened = self.file.stat()
                yield self._connection
                if self._is_closed:
                    self._let_go()  # a call that outlives its keep opens it for each use
            except (sqlite3.Error, OSError) as error:
                self._let_go()
                hint = "see that the folder is writable and the disk not full"
                reason = getattr(error, "strerror", None) or error  # without errno and path
                raise StateUnusable(str(self.file), f"cannot be used: {reason}", hint=hint) from error
            except BaseException:
                self._let_go()  # with whatever it had begun
                raise

    @contextlib.contextmanager
    def changing(self) -> Iterator["sqlite3.Connection"]:
        """The connection inside a transaction that happens whole or not at all."""
        with self.using() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def leave_to_parent(self) -> None:
        """In a fork of the process: the connection is the parent's, not to be used or closed here."""
        self._lock = threading.Lock()
        _INHERITED.append(self._connection)
        self._connection = None

    def _is_in_place(self) -> bool:
        """Whether the open file is still the one of that name: nobody else would find what is written."""
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
            hint = f"bring it back from a backup; to begin anew, remove {self._mark} too"
            raise StateUnusable(str(self.file), "was removed: what it remembered is lost", hint=hint)
        connection = open_file(self.file, self._script, _BUSY_SECONDS)
        # Before anything is written to it; a process that is killed in between leaves an empty database.
        if self._mark is not None and not is_there(self._mark):
            make_private(self._mark.parent)
            write_once(self._mark, b"")
        return connection


def open_file(file: Path, script: str, busy_s: float) -> "sqlite3.Connection":
    """A connection on which the script was run; the file is made where it is missing, for this user alone."""
    import sqlite3

    make_private(file.parent)
    until = time.monotonic() + busy_s
    while True:
        try:
            make_whole(file, script)
            return _prepared(file, script, busy_s)
        except sqlite3.OperationalError as error:
            # While another makes the file, SQLite does not wait where the journal mode is to be changed.
            if error.sqlite_errorname not in _BUSY or time.monotonic() > until:
                raise
            time.sleep(_BUSY_PAUSE_SECONDS)


def make_whole(file: Path, script: str) -> None:
    """Make the file where it is missing, with all its tables: one that is empty was emptied, and is refused.

    One that is there is not opened: to close it again would end every lock that this process has on it, and
    whoever else closes the database then removes the journal that is written here.
    """
    try:
        check_not_empty(file)
    except FileNotFoundError:
        _make(file, script)
    if file.is_symlink():
        raise OSError(errno.ELOOP, "Is a link")


def check_not_empty(file: Path) -> None:
    """Raise for a file without a byte: to SQLite it is a new database, and all that it held is forgotten."""
    if not file.lstat().st_size:
        hint = "bring it back from a backup, or remove it to begin anew"
        raise StateUnusable(str(file), "was emptied: what it remembered is lost", hint=hint)


def _make(file: Path, script: str) -> None:
    """Make it beside its place: SQLite would make it empty first, and readable by others."""
    made = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _prepared(made, script, 0.0).close()
        with contextlib.suppress(FileExistsError):  # another was faster
            file.hardlink_to(made)
    finally:
        for left in file.parent.glob(f"{made.name}*"):
            left.unlink(missing_ok=True)
    sync_folder(file.parent)


def _prepared(file: Path, script: str, busy_s: float) -> "sqlite3.Connection":
    import sqlite3

    connection = sqlite3.connect(file, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        connection.executescript(script)
    except BaseException:
        connection.close()
        raise
    return connection


_INHERITED: "list[sqlite3.Connection | None]" = []
"""Held, so that they are not closed: SQLite would undo the locks of the parent."""
