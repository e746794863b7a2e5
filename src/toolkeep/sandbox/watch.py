"""Watches the memory of workers that may start processes, where no cgroup counts it.

A thread looks at each tree of processes, often while its call runs and seldom while it waits for one, and
kills the worker when all its processes together take more than granted. Between two looks more can be taken,
and memory that is shared but mapped by nobody at the moment is not seen: only a cgroup counts that.
"""

import contextlib
import select
import signal
import threading
import time
from typing import Final

from toolkeep.sandbox.processes import host_pid, tree_bytes

RUNNING_SECONDS: Final = 0.05
"""Between two looks at a worker whose call runs; a look takes some 60 microseconds for each process."""

WAITING_SECONDS: Final = 0.5
"""The same where every worker waits for its call."""

_SHARE: Final = 20
"""Looking never takes more than one part in so many of a processor."""


class Watched:
    """One worker under watch."""

    def __init__(self, watch: "Watch", pidfd: int, memory_bytes: int) -> None:
        self._watch = watch
        self._pidfd = pidfd
        self._process = host_pid(pidfd)
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        """Held while the worker is looked at: its descriptor must not be closed meanwhile."""
        self._is_released = False
        self._is_exceeded = False
        self.is_running = True
        """Whether it has a call, or may get one at once."""

    def is_exceeded(self) -> bool:
        """Whether it was killed for its memory."""
        return self._is_exceeded

    def attend(self, *, closely: bool) -> None:
        """Look at it often, or seldom."""
        self.is_running = closely
        if closely:
            self._watch.wake()

    def look(self) -> None:
        """Kill it if it takes too much."""
        with self._lock:
            if self._is_released or self._is_exceeded or self._has_ended():
                return
            if tree_bytes(self._process, self._memory_bytes) > self._memory_bytes and not self._has_ended():
                self._is_exceeded = True
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _has_ended(self) -> bool:
        """Whether its number may be another's by now."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        return bool(ended.poll(0))

    def release(self) -> None:
        """Look at it no more; from here on its descriptor may be closed."""
        with self._lock:
            self._is_released = True
        self._watch.forget(self)


class Watch:
    """A thread that looks at the workers, for as long as there are any."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._is_resting = False
        """Whether it waits for longer, because no call runs."""

    def hold(self, pidfd: int, memory_bytes: int) -> Watched:
        """Watch a worker from now on. Raises OSError, or RuntimeError where no thread can be started."""
        watched = Watched(self, pidfd, memory_bytes)
        with self._change:
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="toolkeep-memory", daemon=True)
                thread.start()  # waits for this lock before it looks
                self._thread = thread
            self._watched.add(watched)
        return watched

    def wake(self) -> None:
        """Look often from now on."""
        with self._change:
            if self._is_resting:
                self._change.notify()

    def forget(self, watched: Watched) -> None:
        """Watch it no longer."""
        with self._change:
            self._watched.discard(watched)
            if not self._watched:
                self._change.notify()

    def _look(self) -> None:
        worked_s = 0.0
        while True:
            with self._change:
                self._rest(worked_s * _SHARE)
                if not self._watched:
                    self._thread = None
                    return
                watched = tuple(self._watched)
            began = time.thread_time()
            for one in watched:
                one.look()
            worked_s = time.thread_time() - began

    def _rest(self, shortest_s: float) -> None:
        """Wait until the next look is due; where no call runs, until one begins or for longer."""
        if self._watched and not any(one.is_running for one in self._watched):
            self._is_resting = True
            self._change.wait(WAITING_SECONDS)
            self._is_resting = False
        if self._watched:
            self._change.wait(max(RUNNING_SECONDS, shortest_s))
