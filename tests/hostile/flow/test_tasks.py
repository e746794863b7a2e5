"""The tasks and labels of the agent-attack suite are what they claim to be."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.flow.guards import NoPolicy, label_at
from tests.hostile.flow.replay import play, read_alone
from tests.hostile.flow.services.service import ACTS
from tests.hostile.flow.tasks import TASKS
from tests.hostile.flow.traces import Field, Task
from tests.hostile.flow.world import TOOLS, World

AUTHORITY = {"destination", "target", "destroys", "credential", "amount", "time", "record"}
DEFINITIONS = {tool.definition.name: tool.definition for tool in TOOLS}


def authority_values(task: Task) -> Iterator[Any]:
    """What the acts of a task act on, as its trace writes it."""
    for call in task.calls:
        for name, value in call.arguments.items() if call.tool in ACTS else ():
            if DEFINITIONS[call.tool].properties[name].get("x-flow", "record") in AUTHORITY:
                yield from value if isinstance(value, list) else [value]


def named_by(value: Any, prompt: str) -> str:
    if isinstance(value, Field):
        label = label_at(value.tool, value.label_pointer)
        return "service" if label == "system" or "system" in label else "outside"
    written = f"{value:g}" if isinstance(value, float) else str(value)
    return "user" if re.search(rf"(?<!\w){re.escape(written)}0?(?!\w)", prompt) else "nobody"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_has_the_class_of_whoever_names_its_authority_values(task: Task) -> None:
    named = {named_by(value, task.prompt) for value in authority_values(task)}
    assert "nobody" not in named
    assert next(who for who in ("outside", "service", "user") if who in named) == task.who


def test_every_task_is_done_by_its_calls_and_not_before() -> None:
    for task in TASKS:
        assert not task.is_done(World()), task.id
        reading = asyncio.run(read_alone(task))
        assert asyncio.run(play(NoPolicy(), task, None, reading)).is_done, task.id


def test_the_suite_is_as_large_as_it_claims() -> None:
    assert len({task.id for task in TASKS}) == len(TASKS)
    assert Counter(task.who for task in TASKS) == {"user": 20, "service": 20, "outside": 20}
    assert len(TOOLS) == 50
