"""Measures the structure of the package for `test_house`: imports, test paths, base names, small modules, limits.

The exceptions stand in `house_exceptions.txt`, by section, each with its reason. The lists only shrink:
`.venv/bin/python -m tests.house` drops those that are no longer needed, and adds none.
"""

import ast
import functools
import graphlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "toolkeep"
TESTS = ROOT / "tests"
EXCEPTIONS = TESTS / "house_exceptions.txt"

SMALL_LINES = 60
"""A module below this size that has one importer costs a reader more as a file than as a part of the other."""

Edges = Mapping[str, AbstractSet[str]]


# --- exceptions ----------------------------------------------------------------------------------


def read_exceptions(text: str) -> dict[str, dict[str, str]]:
    """By section: each exception with its reason."""
    sections: dict[str, dict[str, str]] = {}
    entries: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("["):
            entries = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            entry, _, reason = line.partition(" # ")
            entries[entry.strip()] = reason.strip()
    return sections


def exceptions(section: str) -> dict[str, str]:
    """The exceptions of one section."""
    return read_exceptions(EXCEPTIONS.read_text(encoding="utf-8"))[section]


# --- imports -------------------------------------------------------------------------------------


@functools.cache
def graph(*, with_types: bool) -> grimp.ImportGraph:
    """Every import of the package, also those inside functions; with or without those for type checkers."""
    return grimp.build_graph("toolkeep", exclude_type_checking_imports=not with_types, cache_dir=None)


def imports(*, with_types: bool) -> dict[str, set[str]]:
    """What each module imports of the package."""
    built = graph(with_types=with_types)
    return {module: set(built.find_modules_directly_imported_by(module)) for module in built.modules}


def find_cycle(edges: Edges, without: Iterable[str] = ()) -> list[str]:
    """Modules that import each other in a circle, first and last the same; `without` are edges `a -> b`."""
    left = {module: set(imported) for module, imported in edges.items()}
    for edge in without:
        importer, _, imported = edge.partition(" -> ")
        left.get(importer, set()).discard(imported)
    try:
        graphlib.TopologicalSorter(left).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def layers() -> set[str]:
    """The modules and packages at the top that the import contract places."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return {name.strip() for layer in contract["layers"] for name in layer.split("|")}


def top_modules(package: Path = PACKAGE) -> set[str]:
    """The modules and packages at the top."""
    files = {path.stem for path in package.glob("*.py") if path.name != "__init__.py"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


# --- tests ---------------------------------------------------------------------------------------

WHOLE_CALLS = ("calls", "deploy", "hostile", "docs", "release")
"""Folders whose tests go through the whole package: calls, servers, attacks, and what the documentation says."""


def mirrors_a_module(test: Path, package: Path = PACKAGE) -> bool:
    """Whether `room/test_module.py` or `room/test_module_aspect.py` names a module or package of the room."""
    name = test.stem.removeprefix("test_")
    room = package / test.parent
    modules = {path.stem for path in room.glob("*.py")} | {
        path.parent.name for path in room.glob("*/__init__.py")
    }
    return any(name == module or name.startswith(f"{module}_") for module in modules)


def unmirrored_tests() -> set[str]:
    """The test files that name no module."""
    tests = (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    return {str(test) for test in tests if test.parts[0] not in WHOLE_CALLS and not mirrors_a_module(test)}


# --- names and sizes -----------------------------------------------------------------------------

WORD_FOLDERS = {
    "toolkeep.cli": "a file is named after the word of its command",
    "toolkeep.server.api": "a file is named after its resource, as in the path /v1/…",
    "toolkeep.escape_suite.attempts": "a file is named after what it attacks",
}
"""Where file names are words that a user types or reads, which may be those of rooms."""


def repeated_names(modules: Iterable[str]) -> dict[str, list[str]]:
    """The base names that several modules have."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for module in sorted(modules):
        if not any(module.startswith(f"{folder}.") for folder in WORD_FOLDERS):
            by_name[module.rpartition(".")[2]].append(module)
    return {name: found for name, found in by_name.items() if len(found) > 1}


def file_of(module: str, package: Path = PACKAGE) -> Path:
    """The file of a module."""
    path = package.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def splinters(edges: Edges, sizes: Mapping[str, int]) -> dict[str, str]:
    """The small modules with one importer, by that importer."""
    importers: dict[str, list[str]] = defaultdict(list)
    for importer, imported in edges.items():
        for module in imported:
            importers[module].append(importer)
    return {
        module: found[0]
        for module, found in importers.items()
        if len(found) == 1 and sizes.get(module, SMALL_LINES) < SMALL_LINES
    }


