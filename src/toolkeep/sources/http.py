"""Tools that an HTTP API answers, from code; `run.http` of a configuration says the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkeep.config.settings import Run
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.network.endpoint import Endpoint
from toolkeep.registry.given import Offer, name_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSource:
    """An HTTP API that answers tools.

        shop = HttpSource(url="https://api.example.org/v1", headers={"Authorization": "Bearer {secret:key}"})
        keep.register(shop.tool(definition, "/books/{title}", method="GET"))

    `{name}` in the path is filled with an argument, `{secret:name}` in a header with a secret of the tool.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def tool(
        self, definition: ToolDefinition | Mapping[str, Any], path: str = "", *, method: str = "POST"
    ) -> Offer:
        """What `keep.register` takes; raises `DefinitionInvalid` for what cannot be asked."""
        target = {"url": self.url.rstrip("/") + path, "method": method, "headers": dict(self.headers)}
        try:
            Endpoint.read(target)
        except ValueError as error:
            mend = "see docs/network.md for what a URL, a method and headers may hold"
            problem = Problem(field="run/http", code=Code.DEFINITION_INVALID, message=str(error), mend=mend)
            raise DefinitionInvalid(name_of(definition), [problem]) from None
        return Offer(tool=definition, runner=Run(kind="http", target=target))
