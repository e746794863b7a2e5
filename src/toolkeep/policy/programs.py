"""Which program a call would start, and whether a grant names it (POL-1).

Comes in: the first word of a command, the folder it starts in and a PATH. Goes out: the place of the real
file, or `PlaceRefused`. What starts it must execute that file, by its descriptor: looked up again, the name
may be another's.

What it does not protect against: a program that starts others. A grant of an interpreter or a shell (`sh`,
`python`, `env`, `find`, `git`) is a grant of everything that the sandbox lets through, and so is one of a
script whose first line names an interpreter. A program that acts by its name (busybox) is granted under all
of its names.
"""

import os

from toolkeep.policy.places import Place, PlaceRefused, resolve
from toolkeep.wording import echo_name


def resolve_program(argv0: str, base: str, search: str) -> Place:
    """The executable file that a command's first word stands for; the caller closes it.

    With a slash it is a path, relative to `base`; else it is looked for in the absolute folders of `search`.
    """
    if "/" in argv0:
        place = resolve(argv0, base, may_be_missing=False)
        if not _is_program(place):
            place.close()
            raise PlaceRefused(f"'{echo_name(argv0)}' is no file that this user may execute")
        return place
    for folder in search.split(":"):
        if folder.startswith("/") and (found := _find(f"{folder}/{argv0}")):
            return found
    raise PlaceRefused(f"there is no program '{echo_name(argv0)}' to be found")


def _find(path: str) -> Place | None:
    try:
        place = resolve(path, "/", may_be_missing=False)
    except PlaceRefused:
        return None
    if _is_program(place):
        return place
    place.close()
    return None


def _is_program(place: Place) -> bool:
    path = f"/proc/self/fd/{place.descriptor}"  # the very file, whatever its path leads to by now
    return place.is_file and os.access(path, os.X_OK, effective_ids=True)


class Program:
    """The scope of `process.spawn:PROGRAM`. An interpreter or a shell granted is everything granted."""

    __slots__ = ("base", "search", "text")

    def __init__(self, text: str, base: str, search: str) -> None:
        self.text = text
        self.base = base
        self.search = search

    def contains(self, place: Place) -> bool:
        """Whether a place is the program that the grant names, as it is found now."""
        if self.text in ("", "*"):  # a grant of no program in particular grants none
            return False
        try:
            with self.place() as granted:
                mine = (granted.device, granted.inode, granted.path)
                return mine == (place.device, place.inode, place.path)
        except PlaceRefused:
            return False

    def place(self) -> Place:
        """The program as it is found now; raises `PlaceRefused` where there is none. The caller closes it."""
        return resolve_program(self.text, self.base, self.search)
