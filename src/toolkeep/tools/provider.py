"""The provider of the built-in tools."""

from collections.abc import Iterable
from typing import Any

from toolkeep.definitions.vocabulary import Tier
from toolkeep.registry.given import Offer
from toolkeep.registry.providers import CORE
from toolkeep.registry.register import tools_of_tier
from toolkeep.tools.agent_hello_world import HelloWorldTool
from toolkeep.tools.catalogue import BUILT_IN_TOOLS, web_search


def built_in(search_url: str = "") -> list[Any]:
    """Every built-in tool; `search_url` is the search engine that `web_search` asks."""
    declared = (*BUILT_IN_TOOLS, web_search(search_url))
    return [HelloWorldTool, *(Offer(tool=tool, runner=runner) for tool, runner in declared)]


class CoreToolsProvider:
    """Offers the built-in tools that the tier includes."""

    name = CORE
    priority = 0

    def __init__(self, tier: Tier, search_url: str = "") -> None:
        self._tier = tier
        self._search_url = search_url

    def get_tool_definitions(self) -> Iterable[Any]:
        """The tools."""
        return tools_of_tier(built_in(self._search_url), self._tier)
