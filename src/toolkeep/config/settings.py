"""The configuration as frozen data, after files were read, checked and merged.

Structs, because every start makes these classes: as dataclasses they took 5 ms of it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Tier
from toolkeep.limits import DEFAULT_LIMITS, Limits
from toolkeep.policy.settings import Example, PolicySource

if TYPE_CHECKING:
    from toolkeep.config.accepted_code import AcceptedCode
    from toolkeep.documents import Place

EffectKind = Literal["runs", "grants", "loosens"]
RunKind = Literal["python", "command", "process", "http", "wasm", "mcp"]
SecretKind = Literal["env", "file", "keyring"]
UpstreamKind = Literal["openapi", "mcp"]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a file would run, grant or loosen."""

    kind: EffectKind
    what: str
    place: "Place"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What runs a configured tool, named and not yet looked at."""

    kind: RunKind
    target: Any
    secrets: Mapping[str, str] | None = None
    """What the upstream of the tool was given, read when a call needs it; never shown."""
    code: "AcceptedCode | None" = None
    """The files of the project that it is made of, as they were when a person accepted them."""

    def __repr__(self) -> str:
        """Without what may be secret."""
        return f"<run {self.kind}>"


class SecretSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret is read from when a call needs it."""

    kind: SecretKind
    where: str
    """A variable, a path, or `service/name` of the keyring."""


class ConfiguredUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """A server of tools that a file names, as the file has it."""

    name: str
    kind: UpstreamKind
    data: Mapping[str, Any]
    written: Mapping[str, Any]
    """The same before variables were filled in: what others may read, and what is the same everywhere."""
    secrets: Mapping[str, SecretSource]
    folder: str
    """Of the file: what its relative paths begin at."""
    document_hash: str = ""
    """The SHA-256 of its document, as it was when the file was read and accepted."""
    is_project: bool = False


class ConfiguredTool(msgspec.Struct, frozen=True, kw_only=True):
    """A custom tool as a file has it, not yet a definition."""

    data: Any
    name: str
    locate: "Callable[[str], Place]"
    """Where a field of it stands, by its path inside the definition."""
    is_project: bool = False
    """Whether the project's file has it, not the user's."""
    held_back: str = ""
    """Why it may not answer, where it may not."""
    root: str = ""
    """The folder of the project, for a tool of its file."""
    code: Mapping[str, str] = {}
    """The accepted SHA-256 of each file of the project that the file names, by its path there."""


class AgentGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent holds."""

    description: str = ""
    capabilities: tuple[Capability, ...] = ()
    permissions: tuple[str, ...] = ()


class EventWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where events are posted to."""

    url: str
    secret: str
    types: tuple[str, ...] = ()
    """Names of events; none means all that can be posted."""

    def __repr__(self) -> str:
        """Without the secret."""
        return "<event webhook>"


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read, and whether it counts."""

    path: str
    seal: str
    """What a person accepts, as a hash: what the file says in canonical form, what it would do over what
    the user's own files say, and the code that it names."""
    is_project: bool
    effects: tuple[Effect, ...]
    counts: bool
    code: Mapping[str, str] = {}
    """The SHA-256 of each file of the project that its tools are made of, by its path there."""
    content: str = ""
    """What the seal is over, one fact a line, to be compared with what was accepted before."""
    changed_code: tuple[str, ...] = ()
    """Files whose content is another than the one that was accepted."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that configuration decides; the defaults are those of a keep without any."""

    tier: Tier = Tier.ENTERPRISE
    allows_definitions: bool = True
    limits: Limits = DEFAULT_LIMITS
    include_actual_values: bool = True
    validation_failure_level: int = logging.WARNING
    providers: tuple[str, ...] = ()
    disabled: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Disabled tools by `name` or `name@version`, with the place that says so."""
    permissions: tuple[str, ...] = ()
    agents: Mapping[str, AgentGrant] = msgspec.field(default_factory=dict)
    policies: tuple[PolicySource, ...] = ()
    examples: tuple[Example, ...] = ()
    policies_held_back: str = ""
    """Why nothing may be permitted, where policies wait for a person to accept them."""
    is_paranoid: bool = False
    approval_wait_s: float = 0.0
    checkpoint_file: str = ""
    checkpoint_webhook: str = ""
    search_url: str = ""
    """The search engine that `web_search` asks."""
    event_webhook: EventWebhook | None = None
    store_url: str = ""
    """The PostgreSQL that holds definitions and tokens, instead of the state folder."""
    tools: tuple[ConfiguredTool, ...] = ()
    upstreams: Mapping[str, ConfiguredUpstream] = msgspec.field(default_factory=dict)
    """In the order of the files, the user's first."""
    files: tuple[ConfigFile, ...] = ()


DEFAULT_SETTINGS = Settings()
