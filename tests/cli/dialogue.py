"""A person at a terminal of their own: reads what a command shows, and types only when asked."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_S = 60


def _take_terminal() -> None:
    """So that Ctrl-C and a hang-up are signals, and count, also where the tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Dialogue:
    """One command on a terminal."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        variables: Mapping[str, str] | None = None,
        columns: int = 100,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "toolkeep", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, **(variables or {})},
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 -- no threads here
        )
        os.close(slave)
        self.shown = ""
        self._read_to = 0

    def until(self, words: str) -> str:
        """What was shown since the last time, up to these words and the rest of what came with them."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.shown[self._read_to :]:
            assert self._more(deadline), f"it ended without {words!r}:\n{self.shown}"
        new, self._read_to = self.shown[self._read_to :], len(self.shown)
        return new

    def enter(self, text: str) -> None:
        """Type, as on a keyboard."""
        if "\x03" in text:
            time.sleep(0.3)  # Python sleeps through a signal that comes between its prompt and its reading
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """Exit status, and what was shown since the last time."""
        deadline = time.monotonic() + PATIENCE_S
        while self._more(deadline):
            pass
        return self._process.wait(PATIENCE_S), self.shown[self._read_to :]

    def hang_up(self) -> int:
        """Close the terminal; the exit status."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDONLY)
        return self._process.wait(PATIENCE_S)

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"it waits for something else:\n{self.shown}"
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the terminal closed
            return False
        self.shown += data.decode().replace("\r\n", "\n")
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._master)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
