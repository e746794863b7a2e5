"""`run_command`: run one program with its arguments in the sandbox; returns its output and how it ended.

There is no shell, so nothing in the arguments is interpreted. The program gets no input, an almost empty
environment, and what the call was granted. Of a long output the beginning and the end are returned.
"""

import errno
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, NamedTuple

from toolkeep.definitions.command_line import NoCommand, split_command
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.limits import OUTPUT_CAP_BYTES
from toolkeep.text.display import visible
from toolkeep.tools.tool_path import ToolPath, reason

_HEAD_BYTES: Final = 15_000
"""Errors stand at the beginning or at the end; both together are some 8,000 tokens."""
_TAIL_BYTES: Final = 15_000
"""The same for the end."""
_LAST_WORDS: Final = 1500
_CHUNK: Final = 1 << 16
_PIPE_CHUNKS: Final = 16
"""The capacity of a pipe, unless root raised it."""
_LOOK_AGAIN_S: Final = 0.02
"""How often to check for the end of a program whose output stays open, or was closed early."""


def run_command(
    command: Sequence[str],
    working_directory: Sequence[str],
    timeout_seconds: int = 60,
    *,
    capture_stderr: bool = True,
) -> str:
    """The output of the program; the last line says how it ended.

    `command` is the line, the real path of its program, and the path by which that was found. The real path
    is what policy decided about and what is executed: a symlink that changes meanwhile makes no difference.
    """
    line, real, found = command
    try:
        words = split_command(line)
    except NoCommand as error:
        raise ToolFailed(f"The command cannot be run: {error}") from error
    run = run_program(
        [_name(words[0], found), *words[1:]],
        program=real,
        name=words[0],
        environment=_environment(found),
        folder=ToolPath(*working_directory),
        seconds=timeout_seconds,
        capture_stderr=capture_stderr,
    )
    text = _readable(run)
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[{run.ending}]"


def _name(word: str, found: str) -> str:
    """The program's argv[0]."""
    return found if "/" in word else word


def _environment(found: str) -> dict[str, str]:
    """Our environment, with the program's folder first: Python finds its packages by the path it was started
    with."""
    return {**os.environ, "PATH": f"{os.path.dirname(found)}:{os.environ.get('PATH', os.defpath)}"}


def _readable(run: "Run") -> str:
    """The output without terminal escapes and invisible characters."""
    if b"\0" in run.head or b"\0" in run.tail:
        size = len(run.head) + len(run.tail) + run.left_out
        return f"[{size:,} bytes that are not text, so they are left out]\n"
    text = run.text().replace("\r\n", "\n")
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


def run_configured(
    argv: Sequence[str], program: Sequence[str], input_text: str, seconds: float, *, gives_text: bool
) -> Any:
    """The output of a program that is a tool, JSON or text; `ToolFailed` if it fails.

    `program` is its real path, and the path by which it was found.
    """
    real, found = program
    name = os.path.basename(argv[0])
    output = _Output(head_bytes=OUTPUT_CAP_BYTES)
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
        told.write(input_text.encode())
        told.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 -- the program that the configuration names, in a sandbox
                [_name(argv[0], found), *argv[1:]],
                executable=real,
                env=_environment(found),
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolFailed(f"'{name}' cannot be run: it {reason(error)}") from error
        with process:
            is_over = output.gather(process, time.monotonic() + seconds)
            if not is_over:
                os.killpg(process.pid, signal.SIGKILL)
        run = output.run(process.returncode if is_over else None, seconds)
        said = _last_words(errors)
    try:
        return _value_of(run, gives_text=gives_text)
    except ValueError as error:
        raise ToolFailed(f"{name}{error}{f': {said}' if said else ''}") from error


def _value_of(run: "Run", *, gives_text: bool) -> Any:
    """The output of a program; ValueError says why there is none."""
    if run.status != 0:
        raise ValueError(f": {run.ending}")
    if run.left_out or run.tail:
        raise ValueError(f" wrote more than {OUTPUT_CAP_BYTES:,} bytes")
    try:
        text = run.head.decode()
        return text if gives_text else json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f" wrote what is not UTF-8 at byte {error.start:,}") from error
    except (ValueError, RecursionError) as error:
        what = "nothing" if not run.head.strip() else "what is not JSON"
        raise ValueError(f" wrote {what} to its standard output") from error


