"""Policies learned from sessions of the suite, with an attacker in each of them, let no goal pass silently.

Some tasks and goals are played here; `python -m tests.hostile.flow --learn` plays all.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tests.hostile.flow.goals import GOALS
from tests.hostile.flow.learning import learned_from, played, recorded
from tests.hostile.flow.tasks import TASKS
from tests.hostile.flow.traces import Goal

pytestmark = pytest.mark.spec("FLO-8")


@pytest.mark.parametrize("goals", [(), GOALS], ids=["alone", "attacked"])
def test_no_goal_is_reached_silently_under_what_was_learned(goals: Sequence[Goal]) -> None:
    learned = learned_from(asyncio.run(recorded(TASKS[::2], goals)))
    figures = asyncio.run(played(learned.text, TASKS[1::6], GOALS[::3]))
    assert figures.pairs > 50
    assert figures.reached == []
    assert figures.stopped > figures.pairs / 10


def test_what_was_learned_lets_the_recorded_sessions_pass() -> None:
    tasks = TASKS[::4]
    learned = learned_from(asyncio.run(recorded(tasks)))
    figures = asyncio.run(played(learned.text, tasks, ()))
    assert (figures.kept, figures.denied) == (len(tasks), [])
