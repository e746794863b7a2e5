"""The smallest grant for what an observed server asked for, as lines for a person: each is off until ticked.

Input: an observation, in which every name is the server's choice. Output: lines with a capability each, and
notes on what is not offered. Both are few, and safe to print.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from toolkeep.execution.observation.observed_project import ObservedProject, is_in, is_program
from toolkeep.network.allowlist import READING, TUNNEL
from toolkeep.network.hosts import WEB_PORTS, HostRefused, HostScope, read_host
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.trusted_paths import is_within, search_path
from toolkeep.text.display import counted, shorten, visible

_LINES: Final = 20
"""Lines and notes of each kind: more would be ticked unread."""
_CHARS: Final = 160
"""Characters of a note: two lines of a terminal."""
_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_VARIABLES: Final = 5
_PUBLIC: Final = HostScope.read("*.*:*")
_OUTSIDE: Final = "is outside the project; grant it yourself if it should be used"
_INSTALLS: Final = "installs packages, which nobody checks then; grant it yourself if it should be started"
_WHOLE: Final = ": the whole project; in a folder of its own it would need less"


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asked for. All names are the server's choice."""

    project: ObservedProject
    named: frozenset[tuple[str, str]]
    """What it did (`seccomp_filters.supervision`) and with which path, program or address."""
    contacts: frozenset[tuple[str, str, int]]
    """Method, host and port of each connection that was denied."""
    addresses: frozenset[str] = frozenset()
    """Hosts with their ports that the person wrote."""
    rounds: int
    tools: tuple[dict[str, Any], ...] | None
    """What it lists in the end; None if it did not come to that."""
    needs_nothing: bool
    """Whether it listed its tools before it was given anything."""
    failure: str = ""
    """Why it did not."""
    last_words: str = ""
    is_cut: bool = False
    """Whether it named more than is noted."""
    calls: tuple[str, ...] = ()
    """Why each call that the person named failed, in the server's words; empty for one that worked."""


