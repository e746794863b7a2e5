"""Path resolution without TOCTOU: a path is resolved once by the kernel and held by a descriptor (POL-1).

In comes a path that a model wrote, and the folder that relative paths start from. Out goes a `ResolvedPath`,
whose real path is compared with grants, or `PathRefused`. Symbolic links and `..` are followed by the kernel
(`openat2` with RESOLVE_NO_MAGICLINKS), never by string operations, which disagree with the kernel about
`a/../b` if `a` is a link. Magic links (`/proc/PID/root`, `cwd`, `fd`) and all of procfs are refused. Trusted:
the kernel and `/proc/self/fd`.

It does not use RESOLVE_BENEATH: links that lead out of a folder are fine if the agent holds their target. It
does not stop anybody from moving files: the result describes one moment, so `check_unchanged` must be called
before use, and the file must be opened through the descriptor, never by its text.
"""

import ctypes
import errno
import os
import stat
import struct
from collections import deque
from typing import Final, NoReturn, Self

from toolkeep.text.display import echo_name

# O_PATH locates a file without opening it: no permission to read is needed, and no device or FIFO is
# disturbed. O_CLOEXEC keeps the descriptor out of programs that the host starts.
_FLAGS: Final = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0)
_HAS_PATH_DESCRIPTORS: Final = hasattr(os, "O_PATH")

_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
# Magic links jump to an inode without walking a path: /proc/self/root/etc would pass for a path below /proc.
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_HOW: Final = struct.pack("QQQ", _FLAGS, 0, _RESOLVE_NO_MAGICLINKS)
_PROC_SUPER_MAGIC: Final = 0x9FA0

_PATH_BYTES: Final = 4096
"""PATH_MAX, with the final NUL: the kernel rejects longer paths."""

_LINKS: Final = 40
"""MAXSYMLINKS: links that the kernel follows in one path."""

if _HAS_PATH_DESCRIPTORS:  # elsewhere every path is refused
    _libc: Final = ctypes.CDLL(None, use_errno=True)
    _libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    _libc.syscall.restype = ctypes.c_long
_StatFs: Final = ctypes.c_long * 64  # struct statfs: f_type comes first; the rest is padding

_CLAUSES: Final = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "has a parent that is not a folder",
    errno.EACCES: "cannot be reached by this user",
    errno.ELOOP: "is a symlink loop, or passes a kernel link such as /proc/self/root",
    errno.ENAMETOOLONG: "is longer than a path can be",
}


