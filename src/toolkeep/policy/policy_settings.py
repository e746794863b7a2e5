"""Policy configuration of a keep. Imports no policy engine, so that listing tools stays cheap."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from toolkeep.definitions.capability import Capability
from toolkeep.flow.flow_settings import FlowSettings
from toolkeep.sandbox.trusted_paths import TrustedPath


class PolicySource(msgspec.Struct, frozen=True, kw_only=True):
    """A Cedar policy text and its origin."""

    name: str
    text: str
    is_ours: bool = False
    """Whether its policies may use ids with the reserved prefix."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A test case for policies: a call, or the first one of a session, that they must allow or deny."""

    place: str
    """Its source position."""
    agent: str
    tool: str
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    is_allowed: bool
    policy: str = ""
    """The policy that should decide it; empty for any."""
    asks: bool | str | None = None
    """Whether a policy should ask a person, or which one; None if either is right."""
    said: str = ""
    """What the user says before the call."""
    result: Any = UNSET
    """What the call returns; unset for text that no label describes."""
    then: "tuple[Example, ...]" = ()
    """The calls that follow in its session."""

    @property
    def tools(self) -> set[str]:
        """The names of the tools that it calls."""
        return {call.tool for call in (self, *self.then)}

    @property
    def named_policies(self) -> set[str]:
        """The ids of the policies that should decide."""
        named = (one for call in (self, *self.then) for one in (call.policy, call.asks))
        return {one for one in named if isinstance(one, str)}


DEFAULT_PERMISSIONS: Final = ("tool.filesystem.read", "tool.knowledge.read", "tool.vcs.read")

KNOWN_PERMISSIONS: Final = frozenset(
    {
        *DEFAULT_PERMISSIONS,
        "tool.filesystem.write", "tool.network.fetch", "tool.network.send", "tool.database.read",
        "tool.database.write", "tool.code.execute", "tool.api.call", "tool.knowledge.write",
        "tool.communication.send", "tool.system.run", "tool.vcs.write",
    }
)  # fmt: skip
"""The permissions of POL-3; configuration may add others."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities and permissions granted to one agent."""

    capabilities: tuple[Capability, ...] = ()
    permissions: tuple[str, ...] = ()

    @classmethod
    def read(cls, *, capabilities: Iterable[str] = (), permissions: Iterable[str] = ()) -> "Grant":
        """A grant from text such as `fs.read:./docs`; ValueError says what is wrong with one."""
        if isinstance(capabilities, str) or isinstance(permissions, str):
            raise TypeError("capabilities and permissions must be lists of strings, not one string")
        return cls(capabilities=tuple(map(Capability.read, capabilities)), permissions=tuple(permissions))

    def without(self, withdrawn: Collection[str]) -> "Grant":
        """What is left without these capabilities, kinds of capabilities and permissions."""
        return Grant(
            capabilities=tuple(
                held for held in self.capabilities if not {str(held), held.kind} & set(withdrawn)
            ),
            permissions=tuple(held for held in self.permissions if held not in withdrawn),
        )


DEFAULT_GRANT: Final = Grant(capabilities=(Capability("fs.read", "."),), permissions=DEFAULT_PERMISSIONS)
"""Default grant of the host's own code and of the command line: read the project, nothing else (POL-8)."""


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Agents, policies, and what is protected."""

    agents: Mapping[str, Grant] = msgspec.field(default_factory=dict)
    permissions: tuple[str, ...] = ()
    """Additional permission names."""
    sources: tuple[PolicySource, ...] = ()
    examples: tuple[Example, ...] = ()
    held_back: str = ""
    """Why every call is denied: policies of a project that nobody accepted yet."""
    project: str = ""
    """The folder that grants are relative to; by default the working folder."""
    state_folder: str | None = None
    files: tuple[TrustedPath, ...] = ()
    """Files that the configuration makes this process read or write. They belong to the trusted paths: a tool
    that replaced one by a link would make the host read or write another file."""
    unconfined: tuple[str, ...] = ()
    """What runs unconfined where this machine cannot confine it, by name or path."""
    flow: FlowSettings | None = None
    """How what passes between calls is guarded; None if it is not."""
    watches_drift: bool = False
    """Whether it is told when an agent does what it never did before."""
    is_paranoid: bool = False
    """Whether calls of low danger need approval too."""
    wait_s: float = 0.0
    """How long a call waits for an approval from another process; zero if nobody watches the queue."""


NO_POLICY_SETTINGS: Final = PolicySettings()


def sources_of(texts: Iterable[str]) -> tuple[PolicySource, ...]:
    """Policy texts of the host's program, as sources."""
    if isinstance(texts, str):
        raise TypeError("policies must be a list of strings, not one string")
    return tuple(PolicySource(name=f"policies {n}", text=text) for n, text in enumerate(texts, start=1))
