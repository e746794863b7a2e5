"""A path as a built-in tool gets it: as the caller named it, and its real path.

Policy resolved it and the sandbox shows nothing else, so tools open `real`; messages name `named`, so that
the model can use it in its next call. Only regular files are opened, and never through a symlink.
"""

import errno
import os
import stat
from typing import BinaryIO, NamedTuple

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.text.display import visible

KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class ToolPath(NamedTuple):
    """The path that a call acts on."""

    named: str
    real: str

    def inside(self, relative: str) -> str:
        """The name of an entry below it, as a caller could use it."""
        below = shown_name(relative)
        return below if self.named in (".", "./") else f"{self.named.rstrip('/')}/{below}"

    def open(self) -> BinaryIO:
        """Open the file for reading; `ToolFailed` says what it is instead."""
        try:
            # O_NOFOLLOW: the path was resolved already, so a link here was put there since (TOCTOU).
            # O_NONBLOCK: opening a FIFO would wait for a writer for ever.
            descriptor = os.open(self.real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ToolFailed(f"'{self.named}' {reason(error)}") from error
        # Of the open file, not of the path: the path may name something else by now.
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            hint = "; use list_directory" if stat.S_ISDIR(mode) else ""
            raise ToolFailed(f"'{self.named}' is {kind_of(mode)}, not a file{hint}")
        return os.fdopen(descriptor, "rb")


def shown_name(name: str) -> str:
    """A name that somebody else chose, on one line; of one that is not UTF-8, the odd bytes as `\\xff`."""
    return visible(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


def kind_of(mode: int) -> str:
    """The kind of file with this mode."""
    return next((name for test, name in KINDS if test(mode)), "something else")


def reason(error: OSError) -> str:
    """Why a file cannot be opened, to follow its name."""
    told = {
        errno.ENOENT: "does not exist",
        errno.EACCES: "may not be opened",
        errno.EPERM: "may not be opened",
        errno.ELOOP: "is a symbolic link",
        errno.ENOTDIR: "is below something that is not a folder",
        errno.EISDIR: "is a folder",
        errno.ENAMETOOLONG: "has too long a name",
        errno.ENXIO: "is a socket or a device, not a file",
        errno.ENOSPC: "cannot be written: the disk is full",
        errno.EDQUOT: "cannot be written: the disk is full",
        errno.EFBIG: "cannot be written: it would be too large",
        errno.EROFS: "cannot be written: it is in a read-only folder",
    }
    return told.get(error.errno or 0, f"cannot be used: {os.strerror(error.errno or 0)}")
