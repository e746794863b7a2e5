"""What a person is shown of a write: how the file would change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolkeep import open_keep
from toolkeep.approval.file_diff import difference
from toolkeep.approval.question import Question
from toolkeep.calls import PermittedCall
from toolkeep.limits import DIFFERENCE_BYTES, DIFFERENCE_LINES
from toolkeep.policy.resolved_path import resolve
from toolkeep.policy.touched_resources import Touched

pytestmark = pytest.mark.spec("POL-4")

NOTHING: Any = None


@pytest.fixture
def held() -> Iterator[list[Touched]]:
    held: list[Touched] = []
    yield held
    for one in held:
        one.close()


NO_END = "\\ No newline at end of file"


def told(held: list[Touched], path: Path, shown: dict[str, Any], *others: tuple[str, Path]) -> str:
    """The difference for a call that writes a path, and touches others."""
    for kind, place in [("fs.write", path), *others]:
        held.append(Touched(kind, "/path", resolve(str(place), "/", may_be_missing=True)))
    call = PermittedCall(
        request=NOTHING, checked=NOTHING, tool=NOTHING, decision=NOTHING, touched=tuple(held)
    )
    return difference(call, shown)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_changed_line_is_shown_beside_the_old_one(held: list[Touched], tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "one\ntwo\nthree\n")
    assert told(held, path, {"content": "one\n2\nthree\n"}).split("\n") == [
        f"--- {path} (now)",
        f"+++ {path} (after)",
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+2",
        " three",
    ]


def test_a_file_that_does_not_exist_yet_is_all_new(held: list[Touched], tmp_path: Path) -> None:
    lines = told(held, tmp_path / "new" / "a.txt", {"content": "one\ntwo\n"}).split("\n")
    assert lines[2:] == ["@@ -0,0 +1,2 @@", "+one", "+two"]


def test_a_final_newline_that_goes_missing_is_seen(held: list[Touched], tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "one\n")
    assert told(held, path, {"content": "one"}).split("\n")[3:] == ["-one", "+one", NO_END]


def test_the_same_content_is_no_difference(held: list[Touched], tmp_path: Path) -> None:
    assert told(held, written(tmp_path / "a.txt", "one\n"), {"content": "one\n"}) == ""


@pytest.mark.parametrize("name", ["content", "contents", "text", "data", "body"])
def test_the_content_may_have_any_of_its_usual_names(name: str, held: list[Touched], tmp_path: Path) -> None:
    assert told(held, tmp_path / "a.txt", {name: "new", "encoding": "utf-8"}).endswith(f"+new\n{NO_END}")


def test_what_is_added_at_the_end_stands_below_what_is_there(held: list[Touched], tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "one\n")
    assert told(held, path, {"content": "two", "mode": "append"}).split("\n")[3:] == [" one", "+two", NO_END]


def test_the_built_in_write_file_is_shown_with_its_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.txt", "one\n")
    asked: list[Question] = []
    monkeypatch.chdir(tmp_path)
    with open_keep(approver=asked.append) as keep:
        keep.declare_agent("writer", capabilities=["fs.write:."], permissions=["tool.filesystem.write"])
        keep.call_sync("write_file", {"path": "a.txt", "content": "two\n"}, agent="writer")
    assert asked[0].difference.split("\n")[:2] == [f"--- {path} (now)", f"+++ {path} (after)"]
    assert asked[0].difference.split("\n")[3:5] == ["-one", "+two"]


@pytest.mark.parametrize("more", [{"mode": "prepend"}, {"mode": ["append"]}, {"line": 3}, {"old": "x"}])
def test_nothing_is_told_where_another_argument_may_change_what_is_written(
    more: dict[str, Any], held: list[Touched], tmp_path: Path
) -> None:
    assert told(held, tmp_path / "a.txt", {"content": "new", **more}) == ""


def test_hidden_characters_are_visible(held: list[Touched], tmp_path: Path) -> None:
    path = written(tmp_path / "a\u202e.txt", "old\x1b[2J\n")
    shown = told(held, path, {"content": "safe\u202eevil\r\nzero\u200bwidth\n"})
    assert shown.split("\n")[0].endswith("/a\\u202e.txt (now)")
    assert "-old\\u001b[2J" in shown
    assert "+safe\\u202eevil\\r" in shown
    assert "+zero\\u200bwidth" in shown
    assert not {"\x1b", "\u202e", "\u200b", "\r"} & set(shown)


def test_other_line_breaks_start_no_line_of_their_own(held: list[Touched], tmp_path: Path) -> None:
    """U+2028 and a form feed would forge lines of the difference."""
    shown = told(held, tmp_path / "a.txt", {"content": "a\u2028-b\x0c+c\n"})
    assert shown.split("\n")[3:] == ["+a\\u2028-b\\f+c"]


@pytest.mark.parametrize(("mode", "became"), [("overwrite", "replaced"), ("append", "followed")])
def test_bytes_that_are_no_text_are_counted(
    mode: str, became: str, held: list[Touched], tmp_path: Path
) -> None:
    path = written(tmp_path / "a.bin", b"\xff\x00\xff")
    said = f"3 bytes that are not text would be {became} by 1 characters"
    assert told(held, path, {"content": "é", "mode": mode}) == said


def test_a_long_difference_is_cut_and_says_so(held: list[Touched], tmp_path: Path) -> None:
    new = "".join(f"line {number}\n" for number in range(1000))
    lines = told(held, tmp_path / "a.txt", {"content": new}).split("\n")
    assert len(lines) == DIFFERENCE_LINES + 1
    assert lines[-1] == "… and 603 lines more"


def test_what_is_too_long_is_not_compared(held: list[Touched], tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "x" * (DIFFERENCE_BYTES + 1))
    assert told(held, path, {"content": "y"}) == ""


def test_a_file_of_exactly_the_limit_is_compared(held: list[Touched], tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "x" * DIFFERENCE_BYTES)
    assert told(held, path, {"content": "y\n"}).endswith("+y")


def test_new_content_that_is_too_long_is_not_compared(held: list[Touched], tmp_path: Path) -> None:
    assert told(held, tmp_path / "a.txt", {"content": "x" * (DIFFERENCE_BYTES + 1)}) == ""


UNCLEAR: dict[str, dict[str, Any]] = {
    "no content": {"path": "a.txt"},
    "content that is no text": {"content": ["a"]},
    "two contents": {"content": "a", "text": "b"},
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_nothing_is_told_where_the_new_content_is_not_plain(
    case: str, held: list[Touched], tmp_path: Path
) -> None:
    assert told(held, written(tmp_path / "a.txt", "old"), UNCLEAR[case]) == ""


def test_nothing_is_told_of_a_call_that_writes_two_files(held: list[Touched], tmp_path: Path) -> None:
    assert told(held, tmp_path / "a.txt", {"content": "a"}, ("fs.write", tmp_path / "b.txt")) == ""


def test_what_is_only_read_does_not_matter(held: list[Touched], tmp_path: Path) -> None:
    assert told(held, tmp_path / "a.txt", {"content": "a\n"}, ("fs.read", tmp_path)).endswith("+a")


def test_nothing_is_told_of_a_folder(held: list[Touched], tmp_path: Path) -> None:
    assert told(held, tmp_path, {"content": "a"}) == ""


def test_nothing_is_told_of_a_call_that_writes_nothing() -> None:
    call = PermittedCall(request=NOTHING, checked=NOTHING, tool=NOTHING, decision=NOTHING)
    assert difference(call, {"content": "a"}) == ""


def test_the_file_that_was_checked_is_read_whatever_lies_there_now(
    held: list[Touched], tmp_path: Path
) -> None:
    path = written(tmp_path / "a.txt", "checked\n")
    held.append(Touched("fs.write", "/path", resolve(str(path), "/", may_be_missing=True)))
    path.rename(tmp_path / "moved.txt")
    written(path, "swapped")
    call = PermittedCall(
        request=NOTHING, checked=NOTHING, tool=NOTHING, decision=NOTHING, touched=tuple(held)
    )
    assert difference(call, {"content": "new\n"}).split("\n")[3:] == ["-checked", "+new"]
