"""`write_file`, `edit_code` and `restore_file`: replace a file atomically, or not at all.

The new content is written to a temporary file in the same folder, synced, and renamed over the old one. Mode,
owner and line endings stay. A file that changed meanwhile is not replaced.
"""

import base64
import binascii
import codecs
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Self

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.tool_path import ToolPath, kind_of, reason

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP: Final = _OPEN | getattr(os, "O_PATH", 0)
_EDITED_BYTES: Final = 32 << 20
"""An edit holds the file in memory several times."""
_LOOKED_AT: Final = 8192
_SHOWN_PLACES: Final = 10
"""Places of an ambiguous text that are listed."""
_SHOWN_CHARS: Final = 120
"""Of a line that nearly matches."""
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
    """Write a text and report the result."""
    place = ToolPath(*path)
    data = _encoded(place, content, encoding)
    try:
        folder, name = os.path.split(place.real)
        with _Folder(folder, creates=create_directories) as held:
            old = held.status(name)
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise ToolFailed(f"'{place.named}' was not written: it is {kind_of(old.st_mode)}, not a file")
            if mode == "append" and old is not None and old.st_size:
                return _append(held, place, name, content, encoding)
            held.replace(place, name, data, old)
    except OSError as error:
        raise ToolFailed(_unwritten(place, error, create_directories=create_directories)) from error
    what = "a new file" if old is None else f"replaced{_other_names(old)}"
    size = f"{_in_words(len(data), 'byte')}, {_in_words(_lines(content), 'line')}"
    return f"'{place.named}' was written: {size}, {what}"


def edit_code(path: Sequence[str], old_content: str, new_content: str) -> str:
    """Replace the one occurrence of a text in a file; refuses if there is none, or more than one."""
    place = ToolPath(*path)
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


def restore_file(
    path: Sequence[str],
    expected_sha256: str,
    content: str | None = None,
    content_base64: str | None = None,
) -> str:
    """Give a file back the content that it had, or remove it if it had none, unless it changed meanwhile."""
    place = ToolPath(*path)
    if content is not None and content_base64 is not None:
        raise ToolFailed("content and content_base64 are both given; give one of them")
    read, data = _content(place)
    if hashlib.sha256(data).hexdigest() != expected_sha256:
        raise ToolFailed(f"'{place.named}' has changed since, so it was not restored")
    old = _bytes_of(content, content_base64)
    try:
        folder, name = os.path.split(place.real)
        with _Folder(folder) as held:
            if old is None:
                held.remove(place, name, read)
            else:
                held.replace(place, name, old, read)
    except OSError as error:
        raise ToolFailed(_unwritten(place, error)) from error
    if old is None:
        return f"'{place.named}' was removed: it did not exist before"
    return f"'{place.named}' was restored: {_in_words(len(old), 'byte')}{_other_names(read)}"


def _bytes_of(content: str | None, content_base64: str | None) -> bytes | None:
    if content_base64 is None:
        return None if content is None else content.encode()
    try:
        return base64.b64decode(content_base64, validate=True)
    except binascii.Error as error:
        raise ToolFailed("content_base64 is not base64") from error


# --- what is replaced --------------------------------------------------------------------------


