"""`write_file` and `edit_code`: a file is replaced whole, in one step, or stays as it was."""

import codecs
import errno
import os
import resource
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.places import NOBODY, as_nobody, folder, make, pair, refusal
from toolkeep.tools.write_file import edit_code, write_file

__all__ = ["folder"]


def nothing_is_left_in(folder: Path) -> bool:
    return not list(folder.glob(".toolkeep-*"))


# --- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "arguments", "after", "answer"),
    [
        (None, {"content": "a\nb\n"}, b"a\nb\n", "'f' was written: 4 bytes, 2 lines, a new file"),
        (None, {"content": ""}, b"", "'f' was written: 0 bytes, 0 lines, a new file"),
        (b"old", {"content": "é"}, "é".encode(), "'f' was written: 2 bytes, 1 line, replaced"),
        (b"a\r\n", {"content": "b\n"}, b"b\n", "'f' was written: 2 bytes, 1 line, replaced"),
        (b"\0\xff", {"content": "b"}, b"b", "'f' was written: 1 byte, 1 line, replaced"),
        (
            None,
            {"content": "a", "encoding": "utf-16"},
            codecs.BOM_UTF16_LE + b"a\0",
            "'f' was written: 4 bytes, 1 line, a new file",
        ),
        (None, {"content": "a", "mode": "append"}, b"a", "'f' was written: 1 byte, 1 line, a new file"),
        (b"", {"content": "a", "mode": "append"}, b"a", "'f' was written: 1 byte, 1 line, replaced"),
        (b"a\n", {"content": "b", "mode": "append"}, b"a\nb", "'f' was appended to: 1 byte, now 3"),
        (
            b"a",
            {"content": "b", "mode": "append"},
            b"ab",
            "'f' was appended to: 1 byte, now 2; its last line had no end, so the text continues it",
        ),
        (
            codecs.BOM_UTF16_BE + b"\0a",
            {"content": "b", "mode": "append", "encoding": "utf-16"},
            codecs.BOM_UTF16_BE + b"\0a\0b",
            "'f' was appended to: 2 bytes, now 6",
        ),
        (
            codecs.BOM_UTF32_LE + b"a\0\0\0",
            {"content": "b", "mode": "append", "encoding": "utf-32"},
            codecs.BOM_UTF32_LE + b"a\0\0\0b\0\0\0",
            "'f' was appended to: 4 bytes, now 12",
        ),
        (
            b"a\0",
            {"content": "b", "mode": "append", "encoding": "utf-16"},
            b"a\0b\0",
            "'f' was appended to: 2 bytes, now 4",
        ),
    ],
)
def test_writing(
    folder: Path, before: bytes | None, arguments: dict[str, Any], after: bytes, answer: str
) -> None:
    file = folder / "f"
    if before is not None:
        file.write_bytes(before)
    assert write_file(pair(file), **arguments) == answer
    assert file.read_bytes() == after
    assert nothing_is_left_in(folder)


@pytest.mark.parametrize(
    ("before", "arguments", "answer"),
    [
        (
            None,
            {"content": "aé", "encoding": "ascii"},
            "'f' was not written: \\xe9 at character 2 is not in ascii",
        ),
        (b"old", {"content": "\ud800"}, "'f' was not written: \\ud800 at character 1 is not in utf-8"),
        (
            "a".encode("utf-16"),
            {"content": "b", "mode": "append"},
            "'f' is utf-16; nothing was appended in utf-8",
        ),
        (
            b"old",
            {"content": "b", "mode": "append", "encoding": "utf-16"},
            "'f' is not utf-16, so nothing was appended",
        ),
    ],
)
def test_what_cannot_be_encoded_is_told_and_nothing_is_touched(
    folder: Path, before: bytes | None, arguments: dict[str, Any], answer: str
) -> None:
    file = folder / "new" / "f"
    if before is not None:
        file.parent.mkdir()
        file.write_bytes(before)
    assert refusal(lambda: write_file(pair(file), **arguments)) == answer
    assert (file.read_bytes() if file.exists() else None) == before
    assert file.parent.exists() == (before is not None)


