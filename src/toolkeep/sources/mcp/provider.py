"""The provider of an upstream MCP server: its tools as a person took them over; nothing is started here."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolkeep.config.settings import ConfiguredUpstream, Run
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.roles import read_roles
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import FileUnreadable
from toolkeep.registry.given import Offer
from toolkeep.sources.mcp.importing import Wishes, import_listing
from toolkeep.sources.mcp.listing import Listing, read_listing
from toolkeep.sources.openapi.provider import Taken
from toolkeep.sources.secrets import UpstreamSecrets


class McpProvider:
    """Offers what one server listed."""

    lists_whole_set = True

    def __init__(
        self,
        upstream: ConfiguredUpstream,
        taken: Taken,
        *,
        priority: int,
        listings: Mapping[str, Listing] | None = None,
    ) -> None:
        """`listings` are what servers say now, for whoever compares it with their files."""
        self.name = f"upstream:{upstream.name}"
        self.priority = priority
        self.origin = f"mcp:{upstream.name}"
        self.is_project = upstream.is_project
        self.identity: Mapping[str, str] = {}
        """Who it is, for toolkeep.lock."""
        self.entry = upstream.data
        """What the configuration says of it."""
        self._upstream = upstream
        self._taken = taken
        self._listing = (listings or {}).get(upstream.name)

    def get_tool_definitions(self) -> Iterable[Offer]:
        """An offer for each tool, the reason in it where it cannot be imported."""
        listing = self._listing or self._accepted()
        self.identity = {**listing.server, **_address(self._upstream.written)}
        secrets = UpstreamSecrets(self._upstream.secrets)
        offers = import_listing(listing, wishes_of(self._upstream), self._taken())
        return [_with(offer, secrets) for offer in offers]

    def _accepted(self) -> Listing:
        """The file that was accepted with the configuration."""
        path = Path(self._upstream.folder) / str(self._upstream.data["mcp"])
        listing, digest = read_listing(path)
        if digest != self._upstream.document_hash:
            raise FileUnreadable(str(path), "changed since the configuration was read; start again")
        return listing


def wishes_of(upstream: ConfiguredUpstream) -> Wishes:
    """What the configuration says about a server."""
    data = upstream.data
    return Wishes(
        name=upstream.name,
        capabilities=capabilities_of(data),
        tools=tuple(data.get("tools") or ()),
        dangers={name: Danger.read(level) for name, level in (data.get("danger") or {}).items()},
        roles=read_roles(data.get("flow") or {}),
        target=target_of(data, upstream.folder),
        identity=_address(upstream.written),
    )


def capabilities_of(data: Mapping[str, Any]) -> tuple[Capability, ...]:
    """What a server may reach: what a person granted to it, and its own address."""
    from toolkeep.network.hosts import read_url

    own = [f"net.write:{read_url(data['url'])}"] if "url" in data else []
    return tuple(map(Capability.read, dict.fromkeys((*own, *(data.get("capabilities") or ())))))


def target_of(data: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """How a server is reached."""
    program = ("command", "environment", "code", "idle_s", "between_calls")
    keys = (*program, "url", "headers", "protocol", "oauth")
    base = str(Path(folder).parent)  # the folder of the project, or the home of the user
    return {**{key: data[key] for key in keys if key in data}, "base": base}


def _address(data: Mapping[str, Any]) -> dict[str, str]:
    """Where it is, as the file has it: a lock is read by others, and variables are not theirs."""
    if "url" in data:
        return {"url": str(data["url"])}
    return {"command": " ".join(map(str, data["command"]))}


def _with(offer: Offer, secrets: UpstreamSecrets) -> Offer:
    runner = offer.runner
    if not isinstance(runner, Run):
        return offer
    return replace(offer, runner=Run(kind=runner.kind, target=runner.target, secrets=secrets))
