"""Grant of one call's worker, from what policy resolved and what the agent holds (POL-1, POL-7).

A path that a call names is granted as itself. What a tool requires without an argument for it is granted as
far as the agent holds it. Inside writable folders, protected paths are frozen: read-only and pinned against
rename. A SQLite file comes with its journals, which hold a part of its content.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from toolkeep.calls import PermittedCall, RecordedCall, TouchedThing
from toolkeep.execution.read_only_paths import protected_git_paths, read_only_inside
from toolkeep.json_values.pointers import steps_of
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.hosts import HostScope
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.plan import NOTHING, Grant
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths, is_within

READ, WRITE, SPAWN = "fs.read", "fs.write", "process.spawn"


class WorkerGrant(NamedTuple):
    """A grant, and the agent's granted folders that contain it."""

    grant: Grant = NOTHING
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    """Device and inode of the granted paths: Landlock rules refer to inodes, not names. Part of the worker
    key."""
    connects: bool = False
    """Whether it reaches any host; the egress proxy decides which."""


class _Found:
    """Collects what is granted."""

    def __init__(self, tool: "Tool", agent: str = "") -> None:
        self._trusted = tool.trusted
        self._agent = agent
        self.read: list[str] = []
        self.write: list[str] = []
        self.frozen: list[str] = []
        self.programs: list[str] = []
        self.read_roots: list[str] = []
        self.write_roots: list[str] = []
        self.identities: list[str] = []
        self.connects = False

    def reach(self) -> WorkerGrant:
        grant = Grant(
            read=_set(self.read),
            write=_set(self.write),
            frozen=_set(self.frozen),
            hidden=self._hidden_inside(),
            run=self._run(),
        )
        roots = _set(self.read_roots), _set(self.write_roots)
        identities = (*self.identities, *map(_identity, (*grant.frozen, *grant.run)))
        return WorkerGrant(grant, *roots, _set(identities), self.connects)

    def _run(self) -> tuple[str, ...]:
        """Programs and their loaders."""
        found: set[str] = set()
        for program in self.programs:
            if program not in found:
                found.update(executables(program))
        return _set(found)

    def freeze_protected(self, folder: str, *, is_deep: bool) -> None:
        """Freeze what no tool may write inside a writable folder."""
        self.frozen += read_only_inside(folder, self._trusted, self._agent, is_deep=is_deep)

    def _hidden_inside(self) -> tuple[str, ...]:
        """toolkeep's state folder, if it lies inside a visible folder: it holds keys and approvals."""
        hidden = self._trusted.state and os.path.realpath(self._trusted.state)
        shown = (*self.read, *self.write, *self.read_roots, *self.write_roots)
        return (hidden,) if _lies_in(hidden, shown) and os.path.isdir(hidden) else ()


class Tool(NamedTuple):
    """Facts about a tool that its grant depends on."""

    is_built_in: bool = False
    writes: str = ""
    """Subfolder that a built-in tool really writes, of a folder named for writing."""
    programs: tuple[str, ...] = ()
    """Programs that it starts itself."""
    trusted: TrustedPaths = THIS_PROCESS
    """What no tool may write, and the state folder that none may see."""


def grant_for_call(call: PermittedCall, tool: Tool) -> WorkerGrant:
    """Grant of a call, including what its tool starts; ValueError says what prevents it."""
    if not call.touched and not call.held and not tool.programs:
        return WorkerGrant()
    found = _Found(tool, call.request.agent)
    found.programs += tool.programs
    for one in call.touched:
        if one.kind.startswith("net."):
            found.connects = True
            continue
        if one.kind.startswith("mcp."):
            continue  # nothing that a process reaches: one process serves tools, prompts and resources
        # Same path, other inode: a replaced file must not get a worker that was made for the old one.
        found.identities.append(one.identity)
        if one.kind == SPAWN:
            found.programs.append(one.shown)
        elif one.root_path is not None:
            _add_place(found, one, one.root_path, tool)
    for kind, held in call.held:
        if kind.startswith("net."):
            found.connects = True
        else:
            _add_held(found, kind, held)
    return found.reach()


