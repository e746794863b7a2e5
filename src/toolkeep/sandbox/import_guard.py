"""A finder that stands first in `sys.meta_path` and refuses modules that a tool may have written (SBX-6).

`watch(folder)` comes before any tool may write a folder: it records every module that can be imported from
there now. From then on a module below that folder is imported only if it was there, with the same content,
and never from cached bytecode. Installed code that imports a name gets the installed module of that name, not
a file of that name among the work. This covers the imports of the host's own program too.

Python looks for code in three ways, and each leads here: an import statement asks `sys.meta_path`, `pkgutil`
and other finders ask the finder of a folder (`sys.path_hooks`), `importlib.metadata` asks for distributions.

It trusts the change time of a file, which no program can set. It does not cover files that the host loads by
itself (`exec`, `runpy`, `imp`, a plug-in by its path), other interpreters of this process, nor an extension
module that is replaced while it is loaded.
"""

import importlib.machinery
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import (
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import FrameType, ModuleType
from typing import Any, Final, NamedTuple

from toolkeep.limits import PROTECTED_ENTRIES
from toolkeep.sandbox.trusted import OURS, THIS_PROCESS, is_within, links_of

log = logging.getLogger("toolkeep.sandbox")

_SUFFIXES: Final = (*importlib.machinery.all_suffixes(), ".zip", ".egg", ".whl")
_CACHE: Final = "__pycache__"
_MACHINERY: Final = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external", __name__)
"""Modules whose frames stand between an import statement and this finder."""

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, times of modification and change: another content has another change time."""


def watch(folder: str) -> None:
    """Guard imports from a folder that a tool is about to be able to write; ValueError if it holds too much.

    Only the first call for a folder records it: what is there later may be a tool's.
    """
    _GUARD.watch(os.path.realpath(folder))


def is_writable(path: str) -> bool:
    """Whether a tool may write at a path of this process."""
    return _GUARD.is_writable(os.path.realpath(path or os.curdir))


def writable_folders() -> tuple[str, ...]:
    """The folders that tools may write; another object after each one that is added."""
    return _GUARD.folders


class _Recorded(NamedTuple):
    """What is known of the watched folders; replaced as a whole, so that readers need no lock."""

    folders: tuple[str, ...] = ()
    files: "dict[str, Identity]" = {}  # noqa: RUF012 -- never changed, only replaced
    installed: tuple[str, ...] = ()
    """The folders of `sys.path` that no tool may write."""

    def is_writable(self, path: str) -> bool:
        """Whether a tool may write at a path."""
        is_watched = any(is_within(path, folder) for folder in self.folders)
        return is_watched and not any(is_within(path, one.path) for one in THIS_PROCESS.host)

    def objection(self, path: str) -> str:
        """Why a file may be a tool's work; empty for one that is not."""
        real = os.path.realpath(path)
        for place in (*links_of(path), _file_of(real)):
            if self.is_writable(place) and _identity(place) != self.files.get(place, ()):
                return "is new or changed" if place == real else "is reached by a link that is new or changed"
        return ""


class _Refused(ImportError):
    """A module that a tool may have written."""

    def __init__(self, name: str, place: str, objection: str) -> None:
        why = "toolkeep does not let a file be imported that a tool may have written while a keep was open"
        super().__init__(f"{name}: {place} {objection}; {why}", name=name, path=place)


class ImportGuard:
    """The finder. There is one for the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorded = _Recorded()

    def watch(self, folder: str) -> None:
        """Record what can be imported from a folder, and stand first from now on."""
        if sys.meta_path[:1] != [self]:  # also where another finder was put first since
            sys.meta_path[:] = [self, *(finder for finder in sys.meta_path if finder is not self)]
        if sys.path_hooks[:1] != [_finder_of]:
            sys.path_hooks[:] = [_finder_of, *(hook for hook in sys.path_hooks if hook is not _finder_of)]
        if folder in self._recorded.folders:
            return
        with self._lock:
            known = self._recorded
            if not any(is_within(folder, other) for other in known.folders):
                # A folder that was watched before keeps its record: a tool may have written there since.
                new_files = _modules_below(folder, known.folders)
                files = {**known.files, **new_files}
                folders = (*known.folders, folder)
                new = _Recorded(folders, files)
                installed = [
                    path for path in sys.path if path and not new.is_writable(os.path.realpath(path))
                ]
                self._recorded = new._replace(installed=tuple(installed))
                for path in list(sys.path_importer_cache):
                    if self.is_writable(os.path.realpath(path)):
                        sys.path_importer_cache.pop(path, None)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that are watched."""
        return self._recorded.folders

    def is_writable(self, path: str) -> bool:
        """Whether a tool may write at a real path."""
        return self._recorded.is_writable(path)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module that the other finders find, where no tool can have written it."""
        recorded = self._recorded
        try:
            found = self._found(name, path, target)
        except _Refused as refused:
            return self._instead(name, path, refused)
        place = _place(found)
        if found is None or not place or not _touches(recorded, place):
            return found
        importer = _importer() if path is None else ""
        if importer and not recorded.is_writable(importer):
            # Installed code means an installed module. Without this, a file that a tool left in an earlier
            # run would be there at the start, and be taken for `h11` or `yaml`.
            if (installed := _installed(name, recorded)) is not None:
                return installed
            if is_within(importer, OURS):
                raise _Refused(name, place, "is not the installed module that toolkeep imports")
        try:
            return self.checked(found)
        except _Refused as refused:
            return self._instead(name, path, refused)

    def checked(self, spec: ModuleSpec | None) -> ModuleSpec | None:
        """What the finder of a folder found; ImportError where a tool may have written it."""
        recorded = self._recorded
        place = _place(spec)
        if spec is None or not place or not _touches(recorded, place):
            return spec
        if objection := recorded.objection(place) or _objection_to_loading(spec, recorded):
            raise _Refused(spec.name, place, objection)
        _without_bytecode(spec, recorded)
        return spec

    def find_distributions(self, context: Any = None) -> Iterable[Any]:  # noqa: ARG002 -- of the protocol
        """None: it lets the finders that are asked next find no distribution where a tool may write.

        A `*.dist-info` could name any installed function as an entry point: `keyring` and others call what
        they find under a group, so that a tool would choose what runs in the host without bringing code.
        """
        for finder in sys.meta_path:
            find = getattr(finder, "find_distributions", None)
            if finder is not self and find is not None and not isinstance(find, _Distributions):
                finder.find_distributions = _Distributions(find)  # type: ignore[attr-defined]
        return ()

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _instead(self, name: str, path: Sequence[str] | None, refused: "_Refused") -> ModuleSpec:
        """The module of the same name that the refused one stood in front of, or ImportError."""
        log.warning("a module was not imported", extra={"module_name": name, "reason": str(refused)})
        installed = _installed(name, self._recorded) if path is None else None
        if installed is None:
            raise refused
        return installed


_GUARD: Final = ImportGuard()


def _installed(name: str, recorded: _Recorded) -> ModuleSpec | None:
    """The module of a name in a folder that no tool may write; none that a link there leads to elsewhere."""
    spec = PathFinder.find_spec(name, list(recorded.installed))
    return None if spec is not None and _touches(recorded, _place(spec)) else spec


class _FolderFinder(FileFinder):
    """The finder of a folder that a tool may write, for those who ask it directly."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module in this folder, where no tool can have written it."""
        return _GUARD.checked(super().find_spec(fullname, target))


def _finder_of(path: str) -> _FolderFinder:
    """A hook of `sys.path_hooks`; ImportError leaves a folder to the next hook."""
    if not os.path.isdir(path) or not is_writable(path):
        raise ImportError("no tool may write there", path=path)
    return _FolderFinder(
        path,
        (ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
        (SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    )


class _Distributions:
    """What a finder finds of the installed distributions in the folders that no tool may write."""

    def __init__(self, find: Callable[[Any], Iterable[Any]]) -> None:
        self._find = find

    def __call__(self, context: Any = None) -> Iterable[Any]:
        from importlib.metadata import DistributionFinder

        context = context or DistributionFinder.Context()  # else of its class in `importlib_metadata`
        folders = [path for path in context.path if not is_writable(path)]
        return self._find(type(context)(**{**vars(context), "path": folders}))


class _SourceOnly(SourceFileLoader):
    """Compiles the recorded source: cached bytecode beside it may be a tool's, whatever its source says."""

    def __init__(self, fullname: str, path: str, identity: Identity) -> None:
        super().__init__(fullname, path)
        self._identity = identity

    def path_stats(self, path: Any) -> Any:  # noqa: ARG002 -- of the protocol
        """Say that there is nothing to compare bytecode with, so that none is read or written."""
        raise OSError("bytecode is not used here")

    def get_data(self, path: str) -> bytes:
        """What a file holds; of the source, what was recorded, even if it changes in this moment."""
        with open(path, "rb") as file:
            body = file.read()
            # After reading: a change before it shows in the change time, one after it comes too late.
            if path == self.path and _of_status(os.fstat(file.fileno())) != self._identity:
                raise _Refused(self.name, path, "is new or changed")
            return body


def _objection_to_loading(spec: ModuleSpec, recorded: _Recorded) -> str:
    """Why the loader of an unchanged file would run something else; empty where it would not."""
    if isinstance(spec.loader, ExtensionFileLoader):
        # It may load libraries from anywhere beside it, by its RPATH.
        folder = next(one for one in recorded.folders if is_within(os.path.realpath(spec.origin or ""), one))
        known = {path: one for path, one in recorded.files.items() if _is_library(path)}
        below = {path: one for path, one in _modules_below(folder, ()).items() if _is_library(path)}
        changed = next((path for path, one in below.items() if known.get(path) != one), "")
        return f"may load {changed}, which is new or changed" if changed else ""
    if type(spec.loader) in (SourceFileLoader, _SourceOnly):
        return ""
    # The loader of somebody else, such as that of pytest, has a cache of bytecode of its own.
    stem = f"{os.path.splitext(os.path.basename(spec.origin or ''))[0]}."
    for entry in _entries(os.path.join(os.path.dirname(os.path.realpath(spec.origin or "")), _CACHE)):
        if entry.name.startswith(stem) and _identity(entry.path) != recorded.files.get(entry.path):
            return "has cached bytecode that is new or changed"
    return ""


def _is_library(path: str) -> bool:
    return ".so" in os.path.basename(path)


def _without_bytecode(spec: ModuleSpec, recorded: _Recorded) -> None:
    """Load the source that was judged, and nothing beside it: also where a link leads to a source elsewhere,
    because Python looks for its bytecode beside the link."""
    real = os.path.realpath(spec.origin or "")
    identity = recorded.files.get(real) or _identity(real)
    if type(spec.loader) is SourceFileLoader and identity is not None:
        spec.loader = _SourceOnly(spec.loader.name, spec.loader.path, identity)
        spec.cached = None


def _place(spec: ModuleSpec | None) -> str:
    """The file that a module would be loaded from; empty where nothing of a file is run."""
    return spec.origin or "" if spec is not None and spec.has_location else ""


def _touches(recorded: _Recorded, path: str) -> bool:
    """Whether a file, or a link on the way to it, is where a tool may write."""
    return any(map(recorded.is_writable, (*links_of(path), os.path.realpath(path))))


def _file_of(path: str) -> str:
    """The file itself, or the archive that it lies in."""
    while not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _importer() -> str:
    """The file of the code that imports; empty for code without one, which counts as work."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- what else knows who imports
    while frame is not None and frame.f_globals.get("__name__") in _MACHINERY:
        frame = frame.f_back
    file = frame.f_globals.get("__file__") if frame is not None else None
    return os.path.realpath(file) if isinstance(file, str) else ""


# --- what is there -------------------------------------------------------------------------------


def _modules_below(folder: str, left_out: Sequence[str]) -> dict[str, Identity]:
    """The modules, and links, that can be imported from a folder at the moment."""
    skipped = (*left_out, *(one.path for one in THIS_PROCESS.host))
    found: dict[str, Identity] = {}
    left = [path for path in _import_folders(folder) if not any(is_within(path, one) for one in skipped)]
    seen = 0
    while left:
        for entry in _entries(left.pop()):
            seen += 1
            if seen > PROTECTED_ENTRIES:
                raise ValueError("its folder holds too many modules to watch; grant a folder below it")
            if entry.is_symlink() or entry.name.endswith(_SUFFIXES) or _is_library(entry.name):
                found[entry.path] = _of_status(entry.stat(follow_symlinks=False))
            elif _may_be_package(entry) and entry.path not in skipped:
                left.append(entry.path)
    return found


def _may_be_package(entry: os.DirEntry[str]) -> bool:
    """Whether a folder may hold modules, their bytecode, or the libraries of an extension module."""
    is_name = entry.name.isidentifier() or entry.name.endswith(".libs")
    return is_name and entry.is_dir(follow_symlinks=False)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # nothing that could be imported
        return


def _import_folders(folder: str) -> Iterable[str]:
    """What of a folder modules are looked for in: whole folders of `sys.path`, and of packages."""
    loaded = (getattr(module, "__path__", ()) for module in list(sys.modules.values()))
    named = {os.path.realpath(path or os.curdir) for path in (*sys.path, *_texts(loaded))}
    inside = {path for path in named if is_within(path, folder)}
    if any(is_within(folder, path) for path in named):
        inside.add(folder)
    return [path for path in inside if not any(path != other and is_within(path, other) for other in inside)]


def _texts(paths: Iterable[Any]) -> Iterator[str]:
    for several in paths:
        try:
            yield from (path for path in several if isinstance(path, str))
        except Exception:  # noqa: BLE001, S112 -- a module may answer to any attribute, with anything
            continue


def _identity(path: str) -> Identity | None:
    try:
        return _of_status(os.stat(path, follow_symlinks=False))
    except OSError:
        return None


def _of_status(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
