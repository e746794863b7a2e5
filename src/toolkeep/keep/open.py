"""Assemble a keep: the only module that imports every source, store and stage."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from toolkeep.config.paths import PROJECT_FILE, config_paths, find_project, home_folder, outer_projects
from toolkeep.config.settings import DEFAULT_SETTINGS, Settings
from toolkeep.config.upstream_rules import document_of
from toolkeep.definitions.vocabulary import Tier
from toolkeep.errors import FileUnreadable, NotAccepted, ProviderFailed, StateUnusable
from toolkeep.flow.flow_settings import read_flow
from toolkeep.keep.keep import Keep
from toolkeep.limits import DEFAULT_CALL_LIMITS, CallLimits, Limits
from toolkeep.policy.policy_settings import Grant, PolicySettings, PolicySource, sources_of
from toolkeep.registry.registry import LockedSets
from toolkeep.registry.tiers import check_formats
from toolkeep.registry.tool_provider import CONFIG, PROJECT, ToolProvider
from toolkeep.sandbox.trusted_paths import ReplacedFile, TrustedPath
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.storage.state_folder import note_project, protected_folder, state_folder
from toolkeep.stores.registry_state import MemoryState
from toolkeep.telemetry.logs import LogListener
from toolkeep.text.display import visible
from toolkeep.tools.catalog import CoreToolsProvider

if TYPE_CHECKING:
    from toolkeep.approval.approval_store import Approvals
    from toolkeep.approval.approver import Approver
    from toolkeep.config.read import Parse
    from toolkeep.config.settings import EventWebhook
    from toolkeep.config.tools_file import ToolsFile
    from toolkeep.definitions.found_tool import FoundTool
    from toolkeep.execution.module_reader import ModuleReader
    from toolkeep.fleet.fleet_runner import FleetRunner, GrantOf
    from toolkeep.fleet.identity import PrivateKey
    from toolkeep.keep.hooks import AfterHook, BeforeHook
    from toolkeep.mcp_client.elicitation import Answerer
    from toolkeep.mcp_client.pinned_tools import PinnedTools
    from toolkeep.mcp_client.upstream_provider import McpProvider
    from toolkeep.registry.admit import AdmittedBefore
    from toolkeep.registry.coerce import Offer
    from toolkeep.registry.lockfile import Lock
    from toolkeep.results.output_check import Normalizers
    from toolkeep.sources.openapi.provider import OpenApiProvider
    from toolkeep.sources.tools_file_source import Read
    from toolkeep.storage.log.witness_folder import Witness
    from toolkeep.storage.postgres.sessions_table import PostgresSessionStates
    from toolkeep.storage.postgres.shared_state import SharedState
    from toolkeep.storage.sql.definition_store import SqlDefinitionStore
    from toolkeep.storage.sqlite.sessions_db import SqliteSessionStates
    from toolkeep.storage.sqlite.sign_in_codes import SignInCodes
    from toolkeep.stores.api_tokens import Tokens
    from toolkeep.stores.definitions import BrokenDefinition, StoredDefinition
    from toolkeep.stores.records import KeepRecord
    from toolkeep.stores.registry_state import RegistryState
    from toolkeep.stores.sign_ins import SignInStore
    from toolkeep.telemetry.webhook import Webhook
    from toolkeep.tools.view_tools import Reader
    from toolkeep.validation.schema_engine import Formats


class AgentKeywords(TypedDict, total=False):
    """What an agent holds, as `Keep.declare_agent` takes it."""

    capabilities: Sequence[str]
    permissions: Sequence[str]


def open_keep(
    *,
    project: Path | str | None = None,
    services: Sequence[object] = (),
    limits: Limits | None = None,
    include_actual_values: bool = True,
    built_in: bool = True,
    formats: "Formats | None" = None,
    normalizers: "Normalizers | None" = None,
    call_limits: CallLimits = DEFAULT_CALL_LIMITS,
    tool_secrets: Mapping[str, Mapping[str, str]] | None = None,
    before_call: "Sequence[BeforeHook]" = (),
    after_call: "Sequence[AfterHook]" = (),
    approver: "Approver | None" = None,
    answerer: "Answerer | None" = None,
    approval_wait_s: float | None = None,
    default_wait_s: float = 0.0,
    permissions: Sequence[str] = (),
    policies: Sequence[str] = (),
    agents: Mapping[str, AgentKeywords] | None = None,
    paranoid: bool = False,
    flow: Mapping[str, Any] | None = None,
    reader: "Reader | None" = None,
    follow_store: bool | None = None,
) -> Keep:
    """A keep that is ready to use, with the tools of `.agent/config.yml` where there is one.

    `project` is the folder to look in, by default the working folder and those above it. `services` are
    handed to the constructors of agent-tool classes by type; `limits` go over the configured ones;
    `include_actual_values=False` keeps every value out of every error; `built_in=False` starts without the
    built-in tools; `formats` are checks of your own for `format` in schemas; `normalizers` make results of
    tools with `normalization: custom` comparable; `call_limits` bound how many calls run at once;
    `tool_secrets` are what `context.secret` gives, by tool; `before_call` are hooks that may change arguments
    before they are validated, `after_call` those that may change results before they are checked;
    `approver` asks a person where one must agree; `approval_wait_s` is how long a call waits for one
    elsewhere, instead of as configured, and `default_wait_s` where nothing is configured;
    `permissions` are names that your tools may require, beside the known ones and those of the configuration;
    `policies` are Cedar texts, `agents` what each agent holds, as `declare_agent` takes it, and `paranoid`
    has calls of low danger asked about too; beside a configuration they can only be stricter; `flow`
    guards what passes between calls, as the key of the configuration does: `{"policy": "standard"}`;
    `reader` answers questions about a text where views are typed: it gets the text, the question and a JSON
    Schema of the answer;
    `answerer` asks a person what upstream MCP servers want to know; without one they are told no;
    `follow_store` is whether changes that others make in the store are taken over while the keep is open, by
    default where the store is a PostgreSQL.
    """
    root = project_folder(project)
    state = open_state(root)
    settings = read_configuration(root, state)
    store = open_store(settings, state)
    shared = _open_shared(settings, state)
    admitted = _admitted_before(state, limits or settings.limits)
    keep = Keep(
        services=services,
        limits=limits or settings.limits,
        include_actual_values=include_actual_values and settings.include_actual_values,
        tier=settings.tier,
        formats=_guarded(formats, settings.tier) if formats else None,
        normalizers=normalizers,
        call_limits=call_limits,
        tool_secrets=tool_secrets,
        before_call=before_call,
        after_call=after_call,
        sign_ins=sign_ins_of(state),
        closed=settings.disabled,
        policy=_with_arguments(
            _policy_settings(settings, root, state, approval_wait_s, default_wait_s, permissions),
            sources_of(policies),
            agents or {},
            is_paranoid=paranoid,
            flow=flow,
        ),
        approver=approver,
        answerer=answerer,
        state=shared.keep_state() if shared else state,
        locked=_locked_sets(root, settings),
        store=store,
        offer_of=_offer_stored,
        allows_definitions=settings.allows_definitions,
        record=partial(_open_record, state, settings, root, shared) if state else None,
        shared=shared,
        fleet=_fleet(settings, state, root),
        logs=LogListener(validation_failure_level=settings.validation_failure_level),
        admitted=admitted,
    )
    providers: list[ToolProvider] = (
        [CoreToolsProvider(settings.tier, settings.search_url)] if built_in else []
    )
    if keep.has_typed_views:
        from toolkeep.tools.view_tools import ViewToolsProvider

        providers.append(ViewToolsProvider(reader))
    named, failed = _named_providers(settings)
    upstreams = upstream_providers(settings, keep, state=state, admitted=admitted)
    stored = _store_providers(store, keep)
    files, unfound = _tools_file_providers(settings, keep, root)
    own = [*providers, *_config_providers(settings), *files, *upstreams, *stored]
    keep.load(*named, own=own, failed=[*failed, *unfound])
    keep.hold_back(*(file for file in settings.files if not file.counts))
    if settings.event_webhook is not None:
        keep.post_events(_new_webhook(settings.event_webhook, state))
    if follow_store or (follow_store is None and settings.database):
        keep.follow_store()
    return keep


def _fleet(
    settings: Settings, state: KeepState | None, root: Path
) -> "Callable[[GrantOf], FleetRunner] | None":
    """What sends calls to workers on other machines, where the configuration names some."""
    if settings.fleet is None or state is None:
        return None
    from toolkeep.fleet.fleet_runner import FleetRunner

    return partial(FleetRunner, settings.fleet, partial(server_key, state), str(root))


def server_key(state: KeepState) -> "PrivateKey":
    """The key by which workers know this server."""
    from toolkeep.fleet.identity import load_key

    return load_key(Path(state.folder) / "fleet" / "server.key")


def _admitted_before(state: KeepState | None, limits: Limits) -> "AdmittedBefore | None":
    """The definitions that were admitted before; None where nothing is stored yet: a start makes no state."""
    if state is None or not os.path.isdir(state.folder):  # noqa: PTH112 -- never raises
        return None
    from toolkeep.storage.start_cache import AdmittedDefinitions

    return AdmittedDefinitions(state.folder, limits)


def _guarded(formats: "Formats", tier: Tier) -> "Formats":
    from toolkeep.validation.compile import guarded_formats

    check_formats(tier)
    return guarded_formats(formats)


def sign_ins_of(state: KeepState | None) -> "SignInStore | None":
    """Where the OAuth tokens for upstream servers are stored; None for a user without a home directory."""
    if state is None:
        return None
    from toolkeep.storage.upstream_tokens import FileSignIns

    return FileSignIns(state.folder)


def _policy_settings(
    settings: Settings,
    project: Path,
    state: KeepState | None,
    wait_s: float | None,
    default_wait_s: float,
    permissions: Sequence[str],
) -> PolicySettings:
    grants = {
        name: Grant(capabilities=held.capabilities, permissions=held.permissions)
        for name, held in settings.agents.items()
    }
    return PolicySettings(
        agents=grants,
        permissions=(*settings.permissions, *permissions),
        sources=settings.policies,
        examples=settings.examples,
        held_back=settings.policies_held_back,
        project=str(project),
        state_folder=str(protected_folder(state.folder)) if state else None,
        files=tuple(trusted_files(settings)),
        unconfined=settings.unconfined,
        flow=settings.flow,
        is_paranoid=settings.is_paranoid,
        watches_drift=settings.watches_drift,
        wait_s=settings.approval_wait_s or default_wait_s if wait_s is None else wait_s,
    )


def _with_arguments(
    configured: PolicySettings,
    policies: Sequence[PolicySource],
    agents: Mapping[str, AgentKeywords],
    *,
    is_paranoid: bool,
    flow: Mapping[str, Any] | None,
) -> PolicySettings:
    """The settings with the arguments of `open_keep`, which only ever make the configuration stricter.

    Beside configured policies, those of the program may forbid and not permit; an agent is declared in one
    place; a paranoid keep stays one; `flow` may switch the shipped policies on, and add measures and budgets.
    """
    if twice := [name for name in agents if name in configured.agents]:
        raise ValueError(f"agent {twice[0]!r} is in the configuration too; declare it in one place")
    if policies:
        from toolkeep.policy.cedar_parser import read_policies
        from toolkeep.policy.policy_set import PoliciesRefused

        read = read_policies(policies).policies
        message = "permits something, and the configuration has policies, which the program may only narrow"
        fix = "write it as forbid, or put it into the configuration"
        if configured.sources or configured.held_back:
            permits = [policy.problem(message, fix) for policy in read if policy.effect == "permit"]
            if permits:
                raise PoliciesRefused(permits)
    given = None if flow is None else read_flow(flow)
    if configured.flow is not None and given is not None:
        given = msgspec.structs.replace(
            configured.flow,
            policy=given.policy or configured.flow.policy,
            view="typed" if given.has_typed_views else configured.flow.view,
            measures=configured.flow.measures.joined(given.measures),
        )
    return msgspec.structs.replace(
        configured,
        flow=given or configured.flow,
        agents={**configured.agents, **{name: Grant.read(**held) for name, held in agents.items()}},
        sources=(*configured.sources, *policies),
        is_paranoid=configured.is_paranoid or is_paranoid,
    )


def trusted_files(settings: Settings) -> Iterator[TrustedPath]:
    """Every file that the configuration makes this process itself read or write (SBX-6).

    A tool that may write one of them could change its own grant. Files of the state folder are not listed: no
    tool sees that folder at all.
    """
    for file in settings.files:
        # Its folder holds the policies too, and the file may be a symlink to elsewhere.
        for path in (Path(file.path).parent, file.path):
            yield TrustedPath(str(path), "the configuration")
    for upstream in settings.upstreams.values():
        document = Path(upstream.folder) / document_of(upstream.data)
        yield TrustedPath(str(document), f"the document of upstream '{upstream.name}'")
        for name, source in upstream.secrets.items():
            if source.kind == "file":
                what = f"the file of secret '{name}' of upstream '{upstream.name}'"
                yield TrustedPath(os.path.expanduser(source.where), what)  # noqa: PTH111 -- never raises
    if settings.checkpoint_file:
        yield ReplacedFile(settings.checkpoint_file, "the file of checkpoints")
    if settings.database is not None:
        from toolkeep.storage.sql.database_location import files_of

        for path in files_of(settings.database.url):
            yield TrustedPath(path, "named by the URL of the database")
        if settings.database.key_file:
            yield TrustedPath(settings.database.key_file, "the servers' key")


def project_folder(project: Path | str | None = None) -> Path:
    """The folder that a keep is opened for; `NotAccepted` if two projects qualify and the caller named
    none."""
    try:
        if project is not None:
            return Path(project).absolute()
        found = find_project(Path.cwd(), home_folder())
    except OSError as error:
        raise FileUnreadable(".", "the working folder is gone; change to another") from error
    _check_chosen(found)
    return found


def _check_chosen(project: Path) -> None:
    """Raise if a project lies inside another one, and no person accepted it as a project of its own.

    A tool that may write the outer project can leave a configuration file below it. A file that runs, grants
    and loosens nothing would take effect at once, and inside that folder the policies of the outer project
    would no longer apply.
    """
    outer = outer_projects(project, home_folder())
    if not outer or _is_own_project(project, open_state(project)):
        return
    inner, *others = (visible(str(folder / PROJECT_FILE)) for folder in (project, *outer))
    names = [visible(str(folder)) for folder in (project, *outer)]
    raise NotAccepted(
        f"{inner} is inside the project of {' and '.join(others)}, but is not accepted "
        "as a project of its own",
        hint=f"run: toolkeep accept --project {names[0]}; or use the project around it: "
        + " or ".join(f"--project {name}" for name in names[1:]),
    )


def _is_own_project(project: Path, state: KeepState | None) -> bool:
    """Whether a person accepted the project's file with its current content, whatever it does."""
    files = read_configuration(project, state).files
    return state is not None and any(
        file.is_project and state.is_accepted(file.path, file.seal) for file in files
    )


