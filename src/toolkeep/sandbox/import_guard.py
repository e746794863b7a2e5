"""Import guard: refuses modules that a confined tool may have written into a folder of `sys.path` (SBX-6).

A meta path finder that stands first in `sys.meta_path`. `watch(folder)` runs before any tool can write a
folder and records every importable module there. From then on a module below that folder is imported only if
it was recorded, with the same content, and never from cached bytecode. Installed code that imports a name
gets the installed module, not a file of that name in a working folder. This covers imports of the host
program too.

Python finds code in three ways, and each leads here: import statements ask `sys.meta_path`, `pkgutil` and
others ask path entry finders (`sys.path_hooks`), `importlib.metadata` asks for distributions.

Identity of a file is device, inode, size and times, which costs no reading; hashing every module at start-up
took a second for a large project, for the same answer. The change time cannot be set by a program.

Not covered: files that the host loads by path (`exec`, `runpy`, plug-ins), sub-interpreters, and an extension
module that is replaced while it is being loaded.
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
from toolkeep.sandbox.trusted_paths import OURS, THIS_PROCESS, is_within, links_of

log = logging.getLogger("toolkeep.sandbox")

_SUFFIXES: Final = (*importlib.machinery.all_suffixes(), ".zip", ".egg", ".whl")
_CACHE: Final = "__pycache__"
_MACHINERY: Final = ("importlib", "importlib._bootstrap", "importlib._bootstrap_external", __name__)
"""Modules whose frames lie between an import statement and this finder."""

Identity = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime: changed content has a changed ctime."""


def watch(folder: str) -> None:
    """Guard imports from a folder that a tool is about to get write access to.

    Raises ValueError if it holds too many modules. Only the first call for a folder records it: later content
    may be a tool's.
    """
    _GUARD.watch(os.path.realpath(folder))


def is_writable(path: str) -> bool:
    """Whether a tool may write at a path."""
    return _GUARD.is_writable(os.path.realpath(path or os.curdir))


def writable_folders() -> tuple[str, ...]:
    """Folders that tools may write; a new tuple after each addition."""
    return _GUARD.folders


