"""`grep_search`: what a model reads of what is found, and of what is not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import as_nobody, folder, make, pair, refusal
from toolkeep.tools.grep import LINES, grep_search

__all__ = ["folder"]

NOTHING = "[no line in 1 file fits; each is searched by itself, without its end]"


@pytest.mark.parametrize(
    ("pattern", "data", "lines"),
    [
        ("b", b"a\nb\ncb\n", ["  2: b", "  3: cb"]),
        ("b", b"a\nb", ["  2: b"]),
        ("^b", b"ab\nb\n", ["  2: b"]),
        ("a$", b"ab\na\r\nba", ["  2: a", "  3: ba"]),
        ("^$", b"a\n\nb\n\n", ["  2: ", "  4: "]),
        ("$", b"a\nb\n", ["  1: a", "  2: b"]),
        ("x*", b"a\nb", ["  1: a", "  2: b"]),
        ("a|c", b"a a\nb\nc\n", ["  1: a a", "  3: c"]),
        ("a[^x]b", b"a\nb\n", []),
        ("a\\nb", b"a\nb\n", []),
        ("a\\s+b", b"a\nb\na  b\n", ["  3: a  b"]),
        ("\\Aa", b"a\na\n", ["  1: a"]),
        ("é.", "éa\n".encode(), ["  1: éa"]),
        ("a", b"\xffa\xfe\n", ["  1: \ufffda\ufffd"]),
        ("a", b"x" * 8192 + b"\n\0a\n", ["  2: \0a"]),
        ("", b"", []),
    ],
)
def test_lines(folder: Path, pattern: str, data: bytes, lines: list[str]) -> None:
    (folder / "f").write_bytes(data)
    assert grep_search(pattern, pair(folder / "f")).split("\n") == (["f", *lines] if lines else [NOTHING])


@pytest.mark.parametrize(
    ("pattern", "text"), [("STRASSE", "strasse"), ("É", "é"), ("σ", "Σς"), ("k", "\u212a")]
)
def test_case_does_not_matter_in_any_script(folder: Path, pattern: str, text: str) -> None:
    (folder / "f").write_text(text)
    assert grep_search(pattern, pair(folder / "f"), case_insensitive=True) == f"f\n  1: {text}"
    assert grep_search(pattern, pair(folder / "f")) == NOTHING


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(a", "missing ): (a"),
        ("a)(", "unexpected ): a)("),
        ("(?=a)", "invalid perl operator: (?="),
        ("(a)\\1", "invalid escape sequence: \\1"),
        ("((a{100}){100}){100}", "invalid repetition size: {100}"),
        ("(?:\\pL{0,200}x){3}", "pattern too large - compile failed"),
    ],
)
def test_an_expression_that_cannot_be_used_is_told(folder: Path, pattern: str, said: str) -> None:
    hint = "look-around and back-references are not there; search for literal text with \\Q...\\E"
    answer = f"'{pattern}' is not a valid regular expression ({said}); {hint}"
    assert refusal(lambda: grep_search(pattern, pair(folder))) == answer


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("nothing", "'x' does not exist"),
        ("pipe", "'x' is a pipe, not a file"),
        ("link", "'x' is a symbolic link"),
    ],
)
def test_what_cannot_be_searched_is_told(folder: Path, kind: str, answer: str) -> None:
    make(kind, folder / "x")
    assert refusal(lambda: grep_search("a", pair(folder / "x"))) == answer


# --- which files ---------------------------------------------------------------------------------


@pytest.fixture
def tree(folder: Path) -> Path:
    """Files that all hold the same word."""
    root = folder / "tree"
    for name in (
        "b.py",
        "a/b.py",
        "a/c.txt",
        "a.txt",
        ".hidden/x",
        ".env",
        "out/x.py",
        "a/kept.log",
        "z.log",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("word\n")
    (root / ".gitignore").write_text("out/\n*.log\n!kept.log\n")
    (root / "link.py").symlink_to("b.py")
    (root / "loop").symlink_to(".")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ({}, ["a.txt", "b.py", "a/b.py", "a/c.txt", "a/kept.log"]),
        ({"file_pattern": "*.py"}, ["b.py", "a/b.py"]),
        ({"file_pattern": "a/*.{py,txt}"}, ["a/b.py", "a/c.txt"]),
    ],
)
def test_ignored_and_hidden_files_and_links_are_left_out(
    tree: Path, arguments: dict[str, Any], files: list[str]
) -> None:
    said = grep_search("word", pair(tree, "."), **arguments)
    assert said == "\n\n".join(f"{file}\n  1: word" for file in files)


def test_a_file_that_is_named_is_searched_though_it_is_ignored(tree: Path) -> None:
    assert grep_search("word", pair(tree / "z.log")) == "z.log\n  1: word"
    assert grep_search("word", pair(tree / "out")) == "out/x.py\n  1: word"


def test_names_can_be_used_in_the_next_call(tree: Path) -> None:
    assert grep_search("word", pair(tree / "a", "deep/a/"), file_pattern="b.py") == "deep/a/b.py\n  1: word"


def test_what_is_left_out_for_what_it_is_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.tools.grep._FILE_BYTES", 1 << 20)
    (folder / "binary").write_bytes(b"word\0")
    (folder / "large").write_bytes(b"word" * (1 << 18) + b"!")
    (folder / "closed").write_text("word")
    (folder / "closed").chmod(0)
    (folder / "folder").mkdir(mode=0)
    with as_nobody():
        said = grep_search("word", pair(folder))
    assert said.split("\n") == [
        "[no line in 2 files fits; each is searched by itself, without its end]",
        "[files left out: 1 binary, 1 not readable, 1 larger than 1 MB]",
        "[1 folder may not be read]",
    ]


def test_an_odd_name_is_one_line_that_json_can_hold(folder: Path) -> None:
    (folder / os.fsdecode(b"a\n\xff")).write_text("word")
    said = grep_search("word", pair(folder, "."))
    assert said == "a\\n\\xff\n  1: word"
    assert json.dumps(said).encode()


# --- more than fits ------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [1, 2])
def test_after_so_many_lines_it_stops(folder: Path, files: int) -> None:
    for number in range(files):
        (folder / f"{number}").write_text("word\n" * LINES * 2)
    said = grep_search("word", pair(folder, "."))
    assert said.count(": word") == LINES
    note = "[the first 200 lines; there may be more: narrow path, pattern or file_pattern]"
    assert said.endswith(f"  200: word\n\n{note}")


def test_of_a_giant_line_what_is_around_the_word_is_shown(folder: Path) -> None:
    (folder / "f").write_bytes(b"x" * 3_000_000 + b"word" + b"y" * 3_000_000 + b"\nword\n")
    name, first, second = grep_search("word", pair(folder / "f")).split("\n")
    assert (name, second) == ("f", "  2: word")
    assert first == f"  1: …{'x' * 83}word{'y' * 163}…"


def test_lines_far_apart_keep_their_numbers(folder: Path) -> None:
    (folder / "f").write_text("".join("word\n" if n % 50_000 == 0 else "other\n" for n in range(1, 200_001)))
    found = [f"  {n}: word" for n in (50_000, 100_000, 150_000, 200_000)]
    assert grep_search("^word$", pair(folder / "f")).split("\n") == ["f", *found]


def test_when_its_time_is_up_it_gives_what_it_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (folder / f"{number}").write_text("word\n")
    ticks = iter(range(1000))
    monkeypatch.setattr("toolkeep.tools.grep.time.monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr("toolkeep.tools.grep._SECONDS", 5.0)
    said = grep_search("word", pair(folder, "."))
    assert said.startswith("0\n  1: word\n")
    assert said.endswith("files: narrow path or file_pattern]")
    assert "2\n  1: word" not in said


def test_time_is_also_looked_at_where_no_file_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (folder / f"{number}").mkdir()
    ticks = iter(range(1000))
    monkeypatch.setattr("toolkeep.tools.grep.time.monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr("toolkeep.tools.grep._SECONDS", 3.0)
    assert grep_search("word", pair(folder)).endswith("[stopped after 0 files: narrow path or file_pattern]")
