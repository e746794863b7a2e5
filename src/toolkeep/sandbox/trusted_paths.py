"""Trusted computing base on disk: every path that this process executes, imports or reads as configuration.

Computed once, when the first keep opens, before any tool can have written anything (SBX-6). Answers which
trusted path covers a path that a call would write, and which lie inside a folder that it would write as a
whole. Without it a tool with a write grant replaces the interpreter or a library, and the host runs it
unconfined.

A `sys.path` folder with work in it (a script's folder, an editable install) is not in the set: coding agents
write there. `import_guard` keeps this process from importing what they leave.

Does not protect what other programs trust, nor a file of the set that has a second hard link elsewhere.
"""

import copy
import functools
import os
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SITE_NAMES: Final = ("site-packages", "dist-packages")

OURS: Final = str(Path(__file__).resolve().parent.parent)
_SYSTEM_PREFIXES: Final = frozenset(("/", "/usr", "/usr/local"))
_SYSTEM_FOLDERS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec")
_VARIABLES: Final = ("PYTHON", "GIT_", "LD_", "SSL_CERT_", "OPENSSL_")
"""Prefixes of environment variables whose paths decide what is loaded, run or trusted."""

_RELATIVE_VARIABLES: Final = (
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "PYTHONUSERBASE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF", "OPENSSL_MODULES"),
    *("GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_TEMPLATE_DIR"),
)
"""Those whose relative paths are resolved against the working directory."""

_WORK_VARIABLE: Final = "PYTHONPATH"
"""Its folders are in `sys.path`, where they count as work."""

_LINKS: Final = 40
"""MAXSYMLINKS: how many symlinks the kernel follows in one path."""

INTERPRETER: Final = os.path.realpath(sys.executable) if sys.executable else ""
"""The real file of this interpreter, resolved once.

Resolved again for each zygote, a symlink that a tool replaced meanwhile would be executed, unconfined."""


class TrustedPath(NamedTuple):
    """One path of the set, symlinks resolved, and a description."""

    path: str
    what: str


class ReplacedFile(TrustedPath):
    """A file that this process replaces by rename(2), which detaches any bind mount on the file itself.

    So its parent folder is made read-only instead, unless that is the granted folder.
    """

    def mount_target_in(self, folder: str) -> TrustedPath:
        """What to make read-only for it inside a folder; itself if the parent cannot be."""
        above = os.path.dirname(self.path)
        return self if above == folder else TrustedPath(above, f"the folder of {self.what}")


class TrustedPaths:
    """The trusted set of one keep: process, state, code of tools, others' programs, configured files."""

    def __init__(
        self,
        state: str = "",
        code: Callable[[], Iterable[TrustedPath]] = tuple,
        programs: Callable[[str], Iterable[TrustedPath]] = lambda _: (),
        files: "Callable[[], Iterable[ProcessTrust]]" = tuple,
        code_links: Callable[[], Iterable[TrustedPath]] = tuple,
    ) -> None:
        """`state` is hidden from every tool; `code` is that of the currently registered tools.

        `files` are those that configurations make this process read or write; `code_links` are symlinks on
        the way to code.

        `programs` are those granted to agents other than the named one: an agent may rewrite a program that
        it runs itself, but never one that another agent runs with its own grant.
        """
        self.state = state
        self._code = code
        self._programs = programs
        self._files = files
        self._code_links = code_links
        self._to_state = [TrustedPath(link, "the state of toolkeep") for link in links_of(state or "/")]
        self._process = of_process()
        self.host = (*self._process.paths, *_of_user(), *_of_search())
        """The part that all keeps of this user share."""

    def with_code(self, paths: Iterable[str], what: str) -> "TrustedPaths":
        """The set with the code of a program that no registered tool has yet."""
        known, added = copy.copy(self), tuple(TrustedPath(path, what) for path in paths)
        code = self._code
        known._code = lambda: (*code(), *added)  # noqa: SLF001 -- a copy of this
        return known

    def covering(self, path: str, agent: str = "") -> TrustedPath | None:
        """The trusted path that a path is, or lies below."""
        return next((one for one in self._paths(agent) if is_within(path, one.path)), None)

    def inside(self, folder: str, agent: str = "") -> list[TrustedPath]:
        """Trusted paths below a folder, outermost only."""
        inside = (one for one in self._paths(agent) if is_within(one.path, folder))
        held = (one.mount_target_in(folder) if isinstance(one, ReplacedFile) else one for one in inside)
        found = {one.path: one for one in held}
        return [
            found[path]
            for path in sorted(found)
            if not any(path != other and is_within(path, other) for other in found)
        ]

    def links_inside(self, folder: str) -> list[TrustedPath]:
        """Symlinks below a folder on the way to a trusted path: replacing one redirects the host."""
        of_files = (link for files in self._files() for link in files.links)
        links = (*self._process.links, *self._to_state, *of_files, *self._code_links())
        return [one for one in links if is_within(one.path, folder)]

    def _paths(self, agent: str) -> Iterator[TrustedPath]:
        yield from self.host
        yield from self._code()
        yield from self._programs(agent)
        for files in self._files():
            yield from files.paths


