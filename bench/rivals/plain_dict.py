"""The yardstick: a dict from names to tools."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rivals.registry import CallKind


class PlainDict:
    """What any registry holds at heart."""

    name: ClassVar[str] = "dict"
    package: ClassVar[str] = ""
    timed: ClassVar[str] = "__getitem__ (a miss: get), list(values())"
    is_async: ClassVar[bool] = False

    def __init__(self) -> None:
        self._tools: dict[str, Any] = {}
        self.calls: Mapping[CallKind, Callable[[str], Any]] = {
            "look up, exact name": self._tools.__getitem__,
            "a miss": self._tools.get,
            "list all, by the tool": lambda _: list(self._tools.values()),
        }

    def register(self, *tools: Any) -> None:
        self._tools.update((tool.__name__, tool) for tool in tools)
