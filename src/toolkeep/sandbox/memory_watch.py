"""Polling memory watch for workers that may start processes, where no cgroup is available.

A thread reads /proc for each process tree, often during a call and rarely while idle, and kills a worker
whose tree exceeds its limit. Not covered: peaks between two polls, and shared memory that no process maps at
the moment; only a cgroup counts those.
"""

import contextlib
import select
import signal
import threading
import time
from typing import Final

from toolkeep.sandbox.proc_stats import host_pid, tree_bytes

RUNNING_SECONDS: Final = 0.05
"""Poll interval during a call; a poll takes some 60 µs per process."""

WAITING_SECONDS: Final = 0.5
"""Poll interval while all workers are idle."""

_SHARE: Final = 20
"""Polling takes at most one part in this many of a CPU."""


class Watched:
    """One watched worker."""

    def __init__(self, watch: "Watch", pidfd: int, memory_bytes: int) -> None:
        self._watch = watch
        self._pidfd = pidfd
        self._process = host_pid(pidfd)
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        """Held during a poll: the pidfd must not be closed meanwhile."""
        self._is_released = False
        self._is_exceeded = False
        self.is_running = True
        """Whether it handles a call, or may get one at once."""

    def is_exceeded(self) -> bool:
        """Whether it was killed for its memory."""
        return self._is_exceeded

    def set_active(self, *, is_active: bool) -> None:
        """Poll it often (during a call) or rarely (idle)."""
        self.is_running = is_active
        if is_active:
            self._watch.wake()

    def check(self) -> None:
        """Kill it if its tree exceeds the limit."""
        with self._lock:
            if self._is_released or self._is_exceeded or self._has_ended():
                return
            # Checked for exit before and after reading /proc: the pid may have been reused meanwhile, and
            # another process's memory must not count. The kill goes to the pidfd, never to the pid.
            if tree_bytes(self._process, self._memory_bytes) > self._memory_bytes and not self._has_ended():
                self._is_exceeded = True
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _has_ended(self) -> bool:
        """Whether it has exited, so that its pid may be reused."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        return bool(ended.poll(0))

    def release(self) -> None:
        """Stop watching; the pidfd may be closed afterwards."""
        with self._lock:
            self._is_released = True
        self._watch.forget(self)


class Watch:
    """The polling thread; runs only while there are workers."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._is_resting = False
        """Whether it waits for the long interval, because no call runs."""

    def add(self, pidfd: int, memory_bytes: int) -> Watched:
        """Start watching a worker. Raises OSError, or RuntimeError if no thread can be started."""
        watched = Watched(self, pidfd, memory_bytes)
        with self._change:
            if self._thread is None:
                thread = threading.Thread(target=self._poll, name="toolkeep-memory", daemon=True)
                thread.start()  # It waits for this lock first.
                self._thread = thread
            self._watched.add(watched)
        return watched

    def wake(self) -> None:
        """Switch to the short interval."""
        with self._change:
            if self._is_resting:
                self._change.notify()

    def forget(self, watched: Watched) -> None:
        """Stop watching."""
        with self._change:
            self._watched.discard(watched)
            if not self._watched:
                self._change.notify()

    def _poll(self) -> None:
        worked_s = 0.0
        while True:
            with self._change:
                self._wait_for_poll(worked_s * _SHARE)
                if not self._watched:
                    self._thread = None
                    return
                watched = tuple(self._watched)
            began = time.thread_time()
            for one in watched:
                one.check()
            worked_s = time.thread_time() - began

    def _wait_for_poll(self, shortest_s: float) -> None:
        """Wait until the next poll is due; while idle, until a call begins or for the long interval."""
        if self._watched and not any(one.is_running for one in self._watched):
            self._is_resting = True
            self._change.wait(WAITING_SECONDS)
            self._is_resting = False
        if self._watched:
            self._change.wait(max(RUNNING_SECONDS, shortest_s))