class _Folder:
    """A folder held open by descriptor: whatever is renamed meanwhile, this folder is the one written to."""

    def __init__(self, path: str, *, creates: bool = False) -> None:
        """Open step by step with O_NOFOLLOW, so that no symlink is followed at any level; create what is
        missing if asked.

        A single open of the whole path would follow a symlink that was put in place of a folder after policy
        had checked the path (TOCTOU).
        """
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
        """The status of an entry; a symlink is not followed."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_to_append(self, name: str) -> int:
        """Open the file for appending."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self._descriptor)

    def access_list(self, name: str) -> bytes | None:
        """The POSIX access list of the file.

        It is opened for writing: a file that may not be written must not be replaced, even if its folder
        allows it.
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

    def replace(self, place: ToolPath, name: str, data: bytes, old: os.stat_result | None) -> None:
        """Replace the old file with a new one; the old file must be the one that was read."""
        access_list = None if old is None else self.access_list(name)
        beside = f".toolkeep-{secrets.token_hex(8)}"
        # O_EXCL and a random name: an entry that somebody put there in advance is never written through.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # Private until owner and mode are those of the old file: nobody else reads it in between.
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

    def remove(self, place: ToolPath, name: str, old: os.stat_result) -> None:
        """Remove the file that was read."""
        self.access_list(name)  # a file that may not be written must not be removed
        self._check_unchanged(place, name, old)
        os.unlink(name, dir_fd=self._descriptor)
        os.fsync(self._descriptor)

    def _check_unchanged(self, place: ToolPath, name: str, old: os.stat_result | None) -> None:
        if _identity(self.status(name)) != _identity(old):
            raise ToolFailed(f"'{place.named}' has changed; read it again")


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _keep_owner(place: ToolPath, descriptor: int, old: os.stat_result) -> None:
    """Keep owner and mode, so that an edit grants and revokes nothing; setuid bits are dropped."""
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
    """A note that hard links keep the old content."""
    count = old.st_nlink - 1
    many = f"; {count:,} other hard links of it keep what it was" if count > 1 else ""
    return "; another hard link of it keeps what it was" if count == 1 else many


def _append(held: _Folder, place: ToolPath, name: str, content: str, encoding: str) -> str:
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
    """Write everything; on failure truncate to the old size, unless somebody appended meanwhile."""
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    except OSError:
        if os.fstat(descriptor).st_size == size + written:
            os.ftruncate(descriptor, size)
        raise


def _continued(place: ToolPath, descriptor: int, encoding: str) -> str:
    """The encoding of appended text: no byte order mark, and the byte order of the file."""
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


def _encoded(place: ToolPath, content: str, encoding: str) -> bytes:
    try:
        return content.encode(encoding)
    except UnicodeEncodeError as error:
        character = content[error.start].encode("unicode_escape").decode()
        where = f"{character} at character {error.start + 1:,}"
        raise ToolFailed(f"'{place.named}' was not written: {where} is not in {encoding}") from error


def _unwritten(place: ToolPath, error: OSError, *, create_directories: bool = True) -> str:
    if os.path.isdir(place.real):
        return f"'{place.named}' was not written: it is a folder"
    if isinstance(error, FileExistsError):
        return f"'{place.named}' was not written: it is below something that is not a folder"
    if isinstance(error, FileNotFoundError) and not create_directories:
        return f"'{place.named}' was not written: its folder does not exist; create_directories makes it"
    return f"'{place.named}' was not written: it {reason(error)}"


# --- where an edit goes ------------------------------------------------------------------------


def _content(place: ToolPath) -> tuple[os.stat_result, bytes]:
    """The content of a file, and its status when it was read."""
    try:
        with place.open() as file:
            status = os.fstat(file.fileno())
            data = file.read(_EDITED_BYTES + 1)
    except OSError as error:
        raise ToolFailed(f"'{place.named}' {reason(error)}") from error
    if len(data) > _EDITED_BYTES:
        raise ToolFailed(f"'{place.named}' is larger than {_EDITED_BYTES >> 20} MB; edit it by a program")
    return status, data


def _decoded(place: ToolPath, data: bytes) -> str:
    if b"\0" in data[:_LOOKED_AT]:
        raise ToolFailed(f"'{place.named}' is binary, or not utf-8; only utf-8 text is edited")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(
            f"'{place.named}' is not utf-8 at byte {error.start:,}; only utf-8 text is edited"
        ) from error


def _with_line_endings(text: str, old: str, new: str) -> tuple[str, str]:
    """Both texts in the file's line endings, if all its lines end with CR LF: models leave out the CR."""
    if "\r\n" not in text or text.count("\n") != text.count("\r\n"):
        return old, new
    return old.replace("\r\n", "\n").replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _occurrences(text: str, part: str) -> Iterator[int]:
    """The positions of a text, overlapping ones too."""
    position = text.find(part)
    while position >= 0:
        yield position
        position = text.find(part, position + 1)


def _ambiguous(place: ToolPath, text: str, starts: Sequence[int]) -> str:
    shown = []
    for start in starts[:_SHOWN_PLACES]:
        number = text.count("\n", 0, start) + 1
        begin, end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
        line = text[begin : end if end >= 0 else None].strip()
        shown.append(f"  {number}: {line[:_SHOWN_CHARS]}")
    is_more = len(starts) > _SHOWN_PLACES
    count = f"more than {_SHOWN_PLACES}" if is_more else str(len(starts))
    said = f"old_content occurs {count} times in '{place.named}', so nothing was changed"
    places = "\n".join([*shown, *(["  and more"] if is_more else [])])
    return f"{said}:\n{places}\nAdd lines around the one that is meant"


def _nowhere(place: ToolPath, text: str, old: str) -> str:
    """The error for a text that is not there, with a place that differs in white space only."""
    wanted, have = _loosely(old.strip("\n")), _loosely(text)
    at = have.find(wanted) if wanted.strip() else -1
    if at < 0:
        return f"old_content is not in '{place.named}', so nothing was changed; read the file again"
    first = have.count("\n", 0, at) + 1
    last = first + wanted.count("\n") - 2
    differs = f"line {first:,} differs" if last == first else f"lines {first:,} to {last:,} differ"
    return f"old_content is not in '{place.named}'; {differs} from it only in white space: read it again"


def _loosely(text: str) -> str:
    """The lines with white space normalized; a newline before each line and after the last."""
    return "\n" + "".join(" ".join(line.split()) + "\n" for line in text.split("\n"))


def _breaks(text: str) -> int:
    """The number of line breaks in a text."""
    return max(0, text.count("\n") - text.endswith("\n"))


def _span(first: int, last: int) -> str:
    return f"line {first:,}" if last <= first else f"lines {first:,} to {last:,}"


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _in_words(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"
