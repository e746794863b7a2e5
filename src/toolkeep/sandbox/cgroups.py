"""A cgroup for each worker that may start processes: the kernel counts the memory of all of them together.

Only where a cgroup v2 with the memory controller was given to this user; nothing is taken that belongs to the
service manager, and this process itself is never moved. All groups of this process lie in one folder that it
holds locked: a folder whose lock is free was left by a process that is gone, and is swept away. Workers reach
none of these files: above `standard` they are not there, at `standard` they are read-only.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.processes import host_pid

_PREFIX: Final = "toolkeep-"
_BELOW: Final = Path("/sys")
"""Workers at `standard` see this read-only; a cgroup that is mounted elsewhere could be theirs to write."""

_EXCEEDED: Final = frozenset({"oom_kill", "oom_group_kill"})
_FULL: Final = frozenset({errno.ENOSPC, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class NoCgroup(Exception):
    """No cgroup can be used here; says why."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all processes of a worker may take together."""

    memory_bytes: int
    processes: int

    def settings(self) -> Iterator[tuple[str, str]]:
        """The files that say so, and what is written into them."""
        yield "memory.max", str(self.memory_bytes)
        yield "memory.oom.group", "1"  # all or none: a tool that lost one process would answer nonsense


_WHERE_THERE: Final = {"memory.swap.max": "0"}
"""For kernels that swap; where they do not, the file is absent."""


@dataclass(frozen=True, slots=True)
class Group:
    """The cgroup of one worker."""

    folder: Path
    groups: "Groups"

    def is_exceeded(self) -> bool:
        """Whether the kernel ended it for its memory."""
        try:
            events = _read(self.folder, "memory.events")
        except OSError:
            return False
        counts = dict(line.split() for line in events.splitlines())
        return any(int(counts.get(name, 0)) for name in _EXCEEDED)

    def attend(self, *, closely: bool) -> None:
        """Nothing to do: the kernel always does."""

    def taken_bytes(self) -> int:
        """How much memory it takes now."""
        return int(_read(self.folder, "memory.current"))

    def release(self) -> None:
        """Remove it; its processes are dead, or dying."""
        self.groups.remove(self)


class Groups:
    """The cgroups that this process makes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._home: _Home | None = None
        self._left: set[Path] = set()
        """Groups that were still dying when they were to be removed."""

    def hold(self, pidfd: int, bounds: Bounds) -> Group:
        """Put a process into a group of its own. It must have started nothing yet.

        It cannot have ended and left its number to another: it waits for this, and only death ends it.
        """
        group = self._made(bounds)
        try:
            _write(group.folder, "cgroup.procs", str(host_pid(pidfd)))
            host_pid(pidfd)
        except OSError as error:
            group.release()
            raise _failure(error) from error
        return group

    def open(self) -> None:
        """Find a place for groups; raises NoCgroup. Done by the first `hold` where it was not before."""
        with self._lock:
            self._found_home()

    def _found_home(self) -> "_Home":
        if self._home is None:
            self._home = _Home.found()
        return self._home

    def _made(self, bounds: Bounds) -> Group:
        try:
            self.tidy()
            with self._lock:
                folder = self._found_home().folder / str(next(self._numbers))
                folder.mkdir()
        except OSError as error:
            raise _failure(error) from error
        except NoCgroup as error:
            raise SandboxBroken(f"no cgroup for a worker: {error}") from error
        group = Group(folder, self)
        try:
            self._bound(folder, bounds)
        except OSError as error:
            group.release()
            raise _failure(error) from error
        return group

    def _bound(self, folder: Path, bounds: Bounds) -> None:
        for name, value in bounds.settings():
            _write(folder, name, value)
        for name, value in {**_WHERE_THERE, "pids.max": str(bounds.processes)}.items():
            with contextlib.suppress(FileNotFoundError):
                _write(folder, name, value)

    def remove(self, group: Group) -> None:
        """Remove a group now, or soon if its processes are not quite gone."""
        if not _is_removed(group.folder):
            with self._lock:
                self._left.add(group.folder)

    def tidy(self) -> bool:
        """Remove what could not be removed before; whether nothing is left."""
        with self._lock:
            self._left = {folder for folder in self._left if not _is_removed(folder)}
            return not self._left

    def close(self) -> None:
        """Leave nothing behind, as far as processes are gone; the next keep sees to the rest."""
        self.tidy()
        with self._lock:
            if self._home is not None and self._home.is_left():
                self._home = None


class _Home:
    """The folder that holds all groups of this process, locked for as long as it lives."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @classmethod
    def found(cls) -> "_Home":
        """Make it in the first place that can be used, and sweep that place."""
        reasons = []
        for base in _bases():
            try:
                _give_controllers(base)
                _sweep(base)
                return cls._made_in(base)
            except (OSError, NoCgroup) as error:
                reasons.append(f"{base}: {error}")
        raise NoCgroup("; ".join(reasons) or f"no cgroup v2 is mounted below {_BELOW}")

    @classmethod
    def _made_in(cls, base: Path) -> "_Home":
        folder = base / f"{_PREFIX}{secrets.token_hex(8)}"
        folder.mkdir()
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _give_controllers(folder)  # fails if another process swept it before it was locked
        except BaseException:
            os.close(lock)
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise
        return cls(folder, lock)

    def is_left(self) -> bool:
        """Remove it, unless something is in it."""
        if not _is_removed(self.folder):
            return False
        os.close(self._lock)
        return True


