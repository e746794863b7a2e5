"""Root file system of a sandbox: a small tmpfs with bind mounts, entered with pivot_root.

Input: the zygote's plan. Output: a new `/`, read-only except for the granted folders. Trusts the plan: the
host checked that its paths are canonical. Does not trust what lies at those paths now, because another
process may swap a folder for a symlink at any time (TOCTOU).

Order of `build`, and why:
  1. make all mounts private, so that nothing below propagates back to the host;
  2. open every source as a detached mount (open_tree), because step 3 hides what lies below /tmp;
  3. mount the tmpfs that becomes the root;
  4. attach the trees, parents before children, so that no mount covers one that was attached before it;
  5. add the mount points, symlinks and account files that no source provides.
`enter` then mounts /proc, calls pivot_root and makes the tmpfs read-only.
"""

import collections
import contextlib
import itertools
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import linux

BOX: Final = "/box"
"""Parent folder of all per-worker mounts. Landlock resolves a mount through the folder above its mount point,
so one rule on this folder covers them all."""

SCRATCH: Final = f"{BOX}/scratch"
PROC: Final = f"{BOX}/proc"
_SHARED_MEMORY: Final = f"{BOX}/shm"
_ENVIRONMENT: Final = f"{BOX}/venv"
USERS: Final = "/etc/passwd"
GROUPS: Final = "/etc/group"
HOSTS: Final = "/etc/hosts"
RESOLVER: Final = "/etc/resolv.conf"
ETC_FILES: Final = (USERS, GROUPS, HOSTS, RESOLVER)
HOST_NAME: Final = "toolkeep"
_USER: Final = "toolkeep"
_STREAMS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
"""These resolve only in workers that have a /proc."""
_BASE: Final = "/tmp"  # noqa: S108 -- only a mount point, in a mount namespace of our own
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_STAND_IN_NAMES: Final = 10_000
"""Names that are copied: more than most projects have, in half a second."""
_STAND_IN_BYTES: Final = 64 << 20
"""What may be written to it, as to the scratch folder."""
_PACKAGES: Final = frozenset(("__pycache__", "node_modules", ".venv", "venv"))
"""Folders whose names are not copied: they hold thousands, and a program that is installed there is shown."""
_ROOT_BYTES: Final = 1 << 20
"""Size of the root's tmpfs, which holds only mount points and symlinks."""

_CODE: Final = linux.ATTR_RDONLY | linux.ATTR_NOSUID | linux.ATTR_NODEV
"""Programs and libraries: executable, but a setuid bit or device node in the tree has no effect."""
_READ: Final = _CODE | linux.ATTR_NOEXEC
"""Read grants are noexec: a file that a tool was only given to read must not become a program."""
_WRITE: Final = linux.ATTR_NOSUID | linux.ATTR_NODEV | linux.ATTR_NOEXEC
"""Write grants are noexec too: otherwise a tool writes a binary and runs it, past the program grants."""
_DEVICE: Final = linux.ATTR_RDONLY | linux.ATTR_NOSUID | linux.ATTR_NOEXEC
"""Read-only protects the node's mode and times; the device itself can still be written to."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One path of the new root: a symlink, or a detached mount held by a descriptor."""

    path: str
    link_to: str = ""
    tree: int = -1
    is_folder: bool = False
    names: tuple[tuple[str, bool], ...] | None = None
    """Of a stand-in: what is in it, parents first, and whether each is a folder."""


