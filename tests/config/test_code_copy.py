"""A copy of a file of tools: the same code by its hash, with the data of its packages."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from toolkeep.config.code_copy import copy_tools_file
from toolkeep.config.tools_file import ToolsFile, find_tools_file
from toolkeep.errors import FileUnreadable

pytestmark = pytest.mark.spec("REG-5")


@pytest.fixture
def file(tmp_path: Path) -> ToolsFile:
    root = tmp_path / "project"
    (root / "shop").mkdir(parents=True)
    (root / "tools.py").write_text("import shop\n")
    (root / "shop" / "__init__.py").write_text("")
    (root / "shop" / "prices.json").write_text("{}")
    (root / "shop" / ".env").write_text("SECRET")
    (root / "shop" / "link").symlink_to(root / "other.py")
    (root / "other.py").write_text("")
    return find_tools_file("tools.py", root)


def test_a_copy_is_the_same_code_with_the_data_of_its_packages_alone(file: ToolsFile, tmp_path: Path) -> None:
    made = copy_tools_file(file, tmp_path, sources=("/earlier",))
    root = Path(made.root)
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert (made.seal, found) == (file.seal, ["shop/__init__.py", "shop/prices.json", "tools.py"])
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*.py")} == {0o444}
    assert made.places == (f"{root}/shop", f"{root}/tools.py")
    assert made.copy is not None
    assert made.copy.sources == ("/earlier", *file.places)
    assert copy_tools_file(file, tmp_path).root == made.root


def test_a_file_that_changed_since_it_was_hashed_is_not_copied(file: ToolsFile, tmp_path: Path) -> None:
    Path(file.place).write_text("import shop, os\n")
    with pytest.raises(FileUnreadable, match="changed while it was copied"):
        copy_tools_file(file, tmp_path)
    assert not (tmp_path / file.seal).exists()
    gone = replace(file, code={**file.code, "gone.py": "0"})
    with pytest.raises(FileUnreadable, match="cannot be copied"):
        copy_tools_file(gone, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
