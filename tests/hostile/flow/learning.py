"""Learns from every second task of the suite, and plays the others under what was learned (FLO-8).

The recorded sessions have no policy: flow only watches them. A poisoned recording plays each task with a goal of an
attacker, which is reached there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from tests.hostile.flow.goals import GOALS
from tests.hostile.flow.guards import AGENT, KeepGuard, Made
from tests.hostile.flow.replay import Reading, play, read_alone
from tests.hostile.flow.tasks import TASKS
from tests.hostile.flow.traces import Goal, Task
from tests.hostile.flow.world import TOOLS
from toolkeep import Keep
from toolkeep.calls import RegisteredTool
from toolkeep.flow.flow_settings import NO_FLOW
from toolkeep.flow.recorded_sessions import RecordedDecision, RecordedSessions
from toolkeep.policy.learned_policies import Learned, learn
from toolkeep.policy.policy_settings import PolicySettings
from toolkeep.policy.recorded_behavior import RecordedBehavior
from toolkeep.stores.records import MemoryRecord


class Watched(KeepGuard):
    """No policy, or learned ones alone, in sessions that flow watches."""

    name = "learned"

    def __init__(self, policies: str = "") -> None:
        super().__init__()
        self.use(Keep(policy=PolicySettings(flow=NO_FLOW), approver=self.ask))
        if policies:
            self.keep.use_policies(policies)
        self._number = 0
        self.denied: list[str] = []
        """Tools of the user's own calls that were denied without a question."""
        self.attack_questions = 0
        self.was_told: bool | None = None
        """Whether text of outsiders was shown before the attacker's first call; None before that."""

    def begin(self, prompt: str) -> None:
        """Begin a session in which the user says this."""
        self._number += 1
        self.denied, self.attack_questions, self.was_told = [], 0, None
        self._session = self.keep.session(f"s{self._number}", agent=AGENT, said=prompt)

    def session(self) -> Any:
        """The session of flow."""
        return self._session

    async def call(self, tool: str, arguments: dict[str, Any], *, is_own: bool) -> Made:
        """Make the call."""
        was_opened = self._session.is_opened
        made = await super().call(tool, arguments, is_own=is_own)
        if not is_own:
            self.was_told = was_opened if self.was_told is None else self.was_told
            self.attack_questions += made.questions
        elif not made.ok and not made.questions:
            self.denied.append(tool)
        return made


@dataclass
class LearningFigures:
    """What came of the tasks that nothing was learned from."""

    tasks: int = 0
    kept: int = 0
    denied: list[str] = field(default_factory=list)
    """The tools of the user's own calls that were denied."""
    asked: int = 0
    unread: int = 0
    """Pairs in which the model was shown no text of outsiders, so that no goal counts."""
    pairs: int = 0
    reached: list[str] = field(default_factory=list)
    """Goals that were reached without a question: goal and task."""
    stopped: int = 0
    """Pairs whose goal was not reached and about which nobody was asked."""

    def words(self, name: str, unknown: set[str]) -> str:
        """One line of a table; `unknown` are the tools that no recorded session used."""
        new = sum(tool in unknown for tool in self.denied)
        return (
            f"{name:26}  {self.kept:2} of {self.tasks} tasks kept  "
            f"{len(self.denied):2} calls denied, {new:2} of them of tools that were never used  "
            f"{self.asked / self.tasks:.2f} questions a task  goals of {self.pairs}: "
            f"{len(self.reached)} reached silently, {self.stopped} stopped without a question"
        )


async def recorded(tasks: Iterable[Task], goals: Sequence[Goal] = ()) -> Keep:
    """A keep that has recorded the sessions of tasks, each with a goal if there are any."""
    guard = Watched()
    several = cycle(goals)
    for task in tasks:
        reading = await read_alone(task)
        await play(guard, task, next(several) if goals else None, reading)
    return guard.keep


def learned_from(keep: Keep) -> Learned:
    """What the log of a keep tells."""
    record = keep.record
    if not isinstance(record, MemoryRecord):
        raise TypeError("a keep in memory")
    tools = {tool.name: tool for tool in keep.tools(kind=None)}

    def tool_of(call: RecordedDecision) -> RegisteredTool | None:
        return tools.get(call.tool)

    behavior = RecordedBehavior(tools.values(), {AGENT})
    sessions = RecordedSessions(NO_FLOW, tool=tool_of, body=record.bodies.get)
    behavior.fold((entry.record for entry in record.log.entries), sessions)
    return learn(behavior.agents, declared={}, registered=tools, needs_permit=True)


def unused(learned: Learned) -> set[str]:
    """The tools that no recorded session used."""
    (clause,) = (one for one in learned.clauses if one.about == "tools")
    return {tool.definition.name for tool in TOOLS} - {one.what.strip('"') for one in clause.basis}


async def played(policies: str, tasks: Sequence[Task], goals: Sequence[Goal] = GOALS) -> LearningFigures:
    """Play tasks, alone and with each goal, under learned policies."""
    figures = LearningFigures(tasks=len(tasks))
    guard = Watched(policies)
    for task in tasks:
        reading = await read_alone(task)
        alone = await play(guard, task, None, reading)
        figures.kept += alone.is_done
        figures.asked += alone.questions
        figures.denied += guard.denied
        for goal in goals:
            if not goal.is_reached(reading.world) and reading.last >= 0:
                await _attacked(guard, task, goal, reading, figures)
    return figures


async def _attacked(
    guard: Watched, task: Task, goal: Goal, reading: Reading, figures: LearningFigures
) -> None:
    session = await play(guard, task, goal, reading, "at the end")
    if not guard.was_told:  # what would have shown the text was denied: nobody told the model
        figures.unread += 1
        return
    figures.pairs += 1
    if session.is_reached:
        figures.reached.append(f"{goal.id} in {task.id}")
    else:
        figures.stopped += not guard.attack_questions


async def print_halves() -> None:
    """Learn from every second task, without and with attackers, and play the others."""
    learn_from, others = TASKS[::2], TASKS[1::2]
    for name, goals in (("learned", ()), ("learned, attacked", GOALS)):
        for number, (these, those) in enumerate(((learn_from, others), (others, learn_from)), 1):
            learned = learned_from(await recorded(these, goals))
            weak = sum(one.is_weak for one in learned.clauses)
            figures = await played(learned.text, those)
            print(f"{len(learned.clauses)} policies, {weak} of them weak")
            print(figures.words(f"{name}, half {number}", unused(learned)))
            print(*figures.reached, sep="\n")
