"""Provider of an upstream MCP server: offers its pinned tools. Nothing is started here."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolkeep.config.settings import ConfiguredUpstream, Run
from toolkeep.definitions.argument_roles import read_tool_flows
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Danger, SideEffect
from toolkeep.errors import FileUnreadable
from toolkeep.mcp_client.item_import import import_items
from toolkeep.mcp_client.packages.package_trees import with_program
from toolkeep.mcp_client.pinned_tools import PinnedTools, read_listing
from toolkeep.mcp_client.tool_import import ImportOptions, import_listing
from toolkeep.registry.coerce import Offer
from toolkeep.sources.openapi.provider import Taken
from toolkeep.sources.secret_sources import UpstreamSecrets

if TYPE_CHECKING:
    from toolkeep.registry.admit import AdmittedBefore
    from toolkeep.registry.lockfile import LockedPackage


class McpProvider:
    """Offers the pinned tools of one server."""

    lists_whole_set = True

    def __init__(
        self,
        upstream: ConfiguredUpstream,
        taken: Taken,
        *,
        priority: int,
        listings: Mapping[str, PinnedTools] | None = None,
        state: Path | None = None,
        admitted: "AdmittedBefore | None" = None,
    ) -> None:
        """`listings` holds what servers list now, to compare it with the pinned files.

        `state` is the folder in which the packages of servers are installed; `admitted` is what the keep
        admitted before.
        """
        self.name = f"upstream:{upstream.name}"
        self.priority = priority
        self.origin = f"mcp:{upstream.name}"
        self.is_project = upstream.is_project
        self.identity: Mapping[str, str] = {}
        """Identity of the server for toolkeep.lock."""
        self.packages: tuple[LockedPackage, ...] = ()
        """What its program consists of, for toolkeep.lock."""
        self._state = state
        self._admitted = admitted
        self.entry = upstream.data
        """Its entry in the configuration."""
        self._upstream = upstream
        self._taken = taken
        self._listing = (listings or {}).get(upstream.name)

    def get_tool_definitions(self) -> Iterable[Offer]:
        """One offer per tool; a tool that cannot be imported carries the reason."""
        listing = self._listing or self.listing()
        self.identity = {**listing.server, **_address(self._upstream.written)}
        self.packages = listing.locked_packages()
        stored = self._state / "secrets" / self._upstream.name if self._state else None
        secrets = UpstreamSecrets(self._upstream.secrets, stored)
        wishes, taken = import_options_of(self._upstream), self._taken()
        if self._state is not None:
            wishes = replace(wishes, target=with_program(wishes.target, listing.packages, self._state))
        offers = [
            *import_listing(listing, wishes, taken, self._admitted),
            *import_items(listing, wishes, taken),
        ]
        return [_with(offer, secrets) for offer in offers]

    def listing(self) -> PinnedTools:
        """The pinned list; must have the hash that was accepted with the configuration."""
        path = Path(self._upstream.folder) / str(self._upstream.data["mcp"])
        listing, digest = read_listing(path)
        # The file could be swapped between the check of the configuration and this read (TOCTOU).
        if digest != self._upstream.document_hash:
            raise FileUnreadable(str(path), "changed since the configuration was read; start again")
        return listing


def import_options_of(upstream: ConfiguredUpstream) -> ImportOptions:
    """Import options of an upstream."""
    data = upstream.data
    return ImportOptions(
        name=upstream.name,
        capabilities=capabilities_of(data),
        tools=tuple(data.get("tools") or ()),
        prompts=tuple(data.get("prompts") or ()),
        resources=tuple(data.get("resources") or ()),
        completions=tuple(data.get("completions") or ()),
        subscriptions=tuple(data.get("subscriptions") or ()),
        dangers={name: Danger.read(level) for name, level in (data.get("danger") or {}).items()},
        effects={name: SideEffect.read(word) for name, word in (data.get("effects") or {}).items()},
        flows=read_tool_flows(data.get("flow") or {}),
        target=target_of(data, upstream.folder),
        identity=_address(upstream.written),
    )


def capabilities_of(data: Mapping[str, Any]) -> tuple[Capability, ...]:
    """Capabilities of a server: its grant, and its own address."""
    from toolkeep.network.hosts import read_url

    own = [f"net.write:{read_url(data['url']).scope}"] if "url" in data else []
    return tuple(map(Capability.read, dict.fromkeys((*own, *(data.get("capabilities") or ())))))


def target_of(data: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Connection settings of a server."""
    program = ("command", "environment", "code", "idle_s", "between_calls")
    keys = (*program, "url", "headers", "protocol", "oauth", "start_timeout_s")
    base = str(Path(folder).parent)  # the folder of the project, or the home of the user
    return {**{key: data[key] for key in keys if key in data}, "base": base}


def _address(data: Mapping[str, Any]) -> dict[str, str]:
    """Its address as written: the lock file is shared, so variables must not be expanded in it."""
    if "url" in data:
        return {"url": str(data["url"])}
    return {"command": " ".join(map(str, data["command"]))}


def _with(offer: Offer, secrets: UpstreamSecrets) -> Offer:
    runner = offer.runner
    if not isinstance(runner, Run):
        return offer
    return replace(offer, runner=Run(kind=runner.kind, target=runner.target, secrets=secrets))
