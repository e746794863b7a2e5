"""`list_directory`: what a folder holds, one entry a line, folders with a slash at the end.

Follows no link, so that loops do not matter, and stops after so many entries.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.globbing import Glob
from toolkeep.tools.place import Place, kind_of, reason

ENTRIES: Final = 1_000
"""What one call lists."""

_LOOKED_AT: Final = 200_000
"""Entries that are looked at for it, also those that the pattern leaves out."""

_UNITS: Final = ("bytes", "KB", "MB", "GB", "TB")


def list_directory(
    path: Sequence[str],
    pattern: str = "*",
    *,
    recursive: bool = False,
    include_hidden: bool = False,
    max_depth: int = 5,
) -> str:
    """The entries, a line each."""
    place = Place(*path)
    try:
        os.close(os.open(place.real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    except NotADirectoryError as error:
        raise ToolFailed(f"'{place.named}' is a file, not a folder; use read_file") from error
    except OSError as error:
        raise ToolFailed(f"'{place.named}' {reason(error)}") from error
    glob = None if pattern in ("*", "**", "**/*") else Glob(pattern)
    walk = _Walk(include_hidden=include_hidden, depth=max_depth if recursive else 1)
    lines: list[str] = []
    for relative, entry in walk.entries(place.real):
        if glob is None or glob.fits(relative):
            if len(lines) == ENTRIES:
                walk.is_cut = True
                break
            lines.append(_line(relative, entry))
    return "\n".join([*lines, *_notes(lines, walk, place)])


class _Walk:
    """Goes through a folder, in the order of names, each folder before what it holds."""

    def __init__(self, *, include_hidden: bool, depth: int) -> None:
        self._include_hidden = include_hidden
        self._depth = depth
        self._left = _LOOKED_AT
        self.hidden = 0
        self.closed: list[str] = []
        self.is_cut = False

    def entries(self, folder: str, above: str = "", level: int = 1) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Each entry with its path from where the walk began."""
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
                        found.append(entry)
        except OSError:
            self.closed.append(above)
        return sorted(found, key=lambda entry: entry.name)


def _line(relative: str, entry: "os.DirEntry[str]") -> str:
    try:
        if entry.is_symlink():
            return f"{relative} -> {os.readlink(entry.path)}"  # noqa: PTH115 -- text
        if entry.is_dir(follow_symlinks=False):
            return f"{relative}/"
        status = entry.stat(follow_symlinks=False)
    except OSError:  # it went away meanwhile
        return relative
    if entry.is_file(follow_symlinks=False):
        return f"{relative}  {size_in_words(status.st_size)}"
    return f"{relative}  ({kind_of(status.st_mode)})"


def size_in_words(size: int) -> str:
    """`4.2 KB`."""
    amount, unit = float(size), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{size:,} bytes" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def _notes(lines: list[str], walk: _Walk, place: Place) -> Iterator[str]:
    if walk.is_cut:
        yield f"[the first {len(lines):,} entries; list a folder inside, or use pattern]"
    elif not lines:
        yield (
            f"[nothing in '{place.named}' fits]"
            if not walk.hidden
            else f"[only {walk.hidden:,} hidden entries]"
        )
    elif walk.hidden:
        yield f"[{walk.hidden:,} hidden entries left out; include_hidden shows them]"
    for folder in walk.closed[:5]:
        yield f"[{place.inside(folder) if folder else place.named} may not be read]"
