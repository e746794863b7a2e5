"""A recorded call is made again: an honest tool gives the same, one that lies is found out."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Code, Keep, open_keep, tool
from toolkeep.errors import NotRecorded

pytestmark = pytest.mark.spec("AUD-4")


@tool(determinism="Pure", side_effects=["None"])
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


COUNT = itertools.count()


@tool(determinism="Pure", side_effects=["None"])
def liar(number: int) -> int:
    """Say that it is pure, and count."""
    return number + next(COUNT)


@tool(side_effects=["None"])
def whatever(number: int) -> int:
    """Promise nothing."""
    return number


def opened(project: Path) -> Keep:
    keep = open_keep(project=project, built_in=False)
    keep.register(double, liar, whatever)
    return keep


async def called_and_replayed(keep: Keep, name: str) -> Any:
    first = await keep.call(name, {"number": 21})
    return await keep.replay(first.call_id)


@pytest.mark.parametrize(("name", "is_same"), [("double", True), ("liar", False)])
def test_replay_finds_a_tool_that_lies_about_determinism(name: str, is_same: bool, tmp_path: Path) -> None:
    with opened(tmp_path) as keep:
        replayed = asyncio.run(called_and_replayed(keep, name))
    assert (replayed.is_same, replayed.result.is_cached) == (is_same, False)


def test_a_call_is_replayed_by_the_next_process_too(tmp_path: Path) -> None:
    with opened(tmp_path) as keep:
        first = keep.call_sync("double", {"number": 21})
    with opened(tmp_path) as keep:
        assert asyncio.run(keep.replay(first.call_id)).is_same


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("whatever", {"number": 1}, "is not declared deterministic"),
        ("double", {"number": "x"}, "no result to compare"),
    ],
)
def test_what_cannot_be_replayed_is_said(
    name: str, arguments: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with opened(tmp_path) as keep:
        first = keep.call_sync(name, arguments)
        with pytest.raises(NotRecorded, match=reason):
            asyncio.run(keep.replay(first.call_id))
        with pytest.raises(NotRecorded):
            asyncio.run(keep.replay("no-such-call"))


@pytest.mark.spec("TLS-2")
def test_reading_a_file_is_replayed_and_a_changed_file_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    with open_keep(project=tmp_path) as keep:
        keep.declare_agent("ada", capabilities=[f"fs.read:{tmp_path}"], permissions=["tool.filesystem.read"])
        first = keep.call_sync("read_file", {"path": str(tmp_path / "a.txt")}, agent="ada")
        if first.code is Code.ISOLATION_UNAVAILABLE:
            pytest.skip("this machine does not give strict")
        assert asyncio.run(keep.replay(first.call_id, agent="ada")).is_same
        (tmp_path / "a.txt").write_text("two")
        assert not asyncio.run(keep.replay(first.call_id, agent="ada")).is_same
