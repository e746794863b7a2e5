"""Protected paths inside writable folders: mounted read-only, so that a tool can neither write nor move them.

These are the trusted set (SBX-6) and, by name, what decides what toolkeep and git execute (POL-7). Input: a
folder and the trusted set. Output: paths to bind-mount read-only over themselves, or a ValueError that says
what cannot be protected and what to do instead.

Parent folders of a protected path are pinned too: renamed, they would take the mounts inside along and free
the name. What does not exist cannot be protected: a repository that a tool creates is its own work.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from toolkeep.limits import PROTECTED_ENTRIES
from toolkeep.sandbox.import_guard import watch
from toolkeep.sandbox.mountinfo import bind_mount_aliases
from toolkeep.sandbox.trusted_paths import ReplacedFile, TrustedPath, TrustedPaths, is_within

_PROTECTED: Final = frozenset((".agent", ".git", "toolkeep.lock"))
_OF_GIT: Final = ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees", "info")
"""What makes git run programs, and nested repositories that have the same."""

_SETTLED_S: Final = 2.0
"""A folder changed more recently than this is listed again: its next change may get the same timestamp."""

CACHE: Final = "__pycache__"


def read_only_inside(folder: str, trusted: TrustedPaths, agent: str, *, is_deep: bool) -> Iterator[str]:
    """Paths below a folder to be protected; with a trailing slash, only pinned against rename.

    `is_deep` searches the whole tree for protected names; our own tools write one file in the folder itself.
    """
    for name in (folder, *bind_mount_aliases(folder)):
        watch(name)  # Before the tool can write a module there.
    held = [one.path for one in trusted_inside(folder, trusted, agent)]
    names = _TREES.read_only(folder, frozenset(held)) if is_deep else _direct(folder)
    for path in dict.fromkeys((*held, *names)):
        yield path
        above = os.path.dirname(path)
        while len(above) > len(folder):
            yield f"{above}/"
            above = os.path.dirname(above)


def trusted_inside(folder: str, trusted: TrustedPaths, agent: str) -> Iterator[TrustedPath]:
    """Trusted paths below a folder; ValueError if one of them cannot be protected."""
    # The folder itself is trusted: nothing inside could stay writable.
    if (above := trusted.covering(folder, agent)) is not None:
        raise ValueError(f"its folder belongs to what toolkeep trusts, {above.what}; grant another folder")
    # A bind mount shows the same folder under a second path, where our read-only mounts are not.
    for other in bind_mount_aliases(folder):
        found = (trusted.covering(other, agent), *trusted.inside(other, agent), *trusted.links_inside(other))
        if one := next(filter(None, found), None):
            # Without the path: the reason goes to a model, which must not learn host paths.
            reason = f"its folder is mounted a second time, where {one.what} is"
            raise ValueError(f"{reason}; grant a folder that is mounted once")
    inside = trusted.inside(folder, agent)
    # A symlink cannot be a mount point, so it cannot be made read-only: the grant is refused instead.
    for link in trusted.links_inside(folder):
        if not any(is_within(link.path, one.path) for one in inside):
            name = os.path.relpath(link.path, folder)
            reached = f"its folder holds the link '{name}', by which {link.what} is reached"
            raise ValueError(f"{reached}; grant a folder below it")
    for one in inside:
        # A rename over a mounted file detaches the mount, and the host itself renames this one.
        if isinstance(one, ReplacedFile):
            name = os.path.basename(one.path)
            reason = f"its folder is that of '{name}', {one.what}, which toolkeep replaces"
            raise ValueError(f"{reason}; keep that in another folder, or grant a folder below it")
        _ensure_exists(one, folder)
        yield one


def _ensure_exists(one: TrustedPath, folder: str) -> None:
    """A trusted path must exist to be a mount point. Python would create its bytecode cache by itself."""
    if os.path.lexists(one.path):
        return
    if os.path.basename(one.path) == CACHE:
        os.mkdir(one.path)
        return
    name = os.path.relpath(one.path, folder)
    reason = f"'{name}' could be made in its folder, and is {one.what}"
    raise ValueError(f"{reason}; make it, or grant a folder below it")


def check_unprotected(folder: str, trusted: TrustedPaths, agent: str) -> None:
    """Raise ValueError if a folder holds protected paths, for runners that cannot mount (WASM)."""
    for path in read_only_inside(folder, trusted, agent, is_deep=True):
        name = os.path.relpath(path, folder)
        raise ValueError(f"its folder contains '{name}', which no tool may write; grant a subfolder")


def protected_git_paths(repository: str) -> list[str]:
    """What no tool may write in a repository, not even one that commits."""
    parts = [f"{repository}/{name}" for name in _OF_GIT]
    # What is missing could be created: a new hooks folder makes the next git command run it.
    if not all(map(os.path.lexists, parts[:2])):
        raise ValueError("its repository has no hooks or no config, which could be made")
    links = [entry.name for entry in os.scandir(repository) if entry.is_symlink()]
    if links:
        raise ValueError(f"its repository contains the link '{links[0]}', which git would follow")
    return [path for path in parts if os.path.lexists(path)]


def _direct(folder: str) -> Iterator[str]:
    return _without_links(f"{folder}/{name}" for name in sorted(_PROTECTED))


def _without_links(paths: Iterable[str]) -> Iterator[str]:
    """The existing ones of these paths; a symlink cannot be a mount point."""
    for path in paths:
        # A `.git` symlink would redirect git to a repository of the tool's choice.
        if os.path.islink(path):
            name = os.path.basename(path)
            raise ValueError(f"its folder contains a link named '{name}', which no tool may write; remove it")
        if os.path.lexists(path):
            yield path


# --- cached directory listings --------------------------------------------------------------------
_Stamp = tuple[int, int, int, int]


class _Listing(NamedTuple):
    """One folder: its timestamp when listed, its subfolders, and its protected names."""

    stamp: _Stamp | None
    folders: tuple[str, ...]
    protected: tuple[str, ...]
    entries: int
    is_installed: bool = False
    """Whether an installer made it: a virtual environment, or the packages of node."""


class _TooMany(ValueError):
    """More entries than are looked through."""


class _Trees:
    """Searches trees for protected names; lists a folder again only after it changed.

    A call in a project of 30,000 files checks some 3,000 folders: comparing timestamps takes a tenth of the
    time of listing. The ctime of a folder changes with every entry that is added or removed, and cannot be
    set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listed: dict[str, _Listing] = {}

    def read_only(self, folder: str, held: frozenset[str]) -> list[str]:
        """Paths to make read-only below a folder, outside of what is protected anyway.

        These are the protected names. In a folder that holds too much to look through, what was installed
        in it is made read-only as a whole, and is not looked into.
        """
        with self._lock:
            if len(self._listed) > PROTECTED_ENTRIES:
                self._listed.clear()
            try:
                found = self._protected(folder, held, holds_installed=False)
            except _TooMany:
                found = self._protected(folder, held, holds_installed=True)
        return list(_without_links(found))

    def _protected(self, folder: str, held: frozenset[str], *, holds_installed: bool) -> list[str]:
        found: list[str] = []
        left, seen = [folder], 0
        while left:
            place = left.pop()
            listing = self._listing(place)
            if holds_installed and listing.is_installed and place != folder:
                found.append(place)
                continue
            seen += listing.entries
            if seen > PROTECTED_ENTRIES:
                raise _TooMany("its folder has too many files to check; grant a subfolder")
            found += listing.protected
            # Symlinks are not followed, so the walk stays inside the folder and ends.
            left += (path for path in listing.folders if path not in held)
        return found

    def _listing(self, folder: str) -> _Listing:
        known = self._listed.get(folder)
        stamp = _stamp(folder)
        if known is None or stamp is None or known.stamp != stamp:
            known = self._listed[folder] = _list(folder, stamp)
        return known


_TREES: Final = _Trees()


def _stamp(folder: str) -> _Stamp | None:
    """Identity and times of a folder; None if a change could go unnoticed."""
    try:
        status = os.stat(folder, follow_symlinks=False)
    except OSError:
        return None
    is_settled = status.st_ctime_ns < time.time_ns() - int(_SETTLED_S * 1e9)
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns) if is_settled else None


def _list(folder: str, stamp: _Stamp | None) -> _Listing:
    folders: list[str] = []
    protected: list[str] = []
    entries = 0
    is_installed = os.path.basename(folder) == "node_modules"
    try:
        with os.scandir(folder) as found:
            for entry in found:
                entries += 1
                is_installed = is_installed or entry.name == "pyvenv.cfg"
                # Case-insensitively: on such a file system `.GIT` is `.git`.
                if entry.name.casefold() in _PROTECTED:
                    protected.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    except PermissionError as error:
        # The worker may have the owner's rights and open it.
        raise ValueError(
            "its folder holds another that cannot be looked into; open or remove that"
        ) from error
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return _Listing(None, (), (), entries)
        raise ValueError("its folder contains one that is nested too deeply; remove that") from error
    return _Listing(stamp, tuple(folders), tuple(protected), entries, is_installed)
