"""Definitions of a file are read once for the same code, interpreter and packages."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolkeep.config.tools_file import find_tools_file
from toolkeep.definitions.found_tool import FoundTool
from toolkeep.execution.tool_code import ToolCode
from toolkeep.storage import definition_cache
from toolkeep.storage.definition_cache import DefinitionCache

GOOD = [FoundTool(reference="count", definition={"name": "count", "maximum": 10**30, "ratio": 1.0})]
BROKEN = [FoundTool(reference="count")]


class Project:
    def __init__(self, folder: Path) -> None:
        self.root, self.state = folder / "project", folder / "state"
        (self.root / "shop").mkdir(parents=True)
        (self.root / "tools.py").write_text("import shop\n")
        (self.root / "shop/__init__.py").write_text("")
        self.data = self.root / "shop/names.json"
        self.data.write_text("[]")
        self.reads = 0

    def read(self, found: Sequence[FoundTool] = GOOD) -> Sequence[FoundTool]:
        def from_worker() -> Sequence[FoundTool]:
            self.reads += 1
            return found

        return DefinitionCache(self.state).read(find_tools_file("tools.py", self.root), from_worker)

    @property
    def kept(self) -> list[Path]:
        return list((self.state / "definitions").iterdir())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    site = tmp_path / "site-packages"
    site.mkdir()
    made = Project(tmp_path)
    own = (str(made.root / "tools.py"), str(made.root / "shop"))
    monkeypatch.setattr(definition_cache, "find_code", lambda *_: ToolCode((str(site),), own))
    return made


def test_the_same_code_is_read_once(project: Project) -> None:
    assert [project.read(), project.read()] == [GOOD, GOOD]
    assert project.reads == 1
    assert [path.stat().st_mode & 0o777 for path in project.kept] == [0o600]


@pytest.mark.parametrize("changed", ["code", "data", "packages", "version", "garbage"])
def test_it_is_read_again_after_a_change(
    changed: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.read()
    match changed:
        case "code":
            (project.root / "shop/__init__.py").write_text("x = 1\n")
        case "data":
            project.data.write_text('["Emma"]')
        case "packages":
            os.utime(project.root.parent / "site-packages", ns=(1, 1))
        case "version":
            monkeypatch.setattr(definition_cache, "__version__", "another")
        case "garbage":
            project.kept[0].write_text("[[1]]")
    assert project.read() == GOOD
    assert project.reads == 2


def test_neither_problems_nor_what_depends_on_editable_installs_is_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.read(BROKEN)
    assert not (project.state / "definitions").exists()
    monkeypatch.setattr(definition_cache, "find_code", lambda *_: ToolCode((), ("/elsewhere/library",)))
    project.read()
    assert not (project.state / "definitions").exists()


def test_the_oldest_are_removed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_cache, "_KEPT", 2)
    for number in range(4):
        (project.root / "tools.py").write_text(f"import shop\nx = {number}\n")
        project.read()
    assert len(project.kept) == 2
