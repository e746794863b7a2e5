"""`toolkeep serve FILE --reload`: follows files of tools, and asks where a change is looser."""

import contextlib
import os
import select
import signal
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from toolkeep.cli.accept_tools import reviewed, reviewed_lines
from toolkeep.cli.options import is_terminal, say, say_done, say_failed, warn
from toolkeep.compat.value_diff import value_difference
from toolkeep.config.code_copy import copy_tools_file
from toolkeep.config.tools_file import ToolsFile
from toolkeep.errors import FileUnreadable, ToolkeepError
from toolkeep.keep.keep import Keep
from toolkeep.keep.reload_tools_file import ToolsFileReload
from toolkeep.registry.reload_tools import Reloaded, Waiting

_EVERY_S: Final = 0.5
"""Time between two looks at the files."""
_END_S: Final = 2.0
"""How long a look that runs may finish at shutdown."""
_LINE_BYTES: Final = 4096
"""Longest line that a terminal hands over."""


def check_reload(tools: Sequence[str], *, as_json: bool) -> None:
    """Refuse `--reload` where nobody can see and answer what a change would loosen."""
    if not tools:
        raise click.UsageError("--reload follows a FILE of tools: name one.")
    if as_json or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise click.UsageError("--reload needs a terminal, to show and ask what a change would loosen.")


class ReloadedFiles:
    """The files of one server, and the copies of their code, in a folder that ends with it."""

    def __init__(self, files: Sequence[ToolsFile], folder: Path) -> None:
        """Raises `FileUnreadable` for code that cannot be copied."""
        for file in files:
            if not file.code:
                raise FileUnreadable(file.shown, "lies outside the project, so it cannot be reloaded")
        self._files = files
        self._folder = folder
        self.copies = [copy_tools_file(file, folder) for file in files]

    @contextlib.contextmanager
    def followed(self, keep: Keep, root: Path) -> Iterator[None]:
        """Follow the files, whose copies the keep has loaded, in a thread."""
        pairs = zip(self._files, self.copies, strict=True)
        files = [ToolsFileReload(keep, file, copied, self._folder, root) for file, copied in pairs]
        is_over = threading.Event()
        thread = threading.Thread(target=_follow, args=(files, is_over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(_END_S)


@contextlib.contextmanager
def reloaded_files(files: Sequence[ToolsFile]) -> Iterator[ReloadedFiles]:
    """Copies of the files in a private folder."""
    made = tempfile.TemporaryDirectory(prefix="toolkeep-code-", ignore_cleanup_errors=True)
    with made as name, _ended_with_terminal():
        yield ReloadedFiles(files, Path(os.path.realpath(name)))


@contextlib.contextmanager
def _ended_with_terminal() -> Iterator[None]:
    """Shut down as on SIGTERM when the terminal is closed: by default the copies would be left behind."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _follow(files: Sequence[ToolsFileReload], is_over: threading.Event) -> None:
    terminal = _Terminal()
    while not is_over.is_set():
        is_yes = terminal.is_yes(is_over)
        for file in files:
            if is_yes and file.has_waiting:
                _take(file)
            _look(file, terminal)


def _take(file: ToolsFileReload) -> None:
    try:
        say_done(f"{file.shown}: reloaded {', '.join(file.take())}", err=True)
    except ToolkeepError as error:
        say_failed(*str(error).split("\n"), err=True)


def _look(file: ToolsFileReload, terminal: "_Terminal") -> None:
    try:
        done = file.look()
    except ToolkeepError as error:
        say_failed(*str(error).split("\n"), err=True)
        say("  The last version that could be imported is still served.", err=True)
        return
    if done is not None:
        if done.waiting:
            terminal.forget_typed()
        _report(file.shown, done)


def _report(shown: str, done: Reloaded) -> None:
    if done.taken:
        say_done(f"{shown}: reloaded {', '.join(done.taken)}", err=True)
    if done.removed:
        say_done(f"{shown}: removed {', '.join(done.removed)}", err=True)
    for skipped in done.skipped:
        first, *more = skipped.error.message.split("\n")
        warn(f"{shown}: skipped '{skipped.tool}': {first}", *more)
    for waiting in done.waiting:
        what = "is new" if waiting.is_new else "waits: its change is not known to be stricter"
        warn(f"{shown}: {waiting.tool.name} {what}", *_lines(waiting))
    if done.waiting:
        say("  To take this, type y and Enter. Until then these tools stay as they are.", err=True)


def _lines(waiting: Waiting) -> Iterator[str]:
    if waiting.objection:
        yield f"  {waiting.objection}"
    if waiting.is_new:
        yield from (f"  {line}" for line in reviewed_lines(reviewed(waiting.tool.definition.to_dict())))
    for change in waiting.changes:
        yield f"  {change.field}: {change.what}"
        yield from (f"    {line}" for line in value_difference(change.before, change.after))


class _Terminal:
    """The lines that the person types."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._is_open = True

    def is_yes(self, is_over: threading.Event) -> bool:
        """Wait for a line or for the time of the next look; whether the line is a yes."""
        if not self._is_open or not self._is_ours():
            is_over.wait(_EVERY_S)
            return False
        if not select.select([self._file], [], [], _EVERY_S)[0] or not self._is_ours():
            return False
        try:
            typed = os.read(self._file, _LINE_BYTES)
        except OSError:
            typed = b""
        self._is_open = bool(typed)
        return typed.strip().lower() in (b"y", b"yes")

    def forget_typed(self) -> None:
        """Drop what was typed before: it cannot be an answer to what is shown next."""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._file, termios.TCIFLUSH)

    def _is_ours(self) -> bool:
        """Whether this is the foreground job: the kernel stops another one that reads (SIGTTIN)."""
        try:
            return os.tcgetpgrp(self._file) == os.getpgrp()
        except OSError:
            return False
