"""`run_command`: one program with its arguments, in the sandbox; its output, and how it ended.

No shell is asked. The program gets no input, an almost empty environment, and what the call was granted. Of a
long output its beginning and its end are given.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolkeep.definitions.command_line import NoCommand, split_command
from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.place import Place, reason

_HEAD_BYTES: Final = 15_000
_TAIL_BYTES: Final = 15_000
_CHUNK: Final = 1 << 16


def run_command(
    command: Sequence[str],
    working_directory: Sequence[str],
    timeout_seconds: int = 60,
    *,
    capture_stderr: bool = True,
) -> str:
    """What the program wrote; the last line says how it ended."""
    line = Place(*command)
    try:
        words = split_command(line.named)
    except NoCommand as error:
        raise ToolFailed(f"The command cannot be run: {error}") from error
    run = run_program(
        [line.real, *words[1:]],
        name=words[0],
        folder=Place(*working_directory),
        seconds=timeout_seconds,
        capture_stderr=capture_stderr,
    )
    text = run.text()
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[{run.ending}]"


class Run(NamedTuple):
    """How a program ended, and what it wrote."""

    ending: str
    status: int | None
    """None where it was stopped."""
    head: bytes
    tail: bytes
    left_out: int

    def text(self) -> str:
        """What it wrote, the middle left out where that is long."""
        if not self.left_out:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = self.head.decode("utf-8", "replace"), self.tail.decode("utf-8", "replace")
        return f"{head}\n[{self.left_out:,} bytes left out]\n{tail}"


def run_program(
    argv: Sequence[str],
    *,
    name: str,
    folder: Place,
    seconds: float,
    capture_stderr: bool = True,
    environment: dict[str, str] | None = None,
) -> Run:
    """Run a program to its end, or to the end of its time."""
    try:
        process = subprocess.Popen(  # noqa: S603 -- a program that policy granted, in a sandbox
            [name, *argv[1:]],
            executable=argv[0],
            cwd=folder.real,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if capture_stderr else subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    except OSError as error:
        if not os.path.isdir(folder.real):  # noqa: PTH112 -- text
            raise ToolFailed(f"'{folder.named}' is no folder to run a command in") from error
        raise ToolFailed(f"'{name}' cannot be run: it {reason(error)}") from error
    output = _Output()
    with process:
        is_over = output.gather(process, time.monotonic() + seconds)
        if not is_over:
            os.killpg(process.pid, signal.SIGKILL)
    return output.run(process.returncode if is_over else None, seconds)


class _Output:
    """The beginning and the end of what a program writes."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def gather(self, process: "subprocess.Popen[bytes]", until: float) -> bool:
        """Read until the program has ended; False where its time was up before."""
        if process.stdout is None:  # never: it was asked for
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0:
                if not selector.select(left):
                    continue
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                if not chunk:
                    return self._ended(process, until)
                self._take(chunk)
        return False

    def _ended(self, process: "subprocess.Popen[bytes]", until: float) -> bool:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _take(self, chunk: bytes) -> None:
        room = _HEAD_BYTES - len(self._head)
        self._head += chunk[:room] if room > 0 else b""
        self._tail += chunk[max(0, room) :]
        if len(self._tail) > _TAIL_BYTES:
            self._left_out += len(self._tail) - _TAIL_BYTES
            del self._tail[:-_TAIL_BYTES]

    def run(self, status: int | None, seconds: float) -> Run:
        """How it ended, in words."""
        if status is None:
            ending = f"stopped after {seconds:g} s: it did not end in time"
        elif status < 0:
            ending = f"ended by signal {-status} ({signal.Signals(-status).name})"
        else:
            ending = f"exit status {status}"
        if not self._head:
            ending = f"no output, {ending}"
        return Run(ending, status, bytes(self._head), bytes(self._tail), self._left_out)