class _Recorded(NamedTuple):
    """State of the watched folders; replaced as a whole (copy-on-write), so readers need no lock."""

    folders: tuple[str, ...] = ()
    files: "dict[str, Identity]" = {}  # noqa: RUF012 -- never changed, only replaced
    installed: tuple[str, ...] = ()
    """Folders of `sys.path` that no tool may write."""

    def is_writable(self, path: str) -> bool:
        """Whether a tool may write at a path."""
        is_watched = any(is_within(path, folder) for folder in self.folders)
        return is_watched and not any(is_within(path, one.path) for one in THIS_PROCESS.host)

    def objection(self, path: str) -> str:
        """Why a file may be a tool's; empty if it is not."""
        real = os.path.realpath(path)
        # Symlinks on the way count too: a tool could point an unchanged name at other code.
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
    """The meta path finder; one for the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorded = _Recorded()

    def watch(self, folder: str) -> None:
        """Record what can be imported from a folder, and stand first from now on."""
        if sys.meta_path[:1] != [self]:  # Again each time: another finder may have been put first since.
            sys.meta_path[:] = [self, *(finder for finder in sys.meta_path if finder is not self)]
        if sys.path_hooks[:1] != [_finder_of]:
            sys.path_hooks[:] = [_finder_of, *(hook for hook in sys.path_hooks if hook is not _finder_of)]
        if folder in self._recorded.folders:
            return
        with self._lock:
            known = self._recorded
            if not any(is_within(folder, other) for other in known.folders):
                # A folder watched before keeps its record: a tool may have written there since.
                new_files = _modules_below(folder, known.folders)
                files = {**known.files, **new_files}
                folders = (*known.folders, folder)
                new = _Recorded(folders, files)
                installed = [
                    path for path in sys.path if path and not new.is_writable(os.path.realpath(path))
                ]
                self._recorded = new._replace(installed=tuple(installed))
                # Cached finders of that folder would bypass our path hook.
                for path in list(sys.path_importer_cache):
                    if self.is_writable(os.path.realpath(path)):
                        sys.path_importer_cache.pop(path, None)

    @property
    def folders(self) -> tuple[str, ...]:
        """The watched folders."""
        return self._recorded.folders

    def is_writable(self, path: str) -> bool:
        """Whether a tool may write at a real path."""
        return self._recorded.is_writable(path)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module that the other finders find, if no tool can have written it."""
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
            # run would be recorded at start-up, and be imported as `h11` or `yaml`.
            if (installed := _installed(name, recorded)) is not None:
                return installed
            if is_within(importer, OURS):
                raise _Refused(name, place, "is not the installed module that toolkeep imports")
        try:
            return self.checked(found)
        except _Refused as refused:
            return self._instead(name, path, refused)

    def checked(self, spec: ModuleSpec | None) -> ModuleSpec | None:
        """Check what a path entry finder found; ImportError if a tool may have written it."""
        recorded = self._recorded
        place = _place(spec)
        if spec is None or not place or not _touches(recorded, place):
            return spec
        if objection := recorded.objection(place) or _objection_to_loading(spec, recorded):
            raise _Refused(spec.name, place, objection)
        _without_bytecode(spec, recorded)
        return spec

    def find_distributions(self, context: Any = None) -> Iterable[Any]:  # noqa: ARG002 -- of the protocol
        """Returns none; wraps the other finders so that they find none where a tool may write.

        A forged `*.dist-info` could register any installed function as an entry point. `keyring` and others
        call what they find in a group, so a tool would choose what runs in the host without bringing code.
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
        """The installed module of the same name that the refused one shadowed, or ImportError."""
        log.warning("a module was not imported", extra={"module_name": name, "reason": str(refused)})
        installed = _installed(name, self._recorded) if path is None else None
        if installed is None:
            raise refused
        return installed


_GUARD: Final = ImportGuard()


def _installed(name: str, recorded: _Recorded) -> ModuleSpec | None:
    """The module of a name in a folder that no tool may write; not one that a symlink leads elsewhere."""
    spec = PathFinder.find_spec(name, list(recorded.installed))
    return None if spec is not None and _touches(recorded, _place(spec)) else spec


class _FolderFinder(FileFinder):
    """Path entry finder of a folder that a tool may write, for code that asks it directly."""

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module in this folder, if no tool can have written it."""
        return _GUARD.checked(super().find_spec(fullname, target))


