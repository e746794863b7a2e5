"""Find the files that a tool's code consists of, without importing or running any of it (REG-5).

In: a project folder, and what its configuration names. Out: the files, and the SHA-256 of each. The sources
are hostile: they are only parsed, within limits. Not found: imports by a computed name, code outside the
project, and data files.
"""

import ast
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import all_suffixes
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, Final

from toolkeep.errors import FileUnreadable
from toolkeep.limits import CODE_FILES, CODE_SOURCE_BYTES

ABSENT: Final = ""
"""Instead of a hash: there is no such file. If one appears later, the code has changed."""
_SUFFIXES: Final = tuple(all_suffixes())
_SOURCE_FOLDER: Final = "src"
_BLOCK: Final = 1 << 20
"""Read at a time while hashing."""
_ENVIRONMENT: Final = ("pyvenv.cfg", "bin/python")
"""What Python recognizes an environment by."""


def project_modules(entry: Path, root: Path) -> tuple[Path, ...]:
    """A Python file and every module of the project that it imports, directly or indirectly, in order.

    Imports anywhere in a file count, also inside functions and conditions. Every candidate for a name counts:
    a package, a module and an extension beside each other are all found.
    """
    return _Walk(root, entry.parent).files([entry])


def reference_files(reference: str, root: Path) -> tuple[Path, ...]:
    """The same for `module:name`, searched in the project and its `src`; empty if it is elsewhere."""
    walk = _Walk(root, root)
    return walk.files(walk.module(reference.partition(":")[0]))


class _Walk:
    """Follows imports within one project."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._roots = tuple(dict.fromkeys((root, root / _SOURCE_FOLDER, folder)))
        self._read_bytes = 0

    def files(self, begin: Iterable[Path]) -> tuple[Path, ...]:
        waiting = list(begin)
        found = dict.fromkeys(waiting)
        for path in waiting:
            for imported in self._imported(path):
                if imported not in found:
                    found[imported] = None
                    waiting.append(imported)
            if len(found) > CODE_FILES:
                raise FileUnreadable(str(self._root), f"its tools are made of more than {CODE_FILES} files")
        return tuple(sorted(found))

    def module(self, name: str) -> Iterator[Path]:
        """The files that importing a dotted name runs, its packages first."""
        for top in self._roots:
            yield from _chain(top, name.split("."))

    def _imported(self, path: Path) -> Iterator[Path]:
        for name, level, members in _imports(self._source(path)):
            yield from self._resolved(path, name, level, members)

    def _resolved(self, path: Path, name: str, level: int, members: Iterable[str]) -> Iterator[Path]:
        parts = name.split(".") if name else []
        tops = self._roots
        if level:
            above = path.parents[min(level, len(path.parents)) - 1]
            if not above.is_relative_to(self._root):
                return
            tops = (above,)
        for top in tops:
            yield from _chain(top, parts)
            package = top.joinpath(*parts)
            for member in members:
                if member == "*":  # `__all__` of a package may name any of its modules
                    yield from _inside(package)
                else:
                    yield from _files_of(package / member)

    def _source(self, path: Path) -> ast.AST | None:
        if path.suffix in _SUFFIXES and path.suffix != ".py":
            return None
        try:
            raw = path.read_bytes() if path.is_file() else b""
            self._read_bytes += len(raw)
            if self._read_bytes > CODE_SOURCE_BYTES:  # padding must not hide imports from the review
                raise FileUnreadable(
                    str(self._root), f"its tools have more than {CODE_SOURCE_BYTES} bytes of code"
                )
            return ast.parse(raw)
        except (OSError, SyntaxError, ValueError):
            return None  # Python could not import it either
        except (RecursionError, MemoryError) as error:
            # A worker with a larger stack could: it would import code that nobody accepted.
            raise FileUnreadable(str(path), "it is nested too deeply to find what it imports") from error


def _imports(tree: ast.AST | None) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Name, level and members of each import in a source, wherever it stands."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level, tuple(alias.name for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _called(node)


_IMPORTERS: Final = {
    "import_module": ("name", "package"),
    "__import__": ("name", "globals", "locals", "fromlist", "level"),
}
"""The functions that import, and their parameters."""


def _called(call: ast.Call) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """The same for a call that imports, as far as its arguments are constants."""
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    given = dict(zip(_IMPORTERS.get(called, ()), call.args, strict=False))
    given |= {word.arg: word.value for word in call.keywords if word.arg}
    name, package, level = (_constant(given.get(key)) for key in ("name", "package", "level"))
    if called not in _IMPORTERS or not isinstance(name, str):
        return
    if called == "__import__":
        members = (_constant(one) for one in getattr(given.get("fromlist"), "elts", ()))
        depth = level if isinstance(level, int) and level > 0 else 0
        yield name, depth, tuple(one for one in members if isinstance(one, str))
    elif name.startswith(".") and isinstance(package, str):
        with contextlib.suppress(ImportError):  # beyond the top level, where nothing is
            yield resolve_name(name, package), 0, ()
    else:  # a package that is no constant is most likely the file's own
        beyond = name.lstrip(".")
        yield beyond, len(name) - len(beyond), ()


def _constant(node: ast.AST | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _chain(top: Path, parts: list[str]) -> Iterator[Path]:
    """The files of a dotted name below a folder: of each package on the way, and its own."""
    place = top
    for part in parts:
        if not part or "/" in part or "\0" in part:
            return
        place = place / part
        yield from _files_of(place)


def _files_of(place: Path) -> Iterator[Path]:
    """Whatever could be imported from a place: a package's `__init__`, or a module of any kind."""
    candidates = [place / f"__init__{suffix}" for suffix in _SUFFIXES]
    candidates += [place.with_name(place.name + suffix) for suffix in _SUFFIXES] if place.name else []
    yield from filter(_is_file, candidates)


