"""`list_directory`: the entries of a folder, one for each line, folders with a slash at the end.

Follows no symlink, so loops and links out of the folder do no harm, and stops after a number of entries.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.glob import Glob
from toolkeep.tools.tool_path import ToolPath, kind_of, reason, shown_name

ENTRIES: Final = 1_000
"""More is no help to a model; a pattern narrows the list."""
TEXT_CHARS: Final = 50_000
"""The size of one result; names can be long."""

_LOOKED_AT: Final = 200_000
"""Entries visited, also those that do not match the pattern."""

_CLOSED: Final = 5
"""Unreadable folders that are named."""

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def list_directory(
    path: Sequence[str],
    pattern: str = "*",
    *,
    recursive: bool = False,
    include_hidden: bool = False,
    max_depth: int = 5,
) -> str:
    """The entries, one for each line."""
    place = ToolPath(*path)
    _check_folder(place)
    glob = None if pattern in ("*", "**", "**/*") else Glob(pattern)
    walk = _Walk(include_hidden=include_hidden, depth=max_depth if recursive else 1)
    lines: list[str] = []
    room = TEXT_CHARS
    for relative, entry in walk.entries(place.real):
        if glob is None or glob.fits(relative):
            line = _line(relative, entry)
            room -= len(line) + 1
            if len(lines) == ENTRIES or room < 0:
                walk.is_cut = True
                break
            lines.append(line)
    return "\n".join([*lines, *_notes(lines, walk, place)])


def _check_folder(place: ToolPath) -> None:
    try:
        mode = os.lstat(place.real).st_mode
        if not stat.S_ISDIR(mode):
            hint = "; use read_file" if stat.S_ISREG(mode) else ""
            raise ToolFailed(f"'{place.named}' is {kind_of(mode)}, not a folder{hint}")
        os.close(os.open(place.real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        raise ToolFailed(f"'{place.named}' {reason(error)}") from error


class _Walk:
    """Walks a folder in order of names, each folder before its entries."""

    def __init__(self, *, include_hidden: bool, depth: int) -> None:
        self._include_hidden = include_hidden
        self._depth = depth
        self._left = _LOOKED_AT
        self.seen = 0
        self.hidden = 0
        self.closed: list[str] = []
        self.is_cut = False

    def entries(self, folder: str, above: str = "", level: int = 1) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Each entry with its path from the start of the walk."""
        for entry in self._inside(folder, above):
            relative = f"{above}{entry.name}"
            yield relative, entry
            if level < self._depth and entry.is_dir(follow_symlinks=False):
                yield from self.entries(entry.path, f"{relative}/", level + 1)

    def _inside(self, folder: str, above: str) -> "list[os.DirEntry[str]]":
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as scan:
                for entry in scan:
                    if self._left == 0:
                        self.is_cut = True
                        break
                    self._left -= 1
                    if entry.name.startswith(".") and not self._include_hidden:
                        self.hidden += 1
                    else:
                        self.seen += 1
                        found.append(entry)
        except OSError:
            self.closed.append(above)
        return sorted(found, key=lambda entry: entry.name)


def _line(relative: str, entry: "os.DirEntry[str]") -> str:
    name = shown_name(relative)
    try:
        if entry.is_symlink():
            return f"{name} -> {shown_name(os.readlink(entry.path))}"
        if entry.is_dir(follow_symlinks=False):
            return f"{name}/"
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it was deleted meanwhile
        return name
    if stat.S_ISREG(status.st_mode):
        return f"{name}  {size_in_words(status.st_size)}"
    return f"{name}  ({kind_of(status.st_mode)})"


def size_in_words(size: int) -> str:
    """`4.2 KB`."""
    amount, unit = float(size), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    if size == 1:
        return "1 byte"
    return f"{size:,} bytes" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def _notes(lines: list[str], walk: _Walk, place: ToolPath) -> Iterator[str]:
    hidden = "1 hidden entry" if walk.hidden == 1 else f"{walk.hidden:,} hidden entries"
    if walk.is_cut:
        yield f"[the first {len(lines):,} entries; list a folder inside, or use pattern]"
    elif walk.seen and not lines:
        yield "[no entry fits the pattern]"
    elif not walk.seen and not walk.hidden and not walk.closed:
        yield "[the folder is empty]"
    if walk.hidden:
        yield f"[{hidden} left out; include_hidden shows them]"
    for folder in walk.closed[:_CLOSED]:
        yield f"[{place.inside(folder)} may not be read]"
    if len(walk.closed) > _CLOSED:
        yield f"[nor may {len(walk.closed) - _CLOSED:,} more folders]"
