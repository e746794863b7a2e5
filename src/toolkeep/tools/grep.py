"""`grep_search`: the lines that match a regular expression, in linear time whatever the expression.

Skips ignored, hidden, binary and huge files, and says so. Follows no symlink: one could point outside the
granted folder, or form a loop. Stops after a number of lines, bytes and seconds, also within one file, and
returns what it found until then.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import re2

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.glob import Glob
from toolkeep.tools.ignore_files import IgnoreRules
from toolkeep.tools.tool_path import ToolPath

_CLOSED: Final = "closed folders"

LINES: Final = 200
"""Lines in one result."""

_LINE_CHARS: Final = 250
"""A minified file has one line of a megabyte."""
_FILE_BYTES: Final = 16 << 20
"""Larger files are data or logs; they are named as skipped."""
_BYTES: Final = 2 << 30
"""Bytes read by one call: as much as a disk gives in the time of one."""
_SECONDS: Final = 20.0
"""Well within the tool's deadline, so that what was found is returned."""
_LOOKED_AT: Final = 8192
_STRETCH: Final = 1 << 16
"""How much of a file is searched between two looks at the clock; more if a line is longer."""
_EXPRESSION_BYTES: Final = 8 << 20
"""The memory of a compiled expression: nested repetitions could take gigabytes."""


def grep_search(
    pattern: str, path: Sequence[str], *, case_insensitive: bool = False, file_pattern: str | None = None
) -> str:
    """The matching lines, grouped by file."""
    place = ToolPath(*path)
    search = _Search(_compiled(pattern, case_insensitive=case_insensitive))
    glob = None if file_pattern is None else Glob(file_pattern)
    if os.path.isdir(place.real):
        files = search.files(place.real, glob)
    else:
        place.open().close()  # raises what is wrong with it
        files = iter([(place.real, "")])
    parts: list[str] = []
    for full, relative in files:
        if found := search.lines(full):
            parts.append("\n".join([place.inside(relative) if relative else place.named, *found]))
        if search.is_over():
            break
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
        said = said.replace("(?m)", "", 1)
        hint = "look-around and back-references are not there; search for literal text with \\Q...\\E"
        raise ToolFailed(f"'{pattern}' is not a valid regular expression ({said}); {hint}") from error


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    with os.scandir(folder) as scan:
        return sorted(
            (entry for entry in scan if not entry.name.startswith(".")), key=lambda entry: entry.name
        )


class _Search:
    """Searches files until it has enough."""

    def __init__(self, expression: Any) -> None:
        self._find = expression.search
        self._until = time.monotonic() + _SECONDS
        self._bytes = 0
        self._lines = 0
        self._files = 0
        self._left_out: Counter[str] = Counter()
        self._why = ""

    def is_over(self) -> bool:
        """Whether a limit is reached."""
        if self._lines >= LINES:
            self._why = f"the first {LINES} lines; there may be more: narrow path, pattern or file_pattern"
        elif self._bytes > _BYTES or time.monotonic() > self._until:
            self._why = f"stopped after {_in_words(self._files)}: narrow path or file_pattern"
        return bool(self._why)

    def files(self, root: str, glob: Glob | None) -> Iterator[tuple[str, str]]:
        """Every file to search, with its path from the root, sorted by name."""
        waiting = [(root, IgnoreRules(root))]
        while waiting and not self.is_over():
            folder, ignored = waiting.pop()
            try:
                entries = _entries(folder)
            except OSError:
                self._left_out[_CLOSED] += 1
                continue
            inside: list[tuple[str, IgnoreRules]] = []
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if ignored.covers(entry.path, is_folder=is_folder):
                    continue
                if is_folder:
                    inside.append((entry.path, IgnoreRules(entry.path, ignored)))
                elif entry.is_file(follow_symlinks=False):
                    relative = entry.path[len(root.rstrip("/")) + 1 :]
                    if glob is None or glob.fits(relative):
                        yield entry.path, relative
            waiting += reversed(inside)

    def lines(self, path: str) -> list[str]:
        """The matching lines of one file with their numbers."""
        data = self._content(path)
        found: list[str] = []
        position = counted = number = 0
        while position < len(data) and not self.is_over():
            stretch = _end_of_line(data, position + _STRETCH)
            match = self._find(data, position, stretch)
            if match is None or match.start() == len(data):  # there is no line after the last newline
                position = stretch + 1
                continue
            start = data.rfind(b"\n", 0, match.start()) + 1
            end = _end_of_line(data, match.end())
            number += data.count(b"\n", counted, start)
            counted = start
            found.append(f"  {number + 1}: {_shown(data[start:end], match.start() - start)}")
            self._lines += 1
            position = end + 1
        return found

    def _content(self, path: str) -> bytes:
        try:
            with ToolPath(path, path).open() as file:
                data = file.read(_FILE_BYTES + 1)
        except (OSError, ToolFailed):
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
        return data.replace(b"\r\n", b"\n")

    def notes(self) -> Iterator[str]:
        """What was not searched or not shown."""
        closed = self._left_out.pop(_CLOSED, 0)
        if not self._lines:
            yield f"[no line in {_in_words(self._files)} fits; each is searched by itself, without its end]"
        if self._why:
            yield f"[{self._why}]"
        if self._left_out:
            left_out = ", ".join(f"{count:,} {what}" for what, count in self._left_out.items())
            yield f"[files left out: {left_out}]"
        if closed:
            yield f"[{_in_words(closed, 'folder')} may not be read]"


def _in_words(count: int, what: str = "file") -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def _end_of_line(data: bytes, position: int) -> int:
    end = data.find(b"\n", position)
    return len(data) if end < 0 else end


def _shown(line: bytes, at: int) -> str:
    """A matching line, cut around the match."""
    text = line.decode("utf-8", "replace")
    if len(text) <= _LINE_CHARS:
        return text
    start = max(0, len(line[:at].decode("utf-8", "replace")) - _LINE_CHARS // 3)
    end = start + _LINE_CHARS
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