def open_state(project: Path) -> KeepState | None:
    """The stored state of a project; None for a user without a home directory."""
    folder = state_folder(project, os.environ, home_folder())
    return KeepState(folder) if folder else None


@contextlib.contextmanager
def registry_state(project: Path) -> "Iterator[RegistryState]":
    """The switches of a project, which it may share with other servers."""
    state = open_state(project)
    shared = _open_shared(read_configuration(project, state), state)
    if shared is None:
        yield state or MemoryState()
        return
    try:
        yield shared.keep_state()
    finally:
        shared.close()


def open_tokens(project: Path) -> "Tokens":
    """The API tokens of a project, from where its definitions are stored; close them after use."""
    from toolkeep.stores.api_tokens import Tokens

    state = open_state(project)
    if database := read_configuration(project, state).database:
        from toolkeep.storage.postgres.shared_state import open_shared_tokens

        folder = state.folder if state else None
        return Tokens(open_shared_tokens(database, partial(_own_key, state), folder))
    from toolkeep.storage.sqlite.tokens_db import SqliteTokens

    if state is None:
        raise StateUnusable("~", "there is no state folder to store tokens in", hint="set TOOLKEEP_HOME")
    return Tokens(SqliteTokens(state.folder))


def open_sessions(project: Path) -> "SqliteSessionStates | PostgresSessionStates":
    """The stored sessions of a project; close them after use."""
    state = open_state(project)
    if database := read_configuration(project, state).database:
        from toolkeep.storage.postgres.shared_state import open_shared_sessions

        return open_shared_sessions(database, partial(_own_key, state))
    from toolkeep.storage.sqlite.sessions_db import SqliteSessionStates

    if state is None:
        raise StateUnusable("~", "there is no state folder with sessions", hint="set TOOLKEEP_HOME")
    return SqliteSessionStates(state.folder)