class ProposedLine(msgspec.Struct, frozen=True):
    """One thing that a server did, and the capability that would allow it."""

    words: str
    capability: str


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What may be granted, and notes on the rest."""

    lines: tuple[ProposedLine, ...]
    notes: tuple[str, ...]


def propose_grant(observation: Observation) -> Proposal:
    """The proposal. Looks at the files of the project; takes no longer than a second or two."""
    files = _Files(observation.project)
    for what, name in sorted(observation.named):
        files.add(what, name)
    lines = [*files.lines(), *_programs(observation, files), *_hosts(observation, files)]
    notes = [*dict.fromkeys(files.notes), *_remarks(observation)]
    if len(lines) > _LINES:
        notes.insert(0, f"{len(lines) - _LINES:,} more that it asked for, which are left out here")
    if len(notes) > _LINES:
        notes[_LINES:] = [f"and {len(notes) - _LINES:,} more"]
    return Proposal(lines=tuple(lines[:_LINES]), notes=tuple(shorten(note, _CHARS) for note in notes))


class _Files:
    """Sorts the paths of an observation into reads and writes."""

    def __init__(self, project: ObservedProject) -> None:
        self._project = project
        self._folders: dict[str, set[str]] = {"fs.read": set(), "fs.write": set()}
        self._files: dict[str, set[str]] = {"fs.read": set(), "fs.write": set()}
        self.notes: list[str] = []

    def add(self, what: str, path: str) -> None:
        """Take one path that the server named."""
        project = self._project
        if what not in ("read", "list", "look", "write") or project.is_shown(path):
            return
        area = project.area(path)
        # Looks alone count where the person named the path; else every package lookup would be offered.
        if what == "look" and area not in project.asked:
            return
        if refusal := project.refusal(path):
            if os.path.lexists(path):
                self.note(path, refusal)
        elif area:
            self._add_inside(what, os.path.realpath(path))
        elif is_within(path, project.root):
            self.note(path, "leads outside the project")
        elif not project.is_untold(path) and os.path.lexists(path):
            self.note(path, _OUTSIDE)

    def _add_inside(self, what: str, path: str) -> None:
        kind = "fs.write" if what == "write" else "fs.read"
        if self._project.is_held(path, for_writing=what == "write"):
            return
        if os.path.isdir(path):
            # On the way to its code a runtime lists folders.
            if path in self._project.asked or not self._project.is_above_code(path):
                self._folders[kind].add(path)
        elif os.path.lexists(path):
            self._files[kind].add(path)
        elif what == "write":
            self._add_new(path)

    def _add_new(self, path: str) -> None:
        """A file that does not exist is made in a folder, which must be granted."""
        folder = os.path.dirname(path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        if not self._project.area(folder):
            self.note(path, "does not exist; make it, or name a folder for it")
            return
        self._folders["fs.write"].add(folder)
        self._files["fs.write"].add(path)

    def lines(self) -> Iterator[ProposedLine]:
        """A line for each folder, or for its only file."""
        written = self._places("fs.write")
        # A folder that may be written may be read.
        read = {path: count for path, count in self._places("fs.read").items() if not is_in(path, written)}
        for kind, verb, places in (("fs.read", "reads", read), ("fs.write", "writes", written)):
            for path, count in sorted(places.items()):
                if (line := self._line(kind, verb, path, count)) is not None:
                    yield line

    def _places(self, kind: str) -> dict[str, int]:
        """The paths to grant, with the number of files that were used there."""
        folders, files = self._folders[kind], self._files[kind]
        in_folder = Counter(map(os.path.dirname, files))
        # Several files are granted as their folder. The project itself only if it is listed or written.
        several = {folder for folder, count in in_folder.items() if count > 1}
        wanted = folders | several - {self._project.root}
        wanted |= {path for path in files if os.path.dirname(path) not in wanted}
        outer = {path for path in wanted if not is_in(os.path.dirname(path), wanted)}
        return {path: sum(is_within(file, path) for file in files) for path in outer}

    def _line(self, kind: str, verb: str, path: str, count: int) -> ProposedLine | None:
        project, shown = self._project, self._project.shown(path)
        # The grant is what is shown: an escaped name would be another path.
        if visible(shown) != shown:
            self.note(path, "has characters in its name that do not show")
            return None
        is_folder = os.path.isdir(path)
        if is_folder and (refusal := project.refusal_inside(path)):
            self.note(path, refusal)
            return None
        told = f" ({counted(count, 'file')})" if is_folder and count else ""
        whole = _WHOLE if path == project.root else ""
        return ProposedLine(f"{verb} {shown}{told}{whole}", f"{kind}:{shown}")

    def note(self, path: str, why: str) -> None:
        """Say why a path is not offered."""
        self.notes.append(f"{visible(self._project.shown(path))} {visible(why)}")


def _programs(observation: Observation, files: _Files) -> Iterator[ProposedLine]:
    project, started = observation.project, set(observation.project.programs)
    for what, name in sorted(observation.named):
        real = os.path.realpath(name)
        if what != "run" or not is_program(real) or is_in(real, started):
            continue
        is_own = is_in(real, project.code)
        if not is_own and (refusal := project.refusal(name)):
            files.note(name, refusal)
        elif project.is_package_manager(name):
            files.note(name, _INSTALLS)
        elif not (is_own or project.may_be_tried(name) or project.area(name)):
            files.note(name, _OUTSIDE)
        else:
            started.update(executables(real))
            scope = _program_name(project, name)
            if visible(scope) == scope:
                verb = "runs its own program" if is_own else "runs"
                yield ProposedLine(f"{verb} {scope}", f"process.spawn:{scope}")


def _program_name(project: ObservedProject, path: str) -> str:
    """A program by its name where that finds it, else by its path."""
    name = os.path.basename(path)
    found = shutil.which(name, path=search_path())
    return name if found and os.path.realpath(found) == os.path.realpath(path) else project.shown(path)


def _hosts(observation: Observation, files: _Files) -> Iterator[ProposedLine]:
    found: dict[str, ProposedLine] = {}
    held = {str(one) for one in observation.project.held}
    # Sorted by method, GET after CONNECT: a host that is only read from needs less.
    for method, name, port in sorted({*observation.contacts, *_direct(observation)}, reverse=True):
        try:
            # Without a port it was only looked up.
            host = read_host(f"{name}:{port}" if port else f"{name}:443")
        except HostRefused:
            continue
        is_public = _PUBLIC.contains(host)
        # A private address is the person's to name: a server could scan the network by what is agreed to.
        if not is_public and str(host) not in observation.addresses:
            files.notes.append(f"{visible(name)}:{port} is no public host; grant it yourself if you know it")
            continue
        kind = "net.read" if method in READING else "net.write"
        scope = host.name if is_public and host.port in WEB_PORTS else str(host)
        if held & {f"{kind}:{scope}", f"net.write:{scope}"}:
            files.notes.append(f"{visible(scope)} is granted, and was denied: its address or its use is not")
            continue
        if scope not in found or kind == "net.write":
            found[scope] = ProposedLine(f"connects to {host}", f"{kind}:{scope}")
    yield from (found[scope] for scope in sorted(found))


def _direct(observation: Observation) -> Iterator[tuple[str, str, int]]:
    """Connections by address, without the proxy, to addresses that the person wrote."""
    for what, name in observation.named:
        if what == "connect" and name in observation.addresses:
            host = read_host(name)
            yield TUNNEL, host.name, host.port


def _remarks(observation: Observation) -> Iterator[str]:
    direct = {name for what, name in observation.named if what == "connect"} - observation.addresses
    yield from (
        f"{visible(name)} is an address that it connects to itself; grant it if you know it"
        for name in sorted(direct)
    )
    if observation.is_cut:
        yield "it named more paths than are noted here"
    if observation.tools is None:
        variables = list(dict.fromkeys(_VARIABLE.findall(observation.last_words)))[:_VARIABLES]
        yield from (f"its last words name {name}; give a variable with --env" for name in variables)
