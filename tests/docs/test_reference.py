"""The reference is complete: codes, commands, docstrings, links."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolkeep
from tests.docs.markdown import PAGES, ROOT, anchors_of, blocks_of, headings_of, links_of
from toolkeep import errors
from toolkeep.errors import TITLES, Code

ERRORS = ROOT / "docs" / "errors"
MODULES = sorted((ROOT / "src" / "toolkeep").rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.spec("DOC-1")
def test_every_code_has_a_page_and_every_page_a_code() -> None:
    pages = {path.stem for path in ERRORS.glob("*.md")} - {"README"}
    assert pages == {code.value for code in Code}


def test_the_tree_of_errors_draws_all_of_its_module() -> None:
    source = Path(errors.__file__).read_text(encoding="utf-8")
    made = re.findall(r"^class (\w+)\((?:ToolkeepError|DefinitionError)\):", source, re.MULTILINE)
    assert set(made) <= set(re.findall(r"[├└]── (\w+) ", source))


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/threats.md"])
def test_every_file_of_code_that_is_named_exists(name: str) -> None:
    tops = (ROOT / top for top in ("src", "tests", "bench"))
    files = [str(path) for top in tops for path in top.rglob("*.py")]
    named = set(re.findall(r"[\w/]+\.py\b", (ROOT / name).read_text(encoding="utf-8")))
    assert {one for one in named if not any(file.endswith(f"/{one}") for file in files)} == set()


@pytest.mark.spec("DOC-1")
def test_the_page_of_each_code_has_its_title_and_every_section() -> None:
    for code in Code:
        page = (ERRORS / f"{code.value}.md").read_text(encoding="utf-8")
        expected = [f"# {code.value}: {TITLES[code]}", "## What it means", "## Example", "## How to fix it"]
        assert headings_of(page) == expected


def test_the_table_of_codes_is_complete_and_in_order() -> None:
    table = (ERRORS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(ACODE-TSR-\d{3})\]\(\1\.md\) \| ([^|]+) \|", table, re.MULTILINE)
    assert rows == [(code.value, TITLES[code]) for code in Code]


def test_the_command_reference_is_what_help_says() -> None:
    script = ROOT / "scripts" / "commands"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.spec("DOC-1")
def test_every_name_of_the_public_face_has_a_docstring() -> None:
    for name in toolkeep.__all__:
        text = getattr(toolkeep, name).__doc__ or ""
        assert text.strip(), name
        assert not text.startswith(f"{name}("), "a dataclass wrote this itself"


@pytest.mark.spec("DOC-1")
def test_everything_public_in_a_module_has_a_docstring() -> None:
    found = {
        name_of(path): list(undocumented(ast.parse(path.read_text(encoding="utf-8")))) for path in MODULES
    }
    assert {name: missing for name, missing in found.items() if missing} == {}


def undocumented(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """The module or class itself, and the public functions, classes and methods in it."""
    if not ast.get_docstring(node):
        yield prefix or "the module"
    for inside in node.body:
        if isinstance(inside, ast.ClassDef) and not inside.name.startswith("_"):
            yield from undocumented(inside, f"{prefix}{inside.name}.")
        elif isinstance(inside, (ast.FunctionDef, ast.AsyncFunctionDef)) and not inside.name.startswith("_"):
            decorators = [ast.unparse(decorator).partition("(")[0] for decorator in inside.decorator_list]
            # The name of an escape attempt is the whole of what it does.
            is_spared = "overload" in decorators or "attempt" in decorators
            if not is_spared and not ast.get_docstring(inside):
                yield prefix + inside.name


def test_a_missing_docstring_is_noticed() -> None:
    source = '"""M."""\nclass A:\n    """A."""\n    def b(self): ...\n    def _c(self): ...\ndef d(): ...\n'
    assert list(undocumented(ast.parse(source))) == ["A.b", "d"]


def test_every_link_inside_the_project_leads_somewhere() -> None:
    links = ((path, target) for path in PAGES for target in links_of(path.read_text(encoding="utf-8")))
    assert [(name_of(path), target) for path, target in links if is_broken(path, target)] == []


def is_broken(page: Path, target: str) -> bool:
    """Whether the file, or the heading in it, is missing."""
    file, _, anchor = target.partition("#")
    found = (page.parent / file).resolve() if file else page
    if not found.exists():
        return True
    return bool(anchor) and anchor not in anchors_of(found.read_text(encoding="utf-8"))


def test_every_block_of_code_names_its_language() -> None:
    blocks = ((path, block) for path in PAGES for block in blocks_of(path.read_text(encoding="utf-8")))
    assert [(name_of(path), block.line) for path, block in blocks if not block.language] == []


def test_the_changelog_has_one_entry_and_it_is_of_the_version_that_is_built() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert headings_of(text) == ["# Changelog", f"## {version} (unreleased)"]


def test_the_map_of_the_code_stays_a_map() -> None:
    """Two pages: reasons for single lines stand beside the lines."""
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 165


def test_the_map_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "src" / "toolkeep").glob("*/__init__.py")]
    assert [room for room in rooms if f"`{room}/" not in text] == []