def build(plan: dict[str, Any], *, ordinary_id: int | None) -> None:
    """Assemble the new root below `_BASE`. `ordinary_id`: the uid that workers get when root builds it."""
    # A new mount namespace inherits shared propagation. Without MS_PRIVATE every mount below would appear on
    # the host, and host mounts made later would appear in the sandbox.
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    # Open all sources now: the tmpfs below is mounted over /tmp and would hide any source that lies there.
    pieces = list(_host_pieces() if plan["sees_host"] else _minimal_pieces(plan["system"]))
    pieces += _granted_pieces(plan, ordinary_id)
    pieces += (_stand_in(path, frozenset(plan["unlisted"])) for path in plan["stand_ins"])
    options = f"size={_ROOT_BYTES},mode=755"
    # The size limit keeps a bug in here from filling memory; the root holds only mount points.
    linux.mount("tmpfs", _BASE, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)
    # Sorted by path components, so parents come first. A child attached before its parent would be hidden by
    # the parent's mount.
    for piece in sorted(pieces, key=lambda piece: piece.path.split("/")):
        if ordinary_id is not None:
            _mask_closed_parents(piece.path, ordinary_id)
        _place(piece, ordinary_id)
    # Mount points for each worker's own tmpfs and procfs. They must exist before the root becomes read-only.
    for folder in (SCRATCH, PROC, _SHARED_MEMORY):
        Path(_BASE + folder).mkdir(parents=True, exist_ok=True)
    # Symlinks, not bind mounts: each worker mounts its own below BOX, in its own mount namespace.
    _link("/proc", PROC)
    _link("/tmp", SCRATCH)  # noqa: S108 -- inside the new root
    _link("/dev/shm", _SHARED_MEMORY)  # noqa: S108 -- inside the new root
    if plan["virtual_environment"]:
        _make_virtual_environment(**plan["virtual_environment"])
    if not plan["sees_host"]:
        _write_etc_files()
        for name, target in _STREAMS.items():
            _link(f"/dev/{name}", target)


def _make_virtual_environment(interpreter: str, prefix: str, shows_system: str) -> None:
    """A virtual environment with the host's packages, for interpreters that workers start.

    An interpreter finds its packages by the path that it is started by. The host's own path may lie in a
    folder that workers do not see, or that a call masks.
    """
    folder = Path(_BASE + _ENVIRONMENT)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / Path(interpreter).name).symlink_to(interpreter)
    (folder / "lib").symlink_to(f"{prefix}/lib")
    settings = f"home = {Path(interpreter).parent}\ninclude-system-site-packages = {shows_system}\n"
    (folder / "pyvenv.cfg").write_text(settings, encoding="utf-8")


def interpreter_of(plan: dict[str, Any]) -> str:
    """`sys.executable` of workers in this root."""
    venv = plan["virtual_environment"]
    return f"{_ENVIRONMENT}/bin/{Path(venv['interpreter']).name}" if venv else sys.executable