def open_sign_in_codes(project: Path) -> "SignInCodes":
    """The codes of sign-in links to the page of a project."""
    from toolkeep.storage.sqlite.sign_in_codes import FileSignInCodes, MemorySignInCodes

    state = open_state(project)
    if (shared := _open_shared(read_configuration(project, state), state)) is not None:
        return shared.sign_in_codes()
    return MemorySignInCodes() if state is None else FileSignInCodes(state.folder)


@contextlib.contextmanager
def open_approvals(project: Path) -> "Iterator[Approvals | None]":
    """The approvals of a project, from where its servers share them; None without a state folder."""
    state = open_state(project)
    if state is None:
        yield None
    elif (shared := _open_shared(read_configuration(project, state), state)) is not None:
        with contextlib.closing(shared):
            yield shared.approvals
    else:
        from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

        with contextlib.closing(SqliteApprovals(state.folder)) as approvals:
            yield approvals


def _own_key(state: KeepState | None) -> bytes:
    """The key of the state folder, where `database.key` names none."""
    from toolkeep.storage.keys import Keys

    if state is None:
        raise StateUnusable(
            "~", "there is no state folder with a key", hint="set TOOLKEEP_HOME or database.key"
        )
    return Keys(state.folder).secret_key()


def open_witness(project: Path) -> "Witness | None":
    """The witness of a project for the logs of others; None without a folder to remember them in."""
    from toolkeep.audit.signed_note import VerifierKey
    from toolkeep.storage.keys import Keys
    from toolkeep.storage.log.witness_folder import Witness

    state = open_state(project)
    if state is None:
        return None
    keys = map(VerifierKey.parse, read_configuration(project, state).witness_for)
    return Witness(state.folder / "witness", name=f"{Keys(state.folder).origin}/witness", keys=keys)


