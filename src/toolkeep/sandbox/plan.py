"""Plans of zygotes and workers as frozen data: describe first, then execute.

A plan is validated when it is created: paths are canonical, and a level has what it guarantees. It holds no
secret and no argument, because a zygote's memory is copied into every worker.
"""

import base64
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.limits import DEFAULT_MEMORY_BYTES, MIB
from toolkeep.sandbox.isolation_levels import TREE_BOUNDS, Isolation, Mechanism
from toolkeep.sandbox.seccomp_bpf import Program

ORDINARY_ID: Final = 1_900_000_001
"""Uid of workers when the host is root: outside every range that distributions or containers allocate, so
that it owns no file."""

SCRATCH: Final = "/box/scratch"
"""The worker's own tmpfs: its working directory, empty at first, gone with the worker."""

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/timezone", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/mime.types"),
    *("/etc/fonts", "/etc/chromium.d"),
)
"""What Python, shared libraries and browsers need of a Linux system; missing ones are skipped. No /etc as a
whole: it holds host names, users and keys."""

DEFAULT_ENVIRONMENT: Final = (
    ("HOME", SCRATCH),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/bin:/bin"),
    ("TMPDIR", SCRATCH),
)

MOST_PORTS: Final = 16
"""Ports at which one program connects: each is a listening socket of the host."""

COPY_VARIABLE: Final = "_TOOLKEEP_COPY"
"""Names the folder of a copy of code and that of its source, as JSON, to a worker that imports the copy."""
IMPORTS_VARIABLE: Final = "_TOOLKEEP_IMPORTS"
"""Variable that tells processes spawned by `multiprocessing` in a worker where its modules are."""


def interpreter_paths() -> tuple[str, ...]:
    """Folders of the running interpreter outside the system folders."""
    places = {sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__)}
    found = {os.path.realpath(place) for place in places}
    if any(path.startswith("/nix/store/") for path in found):
        found.add("/nix/store")
    return tuple(sorted(path for path in found if path != "/" and not _is_within(path, SYSTEM)))


def virtual_environment() -> dict[str, str] | None:
    """What a worker's own copy of this process's virtual environment is made of; None without one."""
    if sys.prefix == sys.base_prefix:
        return None
    try:
        settings = Path(sys.prefix, "pyvenv.cfg").read_text("utf-8")
    except (OSError, ValueError):
        settings = ""
    shows_system = _SHOWS_SYSTEM.search(settings)
    return {
        "interpreter": os.path.realpath(sys.executable),
        "prefix": os.path.realpath(sys.prefix),
        "shows_system": "true" if shows_system else "false",
    }


_SHOWS_SYSTEM: Final = re.compile(
    r"^include-system-site-packages\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE
)


class ResourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Resource limits of a worker, per process; enforced by the kernel (rlimits, tmpfs options)."""

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """Also the limit for all its processes together."""
    cpu_s: int = 60
    file_bytes: int = 64 * MIB
    open_files: int = 256
    processes: int = 64
    scratch_bytes: int = 64 * MIB
    """Size of the scratch tmpfs, and again of /dev/shm; 0 for neither."""
    scratch_files: int = 4096
    reserved_bytes: int = 0
    """Extra writable address space that each process of a persistent program may reserve without using it."""

    def to_json(self, *, may_reserve: bool) -> dict[str, int]:
        """The limits as the guest applies them.

        `may_reserve` applies RLIMIT_DATA instead of RLIMIT_AS: runtimes such as V8 or the JVM reserve
        gigabytes of address space and use little of it. RLIMIT_DATA does not count shared memory.
        """
        limits = msgspec.structs.asdict(self)
        reserved = limits.pop("reserved_bytes")
        if may_reserve:
            limits["data_bytes"] = limits.pop("memory_bytes") + reserved
        return limits


class ZygotePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a zygote and all its workers see; one zygote per set of folders."""

    level: Isolation
    code: tuple[str, ...] = ()
    """Folders that tools are imported from, read-only; the interpreter's own are added."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    has_proc: bool = False
    """Whether each worker gets a /proc of its own pid namespace, where the kernel allows mounting one."""
    ordinary_id: int = ORDINARY_ID
    preload: tuple[str, ...] = ()
    """toolkeep's own modules, or those of Python, to import once for all workers; never a tool's."""
    import_paths: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Where these modules are found, as for a worker."""
    stand_ins: tuple[str, ...] = ()
    """Folders that are shown as a copy of their names: empty files in memory, which are gone with the
    zygote."""
    unlisted: tuple[str, ...] = ()
    """Paths whose names, and the names inside, are not shown in them."""

    def __post_init__(self) -> None:
        if self.level is Isolation.NONE:
            raise ValueError("isolation none needs no zygote")
        if self.level is Isolation.RESTRICTED and (self.read or self.write):
            raise ValueError("isolation restricted grants no folder")
        shown = (*self.code, *self.read, *self.write, *self.stand_ins)
        for path in (*shown, *self.import_paths, *self.packages):
            _check_canonical(path)
        if self.ordinary_id <= 0:
            # Uid 0 in the sandbox would own root's files in every bind mount.
            raise ValueError("workers are never root")

    @property
    def shown(self) -> tuple[str, ...]:
        """All mounted paths besides the system and the interpreter."""
        return (*self.code, *self.read, *self.write)

    def identities(self) -> tuple[tuple[int, int], ...]:
        """Device and inode of each path now; raises `NotThere`.

        A mount refers to a folder, not to its name. Compared before each call, to notice a folder that was
        moved away and replaced.
        """
        return tuple(map(_identity, self.shown))

    def to_json(self) -> dict[str, Any]:
        """The first message to a zygote."""
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
            "virtual_environment": virtual_environment(),
            "preload": self.preload,
            "import_paths": self.import_paths,
            "packages": self.packages,
            "stand_ins": self.stand_ins,
            "unlisted": self.unlisted,
        }


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker runs and may do; at most what its zygote shows."""

    tool: str
    """`module:function` or `/path/file.py:function`; empty for a persistent worker, which gets a program."""
    level: Isolation
    filter: Program | None
    """The seccomp filter; required at strict and restricted."""
    template_filter: Program | None = None
    """The same for workers that are forked from a template; None: there is no template of this tool."""
    import_paths: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Packages and modules that can be imported although their parent folder is not visible."""
    connects: bool = False
    """Whether it gets an egress proxy, served by the host."""
    ports: tuple[int, ...] = ()
    """Ports at which a persistent program connects to granted hosts by itself, as if there were a network."""
    may_spawn: bool = False
    """Whether it may start processes; at standard every worker may."""
    is_persistent: bool = False
    """Whether it is persistent: it runs a program for many calls, instead of a tool for one."""
    supervisor: Mapping[str, Any] | None = None
    """What the supervisor of its program has to know (`seccomp_filters.supervision`); None for none."""
    memory_by: Mechanism = Mechanism.MEMORY_LIMIT
    """What bounds its memory; a per-process rlimit is enough only for a single process."""
    limits: ResourceLimits = msgspec.field(default_factory=ResourceLimits)
    environment: tuple[tuple[str, str], ...] = DEFAULT_ENVIRONMENT

    def __post_init__(self) -> None:
        if self.level is Isolation.NONE:
            raise ValueError("isolation none needs no worker")
        if self.filter is None and self.level is not Isolation.STANDARD:
            raise ValueError(f"isolation {self.level} needs a system call filter")
        # RLIMIT_AS counts per process: a tool that forks 64 children could take 64 times its limit.
        if self.has_processes != (self.memory_by in TREE_BOUNDS):
            raise ValueError(
                "the memory of several processes is limited by a cgroup or a watch, and only theirs"
            )
        if self.connects and self.level is not Isolation.STRICT:
            raise ValueError("a way out is for strict workers: restricted has none, standard needs none")
        if self.ports and not (self.connects and self.is_persistent and len(self.ports) <= MOST_PORTS):
            raise ValueError(f"at most {MOST_PORTS} ports are for a persistent worker with a way out")
        if self.supervisor and not (self.is_persistent and self.level is Isolation.STRICT):
            raise ValueError("a supervisor is for the program of a persistent worker at strict")
        for path in (*self.import_paths, *self.packages):
            _check_canonical(path)
        if self.is_persistent and not self.has_processes:
            raise ValueError("a program that stays is started, which takes a level that starts processes")
        place, _, name = self.tool.rpartition(":")
        if self.is_persistent == bool(self.tool):
            raise ValueError("a worker has a tool, or is told a program and stays")
        if not self.is_persistent and (not place or not name):
            raise ValueError(f"{self.tool!r} names no function: write module:function")

    @property
    def has_processes(self) -> bool:
        """Whether a worker can have more than one process."""
        return self.may_spawn or self.level is Isolation.STANDARD

    def to_json(self, *, is_template: bool = False) -> dict[str, Any]:
        """The message that prepares a zygote for such workers, or for a template of them."""
        has_scratch = self.level is not Isolation.RESTRICTED
        # A watch sees shared memory only when it looks; a cgroup counts it as it is taken.
        may_reserve = self.is_persistent or self.memory_by is Mechanism.MEMORY_CGROUP
        limits = self.limits.to_json(may_reserve=may_reserve) | ({} if has_scratch else {"scratch_bytes": 0})
        return {
            "tool": self.tool,
            "import_paths": self.import_paths,
            "packages": self.packages,
            "environment": dict(self.environment),
            "has_rules": self.level is not Isolation.STANDARD,
            "connects": self.connects,
            "ports": self.ports,
            "stays": self.is_persistent,
            "supervisor": self.supervisor,
            "filter": _encoded(self.template_filter if is_template else self.filter),
            "limits": limits,
        }