def _write_etc_files() -> None:
    """Write /etc/passwd, /etc/group, /etc/hosts and /etc/resolv.conf with one account and one host.

    The host's own files would leak its users and the names of its network. A worker's user namespace maps no
    ids, so the worker sees itself under the kernel's overflow ids. Names are looked up over TCP: a worker has
    no other sockets, and the host serves the name server.
    """
    user, group = map(_unmapped, ("uid", "gid"))
    Path(f"{_BASE}/etc").mkdir(exist_ok=True)
    for path, text in (
        (USERS, f"{_USER}:x:{user}:{group}:{_USER}:{SCRATCH}:/bin/sh\n"),
        (GROUPS, f"{_USER}:x:{group}:\n"),
        (HOSTS, f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost {HOST_NAME}\n"),
        (RESOLVER, "nameserver 127.0.0.1\noptions use-vc timeout:5 attempts:1\n"),
    ):
        # A grant may lie at this path; it was attached before and must not be written to.
        if not os.path.lexists(_BASE + path):
            Path(_BASE + path).write_text(text, encoding="ascii")


def _unmapped(kind: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/sys/kernel/overflow{kind}").read_text("ascii").strip()
    return "65534"


def enter() -> bool:
    """pivot_root into the new root; returns whether it has a /proc.

    Mounts made by a more privileged user namespace are locked: workers cannot unmount them to see what they
    cover.
    """
    has_proc = True
    try:
        # The kernel refuses a new procfs to a user namespace that does not see the whole of the old one
        # (as in a container that masks parts of /proc). The sandbox then has none, which is the safe
        # side.
        mount_proc(_BASE + PROC)
    except OSError:
        has_proc = False
    # pivot_root needs a mount point, and a mount of this namespace: the bind mount makes it one, unlocked,
    # even if root built `_BASE` before the user namespace was entered.
    linux.mount(_BASE, _BASE, None, linux.MS_BIND | linux.MS_REC)
    linux.enter_root(_BASE)
    # Read-only last, after everything was created in it. Only this mount: granted folders stay writable.
    linux.set_mount_attributes("/", linux.ATTR_RDONLY | linux.ATTR_NOSUID | linux.ATTR_NODEV)
    return has_proc


def shared_memory(*, sees_host: bool) -> str:
    """Path that /dev/shm resolves to in this root; empty where there is none, or where a grant lies."""
    place = os.path.realpath("/dev/shm")  # noqa: S108 -- inside the new root
    return place if os.path.isdir(place) and (sees_host or place == _SHARED_MEMORY) else ""


def mount_proc(target: str = PROC) -> None:
    """Mount a procfs of this pid namespace; `subset=pid` leaves out /proc/sys and other kernel settings."""
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", target, "proc", flags, "subset=pid")


def open_trees(paths: Iterable[str]) -> dict[str, int]:
    """Detached mounts of these paths. Symlinks are skipped: one may have been put there since the check."""
    # Plain strings instead of pathlib, because a fresh fork pays a page fault for each page of memory that it
    # writes to.
    return {
        path: linux.clone_tree_without_symlinks(path) for path in sorted(paths) if not os.path.islink(path)
    }


def attach_all(trees: Mapping[str, int]) -> None:
    """Attach detached mounts at their paths, parents first."""
    for path in sorted(trees):
        linux.attach_tree(trees[path], path)


def show_proc(*, is_shown: bool) -> None:
    """In a worker's own mounts: a procfs of its pid namespace instead of the zygote's, or none."""
    if is_shown:
        mount_proc()
    elif os.path.ismount(PROC):
        linux.unmount(PROC)


def mask(folder: str, shown: Mapping[str, int]) -> None:
    """Cover a folder with an empty tmpfs that shows only these trees, which were opened before.

    Landlock does not restrict stat(2), chmod(2) or utime(2), nor hide names. What a call is not granted must
    therefore not be visible at all.
    """
    linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=64k,mode=755")
    for path, tree in shown.items():
        if not os.path.lexists(path):
            _make_mount_point(path, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))
        linux.attach_tree(tree, path)
    # After the mount points were created. Otherwise the worker could create files beside them.
    linux.set_mount_attributes(folder, linux.ATTR_RDONLY)


def outermost(paths: Iterable[str]) -> list[str]:
    """Paths that lie in none of the others: a recursive tree brings along what is mounted in it."""
    found = set(paths)
    return sorted(path for path in found if not any(is_within(path, other) for other in found - {path}))


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(f"{folder}/")


def _make_mount_point(path: str, *, is_folder: bool) -> None:
    """Create a mount point. Its parent folders exist in most cases."""
    try:
        _make(path, is_folder=is_folder)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path))
        _make(path, is_folder=is_folder)


