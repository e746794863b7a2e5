"""toolkeep: a keep without the built-in tool."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import toolkeep
from rivals.registry import CallKind
from workloads.real import RealTool, define

_numbers = itertools.count()


class ToolkeepRegistry:
    """The public API as it comes. Each stands for a project of its own, so that none finds another's pins."""

    name: ClassVar[str] = "toolkeep"
    package: ClassVar[str] = "toolkeep"
    timed: ClassVar[str] = "Keep.register, get (a miss: try_get, which explains nothing), tools, search"
    is_async: ClassVar[bool] = False

    def __init__(self) -> None:
        keep = toolkeep.open_keep(project=f"no-such-project-{next(_numbers)}", built_in=False)

        def explain(name: str) -> object:
            try:
                return keep.get(name)
            except toolkeep.ToolkeepError as error:
                return error

        self.keep = keep
        self.calls: Mapping[CallKind, Callable[[str], Any]] = {
            "look up, exact name": keep.get,
            "look up, other case": keep.get,
            "a miss": keep.try_get,
            "a miss, with the nearest name": explain,
            "a call of an unknown tool, refused": lambda name: keep.try_validate_arguments(name, {}),
            "list all, by the tool": lambda _: keep.tools(),
            "search, a sentence": keep.search,
        }

    def register(self, *tools: Any) -> None:
        self.keep.register(*(define(*tool) if isinstance(tool, RealTool) else tool for tool in tools))
