"""What a zygote and a worker get, as frozen data; describe first, then do.

A plan is checked when it is made: its paths are canonical, and a level has what it promises. It holds no
secret and no argument.
"""

import base64
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from toolkeep.limits import DEFAULT_MEMORY_BYTES, MIB
from toolkeep.sandbox.bpf import Program
from toolkeep.sandbox.levels import TREE_BOUNDS, Isolation, Mechanism

ORDINARY_ID: Final = 1_900_000_001
"""Who workers are when the host is root: no range of ids that distributions or containers hand out has it."""

SCRATCH: Final = "/box/scratch"
"""The worker's own folder: its working directory, empty at first, gone with the worker."""

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/timezone", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/mime.types"),
)
"""What Python and its shared libraries need of a Linux system; what is absent is left out."""

DEFAULT_ENVIRONMENT: Final = (
    ("HOME", SCRATCH),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/bin:/bin"),
    ("TMPDIR", SCRATCH),
)


def interpreter_paths() -> tuple[str, ...]:
    """The folders of the running interpreter that lie outside the system's."""
    places = {sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)}
    found = {os.path.realpath(place) for place in places}
    if any(path.startswith("/nix/store/") for path in found):
        found.add("/nix/store")
    return tuple(sorted(path for path in found if path != "/" and not _is_within(path, SYSTEM)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """How much a worker may take, each process of it by itself; enforced by the kernel."""

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """Also for all its processes together."""
    cpu_s: int = 60
    file_bytes: int = 64 * MIB
    open_files: int = 256
    processes: int = 64
    scratch_bytes: int = 64 * MIB
    """Of the scratch folder, and as much again of /dev/shm; 0 for neither."""
    scratch_files: int = 4096
    reserved_bytes: int = 0
    """What each process of a program that stays may hold writable beyond its memory, and not use."""

    def to_json(self, *, stays: bool) -> dict[str, int]:
        """What the kernel is told.

        A program that stays brings its own idea of memory: engines of other languages reserve gigabytes of
        addresses and use a few of them, so that what it can write to is bounded instead.
        """
        limits = asdict(self)
        reserved = limits.pop("reserved_bytes")
        if stays:
            limits["data_bytes"] = limits.pop("memory_bytes") + reserved
        return limits


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygotePlan:
    """What a zygote and all its workers see: one zygote for each set of folders."""

    level: Isolation
    code: tuple[str, ...] = ()
    """Folders that tools are imported from, read-only; the interpreter's own are added."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    has_proc: bool = False
    """Whether each worker sees its own processes in /proc, where this machine lets one be mounted."""
    ordinary_id: int = ORDINARY_ID
    warms: bool = True
    """Whether it does beforehand what every worker of a tool would do; not worth it for a single one."""
    preload: tuple[str, ...] = ()
    """Modules of ours that are imported once for all workers; never one of a tool."""
    import_paths: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Where these modules are found, as for a worker."""

    def __post_init__(self) -> None:
        if self.level is Isolation.NONE:
            raise ValueError("isolation none needs no zygote")
        if self.level is Isolation.RESTRICTED and (self.read or self.write):
            raise ValueError("isolation restricted grants no folder")
        for path in (*self.code, *self.read, *self.write, *self.import_paths, *self.packages):
            _check_canonical(path)
        if self.ordinary_id <= 0:
            raise ValueError("workers are never root")

    @property
    def shown(self) -> tuple[str, ...]:
        """All that is mounted, beside the system and the interpreter."""
        return (*self.code, *self.read, *self.write)

    def identities(self) -> tuple[tuple[int, int], ...]:
        """Device and inode of each path as it is now; raises `NotThere`."""
        return tuple(map(_identity, self.shown))

    def to_json(self) -> dict[str, Any]:
        """The message that a zygote starts with."""
        is_standard = self.level is Isolation.STANDARD
        return {
            "system": SYSTEM,
            "code": sorted({*interpreter_paths(), *self.code}),
            "read": self.read,
            "write": self.write,
            "sees_host": is_standard,
            "closes_network": not is_standard,
            "has_proc": self.has_proc,
            "ordinary_id": self.ordinary_id,
            "warms": self.warms,
            "preload": self.preload,
            "import_paths": self.import_paths,
            "packages": self.packages,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """What one worker runs and what it may do; narrower than or equal to what its zygote sees."""

    tool: str
    """`module:function` or `/path/file.py:function`; empty for a worker that is told a program, and stays."""
    level: Isolation
    filter: Program | None
    """The system call filter; strict and restricted demand one."""
    import_paths: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Folders of packages and files of modules that can be imported though the folder around is not shown."""
    connects: bool = False
    """Whether it has a way out to the network, which the host serves."""
    may_spawn: bool = False
    """Whether it may start processes; at standard all may."""
    stays: bool = False
    """Whether it runs a program for many calls, on pipes of its own, instead of a tool for one."""
    memory_by: Mechanism = Mechanism.MEMORY_LIMIT
    """What bounds its memory; a limit for each process is enough only if there is one."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    environment: tuple[tuple[str, str], ...] = DEFAULT_ENVIRONMENT

    def __post_init__(self) -> None:
        if self.level is Isolation.NONE:
            raise ValueError("isolation none needs no worker")
        if self.filter is None and self.level is not Isolation.STANDARD:
            raise ValueError(f"isolation {self.level} needs a system call filter")
        if self.has_processes != (self.memory_by in TREE_BOUNDS):
            raise ValueError(
                "the memory of several processes is bounded by a cgroup or a watch, and only theirs"
            )
        if self.connects and self.level is not Isolation.STRICT:
            raise ValueError("a way out is for strict workers: restricted has none, standard needs none")
        for path in (*self.import_paths, *self.packages):
            _check_canonical(path)
        if self.stays and not self.has_processes:
            raise ValueError("a program that stays is started, which takes a level that starts processes")
        place, _, name = self.tool.rpartition(":")
        if self.stays == bool(self.tool):
            raise ValueError("a worker has a tool, or is told a program and stays")
        if not self.stays and (not place or not name):
            raise ValueError(f"{self.tool!r} names no function: write module:function")

    @property
    def has_processes(self) -> bool:
        """Whether a worker can be more than one process."""
        return self.may_spawn or self.level is Isolation.STANDARD

    def to_json(self) -> dict[str, Any]:
        """The message that prepares a zygote for such workers."""
        has_scratch = self.level is not Isolation.RESTRICTED
        limits = self.limits.to_json(stays=self.stays) | ({} if has_scratch else {"scratch_bytes": 0})
        return {
            "tool": self.tool,
            "import_paths": self.import_paths,
            "packages": self.packages,
            "environment": dict(self.environment),
            "has_rules": self.level is not Isolation.STANDARD,
            "connects": self.connects,
            "stays": self.stays,
            "filter": base64.b64encode(self._filter_code()).decode("ascii"),
            "limits": limits,
        }

    def _filter_code(self) -> bytes:
        """The filter as each worker installs it: each is the first process of a pid namespace of its own."""
        return self.filter.for_process(1) if self.filter else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one call may reach: a worker is told just before it narrows itself, and nobody else is."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    """What may only be read though it lies in a folder that may be written; with a slash at its end, only
    held in its place."""
    hidden: tuple[str, ...] = ()
    """Folders inside granted ones that are not to be seen."""
    run: tuple[str, ...] = ()
    """Programs, and what they are loaded by; folders of them too."""

    def __post_init__(self) -> None:
        for path in (*self.read, *self.write, *self.frozen, *self.hidden, *self.run):
            _check_canonical(path.rstrip("/"))

    def to_json(self) -> dict[str, Any]:
        """What the worker is told."""
        return asdict(self)


NOTHING: Final = Grant()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make the workers of one key."""

    zygote: ZygotePlan
    worker: WorkerPlan
    grant: Grant = NOTHING

    def __post_init__(self) -> None:
        if self.zygote.level is not self.worker.level:
            raise ValueError("a worker has the level of its zygote")
        if self.grant.run and not self.worker.has_processes:
            raise ValueError("a worker that may start no processes is granted no program")
        shown = {"read": (*self.zygote.read, *self.zygote.write), "write": self.zygote.write}
        for kind, path in self._granted():
            if not _is_within(path, shown[kind]):
                raise ValueError(f"the zygote does not show {path} to {kind}")

    def _granted(self) -> Iterator[tuple[str, str]]:
        yield from (("read", path) for path in self.grant.read)
        yield from (("write", path) for path in self.grant.write)


class NotThere(ValueError):
    """A path that leads elsewhere by now, or nowhere. It names a place of the machine: not for a model."""


def _check_canonical(path: str) -> None:
    """A path that leads where it says; a link could be changed between the check and the mount."""
    if not path.startswith("/") or path == "/" or os.path.realpath(path) != path:
        raise NotThere(f"{path!r} is not a canonical path to a folder or file")
    if not Path(path).exists():
        raise NotThere(f"{path!r} does not exist")


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise NotThere(f"{path!r} does not exist") from error
    return status.st_dev, status.st_ino


def _is_within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
