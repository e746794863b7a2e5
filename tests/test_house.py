"""The structure of the package stays as it is described: imports, test paths, names, small modules, limits.

A guard that fails says what to do. Each has a second test that shows that it notices what it forbids.
"""

from pathlib import Path

import grimp
import pytest

from tests import house
from tests.conftest import SLOWEST

RENEW = ".venv/bin/python -m tests.house"


def listed_but_needless(section: str) -> list[str]:
    listed = house.exceptions(section)
    return sorted(set(listed) - house.needed(section, listed))


# --- imports -------------------------------------------------------------------------------------


def test_the_import_contract_places_every_module_at_the_top() -> None:
    missing = sorted(house.top_modules() - house.layers())
    gone = sorted(house.layers() - house.top_modules())
    assert not missing, (
        f"in no layer of [tool.importlinter] in pyproject.toml: {missing}; choose one for each"
    )
    assert not gone, f"layers of [tool.importlinter] in pyproject.toml that do not exist: {gone}; remove them"


def test_no_modules_import_each_other_in_a_circle() -> None:
    cycle = house.find_cycle(house.imports(with_types=False), house.exceptions("cycles"))
    assert not cycle, (
        f"an import cycle: {' -> '.join(cycle)}. Move what both need into a module below them, or hand it over as "
        "an argument. An import inside a function is still a cycle."
    )


def test_a_cycle_is_noticed_wherever_its_import_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shelves"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "book.py").write_text("from shelves import shelf\n")
    (package / "shelf.py").write_text("def find():\n    from shelves.book import Book\n    return Book\n")
    monkeypatch.syspath_prepend(tmp_path)
    built = grimp.build_graph("shelves", exclude_type_checking_imports=True, cache_dir=None)
    edges = {module: built.find_modules_directly_imported_by(module) for module in built.modules}
    assert set(house.find_cycle(edges)) == {"shelves.book", "shelves.shelf"}
    assert house.find_cycle(edges, ["shelves.shelf -> shelves.book"]) == []


def test_a_new_package_is_in_no_layer(tmp_path: Path) -> None:
    (tmp_path / "attic").mkdir()
    (tmp_path / "attic" / "__init__.py").touch()
    (tmp_path / "cellar.py").touch()
    assert house.top_modules(tmp_path) - house.layers() == {"attic", "cellar"}


# --- tests mirror modules ------------------------------------------------------------------------


def test_each_test_file_names_the_module_that_it_tests() -> None:
    strangers = sorted(house.unmirrored_tests() - set(house.exceptions("tests that span modules")))
    assert not strangers, (
        f"{strangers} name no module: call them test_<module>.py or test_<module>_<aspect>.py in the folder of the "
        "module. A test of whole calls belongs to tests/calls, an attack to tests/hostile. Only where a test "
        "spans several modules of one room on purpose, list it in tests/house_exceptions.txt."
    )


@pytest.mark.parametrize(
    ("test", "is_mirror"),
    [
        ("room/test_book.py", True),
        ("room/test_book_of_hours.py", True),
        ("room/test_shelf.py", True),
        ("room/test_bookcase.py", False),
        ("test_book.py", False),
    ],
)
def test_a_test_mirrors_a_module_of_its_own_folder(tmp_path: Path, test: str, *, is_mirror: bool) -> None:
    (tmp_path / "room" / "shelf").mkdir(parents=True)
    (tmp_path / "room" / "shelf" / "__init__.py").touch()
    (tmp_path / "room" / "book.py").touch()
    assert house.mirrors_a_module(Path(test), tmp_path) is is_mirror


# --- names and sizes -----------------------------------------------------------------------------


def test_each_file_that_runs_first_is_there() -> None:
    assert [name for name in SLOWEST if not (house.TESTS / name).is_file()] == []


def test_no_base_name_has_two_meanings() -> None:
    known = house.exceptions("repeated base names")
    modules = house.graph(with_types=True).modules
    new = {name: found for name, found in house.repeated_names(modules).items() if name not in known}
    assert not new, (
        f"{new}: somebody who looks for one finds the other. Name each after its own concept, or explain the pair "
        "in tests/house_exceptions.txt."
    )


def test_a_repeated_base_name_is_noticed_except_among_command_words() -> None:
    modules = ["toolkeep.audit.list", "toolkeep.cli.audit.list", "toolkeep.cli.list", "toolkeep.policy.list"]
    assert house.repeated_names(modules) == {"list": ["toolkeep.audit.list", "toolkeep.policy.list"]}


def test_a_small_module_with_one_importer_belongs_to_it() -> None:
    known = house.exceptions("small modules with one importer")
    found = house.splinters(house.imports(with_types=True), house.sizes())
    new = {module: importer for module, importer in found.items() if module not in known}
    assert not new, (
        f"{new}: below {house.SMALL_LINES} lines, with one importer. Move each into the module that imports it, or "
        "say in tests/house_exceptions.txt why it stands alone."
    )


def test_a_small_module_is_noticed_until_it_grows_or_is_shared() -> None:
    edges = {"a": {"small", "large", "shared"}, "b": {"shared"}}
    assert house.splinters(edges, {"small": 59, "large": 60, "shared": 5}) == {"small": "a"}


# --- limits --------------------------------------------------------------------------------------


def test_a_limit_says_why_it_is_what_it_is() -> None:
    known = house.exceptions("limits without a reason")
    new = sorted(house.all_unexplained_limits() - set(known))
    assert not new, (
        f"{new}: a number that bounds something says in a docstring below it, or in a comment, what it bounds and "
        "why it is this large. One that hosts may want to change belongs to limits.py."
    )


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("_HEAD_BYTES: Final = 64 * 1024\n", ["_HEAD_BYTES"]),
        ("_DEPTH = 8\nx = 1\n", ["_DEPTH"]),
        ("_MOST_NAMES = 100\n", ["_MOST_NAMES"]),
        ('_DEPTH = 8\n"""As deep as any real schema."""\n', []),
        ("_DEPTH = 8  # as deep as any real schema\n", []),
        ("# as deep as any real schema\n_DEPTH = 8\n", []),
        ("_PAGE_BYTES = 2 * MIB\n", ["_PAGE_BYTES"]),
        ('_DEPTH = 8\n_STEPS = 9\n"""Of one schema."""\n', []),
        ('_DEPTH = 8\n\n_STEPS = 9\n"""Of one schema."""\n', ["_DEPTH"]),
        ("MS_NOSUID = 2\nHEADERS = 64\n_DEPTH = LIMIT\n", []),
    ],
)
def test_a_number_that_bounds_something_needs_a_reason(source: str, names: list[str]) -> None:
    assert list(house.unexplained_limits("import os\n" + source)) == names


# --- exceptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("section", house.read_exceptions(house.EXCEPTIONS.read_text(encoding="utf-8")))
def test_no_exception_is_listed_that_is_no_longer_needed(section: str) -> None:
    needless = listed_but_needless(section)
    assert not needless, f"no longer needed in tests/house_exceptions.txt: {needless}; run {RENEW}"


@pytest.mark.parametrize("section", ["cycles", "repeated base names", "small modules with one importer"])
def test_each_exception_has_a_reason(section: str) -> None:
    assert [entry for entry, reason in house.exceptions(section).items() if not reason] == []