class ProcessTrust(NamedTuple):
    """What this process trusts, whatever keeps it opens."""

    paths: tuple[TrustedPath, ...]
    links: tuple[TrustedPath, ...]
    """Symlinks on the way to them; `path` is the symlink itself."""


@functools.cache
def of_process() -> ProcessTrust:
    """What this process trusts, computed at the first call."""
    return resolved(TrustedPath(path, what) for path, what in _named(os.environ))


def resolved(named: Iterable[TrustedPath]) -> ProcessTrust:
    """Resolve paths now, with the symlinks on the way."""
    found: dict[str, TrustedPath] = {}
    links: dict[str, TrustedPath] = {}
    for one in named:
        try:
            real = os.path.realpath(one.path)
        # The working directory is gone, and with it what a relative path meant.
        except OSError:
            continue
        if real != "/":  # A prefix of "/" would forbid every write.
            found.setdefault(real, one._replace(path=real))
        for link in links_of(one.path):
            links.setdefault(link, TrustedPath(link, one.what))
    return ProcessTrust(tuple(found.values()), tuple(links.values()))


def search_path() -> str:
    """The folders of PATH that existed at the first call, which is when a keep opens.

    A folder created later could hold any program, under the name of a granted one.
    """
    return _search(os.environ.get("PATH", os.defpath))


def _of_user() -> Iterator[TrustedPath]:
    """The user's own configuration, which needs no acceptance: no tool may create it either."""
    home = os.path.expanduser("~")
    if home.startswith("/"):
        for name in (".agent", ".acode"):
            yield TrustedPath(os.path.join(os.path.realpath(home), name), "the configuration of the user")
        for variable, folder in (("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")):
            base = os.environ.get(variable) or os.path.join(home, folder)
            # Its file names the module that is imported to read secrets.
            yield TrustedPath(f"{os.path.realpath(base)}/python_keyring", "the configuration of keyring")


def is_site(path: str) -> bool:
    """Whether a folder holds installed distributions, by its name or because ours is there."""
    real = os.path.realpath(path)
    is_ours = real == os.path.dirname(OURS) and any(Path(real).glob("toolkeep-*.dist-info"))
    return real.endswith(SITE_NAMES) or is_ours


