"""`write_file` and `edit_code`: files are replaced whole, in one step, or not at all.

What is written lies in a new file beside the old one until it is whole and on the disk; then it takes its
place. Mode, owner and line endings stay. A file that somebody changed meanwhile is not replaced.
"""

import codecs
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from typing import Final, Self

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.place import Place, kind_of, reason

_EDITED_BYTES: Final = 32 << 20
_SHOWN_PLACES: Final = 10
_SHOWN_CHARS: Final = 120
_BOMS: Final = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}


def write_file(
    path: Sequence[str],
    content: str,
    mode: str = "overwrite",
    *,
    create_directories: bool = True,
    encoding: str = "utf-8",
) -> str:
    """Write a text; says what became of the file."""
    place = Place(*path)
    try:
        folder, name = os.path.split(place.real)
        if create_directories:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 -- text
        with _Folder(folder) as held:
            old = held.status(name)
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise ToolFailed(f"'{place.named}' is {kind_of(old.st_mode)}, not a file")
            if mode == "append" and old is not None and old.st_size:
                return _append(held, place, name, content, encoding)
            data = _encoded(place, content, encoding)
            held.replace(place, name, data, old)
    except OSError as error:
        raise ToolFailed(_unwritten(place, error, create_directories=create_directories)) from error
    what = "a new file" if old is None else "replaced"
    return f"'{place.named}' was written: {len(data):,} bytes, {_lines_in_words(content)}, {what}"


def edit_code(path: Sequence[str], old_content: str, new_content: str) -> str:
    """Replace the one place in a file that holds a text; refuses where there is none, or more than one."""
    place = Place(*path)
    if old_content == new_content:
        raise ToolFailed("old_content and new_content are the same; nothing to do")
    with place.open() as file:
        read = os.fstat(file.fileno())
        data = file.read(_EDITED_BYTES + 1)
    if len(data) > _EDITED_BYTES:
        raise ToolFailed(f"'{place.named}' is larger than {_EDITED_BYTES >> 20} MB; edit it by a program")
    text = _decoded(place, data)
    old, new = _with_line_endings(text, old_content, new_content)
    starts = list(_occurrences(text, old))
    if not starts:
        raise ToolFailed(_nowhere(place, text, old))
    if len(starts) > 1:
        raise ToolFailed(_ambiguous(place, text, starts))
    start = starts[0]
    edited = text[:start] + new + text[start + len(old) :]
    try:
        folder, name = os.path.split(place.real)
        with _Folder(folder) as held:
            held.replace(place, name, edited.encode(), read)
    except OSError as error:
        raise ToolFailed(_unwritten(place, error)) from error
    first = text.count("\n", 0, start) + 1
    was, now = first + _breaks(old), first + _breaks(new)
    return f"'{place.named}' was edited: {_span(first, was)} became {_span(first, now)}"


# --- what is replaced --------------------------------------------------------------------------


