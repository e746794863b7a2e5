"""Ends the worker, with everything that it runs, if it does not end its jobs itself when their lease is over.

A worker that is stopped or hangs cannot look at its clock. So another process does: a child that is told
when the next lease is over, and sleeps until then. Every confined process of a worker ends with it.
"""

import os
import select
import signal
import struct
import subprocess
import sys
import time
from types import TracebackType
from typing import Final, Self

_LOOK_SECONDS: Final = 0.25
"""Half of the margin that a lease leaves."""
_NUMBER: Final = struct.Struct("d")


class LeaseWatchdog:
    """The child, for as long as the worker runs."""

    def __init__(self) -> None:
        self._ends_at = 0.0
        self._told = -1
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether somebody watches."""
        return self._child is not None and self._child.poll() is None

    def set(self, ends_at: float) -> None:
        """The time, on CLOCK_BOOTTIME, at which the worker must have ended its jobs; 0 for none.

        Raises `OSError` if nobody listens.
        """
        if ends_at != self._ends_at:
            os.write(self._told, _NUMBER.pack(ends_at))  # so short that it is written whole or not at all
            self._ends_at = ends_at

    def __enter__(self) -> Self:
        held = os.pidfd_open(os.getpid())
        heard, self._told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        command = [sys.executable, "-I", "-S", "-B", __file__, str(heard), str(held)]
        try:
            self._child = subprocess.Popen(  # noqa: S603 -- our own file
                command, pass_fds=(heard, held), stdin=subprocess.DEVNULL, start_new_session=True, env={}
            )
        finally:
            os.close(held)
            os.close(heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        os.close(self._told)


def watch(heard: int, worker: int) -> None:
    """Until the worker is gone: kill it when its time is over."""
    waiting = select.poll()
    waiting.register(heard, select.POLLIN)
    waiting.register(worker, select.POLLIN)
    ends_at = 0.0
    while True:
        left_s = max(0.0, ends_at - time.clock_gettime(time.CLOCK_BOOTTIME))
        # A machine that sleeps stops the clock of a poll, but not that of a lease: look at it again soon.
        ready = dict(waiting.poll(min(left_s, _LOOK_SECONDS) * 1000 if ends_at else None))
        if worker in ready:
            return
        if heard in ready:
            if told := os.read(heard, 1 << 16):
                (ends_at,) = _NUMBER.unpack(told[-_NUMBER.size :])
            else:
                waiting.unregister(heard)  # the worker ends; until it is gone, what it told last counts
        elif ends_at and time.clock_gettime(time.CLOCK_BOOTTIME) > ends_at:
            signal.pidfd_send_signal(worker, signal.SIGKILL)
            return


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