def test_folders_are_made_unless_they_must_not_be(folder: Path) -> None:
    file = folder / "a" / "b" / "f"
    answer = "'f' was not written: its folder does not exist; create_directories makes it"
    assert refusal(lambda: write_file(pair(file), "x", create_directories=False)) == answer
    assert not (folder / "a").exists()
    write_file(pair(file), "x")
    assert file.read_text() == "x"


@pytest.mark.parametrize("create_directories", [True, False])
def test_below_a_file_there_is_no_place(folder: Path, create_directories: bool) -> None:
    (folder / "x").write_text("")
    answer = "'f' was not written: it is below something that is not a folder"
    assert (
        refusal(lambda: write_file(pair(folder / "x" / "f"), "", create_directories=create_directories))
        == answer
    )


@pytest.mark.parametrize(
    ("kind", "what"),
    [("folder", "a folder"), ("pipe", "a pipe"), ("link", "a symbolic link"), ("socket", "a socket")],
)
@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_only_files_are_written(folder: Path, kind: str, what: str, mode: str) -> None:
    make(kind, folder / "x")
    assert (
        refusal(lambda: write_file(pair(folder / "x"), "y", mode))
        == f"'x' was not written: it is {what}, not a file"
    )
    assert kind != "link" or (folder / "target").read_text() == "secret\n"


def test_a_dangling_link_is_no_way_to_make_a_file(folder: Path) -> None:
    (folder / "x").symlink_to("elsewhere")
    assert (
        refusal(lambda: write_file(pair(folder / "x"), "y"))
        == "'x' was not written: it is a symbolic link, not a file"
    )
    assert not (folder / "elsewhere").exists()


# --- what stays ----------------------------------------------------------------------------------


def edits(file: Path) -> str:
    return edit_code(pair(file), "old", "new")


def overwrites(file: Path) -> str:
    return write_file(pair(file), "new")


both = pytest.mark.parametrize("change", [edits, overwrites])


@both
@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755, 0o666, 0o4755, 0o2755, 0o1644])
def test_the_mode_stays_but_for_setuid_bits(folder: Path, change: Callable[[Path], str], mode: int) -> None:
    file = folder / "f"
    file.write_text("old")
    file.chmod(mode)
    change(file)
    assert file.stat().st_mode & 0o7777 == mode & 0o777


@both
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_owner_stays_or_nothing_is_written(folder: Path, change: Callable[[Path], str]) -> None:
    file = folder / "f"
    file.write_text("old")
    os.chown(file, NOBODY, NOBODY)
    change(file)
    assert (file.stat().st_uid, file.stat().st_gid) == (NOBODY, NOBODY)
    file.write_text("old")
    os.chown(file, 0, 0)
    file.chmod(0o666)
    with as_nobody(folder):
        said = refusal(lambda: change(file))
    assert said == "'f' belongs to another user, to which a new file cannot be given"
    assert file.read_text() == "old"
    assert nothing_is_left_in(folder)


@both
def test_an_access_list_stays(folder: Path, change: Callable[[Path], str]) -> None:
    """Without it, what the group sees would be what the list allows at most."""
    file = folder / "f"
    file.write_text("old")
    entries = [(1, 6, 2**32 - 1), (2, 6, NOBODY), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1), (32, 0, 2**32 - 1)]
    access_list = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", access_list)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("this file system has no access lists")
    change(file)
    assert os.getxattr(file, "system.posix_acl_access") == access_list


@both
def test_a_file_that_may_not_be_written_is_not_replaced_either(
    folder: Path, change: Callable[[Path], str]
) -> None:
    file = folder / "f"
    file.write_text("old")
    file.chmod(0o444)
    with as_nobody(folder, file):
        assert refusal(lambda: change(file)) == "'f' was not written: it may not be opened"
    assert file.read_text() == "old"