def open_store(settings: Settings, state: KeepState | None) -> "SqlDefinitionStore | None":
    """The definition store of a keep; None for a user without a home directory. Does not connect yet."""
    if settings.database is None and state is None:
        return None
    from toolkeep.storage.sql.database_location import PostgresLocation, SqliteLocation
    from toolkeep.storage.sql.definition_store import SqlDefinitionStore

    if settings.database is not None:
        from toolkeep.storage.postgres.shared_state import row_key

        key = row_key(settings.database, partial(_own_key, state))
        return SqlDefinitionStore(PostgresLocation(settings.database.url), key)
    return SqlDefinitionStore(SqliteLocation(state.folder)) if state else None


def _new_webhook(settings: "EventWebhook", state: KeepState | None) -> "Webhook":
    """A webhook that identifies the keep without revealing its path."""
    import hashlib

    from toolkeep.telemetry.webhook import Webhook

    place = os.fsencode(state.folder) if state else b""
    source = f"/toolkeep/{hashlib.sha256(place).hexdigest()[:16]}"
    return Webhook(settings.url, settings.secret, source=source, types=settings.types)


def _store_providers(store: "SqlDefinitionStore | None", keep: Keep) -> Sequence[ToolProvider]:
    if store is None or not store.place.exists():
        return ()
    from toolkeep.sources.stored_definitions import EarlierProvider, StoreProvider

    newest = StoreProvider(keep.editor.read)
    return [newest, EarlierProvider(newest, keep.editor.holds)]


