"""Path grants (`fs.read:PREFIX`, `fs.write:PREFIX`), and protected paths that no grant covers (POL-1, POL-7).

In come the scope of a grant, the state folder, and resolved paths. Out goes whether a grant contains a path,
and why a path may not be touched at all. It trusts the real path of a `ResolvedPath`, which describes one
moment: call `ResolvedPath.check_unchanged` before use.

It does not protect against a tool that reads a whole tree above the state folder, nor against a bind mount of
*part* of the state elsewhere; the sandbox does. Nor against a second hard link to a file of `.agent/` or
`.git/`, hooks that a repository keeps elsewhere, or a bare repository that is not named `.git`.
"""

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from toolkeep.policy.resolved_path import PathRefused, ResolvedPath, resolve
from toolkeep.sandbox.import_guard import writable_folders
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths, is_within, links_of
from toolkeep.text.display import echo_name

Written = Callable[[], Iterable[str]]
"""Returns the folders that tools may write now."""


class Folder:
    """The scope of `fs.read:PREFIX` or `fs.write:PREFIX`: the prefix itself and everything below it."""

    __slots__ = ("_written", "base", "text")

    def __init__(self, text: str, base: str, written: Written = writable_folders) -> None:
        self.text = text
        self.base = base
        self._written = written

    def contains(self, place: ResolvedPath) -> bool:
        """Whether a path lies inside the prefix, resolved again now.

        Nothing is cached between calls: a folder that was moved, or whose ancestor was, keeps its inode and
        times, so no cache key proves that its real path is still the same.
        """
        if self.text in ("", "*"):  # wildcards are for requirements; a grant of one grants nothing
            return False
        try:
            with self._resolved(may_be_missing=True) as prefix:
                return _is_at_or_below(place.path, prefix.path)
        except PathRefused:
            return False

    def place(self) -> ResolvedPath:
        """Resolve the prefix now; raises `PathRefused` if it does not exist. The caller closes it."""
        return self._resolved(may_be_missing=False)

    def real_path(self) -> str | None:
        """The real path of the prefix now; None if it cannot be resolved."""
        try:
            with self._resolved(may_be_missing=True) as prefix:
                return prefix.path
        except PathRefused:
            return None

    def _resolved(self, *, may_be_missing: bool) -> ResolvedPath:
        """Resolve the prefix; raises `PathRefused` if a tool controls a link on the way.

        A link in a folder that some agent may write can be replaced by any tool of that agent, and the grant
        would then extend to whatever the link leads to (confused deputy).
        """
        place = resolve(self.text, self.base, may_be_missing=may_be_missing)
        whole = os.path.join(self.base, self.text)
        if place.path == os.path.normpath(whole):  # no link on the way
            return place
        for link in links_of(whole):
            if any(is_within(link, folder) for folder in self._written()):
                place.close()
                reason = f"is granted by way of the link '{echo_name(link)}', which a tool may replace"
                raise PathRefused(f"'{echo_name(self.text)}' {reason}")
        return place


def _is_at_or_below(path: str, prefix: str) -> bool:
    """Compares whole components: a string prefix alone would let /data grant /database."""
    return path == prefix or path.startswith(f"{prefix.rstrip('/')}/")


# --- what no grant covers ------------------------------------------------------------------------

_KEPT: Final = frozenset((".agent", "toolkeep.lock", ".git"))
"""Names that decide what toolkeep and git execute: hooks, filters, remotes. Nearly every file of `.git`
can."""


class ProtectedPaths:
    """Protected paths, whatever a grant, policy or approval says: state, reserved names, trusted paths.

    The state folder and everything in it may be neither read nor written: it holds keys, approvals and the
    audit log. No folder above it may be written, because whoever can rename that folder can put another state
    in its place. Reading a folder above it is allowed: that is how anybody lists their home.
    """

    __slots__ = ("_state_folder", "_trusted")

    def __init__(self, state_folder: str | None, trusted: TrustedPaths = THIS_PROCESS) -> None:
        if state_folder is not None and not state_folder.startswith("/"):
            raise ValueError(f"the folder of the state is absolute, not {state_folder!r}")
        self._state_folder = state_folder
        self._trusted = trusted

    def objection(
        self, place: ResolvedPath, *, writes: bool, is_whole: bool = False, agent: str = ""
    ) -> str | None:
        """Why the path may not be touched, as a clause; None if it may.

        With `is_whole` the call may walk the whole folder, so the state must not lie below it, even to read.
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

    def _objection_of_state(self, place: ResolvedPath, *, is_deep: bool) -> str | None:
        if self._state_folder is None:
            return None
        try:
            with resolve(self._state_folder, "/", may_be_missing=True) as state:
                if _is_in_state(place, state):
                    return "belongs to the state of toolkeep, which no tool may touch"
                if is_deep and _holds_state(place, state):
                    return "holds the state of toolkeep, and may not be touched as a whole"
        # Fail closed: a state folder that cannot be resolved could lie anywhere.
        except (OSError, PathRefused):
            return "might be the state folder of toolkeep, which no tool may access"
        return None


def _is_in_state(place: ResolvedPath, state: ResolvedPath) -> bool:
    """By real path, by inode of each ancestor (bind mounts), and by hard link."""
    # Case-folded: on a case-insensitive file system another spelling is the same folder.
    if _is_at_or_below(place.path.casefold(), state.path.casefold()):
        return True
    if state.missing:
        return _is_same_folder(place, state) and _is_at_or_below(
            place.missing.casefold(), state.missing.casefold()
        )
    if (state.device, state.inode) in _marks_upward(place):
        return True
    # A hard link has a real path of its own; only its inode shows that it is a file of the state.
    may_be_linked = place.is_file and place.links > 1 and place.device == state.device
    return may_be_linked and _has_inode(state, place.inode)


def _holds_state(place: ResolvedPath, state: ResolvedPath) -> bool:
    if _is_at_or_below(state.path.casefold(), place.path.casefold()):
        return True
    if place.missing:
        return _is_same_folder(place, state) and _is_at_or_below(
            state.missing.casefold(), place.missing.casefold()
        )
    return (place.device, place.inode) in _marks_upward(state)


def _is_same_folder(place: ResolvedPath, other: ResolvedPath) -> bool:
    """Whether the missing parts of both belong to the same existing folder, by whatever path."""
    return (place.device, place.inode) == (other.device, other.inode)


def _marks_upward(place: ResolvedPath) -> Iterator[tuple[int, int]]:
    """Device and inode of a path and of each ancestor: they are the same under a bind mount elsewhere."""
    yield place.device, place.inode
    path = place.path.removesuffix(place.missing).rstrip("/")
    while path:
        path = path.rpartition("/")[0]
        status = os.stat(path or "/", follow_symlinks=False)
        yield status.st_dev, status.st_ino


def _has_inode(state: ResolvedPath, inode: int) -> bool:
    """Whether a file of the state has this inode number: a hard link to it may lie anywhere.

    Scans the whole state, but only for a file with several links on the same file system.
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
    """Whether a path contains a reserved name (`.agent`, `toolkeep.lock`, `.git`)."""
    names = {_fold(name) for name in path.split("/")}
    return not names.isdisjoint(_KEPT)


def _fold(name: str) -> str:
    r"""Normalize a name as the most lenient file system would compare it.

    Some ignore case (`.GIT`), some ignorable code points (`.g\u200cit`), some a trailing dot or space. All
    non-ASCII characters are dropped, so a few harmless names are refused as well.
    """
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name).casefold().encode("ascii", "ignore").decode()
    return name.lower().rstrip(". ")
