"""`write_file` and `edit_code`: files are replaced whole, in one step, or not at all.

What is written lies in a new file beside the old one until it is whole and on the disk; then it takes its
place. Mode, owner and line endings stay. A file that somebody changed meanwhile is not replaced.
"""

import codecs
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Self

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.place import Place, kind_of, reason

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: Final = _OPEN | os.O_PATH
_EDITED_BYTES: Final = 32 << 20
_LOOKED_AT: Final = 8192
_SHOWN_PLACES: Final = 10
_SHOWN_CHARS: Final = 120
_ACCESS_LIST: Final = "system.posix_acl_access"
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
    data = _encoded(place, content, encoding)
    try:
        folder, name = os.path.split(place.real)
        with _Folder(folder, creates=create_directories) as held:
            old = held.status(name)
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise ToolFailed(f"'{place.named}' is {kind_of(old.st_mode)}, not a file")
            if mode == "append" and old is not None and old.st_size:
                return _append(held, place, name, content, encoding)
            held.replace(place, name, data, old)
    except OSError as error:
        raise ToolFailed(_unwritten(place, error, create_directories=create_directories)) from error
    what = "a new file" if old is None else f"replaced{_other_names(old)}"
    size = f"{_in_words(len(data), 'byte')}, {_in_words(_lines(content), 'line')}"
    return f"'{place.named}' was written: {size}, {what}"


def edit_code(path: Sequence[str], old_content: str, new_content: str) -> str:
    """Replace the one place in a file that holds a text; refuses where there is none, or more than one."""
    place = Place(*path)
    if old_content == new_content:
        raise ToolFailed("old_content and new_content are the same; nothing to do")
    read, data = _content(place)
    text = _decoded(place, data)
    old, new = _with_line_endings(text, old_content, new_content)
    starts = list(islice(_occurrences(text, old), _SHOWN_PLACES + 1))
    if not starts:
        raise ToolFailed(_nowhere(place, text, old))
    if len(starts) > 1:
        raise ToolFailed(_ambiguous(place, text, starts))
    start = starts[0]
    edited = text[:start] + _encoded(place, new, "utf-8").decode() + text[start + len(old) :]
    try:
        folder, name = os.path.split(place.real)
        with _Folder(folder) as held:
            held.replace(place, name, edited.encode(), read)
    except OSError as error:
        raise ToolFailed(_unwritten(place, error)) from error
    first = text.count("\n", 0, start) + 1
    was = _span(first, first + _breaks(old))
    became = f"became {_span(first, first + _breaks(new))}" if new else "lost this text"
    return f"'{place.named}' was edited: {was} {became}{_other_names(read)}"


# --- what is replaced --------------------------------------------------------------------------