def is_within(path: str, folder: str) -> bool:
    """Whether a path equals a folder or lies below it; both absolute, symlinks resolved."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _named(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if sys.executable:
        yield sys.executable, "the Python interpreter"
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix)):
        if prefix not in (sys.base_prefix, sys.base_exec_prefix):
            yield from ((path, "the environment of Python") for path in _environment(prefix))
    for prefix in dict.fromkeys((sys.base_prefix, sys.base_exec_prefix)):
        yield from ((path, "the installation of Python") for path in _installation(prefix))
    yield from ((path, "the system's programs and libraries") for path in _system())
    yield os.path.dirname(os.__file__), "the standard library of Python"
    yield OURS, "toolkeep itself"
    for path in sys.path:
        if path and is_site(path):
            yield path, "installed packages of Python"
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages(), "installed packages of Python"
    for name in ("sitecustomize", "usercustomize"):
        if file := getattr(sys.modules.get(name), "__file__", None):
            yield file, f"{name} of Python"
    if sys.pycache_prefix:
        yield sys.pycache_prefix, "cached bytecode of Python"
    yield from _of_variables(environment)


def _environment(prefix: str) -> Iterator[str]:
    """A whole virtual environment; if the work lies inside it, only what Python reads of it."""
    try:
        holds_work = is_within(os.path.realpath(os.getcwd()), os.path.realpath(prefix))
    except OSError:  # The working directory is gone.
        holds_work = False
    names = ("bin", "lib", "lib64", "pyvenv.cfg") if holds_work else ("",)
    yield from (os.path.join(prefix, name).rstrip("/") for name in names)


def _installation(prefix: str) -> Iterator[str]:
    """A whole installation in its own prefix; of a system prefix, only programs and libraries."""
    if os.path.normpath(prefix) not in _SYSTEM_PREFIXES:
        yield prefix
        return
    yield from _existing(prefix.rstrip("/"))


def _system() -> Iterator[str]:
    for prefix in ("", "/usr"):
        yield from _existing(prefix)
    yield from filter(os.path.lexists, ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.preload"))


def _existing(prefix: str) -> Iterator[str]:
    return filter(os.path.lexists, (f"{prefix}/{name}" for name in _SYSTEM_FOLDERS))


def _of_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if value and name.startswith(_VARIABLES) and name != _WORK_VARIABLE:
            for path in value.split(":"):
                if path.startswith("/") or _counts_from_here(name, path):
                    yield path or os.curdir, f"named by the variable {name}"


def _counts_from_here(name: str, path: str) -> bool:
    """Whether a relative path in a variable is resolved against the working directory."""
    if name == "LD_LIBRARY_PATH":
        # An empty entry is the working directory itself, as in `$LD_LIBRARY_PATH:/opt/lib` when unset.
        return True
    # A bare name is searched in library folders.
    is_searched = name in ("LD_PRELOAD", "LD_AUDIT") and "/" not in path
    return bool(path) and name in _RELATIVE_VARIABLES and not is_searched


@functools.cache
def _search(path: str) -> str:
    folders = (folder for folder in path.split(":") if folder.startswith("/") and folder.rstrip("/"))
    return ":".join(filter(os.path.isdir, folders))


def _of_search() -> Iterator[TrustedPath]:
    for folder in search_path().split(":"):
        if folder and (real := os.path.realpath(folder)) != "/":
            yield TrustedPath(real, "a folder of PATH")


def links_of(path: str) -> list[str]:
    """Every symlink that is followed when a path is resolved, each by its own real path."""
    found: list[str] = []
    # Not `abspath`: it drops `a/..`, and `a` may be a symlink by now.
    whole = path if path.startswith("/") else f"{os.getcwd()}/{path}"
    names = [name for name in reversed(whole.split("/")) if name not in ("", ".")]
    place = "/"
    while names:
        name = names.pop()
        if name == "..":
            place = os.path.dirname(place)
            continue
        step = os.path.join(place, name)
        if not os.path.islink(step) or len(found) >= _LINKS:
            place = step
            continue
        found.append(step)
        target = os.readlink(step)
        place = "/" if target.startswith("/") else place
        names += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    return found


THIS_PROCESS: Final = TrustedPaths()
"""The trusted set without a keep."""