def _finder_of(path: str) -> _FolderFinder:
    """Path hook; ImportError leaves a folder to the next hook."""
    if not os.path.isdir(path) or not is_writable(path):
        raise ImportError("no tool may write there", path=path)
    return _FolderFinder(
        path,
        (ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES),
        (SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    )


class _Distributions:
    """Wraps `find_distributions` of another finder: only folders that no tool may write."""

    def __init__(self, find: Callable[[Any], Iterable[Any]]) -> None:
        self._find = find

    def __call__(self, context: Any = None) -> Iterable[Any]:
        from importlib.metadata import DistributionFinder

        # Otherwise a Context of the `importlib_metadata` backport.
        context = context or DistributionFinder.Context()
        folders = [path for path in context.path if not is_writable(path)]
        return self._find(type(context)(**{**vars(context), "path": folders}))


class _SourceOnly(SourceFileLoader):
    """Compiles the recorded source: cached bytecode beside it may be a tool's, whatever the source says."""

    def __init__(self, fullname: str, path: str, identity: Identity) -> None:
        super().__init__(fullname, path)
        self._identity = identity

    def path_stats(self, path: Any) -> Any:  # noqa: ARG002 -- of the protocol
        """Claim that the source has no stat result, so that importlib neither reads nor writes bytecode."""
        raise OSError("bytecode is not used here")

    def get_data(self, path: str) -> bytes:
        """Content of a file; the source must still be the recorded one."""
        with open(path, "rb") as file:
            body = file.read()
            # fstat on the open descriptor, after reading: an earlier change shows in ctime, a later one was
            # not read. Checking before reading would leave a TOCTOU window.
            if path == self.path and _of_status(os.fstat(file.fileno())) != self._identity:
                raise _Refused(self.name, path, "is new or changed")
            return body


def _objection_to_loading(spec: ModuleSpec, recorded: _Recorded) -> str:
    """Why loading an unchanged file would run something else; empty if it would not."""
    if isinstance(spec.loader, ExtensionFileLoader):
        # Its RPATH may load libraries from anywhere beside it.
        folder = next(one for one in recorded.folders if is_within(os.path.realpath(spec.origin or ""), one))
        known = {path: one for path, one in recorded.files.items() if _is_library(path)}
        below = {path: one for path, one in _modules_below(folder, ()).items() if _is_library(path)}
        changed = next((path for path, one in below.items() if known.get(path) != one), "")
        return f"may load {changed}, which is new or changed" if changed else ""
    if type(spec.loader) in (SourceFileLoader, _SourceOnly):
        return ""
    # A third-party loader, such as pytest's, has its own bytecode cache.
    stem = f"{os.path.splitext(os.path.basename(spec.origin or ''))[0]}."
    for entry in _entries(os.path.join(os.path.dirname(os.path.realpath(spec.origin or "")), _CACHE)):
        if entry.name.startswith(stem) and _identity(entry.path) != recorded.files.get(entry.path):
            return "has cached bytecode that is new or changed"
    return ""


def _is_library(path: str) -> bool:
    return ".so" in os.path.basename(path)


def _without_bytecode(spec: ModuleSpec, recorded: _Recorded) -> None:
    """Load only the checked source, no bytecode.

    Also for a symlink to a source elsewhere: Python looks for its bytecode beside the link.
    """
    real = os.path.realpath(spec.origin or "")
    identity = recorded.files.get(real) or _identity(real)
    if type(spec.loader) is SourceFileLoader and identity is not None:
        spec.loader = _SourceOnly(spec.loader.name, spec.loader.path, identity)
        spec.cached = None


def _place(spec: ModuleSpec | None) -> str:
    """The file that a module would be loaded from; empty if no file is executed."""
    return spec.origin or "" if spec is not None and spec.has_location else ""


def _touches(recorded: _Recorded, path: str) -> bool:
    """Whether a file, or a symlink on the way to it, lies where a tool may write."""
    return any(map(recorded.is_writable, (*links_of(path), os.path.realpath(path))))


def _file_of(path: str) -> str:
    """The file itself, or the archive that contains it."""
    while not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _importer() -> str:
    """File of the importing code; empty for code without a file, which counts as writable."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- what else knows who imports
    while frame is not None and frame.f_globals.get("__name__") in _MACHINERY:
        frame = frame.f_back
    file = frame.f_globals.get("__file__") if frame is not None else None
    return os.path.realpath(file) if isinstance(file, str) else ""


# --- recording modules ----------------------------------------------------------------------------


def _modules_below(folder: str, left_out: Sequence[str]) -> dict[str, Identity]:
    """Modules and symlinks that can be imported from a folder now."""
    skipped = (*left_out, *(one.path for one in THIS_PROCESS.host))
    found: dict[str, Identity] = {}
    left = [path for path in _import_folders(folder) if not any(is_within(path, one) for one in skipped)]
    seen = 0
    while left:
        for entry in _entries(left.pop()):
            seen += 1
            if seen > PROTECTED_ENTRIES:
                raise ValueError("its folder has too many modules to watch; grant a subfolder")
            if entry.is_symlink() or entry.name.endswith(_SUFFIXES) or _is_library(entry.name):
                found[entry.path] = _of_status(entry.stat(follow_symlinks=False))
            elif _may_be_package(entry) and entry.path not in skipped:
                left.append(entry.path)
    return found


def _may_be_package(entry: os.DirEntry[str]) -> bool:
    """Whether a folder may hold modules, bytecode, or libraries of an extension module."""
    is_name = entry.name.isidentifier() or entry.name.endswith(".libs")
    return is_name and entry.is_dir(follow_symlinks=False)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # Nothing importable.
        return


def _import_folders(folder: str) -> Iterable[str]:
    """Parts of a folder that imports search: entries of `sys.path` and package paths."""
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
