"""A place: a path of a call, resolved once by the kernel and held by a descriptor (POL-1).

Comes in: text of a model, and the folder that relative text starts from. Goes out: a `Place` whose real path
is what grants are compared with, or `PlaceRefused`. Links and `..` are followed by the kernel, never by us on
text; links of its own (`/proc/PID/root`, `cwd`, `fd`) and all of procfs are refused. It trusts the kernel and
`/proc/self/fd`.

It does not keep anybody from moving things: a place is judged as it was, held, and `check_unchanged` has to
be asked again where it is used. Whatever then opens it must go by the descriptor, never by the text.
"""

import ctypes
import errno
import os
import stat
import struct
from collections import deque
from typing import Final, NoReturn, Self

from toolkeep.wording import echo_name

_FLAGS: Final = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
_HAS_PATH_DESCRIPTORS: Final = hasattr(os, "O_PATH")

_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_HOW: Final = struct.pack("QQQ", _FLAGS, 0, _RESOLVE_NO_MAGICLINKS)
_PROC_SUPER_MAGIC: Final = 0x9FA0

_PATH_BYTES: Final = 4096
"""PATH_MAX: the kernel takes no longer path, its final NUL included."""

_LINKS: Final = 40
"""MAXSYMLINKS: how many links the kernel follows in one path."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_libc.syscall.restype = ctypes.c_long
_StatFs: Final = ctypes.c_long * 64  # the file system's type comes first; the rest is room

_CLAUSES: Final = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "goes below something that is no folder",
    errno.EACCES: "cannot be reached by this user",
    errno.ELOOP: "leads in a circle, or through a link of the kernel's own such as /proc/self/root",
    errno.ENAMETOOLONG: "is longer than a path can be",
}


class PlaceRefused(Exception):
    """A path that nothing may be done with; `reason` is a clause that a model can read."""

    def __init__(self, reason: str, *, is_changed: bool = False, tells_what_is_there: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_changed = is_changed
        """It was fine when it was resolved, and is something else by now."""
        self.tells_what_is_there = tells_what_is_there
        """The reason says something of the disk, and not only of the text."""


class NoRoom(Exception):
    """As many places are held as may be."""


class Share:
    """How many places may be held at once. Safe from any thread, and where a place is dropped."""

    __slots__ = ("_free",)

    def __init__(self, most: int) -> None:
        self._free = deque([None] * most)  # without a lock: the last reference to a place may go anywhere

    def take(self) -> None:
        """One more; raises `NoRoom`."""
        try:
            self._free.pop()
        except IndexError:
            raise NoRoom from None

    def give_back(self) -> None:
        """One less."""
        self._free.append(None)


class Place:
    """What a path stood for when it was resolved; while it is held, its inode's number is not reused."""

    __slots__ = ("_base", "_may_be_missing", "_share", "_status", "descriptor", "missing", "path", "text")

    def __init__(
        self,
        text: str,
        base: str,
        path: str,
        missing: str,
        descriptor: int,
        status: os.stat_result,
        *,
        may_be_missing: bool,
    ) -> None:
        self.text = text
        """As given."""
        self.path = path
        """The real path, as the kernel says it, with what is missing."""
        self.missing = missing
        """The end of the path that does not exist yet."""
        self.descriptor = descriptor
        """Opened with O_PATH; where the end is missing, of the folder before it, as device and inode are."""
        self._base = base
        self._status = status
        self._may_be_missing = may_be_missing
        self._share: Share | None = None

    @property
    def found(self) -> str:
        """The absolute path by which it was found, links and all."""
        return os.path.join(self._base, self.text)

    @property
    def device(self) -> int:
        """The number of the file system."""
        return self._status.st_dev

    @property
    def inode(self) -> int:
        """The number on that file system."""
        return self._status.st_ino

    @property
    def links(self) -> int:
        """How many names it had."""
        return self._status.st_nlink

    @property
    def is_folder(self) -> bool:
        """Whether it exists and is a folder."""
        return not self.missing and stat.S_ISDIR(self._status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it exists and is an ordinary file."""
        return stat.S_ISREG(self._status.st_mode)

    @property
    def is_special(self) -> bool:
        """Whether it is a device, a socket or a pipe, which opening alone can disturb or wait for."""
        return not self.is_file and not stat.S_ISDIR(self._status.st_mode)

    def check_unchanged(self) -> None:
        """Raise unless the text still leads to the same thing at the same real path."""
        if self.descriptor < 0:  # the inode's number may be another file's by now
            raise self._changed()
        try:
            with resolve(self.text, self._base, may_be_missing=self._may_be_missing) as now:
                is_same = now._identity() == self._identity()  # noqa: SLF001 -- another of us
        except PlaceRefused as refused:
            raise self._changed() from refused
        if not is_same:
            raise self._changed()

    def _identity(self) -> tuple[int, int, str, str]:
        return self.device, self.inode, self.path, self.missing

    def _changed(self) -> PlaceRefused:
        reason = f"'{echo_name(self.text)}' is no longer what it was when it was checked"
        return PlaceRefused(reason, is_changed=True)

    def count(self, share: Share) -> None:
        """Let it count as one of a share until it is closed; raises `NoRoom`."""
        share.take()
        self._share = share

    def close(self) -> None:
        """Let go of it. Closing twice is fine."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self._share is not None:
                self._share.give_back()

    def __del__(self) -> None:
        self.close()  # for a call that was dropped halfway

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a place owns its descriptor and cannot be copied")  # it would be closed twice

    def __repr__(self) -> str:
        return f"<Place {self.path!r}>"


def resolve(text: str, base: str, *, may_be_missing: bool) -> Place:
    """The place that a path stands for now; relative text starts from `base`. The caller closes it.

    With `may_be_missing` the end of the path need not exist yet, as for a file to be written. `~` is a plain
    name.
    """
    path = _whole(text, base)
    try:
        descriptor, missing = _open_deepest(path) if may_be_missing else (_open(path), "")
        try:
            status = os.fstat(descriptor)
            real = _real_path(descriptor, status)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        reason = f"'{echo_name(text)}' {_clause(error)}"
        raise PlaceRefused(reason, tells_what_is_there=True) from error
    if missing:
        real = f"{real.rstrip('/')}/{missing}"
    return Place(text, base, real, missing, descriptor, status, may_be_missing=may_be_missing)


def _clause(error: OSError) -> str:
    return _CLAUSES.get(error.errno or 0) or f"cannot be opened: {error.strerror}"


def _whole(text: str, base: str) -> bytes:
    """The absolute path in the kernel's own form."""
    if not base.startswith("/"):
        raise ValueError(f"relative paths start from an absolute folder, not from {base!r}")
    if not _HAS_PATH_DESCRIPTORS:
        raise PlaceRefused("this system has no descriptors of paths, so that none can be checked")
    if not text:
        raise PlaceRefused("an empty path names nothing")
    whole = text if text.startswith("/") else f"{base}/{text}"
    if "\0" in whole:
        raise PlaceRefused(f"'{echo_name(text)}' holds a NUL character")
    try:
        path = os.fsencode(whole)
    except UnicodeEncodeError:
        raise PlaceRefused(f"'{echo_name(text)}' holds a character that no path can hold") from None
    if len(path) >= _PATH_BYTES:
        raise PlaceRefused(f"'{echo_name(text)}' {_CLAUSES[errno.ENAMETOOLONG]}")
    return path


# --- opening -------------------------------------------------------------------------------------


def _open_deepest(path: bytes) -> tuple[int, str]:
    """The descriptor of the deepest part that exists, and the rest."""
    missing: list[bytes] = []
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            path, _, name = path.rstrip(b"/").rpartition(b"/")
            path = path or b"/"
            if not name:  # not even the root is there
                raise
            if name == b"..":
                reason = "a path that does not exist yet cannot hold '..'"
                raise PlaceRefused(reason, tells_what_is_there=True) from None
            if name != b".":
                missing.append(name)
        else:
            break
    try:
        if missing:
            _check_nothing_there(descriptor, missing[-1])
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, os.fsdecode(b"/".join(reversed(missing)))


def _check_nothing_there(folder: int, name: bytes) -> None:
    """A link to nowhere opens as missing, and a write through it would make its target somewhere else."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    reason = f"'{echo_name(os.fsdecode(name))}' is a link that leads to nothing"
    raise PlaceRefused(reason, tells_what_is_there=True)


def _open(path: bytes) -> int:
    try:
        return _openat2(path)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # an old kernel, a seccomp filter
            raise
    return _walk(path)


def _openat2(path: bytes) -> int:
    descriptor: int = _libc.syscall(_OPENAT2, _AT_FDCWD, path, _HOW, len(_HOW))
    return descriptor if descriptor >= 0 else _fail(ctypes.get_errno())


def _walk(path: bytes) -> int:
    """What `_openat2` does, name by name; stricter in that procfs cannot even be passed through."""
    names = _names(path)
    links = 0
    here = os.open(b"/", _FLAGS)
    try:
        while names:
            step = _step(here, names.pop())
            if isinstance(step, bytes):
                links += 1
                names += _names(step) if links <= _LINKS else _fail(errno.ELOOP)
                if not step.startswith(b"/"):
                    continue
                step = os.open(b"/", _FLAGS)
            os.close(here)
            here = step
    except BaseException:
        os.close(here)
        raise
    return here


def _names(path: bytes) -> list[bytes]:
    """The names in a path, last first; a final slash asks for a folder, as `.` does."""
    names = [name for name in path.split(b"/") if name]
    return [*([b"."] if path.endswith(b"/") else []), *reversed(names)]


def _step(here: int, name: bytes) -> int | bytes:
    """The descriptor of a name in a folder, or where it leads if it is a link."""
    step = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
    try:
        if _is_procfs(step):
            _fail(errno.ELOOP)
        target = os.readlink(b"", dir_fd=step) if stat.S_ISLNK(os.fstat(step).st_mode) else None
    except BaseException:
        os.close(step)
        raise
    if target is None:
        return step
    os.close(step)
    return target


def _fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


# --- judging what was opened ---------------------------------------------------------------------


def _real_path(descriptor: int, status: os.stat_result) -> str:
    """Where the kernel says that it lies, once that leads back to the very same thing.

    It does not for what was deleted, or what lies below a mount that is covered or gone.
    """
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if path.endswith(" (deleted)"):
        _fail(errno.ENOENT)
    if _is_procfs(descriptor) or f"{path}/".startswith("/proc/"):  # other systems are mounted in there
        raise PlaceRefused("the kernel's own files may not be touched")
    there = os.stat(path, follow_symlinks=False)
    if (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino):
        raise PlaceRefused("where the path really leads cannot be told")
    return path


def _is_procfs(descriptor: int) -> bool:
    status = _StatFs()
    if _libc.fstatfs(descriptor, status) != 0:
        _fail(ctypes.get_errno())
    return status[0] == _PROC_SUPER_MAGIC
