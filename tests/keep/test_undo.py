"""Writes of built-in tools are taken back, by calls that are guarded like any other."""

import asyncio
import errno
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.config.projects import accept
from toolkeep import Answer, Code, Keep, Question, open_keep
from toolkeep.errors import NotRecorded
from toolkeep.keep.undo import UndoStep, obstacle, plan_undo
from toolkeep.limits import UNDO_FILE_BYTES
from toolkeep.stores.replaced_files import Replaced

pytestmark = pytest.mark.spec("TLS-4")

HOLDS = ["tool.filesystem.read", "tool.filesystem.write"]
Body = Callable[[Keep], Awaitable[None]]


async def agree(question: Question) -> Answer:
    return Answer(verdict="approve", approver="test:ada", way="program")


@pytest.fixture(autouse=True)
def _in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def in_keep(folder: Path, body: Body) -> None:
    """Do this with a keep whose agents `writer` and `reader` are declared."""

    async def main() -> None:
        async with open_keep(project=folder, approver=agree) as keep:
            reads, writes = f"fs.read:{folder}", f"fs.write:{folder}"
            keep.declare_agent("writer", capabilities=[reads, writes], permissions=HOLDS)
            keep.declare_agent("reader", capabilities=[reads], permissions=HOLDS)
            await body(keep)

    asyncio.run(main())


async def write(keep: Keep, path: str, content: str, session: str = "s", **more: Any) -> str:
    """The id of a call that wrote."""
    arguments = {"path": path, "content": content, **more}
    result = await keep.call("write_file", arguments, agent="writer", session=session)
    assert result.ok, result.text
    return result.call_id


def planned(keep: Keep, call: str) -> UndoStep:
    """What taking back a call would do."""
    (step,) = plan_undo(keep.replaced(call=call))
    return step


def test_a_write_is_taken_back_and_so_is_taking_it_back(tmp_path: Path) -> None:
    file, made = tmp_path / "a.txt", tmp_path / "new" / "b.txt"
    file.write_text("one\ntwo\n")
    file.chmod(0o640)

    async def body(keep: Keep) -> None:
        call = await write(keep, "a.txt", "three\n")
        assert planned(keep, call).difference.split("\n")[3:] == ["-three", "+one", "+two"]
        undone = await keep.undo(call, agent="writer")
        assert (undone.ok, undone.tool) == (True, "restore_file")
        assert (file.read_text(), file.stat().st_mode & 0o777) == ("one\ntwo\n", 0o640)
        with pytest.raises(NotRecorded, match="taken back by call"):
            await keep.undo(call, agent="writer")
        assert (await keep.undo(undone.call_id, agent="writer")).ok
        assert file.read_text() == "three\n"
        # A file that the call made is removed; the folder stays.
        call = await write(keep, "new/b.txt", "hello")
        assert "would be removed" in planned(keep, call).difference
        undone = await keep.undo(call, agent="writer")
        assert "was removed" in str(undone.value)
        assert not made.exists()
        # Every one of them is in the log, as a call of its own.
        records = keep.record.records_of(undone.call_id)
        assert [one["type"] for one in records][-1] == "ToolCompleted"
        assert records[0]["tool"] == "restore_file"

    in_keep(tmp_path, body)


def test_a_file_that_changed_since_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")

    async def body(keep: Keep) -> None:
        call = await write(keep, "a.txt", "two")
        file.write_text("by a person")
        undone = await keep.undo(call, agent="writer")
        assert not undone.ok
        assert "has changed since" in undone.text
        assert planned(keep, call).obstacle == "the file has changed since"
        assert file.read_text() == "by a person"
        assert obstacle(keep.replaced(call=call)[0]) == ""

    in_keep(tmp_path, body)


def test_bytes_come_back_as_they_were_and_edits_too(tmp_path: Path) -> None:
    binary, code = tmp_path / "b.bin", tmp_path / "c.py"
    binary.write_bytes(b"\0\xff\xfe")
    code.write_text("a = 1\n")

    async def body(keep: Keep) -> None:
        call = await write(keep, "b.bin", "text")
        assert "3 bytes that differ" in planned(keep, call).difference
        assert (await keep.undo(call, agent="writer")).ok
        assert binary.read_bytes() == b"\0\xff\xfe"
        arguments = {"path": "c.py", "old_content": "1", "new_content": "2"}
        edited = await keep.call("edit_code", arguments, agent="writer")
        assert code.read_text() == "a = 2\n"
        assert (await keep.undo(edited.call_id, agent="writer")).ok
        assert code.read_text() == "a = 1\n"
        appended = await write(keep, "c.py", "b = 2\n", mode="append")
        assert (await keep.undo(appended, agent="writer")).ok
        assert code.read_text() == "a = 1\n"

    in_keep(tmp_path, body)