class _Folder:
    """A folder that is held open: whatever happens to its name, this is the one that is written to."""

    def __init__(self, path: str, *, creates: bool = False) -> None:
        """Step by step, so that no link is followed on the way; what is missing is made if it may be."""
        self._descriptor = os.open("/", _STEP)
        try:
            for name in filter(None, path.split("/")):
                self._enter(name, creates=creates)
            self._enter(".", creates=False, flags=_OPEN)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _enter(self, name: str, *, creates: bool, flags: int = _STEP) -> None:
        above = self._descriptor
        try:
            below = os.open(name, flags, dir_fd=above)
        except FileNotFoundError:
            if not creates:
                raise
            os.mkdir(name, dir_fd=above)
            below = os.open(name, flags, dir_fd=above)
        self._descriptor = below
        os.close(above)

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

    def access_list(self, name: str) -> bytes | None:
        """Who else may use the file.

        It is opened for writing: what may not be written to may not be replaced, though its folder allow it.
        """
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self._descriptor)
        try:
            return os.getxattr(descriptor, _ACCESS_LIST)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
                return None
            raise
        finally:
            os.close(descriptor)

    def replace(self, place: Place, name: str, data: bytes, old: os.stat_result | None) -> None:
        """Put a new file in the place of the old one, which must be the one that was seen."""
        access_list = None if old is None else self.access_list(name)
        beside = f".toolkeep-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = 0o666 if old is None else 0o600
        descriptor = os.open(beside, flags, mode, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if old is not None:
                    _keep_owner(place, file.fileno(), old)
                if access_list is not None:
                    os.setxattr(file.fileno(), _ACCESS_LIST, access_list)
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
    if status is None:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _keep_owner(place: Place, descriptor: int, old: os.stat_result) -> None:
    """Owner and mode as before, so that nobody loses or gains anything by an edit; but no setuid bits."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError as error:
            whose = "user" if new.st_uid != old.st_uid else "group"
            said = f"'{place.named}' belongs to another {whose}, to which a new file cannot be given"
            raise ToolFailed(said) from error
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _other_names(old: os.stat_result) -> str:
    """That hard links now lead elsewhere."""
    count = old.st_nlink - 1
    many = f"; {count:,} other hard links of it keep what it was" if count > 1 else ""
    return "; another hard link of it keeps what it was" if count == 1 else many


def _append(held: _Folder, place: Place, name: str, content: str, encoding: str) -> str:
    descriptor = held.open_to_append(name)
    try:
        size = os.fstat(descriptor).st_size
        data = _encoded(place, content, _continued(place, descriptor, encoding))
        end = os.pread(descriptor, 1, size - 1)
        _write_at_end(descriptor, data, size)
    finally:
        os.close(descriptor)
    is_open = encoding not in _BOMS and end != b"\n"
    joined = "; its last line had no end, so the text continues it" if is_open else ""
    return (
        f"'{place.named}' was appended to: {_in_words(len(data), 'byte')}, now {size + len(data):,}{joined}"
    )


def _write_at_end(descriptor: int, data: bytes, size: int) -> None:
    """All of it; where that fails, what was written is taken away, unless somebody wrote behind it."""
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError:
        if os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
        raise


def _continued(place: Place, descriptor: int, encoding: str) -> str:
    """The encoding for what follows: without a mark at its beginning, in the order of the bytes before."""
    beginning = os.pread(descriptor, _LOOKED_AT, 0)
    for wide in ("utf-32", "utf-16"):
        for mark, name in _BOMS[wide]:
            if beginning.startswith(mark):
                if wide != encoding:
                    raise ToolFailed(f"'{place.named}' is {wide}; nothing was appended in {encoding}")
                return name
    if encoding not in _BOMS:
        return encoding
    if b"\0" not in beginning:
        raise ToolFailed(f"'{place.named}' is not {encoding}, so nothing was appended")
    return f"{encoding}-le"


def _encoded(place: Place, content: str, encoding: str) -> bytes:
    try:
        return content.encode(encoding)
    except UnicodeEncodeError as error:
        character = content[error.start].encode("unicode_escape").decode()
        where = f"{character} at character {error.start + 1:,}"
        raise ToolFailed(f"'{place.named}' was not written: {where} is not in {encoding}") from error


def _unwritten(place: Place, error: OSError, *, create_directories: bool = True) -> str:
    if os.path.isdir(place.real):
        return f"'{place.named}' was not written: it is a folder"
    if isinstance(error, FileExistsError):
        return f"'{place.named}' was not written: it lies below something that is no folder"
    if isinstance(error, FileNotFoundError) and not create_directories:
        return f"'{place.named}' was not written: its folder does not exist; create_directories makes it"
    return f"'{place.named}' was not written: it {reason(error)}"


# --- where an edit goes ------------------------------------------------------------------------


def _content(place: Place) -> tuple[os.stat_result, bytes]:
    """The file as it is, and what it was when that was read."""
    try:
        with place.open() as file:
            status = os.fstat(file.fileno())
            data = file.read(_EDITED_BYTES + 1)
    except OSError as error:
        raise ToolFailed(f"'{place.named}' {reason(error)}") from error
    if len(data) > _EDITED_BYTES:
        raise ToolFailed(f"'{place.named}' is larger than {_EDITED_BYTES >> 20} MB; edit it by a program")
    return status, data


def _decoded(place: Place, data: bytes) -> str:
    if b"\0" in data[:_LOOKED_AT]:
        raise ToolFailed(f"'{place.named}' is binary, or not utf-8; only utf-8 text is edited")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(
            f"'{place.named}' is not utf-8 at byte {error.start:,}; only utf-8 text is edited"
        ) from error


def _with_line_endings(text: str, old: str, new: str) -> tuple[str, str]:
    """Both in the line endings of the file, where all its lines end with CR LF: models leave the CR out."""
    if "\r\n" not in text or text.count("\n") != text.count("\r\n"):
        return old, new
    return old.replace("\r\n", "\n").replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Where a text begins, also where one overlaps the one before."""
    position = text.find(part)
    while position >= 0:
        yield position
        position = text.find(part, position + 1)


def _ambiguous(place: Place, text: str, starts: Sequence[int]) -> str:
    shown = []
    for start in starts[:_SHOWN_PLACES]:
        number = text.count("\n", 0, start) + 1
        begin, end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
        line = text[begin : end if end >= 0 else None].strip()
        shown.append(f"  {number}: {line[:_SHOWN_CHARS]}")
    is_more = len(starts) > _SHOWN_PLACES
    count = f"more than {_SHOWN_PLACES}" if is_more else str(len(starts))
    said = f"old_content stands in '{place.named}' {count} times, so nothing was changed"
    places = "\n".join([*shown, *(["  and more"] if is_more else [])])
    return f"{said}:\n{places}\nAdd lines around the one that is meant"


def _nowhere(place: Place, text: str, old: str) -> str:
    """That the text is not there, and where one is that differs in white space alone."""
    wanted, have = _loosely(old.strip("\n")), _loosely(text)
    at = have.find(wanted) if wanted.strip() else -1
    if at < 0:
        return f"old_content is not in '{place.named}', so nothing was changed; read the file again"
    first = have.count("\n", 0, at) + 1
    last = first + wanted.count("\n") - 2
    differs = f"line {first:,} differs" if last == first else f"lines {first:,} to {last:,} differ"
    return f"old_content is not in '{place.named}'; {differs} from it only in white space: read it again"


def _loosely(text: str) -> str:
    """Line by line without what white space does; a newline before each line and behind the last."""
    return "\n" + "".join(" ".join(line.split()) + "\n" for line in text.split("\n"))


def _breaks(text: str) -> int:
    """How many lines further a text ends than it begins."""
    return max(0, text.count("\n") - text.endswith("\n"))


def _span(first: int, last: int) -> str:
    return f"line {first:,}" if last <= first else f"lines {first:,} to {last:,}"


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _in_words(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
