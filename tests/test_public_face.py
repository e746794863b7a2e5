"""The public face is frozen: what users hold changes on purpose only, and docs and examples use nothing else."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs.markdown import ROOT, blocks_of
from tests.public_face import (
    PUBLIC_MODULES,
    RENEW,
    SNAPSHOT,
    SOURCE,
    change_of,
    entry_points,
    loggers,
    read,
    section,
    source_of,
    titles,
    write,
)
from tests.signatures import describe_file, names_in_all
from toolkeep.cli.main import cli
from toolkeep.events import Event

pytestmark = pytest.mark.spec("DOC-3")

COPY = read(SNAPSHOT.read_text(encoding="utf-8"))
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- frozen --------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", titles())
def test_the_public_face_changes_on_purpose_only(title: str) -> None:
    change = change_of(title, section(title), COPY.get(title, ()))
    if change:
        pytest.fail(str(change), pytrace=False)


def test_the_copy_has_no_section_that_nothing_fills() -> None:
    assert list(COPY) == titles()


def test_a_change_is_told_with_what_is_new_what_is_lost_and_how_to_renew_the_copy() -> None:
    change = change_of("tables", ["a.id", "a.name"], ["a.id", "a.title"])
    assert str(change).splitlines()[:3] == ["The public face changed: tables", "  + a.name", "  - a.title"]
    assert f"    {RENEW}" in str(change).splitlines()
    assert change_of("tables", ["a.id"], ["a.id"]) is None


def test_the_copy_survives_being_written_and_read() -> None:
    face = {"tables": ["a.id", "a.name"], "commands": ["toolkeep"]}
    assert read(write(face)) == face


def test_a_signature_is_told_as_it_is_written(tmp_path: Path) -> None:
    source = tmp_path / "shelf.py"
    source.write_text(
        """__all__ = ["Shelf", "find", "arrange"]

class Shelf(Base):
    size: int = 3
    _hidden: int

    def __init__(self, name: "str | None" = None) -> None: ...
    async def take(self, title: str, *, copies: int = 1) -> "list[Book]": ...
    @property
    def is_full(self) -> bool: ...
    def _count(self) -> int: ...

def find(kind: Literal["a"], /, *words: str) -> None: ...
def other() -> None: ...
def arrange(shelf: str, /, below: str = "b", *, with_a_name_that_is_very_long_indeed: str, and_with_another: int = 0) -> int: ...
"""
    )
    assert list(describe_file(source)) == [
        "class Shelf(Base)",
        "Shelf(name: str | None = None)",
        "Shelf.is_full: bool",
        "Shelf.size: int = 3",
        "Shelf.take(title: str, *, copies: int = 1) -> list[Book] @async",
        "find(kind: Literal['a'], /, *words: str) -> None",
        "arrange(…) -> int",
        "arrange(1/ shelf: str)",
        "arrange(2 below: str = 'b')",
        "arrange(* with_a_name_that_is_very_long_indeed: str)",
        "arrange(* and_with_another: int = 0)",
    ]


# --- what is public ------------------------------------------------------------------------------


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_a_public_module_says_in_all_what_is_public(module: str) -> None:
    assert names_in_all(file_of(module))


def test_every_event_is_public() -> None:
    from toolkeep import events

    assert {kind.__name__ for kind in Event.__subclasses__() if kind.__module__ == Event.__module__} <= set(
        events.__all__
    )


def test_the_page_about_versions_lists_the_public_modules_and_no_others() -> None:
    page = (ROOT / "docs" / "versioning.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(toolkeep[\w.]*)` \|", page, re.MULTILINE) == list(PUBLIC_MODULES)


# --- docs and examples use nothing else ----------------------------------------------------------

MEND = "import it from a public module (docs/versioning.md), or export it from one and renew tests/public_face.txt"


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Each module of toolkeep that a text imports, with the name that it takes of it; empty for the module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "toolkeep":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "toolkeep")


def internal(source: str) -> list[str]:
    """The imports that no user should make."""
    return [
        f"{module}.{name}".rstrip(".") for module, name in imports_of(source) if not is_public(module, name)
    ]


def is_public(module: str, name: str) -> bool:
    """Whether users may import this."""
    if f"{module}.{name}" in PUBLIC_MODULES:
        return True
    if module not in PUBLIC_MODULES:
        return False
    return not name or name in names_in_all(file_of(module))


def file_of(module: str) -> Path:
    """The file of a module or package."""
    path = source_of(module)
    return path if path.exists() else SOURCE.joinpath(*module.split(".")[1:], "__init__.py")


def test_snippets_import_only_what_is_public() -> None:
    blocks = ((path, block) for path in PAGES for block in blocks_of(path.read_text(encoding="utf-8")))
    python = ((path, block) for path, block in blocks if block.language == "python")
    found = [(name_of(path), block.line, name) for path, block in python for name in internal(block.text)]
    assert found == [], MEND


def test_examples_import_only_what_is_public() -> None:
    found = {name_of(path): internal(path.read_text(encoding="utf-8")) for path in EXAMPLES}
    assert {name: one for name, one in found.items() if one} == {}, MEND


@pytest.mark.parametrize("options", [[], ["--class"]])
def test_a_new_tool_imports_only_what_is_public(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["new", "count_words", *options])
    files = list(tmp_path.rglob("*.py"))
    assert (done.exit_code, len(files)) == (0, 2)
    assert [internal(file.read_text(encoding="utf-8")) for file in files] == [[], []]


def test_pages_name_only_what_is_public() -> None:
    """Also in a sentence: `toolkeep.MODULE.NAME` sends a reader there. Loggers and entry points bear such names."""
    found = {}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r"(?<![\w./-])toolkeep(?:\.[A-Za-z_]\w*)+", text)) - spared()
        found[name_of(path)] = sorted(name for name in named if is_internal(name))
    assert {name: one for name, one in found.items() if one} == {}, MEND


@functools.cache
def spared() -> frozenset[str]:
    """Dotted names that are no modules."""
    return frozenset((*loggers(), *(line.split()[-1] for line in entry_points())))


@functools.cache
def is_internal(dotted: str) -> bool:
    """Whether a dotted name leads into a module that is not public."""
    parts = dotted.split(".")
    for end in range(len(parts), 1, -1):
        module = ".".join(parts[:end])
        if file_of(module).exists():
            return not is_public(module, parts[end] if end < len(parts) else "")
    return False


def test_an_internal_import_is_noticed() -> None:
    assert internal("from toolkeep import Keep, errors\nimport toolkeep.mcp\n") == []
    assert internal("import toolkeep.keep.keep") == ["toolkeep.keep.keep"]
    assert internal("def f():\n    from toolkeep.limits import CallLimits") == ["toolkeep.limits.CallLimits"]
    assert internal("from toolkeep.events import Bus") == ["toolkeep.events.Bus"]
    assert is_internal("toolkeep.approval.question_text.view")
    assert not is_internal("toolkeep.mcp.McpServer")
    assert not is_internal("toolkeep.lock")
