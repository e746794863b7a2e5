"""`read_file`: what a model reads of any file, and of what is none."""

import codecs
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tools.places import as_nobody, folder, make, pair, refusal
from toolkeep.tools.read_file import TEXT_CHARS, read_file

__all__ = ["folder"]


def read(data: bytes, folder: Path, **arguments: Any) -> str:
    (folder / "f").write_bytes(data)
    return read_file(pair(folder / "f"), **arguments)


@pytest.mark.parametrize(
    ("data", "arguments", "answer"),
    [
        (b"", {}, "[the file is empty]"),
        (b"a\nb\n", {}, "a\nb\n"),
        (b"a\nb", {}, "a\nb"),
        (b"a\r\nb\r\n", {}, "a\r\nb\r\n"),
        (b"a\rb", {}, "a\rb"),
        (codecs.BOM_UTF8 + b"a\n", {}, "a\n"),
        ("\u2028a\x85b\n".encode(), {"max_lines": 1}, "\u2028a\x85b\n"),
        (b"a\nb\nc\n", {"start_line": 2}, "b\nc\n"),
        (b"a\nb\nc\n", {"start_line": 2, "max_lines": 1}, "b\n[lines 2 to 2 of 3; more with start_line=3]"),
        (b"a\nb\nc", {"end_line": 2}, "a\nb\n[lines 1 to 2 of 3; more with start_line=3]"),
        (b"a\nb\nc", {"start_line": 3, "end_line": 10**30}, "c"),
        (b"a\n\n\n", {"start_line": 3}, "\n"),
        ("é\n".encode("utf-16"), {"encoding": "utf-16"}, "é\n"),
        (codecs.BOM_UTF16_BE + "é\n".encode("utf-16-be"), {"encoding": "utf-16"}, "é\n"),
        ("é\n".encode("utf-16-le"), {"encoding": "utf-16"}, "é\n"),
        ("é\n".encode("utf-32"), {"encoding": "utf-32"}, "é\n"),
        ("é\n".encode("utf-32-le"), {"encoding": "utf-32"}, "é\n"),
        (b"caf\xe9 and\xff", {}, "caf\ufffd and\ufffd\n[2 places are not utf-8 and shown as \ufffd]"),
        ("café".encode(), {"encoding": "ascii"}, None),
        (b"plain caf\xe9\n", {"encoding": "ascii"}, "plain caf\ufffd\n[1 place is not ascii and shown as \ufffd]"),
        (b"good\n" * 9 + b"\xff\n", {"max_lines": 1}, "good\n[lines 1 to 1 of 10; more with start_line=2]"),
        ("\ufffd is itself\n".encode(), {}, "\ufffd is itself\n"),
        (b"a" * 8192 + b"\0\n", {}, "a" * 8192 + "\0\n"),
    ],
)  # fmt: skip
def test_a_text_is_read_by_its_encoding_and_its_lines(
    folder: Path, data: bytes, arguments: dict[str, Any], answer: str | None
) -> None:
    if answer is None:
        assert refusal(lambda: read(data, folder, **arguments)) == (
            "'f' is not ascii; it may be in another encoding, or no text"
        )
    else:
        assert read(data, folder, **arguments) == answer