def sizes() -> dict[str, int]:
    """The lines of each module that is no package."""
    files = {module: file_of(module) for module in graph(with_types=True).modules}
    return {
        module: len(path.read_text(encoding="utf-8").splitlines())
        for module, path in files.items()
        if path.name != "__init__.py"
    }


# --- limits --------------------------------------------------------------------------------------

_BOUND = re.compile(
    r"(^|_)(BYTES|CHARS|SECONDS|S|MS|DEPTH|STEPS|LINES|ENTRIES|ITEMS|DIGITS|WORK|PAGES|REQUESTS|FIELDS|FILES"
    r"|CHANGES|OPERATIONS|PARAMETERS|VALUES|NAMES)$"
    r"|(^|_)(MOST|LARGEST|LONGEST|DEEPEST|WIDEST|REMEMBERED|SHOWN|LISTED|LOGGED)(_|$)"
)
"""How constants are called that bound something: by a unit, or by a word for the most."""
_UNITS = ("KIB", "MIB", "GIB")


def unexplained_limits(source: str) -> Iterator[str]:
    """The constants of a module that bound something, with neither a docstring nor a comment.

    The docstring of the last of several numbers without a blank line between them is about all of them.
    """
    lines, body = source.splitlines(), ast.parse(source).body
    for index, node in enumerate(body):
        name = _name_of_constant(node)
        if not name.isupper() or not _BOUND.search(name) or not _is_number(getattr(node, "value", None)):
            continue
        is_commented = "#" in lines[node.lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
        if not is_commented and not _is_docstring(_after_group(body[index:])):
            yield name


def _name_of_constant(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign):
        return node.target.id if isinstance(node.target, ast.Name) else ""
    if isinstance(node, ast.Assign):
        return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
    return ""


def _after_group(body: list[ast.stmt]) -> ast.stmt | None:
    """What follows the numbers that stand right below each other."""
    for node, after in pairwise(body):
        if not _is_number(getattr(after, "value", None)) or after.lineno != (node.end_lineno or 0) + 1:
            return after
    return None


def _is_number(value: ast.expr | None) -> bool:
    """Whether an expression is made of numbers alone: `64 * 1024`, `10 * MIB`."""
    if value is None:
        return False
    parts = list(ast.walk(value))
    plain = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
    return (
        all(isinstance(part, plain) for part in parts)
        and all(type(part.value) in (int, float) for part in parts if isinstance(part, ast.Constant))
        and all(part.id in _UNITS for part in parts if isinstance(part, ast.Name))
    )


def _is_docstring(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and type(node.value.value) is str
    )


def all_unexplained_limits() -> set[str]:
    """Those of the package, as `path:NAME`."""
    return {
        f"{path.relative_to(PACKAGE)}:{name}"
        for path in PACKAGE.rglob("*.py")
        for name in unexplained_limits(path.read_text(encoding="utf-8"))
    }


# --- which exceptions are needed -----------------------------------------------------------------


def needed_cycles(listed: Iterable[str]) -> set[str]:
    """The edges without which there would be no cycle."""
    edges, listed = imports(with_types=False), set(listed)
    return {edge for edge in listed if find_cycle(edges, listed - {edge})}


def needed(section: str, listed: Iterable[str]) -> set[str]:
    """The exceptions of a section that are needed today, listed or not."""
    if section == "cycles":
        return needed_cycles(listed)
    if section == "tests that span modules":
        return unmirrored_tests()
    if section == "repeated base names":
        return set(repeated_names(graph(with_types=True).modules))
    if section == "small modules with one importer":
        return set(splinters(imports(with_types=True), sizes()))
    if section == "limits without a reason":
        return all_unexplained_limits()
    raise KeyError(section)


def without_needless(text: str) -> str:
    """The list of exceptions without those that are no longer needed."""
    kept: list[str] = []
    section, still = "", set[str]()
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            still = needed(section, read_exceptions(text)[section])
        elif line and not line.startswith("#") and line.partition(" # ")[0].strip() not in still:
            continue
        kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    EXCEPTIONS.write_text(without_needless(EXCEPTIONS.read_text(encoding="utf-8")), encoding="utf-8")
