"""The one thread that writes a log: gathers what waits, appends it as one group, signs checkpoints in time.

A group is appended under the lock of the log, an flock on its folder, which every process respects. Whoever
waits is told when the group is durable, never before.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import AuditBroken, LogClosed, LogUnwritable
from toolkeep.audit.note import Note, VerifierKey
from toolkeep.canonical import canonical_bytes
from toolkeep.errors import ToolkeepError
from toolkeep.storage.appender import Appender
from toolkeep.storage.checkpoints import Checkpoints
from toolkeep.storage.folder import make_private
from toolkeep.storage.keys import Keys
from toolkeep.storage.waiting import Waiting, tell_failure, tell_places

Result = TypeVar("Result")
Order: TypeAlias = "tuple[Callable[[], Any], Future[Any]]"


class Writer:
    """Writes one log from one thread, which starts with the first thing to do."""

    def __init__(
        self, folder: Path, *, segment_bytes: int, checkpoint_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.audit = folder / "audit"
        self.keys = Keys(folder)
        self.checkpoints = Checkpoints(self.audit, self.keys)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._checkpoint_seconds = checkpoint_seconds
        self._clock = clock
        self._gate = threading.Lock()
        self._waiting: list[Waiting] = []
        self._orders: list[Order] = []
        # Locked while there is nothing new: a bare lock wakes the thread 3 × faster than an Event.
        self._bell = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._closed_because = ""
        self._lock_descriptor = -1
        self._appender: Appender | None = None
        self._covered_segment = 0
        self._due = 0.0

    def put(self, *waiting: Waiting) -> None:
        """Append these, next to each other."""
        with self._gate:
            if self._closed_because:
                raise LogClosed(str(self.audit), self._closed_because)
            if not self._waiting:  # else the thread was woken already
                self._awake()
            self._waiting += waiting

    def order(self, action: Callable[[], Result]) -> "Future[Result]":
        """Run an action of this class between two groups, after everything put before."""
        future: Future[Result] = Future()
        with self._gate:
            if self._closed_because:
                raise LogClosed(str(self.audit), self._closed_because)
            self._orders.append((action, future))
            self._awake()
        return future

    def stop(self) -> None:
        """Finish what waits, sign the last checkpoint, and end; raises where that cannot be signed."""
        last: Future[None] = Future()
        with self._gate:
            if self._closed_because:
                return
            self._closed_because = "the log is closed"
            if self._thread is None:
                return
            self._orders.append((self._finish, last))
            self._awake()
        self._thread.join()
        self._let_go()
        last.result()

    def forget(self) -> None:
        """In a fork of the process: there is no thread here, and the files are the parent's."""
        # The lock goes with the open file, which both share: the child would hold it when the parent dies.
        self._gate = threading.Lock()
        self._closed_because = self._closed_because or "it was opened before this process was forked"
        self._let_go()

    def sign_checkpoint(self, *, is_kept: bool) -> str:
        """Sign a checkpoint over every entry that there is; the one there is, if it does that already."""
        with self._locked() as appender:
            return self._sign(appender, is_kept=is_kept)

    def rotate_key(self) -> VerifierKey:
        """Announce a new key in the log, sign with both, and go on with the new one."""
        with self._locked() as appender:
            appender.append([])
            old, new = self.keys.signer(), self.keys.prepare_next(appender.size)
            record = {
                "event": "KeyRotated",
                "key": str(old.verifier),
                "next_key": str(new.verifier),
                "time": datetime.fromtimestamp(self._clock(), UTC).isoformat(),
            }
            appender.append([canonical_bytes(record)])
            self._sign(appender, is_kept=True)
            return new.verifier

    def _let_go(self) -> None:
        if self._appender:
            self._appender.close()
            self._appender = None
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def _awake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="toolkeep-audit", daemon=True)
            thread.start()
            self._thread = thread
        if self._bell.locked():
            self._bell.release()

    def _run(self) -> None:
        while not self._is_stopping:
            patience = self._patience()
            self._bell.acquire(timeout=-1 if patience is None else patience)
            with self._gate:
                group, self._waiting = self._waiting, []
                orders, self._orders = self._orders, []
            if group:
                self._append(group)
            for action, future in orders:
                self._obey(action, future)
            if self._patience() == 0:
                self._sign_in_time()

    def _append(self, group: list[Waiting]) -> None:
        try:
            with self._locked() as appender:
                hashes = appender.append([record for records, _, _ in group for record in records])
                first = appender.size - len(hashes)
                if not self._due:
                    self._due = time.monotonic() + self._checkpoint_seconds
            tell_places(group, first, hashes, self.keys.origin)
        except OSError as error:
            tell_failure(group, self._unwritable(error))
        except Exception as error:  # noqa: BLE001 -- whoever waits must hear of our own mistakes too
            tell_failure(group, error)

    def _finish(self) -> None:
        self._is_stopping = True
        if self._appender:
            self.sign_checkpoint(is_kept=True)

    def _obey(self, action: Callable[[], Any], future: "Future[Any]") -> None:
        try:
            future.set_result(action())
        except OSError as error:
            future.set_exception(self._unwritable(error))
        except Exception as error:  # noqa: BLE001 -- whoever waits must hear of our own mistakes too
            future.set_exception(error)

    def _unwritable(self, error: OSError) -> LogUnwritable:
        return LogUnwritable(str(self.audit), f"cannot be written: {error.strerror}")

    def _patience(self) -> float | None:
        """Seconds until a checkpoint is due; None while every entry is covered."""
        return max(0.0, self._due - time.monotonic()) if self._due else None

    def _sign_in_time(self) -> None:
        age = self.checkpoints.seconds_old()
        if 0 <= age < self._checkpoint_seconds:
            self._due = time.monotonic() + self._checkpoint_seconds - age  # another process was faster
            return
        try:
            self.sign_checkpoint(is_kept=False)
        except (OSError, ToolkeepError):
            # No append depends on it: the entries are durable, only not covered yet. It is tried again.
            self._due = time.monotonic() + max(self._checkpoint_seconds, 0.1)

    def _sign(self, appender: Appender, *, is_kept: bool) -> str:
        if appender.has_announcements:
            appender.append([])
        size, root = appender.size, appender.root()
        newest = self.checkpoints.newest()
        signed = Checkpoint.parse(Note.parse(newest).text) if newest else None
        is_covered = signed is not None and signed.size == size and signed.root == root
        if signed is not None and signed.size >= size and not is_covered:
            raise AuditBroken("checkpoint", f"it says {signed.size} records, and the log has {size} others")
        is_kept = is_kept or appender.segment != self._covered_segment
        if newest is None or not is_covered or self.keys.following():
            newest = str(self.checkpoints.sign(size, root, is_kept=is_kept))
        elif is_kept:
            self.checkpoints.keep_newest()
        if is_kept:
            appender.save_place(newest)
        self._covered_segment, self._due = appender.segment, 0.0
        return newest

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Appender]:
        """The end of the log, with the lock held and everything taken in that others appended."""
        if self._lock_descriptor < 0:
            make_private(self._folder)
            make_private(self.audit)
            self._lock_descriptor = os.open(self.audit, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
        try:
            yield self._caught_up()
        finally:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)

    def _caught_up(self) -> Appender:
        if self._appender:
            self._appender.catch_up()
            return self._appender
        appender = Appender(
            self.audit, self.checkpoints, segment_bytes=self._segment_bytes, clock=self._clock
        )
        try:
            appender.open()
        except BaseException:
            appender.close()
            raise
        self._appender = appender
        self._covered_segment = appender.segment
        return appender
