"""The distribution of a package, and what it requires."""

from pathlib import Path

import pytest

from tests.fleet.packages import GREET, Site
from toolkeep.errors import FileUnreadable
from toolkeep.fleet.installed_package import Pin, lacking, pin_of

pytestmark = pytest.mark.spec("SCL-3")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Installed packages of a test."""
    return Site(tmp_path, monkeypatch)


def test_the_closure_of_requirements_is_pinned_with_markers_evaluated(site: Site) -> None:
    requires = (
        "Paint[oil]>=2",
        "brush; python_version > '3'",
        "old; python_version < '3'",
        "frame; extra == 'shop'",
        "toolkeep",
    )
    site.install("greet-tools", files=GREET, requires=requires)
    site.install("paint", "2.0.1", requires=("linseed; extra == 'oil'", "acrylic; extra == 'water'"))
    site.install("linseed", "3", requires=("greet-tools", "brush"))
    site.install("brush", "0.9")
    pinned = {"paint": "2.0.1", "linseed": "3", "brush": "0.9"}
    assert pin_of(str(site.folder / "greet_tools")) == Pin("greet-tools", "1.2", pinned)


def test_an_extra_that_is_required_after_its_distribution_counts(site: Site) -> None:
    site.install("greet-tools", files=GREET, requires=("paint", "brush"))
    site.install("paint", "2", requires=("linseed; extra == 'oil'",))
    site.install("brush", "1", requires=("paint[oil]",))
    site.install("linseed", "3")
    assert pin_of(str(site.folder / "greet_tools")).requires == {"paint": "2", "brush": "1", "linseed": "3"}


def test_a_single_module_is_of_its_distribution(site: Site) -> None:
    site.install("greet", "3", {"greet.py": "x = 1"})
    assert pin_of(str(site.folder / "greet.py")) == Pin("greet", "3", {})


def test_a_package_of_the_system_without_a_record_is_of_its_distribution(site: Site) -> None:
    site.install("greet-tools", files=GREET)
    info = site.folder / "greet_tools-1.2.dist-info"
    (info / "RECORD").unlink()
    (info / "top_level.txt").write_text("greet_tools\n")
    assert pin_of(str(site.folder / "greet_tools")) == Pin("greet-tools", "1.2", {})


def test_an_editable_install_is_of_the_innermost_project_that_has_it(site: Site, tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "src" / "inner"
    (inner / "src" / "greet_tools").mkdir(parents=True)
    (inner / "src" / "greet_tools" / "__init__.py").touch()
    site.install_editable("outer", outer)
    site.install_editable("inner", inner, "0.3")
    assert pin_of(str(inner / "src" / "greet_tools")) == Pin("inner", "0.3", {})


def refused(site: Site, why: str, place: str = "greet_tools") -> None:
    with pytest.raises(FileUnreadable, match=why):
        pin_of(str(site.folder / place))


def test_a_package_that_nothing_installed_is_refused(site: Site, tmp_path: Path) -> None:
    (site.folder / "greet_tools").mkdir()
    refused(site, "is of no installed distribution")
    (tmp_path / "other").mkdir()
    refused(site, "is of no installed distribution", "../other")


def test_a_folder_of_an_editable_project_that_it_does_not_install_is_refused(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "project" / "tests").mkdir(parents=True)
    (tmp_path / "project" / "tests" / "__init__.py").touch()
    site.install_editable("greet", tmp_path / "project")
    with pytest.raises(FileUnreadable, match="is of no installed distribution"):
        pin_of(str(tmp_path / "project" / "tests"))


def test_a_package_of_several_distributions_is_refused(site: Site) -> None:
    site.install("greet-tools", files=GREET)
    site.install("greet-more", "1", {"greet_tools/more.py": ""})
    refused(site, "is of several distributions at once: greet-more, greet-tools")


@pytest.mark.parametrize("beside", ["_greet.py", "greet_tools.libs/libx.so.1", "_greet.abi3.so", "greet.pth"])
def test_a_distribution_that_installs_something_beside_the_package_is_refused(
    site: Site, beside: str
) -> None:
    site.install("greet-tools", files=GREET, also=(beside,))
    refused(site, "greet-tools 1.2 also installs '.*' beside it, which would be missing")


def test_a_requirement_that_is_missing_or_unreadable_is_refused(site: Site) -> None:
    site.install("greet-tools", files=GREET, requires=("paint",))
    refused(site, "requires paint, which is not installed here")
    site.install("paint", "2", requires=("!!",))
    refused(site, "requires '!!', which is unreadable")


def test_what_is_lacking_is_named_with_both_versions(site: Site) -> None:
    site.install("shapely", "1.9")
    site.install("Brush.Kit", "0.9")
    assert lacking({"shapely": "1.9", "brush-kit": "0.9"}) == ""
    assert lacking({"shapely": "2.0.1", "paint": "2"}) == (
        "paint 2, which is not installed here; shapely 2.0.1, where 1.9 is installed"
    )