@both
def test_in_a_folder_that_may_not_be_written_nothing_is(folder: Path, change: Callable[[Path], str]) -> None:
    (folder / "closed").mkdir()
    file = folder / "closed" / "f"
    file.write_text("old")
    file.chmod(0o666)
    (folder / "closed").chmod(0o555)
    with as_nobody(folder):
        assert refusal(lambda: change(file)) == "'f' was not written: it may not be opened"
    assert file.read_text() == "old"


@both
def test_a_hard_link_keeps_what_it_was(folder: Path, change: Callable[[Path], str]) -> None:
    file = folder / "f"
    file.write_text("old")
    os.link(file, folder / "other")
    assert change(file).endswith("; another hard link of it keeps what it was")
    assert (file.read_text(), (folder / "other").read_text()) == ("new", "old")


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_where_there_is_no_room_the_file_stays_as_it_was(folder: Path, mode: str) -> None:
    file = folder / "f"
    file.write_text("old\n")
    with no_file_larger_than(50_000):
        said = refusal(lambda: write_file(pair(file), "x" * 60_000, mode))
    assert said == "'f' was not written: it cannot be written: it would be too large"
    assert file.read_text() == "old\n"
    assert nothing_is_left_in(folder)


def test_a_reader_sees_one_text_or_the_other(folder: Path) -> None:
    file = folder / "f"
    texts = {"a" * 300_000, "b" * 300_000}
    write_file(pair(file), "a" * 300_000)
    seen: set[str] = set()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.add(file.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(10):
            for text in texts:
                write_file(pair(file), text)
    finally:
        is_over.set()
        reader.join()
    assert seen <= texts


@both
@pytest.mark.parametrize("what", ["changed", "replaced", "removed", "same size and time"])
def test_a_file_that_somebody_changes_meanwhile_is_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], str], what: str
) -> None:
    file = folder / "f"
    file.write_text("old")
    sync = os.fsync

    def interrupt(descriptor: int) -> None:
        status = file.stat()
        if what == "changed":
            file.write_text("theirs")
        elif what == "same size and time":
            file.write_text("own")
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        elif what == "replaced":
            (folder / "theirs").write_text("old")
            (folder / "theirs").rename(file)
        else:
            file.unlink()
        sync(descriptor)

    monkeypatch.setattr("toolkeep.tools.write_file.os.fsync", interrupt)
    assert refusal(lambda: change(file)) == "'f' has changed; read it again"
    assert not file.exists() or file.read_text() != "new"
    assert nothing_is_left_in(folder)


# --- edits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "old", "new", "after", "answer"),
    [
        (b"a\nb\nc\n", "b", "B", b"a\nB\nc\n", "line 2 became line 2"),
        (b"a\nb\nc", "b\nc", "x\ny\nz", b"a\nx\ny\nz", "lines 2 to 3 became lines 2 to 4"),
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n", "line 2 lost this text"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n", "lines 1 to 2 became lines 1 to 3"),
        (b"a\r\nb\r\n", "a\r\nb", "x\ny", b"x\r\ny\r\n", "lines 1 to 2 became lines 1 to 2"),
        (b"a\r\nb\nc\n", "b", "x\ny", b"a\r\nx\ny\nc\n", "line 2 became lines 2 to 3"),
        (codecs.BOM_UTF8 + b"a\n", "a", "b", codecs.BOM_UTF8 + b"b\n", "line 1 became line 1"),
        ("日本\n".encode(), "本", "é", "日é\n".encode(), "line 1 became line 1"),
        (b"a", "a", "\\1 \\g<0>", b"\\1 \\g<0>", "line 1 became line 1"),
    ],
)
def test_editing(folder: Path, before: bytes, old: str, new: str, after: bytes, answer: str) -> None:
    (folder / "f").write_bytes(before)
    assert edit_code(pair(folder / "f"), old, new) == f"'f' was edited: {answer}"
    assert (folder / "f").read_bytes() == after


_TWICE = "old_content occurs 2 times in 'f', so nothing was changed:"
_AGAIN = "so nothing was changed; read the file again"


