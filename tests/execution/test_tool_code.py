"""Where the code of a tool is found, so that a worker imports what the host would."""

import sys
from pathlib import Path

import pytest

from toolkeep import open_keep
from toolkeep.execution.tool_code import find_code
from toolkeep.sandbox.import_guard import watch


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that is installed to be edited, without a folder `src`, and site-packages that say so."""
    project, site = tmp_path / "project", tmp_path / "site-packages"
    for folder in (project / "helper", project / "tool_of_it", project / "data", project / "json", site):
        folder.mkdir(parents=True)
    for package in ("helper", "tool_of_it", "json"):
        (project / package / "__init__.py").write_text("WORD = 'helped'\n")
    (project / "tool_of_it" / "__init__.py").write_text("import helper\ndef say(): return helper.WORD\n")
    (project / ".env").write_text("KEY=secret")
    (project / "link.py").symlink_to(project / ".env")
    (site / "project.pth").write_text(f"# a comment\nimport os; os.abort()\n{project}\n")
    for path in (str(site), str(project)):
        monkeypatch.syspath_prepend(path)
    return project


def test_packages_of_an_editable_install_are_shown_and_nothing_else_of_its_folder(project: Path) -> None:
    found = find_code("tool_of_it:say", sys.path)
    mine = {path for path in found.shown if path.startswith(str(project))}
    assert mine == {str(project / "helper"), str(project / "tool_of_it")}


@pytest.mark.spec("SBX-1")
@pytest.mark.usefixtures("project")
def test_a_tool_imports_a_package_that_is_installed_to_be_edited(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".agent").mkdir(parents=True)
    home_config = Path.home() / ".agent" / "config.yml"
    home_config.parent.mkdir(parents=True)
    home_config.write_text(
        """
tool_registry:
  custom_tools:
    - name: say
      version: '1.0.0'
      description: Says a word.
      side_effects: [None]
      constraints: {required_isolation: strict}
      parameters: {type: object, properties: {}}
      run: {python: 'tool_of_it:say'}
"""
    )
    with open_keep(project=work) as keep:
        result = keep.call_sync("say", {})
        assert (result.ok, result.value) == (True, "helped"), result.text


@pytest.mark.parametrize("declared", ["MAPPING: dict[str, str]", "MAPPING"])
def test_packages_that_an_import_hook_maps_are_shown_and_the_hook_is_not_run(
    declared: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (project / "single.py").write_text("")
    names = ("helper", "single", "json", "data", "link")
    mapping = {name: str(project / name) for name in names} | {"renamed": str(project / "tool_of_it")}
    (site / "project.pth").write_text("import __editable___project_1_finder; …")
    finder = f"import os; os.abort()\n{declared} = {mapping!r}\n"
    (site / "__editable___project_1_finder.py").write_text(finder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(project)])
    found = find_code("single:say", sys.path)
    mine = [path for path in found.shown if path.startswith(str(project))]
    assert sorted(mine) == [str(project / "helper"), str(project / "single.py")]
    (site / "__editable___project_1_finder.py").write_text(f"{declared} = open('/etc/passwd')")
    with pytest.raises(ValueError, match="there is no module 'single'"):
        find_code("single:say", sys.path)


@pytest.mark.spec("SBX-6")
def test_what_a_tool_may_write_of_an_editable_install_is_left_out(project: Path) -> None:
    """A module that it puts there would stand before an installed one in the workers of other tools."""
    watch(str(project))
    mine = {path for path in find_code("tool_of_it:say", sys.path).shown if path.startswith(str(project))}
    assert mine == {str(project / "tool_of_it")}