def _offer_stored(held: "StoredDefinition | BrokenDefinition") -> "Offer":
    from toolkeep.sources.stored_definitions import offer_of

    return offer_of(held)


def read_configuration(project: Path, state: KeepState | None) -> Settings:
    """The configuration of user and project; nothing is loaded if there is none."""
    paths = config_paths(project, home_folder())
    if not paths.exist:
        return DEFAULT_SETTINGS
    from toolkeep.config.read import read_settings

    if state is None:
        return read_settings(paths, os.environ, lambda *_: False)
    before = state.accepted_content
    return read_settings(paths, os.environ, state.is_accepted, accepted_before=before, parse=_parser(state))


def _parser(state: KeepState) -> "Parse":
    from toolkeep.storage.start_cache import parse_once

    return partial(parse_once, state.folder)


def read_proposed(project: Path, state: KeepState | None) -> Settings:
    """The configuration as if it were accepted, for review; see `read_settings`."""
    from toolkeep.config.read import read_settings
    from toolkeep.json_values.yaml import read_yaml

    is_accepted = state.is_accepted if state else lambda *_: False
    paths, parse = config_paths(project, home_folder()), _parser(state) if state else read_yaml
    return read_settings(paths, os.environ, is_accepted, takes_proposals=True, parse=parse)