def _last_words(errors: BinaryIO) -> str:
    """The end of a program's standard error."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_WORDS))
    return errors.read().decode("utf-8", "replace").strip()


class Run(NamedTuple):
    """How a program ended, and its output."""

    ending: str
    status: int | None
    """None if it was killed."""
    head: bytes
    tail: bytes
    left_out: int

    def text(self) -> str:
        """Its output, with the middle left out if it is long."""
        if not self.left_out:
            return (self.head + self.tail).decode("utf-8", "replace")
        head = self.head.decode("utf-8", "replace").rstrip("\ufffd")
        tail = self.tail.decode("utf-8", "replace").lstrip("\ufffd")
        return f"{head}\n[{self.left_out:,} bytes left out]\n{tail}"


def run_program(
    argv: Sequence[str],
    *,
    program: str,
    name: str,
    folder: ToolPath,
    seconds: float,
    capture_stderr: bool = True,
    environment: dict[str, str] | None = None,
) -> Run:
    """Run a program to its end or its deadline; the processes that it started are killed too."""
    try:
        process = subprocess.Popen(  # noqa: S603 -- a program that policy granted, in a sandbox
            list(argv),
            executable=program,
            cwd=folder.real,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if capture_stderr else subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        if error.filename == folder.real:
            raise ToolFailed(f"'{folder.named}' is not a folder") from error
        raise ToolFailed(f"'{name}' cannot be run: {_hindrance(error)}") from error
    except ValueError as error:
        raise ToolFailed(f"'{name}' cannot be run: an argument contains a NUL character") from error
    output = _Output()
    with process:
        try:
            is_over = output.gather(process, time.monotonic() + seconds)
        finally:
            # before it is reaped, so that the pid cannot belong to another process
            os.killpg(process.pid, signal.SIGKILL)
    return output.run(process.returncode if is_over else None, seconds)


def _hindrance(error: OSError) -> str:
    told = {
        errno.ENOENT: "there is no such program, or its interpreter is missing",
        errno.EACCES: "it is not a program, or may not be executed",
        errno.ENOEXEC: "it is not a program; a script begins with #! and its interpreter",
        errno.E2BIG: "its arguments are too long",
    }
    return told.get(error.errno or 0, f"it {reason(error)}")


class _Output:
    """The beginning and the end of a program's output."""

    def __init__(self, head_bytes: int = _HEAD_BYTES) -> None:
        self._head_bytes = head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def gather(self, process: "subprocess.Popen[bytes]", until: float) -> bool:
        """Read until the program has ended; False if its deadline passed before.

        Its output may stay open longer: a process that it left behind holds the pipe.
        """
        if process.stdout is None:  # cannot happen: stdout is a pipe
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while time.monotonic() < until:
                if _has_ended(process):
                    self._take_rest(process.stdout.fileno(), selector)
                    return True
                if selector.select(_LOOK_AGAIN_S):
                    chunk = os.read(process.stdout.fileno(), _CHUNK)
                    if not chunk:
                        return _ends(process, until)
                    self._take(chunk)
        return False

    def _take_rest(self, descriptor: int, selector: selectors.BaseSelector) -> None:
        """Read what is in the pipe now; a process that was left behind may keep filling it."""
        for _ in range(_PIPE_CHUNKS):
            if not selector.select(0):
                return
            self._take(os.read(descriptor, _CHUNK))

    def _take(self, chunk: bytes) -> None:
        room = self._head_bytes - len(self._head)
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
            ending = f"ended by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
        else:
            ending = f"exit status {status}"
        if not self._head:
            ending = f"no output, {ending}"
        return Run(ending, status, bytes(self._head), bytes(self._tail), self._left_out)


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Check without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ends(process: "subprocess.Popen[bytes]", until: float) -> bool:
    """Whether it ends in time after closing its output."""
    while time.monotonic() < until:
        if _has_ended(process):
            return True
        time.sleep(_LOOK_AGAIN_S)
    return False
