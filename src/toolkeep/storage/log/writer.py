"""Group commit for the audit log: gather waiting records, append them with one fdatasync, sign checkpoints.

A thread does it. On a fast disk an event loop commits its own groups: the hand-over to the thread and back
takes longer than such an fdatasync. A group is appended under the advisory lock of the log, an flock on its
folder that every process takes. A waiter is resolved when its group is durable, never before: a call that was
acknowledged earlier could be missing from the log after a crash.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import Leaf
from toolkeep.audit.errors import AuditBroken, LogClosed, LogUnwritable
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.appender import Appender, Busy
from toolkeep.storage.log.checkpoint_files import Checkpoints
from toolkeep.storage.log.durability_waiters import Loop, Waiting, tell_failure, tell_places
from toolkeep.storage.state_folder import make_private

log = logging.getLogger("toolkeep.audit")

Result = TypeVar("Result")
Order: TypeAlias = "tuple[Callable[[], Any], Future[Any]]"

QUICK_SYNC_SECONDS: Final = 0.000_25
"""How long an fdatasync may block an event loop; a slower disk is left to the thread."""


class Writer:
    """Writes one log. The first record starts its thread."""

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
        self._committing: Loop | None = None  # the loop that will commit the group in its next iteration
        self._turn = threading.Lock()  # an flock does not exclude threads of one process
        # Held while there is no work: a bare lock wakes the thread 3 × faster than an Event.
        self._bell = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._closed_because = ""
        self._lock_descriptor = -1
        self._appender: Appender | None = None
        self._covered_segment = 0
        self._due = 0.0
        self.is_broken = False  # the last records were refused as `AuditBroken`
        self._is_unsigned = False  # signing the last due checkpoint failed, and was logged

    def put(self, *waiting: Waiting) -> None:
        """Append these records next to each other."""
        with self._gate:
            self._refuse_if_closed()
            self._awake()
            self._waiting += waiting

    def put_soon(
        self, records: tuple[bytes, ...], waiter: "asyncio.Future[Leaf]", loop: Loop, *, is_alone: bool
    ) -> None:
        """Append these records next to each other, for a future of the running loop.

        A caller that is alone waits for no other records to form a group.
        """
        with self._gate:
            self._refuse_if_closed()
            is_ours = self._committing is None and self._is_quick
            if is_ours:
                self._committing = loop
            elif self._committing is not loop:
                self._awake()
            self._waiting.append((records, waiter, loop))
        if not is_ours:
            return
        if is_alone:
            self._commit_on(loop)
        else:
            loop.call_soon(self._commit_on, loop)

    def order(self, action: Callable[[], Result]) -> "Future[Result]":
        """Run an action between two groups, after every record put before it."""
        future: Future[Result] = Future()
        with self._gate:
            self._refuse_if_closed()
            self._awake()
            self._orders.append((action, future))
        return future

    def stop(self) -> None:
        """Commit what waits, sign the last checkpoint, and stop; raises where it cannot be signed."""
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

    def leave_to_parent(self) -> None:
        """After fork(), in the child: drop the thread and the descriptors, which are the parent's."""
        # An flock belongs to the open file description, which both share: the child would still hold the lock
        # when the parent dies, and no other process could append.
        self._gate, self._turn = threading.Lock(), threading.Lock()
        self._closed_because = self._closed_because or "it was opened before this process was forked"
        self._let_go()

    def sign_checkpoint(self, *, is_kept: bool) -> str:
        """Sign a checkpoint over every entry, unless the newest one covers them already."""
        with self._locked() as appender:
            return self._sign(appender, is_kept=is_kept)

    def rotate_key(self) -> VerifierKey:
        """Rotate the key: announce the new one in the log, sign with both, and go on with the new one."""
        with self._locked() as appender:
            if self.keys.next_key():  # an interrupted rotation: its key is announced already
                self._sign(appender, is_kept=True)
            appender.append([])
            old, new = self.keys.signer(), self.keys.prepare_next(appender.size)
            record = {
                "event": "KeyRotated",
                "key": str(old.verifier),
                "next_key": str(new.verifier),
                "time": datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds"),
            }
            appender.append([canonical_bytes(record)])
            self._sign(appender, is_kept=True)
            return new.verifier

    def _refuse_if_closed(self) -> None:
        if self._closed_because:
            raise LogClosed(str(self.audit), self._closed_because)

    @property
    def _is_quick(self) -> bool:
        return self._appender is not None and self._appender.sync_seconds < QUICK_SYNC_SECONDS

    def _let_go(self) -> None:
        if self._appender:
            self._appender.close()
            self._appender = None
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def _awake(self) -> None:
        """Wake the thread; called with the gate held, which the thread waits for."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="toolkeep-audit", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # what Python raises where it can start no thread
                raise LogUnwritable(str(self.audit), "cannot be written: no thread for it") from error
            self._thread = thread
        if self._bell.locked():
            self._bell.release()

    def _run(self) -> None:
        while not self._is_stopping:
            patience = self._patience()
            self._bell.acquire(timeout=-1 if patience is None else patience)
            with self._gate:
                orders, self._orders = self._orders, []
            self._commit()
            for action, future in orders:
                self._obey(action, future)
            if self._patience() == 0:
                self._sign_in_time()

    def _commit_on(self, loop: Loop) -> None:
        """Commit the group on the event loop; left to the thread while another process writes."""
        try:
            self._commit(loop)
        except Busy:
            pass
        finally:
            if self._waiting:  # another process writes, or a signal came before the group was taken
                with self._gate:
                    self._awake()

    def _commit(self, here: Loop | None = None) -> None:
        """Commit one group; on an event loop only where that does not block."""
        if not self._waiting:
            return
        group: list[Waiting] = []
        try:
            with self._locked(is_patient=here is None) as appender:
                group = self._take()
                leaves = appender.append([record for records, _, _ in group for record in records])
                first = appender.size - len(leaves)
                self._cover_soon()
            self.is_broken = False
            tell_places(group, first, leaves, self.keys.origin, here)
        except Busy:
            raise
        except OSError as error:
            tell_failure(group or self._take(), self._unwritable(error))
        except Exception as error:  # noqa: BLE001 -- whoever waits must hear of our own mistakes too
            self.is_broken = isinstance(error, AuditBroken)
            tell_failure(group or self._take(), error)
        except BaseException:  # a signal, on the thread of a loop: other loops and threads may wait
            tell_failure(group, LogUnwritable(str(self.audit), "cannot be written: interrupted"))
            raise

    def _take(self) -> list[Waiting]:
        with self._gate:
            group, self._waiting, self._committing = self._waiting, [], None
        return group

    def _cover_soon(self) -> None:
        if not self._due:
            with self._gate:
                self._due = time.monotonic() + self._checkpoint_seconds
                self._awake()

    def _finish(self) -> None:
        self._is_stopping = True
        if self._appender:
            with self._locked() as appender:
                self._sign(appender, is_kept=True)
                appender.cut_room()

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
        try:
            age = self.checkpoints.seconds_old()
            if 0 <= age < self._checkpoint_seconds:
                self._due = time.monotonic() + self._checkpoint_seconds - age  # another process was faster
            else:
                self.sign_checkpoint(is_kept=False)
        except Exception as error:  # noqa: BLE001 -- without this thread nobody would be told anything any more
            # No append depends on it: the entries are durable, only not covered yet. Retried when due again.
            if not self._is_unsigned:
                fields = {"error_type": type(error).__name__, "reason": str(error)}
                log.warning("no checkpoint can be signed; new records are covered by none", extra=fields)
            self._is_unsigned = True
            self._due = time.monotonic() + max(self._checkpoint_seconds, 0.1)

    def _sign(self, appender: Appender, *, is_kept: bool) -> str:
        if appender.has_announcements:
            appender.append([])
        size, root = appender.size, appender.root()
        newest = self.checkpoints.newest()
        signed = Checkpoint.parse(Note.parse(newest).text) if newest else None
        is_covered = signed is not None and signed.size == size and signed.root == root
        # Two signed roots of one size are a fork of the history; a writer never makes the second one.
        if signed is not None and signed.size >= size and not is_covered:
            reason = f"it says {signed.size} records, and the log has {size} others"
            raise AuditBroken(str(self.audit / "checkpoint"), reason)
        is_kept = is_kept or appender.segment != self._covered_segment
        if newest is None or not is_covered or self.keys.next_key():
            newest = str(self.checkpoints.sign(size, root, is_kept=is_kept))
        elif is_kept:
            self.checkpoints.keep_newest()
        if is_kept:
            appender.save_place(newest)
        self._covered_segment, self._due, self._is_unsigned = appender.segment, 0.0, False
        return newest

    @contextlib.contextmanager
    def _locked(self, *, is_patient: bool = True) -> Iterator[Appender]:
        """The tail of the log, with the lock held and caught up with other processes.

        Raises `Busy` where it would have to block and may not.
        """
        if not self._turn.acquire(blocking=is_patient):
            raise Busy
        try:
            if self._lock_descriptor < 0:
                make_private(self._folder)
                make_private(self.audit)
                self._lock_descriptor = os.open(self.audit, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._lock(is_patient=is_patient)
            try:
                # On an event loop only once a checkpoint: often enough while checkpoints can be signed.
                if is_patient or not self._due or self._is_unsigned:
                    self._check_place()
                yield self._caught_up(is_patient=is_patient)
            finally:
                fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)
        finally:
            self._turn.release()

    def _lock(self, *, is_patient: bool) -> None:
        try:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy from error

    def _check_place(self) -> None:
        """Raise where the folder was replaced: the checkpoints and keys there belong to another log."""
        try:
            is_ours = os.path.samestat(os.fstat(self._lock_descriptor), self.audit.stat())
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            raise AuditBroken(str(self.audit), "it was moved or replaced")

    def _caught_up(self, *, is_patient: bool) -> Appender:
        if self._appender:
            self._appender.catch_up(is_patient=is_patient)
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