def _inside(package: Path) -> Iterator[Path]:
    try:
        listed = sorted(package.iterdir())
    except OSError:
        return
    yield from (path for path in listed if path.name.endswith(_SUFFIXES) and _is_file(path))
    yield from (path for folder in listed for path in _files_of(folder))


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


# --- what a configuration names ------------------------------------------------------------------


TOOLS: Final = "tools"
"""The kind of `named_files` for a whole file or module of tools."""


def is_path(target: str) -> bool:
    """Whether a file or module of tools is named by the path of a file."""
    return target.endswith(".py") or "/" in target


def named_files(run: Any, root: Path) -> tuple[Path, ...]:
    """The files of the project that a `run` names, with their imports."""
    if not isinstance(run, Mapping) or len(run) != 1:
        return ()
    ((kind, target),) = run.items()
    if kind == TOOLS and isinstance(target, str):
        return (
            project_modules(_below(root, target), root) if is_path(target) else reference_files(target, root)
        )
    if kind == "python" and isinstance(target, str):
        return reference_files(target, root)
    if kind == "wasm":
        path = target.get("path") if isinstance(target, Mapping) else target
        return (_below(root, path),) if isinstance(path, str) and path else ()
    if kind not in ("command", "process"):
        return ()
    fields = target if isinstance(target, Mapping) else {"argv": target}
    is_served = kind == "process"
    return tuple(dict.fromkeys(_of_words(fields.get("argv"), fields.get("code"), root, is_served=is_served)))


def _of_words(argv: Any, code: Any, root: Path, *, is_served: bool) -> Iterator[Path]:
    """The program, if it is a path in the project, and every word that is a file there.

    Not the data of a persistent program, which changes with every call that writes it.
    """
    from toolkeep.execution.program_lookup import is_data  # Most configurations name no program.

    words = [word for word in argv if isinstance(word, str)] if isinstance(argv, list) else []
    listed = [word for word in code if isinstance(word, str)] if isinstance(code, list) else []
    for index, word in enumerate((*words, *listed)):
        path = _below(root, word)
        is_program = index == 0 and "/" in word
        if path.is_relative_to(root) and (is_program or _is_file(path)):
            if is_served and 0 < index < len(words) and is_data(str(path), index):
                continue
            yield path
            yield from _environment_of(path, root)
            if path.suffix == ".py":
                yield from project_modules(path, root)


def _environment_of(program: Path, root: Path) -> Iterator[Path]:
    """The files that make the folder around a program a Python environment, existing or not.

    They decide which folders the program is shown: a tool that creates one must not choose them.
    """
    above = program.parent.parent
    if above.is_relative_to(root):
        yield from (above / name for name in _ENVIRONMENT)


def is_of_environment(name: str) -> bool:
    """Whether a path of the project decides whether a folder is a Python environment."""
    return name.endswith(_ENVIRONMENT)


def _below(root: Path, word: str) -> Path:
    """A path relative to the project folder."""
    return Path(os.path.normpath(os.path.join(root, word))) if "\0" not in word else root  # noqa: PTH118


def hash_code(files: Iterable[Path], root: Path) -> dict[str, str]:
    """The SHA-256 of each file by its path in the project."""
    return {os.path.relpath(path, root): _hashed(path, root) for path in dict.fromkeys(files)}


def _hashed(path: Path, root: Path) -> str:
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        # such as the Python of an environment: outside the project, so its target is what is pinned
        return f"link to {real}"
    try:
        # O_NONBLOCK: a FIFO in its place would block until somebody writes.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ABSENT
    digest = hashlib.sha256()
    try:
        # a folder too: replacing it by a file later changes the hash
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ABSENT
        while block := os.read(descriptor, _BLOCK):
            digest.update(block)
    finally:
        os.close(descriptor)
    return digest.hexdigest()
