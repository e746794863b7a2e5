"""`grep_search`: the lines of files that fit a regular expression, in linear time whatever it is.

Leaves out what ignore files name, hidden files, binary files and huge ones, and says so. Follows no link.
Stops after so many lines, bytes and seconds, and gives what it found until then.
"""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import re2

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.globbing import Glob
from toolkeep.tools.ignoring import Ignored
from toolkeep.tools.place import Place

LINES: Final = 200
"""Lines that one call gives."""

_LINE_CHARS: Final = 250
_FILE_BYTES: Final = 16 << 20
_BYTES: Final = 2 << 30
_SECONDS: Final = 20.0
_LOOKED_AT: Final = 8192
_EXPRESSION_BYTES: Final = 8 << 20
"""What an expression may take in memory once it is compiled."""


def grep_search(
    pattern: str, path: Sequence[str], *, case_insensitive: bool = False, file_pattern: str | None = None
) -> str:
    """The lines that fit, under the file that they stand in."""
    place = Place(*path)
    search = _Search(_compiled(pattern, case_insensitive=case_insensitive))
    glob = None if file_pattern is None else Glob(file_pattern)
    if os.path.isdir(place.real):  # noqa: PTH112 -- text
        files = _files(place.real, glob)
    else:
        place.open().close()  # says what is wrong with it
        files = iter([(place.real, "")])
    parts: list[str] = []
    for full, relative in files:
        if search.is_over():
            break
        if found := search.lines(full):
            parts.append("\n".join([place.inside(relative) if relative else place.named, *found]))
    return "\n\n".join(filter(None, ["\n\n".join(parts), "\n".join(search.notes())]))


def _compiled(pattern: str, *, case_insensitive: bool) -> Any:
    options = re2.Options()
    options.case_sensitive = not case_insensitive
    options.never_nl = True
    options.log_errors = False
    options.max_mem = _EXPRESSION_BYTES
    try:
        return re2.compile(f"(?m){pattern}", options)
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error.args[0]
        hint = "look-around and back-references are not there; search for literal text with \\Q...\\E"
        raise ToolFailed(f"'{pattern}' is no regular expression that can be used ({said}); {hint}") from error


def _files(root: str, glob: Glob | None) -> Iterator[tuple[str, str]]:
    """Every file to be looked at, and its path from the root, in the order of names."""
    waiting = [(root, Ignored(root))]
    while waiting:
        folder, ignored = waiting.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            continue
        inside: list[tuple[str, Ignored]] = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if ignored.has_rules and ignored.covers(entry.path, is_folder=is_folder):
                continue
            if is_folder:
                inside.append((entry.path, Ignored(entry.path, ignored)))
            elif entry.is_file(follow_symlinks=False):
                relative = entry.path[len(root) + 1 :]
                if glob is None or glob.fits(relative):
                    yield entry.path, relative
        waiting += reversed(inside)


class _Search:
    """Looks through files until it has enough."""

    def __init__(self, expression: Any) -> None:
        self._find = expression.search
        self._until = time.monotonic() + _SECONDS
        self._bytes = 0
        self._lines = 0
        self._files = 0
        self._found_in = 0
        self._left_out = {"binary": 0, f"larger than {_FILE_BYTES >> 20} MB": 0, "not readable": 0}
        self._why = ""

    def is_over(self) -> bool:
        """Whether no more files are to be looked at."""
        if self._lines >= LINES:
            self._why = f"the first {LINES} lines; there may be more: narrow path, pattern or file_pattern"
        elif self._bytes > _BYTES or time.monotonic() > self._until:
            self._why = f"stopped after {self._files:,} files: narrow path or file_pattern"
        return bool(self._why)

    def lines(self, path: str) -> list[str]:
        """The lines of one file that fit, each with its number."""
        data = self._content(path)
        found: list[str] = []
        position = counted = number = 0
        while position <= len(data) and (match := self._find(data, position)) is not None:
            start = data.rfind(b"\n", 0, match.start()) + 1
            end = data.find(b"\n", match.end())
            end = len(data) if end < 0 else end
            if start == len(data):  # behind the last newline there is no line
                break
            number += data.count(b"\n", counted, start)
            counted = start
            found.append(f"  {number + 1}: {_shown(data[start:end], match.start() - start)}")
            position = end + 1
            if self._lines + len(found) >= LINES:
                break
        self._lines += len(found)
        self._found_in += bool(found)
        return found

    def _content(self, path: str) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(_FILE_BYTES + 1)
        except OSError:
            self._left_out["not readable"] += 1
            return b""
        self._files += 1
        self._bytes += len(data)
        if b"\0" in data[:_LOOKED_AT]:
            self._left_out["binary"] += 1
            return b""
        if len(data) > _FILE_BYTES:
            self._left_out[f"larger than {_FILE_BYTES >> 20} MB"] += 1
            return b""
        return data

    def notes(self) -> Iterator[str]:
        """What a reader should know of what was not found."""
        if not self._lines:
            yield f"[no line in {_files_in_words(self._files)} fits]"
        if self._why:
            yield f"[{self._why}]"
        left_out = [f"{count:,} {what}" for what, count in self._left_out.items() if count]
        if left_out:
            yield f"[files left out: {', '.join(left_out)}]"


def _files_in_words(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _shown(line: bytes, at: int) -> str:
    """A line that fits, cut around where it does."""
    text = line.decode("utf-8", "replace").rstrip("\r")
    if len(text) <= _LINE_CHARS:
        return text
    start = max(0, len(line[:at].decode("utf-8", "replace")) - _LINE_CHARS // 3)
    end = start + _LINE_CHARS
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
