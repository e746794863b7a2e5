"""cgroup v2 memory and pids limits for workers that may start processes.

The kernel charges all processes of a worker to one group. Used only where a cgroup with the memory controller
is delegated to this user; nothing of the service manager's is taken, and this process is never moved. All
groups of this process lie in one folder that it holds locked (flock): a folder whose lock is free was left by
a dead process and is removed. Workers cannot reach these files: above `standard` they are not mounted, at
`standard` /sys is read-only.
"""

import contextlib
import errno
import itertools
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.proc_stats import host_pid

with contextlib.suppress(ImportError):  # Windows has none
    import fcntl

_PREFIX: Final = "toolkeep-"
_BELOW: Final = Path("/sys")
"""Workers at `standard` see /sys read-only; a cgroup mounted elsewhere might be writable for them, and they
could raise their own limit."""

_EXCEEDED: Final = frozenset({"oom_kill", "oom_group_kill"})
_FULL: Final = frozenset({errno.ENOSPC, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class NoCgroup(Exception):
    """No cgroup can be used here; the text says why."""


class Bounds(msgspec.Struct, frozen=True):
    """Limits for all processes of one worker together."""

    memory_bytes: int
    processes: int

    def settings(self) -> Iterator[tuple[str, str]]:
        """Control files and their values."""
        yield "memory.max", str(self.memory_bytes)
        yield "memory.oom.group", "1"  # Kill all or none: a tool that lost one process would return nonsense.


_OPTIONAL_SETTINGS: Final = {"memory.swap.max": "0"}
"""Without a swap limit, memory.max would only push pages to swap. Absent on kernels without swap."""


class Cgroup(msgspec.Struct, frozen=True):
    """The cgroup of one worker."""

    folder: Path
    groups: "Cgroups"

    def is_exceeded(self) -> bool:
        """Whether the OOM killer ended it."""
        try:
            events = _read(self.folder, "memory.events")
        except OSError:
            return False
        counts = dict(line.split() for line in events.splitlines())
        return any(int(counts.get(name, 0)) for name in _EXCEEDED)

    def set_active(self, *, is_active: bool) -> None:
        """No-op: the kernel always enforces."""

    def taken_bytes(self) -> int:
        """Current memory use."""
        return int(_read(self.folder, "memory.current"))

    def release(self) -> None:
        """Remove the group; its processes are dead or dying."""
        self.groups.remove(self)


class Cgroups:
    """The cgroups of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._home: _Home | None = None
        self._left: set[Path] = set()
        """Groups whose processes were still exiting when they should have been removed."""

    def add(self, pidfd: int, bounds: Bounds) -> Cgroup:
        """Move a process into its own group. It must not have started children yet.

        Its pid cannot have been reused: the worker blocks on a pipe until this is done, and the pidfd tells
        whether it died.
        """
        group = self._made(bounds)
        try:
            _write(group.folder, "cgroup.procs", str(host_pid(pidfd)))
            # Checked again after the write: had the worker died in between, the pid could have been another
            # process.
            host_pid(pidfd)
        except OSError as error:
            group.release()
            raise _failure(error) from error
        return group

    def open(self) -> None:
        """Find a place for groups; raises NoCgroup. The first `add` does it if it was not done before."""
        with self._lock:
            self._get_home()

    def _get_home(self) -> "_Home":
        if self._home is None:
            self._home = _Home.find()
        return self._home

    def _made(self, bounds: Bounds) -> Cgroup:
        try:
            self.tidy()
            with self._lock:
                folder = self._get_home().folder / str(next(self._numbers))
                folder.mkdir()
        except OSError as error:
            raise _failure(error) from error
        except NoCgroup as error:
            raise SandboxBroken(f"no cgroup for a worker: {error}") from error
        group = Cgroup(folder, self)
        try:
            self._write_limits(folder, bounds)
        except OSError as error:
            group.release()
            raise _failure(error) from error
        return group

    def _write_limits(self, folder: Path, bounds: Bounds) -> None:
        """Write the limits before a process is moved in; otherwise it could allocate unbounded meanwhile."""
        for name, value in bounds.settings():
            _write(folder, name, value)
        for name, value in {**_OPTIONAL_SETTINGS, "pids.max": str(bounds.processes)}.items():
            with contextlib.suppress(FileNotFoundError):
                _write(folder, name, value)

    def remove(self, group: Cgroup) -> None:
        """Remove a group now, or later if its processes have not quite exited."""
        if not _try_remove(group.folder):
            with self._lock:
                self._left.add(group.folder)

    def tidy(self) -> bool:
        """Remove groups that could not be removed before; returns whether none is left."""
        with self._lock:
            self._left = {folder for folder in self._left if not _try_remove(folder)}
            return not self._left

    def close(self) -> None:
        """Remove what can be removed; the next keep sweeps the rest."""
        self.tidy()
        with self._lock:
            if self._home is not None and self._home.try_remove():
                self._home = None


class _Home:
    """The folder that holds all groups of this process, locked while the process lives."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @classmethod
    def find(cls) -> "_Home":
        """Create it in the first usable place, after sweeping that place."""
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
            _give_controllers(folder)  # Fails if another process swept it before it was locked.
        except BaseException:
            os.close(lock)
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise
        return cls(folder, lock)

    def try_remove(self) -> bool:
        """Remove the folder; False if something is in it."""
        if not _try_remove(self.folder):
            return False
        os.close(self._lock)
        return True


# --- where cgroups can be created -----------------------------------------------------------------


def _bases() -> Iterator[Path]:
    """Candidate parents: our own cgroup, its parent, or the root cgroup."""
    seen: set[Path] = set()
    for root, own in _mounted():
        for folder in (own, own.parent, root):
            is_inside = folder == root or root in folder.parents
            # A slice belongs to the service manager (systemd), even where the user may write to it.
            if is_inside and folder not in seen and folder.suffix != ".slice":
                seen.add(folder)
                if folder != root or own == root or _is_root_of_all(root):
                    yield folder


def _mounted() -> Iterator[tuple[Path, Path]]:
    """Each cgroup v2 mount below /sys, and our own folder in it."""
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
    """Enable the memory controller, and pids if available, for child groups."""
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
    """Remove folders of dead processes; a living one holds the flock on its folder."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for group in (*(path for path in folder.iterdir() if path.is_dir()), folder):
                _try_remove(group)
        except OSError:
            continue
        finally:
            os.close(lock)


# --- control files --------------------------------------------------------------------------------


def _try_remove(folder: Path) -> bool:
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
    """Write an existing control file; O_CREAT would hide a typo or a missing controller."""
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
