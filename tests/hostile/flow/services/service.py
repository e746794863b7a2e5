"""What every service has: places that outsiders can write, and the marks of its tools."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from toolkeep import FunctionTool, tool

P = ParamSpec("P")
R = TypeVar("R")
Row = dict[str, Any]
Labels = Mapping[str, Any]

LABELS: dict[str, Labels] = {}
"""The labels of each tool's result, as its definition states them."""
ACTS: set[str] = set()
"""The tools that change something."""


def reads(labels: Labels) -> Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """A tool that only reads."""

    def mark(function: Callable[P, R]) -> FunctionTool[P, R]:
        LABELS[function.__name__] = labels
        return tool(effects="reads", flow=labels)(function)

    return mark


def acts(labels: Labels) -> Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """A tool that changes something; every act of the suite is of medium danger."""

    def mark(function: Callable[P, R]) -> FunctionTool[P, R]:
        LABELS[function.__name__] = labels
        ACTS.add(function.__name__)
        return tool(effects="writes", danger="medium", flow=labels)(function)

    return mark


class Service:
    """State of one service. Text that is planted in a place is shown in every field of that kind.

    Searching looks at the original text alone, so that a planted text changes no trace.
    """

    texts: ClassVar[tuple[str, ...]]
    """Free text that outsiders write."""
    names: ClassVar[tuple[str, ...]] = ()
    """Short values that outsiders choose, such as their own address: planting adds an entry with that value."""

    _newest: ClassVar[dict[type, Any]] = {}

    def __init__(self) -> None:
        self._planted: dict[str, str] = {}
        self._newest[type(self)] = self

    @classmethod
    def here(cls) -> Self:
        """The service of the scenario that is being played."""
        newest: Self = cls._newest[cls]
        return newest

    def plant(self, place: str, text: str) -> None:
        """Let an outsider write a text into a place."""
        if place in self.names:
            self.add_stranger(place, text)
        elif place in self.texts:
            self._planted[place] = text
        else:
            raise ValueError(f"outsiders cannot write {place!r}")

    def add_stranger(self, place: str, name: str) -> None:
        """Add an entry whose short value an outsider chose."""
        raise NotImplementedError

    def shown(self, place: str, text: str) -> str:
        """A field as a reader sees it."""
        planted = self._planted.get(place)
        return f"{text}\n{planted}" if planted else text


def first(rows: list[Row], **fields: Any) -> Row | None:
    """The first row with these values."""
    return next((row for row in rows if all(row[key] == value for key, value in fields.items())), None)