def _make(path: str, *, is_folder: bool) -> None:
    if is_folder:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def hide(folders: Sequence[str]) -> None:
    """Cover each of these folders with an empty tmpfs of mode 000."""
    for folder in folders:
        # A folder that is not visible was masked already.
        if Path(folder).is_dir():
            linux.mount("tmpfs", folder, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=4k,mode=000")
            linux.set_mount_attributes(folder, linux.ATTR_RDONLY)


def freeze(paths: Sequence[str]) -> None:
    """Bind-mount paths over themselves, read-only, so that they can be neither changed, moved nor removed.

    rename(2) and unlink(2) fail with EBUSY on a mount point. A path that ends with a slash stays writable and
    is only pinned by the mount: it is the parent of a frozen path, and a parent that can be renamed takes the
    mounts inside along, so that a tool could then create its own file under the old name.
    """
    # Parents first: a mount on a parent would hide mounts that were attached inside it before.
    for path in sorted(paths):
        place = path.rstrip("/")
        tree = linux.clone_tree_without_symlinks(place)
        if not path.endswith("/"):
            linux.set_tree_attributes(tree, linux.ATTR_RDONLY)
        linux.attach_tree(tree, place)
        os.close(tree)


def _minimal_pieces(system: Sequence[str]) -> Iterator[_Piece]:
    """System folders and device nodes for levels above `standard`."""
    for path in system:
        if os.path.lexists(path):
            yield _piece(path, _CODE)
    # Bind mounts: a user namespace may not mknod, and the tmpfs is mounted nodev.
    for name in _DEVICES:
        yield _piece(f"/dev/{name}", _DEVICE)


def _host_pieces() -> Iterator[_Piece]:
    """The whole host file system, for level `standard`."""
    for entry in os.scandir("/"):
        if entry.path not in ("/proc", BOX):
            # A delegated cgroup belongs to the user that workers run as. If /sys were writable, a worker
            # could raise its own memory.max.
            closed = linux.ATTR_RDONLY if entry.path == "/sys" else 0
            yield _piece(entry.path, linux.ATTR_NOSUID | closed)


def _granted_pieces(plan: dict[str, Any], ordinary_id: int | None) -> Iterator[_Piece]:
    """Mounts of the plan's folders: code, read grants, write grants. The strongest grant of a path counts."""
    code, read, write = (frozenset(plan[kind]) for kind in ("code", "read", "write"))
    covered = frozenset(plan["system"]) if not plan["sees_host"] else frozenset()
    granted = tuple(f"{folder}/" for folder in read | write)
    for path in code - covered - write:
        # A program inside a granted folder may have mode 0700, so its owner is mapped to the worker's user
        # too.
        yield _granted_piece(path, _CODE, seen_by=ordinary_id if path.startswith(granted) else None)
    for path in read - code - write:
        yield _granted_piece(path, _READ, ordinary_id)
    for path in write:
        yield _granted_piece(path, _WRITE, ordinary_id)


def _stand_in(folder: str, unlisted: frozenset[str]) -> _Piece:
    """The names below a folder, breadth first: what lies deep in a large folder is left out."""
    found: list[tuple[str, bool]] = []
    waiting = collections.deque([] if folder in unlisted else [folder])
    while waiting and len(found) < _STAND_IN_NAMES:
        with contextlib.suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in itertools.islice(entries, _STAND_IN_NAMES - len(found)):
                is_folder = entry.is_dir(follow_symlinks=False)
                # No symlinks: they would lead to whatever the sandbox shows there.
                if entry.path in unlisted or not (is_folder or entry.is_file(follow_symlinks=False)):
                    continue
                found.append((entry.path, is_folder))
                if is_folder and entry.name not in _PACKAGES and not entry.path.endswith("/.git/objects"):
                    waiting.append(entry.path)
    return _Piece(folder, is_folder=True, names=tuple(found))


def _piece(path: str, attributes: int) -> _Piece:
    if Path(path).is_symlink():
        return _Piece(path, link_to=str(Path(path).readlink()))
    tree = linux.clone_tree(path)
    linux.set_tree_attributes(tree, attributes)
    return _Piece(path, tree=tree, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))


