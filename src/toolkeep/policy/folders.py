"""How far a grant of files reaches, and what no grant ever reaches (POL-1, POL-7).

Comes in: the scope of a grant, the folder of the keep's state, and places. Goes out: whether a grant contains
a place, and what stands against touching it at all. It trusts the real path of a place, which is as old as
the place: `Place.check_unchanged` belongs before its use.

What it does not protect against: a tool that reads a whole tree from a folder above the state, and a mount
elsewhere of *part* of the state; for both there is the sandbox. Nor a second hard link to a file of `.agent/`
or `.git/`, hooks that a repository keeps elsewhere, or a bare repository that is not named `.git`.
"""

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from toolkeep.policy.places import Place, PlaceRefused, resolve
from toolkeep.sandbox.import_guard import writable_folders
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths, is_within, links_of
from toolkeep.wording import echo_name

Written = Callable[[], Iterable[str]]
"""The folders that tools may write, at the moment."""


class Folder:
    """The scope of `fs.read:PREFIX` or `fs.write:PREFIX`: the prefix itself, and everything below."""

    __slots__ = ("_written", "base", "text")

    def __init__(self, text: str, base: str, written: Written = writable_folders) -> None:
        self.text = text
        self.base = base
        self._written = written

    def contains(self, place: Place) -> bool:
        """Whether a place lies inside, as the prefix is now.

        Nothing is remembered between calls: a folder that was moved, or lies below one that was, keeps its
        inode and its times, so that no key shows that its real path is still the same.
        """
        if self.text in ("", "*"):  # "what policy grants" is for requirements; a grant of it grants nothing
            return False
        try:
            with self._resolved(may_be_missing=True) as prefix:
                return _is_at_or_below(place.path, prefix.path)
        except PlaceRefused:
            return False

    def place(self) -> Place:
        """The prefix as it is now; raises `PlaceRefused` where there is none. The caller closes it."""
        return self._resolved(may_be_missing=False)

    def real_path(self) -> str | None:
        """Where the prefix lies now; None where that cannot be told."""
        try:
            with self._resolved(may_be_missing=True) as prefix:
                return prefix.path
        except PlaceRefused:
            return None

    def _resolved(self, *, may_be_missing: bool) -> Place:
        """The prefix; `PlaceRefused` where a tool may choose what that is.

        A link on the way, in a folder that some agent may write, could be replaced by any tool of that agent,
        and the grant would reach whatever it leads to then.
        """
        place = resolve(self.text, self.base, may_be_missing=may_be_missing)
        whole = os.path.join(self.base, self.text)
        if place.path == os.path.normpath(whole):  # no link is on the way
            return place
        for link in links_of(whole):
            if any(is_within(link, folder) for folder in self._written()):
                place.close()
                reason = f"is granted by way of the link '{echo_name(link)}', which a tool may replace"
                raise PlaceRefused(f"'{echo_name(self.text)}' {reason}")
        return place


def _is_at_or_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix.rstrip('/')}/")


# --- what no grant covers ------------------------------------------------------------------------

_KEPT: Final = frozenset((".agent", "toolkeep.lock", ".git"))
"""What decides what toolkeep and git run: of a repository nearly everything can."""


class Protected:
    """What may not be touched, whatever a policy or a person says: the state, kept names, the trusted set.

    Of the state: neither it nor anything in it may be read or written, and no folder above it written, for
    who can move that folder can put another state in its place. Reading a folder above it is left alone: that
    is how anybody lists their home.
    """

    __slots__ = ("_state_folder", "_trusted")

    def __init__(self, state_folder: str | None, trusted: TrustedPaths = THIS_PROCESS) -> None:
        if state_folder is not None and not state_folder.startswith("/"):
            raise ValueError(f"the folder of the state is absolute, not {state_folder!r}")
        self._state_folder = state_folder
        self._trusted = trusted

    def objection(self, place: Place, *, writes: bool, is_whole: bool = False, agent: str = "") -> str | None:
        """A clause that says why the place may not be touched, or None.

        Whoever goes through a whole folder must not find the state in it, to read either.
        """
        objection = self._objection_of_state(place, is_deep=writes or is_whole)
        if objection is None and writes and _is_kept_name(place.path):
            objection = "may not be written by any tool: it decides what runs"
        if (
            objection is None
            and writes
            and (trusted := self._trusted.covering(place.path, agent)) is not None
        ):
            objection = f"may not be written by any tool: it belongs to {trusted.what}"
        return objection and f"'{echo_name(place.text)}' {objection}"

    def _objection_of_state(self, place: Place, *, is_deep: bool) -> str | None:
        if self._state_folder is None:
            return None
        try:
            with resolve(self._state_folder, "/", may_be_missing=True) as state:
                if _is_in_state(place, state):
                    return "belongs to the state of toolkeep, which no tool may touch"
                if is_deep and _holds_state(place, state):
                    return "holds the state of toolkeep, and may not be touched as a whole"
        except (OSError, PlaceRefused):
            return "cannot be told apart from the state of toolkeep, which cannot be reached"
        return None


def _is_in_state(place: Place, state: Place) -> bool:
    if _is_at_or_below(place.path.casefold(), state.path.casefold()):
        return True
    if state.missing:
        return _is_same_folder(place, state) and _is_at_or_below(
            place.missing.casefold(), state.missing.casefold()
        )
    if (state.device, state.inode) in _marks_upward(place):
        return True
    may_be_linked = place.is_file and place.links > 1 and place.device == state.device
    return may_be_linked and _has_inode(state, place.inode)


def _holds_state(place: Place, state: Place) -> bool:
    if _is_at_or_below(state.path.casefold(), place.path.casefold()):
        return True
    if place.missing:
        return _is_same_folder(place, state) and _is_at_or_below(
            state.missing.casefold(), place.missing.casefold()
        )
    return (place.device, place.inode) in _marks_upward(state)


def _is_same_folder(place: Place, other: Place) -> bool:
    """Whether what is missing of both is missing in the same folder, by whatever path."""
    return (place.device, place.inode) == (other.device, other.inode)


def _marks_upward(place: Place) -> Iterator[tuple[int, int]]:
    """Device and inode of a place, and of each folder above it: a mount elsewhere has the same ones."""
    yield place.device, place.inode
    path = place.path.removesuffix(place.missing).rstrip("/")
    while path:
        path = path.rpartition("/")[0]
        status = os.stat(path or "/", follow_symlinks=False)
        yield status.st_dev, status.st_ino


def _has_inode(state: Place, inode: int) -> bool:
    """Whether a file of the state has this number: a hard link to it may stand anywhere.

    Looks at every name in the state, yet only for a file with a second name on the same file system.
    """
    folders = [state.path]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.inode() == inode:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return False


def _is_kept_name(path: str) -> bool:
    """Whether writing a path would change what toolkeep or git runs."""
    names = {_fold(name) for name in path.split("/")}
    return not names.isdisjoint(_KEPT)


def _fold(name: str) -> str:
    """A name as the most forgiving of file systems would compare it.

    Some ignore case, some marks that show nothing, some a dot or a space at the end. Whatever is not ASCII
    goes, so that a few odd names are refused that need not be.
    """
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name).casefold().encode("ascii", "ignore").decode()
    return name.lower().rstrip(". ")
