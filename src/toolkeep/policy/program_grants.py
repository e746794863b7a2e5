"""Program grants (`process.spawn:PROGRAM`): resolves argv[0] and compares it with the grant (POL-1).

In come the first word of a command, the folder it starts in and a PATH. Out goes the resolved executable, or
`PathRefused`. The runner must execute that file by its descriptor: a second PATH lookup could find another
file (TOCTOU).

It does not protect against programs that start others. A grant of an interpreter or shell (`sh`, `python`,
`env`, `find`, `git`), or of a script with a shebang line, grants everything that the sandbox lets through. A
multi-call binary (busybox) is granted under all of its names.
"""

import os

from toolkeep.policy.resolved_path import PathRefused, ResolvedPath, resolve
from toolkeep.text.display import echo_name


def resolve_program(argv0: str, base: str, search: str) -> ResolvedPath:
    """Resolve argv[0] to an executable file; the caller closes it.

    With a slash it is a path relative to `base`; otherwise it is looked up in the absolute folders of
    `search`.
    """
    if "/" in argv0:
        place = resolve(argv0, base, may_be_missing=False)
        if not _is_program(place):
            place.close()
            raise PathRefused(f"'{echo_name(argv0)}' is not an executable file")
        return place
    for folder in search.split(":"):
        # Relative and empty PATH entries mean the working folder, where a tool may have written a program.
        if folder.startswith("/") and (found := _find(f"{folder}/{argv0}")):
            return found
    raise PathRefused(f"the program '{echo_name(argv0)}' was not found")


def _find(path: str) -> ResolvedPath | None:
    try:
        place = resolve(path, "/", may_be_missing=False)
    except PathRefused:
        return None
    if _is_program(place):
        return place
    place.close()
    return None


def _is_program(place: ResolvedPath) -> bool:
    path = f"/proc/self/fd/{place.descriptor}"  # by descriptor: the path may have been replaced since
    return place.is_file and os.access(path, os.X_OK, effective_ids=True)


class Program:
    """The scope of `process.spawn:PROGRAM`."""

    __slots__ = ("base", "search", "text")

    def __init__(self, text: str, base: str, search: str) -> None:
        self.text = text
        self.base = base
        self.search = search

    def contains(self, place: ResolvedPath) -> bool:
        """Whether the file is the granted program, resolved again now."""
        if self.text in ("", "*"):  # an empty scope grants nothing (least privilege)
            return False
        try:
            with self.place() as granted:
                # Real path and inode: a hard link or a copy elsewhere is not the granted program.
                mine = (granted.device, granted.inode, granted.path)
                return mine == (place.device, place.inode, place.path)
        except PathRefused:
            return False

    def place(self) -> ResolvedPath:
        """Resolve the granted program now; raises `PathRefused`. The caller closes it."""
        return resolve_program(self.text, self.base, self.search)
