"""A file of tools that changes while it is served: what takes effect at once, what waits, what stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkeep import Keep, open_keep
from toolkeep.config.code_copy import copy_tools_file
from toolkeep.config.tools_file import find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.keep.open import tools_file_provider, tools_reader
from toolkeep.keep.reload_tools_file import ToolsFileReload
from toolkeep.registry.reload_tools import Reloaded
from toolkeep.registry.tool_provider import FILES
from toolkeep.sandbox.import_guard import watch

pytestmark = pytest.mark.spec("REG-5")

TOOL = """
@tool(effects="none", determinism="pure")
def {name}(text: str) -> str:
    "{about}"
    return voice.up(text) + "{end}"
"""


class Author:
    """Edits a file of tools that a keep follows."""

    def __init__(self, keep: Keep, root: Path, copies: Path) -> None:
        self.keep, self.root = keep, root
        (root / "voice.py").write_text("def up(text): return text.upper()\n")
        self.write("shout")
        file = find_tools_file("tools.py", root)
        copied = copy_tools_file(file, copies)
        assert not keep.load(own=[tools_file_provider(copied, keep, tools_reader(root), name=FILES)]).skipped
        self.file = ToolsFileReload(keep, file, copied, copies, root)

    def write(self, *names: str, about: str = "Shout.", end: str = "", more: str = "") -> None:
        tools = "".join(TOOL.format(name=name, about=about, end=end) for name in names)
        (self.root / "tools.py").write_text(f"import voice\nfrom toolkeep import tool\n{tools}{more}")

    def look(self) -> Reloaded:
        assert self.file.look() is None  # the first time, it may be half written
        done = self.file.look()
        assert done is not None
        assert self.file.look() is None
        return done

    def call(self, name: str = "shout") -> object:
        result = self.keep.call_sync(name, {"text": "a"}, agent="operator")
        return result.value if result.error is None else result.error.code.name


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    for name in ("project", "copies"):
        (tmp_path / name).mkdir()
    with open_keep(project=tmp_path / "project") as keep:
        yield Author(keep, tmp_path / "project", tmp_path / "copies")


def test_new_code_of_an_equal_definition_runs_at_once_and_a_looser_or_new_tool_waits(author: Author) -> None:
    assert author.call() == "A"
    author.write("shout", end="!")
    assert (author.look().taken, author.call()) == (("shout",), "A!")  # not the cached result
    (author.root / "voice.py").write_text("def up(text): return __file__\n")
    assert (author.look().taken, author.call()) == (("shout",), f"{author.root}/voice.py!")
    (author.root / "voice.py").write_text("def up(text): return text * 2\n")
    assert (author.look().taken, author.call()) == (("shout",), "aa!")
    author.write("shout", "cry", about="Shout loudly.", end="?")
    done = author.look()
    assert [(one.tool.name, one.is_new, len(one.changes)) for one in done.waiting] == [
        ("shout", False, 1),
        ("cry", True, 0),
    ]
    assert (done.taken, author.call(), author.call("cry")) == ((), "aa!", "UNKNOWN_TOOL")
    assert (author.file.take(), author.file.has_waiting) == (("shout", "cry"), False)
    assert (author.call(), author.call("cry")) == ("aa?", "aa?")
    author.write("cry", about="Shout loudly.")
    done = author.look()
    assert (done.taken, done.removed, author.call()) == (("cry",), ("shout",), "UNKNOWN_TOOL")


def test_a_file_that_cannot_be_used_leaves_the_tools_as_they_are(author: Author) -> None:
    author.write("shout", end="!", more="1 / 0\n")
    assert author.file.look() is None
    with pytest.raises(FileUnreadable) as raised:
        author.file.look()
    assert f'File "{author.root}/tools.py", line 8' in str(raised.value)
    assert (author.file.look(), author.call()) == (None, "A")
    author.write(end="", more="tool(effects='writes')(lambda x: x)\nbroken = tool(lambda x: x)\n")
    done = author.look()
    assert ([one.tool for one in done.skipped], done.removed, author.call()) == (["broken"], (), "A")
    (author.root / "voice.py").unlink()
    assert author.file.look() is None
    with pytest.raises(FileUnreadable, match="No module named 'voice'"):
        author.file.look()
    (author.root / "tools.py").unlink()
    assert author.file.look() is None
    with pytest.raises(FileUnreadable):
        author.file.look()
    assert (author.file.look(), author.call()) == (None, "A")


@pytest.mark.spec("SBX-6")
def test_no_tool_may_write_the_source_and_a_module_where_one_may_waits(author: Author) -> None:
    source = author.root / "tools.py"
    assert author.keep.trusted.covering(str(source)) is not None
    watch(str(author.root))
    author.write("shout", end="!")
    assert author.look().taken == ("shout",)
    (author.root / "planted.py").write_text("")
    author.write("shout", end="?", more="import planted\n")
    (waiting,) = author.look().waiting
    assert (waiting.changes, waiting.objection) == ((), "planted.py lies where a tool may write")
    assert author.call() == "A!"
    author.file.take()
    assert author.call() == "A?"
    (author.root / "planted.py").write_text("changed = 1\n")
    assert author.look().waiting
    assert author.keep.trusted.covering(str(author.root / "planted.py")) is not None
