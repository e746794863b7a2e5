"""The tools of one keep, in memory. Readers see whole snapshots; writers replace the snapshot."""

import logging
import threading

from toolkeep.calls import RegisteredTool
from toolkeep.errors import DuplicateTool

log = logging.getLogger("toolkeep.registry")


class ToolRegistry:
    """Registered tools by name and alias; look-up ignores case."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_name: dict[str, RegisteredTool] = {}
        """Tools by exact name; replaced as a whole, never changed."""
        self._by_folded_name: dict[str, RegisteredTool] = {}

    def add(self, tool: RegisteredTool) -> RegisteredTool:
        """Register a tool. The same definition again is no change; another of the same name is refused."""
        with self._lock:
            names = (tool.name, *tool.definition.aliases)
            for name in names:
                held = self._by_folded_name.get(name.casefold())
                if held is None:
                    continue
                if _is_same(held, tool):
                    return held
                raise DuplicateTool(name, held_by=f"{held.name} {held.definition.version}")
            folded = {name.casefold(): tool for name in names}
            self._by_folded_name = {**self._by_folded_name, **folded}
            self.by_name = {**self.by_name, tool.name: tool}
        _log_registration(tool)
        return tool

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of that name or alias, in any case."""
        return self.by_name.get(name) or self._by_folded_name.get(name.casefold())

    def all(self) -> list[RegisteredTool]:
        """Every tool, by category, then by name."""
        return sorted(self.by_name.values(), key=lambda t: (t.definition.category.number, t.name))


def _is_same(held: RegisteredTool, tool: RegisteredTool) -> bool:
    """The same definition; the name of an agent-tool class on another class is no repetition (DEF-10)."""
    runs = (held.runner, tool.runner)
    is_other_class = None not in runs and type(held.runner) is not type(tool.runner)
    return held.definition_hash == tool.definition_hash and not is_other_class


def _log_registration(tool: RegisteredTool) -> None:
    fields = {
        "tool_name": tool.name,
        "version": tool.definition.version,
        "definition_hash": tool.definition_hash,
    }
    log.info("tool registered", extra=fields)
    for warning in tool.warnings:
        log.debug("definition warning", extra={**fields, "field": warning.field})
