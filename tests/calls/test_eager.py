"""A loop whose tasks begin the moment they are made, as a program may choose since Python 3.12."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Keep, ToolResult, open_keep, tool
from toolkeep.errors import Code

EAGER = getattr(asyncio, "eager_task_factory", None)
pytestmark = pytest.mark.skipif(EAGER is None, reason="eager tasks came with Python 3.12")

Act = Callable[[Keep], Coroutine[Any, Any, Any]]


@tool(side_effects=[])
def in_a_thread(number: int) -> int:
    """Add one.

    Args:
        number: Which.
    """
    return number + 1


@tool(side_effects=[])
async def at_once(number: int) -> int:
    """Add one without waiting.

    Args:
        number: Which.
    """
    return number + 1


@tool(side_effects=[])
async def with_tasks(number: int) -> int:
    """Add one in a task of its own.

    Args:
        number: Which.
    """
    async with asyncio.TaskGroup() as group:
        adding = group.create_task(asyncio.sleep(0, number + 1))
    return adding.result()


@tool
async def with_intent(number: int) -> int:
    """Add one after that was written down.

    Args:
        number: Which.
    """
    return number + 1


@tool(side_effects=[])
async def for_ever(number: int) -> int:
    """Wait.

    Args:
        number: For what.
    """
    await asyncio.Event().wait()
    return number


ADDING = (in_a_thread, at_once, with_tasks, with_intent)


def eagerly(project: Path, act: Act) -> Any:
    """What a program gives back, and how many tasks it left."""

    async def run() -> Any:
        asyncio.get_running_loop().set_task_factory(EAGER)
        async with open_keep(project=project) as keep:
            for one in (*ADDING, for_ever):
                keep.register(one)
            given = await act(keep)
        return given, len(asyncio.all_tasks()) - 1

    return asyncio.run(run())


@pytest.mark.parametrize("name", [one.definition.name for one in ADDING])
def test_calls_of_every_kind_are_answered(tmp_path: Path, name: str) -> None:
    async def act(keep: Keep) -> list[Any]:
        results = await asyncio.gather(*(keep.call(name, {"number": number}) for number in range(20)))
        return [result.value for result in results]

    assert eagerly(tmp_path, act) == ([*range(1, 21)], 0)


def test_a_call_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    async def act(keep: Keep) -> Code | None:
        result: ToolResult = await keep.call("for_ever", {"number": 1}, timeout_s=1)
        return result.error.code if result.error else None

    assert eagerly(tmp_path, act) == (Code.TIMED_OUT, 0)


def test_a_call_can_be_given_up_before_and_after_it_began_to_wait(tmp_path: Path) -> None:
    async def act(keep: Keep) -> list[bool]:
        found = []
        for turns in (0, 20):
            calling = asyncio.create_task(keep.call("for_ever", {"number": 1}))
            for _ in range(turns):
                await asyncio.sleep(0)
            calling.cancel()
            await asyncio.wait({calling})
            found.append(calling.cancelled())
        return found

    assert eagerly(tmp_path, act) == ([True, True], 0)
