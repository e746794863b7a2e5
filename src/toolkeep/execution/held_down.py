"""What is held down inside a folder that a tool may write: readable there, and neither written nor moved.

That is the trusted set (SBX-6), and by their names what decides what toolkeep and git run (POL-7). Comes in:
a folder, and the trusted set. Goes out: paths to mount read-only over themselves, or a ValueError that says
what cannot be held down and what to do instead.

A folder above a held path is held in its place too: moved away, it would take the mounts in it along and
leave its name free. What does not exist cannot be held down: a repository that a tool makes is its own work.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from toolkeep.limits import PROTECTED_ENTRIES
from toolkeep.sandbox.import_guard import watch
from toolkeep.sandbox.mounts import other_names
from toolkeep.sandbox.trusted import ReplacedFile, TrustedPath, TrustedPaths, is_within

_PROTECTED: Final = frozenset((".agent", ".git", "toolkeep.lock"))
_OF_GIT: Final = ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees", "info")
"""What makes git run programs, and further repositories with the same."""

_SETTLED_S: Final = 2.0
"""A folder that changed more recently than this is listed again: its next change may carry the same time."""

CACHE: Final = "__pycache__"


def held_down(folder: str, trusted: TrustedPaths, agent: str, *, is_deep: bool) -> Iterator[str]:
    """What must not be written below a folder, and with a slash at its end what must not be moved.

    `is_deep` looks for protected names in the whole tree; our own tools write one file in the folder itself.
    """
    for name in (folder, *other_names(folder)):
        watch(name)  # before the tool can write a module there
    held = [one.path for one in trusted_inside(folder, trusted, agent)]
    names = _TREES.protected(folder, frozenset(held)) if is_deep else _direct(folder)
    for path in dict.fromkeys((*held, *names)):
        yield path
        above = os.path.dirname(path)
        while len(above) > len(folder):
            yield f"{above}/"
            above = os.path.dirname(above)


def trusted_inside(folder: str, trusted: TrustedPaths, agent: str) -> Iterator[TrustedPath]:
    """The trusted paths below a folder; ValueError where one of them cannot be held down."""
    if (above := trusted.covering(folder, agent)) is not None:
        raise ValueError(f"its folder belongs to what toolkeep trusts, {above.what}; grant another folder")
    for other in other_names(folder):
        found = (trusted.covering(other, agent), *trusted.inside(other, agent), *trusted.links_inside(other))
        if one := next(filter(None, found), None):
            # Not where: the reason goes to a model, which is told no path of the machine.
            reason = f"its folder is mounted a second time, where {one.what} lies"
            raise ValueError(f"{reason}; grant a folder that is mounted once")
    inside = trusted.inside(folder, agent)
    for link in trusted.links_inside(folder):
        if not any(is_within(link.path, one.path) for one in inside):
            name = os.path.relpath(link.path, folder)
            reached = f"its folder holds the link '{name}', by which {link.what} is reached"
            raise ValueError(f"{reached}; grant a folder below it")
    for one in inside:
        if isinstance(one, ReplacedFile):
            name = os.path.basename(one.path)
            reason = f"its folder is that of '{name}', {one.what}, which toolkeep replaces"
            raise ValueError(f"{reason}; keep that in another folder, or grant a folder below it")
        _make_there(one, folder)
        yield one


def _make_there(one: TrustedPath, folder: str) -> None:
    """A trusted path has to exist to be held down. Python would make its cache of bytecode by itself."""
    if os.path.lexists(one.path):
        return
    if os.path.basename(one.path) == CACHE:
        os.mkdir(one.path)
        return
    name = os.path.relpath(one.path, folder)
    reason = f"'{name}' could be made in its folder, and is {one.what}"
    raise ValueError(f"{reason}; make it, or grant a folder below it")


def check_unprotected(folder: str, trusted: TrustedPaths, agent: str) -> None:
    """Raise ValueError where a folder holds what no tool may write, for who cannot hold that down."""
    for path in held_down(folder, trusted, agent, is_deep=True):
        name = os.path.relpath(path, folder)
        raise ValueError(f"its folder holds '{name}', which no tool may write; grant a folder below it")


def of_git(repository: str) -> list[str]:
    """What no tool may write of a repository, not even one that commits."""
    parts = [f"{repository}/{name}" for name in _OF_GIT]
    if not all(map(os.path.lexists, parts[:2])):
        raise ValueError("its repository has no hooks or no config, which could be made")
    links = [entry.name for entry in os.scandir(repository) if entry.is_symlink()]
    if links:
        raise ValueError(f"its repository holds the link '{links[0]}', which git would follow")
    return [path for path in parts if os.path.lexists(path)]


def _direct(folder: str) -> Iterator[str]:
    return _without_links(f"{folder}/{name}" for name in sorted(_PROTECTED))


def _without_links(paths: Iterable[str]) -> Iterator[str]:
    """Those of these paths that are there; nothing can be mounted on a link."""
    for path in paths:
        if os.path.islink(path):
            name = os.path.basename(path)
            raise ValueError(f"its folder holds a link named '{name}', which no tool may write; remove it")
        if os.path.lexists(path):
            yield path


# --- a tree, listed once -------------------------------------------------------------------------

_Stamp = tuple[int, int, int, int]


class _Listing(NamedTuple):
    """One folder: when it was as it is listed, the folders in it, and the protected names."""

    stamp: _Stamp | None
    folders: tuple[str, ...]
    protected: tuple[str, ...]
    entries: int


class _Trees:
    """Looks for protected names through whole trees, and lists a folder again only after it changed.

    A call in a project of 30,000 files looks at some 3,000 folders: their stamps take a tenth of the time of
    listing them. The change time of a folder moves with every name that comes or goes, and cannot be set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listed: dict[str, _Listing] = {}

    def protected(self, folder: str, held: frozenset[str]) -> list[str]:
        """The protected paths below a folder, outside what is held down in any case."""
        found: list[str] = []
        left, seen = [folder], 0
        with self._lock:
            if len(self._listed) > PROTECTED_ENTRIES:
                self._listed.clear()
            while left:
                listing = self._listing(left.pop())
                seen += listing.entries
                if seen > PROTECTED_ENTRIES:
                    raise ValueError("its folder holds too much to look through; grant a folder below it")
                found += listing.protected
                left += (path for path in listing.folders if path not in held)
        return list(_without_links(found))

    def _listing(self, folder: str) -> _Listing:
        known = self._listed.get(folder)
        stamp = _stamp(folder)
        if known is None or stamp is None or known.stamp != stamp:
            known = self._listed[folder] = _list(folder, stamp)
        return known


_TREES: Final = _Trees()


def _stamp(folder: str) -> _Stamp | None:
    """What tells whether a folder changed; None where that cannot be told."""
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
    try:
        with os.scandir(folder) as found:
            for entry in found:
                entries += 1
                if entry.name.casefold() in _PROTECTED:
                    protected.append(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    except PermissionError as error:
        # It is not closed to the worker, who is its owner too and may open it.
        raise ValueError(
            "its folder holds another that cannot be looked into; open or remove that"
        ) from error
    except OSError as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return _Listing(None, (), (), entries)
        raise ValueError("its folder holds another that is nested too deep; remove that") from error
    return _Listing(stamp, tuple(folders), tuple(protected), entries)
