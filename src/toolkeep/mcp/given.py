"""Which lists of tools agents were given, so that only those hear of a change whose list it changed.

What an agent may not see is no concern of its client, and neither is that it changed. To compare takes as
long as to list: where that is much, everyone is told.
"""

from collections.abc import Iterable
from typing import Final

from toolkeep.calls import RegisteredTool
from toolkeep.keep import Keep

_COMPARED: Final = 200_000
"""Tools, counted for each agent, that are looked at after one change; some tenth of a second."""


class GivenLists:
    """The lists that the agents of one server have."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._marks: dict[str, set[int]] = {}
        """Of the lists that an agent may have; several where one changed between two of its requests."""

    def note(self, agent: str, tools: Iterable[RegisteredTool]) -> None:
        """An agent was given this list, or a part of it."""
        self._marks.setdefault(agent, set()).add(_mark(tools))

    def outdated(self, agents: set[str]) -> set[str]:
        """Those whose list is another by now, or who were given none; from here on they count as told."""
        if len(self._keep) * len(agents) > _COMPARED:
            for agent in agents:
                self._marks.pop(agent, None)
            return agents
        return {agent for agent in agents if self._is_outdated(agent)}

    def _is_outdated(self, agent: str) -> bool:
        if agent not in self._marks:
            return True
        now = {_mark(self._keep.tools(enabled=True, agent=agent))}
        before, self._marks[agent] = self._marks[agent], now
        return before != now


def _mark(tools: Iterable[RegisteredTool]) -> int:
    return hash(frozenset((tool.name, tool.definition_hash) for tool in tools))