class _Folder:
    """A folder that is held open: whatever happens to its name, this is the one that is written to."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def status(self, name: str) -> os.stat_result | None:
        """What is there under a name; a link is a link."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_to_append(self, name: str) -> int:
        """The file, as it is."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self._descriptor)

    def replace(self, place: Place, name: str, data: bytes, old: os.stat_result | None) -> None:
        """Put a new file in the place of the old one, which must be the one that was seen."""
        beside = f".toolkeep-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = 0o666 if old is None else 0o600
        descriptor = os.open(beside, flags, mode, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if old is not None:
                    _keep_owner(place, file.fileno(), old)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._check_unchanged(place, name, old)
            os.rename(beside, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            os.unlink(beside, dir_fd=self._descriptor)
            raise
        os.fsync(self._descriptor)

    def _check_unchanged(self, place: Place, name: str, old: os.stat_result | None) -> None:
        if _identity(self.status(name)) != _identity(old):
            raise ToolFailed(f"'{place.named}' was changed by somebody meanwhile; read it again")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    return None if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _keep_owner(place: Place, descriptor: int, old: os.stat_result) -> None:
    """Owner and mode as before, so that nobody loses or gains anything by an edit."""
    new = os.fstat(descriptor)
    if new.st_gid != old.st_gid and new.st_uid == old.st_uid:
        try:
            os.fchown(descriptor, -1, old.st_gid)
        except OSError as error:
            raise ToolFailed(
                f"'{place.named}' belongs to another group, which a new file cannot have"
            ) from error
    if new.st_uid != old.st_uid:
        raise ToolFailed(f"'{place.named}' belongs to another user, whom a new file cannot belong to")
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _append(held: _Folder, place: Place, name: str, content: str, encoding: str) -> str:
    descriptor = held.open_to_append(name)
    try:
        size = os.fstat(descriptor).st_size
        data = _encoded(place, content, _continued(descriptor, encoding))
        end = os.pread(descriptor, 1, size - 1)
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    joined = (
        "; its last line had no end, so the text continues it" if encoding == "utf-8" and end != b"\n" else ""
    )
    return f"'{place.named}' was appended to: {len(data):,} bytes, now {size + len(data):,}{joined}"


def _continued(descriptor: int, encoding: str) -> str:
    """The encoding for what follows: without a mark at its beginning, in the order of the bytes before."""
    for mark, name in _BOMS.get(encoding, ()):
        if os.pread(descriptor, len(mark), 0) == mark:
            return name
    return f"{encoding}-le" if encoding in _BOMS else encoding


def _encoded(place: Place, content: str, encoding: str) -> bytes:
    try:
        return content.encode(encoding)
    except UnicodeEncodeError as error:
        character = content[error.start].encode("unicode_escape").decode()
        where = f"{character} at character {error.start + 1:,}"
        raise ToolFailed(f"'{place.named}' was not written: {where} is not in {encoding}") from error


def _unwritten(place: Place, error: OSError, *, create_directories: bool = True) -> str:
    if isinstance(error, FileNotFoundError) and not create_directories:
        return f"the folder of '{place.named}' does not exist; create_directories makes it"
    return f"'{place.named}' was not written: it {reason(error)}"


# --- where an edit goes ------------------------------------------------------------------------


def _decoded(place: Place, data: bytes) -> str:
    if b"\0" in data[:8192]:
        raise ToolFailed(f"'{place.named}' is binary; only text can be edited")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(
            f"'{place.named}' is not utf-8 at byte {error.start:,}; only utf-8 is edited"
        ) from error


def _with_line_endings(text: str, old: str, new: str) -> tuple[str, str]:
    """Both in the line endings of the file, where all its lines have the same and the caller's differ."""
    if "\r\n" in text and "\r\n" not in old and text.count("\n") == text.count("\r\n"):
        return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    return old, new


def _occurrences(text: str, part: str) -> Iterator[int]:
    position = text.find(part)
    while position >= 0:
        yield position
        position = text.find(part, position + 1)


def _ambiguous(place: Place, text: str, starts: Sequence[int]) -> str:
    lines = text.split("\n")
    shown = []
    for start in starts[:_SHOWN_PLACES]:
        number = text.count("\n", 0, start)
        shown.append(f"  {number + 1}: {lines[number].strip()[:_SHOWN_CHARS]}")
    more = f"\n  and {len(starts) - _SHOWN_PLACES:,} more" if len(starts) > _SHOWN_PLACES else ""
    places = "\n".join(shown)
    said = f"old_content stands in '{place.named}' {len(starts):,} times, so nothing was changed"
    return f"{said}:\n{places}{more}\nAdd lines around the one that is meant"


def _nowhere(place: Place, text: str, old: str) -> str:
    """That the text is not there, and where one is that differs in white space alone."""
    wanted = [line.split() for line in old.strip("\n").split("\n")]
    have = [line.split() for line in text.split("\n")]
    for first in range(len(have) - len(wanted) + 1):
        if have[first : first + len(wanted)] == wanted and any(wanted):
            span = _span(first + 1, first + len(wanted))
            here = f"{span} differ from it only in white space: read them again"
            return f"old_content is not in '{place.named}'; {here}"
    return f"old_content is not in '{place.named}', so nothing was changed; read the file again"


def _breaks(text: str) -> int:
    """How many lines further a text ends than it begins."""
    return max(0, text.count("\n") - text.endswith("\n"))


def _span(first: int, last: int) -> str:
    return f"line {first:,}" if last <= first else f"lines {first:,} to {last:,}"


def _lines_in_words(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n") and bool(text))
    return "1 line" if count == 1 else f"{count:,} lines"
