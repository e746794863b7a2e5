"""Ends the worker, with everything that it runs, if it does not end its jobs itself when their lease is over.

A worker that is stopped or hangs cannot look at its clock. So another process does: a child that shares one
number with it, the time at which the next lease is over. Every confined process of a worker ends with it.
"""

import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time
from types import TracebackType
from typing import Final, Self

_LOOK_SECONDS: Final = 0.05
"""A tenth of the margin that a lease leaves."""
_NUMBER: Final = struct.Struct("d")


class LeaseWatchdog:
    """The child, for as long as the worker runs."""

    def __init__(self) -> None:
        self._file = os.memfd_create("toolkeep-lease")
        os.ftruncate(self._file, _NUMBER.size)
        self._shared = mmap.mmap(self._file, _NUMBER.size)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether somebody watches."""
        return self._child is not None and self._child.poll() is None

    def set(self, ends_at: float) -> None:
        """The time, on CLOCK_BOOTTIME, at which the worker must have ended its jobs; 0 for none."""
        self._shared[:] = _NUMBER.pack(ends_at)

    def __enter__(self) -> Self:
        held = os.pidfd_open(os.getpid())
        command = [sys.executable, "-I", "-S", "-B", __file__, str(self._file), str(held)]
        try:
            self._child = subprocess.Popen(  # noqa: S603 -- our own file
                command, pass_fds=(self._file, held), stdin=subprocess.DEVNULL, start_new_session=True, env={}
            )
        finally:
            os.close(held)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.set(0.0)
        if self._child is not None:
            self._child.kill()
            self._child.wait()


def watch(shared: int, worker: int) -> None:
    """Until the worker is gone: kill it when its time is over."""
    number = mmap.mmap(shared, _NUMBER.size)
    gone = select.poll()
    gone.register(worker, select.POLLIN)
    while not gone.poll(_LOOK_SECONDS * 1000):
        (ends_at,) = _NUMBER.unpack(number[:])
        if ends_at and time.clock_gettime(time.CLOCK_BOOTTIME) > ends_at:
            signal.pidfd_send_signal(worker, signal.SIGKILL)
            return


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