def grant_for_scopes(scopes: Iterable[tuple[str, str]], tool: Tool) -> WorkerGrant:
    """Grant from scopes that a person gave to a program: real paths, programs or hosts by kind."""
    found = _Found(tool)
    found.programs += tool.programs
    for kind, scope in scopes:
        if kind.startswith("net."):
            found.connects = True
        else:
            _add_held(found, kind, scope)
    return found.reach()


def hosts_of(call: PermittedCall, *, trusts_tunnels: bool = False) -> HostAllowlist:
    """Host allowlist of a call: the named hosts, on web ports if those are granted."""
    found: dict[str, list[HostScope]] = {"net.read": [], "net.write": []}
    for kind, held in call.held:
        if kind in found:
            found[kind].append(HostScope.read(held))
    for one in call.touched:
        if one.kind in found:
            found[one.kind] += one.hosts
    reads, writes = map(tuple, found.values())
    return HostAllowlist(reads=reads, writes=writes, trusts_tunnels=trusts_tunnels)


def resolved_arguments(call: RecordedCall, *, is_built_in: bool = False) -> dict[str, Any]:
    """The arguments with resolved paths: the worker has another working directory.

    It also closes a TOCTOU gap: the tool opens the path that was checked, not a symlink to be resolved again.
    Built-in tools get both, the name to display and the resolved path to use; for a program also where it was
    found.
    """
    arguments: dict[str, Any] = json.loads(json.dumps(call.checked.arguments))
    for one in call.approved.permitted.touched:
        if one.pointer and (one.kind.startswith("fs.") or (is_built_in and one.kind == SPAWN)):
            *way, last = steps_of(one.pointer)
            holder: Any = arguments
            for part in way:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            at = int(last) if isinstance(holder, list) else last
            named = holder[at]
            if not is_built_in:
                holder[at] = one.shown
            elif isinstance(named, str):  # Otherwise it is touched in two ways, and was replaced already.
                holder[at] = [named, one.shown, one.found] if one.kind == SPAWN else [named, one.shown]
    return arguments


def _add_place(found: _Found, one: TouchedThing, root: str, tool: Tool) -> None:
    if one.kind == READ:
        found.read.append(one.shown)
        found.read_roots.append(root)
        if not tool.is_built_in:
            _add_journals(found, one.shown, root, is_written=False)
        return
    place = _existing(one.shown, root)
    is_folder = os.path.isdir(place)
    if tool.writes and is_folder:
        _add_part(found, place, tool.writes)
        return
    if tool.is_built_in and not is_folder:
        # Built-in tools replace a file by rename, for which they need its folder.
        place = os.path.dirname(place)
    found.write.append(place)
    found.write_roots.append(root if os.path.isdir(root) else place)
    found.freeze_protected(place, is_deep=not tool.is_built_in)
    if not tool.is_built_in and not is_folder:
        _add_journals(found, place, root, is_written=True)


def _add_part(found: _Found, place: str, name: str) -> None:
    """Grant a folder for reading, and one subfolder of it for writing."""
    part = f"{place}/{name}"
    found.read.append(place)
    found.read_roots.append(place)
    # A symlinked `.git` would extend the write grant to wherever it leads.
    if os.path.isdir(part) and not os.path.islink(part):
        found.write.append(part)
        found.write_roots.append(part)
        found.frozen += protected_git_paths(part)
        found.identities.append(_identity(part))


def _add_held(found: _Found, kind: str, path: str) -> None:
    found.identities.append(_identity(path))
    if kind == SPAWN:
        found.programs.append(path)
    elif kind == READ:
        found.read.append(path)
        found.read_roots.append(path)
    elif kind == WRITE:
        found.write.append(path)
        found.write_roots.append(path)
        found.freeze_protected(path, is_deep=True)


def _set(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(paths)))


def _identity(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_dev}:{status.st_ino}"


def _existing(path: str, root: str) -> str:
    """Nearest existing parent of a path: a new file is created in a granted folder that exists."""
    # lexists: a dangling symlink counts as existing, or it would be followed when the file is created.
    while not os.path.lexists(path):
        if path == root or not path.startswith(f"{root.rstrip('/')}/"):
            raise ValueError("the folder that is granted does not exist; make it first")
        path = os.path.dirname(path)
    return path


