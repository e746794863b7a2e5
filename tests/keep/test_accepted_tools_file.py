"""A served file of tools that changes: the server takes over exactly what a person accepted."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from toolkeep import Keep, open_keep
from toolkeep.config.tools_file import find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.keep.accepted_tools_file import AcceptedToolsFile
from toolkeep.keep.open import open_state
from toolkeep.storage.sqlite.state_db import KeepState

pytestmark = pytest.mark.spec("REG-5")


class Author:
    """Edits and accepts a file of tools that a keep serves."""

    def __init__(self, keep: Keep, state: KeepState, root: Path) -> None:
        self.keep, self.state, self.root = keep, state, root
        self._find = partial(find_tools_file, "tools.py", root)
        self.file = AcceptedToolsFile(keep, self._find, state, root, served=None, command="")

    def write(self, body: str, *names: str) -> None:
        tools = "".join(f'\n@tool\ndef {name}() -> str:\n    "Say."\n    {body}\n' for name in names)
        (self.root / "tools.py").write_text(f"from toolkeep import tool\n{tools}")

    def accept(self) -> None:
        found = self._find()
        self.state.accept(found.key, found.seal)

    def call(self, name: str) -> object:
        result = self.keep.call_sync(name, {})
        return result.value if result.error is None else result.error.code.name


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    (tmp_path / "project").mkdir()
    state = open_state(tmp_path / "project")
    assert state is not None
    with open_keep(project=tmp_path / "project", built_in=False) as keep:
        yield Author(keep, state, tmp_path / "project")


def test_only_accepted_content_is_taken_over_and_all_of_it(author: Author) -> None:
    assert (author.file.look(), author.file.is_served) == (None, False)  # there is no file yet
    author.write("return 'one'", "say", "cry")
    assert (author.file.look(), author.call("say")) == (None, "UNKNOWN_TOOL")
    author.accept()
    done = author.file.look()
    assert done is not None
    assert (done.taken, author.call("say"), author.file.look()) == (("say", "cry"), "one", None)
    before = author.file.stamp()
    author.write("return 'two'", "say", "new")
    assert author.file.stamp() != before
    assert (author.file.look(), author.call("say")) == (None, "TOOL_QUARANTINED")
    author.accept()
    author.write("return 'three'", "say")  # after the acceptance
    assert (author.file.look(), author.call("say")) == (None, "TOOL_QUARANTINED")
    author.write("return 'two'", "say", "new")
    done = author.file.look()
    assert done is not None
    assert (done.taken, done.removed, done.waiting) == (("say", "new"), ("cry",), ())
    assert (author.call("say"), author.call("new"), author.call("cry")) == ("two", "two", "UNKNOWN_TOOL")


def test_accepted_content_that_cannot_be_imported_changes_nothing(author: Author) -> None:
    author.write("return 'one'", "say")
    author.accept()
    author.file.look()
    (author.root / "tools.py").write_text("1 / 0\n")
    author.accept()
    with pytest.raises(FileUnreadable):
        author.file.look()
    assert (author.file.is_served, author.call("say")) == (True, "TOOL_QUARANTINED")