@pytest.mark.parametrize(
    ("before", "old", "new", "answer"),
    [
        (b"a", "b", "c", f"old_content is not in 'f', {_AGAIN}"),
        (b"", "b", "c", f"old_content is not in 'f', {_AGAIN}"),
        (b"a\n", "\n\n", "c", f"old_content is not in 'f', {_AGAIN}"),
        (b"a", "a", "a", "old_content and new_content are the same; nothing to do"),
        (
            b"x\n\tif  a:\n\t\tb\n",
            "if a:\n    b\n",
            "c",
            "old_content is not in 'f'; lines 2 to 3 differ from it only in white space: read it again",
        ),
        (
            b"\tif a:\n",
            "   if a:",
            "c",
            "old_content is not in 'f'; line 1 differs from it only in white space: read it again",
        ),
        (b"if a: b", "if  a:", "c", f"old_content is not in 'f', {_AGAIN}"),
        (
            b"a\n  b = 1\nc\nb = 2\n",
            "b = ",
            "x",
            f"{_TWICE}\n  2: b = 1\n  4: b = 2\nAdd lines around the one that is meant",
        ),
        (
            b"aaa",
            "aa",
            "b",
            f"{_TWICE}\n  1: aaa\n  1: aaa\nAdd lines around the one that is meant",
        ),
        (
            b"a\n" * 100_000,
            "a",
            "b",
            "old_content occurs more than 10 times in 'f', so nothing was changed:\n"
            + "".join(f"  {n}: a\n" for n in range(1, 11))
            + "  and more\nAdd lines around the one that is meant",
        ),
        (b"a\0", "a", "b", "'f' is binary, or not utf-8; only utf-8 text is edited"),
        (b"a\xff", "a", "b", "'f' is not utf-8 at byte 1; only utf-8 text is edited"),
        (b"a", "a", "b\udc80", "'f' was not written: \\udc80 at character 2 is not in utf-8"),
        (b"a", "\udc80", "b", f"old_content is not in 'f', {_AGAIN}"),
    ],
)  # fmt: skip
def test_an_edit_that_cannot_be_made_is_told(
    folder: Path, before: bytes, old: str, new: str, answer: str
) -> None:
    (folder / "f").write_bytes(before)
    assert refusal(lambda: edit_code(pair(folder / "f"), old, new)) == answer
    assert (folder / "f").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("nothing", "'x' does not exist"),
        ("folder", "'x' is a folder, not a file; use list_directory"),
        ("pipe", "'x' is a pipe, not a file"),
        ("link", "'x' is a symbolic link"),
    ],
)
def test_only_files_are_edited(folder: Path, kind: str, answer: str) -> None:
    make(kind, folder / "x")
    assert refusal(lambda: edit_code(pair(folder / "x"), "secret", "y")) == answer


def test_a_file_that_is_too_large_is_not_edited(folder: Path) -> None:
    (folder / "f").write_bytes(b"a")
    os.truncate(folder / "f", (32 << 20) + 1)
    said = "'f' is larger than 32 MB; edit it by a program"
    assert refusal(lambda: edit_code(pair(folder / "f"), "a", "b")) == said


def test_a_hint_on_white_space_is_found_in_a_large_file_for_a_large_text(folder: Path) -> None:
    """Line by line, for each line, this would take hours."""
    (folder / "f").write_text("a\n" * 300_000 + " b\n")
    said = refusal(lambda: edit_code(pair(folder / "f"), "a\n" * 150_000 + "b\n", "c"))
    assert said == (
        "old_content is not in 'f'; lines 150,001 to 300,001 differ from it only in white space: read it again"
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text("ab\n", max_size=12), st.text("ab\n", min_size=1, max_size=4), st.text("ab\n", max_size=4))
def test_an_edit_is_made_where_there_is_one_place_for_it(
    tmp_path: Path, text: str, old: str, new: str
) -> None:
    file = tmp_path / "f"
    file.write_text(text)
    places = [n for n in range(len(text)) if text.startswith(old, n)]
    if len(places) == 1 and old != new:
        edit_code(pair(file), old, new)
        assert file.read_text() == text.replace(old, new)
    else:
        refusal(lambda: edit_code(pair(file), old, new))
        assert file.read_text() == text
