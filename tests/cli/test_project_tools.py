"""`toolkeep new` in a project: the new file is named in its configuration, and accepted if nothing else changed."""

from pathlib import Path

import pytest

from toolkeep.cli.project_tools import add_to_project
from toolkeep.errors import FileUnreadable
from toolkeep.keep.open import open_state, read_configuration

TEXT = "x = 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".agent").mkdir()
    (tmp_path / "new.py").write_text(TEXT)
    return tmp_path


def added(root: Path, config: str) -> tuple[bool, str]:
    path = root / ".agent" / "config.yml"
    path.write_text(config)
    return add_to_project(root, root / "new.py", TEXT), path.read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'tools:\n  - "new.py"\n'),
        ("disabled_tools: [git_push]\n# end\n", 'disabled_tools: [git_push]\n# end\ntools:\n  - "new.py"\n'),
        ("tools: []\ndisabled_tools: [git_push]", 'tools: ["new.py"]\ndisabled_tools: [git_push]\n'),
    ],
)
def test_a_file_is_added_and_in_effect_at_once(before: str, after: str, root: Path) -> None:
    assert added(root, before) == (True, after)
    (file,) = read_configuration(root, open_state(root)).files
    assert file.counts


@pytest.mark.spec("REG-5")
def test_a_configuration_that_nobody_accepted_is_not_accepted_with_it(root: Path) -> None:
    (root / "old.py").touch()
    is_in_effect, text = added(root, "tools:\n  - old.py\ntier: core\n")
    assert (is_in_effect, text) == (False, 'tools:\n  - old.py\n  - "new.py"\ntier: core\n')


@pytest.mark.spec("REG-5")
def test_a_file_that_is_not_as_it_was_written_is_not_accepted(root: Path) -> None:
    (root / "new.py").write_text("import os\n")
    assert added(root, "")[0] is False


@pytest.mark.spec("REG-5")
def test_a_module_that_the_new_file_imports_is_not_accepted_unseen(root: Path) -> None:
    (root / "typing.py").touch()
    (root / "new.py").write_text("import typing\n")
    (root / ".agent" / "config.yml").write_text("")
    assert add_to_project(root, root / "new.py", "import typing\n") is False


@pytest.mark.parametrize("config", ["tools: {custom: []}\n", "tools:\n- old.py\n", "tools: [\n  old.py]\n"])
def test_a_text_that_cannot_be_added_to_is_left_alone(config: str, root: Path) -> None:
    (root / "old.py").touch()
    with pytest.raises(FileUnreadable, match="by hand"):
        added(root, config)
    assert (root / ".agent" / "config.yml").read_text() == config
