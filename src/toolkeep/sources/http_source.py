"""Tools implemented by an HTTP API, declared in code; the counterpart of `run.http` in a configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkeep.config.settings import Run
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, DefinitionInvalid, Problem
from toolkeep.network.http_endpoint import Endpoint
from toolkeep.registry.coerce import Offer, name_of


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
        """The tool for `keep.register`; raises `DefinitionInvalid` if the request cannot be made."""
        target = {"url": self.url.rstrip("/") + path, "method": method, "headers": dict(self.headers)}
        try:
            Endpoint.read(target)
        except ValueError as error:
            fix = "see docs/network.md for what a URL, a method and headers may hold"
            problem = Problem(field="run/http", code=Code.DEFINITION_INVALID, message=str(error), fix=fix)
            raise DefinitionInvalid(name_of(definition), [problem]) from None
        return Offer(tool=definition, runner=Run(kind="http", target=target))