def check_accepted(settings: Settings, what: str) -> None:
    """Raise `NotAccepted` if the project's file requests something that nobody accepted."""
    for file in settings.files:
        if not file.counts:
            raise NotAccepted(
                f"{visible(file.path)} is not accepted yet, and {what}", hint="run: toolkeep accept"
            )


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """What the upstreams of a project offer."""

    settings: Settings
    keep: Keep
    state: MemoryState
    providers: "Sequence[OpenApiProvider | McpProvider]"


def offered_by_project(project: Path, listings: "Mapping[str, PinnedTools] | None" = None) -> Offered:
    """What the upstreams of a project offer, in a keep that stores and runs nothing.

    Acceptance does not matter here: documents and lists beside the configuration are read, variables of a
    file that nobody accepted are not, nothing is started, and no tool can be called. `listings` are the live
    tool lists of servers, by upstream, instead of their files.
    """
    settings = read_proposed(project, open_state(project))
    ours = {name: upstream for name, upstream in settings.upstreams.items() if upstream.is_project}
    state = MemoryState()
    keep = Keep(state=state, tier=settings.tier, limits=settings.limits)
    providers = upstream_providers(msgspec.structs.replace(settings, upstreams=ours), keep, listings)
    others = [CoreToolsProvider(settings.tier, settings.search_url), *_config_providers(settings)]
    keep.load(own=[*others, *providers])
    return Offered(settings=settings, keep=keep, state=state, providers=providers)


def _open_shared(settings: Settings, state: KeepState | None) -> "SharedState | None":
    """What the keep shares with other servers; connects at its first use."""
    if settings.database is None:
        return None
    if state is None:
        raise StateUnusable("~", "there is no state folder beside the database", hint="set TOOLKEEP_HOME")
    from toolkeep.storage.postgres.shared_state import SharedState

    return SharedState(settings.database, partial(_own_key, state), state.folder)


def open_shared(project: Path) -> "SharedState | None":
    """What a project shares with other servers; None for one that is alone. Close it after use."""
    state = open_state(project)
    return _open_shared(read_configuration(project, state), state)


def _open_record(
    state: KeepState, settings: Settings, root: Path, shared: "SharedState | None"
) -> "KeepRecord":
    from toolkeep.storage.log.file_records import FileRecord

    note_project(state.folder, root)
    return FileRecord(
        state.folder,
        checkpoint_file=settings.checkpoint_file,
        checkpoint_webhook=settings.checkpoint_webhook,
        witnesses=settings.witnesses,
        shared=shared,
        undo_days=settings.undo_days,
    )


def _config_providers(settings: Settings) -> Sequence[ToolProvider]:
    if not settings.tools:
        return ()
    from toolkeep.sources.config_source import ConfigProvider

    return [ConfigProvider(settings, is_project=is_project) for is_project in (False, True)]


def tools_file_provider(
    file: "ToolsFile", keep: Keep, read: "Read", *, name: str, priority: int = 120
) -> ToolProvider:
    """The provider of the tools in a Python file, whose definitions a confined worker reads."""
    from toolkeep.sources.tools_file_source import ToolsFileProvider

    may_define = keep.allows_definitions
    return ToolsFileProvider(file, read, name=name, priority=priority, allows_definitions=may_define)


