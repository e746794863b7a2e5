"""The tools of one keep, in memory. Readers see whole snapshots; writers replace the snapshot."""

import logging
import threading
from collections.abc import Sequence

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
        self._ordered: tuple[dict[str, RegisteredTool], list[RegisteredTool]] = ({}, [])
        """A snapshot and its tools in order, worked out when first asked for."""

    def add(self, tool: RegisteredTool) -> RegisteredTool:
        """Register one tool; see `add_all`."""
        return self.add_all([tool])[0]

    def add_all(self, tools: Sequence[RegisteredTool]) -> list[RegisteredTool]:
        """Register tools, all or none, and return what is held now.

        The same definition again is no change; another of the same name is refused.
        """
        with self._lock:
            by_name, by_folded_name = dict(self.by_name), dict(self._by_folded_name)
            held = [_add(tool, by_name, by_folded_name) for tool in tools]
            self._by_folded_name, self.by_name = by_folded_name, by_name
        for tool, holder in zip(tools, held, strict=True):
            if tool is holder:
                _log_registration(tool)
        return held

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of that name or alias, in any case."""
        return self.by_name.get(name) or self._by_folded_name.get(name.casefold())

    def all(self) -> list[RegisteredTool]:
        """Every tool, by category, then by name."""
        snapshot = self.by_name
        if self._ordered[0] is not snapshot:
            order = sorted(snapshot.values(), key=lambda t: (t.definition.category.number, t.name))
            self._ordered = (snapshot, order)
        return list(self._ordered[1])


def _add(
    tool: RegisteredTool, by_name: dict[str, RegisteredTool], by_folded_name: dict[str, RegisteredTool]
) -> RegisteredTool:
    """The tool, or the one that already holds the same definition; raises where a name is another's."""
    names = (tool.name, *tool.definition.aliases)
    for name in names:
        held = by_folded_name.get(name.casefold())
        if held is not None and _is_same(held, tool):
            return held
        if held is not None:
            raise DuplicateTool(name, held_by=f"{held.name} {held.definition.version}")
    by_folded_name.update({name.casefold(): tool for name in names})
    by_name[tool.name] = tool
    return tool


def _is_same(held: RegisteredTool, tool: RegisteredTool) -> bool:
    """Whether both say the same; an agent-tool class is also the same only as itself (DEF-10)."""
    if held.definition_hash != tool.definition_hash:
        return False
    return type(held.runner) is type(tool.runner) or held.runner is None or tool.runner is None


def _log_registration(tool: RegisteredTool) -> None:
    fields = {
        "tool_name": tool.name,
        "version": tool.definition.version,
        "definition_hash": tool.definition_hash,
    }
    log.info("tool registered", extra=fields)
    for warning in tool.warnings:
        log.debug("definition warning", extra={**fields, "field": warning.field})
