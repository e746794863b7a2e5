"""`list_directory`: what a model reads of any folder, and of what is none."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import as_nobody, folder, make, pair, refusal
from toolkeep.tools.list_directory import list_directory, size_in_words

__all__ = ["folder"]


@pytest.fixture
def tree(folder: Path) -> Path:
    """A folder with a little of everything."""
    root = folder / "tree"
    (root / "src" / "deep" / "deeper").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "a.py").write_text("x" * 12)
    (root / "src" / "b.py").write_text("x" * 4200)
    (root / "src" / "deep" / "deeper" / "c.txt").write_text("")
    (root / "loop").symlink_to(".")
    os.mkfifo(root / "pipe")
    return root


HIDDEN = "[1 hidden entry left out; include_hidden shows them]"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({}, ["a.py  12 bytes", "loop -> .", "pipe  (a pipe)", "src/", HIDDEN]),
        ({"include_hidden": True}, [".git/", "a.py  12 bytes", "loop -> .", "pipe  (a pipe)", "src/"]),
        (
            {"recursive": True, "max_depth": 2},
            [
                "a.py  12 bytes",
                "loop -> .",
                "pipe  (a pipe)",
                "src/",
                "src/b.py  4.2 KB",
                "src/deep/",
                HIDDEN,
            ],
        ),
        ({"recursive": True, "pattern": "*.py"}, ["a.py  12 bytes", "src/b.py  4.2 KB", HIDDEN]),
        ({"recursive": True, "pattern": "src/**/*.txt"}, ["src/deep/deeper/c.txt  0 bytes", HIDDEN]),
        ({"recursive": True, "pattern": "./*.py"}, ["a.py  12 bytes", HIDDEN]),
        ({"pattern": "src/"}, ["src/", HIDDEN]),
        ({"pattern": "*.md"}, ["[no entry fits the pattern]", HIDDEN]),
    ],
)
def test_entries(tree: Path, arguments: dict[str, Any], lines: list[str]) -> None:
    assert list_directory(pair(tree), **arguments).split("\n") == lines


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("nothing", "'x' does not exist"),
        ("pipe", "'x' is a pipe, not a folder"),
        ("socket", "'x' is a socket, not a folder"),
        ("link", "'x' is a symbolic link, not a folder"),
    ],
)
def test_what_is_no_folder_is_told(folder: Path, kind: str, answer: str) -> None:
    make(kind, folder / "x")
    assert refusal(lambda: list_directory(pair(folder / "x"))) == answer


def test_a_file_is_read_by_another_tool(folder: Path) -> None:
    (folder / "x").write_text("")
    assert refusal(lambda: list_directory(pair(folder / "x"))) == "'x' is a file, not a folder; use read_file"
    said = "'x/y' is below something that is not a folder"
    assert refusal(lambda: list_directory(("x/y", f"{folder}/x/y"))) == said


def test_empty_folders_and_those_with_hidden_entries_alone(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "hidden").mkdir()
    (folder / "hidden" / ".a").touch()
    (folder / "hidden" / ".b").touch()
    assert list_directory(pair(folder / "empty")) == "[the folder is empty]"
    assert list_directory(pair(folder / "hidden")) == "[2 hidden entries left out; include_hidden shows them]"


def test_folders_that_may_not_be_read_are_named(folder: Path) -> None:
    root = folder / "tree"
    for name in "abcdefg":
        (root / name).mkdir(parents=True)
        (root / name).chmod(0)
    with as_nobody():
        lines = list_directory(pair(root, "."), recursive=True).split("\n")
        assert refusal(lambda: list_directory(pair(root / "a"))) == "'a' may not be opened"
    assert lines[:7] == [f"{name}/" for name in "abcdefg"]
    assert lines[7:] == [*(f"[{name}/ may not be read]" for name in "abcde"), "[nor may 2 more folders]"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\nb", "a\\nb"),
        (b"\x1b[31mred", "\\u001b[31mred"),
        ("\u202egpj.exe".encode(), "\\u202egpj.exe"),
        (b"caf\xe9", "caf\\xe9"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
        ("日本 é".encode(), "日本 é"),
    ],
)
@pytest.mark.parametrize("pattern", ["*", "[!x]*"])
def test_any_name_is_one_line_that_json_can_hold(folder: Path, name: bytes, shown: str, pattern: str) -> None:
    root = folder / "tree"
    root.mkdir()
    Path(os.fsdecode(os.fsencode(root) + b"/" + name)).touch()
    (root / "link").symlink_to(os.fsdecode(name))
    said = list_directory(pair(root), pattern)
    assert sorted(said.split("\n")) == sorted([f"link -> {shown}", f"{shown}  0 bytes"])
    assert json.loads(json.dumps(said).encode()) == said


def test_after_a_thousand_entries_it_stops(folder: Path) -> None:
    for number in range(1001):
        (folder / f"{number:04}").touch()
    lines = list_directory(pair(folder)).split("\n")
    assert lines[:1] + lines[999:] == [
        "0000  0 bytes",
        "0999  0 bytes",
        "[the first 1,000 entries; list a folder inside, or use pattern]",
    ]
    assert list_directory(pair(folder), "1000") == "1000  0 bytes"


def test_long_names_are_fewer(folder: Path) -> None:
    for number in range(300):
        (folder / f"{number:03}{'x' * 240}").touch()
    said = list_directory(pair(folder))
    assert len(said) < 50_100
    assert said.endswith("[the first 197 entries; list a folder inside, or use pattern]")


def test_a_hundred_thousand_entries_are_looked_at_and_more_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.tools.list_directory._LOOKED_AT", 50)
    for number in range(51):
        (folder / f"{number}").touch()
    said = list_directory(pair(folder), "x")
    assert said.startswith("[the first 0 entries;")


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 KB"), (4_200_000, "4.2 MB"), (10**18, "1000000.0 TB")]
)  # fmt: skip
def test_sizes(size: int, words: str) -> None:
    assert size_in_words(size) == words