# --- where ---------------------------------------------------------------------------------------


def _bases() -> Iterator[Path]:
    """Where groups may be made: in our own cgroup, beside it, or at the root of all."""
    seen: set[Path] = set()
    for root, own in _mounted():
        for folder in (own, own.parent, root):
            is_inside = folder == root or root in folder.parents
            # A slice is the service manager's, even where a user may write it.
            if is_inside and folder not in seen and folder.suffix != ".slice":
                seen.add(folder)
                if folder != root or own == root or _is_root_of_all(root):
                    yield folder


def _mounted() -> Iterator[tuple[Path, Path]]:
    """Each mount of cgroup v2 below /sys, and our own folder in it."""
    own = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
    for line in _lines("/proc/self/mountinfo"):
        fields, _, kind = line.partition(" - ")
        shown, place = fields.split()[3:5]
        if own is None or not kind.startswith("cgroup2 ") or _BELOW not in Path(place).parents:
            continue
        if own == shown or own.startswith(f"{shown.rstrip('/')}/"):
            yield Path(place), Path(place) / own[len(shown.rstrip("/")) :].lstrip("/")


def _is_root_of_all(folder: Path) -> bool:
    return not (folder / "cgroup.type").exists()


def _give_controllers(base: Path) -> None:
    """Let the groups in a folder have the memory controller, and the one of processes if there is one."""
    if "memory" not in _read(base, "cgroup.controllers").split():
        raise NoCgroup("it has no memory controller")
    if not os.access(base / "cgroup.procs", os.W_OK):
        raise NoCgroup("it belongs to another user")
    given = _read(base, "cgroup.subtree_control").split()
    if "memory" not in given:
        _write(base, "cgroup.subtree_control", "+memory")
    if "pids" not in given:
        with contextlib.suppress(OSError):
            _write(base, "cgroup.subtree_control", "+pids")


def _sweep(base: Path) -> None:
    """Remove what processes that are gone left here; whoever lives holds the lock of his folder."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for group in (*(path for path in folder.iterdir() if path.is_dir()), folder):
                _is_removed(group)
        except OSError:
            continue
        finally:
            os.close(lock)


# --- files ---------------------------------------------------------------------------------------


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="ascii")


def _write(folder: Path, name: str, value: str) -> None:
    """Write a file of the kernel's, which must be there."""
    file = os.open(folder / name, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, value.encode("ascii"))
    finally:
        os.close(file)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _failure(error: OSError) -> SandboxBroken | SandboxExhausted:
    if error.errno in _FULL:
        return SandboxExhausted(f"no room for the cgroup of a worker: {error.strerror}")
    return SandboxBroken(f"a worker could not be put into a cgroup: {error}")
