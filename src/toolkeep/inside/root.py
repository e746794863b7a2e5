"""Builds what a zygote and its workers see as `/`: a small tmpfs with the plan's folders bound into it.

Comes in: the plan. Goes out: a new root, read-only but for the granted folders. Sources are opened before
anything is mounted over them. Trusts the plan: the host has checked that its paths are canonical.
"""

import contextlib
import os
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from . import kernel

BOX: Final = "/box"
"""Holds what is mounted for each worker alone. Landlock sees a mount through the folder above its mount
point, so that the rule for these is on this folder."""

SCRATCH: Final = f"{BOX}/scratch"
PROC: Final = f"{BOX}/proc"
_SHARED_MEMORY: Final = f"{BOX}/shm"
USERS: Final = "/etc/passwd"
GROUPS: Final = "/etc/group"
_USER: Final = "toolkeep"
_STREAMS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
"""They lead somewhere only where a worker has a /proc."""
_BASE: Final = "/tmp"  # noqa: S108 -- only a mount point, in a mount namespace of our own
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_ROOT_BYTES: Final = 1 << 20

_CODE: Final = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
_READ: Final = _CODE | kernel.ATTR_NOEXEC
_WRITE: Final = kernel.ATTR_NOSUID | kernel.ATTR_NODEV | kernel.ATTR_NOEXEC
_DEVICE: Final = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC
"""A device can be written to all the same; its times and mode stay as they are."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One path of the new root: a link, or a mount that waits in a descriptor."""

    path: str
    link_to: str = ""
    tree: int = -1
    is_folder: bool = False


def build(plan: dict[str, Any], *, ordinary_id: int | None) -> None:
    """Mount the new root; `ordinary_id` is who will live in it if that is not who builds it."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    pieces = list(_host_pieces() if plan["sees_host"] else _minimal_pieces(plan["system"]))
    pieces += _granted_pieces(plan, ordinary_id)
    options = f"size={_ROOT_BYTES},mode=755"
    kernel.mount("tmpfs", _BASE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
    for piece in sorted(pieces, key=lambda piece: piece.path.split("/")):
        if ordinary_id is not None:
            _veil_closed_parents(piece.path, ordinary_id)
        _place(piece)
    for folder in (SCRATCH, PROC, _SHARED_MEMORY):
        Path(_BASE + folder).mkdir(parents=True, exist_ok=True)
    _link("/proc", PROC)
    _link("/tmp", SCRATCH)  # noqa: S108 -- inside the new root
    _link("/dev/shm", _SHARED_MEMORY)  # noqa: S108 -- inside the new root
    if not plan["sees_host"]:
        _name_the_user()
        for name, target in _STREAMS.items():
            _link(f"/dev/{name}", target)


def _name_the_user() -> None:
    """Say who lives here, for programs that ask; the host's own file would tell them the names of its users.

    A worker's user namespace maps nobody, so that it sees itself as the ids of those who are not mapped.
    """
    user, group = map(_unmapped, ("uid", "gid"))
    Path(f"{_BASE}/etc").mkdir(exist_ok=True)
    for path, text in (
        (USERS, f"{_USER}:x:{user}:{group}:{_USER}:{SCRATCH}:/bin/sh\n"),
        (GROUPS, f"{_USER}:x:{group}:\n"),
    ):
        if not os.path.lexists(_BASE + path):
            Path(_BASE + path).write_text(text, encoding="ascii")


def _unmapped(kind: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/sys/kernel/overflow{kind}").read_text("ascii").strip()
    return "65534"


def enter(*, has_proc: bool) -> bool:
    """Make it the root of this process. Its mounts are locked if a more privileged process made them.

    Says whether it has a /proc: the kernel gives a new one to those alone who see the whole of the old one.
    """
    if has_proc:
        try:
            mount_proc(_BASE + PROC)
        except OSError:
            has_proc = False
    kernel.mount(_BASE, _BASE, None, kernel.MS_BIND | kernel.MS_REC)
    kernel.enter_root(_BASE)
    kernel.set_mount_attributes("/", kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV)
    return has_proc


def shared_memory(*, sees_host: bool) -> str:
    """Where /dev/shm leads in this root; nothing where the host has none, or a grant lies there."""
    place = os.path.realpath("/dev/shm")  # noqa: S108 -- inside the new root
    return place if os.path.isdir(place) and (sees_host or place == _SHARED_MEMORY) else ""


def mount_proc(target: str = PROC) -> None:
    """The processes of this process's pid namespace, and nothing of the kernel's settings."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", target, "proc", flags, "subset=pid")


def veil(folder: str, shown: Sequence[str]) -> None:
    """Leave nothing to see of a folder but these paths in it.

    Landlock does not cover names, metadata, modes and times, so that what is not granted must not be there.
    """
    # A link among the system's paths is not needed here, and a granted path that became one is not followed.
    # Without pathlib: a fresh fork pays for each page of memory that it touches.
    wanted = [path for path in sorted(shown) if not os.path.islink(path)]
    trees = [(path, kernel.clone_granted_tree(path)) for path in wanted]
    kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=64k,mode=755")
    for path, tree in trees:
        if not os.path.lexists(path):
            _make_place(path, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))
        kernel.attach_tree(tree, path)
        os.close(tree)
    kernel.set_mount_attributes(folder, kernel.ATTR_RDONLY)