# --- journals of SQLite ---------------------------------------------------------------------------

_SQLITE: Final = b"SQLite format 3\0"
_VERSION_AT, _WAL_VERSION = 18, 2
"""Byte of the header with the write version: 2 in a database with a write-ahead log (WAL)."""
_WAL_SUFFIXES: Final = ("-wal", "-shm")


def _add_journals(found: _Found, database: str, root: str, *, is_written: bool) -> None:
    """Grant the journals of a SQLite file with it.

    Without them a tool would read a database without its last changes, or take a half-written one for whole.
    Each is granted as a file: a worker can write it, and neither make nor remove one. That is enough for the
    journal modes WAL, TRUNCATE and PERSIST.
    """
    for journal in _journals(database, root, is_written=is_written):
        found.identities.append(_identity(journal))
        (found.write if is_written else found.read).append(journal)
        if is_written:
            found.freeze_protected(journal, is_deep=False)


def _journals(database: str, root: str, *, is_written: bool) -> Iterator[str]:
    """Journals beside a database, inside the granted folder; an empty log counts as none, and is made."""
    folder, name = os.path.split(database)
    header = _header(database) if is_within(folder, root) else b""
    if not header.startswith(_SQLITE):
        return
    is_log = header[_VERSION_AT] == _WAL_VERSION
    for suffix in ("-journal", *_WAL_SUFFIXES):
        if is_written and is_log and suffix in _WAL_SUFFIXES:
            with contextlib.suppress(OSError):
                _make_like(database, folder, name + suffix)
        # A symlink may lead anywhere.
        if _is_file(database + suffix):
            yield database + suffix


def _header(path: str) -> bytes:
    """First bytes of a regular file; empty if it cannot be read."""
    try:
        # O_NONBLOCK: whoever opens a FIFO waits.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, "rb", buffering=0) as file:
            beginning = file.read(_VERSION_AT + 1) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
    except OSError:
        return b""
    return beginning if len(beginning) > _VERSION_AT else b""


def _make_like(database: str, folder: str, name: str) -> None:
    """Make an empty file with mode and owner of a database; OSError if it is there, or cannot be made."""
    above = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # A tool may have put a symlink in the place of the folder; this file would be made where it leads.
        if os.readlink(f"/proc/self/fd/{above}") != folder:
            raise NotADirectoryError(folder)
        status = os.stat(os.path.basename(database), dir_fd=above, follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode) & 0o666
        made = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=above)
        try:
            if os.geteuid() == 0:
                os.fchown(made, status.st_uid, status.st_gid)
        finally:
            os.close(made)
    finally:
        os.close(above)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


# --- paths that no tool may see -------------------------------------------------------------------


def check_hidden(call: PermittedCall, hidden: str) -> None:
    """Raise ValueError if a folder of the call contains toolkeep's state, for runners that cannot hide it."""
    shown = [one.shown for one in call.touched if one.root_path is not None]
    if shown and _lies_in(hidden and os.path.realpath(hidden), shown):
        raise ValueError("its folder contains the state of toolkeep, which no tool may use; name a subfolder")


_PACKAGE_TREE: Final = re.compile(r"(/[0-9a-f]{32})?/packages/[0-9a-f]{64}")
"""An installed server: the only part of the state that is ever shown, and to that server alone."""


def check_code(code: Iterable[str], hidden: str) -> None:
    """Raise ValueError if code, which is shown whole, contains toolkeep's state or lies in it."""
    real = os.path.realpath(hidden) if hidden else ""
    for path in code:
        if real and path.startswith(real) and _PACKAGE_TREE.fullmatch(path[len(real) :]):
            continue
        if path == "/" or (real and (path == real or _lies_in(real, (path,)) or _lies_in(path, (real,)))):
            raise ValueError(
                "its code holds the state of toolkeep, which no tool may see; keep them apart, or name less"
            )


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return bool(path) and any(path.startswith(f"{folder.rstrip('/')}/") for folder in folders)
