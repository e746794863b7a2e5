"""A Python file of tools is located by its path or name, with every project module that it imports."""

from pathlib import Path

import pytest

from toolkeep.config.tools_file import find_tools_file
from toolkeep.errors import FileUnreadable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").touch()
    (tmp_path / "beside.py").write_text("import json\n")
    (tmp_path / "tools.py").write_text("import beside\n\ndef f():\n    from package import inner\n")
    (tmp_path / "unused.py").touch()
    return tmp_path


@pytest.mark.spec("REG-5")
def test_a_file_comes_with_the_project_modules_that_it_imports_and_no_others(root: Path) -> None:
    found = find_tools_file("tools.py", root)
    assert list(found.code) == ["beside.py", "package/__init__.py", "package/inner.py", "tools.py"]
    assert found.places == tuple(str(root / name) for name in ("beside.py", "package", "tools.py"))
    assert found.place == str(root / "tools.py")


def test_the_seal_changes_with_a_module_that_the_file_imports(root: Path) -> None:
    before = find_tools_file("tools.py", root)
    (root / "package" / "inner.py").write_text("x = 1\n")
    after = find_tools_file("tools.py", root)
    assert (after.key, after.seal == before.seal) == (before.key, False)
    assert before.accepted_code().changed() == "package/inner.py"
    assert after.accepted_code().changed() == ""


def test_a_module_is_found_by_its_name(root: Path) -> None:
    found = find_tools_file("package.inner", root)
    assert (found.place, found.places) == ("package.inner", (str(root / "package"),))


def test_a_file_outside_the_root_is_refused(root: Path) -> None:
    with pytest.raises(FileUnreadable, match="is outside"):
        find_tools_file("../tools.py", root / "package")


def test_a_module_that_is_a_symlink_is_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "beside.py"
    elsewhere.touch()
    (root / "beside.py").unlink()
    (root / "beside.py").symlink_to(elsewhere)
    with pytest.raises(FileUnreadable, match="symlink"):
        find_tools_file("tools.py", root)


@pytest.mark.parametrize("name", ["no.py", "not a module"])
def test_what_is_no_file_and_no_module_is_refused(name: str, root: Path) -> None:
    with pytest.raises(FileUnreadable):
        find_tools_file(name, root)
