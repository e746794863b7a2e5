"""The four guards that the suite compares: no policy, the best static set, the simple rule, `standard`.

Each makes one call at a time and says whether a person was asked. The person knows which calls are the user's own,
and denies all others. A question for the tool's danger alone is counted apart and answered with yes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.hostile.flow.planner import Planner, answer
from tests.hostile.flow.services.service import ACTS, LABELS
from tests.hostile.flow.traces import Call, Seen
from tests.hostile.flow.world import TOOLS
from toolkeep import Keep, Question, ToolFailed
from toolkeep.flow.flow_settings import read_flow
from toolkeep.policy.policy_settings import PolicySettings
from toolkeep.tools.view_tools import Reader, ViewToolsProvider

AGENT = "assistant"
STATIC = Path(__file__).with_name("static.cedar")


class Made(NamedTuple):
    """What became of a call."""

    ok: bool
    value: Any = None
    view: Any = None
    """What the model is shown of the value, where that is not all of it."""
    questions: int = 0
    danger_questions: int = 0


class Guard(Protocol):
    """Stands between a model and its tools."""

    name: str

    def begin(self, prompt: str) -> None:
        """Begin the session of a user who says this."""

    async def call(self, tool: str, arguments: dict[str, Any], *, is_own: bool) -> Made:
        """Make a call, which the user wants or does not want."""

    async def write(self, call: Call, seen: Seen) -> dict[str, Any]:
        """The arguments of a call, as a model writes them that has seen this much."""

    def shown(self, made: Made) -> str:
        """All that the model was shown since the call before, with what this one brought."""

    def has_shown_text(self) -> bool:
        """Whether the model was shown text of outsiders, once it has read all that it reads."""


class NoPolicy:
    """Makes every call."""

    name = "no policy"

    def __init__(self) -> None:
        self._tools = {tool.definition.name: tool for tool in TOOLS}

    def begin(self, prompt: str) -> None:
        """Nothing is remembered."""

    async def call(self, tool: str, arguments: dict[str, Any], *, is_own: bool) -> Made:
        """Make the call."""
        try:
            return Made(ok=True, value=await self._tools[tool](**arguments))
        except ToolFailed:
            return Made(ok=False)

    async def write(self, call: Call, seen: Seen) -> dict[str, Any]:
        """The values that the model has seen."""
        return call.write(seen)

    def shown(self, made: Made) -> str:
        """The whole result."""
        return json.dumps(made.value)

    def has_shown_text(self) -> bool:
        """Results are shown as they are."""
        return True


class SimpleRule(NoPolicy):
    """After text from outside, every act asks."""

    name = "simple rule"

    def begin(self, prompt: str) -> None:
        """A session that has seen nothing."""
        self._opened = False

    async def call(self, tool: str, arguments: dict[str, Any], *, is_own: bool) -> Made:
        """Make the call, after a question where one is due."""
        asks = self._opened and tool in ACTS
        if asks and not is_own:
            return Made(ok=False, questions=1)
        made = await super().call(tool, arguments, is_own=is_own)
        self._opened = self._opened or any(is_text for _, is_text in leaves(tool, made.value))
        return made._replace(questions=int(asks))


class KeepGuard:
    """Makes calls through a keep."""

    name: str
    keep: Keep

    def __init__(self) -> None:
        self._is_own = True
        self._questions = self._danger_questions = 0

    def use(self, keep: Keep) -> None:
        """Give the keep its tools and its agent."""
        self.keep = keep
        keep.register(*TOOLS)
        keep.declare_agent(AGENT)

    def begin(self, prompt: str) -> None:
        """Begin a session."""

    def session(self) -> Any:
        """What calls give as their session."""
        return ""

    async def ask(self, question: Question) -> bool:
        """The person."""
        if all(why.startswith("its danger is") for why in question.why):
            self._danger_questions += 1
            return True
        self._questions += 1
        return self._is_own

    async def call(self, tool: str, arguments: dict[str, Any], *, is_own: bool) -> Made:
        """Make the call."""
        self._is_own = is_own
        self._questions = self._danger_questions = 0
        result = await self.keep.call(tool, arguments, agent=AGENT, session=self.session(), forwarded=True)
        questions, by_danger = self._questions, self._danger_questions
        return Made(result.ok, result.value, result.view, questions=questions, danger_questions=by_danger)

    async def write(self, call: Call, seen: Seen) -> dict[str, Any]:
        """The values that the model has seen."""
        return call.write(seen)

    def shown(self, made: Made) -> str:
        """The whole result."""
        return json.dumps(made.value)

    def has_shown_text(self) -> bool:
        """Results are shown as they are."""
        return True


class StaticSet(KeepGuard):
    """A Cedar set that sees one call at a time, so each call is decided once."""

    name = "static set"

    def __init__(self) -> None:
        super().__init__()
        self.use(Keep(approver=self.ask))
        self.keep.use_policies(STATIC.read_text(encoding="utf-8"))
        self._decided: dict[str, Made] = {}
        self._unguarded = NoPolicy()

    async def call(self, tool: str, arguments: dict[str, Any], *, is_own: bool) -> Made:
        """Make the call, decided as the equal call before it."""
        key = json.dumps([tool, arguments])
        if key not in self._decided:
            self._decided[key] = made = await super().call(tool, arguments, is_own=is_own)
            return made
        decided = self._decided[key]
        if decided.questions and not is_own:
            return decided._replace(ok=False)
        made = await self._unguarded.call(tool, arguments, is_own=is_own)
        return decided._replace(ok=made.ok, value=made.value)


class Standard(KeepGuard):
    """The shipped set, in a keep that holds everything in memory."""

    name = "standard"

    def __init__(self) -> None:
        super().__init__()
        flow = read_flow({"policy": "standard", "spare": "medium"})
        self.use(Keep(policy=PolicySettings(flow=flow), approver=self.ask))
        self._number = 0

    def begin(self, prompt: str) -> None:
        """Begin a session in which the user says this."""
        self._number += 1
        self._session = self.keep.session(f"s{self._number}", agent=AGENT, said=prompt)

    def session(self) -> Any:
        """The session of flow."""
        return self._session


class Typed(Standard):
    """The shipped set with typed views, and a planner that works on them."""

    name = "typed"

    def __init__(self, reader: Reader | None = answer) -> None:
        """Without a reader, the planner has to read what it must understand."""
        KeepGuard.__init__(self)
        flow = read_flow({"policy": "standard", "spare": "medium", "view": "typed"})
        self.use(Keep(policy=PolicySettings(flow=flow), approver=self.ask))
        self.keep.load(own=[ViewToolsProvider(reader)])
        self._number = 0
        self._has_reader = reader is not None
        self.planner = Planner(self._look, has_reader=self._has_reader)

    def begin(self, prompt: str) -> None:
        """Begin a session in which the user says this."""
        super().begin(prompt)
        self.planner = Planner(self._look, has_reader=self._has_reader)

    async def _look(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Use one of the tools for references."""
        result = await self.keep.call(tool, arguments, agent=AGENT, session=self._session, forwarded=True)
        if not result.ok:
            raise LookupError(result.text)
        return result.view

    async def write(self, call: Call, seen: Seen) -> dict[str, Any]:
        """Values of the views, references, and what was looked up in them."""
        return await self.planner.write(call, seen)

    def shown(self, made: Made) -> str:
        """The view, and what the planner has looked up before the call."""
        looked, self.planner.shown = self.planner.shown, []
        return json.dumps([*looked, made.view])

    def has_shown_text(self) -> bool:
        """Only if something was read as text."""
        return self._session.is_opened


class TypedWithoutReader(Typed):
    """Typed views for a program that has no reader."""

    name = "no reader"

    def __init__(self) -> None:
        super().__init__(None)


def leaves(tool: str, value: Any) -> Iterator[tuple[str, bool]]:
    """The pointer of each value in a result, with `*` for positions, and whether it is text from outside."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        steps, part = waiting.pop()
        if isinstance(part, dict):
            waiting += [((*steps, key), inside) for key, inside in part.items()]
        elif isinstance(part, list):
            waiting += [((*steps, "*"), inside) for inside in part]
        elif part is not None:
            pointer = "".join(f"/{step}" for step in steps)
            yield pointer, isinstance(part, str) and label_at(tool, pointer) == "text"


def label_at(tool: str, pointer: str) -> Any:
    """The label of a field: its own, or that of what it lies in."""
    labels = LABELS[tool]
    while pointer and pointer not in labels:
        pointer = pointer.rpartition("/")[0]
    return labels.get(pointer, "text")