@pytest.mark.parametrize(
    ("data", "arguments", "answer"),
    [
        (b"a\nb", {"start_line": 3}, "'f' has 2 lines; there is no line 3"),
        (b"a\n", {"start_line": 2000}, "'f' has 1 line; there is no line 2,000"),
        (b"", {"start_line": 2}, "'f' has 0 lines; there is no line 2"),
        (b"a", {"end_line": 1, "max_lines": 1}, "end_line and max_lines say the same in two ways; give one of them"),
        (b"a", {"start_line": 3, "end_line": 2}, "end_line 2 comes before start_line 3"),
        (b"\0" * 10, {}, "'f' is binary, 10 bytes, not text"),
        ("a".encode("utf-16"), {}, "'f' is binary, 4 bytes, not text; it may be utf-16"),
        ("a".encode("utf-32"), {}, "'f' is binary, 8 bytes, not text; it may be utf-32"),
        (b"plain text!!", {"encoding": "utf-32"}, "'f' is not utf-32; it may be in another encoding, or no text"),
        (bytes(range(128, 256)), {}, "'f' is not utf-8; it may be in another encoding, or no text"),
        (b"\x89PNG\r\n", {}, "'f' is a PNG image of 6 bytes, not text"),
        (b"PK\x03\x04" + b"x" * 1996, {}, "'f' is a ZIP archive of 2,000 bytes, not text"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told(
    folder: Path, data: bytes, arguments: dict[str, Any], answer: str
) -> None:
    assert refusal(lambda: read(data, folder, **arguments)) == answer


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("nothing", "'x' does not exist"),
        ("folder", "'x' is a folder, not a file; use list_directory"),
        ("pipe", "'x' is a pipe, not a file"),
        ("socket", "'x' is a socket or a device, not a file"),
        ("link", "'x' is a symbolic link"),
    ],
)
def test_what_is_no_file_is_told(folder: Path, kind: str, answer: str) -> None:
    make(kind, folder / "x")
    assert refusal(lambda: read_file(pair(folder / "x"))) == answer


def test_other_places_that_hold_no_file(folder: Path) -> None:
    (folder / "f").write_text("")
    assert refusal(lambda: read_file(("null", "/dev/null"))) == "'null' is a device, not a file"
    assert (
        refusal(lambda: read_file(("f/x", f"{folder}/f/x")))
        == "'f/x' is below something that is not a folder"
    )
    assert refusal(lambda: read_file(("long", f"{folder}/{'x' * 300}"))) == "'long' has too long a name"
    assert refusal(lambda: read_file(("mem", "/proc/self/mem"))) == "'mem' cannot be used: Input/output error"


def test_a_file_that_may_not_be_read_is_told(folder: Path) -> None:
    (folder / "f").write_text("secret")
    (folder / "f").chmod(0)
    with as_nobody():
        assert refusal(lambda: read_file(pair(folder / "f"))) == "'f' may not be opened"


# --- more than fits ------------------------------------------------------------------------------


def test_a_long_file_comes_in_whole_lines_from_part_to_part(folder: Path) -> None:
    lines = [f"line {n}\n" for n in range(1, 12_001)]
    answer = read("".join(lines).encode(), folder)
    text, _, note = answer.rpartition("[")
    last = text.count("\n")
    assert text == "".join(lines[:last])
    assert TEXT_CHARS - 20 < len(text) <= TEXT_CHARS
    assert note == f"lines 1 to {last:,} of 12,000; more with start_line={last + 1}]"
    assert read("".join(lines).encode(), folder, start_line=last + 1).startswith(lines[last])


def test_of_a_giant_line_the_beginning_is_read_and_what_is_behind_it(folder: Path) -> None:
    data = b"first\n" + b"x" * 200_000 + b"\nlast\n"
    assert read(data, folder) == "first\n[lines 1 to 1 of 3; more with start_line=2]"
    begun = "only the beginning of line 2, which is longer than one answer; more with start_line=3"
    assert read(data, folder, start_line=2) == f"{'x' * TEXT_CHARS}\n[{begun}]"
    assert read(data, folder, start_line=3) == "last\n"


@pytest.mark.parametrize("after", [b"", b"\n"])
def test_what_just_fits_is_whole(folder: Path, after: bytes) -> None:
    data = b"x" * (TEXT_CHARS - len(after)) + after
    assert read(data, folder) == data.decode()


def test_bad_bytes_behind_what_is_read_do_not_matter(folder: Path) -> None:
    data = b"good\n" * 100_000 + b"\xff" * 1000
    assert read(data, folder, max_lines=1).startswith("good\n[lines 1 to 1 of 100,001")


def test_lines_of_a_huge_file_are_not_counted(folder: Path) -> None:
    (folder / "f").write_bytes(b"a\nb\n" + b"c" * 8192)
    os.truncate(folder / "f", 1 << 40)
    assert read_file(pair(folder / "f"), max_lines=1) == "a\n[lines 1 to 1; more with start_line=2]"


def test_a_line_behind_a_hole_of_a_terabyte_is_not_looked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.tools.read_file._PASSED_CHARS", 8 << 20)
    (folder / "f").write_bytes(b"c" * 8192)
    os.truncate(folder / "f", 1 << 40)
    said = "line 5 is more than 8 million characters into 'f', too far to be read"
    assert refusal(lambda: read_file(pair(folder / "f"), start_line=5)) == said