def _tools_file_providers(
    settings: Settings, keep: Keep, root: Path
) -> tuple[list[ToolProvider], list[ProviderFailed]]:
    """The providers of the Python files that the configuration names, and those that are not there."""
    found: list[ToolProvider] = []
    failed: list[ProviderFailed] = []
    if not settings.tools_files:
        return found, failed
    from toolkeep.config.tools_file import find_configured

    read = tools_reader(root)
    for index, said in enumerate(settings.tools_files):
        try:
            file = find_configured(said)
        except FileUnreadable as error:
            failed.append(ProviderFailed(visible(said.name), f"cannot be read: {error.message}"))
            continue
        name, priority = (PROJECT if said.is_project else CONFIG), 120 + index
        found.append(tools_file_provider(file, keep, read, name=name, priority=priority))
    return found, failed


def tools_reader(root: Path) -> "Read":
    """Reads the definitions of files of tools: as they were read before for the same code, or by a worker."""
    state = open_state(root)
    reader = cache(partial(module_reader, root))  # loaded where a worker is needed

    def by_worker(file: "ToolsFile") -> "Sequence[FoundTool]":
        variables = file.copy.variables if file.copy else ()
        return reader().read(file.shown, file.place, file.places, variables)

    def read(file: "ToolsFile") -> "Sequence[FoundTool]":
        if state is None or file.copy is not None:  # a copy exists for this process alone
            return by_worker(file)
        from toolkeep.storage.definition_cache import DefinitionCache

        return DefinitionCache(state.folder).read(file, partial(by_worker, file))

    return read


def module_reader(root: Path) -> "ModuleReader":
    """Reads definitions of Python files in confined workers, which never see the state of this project."""
    from toolkeep.execution.module_reader import ModuleReader

    state = open_state(root)
    folder = str(protected_folder(state.folder)) if state else ""
    return ModuleReader(folder, read_configuration(root, state).unconfined)


def project_origins(settings: Settings) -> frozenset[str]:
    """The upstreams that the project's own file names: those that its lock is about."""
    return frozenset(f"{up.kind}:{up.name}" for up in settings.upstreams.values() if up.is_project)


def _locked_sets(root: Path, settings: Settings) -> LockedSets | None:
    origins = project_origins(settings)
    if not origins:
        return None
    from toolkeep.storage.lock_file import read_lock_file

    lock = read_lock_file(root)
    if lock is None:
        return None
    hashes = {key: pin.definition_hash for key, pin in lock.tools.items()}
    return LockedSets(origins, hashes, frozenset(_with_other_packages(settings, lock)))


def _with_other_packages(settings: Settings, lock: "Lock") -> Iterator[str]:
    from toolkeep.mcp_client.pinned_tools import read_listing

    for upstream in settings.upstreams.values():
        if upstream.is_project and upstream.kind == "mcp":
            # A list that cannot be read is reported when its tools are offered.
            with contextlib.suppress(FileUnreadable):
                listing, _ = read_listing(Path(upstream.folder) / document_of(upstream.data))
                origin = f"mcp:{upstream.name}"
                if listing.locked_packages() != lock.packages.get(origin, ()):
                    yield origin


def upstream_providers(
    settings: Settings,
    keep: Keep,
    listings: "Mapping[str, PinnedTools] | None" = None,
    state: KeepState | None = None,
    admitted: "AdmittedBefore | None" = None,
) -> "Sequence[OpenApiProvider | McpProvider]":
    """A provider for each upstream that the configuration names, in the order of the files."""
    if not settings.upstreams:
        return ()
    from toolkeep.mcp_client.upstream_provider import McpProvider
    from toolkeep.sources.openapi.provider import OpenApiProvider

    kinds: dict[str, Any] = {
        "openapi": OpenApiProvider,
        "mcp": partial(
            McpProvider, listings=listings or {}, state=state.folder if state else None, admitted=admitted
        ),
    }

    def taken() -> list[str]:
        return keep.registered_names()

    return [
        kinds[upstream.kind](upstream, taken, priority=200 + index)
        for index, upstream in enumerate(settings.upstreams.values())
    ]


def _named_providers(settings: Settings) -> tuple[list[ToolProvider], list[ProviderFailed]]:
    """The providers of other packages that the configuration names, and those that cannot be constructed."""
    found: list[ToolProvider] = []
    failed: list[ProviderFailed] = []
    for name in settings.providers:
        from toolkeep.sources.entry_points import load_provider

        try:
            found.append(load_provider(name))
        except ProviderFailed as error:
            failed.append(error)
    return found, failed
