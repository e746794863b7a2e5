"""What a keep is told about policy: light, so that whoever only lists tools does not load a policy engine."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolkeep.definitions.capability import Capability
from toolkeep.sandbox.trusted import TrustedPath


class PolicySource(msgspec.Struct, frozen=True, kw_only=True):
    """A text of policies, and where it comes from."""

    name: str
    text: str
    is_ours: bool = False
    """Whether its policies may bear ids that are kept for toolkeep."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the policies should allow, or deny: checked before they are used."""

    place: str
    """Where it is written."""
    agent: str
    tool: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    is_allowed: bool
    policy: str = ""
    """The policy that should decide it, where that is said."""


DEFAULT_PERMISSIONS: Final = ("tool.filesystem.read", "tool.knowledge.read", "tool.vcs.read")

KNOWN_PERMISSIONS: Final = frozenset(
    {
        *DEFAULT_PERMISSIONS,
        "tool.filesystem.write", "tool.network.fetch", "tool.network.send", "tool.database.read",
        "tool.database.write", "tool.code.execute", "tool.api.call", "tool.knowledge.write",
        "tool.communication.send", "tool.system.run", "tool.vcs.write",
    }
)  # fmt: skip
"""Those of POL-3; configuration may add others."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent is given."""

    capabilities: tuple[Capability, ...] = ()
    permissions: tuple[str, ...] = ()


DEFAULT_GRANT: Final = Grant(capabilities=(Capability("fs.read", "."),), permissions=DEFAULT_PERMISSIONS)
"""What the host's own code and the person at the command line hold: reading the project (POL-8)."""


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Agents, policies, and what is protected."""

    agents: Mapping[str, Grant] = msgspec.field(default_factory=dict)
    permissions: tuple[str, ...] = ()
    """Names of permissions beside those of POL-3."""
    sources: tuple[PolicySource, ...] = ()
    examples: tuple[Example, ...] = ()
    held_back: str = ""
    """Why nothing may be permitted: policies that nobody accepted yet."""
    project: str = ""
    """The folder that grants are relative to; the working folder unless it is said."""
    state_folder: str | None = None
    files: tuple[TrustedPath, ...] = ()
    """What the configuration has this process itself read or write, by the names that it gives."""
    is_paranoid: bool = False
    """Whether calls of low danger are asked about too."""
    wait_s: float = 0.0
    """How long a call waits for an answer from elsewhere; zero where nobody looks at the queue."""


NO_POLICY_SETTINGS: Final = PolicySettings()