def _granted_piece(path: str, attributes: int, seen_by: int | None) -> _Piece:
    """A mount of a granted path, opened without following symlinks: others may have written there since."""
    tree = linux.clone_tree_without_symlinks(path)
    status = os.fstat(tree)
    linux.set_tree_attributes(tree, attributes)
    # When the host is root, workers run as an id that owns nothing. Without an id-mapped mount they could not
    # use the folders that they were granted.
    if seen_by is not None and (status.st_uid, status.st_gid) != (seen_by, seen_by):
        _map_owner(tree, path, status, seen_by)
    return _Piece(path, tree=tree, is_folder=stat.S_ISDIR(status.st_mode))


def _map_owner(tree: int, path: str, owner: os.stat_result, seen_by: int) -> None:
    """Make an id-mapped mount: files of the folder's owner appear as the worker's, and vice versa on disk."""
    namespace = _mapping_namespace((owner.st_uid, owner.st_gid), seen_by)
    try:
        linux.set_tree_attributes(tree, linux.ATTR_IDMAP, mapped_by=namespace)
    except OSError as error:
        raise OSError(
            error.errno, f"the file system of {path} cannot show its files as another user's"
        ) from error
    finally:
        os.close(namespace)


def _mapping_namespace(owner: tuple[int, int], seen_by: int) -> int:
    """Descriptor of a user namespace whose only purpose is to hold an id map."""
    ready, tell = os.pipe()
    # A user namespace exists only with a process in it, and its map is written from outside. The child holds
    # it until the descriptor below is open.
    child = os.fork()
    if child == 0:
        try:
            linux.unshare(linux.CLONE_NEWUSER)
            os.write(tell, b"1")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(tell)
        if os.read(ready, 1) != b"1":
            raise OSError("unshare: no user namespace for the owner of a granted folder")
        process = Path(f"/proc/{child}")
        (process / "uid_map").write_text(f"{owner[0]} {seen_by} 1", encoding="utf-8")
        (process / "gid_map").write_text(f"{owner[1]} {seen_by} 1", encoding="utf-8")
        return os.open(process / "ns" / "user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _mask_closed_parents(path: str, ordinary_id: int) -> None:
    """Cover the first parent folder that the ordinary user may not traverse with an empty tmpfs.

    Otherwise a grant below, say, a 0700 home directory would be unreachable for workers. The rest of that
    folder was out of the user's reach anyway, so hiding it takes nothing away.
    """
    for parent in reversed(Path(path).parents):
        place = _BASE + str(parent)
        if not Path(place).is_dir():
            return
        status = Path(place).stat()
        if not status.st_mode & (stat.S_IXUSR if status.st_uid == ordinary_id else stat.S_IXOTH):
            linux.mount("tmpfs", place, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=64k,mode=755")
            return


def _place(piece: _Piece, ordinary_id: int | None) -> None:
    """Attach one piece to the new root."""
    target = Path(_BASE + piece.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if piece.link_to:
        target.symlink_to(piece.link_to)
        return
    if not target.exists():
        create: Callable[[], None] = target.mkdir if piece.is_folder else target.touch
        create()
    if piece.names is not None:
        _fill(str(target), piece.names, ordinary_id)
        return
    linux.attach_tree(piece.tree, str(target))
    os.close(piece.tree)


def _fill(target: str, names: Sequence[tuple[str, bool]], ordinary_id: int | None) -> None:
    """Mount a tmpfs with these names: empty files, and folders, of the user that workers run as."""
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    # Bounded: whatever is written to it takes memory.
    linux.mount("tmpfs", target, "tmpfs", flags, f"size={_STAND_IN_BYTES},nr_inodes={3 * _STAND_IN_NAMES}")
    for path, is_folder in (("", True), *names):
        place = _BASE + path if path else target
        if path:
            _make(place, is_folder=is_folder)
        if ordinary_id is not None:
            os.chown(place, ordinary_id, ordinary_id)


def _link(path: str, target: str) -> None:
    """Create a symlink unless the path exists: a grant at this path wins."""
    if not os.path.lexists(_BASE + path):
        Path(_BASE + path).symlink_to(target)