def test_who_may_not_write_takes_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")

    async def body(keep: Keep) -> None:
        call = await write(keep, "a.txt", "two")
        undone = await keep.undo(call, agent="reader")
        assert not undone.ok
        assert (tmp_path / "a.txt").read_text() == "two"
        assert obstacle(keep.replaced(call=call)[0]) == ""

    in_keep(tmp_path, body)


def test_what_cannot_be_taken_back_says_why(tmp_path: Path) -> None:
    large = tmp_path / "large.txt"
    large.write_text("x" * (UNDO_FILE_BYTES + 1))

    async def body(keep: Keep) -> None:
        for call, why in (
            (await write(keep, "large.txt", "small"), "larger than"),
            ("0" * 32, "on this server"),
            ((await keep.call("read_file", {"path": "large.txt"}, agent="writer")).call_id, "on this server"),
        ):
            with pytest.raises(NotRecorded, match=why):
                await keep.undo(call, agent="writer")
        failed = await keep.call(
            "edit_code", {"path": "large.txt", "old_content": "nowhere", "new_content": ""}, agent="writer"
        )
        with pytest.raises(NotRecorded, match="not known what it left"):
            await keep.undo(failed.call_id, agent="writer")

    in_keep(tmp_path, body)


def test_the_calls_of_a_session_newest_first_and_of_nobody_else(tmp_path: Path) -> None:
    async def body(keep: Keep) -> None:
        first = await write(keep, "a.txt", "one")
        second = await write(keep, "a.txt", "two")
        await write(keep, "b.txt", "one", session="other")
        assert [one.call for one in keep.replaced(session="s")] == [second, first]
        assert keep.replaced(session="s", agent="reader") == []
        # Each step finds what the one before it leaves.
        steps = plan_undo(keep.replaced(session="s"))
        assert [one.obstacle for one in steps] == ["", ""]
        newer, older = (one.difference for one in steps)
        assert "-two" in newer.split("\n")
        assert "would be removed" in older
        for one in keep.replaced(session="s"):
            assert (await keep.undo(one.call, agent="writer")).ok
        assert not (tmp_path / "a.txt").exists()
        assert (tmp_path / "b.txt").exists()

    in_keep(tmp_path, body)


def test_nothing_is_kept_where_the_configuration_says_so(tmp_path: Path) -> None:
    async def body(keep: Keep) -> None:
        call = await write(keep, "a.txt", "one")
        assert keep.replaced(call=call) == ()
        with pytest.raises(NotRecorded, match="on this server"):
            await keep.undo(call, agent="writer")

    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text("undo: {days: 0}\n")
    accept(tmp_path)
    in_keep(tmp_path, body)


def test_what_somebody_puts_in_its_place_is_neither_read_nor_waited_for(tmp_path: Path) -> None:
    async def body(keep: Keep) -> None:
        call = await write(keep, "a.txt", "one")
        (kept,) = keep.replaced(call=call)
        assert kept.after_sha256 == hashlib.sha256(b"one").hexdigest()
        (tmp_path / "a.txt").unlink()
        os.mkfifo(tmp_path / "a.txt")
        assert "a pipe, not a file" in planned(keep, call).obstacle
        undone = await keep.undo(call, agent="writer")
        assert not undone.ok

    in_keep(tmp_path, body)


def test_a_write_that_could_not_be_taken_back_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")

    async def body(keep: Keep) -> None:
        def full(_: Replaced) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        keep.record.replaced.put = full  # type: ignore[method-assign, assignment]  # as on a full disk
        arguments = {"path": "a.txt", "content": "two"}
        result = await keep.call("write_file", arguments, agent="writer")
        assert result.code is Code.NOT_RECORDED
        assert (tmp_path / "a.txt").read_text() == "one"

    in_keep(tmp_path, body)
