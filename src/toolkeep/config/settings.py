"""The configuration as frozen data, after files were read, checked and merged.

Structs, because every start creates these classes: dataclasses took 5 ms longer.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from toolkeep.config.fleet_settings import FleetSettings, WorkerSettings
from toolkeep.config.identity_settings import IdentitySettings
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.vocabulary import Tier
from toolkeep.flow.flow_settings import FlowSettings
from toolkeep.limits import DEFAULT_LIMITS, LISTED_NAMES, UNDO_DAYS, Limits
from toolkeep.policy.policy_settings import Example, PolicySource
from toolkeep.text.display import visible

if TYPE_CHECKING:
    from toolkeep.config.accepted_code import AcceptedCode
    from toolkeep.json_values.yaml import Place

EffectKind = Literal["runs", "grants", "loosens"]
RunKind = Literal["python", "command", "process", "http", "wasm", "mcp"]
SecretKind = Literal["env", "file", "keyring", "stored"]
UpstreamKind = Literal["openapi", "mcp"]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a file would run, grant or loosen."""

    kind: EffectKind
    what: str
    locate: "Callable[[], Place]"

    @property
    def place(self) -> "Place":
        """Where the file says it."""
        return self.locate()


class CodeCopy(msgspec.Struct, frozen=True):
    """Code that is imported from a copy, so that its source can change meanwhile."""

    sources: tuple[str, ...]
    """The files and package folders of the source. No tool may write them: it would choose the next
    version."""
    variables: tuple[tuple[str, str], ...]
    """Environment variables that tell a worker what the copied code is called."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The runner of a configured tool, named and not resolved yet."""

    kind: RunKind
    target: Any
    secrets: Mapping[str, str] | None = None
    """The secrets of the tool's upstream, read when a call needs them; never shown."""
    code: "AcceptedCode | None" = None
    """The project's files that it consists of, as accepted by a person."""
    places: tuple[str, ...] = ()
    """The files and package folders of Python code, where its source located them; empty: search by name."""
    metadata: tuple[str, ...] = ()
    """The metadata folder of their distribution, where that is not installed here."""
    copy: CodeCopy | None = None
    """What `places` are a copy of, if they are one."""

    @property
    def seen(self) -> tuple[str, ...]:
        """What its workers see of it, where that is known."""
        return (*self.places, *self.metadata)

    def __repr__(self) -> str:
        """Without secrets."""
        return f"<run {self.kind}>"


class SecretSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret is read from when a call needs it."""

    kind: SecretKind
    where: str
    """A variable, a path, `service/name` of the keyring, or a name among those stored for the upstream."""


class ConfiguredUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream that a file names, as in the file."""

    name: str
    kind: UpstreamKind
    data: Mapping[str, Any]
    written: Mapping[str, Any]
    """The same before variables were resolved: safe to show, and the same on every machine."""
    secrets: Mapping[str, SecretSource]
    folder: str
    """The folder of the file: relative paths start there."""
    document_hash: str = ""
    """The SHA-256 of its document when the file was read and accepted."""
    is_project: bool = False


class ConfiguredTool(msgspec.Struct, frozen=True, kw_only=True):
    """A custom tool as in a file, not yet a definition."""

    data: Any
    name: str
    locate: "Callable[[str], Place]"
    """The position of a field, by its path inside the definition."""
    is_project: bool = False
    """Whether it is from the project's file, not the user's."""
    held_back: str = ""
    """Why it is quarantined; empty if it is not."""
    root: str = ""
    """The project folder, for a tool of the project's file."""
    code: Mapping[str, str] = {}
    """The accepted SHA-256 of each project file that the file names, by path."""


class ConfiguredToolsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A Python file or module of tools that a file names."""

    name: str
    root: str
    """The folder that its path starts from: that of the project, or the user's home."""
    is_project: bool
    code: Mapping[str, str]
    """The accepted SHA-256 of each project file that the configuration names, by path; empty for the user's
    own file."""


class AgentGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The grant of one agent."""

    description: str = ""
    capabilities: tuple[Capability, ...] = ()
    permissions: tuple[str, ...] = ()


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL that several servers share."""

    url: str
    key: str = ""
    """The servers' own, which the database never sees; empty for a keep that is alone on it."""
    key_file: str = ""
    """Where the key is read from instead."""
    is_single: bool = False
    """Whether it has no replica."""

    def __repr__(self) -> str:
        """Without password and key."""
        return "<database>"


class EventWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where events are posted."""

    url: str
    secret: str
    types: tuple[str, ...] = ()
    """Names of events; empty for all that can be posted."""

    def __repr__(self) -> str:
        """Without the secret."""
        return "<event webhook>"


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read, and whether it is in force."""

    path: str
    seal: str
    """The hash of what a person accepts: the file in canonical form, its effects over the user's own files,
    and the code that it names."""
    is_project: bool
    effects: tuple[Effect, ...]
    counts: bool
    code: Mapping[str, str] = {}
    """The SHA-256 of each project file that its tools consist of, by path."""
    content: str = ""
    """The sealed content, one fact for each line, to compare with what was accepted before."""
    changed_code: tuple[str, ...] = ()
    """Files whose content differs from what was accepted."""
    is_changed: bool = False
    """Whether it, or a policy or document that it names, differs from what was accepted."""

    @property
    def why_held_back(self) -> str:
        """Why nothing of it is in effect, for the operator."""
        path = visible(self.path)
        if self.is_changed:
            return f"{path}, or a file that it names, changed since you accepted it"
        if changed := ", ".join(map(visible, self.changed_code[:LISTED_NAMES])):
            return f"{changed} changed since you accepted {path}"
        return f"{path} is not accepted yet: it would run, grant or loosen something"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that configuration decides; the defaults are those of a keep without any."""

    tier: Tier = Tier.ENTERPRISE
    allows_definitions: bool = True
    limits: Limits = DEFAULT_LIMITS
    include_actual_values: bool = True
    validation_failure_level: int = logging.WARNING
    providers: tuple[str, ...] = ()
    disabled: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Disabled tools by `name` or `name@version`, with the position that says so."""
    permissions: tuple[str, ...] = ()
    agents: Mapping[str, AgentGrant] = msgspec.field(default_factory=dict)
    policies: tuple[PolicySource, ...] = ()
    examples: tuple[Example, ...] = ()
    policies_held_back: str = ""
    """Why nothing is permitted, while policies wait for a person to accept them."""
    unconfined: tuple[str, ...] = ()
    """Names and absolute paths of what runs unconfined where this machine cannot confine it."""
    is_paranoid: bool = False
    watches_drift: bool = False
    """Whether it is told when an agent does what it never did before."""
    flow: FlowSettings | None = None
    """How what passes between calls is guarded; None if it is not."""
    approval_wait_s: float = 0.0
    checkpoint_file: str = ""
    checkpoint_webhook: str = ""
    witnesses: Mapping[str, str] = msgspec.field(default_factory=dict)
    """URLs of the witnesses that cosign the log, with their keys."""
    witness_for: tuple[str, ...] = ()
    """Keys of the logs that a server of this keep cosigns."""
    undo_days: float = UNDO_DAYS
    """How long what built-in tools replace is kept; 0 for not at all."""
    search_url: str = ""
    """The search engine of `web_search`."""
    event_webhook: EventWebhook | None = None
    database: DatabaseSettings | None = None
    """The PostgreSQL that several servers share, instead of files in the state folder."""
    fleet: FleetSettings | None = None
    """Workers on other machines."""
    worker: WorkerSettings | None = None
    """What this machine does as a worker."""
    identity: IdentitySettings | None = None
    """Issuers whose access tokens a server takes."""
    tools: tuple[ConfiguredTool, ...] = ()
    tools_files: tuple[ConfiguredToolsFile, ...] = ()
    upstreams: Mapping[str, ConfiguredUpstream] = msgspec.field(default_factory=dict)
    """In the order of the files, the user's first."""
    files: tuple[ConfigFile, ...] = ()


DEFAULT_SETTINGS = Settings()
