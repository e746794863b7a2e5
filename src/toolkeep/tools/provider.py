"""The provider of the built-in tools."""

from collections.abc import Iterable
from typing import Any

from toolkeep.definitions.vocabulary import Tier
from toolkeep.registry.given import Offer
from toolkeep.registry.providers import CORE
from toolkeep.registry.register import tools_of_tier
from toolkeep.tools.agent_hello_world import HelloWorldTool
from toolkeep.tools.catalogue import BUILT_IN_TOOLS

BUILT_IN = (HelloWorldTool, *(Offer(tool=tool, runner=runner) for tool, runner in BUILT_IN_TOOLS))


class CoreToolsProvider:
    """Offers the built-in tools that the tier includes."""

    name = CORE
    priority = 0

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    def get_tool_definitions(self) -> Iterable[Any]:
        """The tools."""
        return tools_of_tier(BUILT_IN, self._tier)
