"""What the worker of one call may reach, from what policy resolved and what the agent holds (POL-1, POL-7).

A path that a call names is granted as itself. What a tool requires and no argument names is granted as far as
the agent holds it. Inside a folder that may be written, what no tool may write is held down: it can only be
read there, and not be moved.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from toolkeep.calls import PermittedCall, RecordedCall, TouchedThing
from toolkeep.execution.held_down import held_down, of_git
from toolkeep.network.hosts import WEB_PORTS, HostScope
from toolkeep.network.reaching import HostReach
from toolkeep.pointers import steps_of
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.plan import NOTHING, Grant
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths

READ, WRITE, SPAWN = "fs.read", "fs.write", "process.spawn"


class Reach(NamedTuple):
    """A grant, and the granted folders of the agent that it lies in."""

    grant: Grant = NOTHING
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    """Which very files these are: rules hold them, not their names."""
    connects: bool = False
    """Whether it reaches any host; which ones is for the way out to see to."""


class _Found:
    """Gathers what is granted."""

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

    def reach(self) -> Reach:
        grant = Grant(
            read=_set(self.read),
            write=_set(self.write),
            frozen=_set(self.frozen),
            hidden=self._hidden_inside(),
            run=self._run(),
        )
        roots = _set(self.read_roots), _set(self.write_roots)
        identities = (*self.identities, *map(_identity, (*grant.frozen, *grant.run)))
        return Reach(grant, *roots, _set(identities), self.connects)

    def _run(self) -> tuple[str, ...]:
        """The programs and what they are loaded by, which may be among them already."""
        found: set[str] = set()
        for program in self.programs:
            if program not in found:
                found.update(executables(program))
        return _set(found)

    def hold_down(self, folder: str, *, is_deep: bool) -> None:
        """Note what no tool may write in a folder that this one may."""
        self.frozen += held_down(folder, self._trusted, self._agent, is_deep=is_deep)

    def _hidden_inside(self) -> tuple[str, ...]:
        """The folder that no tool may see, where it lies in one that is shown."""
        hidden = self._trusted.state and os.path.realpath(self._trusted.state)
        shown = (*self.read, *self.write, *self.read_roots, *self.write_roots)
        return (hidden,) if _lies_in(hidden, shown) and os.path.isdir(hidden) else ()


class Tool(NamedTuple):
    """What there is to know of a tool, to say what its worker needs."""

    is_built_in: bool = False
    writes: str = ""
    """Of a folder that our own tool names to write, the one in it that it really writes."""
    programs: tuple[str, ...] = ()
    """What it starts itself."""
    trusted: TrustedPaths = THIS_PROCESS
    """What no tool may write, wherever it lies, and of it what none may see."""


def reach_of(call: PermittedCall, tool: Tool) -> Reach:
    """What a call may reach, and what its tool itself starts; ValueError says what stands against it."""
    if not call.touched and not call.held and not tool.programs:
        return Reach()
    found = _Found(tool, call.request.agent)
    found.programs += tool.programs
    for one in call.touched:
        if one.kind.startswith("net."):
            found.connects = True
            continue
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


def reach_of_scopes(scopes: Iterable[tuple[str, str]], tool: Tool) -> Reach:
    """What whoever decides grants to a program itself: kinds, with real paths, programs or hosts."""
    found = _Found(tool)
    found.programs += tool.programs
    for kind, scope in scopes:
        if kind.startswith("net."):
            found.connects = True
        else:
            _add_held(found, kind, scope)
    return found.reach()


def hosts_of(call: PermittedCall, *, trusts_tunnels: bool = False) -> HostReach:
    """Whom a call may talk to: the hosts that it names, on the ports of the web where those are granted."""
    found: dict[str, list[HostScope]] = {"net.read": [], "net.write": []}
    for kind, held in call.held:
        if kind in found:
            found[kind].append(HostScope.read(held))
    for one in call.touched:
        if one.kind in found:
            named, granted = HostScope.read(one.shown), HostScope.read(one.root)
            on_the_web = replace(named, ports=WEB_PORTS)  # a server may send on from http to https
            is_wider = _is_web(named) and granted.covers(on_the_web)
            found[one.kind].append(on_the_web if is_wider else named)
    reads, writes = map(tuple, found.values())
    return HostReach(reads=reads, writes=writes, trusts_tunnels=trusts_tunnels)


def _is_web(scope: HostScope) -> bool:
    return scope.ports is not None and scope.ports <= WEB_PORTS


def resolved_arguments(call: RecordedCall, *, is_built_in: bool = False) -> dict[str, Any]:
    """The arguments, with paths as they were resolved: what runs the tool has another working folder.

    Our own tools get both, what the caller named and where it leads, to speak of the one and use the other;
    of a program also where it was found.
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
            elif isinstance(named, str):  # else it is touched in two ways, and was here before
                holder[at] = [named, one.shown, one.found] if one.kind == SPAWN else [named, one.shown]
    return arguments


def _add_place(found: _Found, one: TouchedThing, root: str, tool: Tool) -> None:
    if one.kind == READ:
        found.read.append(one.shown)
        found.read_roots.append(root)
        return
    place = _existing(one.shown, root)
    is_folder = os.path.isdir(place)
    if tool.writes and is_folder:
        _add_part(found, place, tool.writes)
        return
    if tool.is_built_in and not is_folder:
        # Our own tools put a new file in the place of the old one, for which they need its folder.
        place = os.path.dirname(place)
    found.write.append(place)
    found.write_roots.append(root if os.path.isdir(root) else place)
    found.hold_down(place, is_deep=not tool.is_built_in)


def _add_part(found: _Found, place: str, name: str) -> None:
    """A folder to be read, of which one part is written."""
    part = f"{place}/{name}"
    found.read.append(place)
    found.read_roots.append(place)
    if os.path.isdir(part) and not os.path.islink(part):
        found.write.append(part)
        found.write_roots.append(part)
        found.frozen += of_git(part)
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
        found.hold_down(path, is_deep=True)


def _set(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(paths)))


def _identity(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_dev}:{status.st_ino}"


def _existing(path: str, root: str) -> str:
    """A file that does not exist yet is made in its folder, which has to be there, and granted."""
    while not os.path.lexists(path):
        if path == root or not path.startswith(f"{root.rstrip('/')}/"):
            raise ValueError("the folder that is granted does not exist; make it first")
        path = os.path.dirname(path)
    return path


# --- what no tool may see ------------------------------------------------------------------------


def check_hidden(call: PermittedCall, hidden: str) -> None:
    """Raise ValueError where a folder of the call holds what no tool may see, for who cannot hide that."""
    shown = [one.shown for one in call.touched if one.root_path is not None]
    if _lies_in(hidden and os.path.realpath(hidden), shown):
        raise ValueError("its folder holds the state of toolkeep, which no tool may see; name one below it")


def check_code(code: Iterable[str], hidden: str) -> None:
    """Raise ValueError where code, which is shown whole, holds what no tool may see, or lies in it."""
    real = os.path.realpath(hidden) if hidden else ""
    for path in code:
        if path == "/" or (real and (path == real or _lies_in(real, (path,)) or _lies_in(path, (real,)))):
            raise ValueError(
                "its code holds the state of toolkeep, which no tool may see; keep them apart, or name less"
            )


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return bool(path) and any(path.startswith(f"{folder.rstrip('/')}/") for folder in folders)