def _encoded(program: Program | None) -> str:
    """A filter as installed: each worker is PID 1 of its own pid namespace."""
    return base64.b64encode(program.for_process(1) if program else b"").decode("ascii")


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one call may access. Only its worker is told, just before it confines itself."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    """Read-only paths inside writable folders; with a trailing slash, only pinned against rename."""
    hidden: tuple[str, ...] = ()
    """Folders inside granted ones that must not be visible."""
    run: tuple[str, ...] = ()
    """Programs and their loaders, or folders of them."""

    def __post_init__(self) -> None:
        for path in (*self.read, *self.write, *self.frozen, *self.hidden, *self.run):
            _check_canonical(path.rstrip("/"))

    def to_json(self) -> dict[str, Any]:
        """The message to the worker."""
        return msgspec.structs.asdict(self)


NOTHING: Final = Grant()


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How to make a worker for one key: zygote plan, worker plan, grant."""

    zygote: ZygotePlan
    worker: WorkerPlan
    grant: Grant = NOTHING

    def __post_init__(self) -> None:
        if self.zygote.level is not self.worker.level:
            raise ValueError("a worker has the level of its zygote")
        if self.grant.run and not self.worker.has_processes:
            raise ValueError("a worker that may start no processes is granted no program")
        # A worker can only narrow what its zygote mounted. A path outside would silently be missing in the
        # call.
        writable = (*self.zygote.write, *self.zygote.stand_ins)
        shown = {"read": (*self.zygote.read, *writable), "write": writable}
        for kind, path in self._granted():
            if not _is_within(path, shown[kind]):
                raise ValueError(f"the zygote does not show {path} to {kind}")

    def _granted(self) -> Iterator[tuple[str, str]]:
        yield from (("read", path) for path in self.grant.read)
        yield from (("write", path) for path in self.grant.write)


class NotThere(ValueError):
    """A path that is missing or leads elsewhere now. The text names a host path: not for a model."""


def _check_canonical(path: str) -> None:
    """Require a canonical path: a symlink in it could be changed between this check and the mount."""
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