class PathRefused(Exception):
    """A path that is refused; `reason` is a clause that a model may read."""

    def __init__(self, reason: str, *, is_changed: bool = False, tells_what_is_there: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_changed = is_changed
        """The path was accepted earlier and leads to something else now."""
        self.tells_what_is_there = tells_what_is_there
        """The reason reveals file system content, and is not derived from the text alone."""


class QuotaExceeded(Exception):
    """The quota of open descriptors is used up."""


class DescriptorQuota:
    """Quota of open descriptors for one agent. Thread-safe, and safe in finalizers."""

    __slots__ = ("_free",)

    def __init__(self, most: int) -> None:
        self._free = deque(
            [None] * most
        )  # no lock: __del__ may run inside any locked section and would deadlock

    def take(self) -> None:
        """Take one; raises `QuotaExceeded`."""
        try:
            self._free.pop()
        except IndexError:
            raise QuotaExceeded from None

    def give_back(self) -> None:
        """Return one."""
        self._free.append(None)


class ResolvedPath:
    """A path as it was resolved. The open descriptor keeps its inode number from being reused."""

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
        """The real path as the kernel reports it, followed by the missing part."""
        self.missing = missing
        """The trailing part of the path that does not exist yet."""
        self.descriptor = descriptor
        """An O_PATH descriptor; if a part is missing, of the deepest existing folder, as are device and
        inode."""
        self._base = base
        self._status = status
        self._may_be_missing = may_be_missing
        self._share: DescriptorQuota | None = None

    @property
    def found(self) -> str:
        """The absolute path as given, with its links."""
        return os.path.join(self._base, self.text)

    @property
    def device(self) -> int:
        """`st_dev`."""
        return self._status.st_dev

    @property
    def inode(self) -> int:
        """`st_ino`."""
        return self._status.st_ino

    @property
    def links(self) -> int:
        """`st_nlink`: the number of hard links."""
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
        """Whether it is a device, a socket or a FIFO: to open one can block, or change a device."""
        return not self.is_file and not stat.S_ISDIR(self._status.st_mode)

    def check_unchanged(self) -> None:
        """Raise unless the text still resolves to the same device, inode and real path.

        The inode alone is not enough: a granted file that was moved into another folder keeps it. The real
        path alone is not enough: a rename can put another file there.
        """
        if self.descriptor < 0:  # closed: the inode number may have been reused
            raise self._changed()
        try:
            with resolve(self.text, self._base, may_be_missing=self._may_be_missing) as now:
                is_same = now._identity() == self._identity()  # noqa: SLF001 -- same class
        except PathRefused as refused:
            raise self._changed() from refused
        if not is_same:
            raise self._changed()

    def _identity(self) -> tuple[int, int, str, str]:
        return self.device, self.inode, self.path, self.missing

    def _changed(self) -> PathRefused:
        reason = f"'{echo_name(self.text)}' has changed since it was checked"
        return PathRefused(reason, is_changed=True)

    def count(self, share: DescriptorQuota) -> None:
        """Charge it to a quota until it is closed; raises `QuotaExceeded`."""
        share.take()
        self._share = share

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        # Cleared first: a second close could close a number that another thread has been given since.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
            if self._share is not None:
                self._share.give_back()

    def __del__(self) -> None:
        self.close()  # for a call that was cancelled halfway

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        # Two owners would close it twice.
        raise TypeError("a resolved path owns its descriptor and cannot be copied")

    def __repr__(self) -> str:
        return f"<ResolvedPath {self.path!r}>"


def resolve(text: str, base: str, *, may_be_missing: bool) -> ResolvedPath:
    """Resolve a path now; relative text starts from `base`. The caller closes the result.

    With `may_be_missing` the trailing part need not exist yet, as for a file to be written. `~` is not
    expanded.
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
        raise PathRefused(reason, tells_what_is_there=True) from error
    if missing:
        real = f"{real.rstrip('/')}/{missing}"
    return ResolvedPath(text, base, real, missing, descriptor, status, may_be_missing=may_be_missing)


def _clause(error: OSError) -> str:
    return _CLAUSES.get(error.errno or 0) or f"cannot be opened: {error.strerror}"


def _whole(text: str, base: str) -> bytes:
    """The absolute path as bytes for the kernel."""
    if not base.startswith("/"):
        raise ValueError(f"relative paths start from an absolute folder, not from {base!r}")
    if not _HAS_PATH_DESCRIPTORS:
        raise PathRefused("this system has no descriptors of paths, so that none can be checked")
    if not text:
        raise PathRefused("an empty path names nothing")
    whole = text if text.startswith("/") else f"{base}/{text}"
    # The kernel stops at a NUL, Python does not: the checked path would be another than the opened one.
    if "\0" in whole:
        raise PathRefused(f"'{echo_name(text)}' holds a NUL character")
    try:
        path = os.fsencode(whole)
    except UnicodeEncodeError:
        raise PathRefused(f"'{echo_name(text)}' holds a character that no path can hold") from None
    if len(path) >= _PATH_BYTES:
        raise PathRefused(f"'{echo_name(text)}' {_CLAUSES[errno.ENAMETOOLONG]}")
    return path


# --- opening -------------------------------------------------------------------------------------


def _open_deepest(path: bytes) -> tuple[int, str]:
    """The descriptor of the deepest existing ancestor, and the remaining names."""
    missing: list[bytes] = []
    while True:
        try:
            descriptor = _open(path)
        except FileNotFoundError:
            path, _, name = path.rstrip(b"/").rpartition(b"/")
            path = path or b"/"
            if not name:  # not even the root is there
                raise
            # Below a missing folder `..` has no inode to resolve against; folding it as text would guess.
            if name == b"..":
                reason = "a path that does not exist yet cannot contain '..'"
                raise PathRefused(reason, tells_what_is_there=True) from None
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
    """Refuse a dangling link.

    It looks missing, but a write through it creates its target outside the grant.
    """
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    reason = f"'{echo_name(os.fsdecode(name))}' is a dangling symlink"
    raise PathRefused(reason, tells_what_is_there=True)


def _open(path: bytes) -> int:
    try:
        return _openat2(path)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # older than 5.6, or blocked by a seccomp filter
            raise
    return _walk(path)


def _openat2(path: bytes) -> int:
    """`openat2` by its number: the standard library has no wrapper for it."""
    descriptor: int = _libc.syscall(_OPENAT2, _AT_FDCWD, path, _HOW, len(_HOW))
    return descriptor if descriptor >= 0 else _fail(ctypes.get_errno())


def _walk(path: bytes) -> int:
    """Fallback for `_openat2`, component by component.

    Stricter, because it cannot even pass through procfs.
    """
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
    """Path components, last first; a trailing slash demands a folder, as `.` does."""
    names = [name for name in path.split(b"/") if name]
    return [*([b"."] if path.endswith(b"/") else []), *reversed(names)]


def _step(here: int, name: bytes) -> int | bytes:
    """Open one component, or return the target if it is a link."""
    # O_NOFOLLOW: links are read and followed here, so that their number and procfs are checked at each step.
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
    """The real path that the kernel reports, verified to lead back to the same inode.

    Verification fails for deleted files and for those below a mount that is covered or detached. Their
    reported path would name another file, and the grant for that one would be applied.
    """
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if path.endswith(" (deleted)"):
        _fail(errno.ENOENT)
    if _is_procfs(descriptor) or f"{path}/".startswith(
        "/proc/"
    ):  # other file systems are mounted below /proc
        raise PathRefused("the kernel's own files may not be touched")
    there = os.stat(path, follow_symlinks=False)
    if (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino):
        raise PathRefused("the path cannot be resolved")
    return path


def _is_procfs(descriptor: int) -> bool:
    status = _StatFs()
    if _libc.fstatfs(descriptor, status) != 0:
        _fail(ctypes.get_errno())
    return status[0] == _PROC_SUPER_MAGIC
