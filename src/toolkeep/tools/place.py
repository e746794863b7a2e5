"""A path as a built-in tool gets it: as the caller named it, and where that really leads.

Policy has resolved it and the sandbox shows nothing else, so that tools open `real`; what a model reads is
about `named`, so that it can use it in its next call. Opened is what is a file, never a pipe or a device, and
never through a link.
"""

import errno
import os
import stat
from typing import BinaryIO, NamedTuple

from toolkeep.definitions.context import ToolFailed
from toolkeep.wording import visible

KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Place(NamedTuple):
    """Where a call wants to act."""

    named: str
    real: str

    def inside(self, relative: str) -> str:
        """The name of something below it, as a caller could use it."""
        below = shown_name(relative)
        return below if self.named in (".", "./") else f"{self.named.rstrip('/')}/{below}"

    def open(self) -> BinaryIO:
        """The file, to be read; `ToolFailed` says what it is instead."""
        try:
            descriptor = os.open(self.real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ToolFailed(f"'{self.named}' {reason(error)}") from error
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
    """What kind of thing has this mode."""
    return next((name for test, name in KINDS if test(mode)), "something else")


def reason(error: OSError) -> str:
    """Why something cannot be opened, to be read after its name."""
    told = {
        errno.ENOENT: "does not exist",
        errno.EACCES: "may not be opened",
        errno.EPERM: "may not be opened",
        errno.ELOOP: "is a symbolic link",
        errno.ENOTDIR: "lies below something that is no folder",
        errno.EISDIR: "is a folder",
        errno.ENAMETOOLONG: "has too long a name",
        errno.ENXIO: "is a socket or a device, not a file",
        errno.ENOSPC: "cannot be written: the disk is full",
        errno.EDQUOT: "cannot be written: the disk is full",
        errno.EFBIG: "cannot be written: it would be too large",
        errno.EROFS: "cannot be written: it lies in a folder that may only be read",
    }
    return told.get(error.errno or 0, f"cannot be used: {os.strerror(error.errno or 0)}")
