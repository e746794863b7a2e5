"""The seam between the benchmarks and a framework's registry of tools."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol

CallKind = Literal[
    "look up, exact name",
    "look up, other case",
    "a miss",
    "a miss, with the nearest name",
    "a call of an unknown tool, refused",
    "list all, by the tool",
    "search, a sentence",
]
"""What is asked of a registry. A listing ignores its argument."""


class Registry(Protocol):
    """An empty registry of one framework."""

    name: ClassVar[str]
    package: ClassVar[str]
    """The distribution that its version is asked of."""
    timed: ClassVar[str]
    """The public calls that are timed, for the footnote."""
    is_async: ClassVar[bool]
    """Whether the calls give something to await."""
    calls: Mapping[CallKind, Callable[[str], Any]]
    """The framework's own bound methods wherever the shape allows; what it cannot do is left out."""

    def __init__(self) -> None: ...

    def register(self, *tools: Any) -> object:
        """Add tools, in one go where the framework can."""
