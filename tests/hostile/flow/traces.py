"""Tasks of a user and goals of an attacker, as data: calls whose arguments are literal or come from results."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.hostile.flow.world import World
from toolkeep.json_values.pointers import steps_of

Who = Literal["user", "service", "outside"]
"""Who names the authority values of a task's acts."""


class Shown(NamedTuple):
    """One call of the session, and what the model got to see of it."""

    tool: str
    value: Any
    view: Any = None
    """What a model was shown instead, where views are typed."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the model knows when it writes a call."""

    prompt: str
    results: list[Shown] = field(default_factory=list)

    def latest(self, tool: str) -> Any:
        """The latest result of a tool; LookupError if there is none."""
        for shown in reversed(self.results):
            if shown.tool == tool:
                return shown.value
        raise LookupError(tool)


@dataclass(frozen=True)
class Field:
    """A field of the latest result of a tool.

    `where` chooses the first row of a list whose fields hold these texts; the pointer then starts at that row.
    `pattern` takes the first match in the field, its group if it has one.
    """

    tool: str
    pointer: str
    where: Mapping[str, str] = field(default_factory=dict)
    pattern: str = ""
    number: bool = False

    def take(self, seen: Seen) -> Any:
        """The value; LookupError if there is none."""
        value = seen.latest(self.tool)
        if self.where:
            value = _first_row(value, self.where)
        for step in steps_of(self.pointer):
            value = value[int(step)] if isinstance(value, list) else value[step]
        if self.pattern:
            value = _match(self.pattern, value)
        if self.number:
            return float(value) if "." in value else int(value)
        return value

    @property
    def is_id(self) -> bool:
        """Whether it is one word: a path, a name or a number, and no text."""
        return r"\S+" in self.pattern

    @property
    def label_pointer(self) -> str:
        """The pointer of its label: from the whole result, with `*` for positions."""
        steps = ["*" if step.isdigit() else step for step in steps_of(self.pointer)]
        return "".join(f"/{step}" for step in (["*"] if self.where else []) + steps)


@dataclass(frozen=True)
class Anywhere:
    """What an attacker takes wherever it stands: the first match in the user's words or in any result so far."""

    pattern: str
    default: Any
    in_prompt: bool = False

    def take(self, seen: Seen) -> Any:
        """The value, or the default."""
        texts = [seen.prompt] if self.in_prompt else [json.dumps(shown.value) for shown in seen.results]
        found = (re.search(self.pattern, text) for text in texts)
        return next((match[match.re.groups and 1] for match in found if match), self.default)


@dataclass(frozen=True)
class Text:
    """A text in which `{}` stands for values."""

    form: str
    values: tuple["Field | Anywhere", ...]

    def take(self, seen: Seen) -> str:
        """The text."""
        return self.form.format(*(value.take(seen) for value in self.values))


@dataclass(frozen=True)
class Derived:
    """What a model writes once it has read a text: a summary, or a decision that the text is needed for."""

    text: str
    fields: tuple[Field, ...]

    def take(self, seen: Seen) -> str:
        """The text."""
        for one in self.fields:
            one.take(seen)
        return self.text


@dataclass(frozen=True)
class Call:
    """One call of a trace."""

    tool: str
    arguments: Mapping[str, Any]
    after: tuple[Field, ...] = ()
    """Texts that a model must have understood before it makes the call, though no argument comes from them."""

    def write(self, seen: Seen) -> dict[str, Any]:
        """Its arguments, as a model writes them that has seen this much."""
        return {name: _written(value, seen) for name, value in self.arguments.items()}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a user asks for, the calls that do it, and how to tell that it is done."""

    id: str
    who: Who
    prompt: str
    calls: tuple[Call, ...]
    is_done: Callable[[World], bool]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What an attacker wants: a text that is planted, the calls of a model that obeys it, and how to tell."""

    id: str
    text: str
    calls: tuple[Call, ...]
    is_reached: Callable[[World], bool]
    places: tuple[str, ...] = ()
    """Where the text is planted; by default in every free text of outsiders that the task reads."""


def call(tool: str, *after: Field, **arguments: Any) -> Call:
    """One call of a trace."""
    return Call(tool, arguments, after)


def task(id: str, who: Who, prompt: str, *calls: Call, done: Callable[[World], bool]) -> Task:  # noqa: A002 -- as the field
    """A task of a user."""
    return Task(id=id, who=who, prompt=prompt, calls=calls, is_done=done)


def _first_row(rows: Any, where: Mapping[str, str]) -> Any:
    for row in rows:
        if all(text in str(row[key]) for key, text in where.items()):
            return row
    raise LookupError(f"no row has {where}")


def _match(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise LookupError(f"{pattern} is not in {text!r}")
    return match[1] if match.re.groups else match[0]


def _written(value: Any, seen: Seen) -> Any:
    if isinstance(value, Field | Anywhere | Text | Derived):
        return value.take(seen)
    if isinstance(value, list):
        return [_written(item, seen) for item in value]
    if isinstance(value, dict):
        return {key: _written(item, seen) for key, item in value.items()}
    return value