def _make_place(path: str, *, is_folder: bool) -> None:
    """Something to mount on. The folders above it are there in most cases."""
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
    """Leave nothing to see of these folders, in whatever they lie."""
    for folder in folders:
        if Path(folder).is_dir():  # else it is veiled already
            kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k,mode=000")
            kernel.set_mount_attributes(folder, kernel.ATTR_RDONLY)


def freeze(paths: Sequence[str]) -> None:
    """Let these paths inside folders that may be written only be read, and neither moved nor removed.

    A path that ends with a slash is only held in its place: something in it is frozen, and a folder that is
    moved takes what is mounted in it along.
    """
    for path in sorted(paths):
        place = path.rstrip("/")
        tree = kernel.clone_granted_tree(place)
        if not path.endswith("/"):
            kernel.set_tree_attributes(tree, kernel.ATTR_RDONLY)
        kernel.attach_tree(tree, place)
        os.close(tree)


def _minimal_pieces(system: Sequence[str]) -> Iterator[_Piece]:
    for path in system:
        if os.path.lexists(path):
            yield _piece(path, _CODE)
    for name in _DEVICES:
        yield _piece(f"/dev/{name}", _DEVICE)


def _host_pieces() -> Iterator[_Piece]:
    for entry in os.scandir("/"):
        if entry.path not in ("/proc", BOX):
            # The cgroups of workers may belong to the very user that they run as.
            closed = kernel.ATTR_RDONLY if entry.path == "/sys" else 0
            yield _piece(entry.path, kernel.ATTR_NOSUID | closed)


def _granted_pieces(plan: dict[str, Any], ordinary_id: int | None) -> Iterator[_Piece]:
    code, read, write = (frozenset(plan[kind]) for kind in ("code", "read", "write"))
    covered = frozenset(plan["system"]) if not plan["sees_host"] else frozenset()
    granted = tuple(f"{folder}/" for folder in read | write)
    for path in code - covered - write:
        # A program that was built in a granted folder is open to its owner alone, as whom the worker is seen.
        yield _granted_piece(path, _CODE, seen_by=ordinary_id if path.startswith(granted) else None)
    for path in read - code - write:
        yield _granted_piece(path, _READ, ordinary_id)
    for path in write:
        yield _granted_piece(path, _WRITE, ordinary_id)


def _piece(path: str, attributes: int) -> _Piece:
    if Path(path).is_symlink():
        return _Piece(path, link_to=str(Path(path).readlink()))
    tree = kernel.clone_tree(path)
    kernel.set_tree_attributes(tree, attributes)
    return _Piece(path, tree=tree, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))


def _granted_piece(path: str, attributes: int, seen_by: int | None) -> _Piece:
    """A piece of somebody's own; what others can write may have become a link since it was checked."""
    tree = kernel.clone_granted_tree(path)
    status = os.fstat(tree)
    kernel.set_tree_attributes(tree, attributes)
    if seen_by is not None and (status.st_uid, status.st_gid) != (seen_by, seen_by):
        _map_owner(tree, path, status, seen_by)
    return _Piece(path, tree=tree, is_folder=stat.S_ISDIR(status.st_mode))


def _map_owner(tree: int, path: str, owner: os.stat_result, seen_by: int) -> None:
    """Show what the folder's owner owns as owned by the ordinary user, and the other way round on disk."""
    namespace = _mapping_namespace((owner.st_uid, owner.st_gid), seen_by)
    try:
        kernel.set_tree_attributes(tree, kernel.ATTR_IDMAP, mapped_by=namespace)
    except OSError as error:
        raise OSError(
            error.errno, f"the file system of {path} cannot show its files as another user's"
        ) from error
    finally:
        os.close(namespace)


def _mapping_namespace(owner: tuple[int, int], seen_by: int) -> int:
    """A user namespace that exists only to say which id stands for which."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
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


def _veil_closed_parents(path: str, ordinary_id: int) -> None:
    """Replace the first folder above a path that an ordinary user may not pass by an empty one.

    What else that folder holds was out of the user's reach before.
    """
    for parent in reversed(Path(path).parents):
        place = _BASE + str(parent)
        if not Path(place).is_dir():
            return
        status = Path(place).stat()
        if not status.st_mode & (stat.S_IXUSR if status.st_uid == ordinary_id else stat.S_IXOTH):
            kernel.mount("tmpfs", place, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=64k,mode=755")
            return


def _place(piece: _Piece) -> None:
    target = Path(_BASE + piece.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if piece.link_to:
        target.symlink_to(piece.link_to)
        return
    if not target.exists():
        create: Callable[[], None] = target.mkdir if piece.is_folder else target.touch
        create()
    kernel.attach_tree(piece.tree, str(target))
    os.close(piece.tree)


def _link(path: str, target: str) -> None:
    """A link where nothing else is."""
    if not os.path.lexists(_BASE + path):
        Path(_BASE + path).symlink_to(target)
