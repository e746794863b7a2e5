"""Persistent programs that are stopped between calls: nothing of them runs, and the next call goes on."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.workers import descendants, open_to_all, until
from toolkeep import Keep, open_keep
from toolkeep.errors import DefinitionInvalid
from toolkeep.sandbox import persistent_process
from toolkeep.sandbox.launch import interpreter
from toolkeep.sources.process_source import ProcessSource

SCRIPT = str(Path(__file__).resolve().parent / "scribbling.py")
PARAMETERS = {
    "type": "object",
    "properties": {
        "how": {"type": "string"},
        "path": {"type": "string", "x-touches": "fs.write"},
    },
}
ENOUGH_BYTES = 100
"""What a program that is not stopped writes while the other one is looked at."""

pytestmark = pytest.mark.spec("SBX-2")


def offer(name: str, between_calls: Any, **fields: Any) -> Any:
    source = ProcessSource(argv=[interpreter(), "-I", "-S", SCRIPT], between_calls=between_calls, **fields)
    definition = {"name": name, "description": "Writes.", "version": "1.0.0", "parameters": PARAMETERS}
    return source.tool(
        {**definition, "side_effects": ["FsWrite"], "danger": "medium", "capabilities": ["fs.write"]}
    )


@asynccontextmanager
async def opened(project: Path, **fields: Any) -> AsyncIterator[Keep]:
    open_to_all(project)
    async with open_keep(project=project, approver=lambda _: True) as keep:
        keep.register(offer("stopped", "stopped", **fields))
        keep.register(offer("running", "running"))
        keep.declare_agent("a", capabilities=[f"fs.write:{project}"])
        yield keep


async def scribble(keep: Keep, tool: str, path: Path, how: str = "wait") -> Any:
    result = await keep.call(tool, {"how": how, "path": str(path)}, agent="a")
    assert result.ok, result.text
    return result.value


def size_of(path: Path) -> int:
    return path.stat().st_size


async def grew(path: Path) -> bool:
    """Whether a file becomes longer by as much as shows that its program runs."""
    before = size_of(path)
    return await until(lambda: size_of(path) >= before + ENOUGH_BYTES, most_s=30.0)


def running(script: str = SCRIPT) -> set[int]:
    return {pid for pid in descendants(os.getpid()) if script in _command(pid)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("how", ["thread", "child", "timer"])
def test_nothing_is_written_between_calls_and_calls_go_on_working(how: str, tmp_path: Path) -> None:
    async def main() -> tuple[list[bool], bool]:
        stopped, free = tmp_path / "stopped", tmp_path / "free"
        async with opened(tmp_path) as keep:
            await scribble(keep, "running", free, how)
            programs = [await scribble(keep, "stopped", stopped, how)]
            unchanged = []
            for _ in range(3):
                size = size_of(stopped)
                assert await grew(free)
                unchanged.append(size_of(stopped) == size)
                programs.append(await scribble(keep, "stopped", stopped))
            return unchanged, len(set(programs)) == 1

    assert asyncio.run(main()) == ([True, True, True], True)


@pytest.mark.parametrize("how", ["successors", "mutual help"])
def test_a_program_that_resists_is_stopped_or_ended(how: str, tmp_path: Path) -> None:
    """Whether it can be stopped is a matter of chance; that it does not run is not."""

    async def main() -> list[bool]:
        stopped, free = tmp_path / "stopped", tmp_path / "free"
        async with opened(tmp_path) as keep:
            await scribble(keep, "running", free, "thread")
            unchanged = []
            for _ in range(2):
                await scribble(keep, "stopped", stopped, how)
                size = size_of(stopped)
                assert await grew(free)
                unchanged.append(size_of(stopped) == size)
            return unchanged

    assert asyncio.run(main()) == [True, True]


def test_a_program_that_cannot_be_stopped_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        persistent_process, "stopped_threads", lambda _: None
    )  # a kernel that does not say which processes there are
    monkeypatch.setattr(persistent_process, "_SUSPEND_SECONDS", 0.1)

    async def main() -> tuple[int, bool]:
        path = tmp_path / "stopped"
        async with opened(tmp_path) as keep:
            await scribble(keep, "stopped", path, "child")
            left = len(running())
            await scribble(keep, "stopped", path, "child")
            return left, size_of(path) > 0

    assert asyncio.run(main()) == (0, True)


def test_a_program_that_was_continued_meanwhile_is_not_used_again(tmp_path: Path) -> None:
    async def main() -> bool:
        path = tmp_path / "stopped"
        async with opened(tmp_path) as keep:
            await scribble(keep, "stopped", path, "thread")
            (before,) = running()
            os.kill(before, signal.SIGCONT)  # by whoever is root on this machine
            assert await grew(path)
            await scribble(keep, "stopped", path, "thread")
            return before not in running()

    assert asyncio.run(main())


ENDS: Mapping[str, Callable[[Keep], Any]] = {
    "the tool is disabled": lambda keep: keep.disable("stopped"),
    "the agent holds less": lambda keep: keep.declare_agent("a"),
    "the idle time is over": lambda _: None,
}


@pytest.mark.parametrize("what", ENDS)
def test_a_stopped_program_still_ends(what: str, tmp_path: Path) -> None:
    async def main() -> tuple[int, bool]:
        fields = {"idle_s": 1} if "idle" in what else {}
        async with opened(tmp_path, **fields) as keep:
            await scribble(keep, "stopped", tmp_path / "stopped", "child")
            before = len(running())
            ENDS[what](keep)
            return before, await until(lambda: not running())

    assert asyncio.run(main()) == (2, True)


def test_nothing_is_left_of_a_stopped_program_when_its_keep_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as keep:
            await scribble(keep, "stopped", tmp_path / "stopped", "child")

    asyncio.run(main())
    assert not running()


def test_two_calls_at_once_are_both_answered(tmp_path: Path) -> None:
    async def main() -> tuple[int, bool]:
        stopped, free = tmp_path / "stopped", tmp_path / "free"
        async with opened(tmp_path) as keep:
            await scribble(keep, "running", free, "thread")
            await scribble(keep, "stopped", stopped, "thread")
            answers = await asyncio.gather(*(scribble(keep, "stopped", stopped) for _ in range(5)))
            size = size_of(stopped)
            assert await grew(free)
            return len(set(answers)), size_of(stopped) == size

    assert asyncio.run(main()) == (1, True)


def test_there_are_two_ways_to_be_between_calls() -> None:
    with pytest.raises(DefinitionInvalid, match="neither running nor stopped"):
        offer("stopped", "paused")


def test_programs_are_listed_with_their_grant_and_whether_they_run(tmp_path: Path) -> None:
    async def main() -> list[tuple[Any, ...]]:
        async with opened(tmp_path) as keep:
            assert keep.persistent_programs() == ()
            for name in ("stopped", "running"):
                await scribble(keep, name, tmp_path / name, "thread")
            found = [
                (one.name, one.agent, one.grant, one.state, one.calls) for one in keep.persistent_programs()
            ]
            keep.disable("running")
            assert await until(lambda: len(keep.persistent_programs()) == 1)
            return found

    grant = (f"fs.write:{tmp_path}",)
    assert asyncio.run(main()) == [
        ("stopped", "a", grant, "stopped", 0),
        ("running", "a", grant, "running", 0),
    ]
