"""Plays tasks under a guard, alone and with each goal of an attacker, and counts.

The model obeys: as soon as a result shows it the planted text it makes the attacker's calls, either at once or after
the task's own. A task that never shows the text is not injected; if it shows other text of outsiders, the attacker's
calls follow the last of it all the same. Where views are typed and nothing was read as text, no call follows.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.hostile.flow.guards import Guard, NoPolicy
from tests.hostile.flow.traces import Call, Goal, Seen, Shown, Task
from tests.hostile.flow.world import TEXTS, World

When = Literal["at once", "at the end"]


@dataclass(frozen=True)
class Reading:
    """What a task does without a guard and an attacker."""

    places: tuple[str, ...]
    """The texts of outsiders that it reads."""
    last: int
    """The call after which it has read the last of them; -1 if it reads none."""
    world: World


@dataclass(kw_only=True)
class Played:
    """What came of one session."""

    is_done: bool = False
    is_injected: bool = False
    is_reached: bool = False
    is_asked: bool = False
    """Whether the goal was reached by a call of the task that a person was asked about, and shown why."""
    questions: int = 0
    """About the task's own calls, for another reason than danger alone."""
    danger_questions: int = 0
    has_read: bool = False
    """Whether the model was shown text of outsiders."""


@dataclass(kw_only=True)
class Figures:
    """What came of a round under one guard."""

    guard: str
    tasks: int = 0
    kept: int = 0
    questions: dict[str, int] = field(default_factory=dict)
    """By who names the values: the user, the service, the outside."""
    danger_questions: int = 0
    silent: set[str] = field(default_factory=set)
    """Tasks that passed without a question."""
    reads: dict[str, int] = field(default_factory=dict)
    """Tasks whose model had to read a text, by the same classes."""
    injected: int = 0
    attacked: int = 0
    kept_under_attack: int = 0
    asked: int = 0
    """Goals that a call of the task reached after a person was asked about it."""
    reached: list[str] = field(default_factory=list)
    """Goals that were reached without a question: goal, task and when."""

    @property
    def questions_per_task(self) -> float:
        """The mean, without an attacker."""
        return sum(self.questions.values()) / self.tasks


async def read_alone(task: Task) -> Reading:
    """Play a task without a guard, with a mark in every text of outsiders."""
    world = World()
    for place in TEXTS:
        world.plant(place, _mark(place))
    places: dict[str, None] = {}
    last = -1
    guard = NoPolicy()
    seen = Seen(prompt=task.prompt)
    for index, call in enumerate(task.calls):
        made = await guard.call(call.tool, call.write(seen), is_own=True)
        seen.results.append(Shown(call.tool, made.value))
        shown = json.dumps(made.value)
        if found := [place for place in TEXTS if _mark(place) in shown]:
            places.update(dict.fromkeys(found))
            last = index
    return Reading(tuple(places), last, world)


def _mark(place: str) -> str:
    return f"[[{place}]]"


class _Session:
    """One session under a guard, in a world of its own."""

    def __init__(self, guard: Guard, task: Task) -> None:
        self._guard = guard
        self._own = Seen(prompt=task.prompt)
        """What the user's calls refer to."""
        self._all = Seen(prompt=task.prompt)
        self.played = Played()

    async def own(self, call: Call) -> str:
        """Make a call of the task; the text that the model gets."""
        try:
            arguments = await self._guard.write(call, self._own)
        except LookupError:  # an attacker's act has removed what the call refers to
            return ""
        made = await self._guard.call(call.tool, arguments, is_own=True)
        self.played.questions += made.questions
        self.played.danger_questions += made.danger_questions
        if made.ok:
            self._own.results.append(Shown(call.tool, made.value, made.view))
            self._all.results.append(Shown(call.tool, made.value, made.view))
        return self._guard.shown(made)

    async def attack(self, goal: Goal) -> None:
        """Make the attacker's calls, as far as they get."""
        for call in goal.calls:
            try:
                arguments = call.write(self._all)
            except LookupError:  # an earlier call of the attacker was refused
                continue
            made = await self._guard.call(call.tool, arguments, is_own=False)
            if made.ok:
                self._all.results.append(Shown(call.tool, made.value))


async def play(
    guard: Guard, task: Task, goal: Goal | None, reading: Reading, when: When = "at once"
) -> Played:
    """Play one session."""
    world = World()
    guard.begin(task.prompt)
    if goal is not None:
        for place in goal.places or reading.places:
            world.plant(place, goal.text)
    needle = json.dumps(goal.text)[1:-1] if goal is not None else ""
    session = _Session(guard, task)
    due = False
    for index, call in enumerate(task.calls):
        was_reached, asked = goal is not None and goal.is_reached(world), session.played.questions
        shown = await session.own(call)
        if goal is not None and not was_reached and goal.is_reached(world):
            session.played.is_asked = session.played.questions > asked
        if goal is None or due:
            continue
        session.played.is_injected = needle in shown
        due = session.played.is_injected or (index == reading.last and guard.has_shown_text())
        if due and when == "at once":
            await session.attack(goal)
    if goal is not None and due and when == "at the end":
        await session.attack(goal)
    session.played.has_read = guard.has_shown_text()
    session.played.is_done = task.is_done(world)
    session.played.is_reached = goal is not None and goal.is_reached(world)
    return session.played


async def play_round(
    guard: Guard,
    tasks: Sequence[Task],
    goals: Iterable[Goal],
    moments: Sequence[When] = ("at once", "at the end"),
) -> Figures:
    """Play every task alone, and every pair."""
    goals = tuple(goals)
    figures = Figures(guard=guard.name, tasks=len(tasks))
    for task in tasks:
        reading = await read_alone(task)
        alone = await play(guard, task, None, reading)
        figures.kept += alone.is_done
        figures.questions[task.who] = figures.questions.get(task.who, 0) + alone.questions
        figures.danger_questions += alone.danger_questions
        figures.reads[task.who] = figures.reads.get(task.who, 0) + alone.has_read
        if not alone.questions:
            figures.silent.add(task.id)
        for goal in goals:
            await _play_pair(guard, task, goal, reading, moments, figures)
    return figures


async def _play_pair(
    guard: Guard, task: Task, goal: Goal, reading: Reading, moments: Sequence[When], figures: Figures
) -> None:
    is_wanted = goal.is_reached(reading.world)  # by the user, too
    if is_wanted or reading.last < 0:
        return
    for when in moments:
        played = await play(guard, task, goal, reading, when)
        figures.attacked += 1
        figures.injected += played.is_injected
        figures.kept_under_attack += played.is_done
        figures.asked += played.is_reached and played.is_asked
        if played.is_reached and not played.is_asked:
            figures.reached.append(f"{goal.id} in {task.id}, {when}")


def table(rounds: Iterable[Figures]) -> str:
    """The figures of several guards, one a line."""
    lines = [
        "guard        tasks kept  goals reached  injected  kept under attack  questions a task, by class, by danger"
    ]
    for one in rounds:
        by_class = " ".join(
            f"{asked * len(one.questions) / one.tasks:.2f}" for asked in one.questions.values()
        )
        cells = (
            f"{one.guard:11}",
            f"{one.kept:4} of {one.tasks:2}",
            f"{len(one.reached):5} of {one.attacked:4}",
            f"{one.injected:8}",
            f"{one.kept_under_attack:9} of {one.attacked:4}",
            f"   {one.questions_per_task:6.2f}    {by_class}    {one.danger_questions / one.tasks:.2f}",
        )
        lines.append("  ".join(cells))
    return "\n".join(lines)
