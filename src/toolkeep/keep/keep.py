"""`Keep`: the object that a host holds.

`registry.tool_catalog` holds its tools, `pipeline` makes its calls.
"""

import contextlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from toolkeep.authoring.importing import note_keep, refuse_calls
from toolkeep.calls import (
    NO_DATA,
    CallOptions,
    CheckedCall,
    Diagnosis,
    Output,
    Progress,
    Refusal,
    RegisteredTool,
    ToolResult,
)
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.vocabulary import CallKind, Category, Tier
from toolkeep.errors import (
    ArgumentsRefused,
    ConfigurationInvalid,
    NotRecorded,
    StateUnusable,
    ToolkeepError,
)
from toolkeep.events import AgentDeclared, Bus, PoliciesChanged, ValidationPassed
from toolkeep.host import clock
from toolkeep.limits import BATCH_CALLS, DEFAULT_CALL_LIMITS, DEFAULT_LIMITS, CallLimits, Limits
from toolkeep.policy.policy_settings import (
    DEFAULT_GRANT,
    NO_POLICY_SETTINGS,
    Grant,
    PolicySettings,
    PolicySource,
    sources_of,
)
from toolkeep.registry.registry import LockedSets
from toolkeep.registry.resolve_tool import Suggestions, resolve_name
from toolkeep.registry.tool_catalog import ToolCatalog
from toolkeep.sandbox.trusted_paths import TrustedPaths, resolved
from toolkeep.stores.registry_state import RegistryState, StoredPolicies
from toolkeep.telemetry.logs import LogListener
from toolkeep.text.display import counted, echo_name
from toolkeep.validation.refusal_history import RefusalHistory

if TYPE_CHECKING:
    from toolkeep.approval.approver import Approver
    from toolkeep.audit.receipt import Receipt
    from toolkeep.execution.loop_thread import LoopThread
    from toolkeep.execution.persistent.pool import PersistentProgram
    from toolkeep.execution.registered_code import RegisteredCode
    from toolkeep.fleet.fleet_runner import FleetRunner, GrantOf
    from toolkeep.fleet.worker_status import WorkerStatus
    from toolkeep.flow.flow_settings import FlowSettings
    from toolkeep.flow.host_session import Session
    from toolkeep.flow.tracker import Flow
    from toolkeep.keep.decided_calls import DecidedCalls
    from toolkeep.keep.hooks import AfterHook, BeforeHook
    from toolkeep.keep.pipeline import Pipeline, Spans
    from toolkeep.keep.replay import Replay
    from toolkeep.mcp_client.elicitation import Answerer
    from toolkeep.policy.authorize import Authorizer
    from toolkeep.policy.callable_tools import CallableTools
    from toolkeep.policy.decision_explain import Holder
    from toolkeep.policy.policy_settings import Example
    from toolkeep.providers.export import Exported
    from toolkeep.providers.keep_provider import Answers, Events, KeepProvider
    from toolkeep.registry.admit import AdmittedBefore
    from toolkeep.registry.custom_definitions import OfferOf
    from toolkeep.results.output_check import Normalizers
    from toolkeep.sandbox.launch import EarlyStart
    from toolkeep.sandbox.trusted_paths import ProcessTrust, TrustedPath
    from toolkeep.storage.postgres.shared_state import SharedState
    from toolkeep.storage.sql.change_feed import ChangeFeed
    from toolkeep.storage.sqlite.state_db import StateFollower
    from toolkeep.stores.definitions import DefinitionStore
    from toolkeep.stores.records import KeepRecord
    from toolkeep.stores.replaced_files import Replaced
    from toolkeep.stores.sign_ins import SignInStore
    from toolkeep.telemetry.webhook import Webhook
    from toolkeep.validation.schema_engine import Formats
    from toolkeep.validation.validate import Arguments

T = TypeVar("T")

LOCAL_AGENT = "local"
KNOWN_AGENTS = (LOCAL_AGENT, "operator", "mcp-local")
"""Agents that need no declaration: the host's own code, the person at the command line, an MCP client."""


_OPEN: "weakref.WeakSet[Keep]" = weakref.WeakSet()
"""The open keeps of this process."""


Validate = Callable[..., CheckedCall | Refusal]


class CallKeywords(TypedDict, total=False):
    """The keyword arguments of `Keep.call`."""

    agent: str
    conversation: str
    session: "str | Session"
    caller: str
    correlation_id: str
    response: str
    timeout_s: float | None
    max_output_bytes: int | None
    confirm: bool
    idempotency_key: str
    fresh: bool
    forwarded: bool
    data: "Mapping[str, Any] | None"
    on_progress: "Progress | None"
    on_output: "Output | None"
    kind: str


class AnswerKeywords(TypedDict, total=False):
    """The keyword arguments of `Keep.answer`."""

    agent: str
    session: "str | Session"
    conversation: str
    correlation_id: str
    data: "Mapping[str, Any] | None"
    strict: bool


class Keep(ToolCatalog):
    """Keeps an agent's tools. Made by `open_keep`."""

    _holds_log = False
    """Whether a log is open that has to be closed."""

    def __init__(
        self,
        *,
        services: Sequence[object] = (),
        limits: Limits = DEFAULT_LIMITS,
        call_limits: CallLimits = DEFAULT_CALL_LIMITS,
        include_actual_values: bool = True,
        tier: Tier = Tier.ENTERPRISE,
        formats: "Formats | None" = None,
        normalizers: "Normalizers | None" = None,
        closed: Mapping[str, str] | None = None,
        policy: PolicySettings = NO_POLICY_SETTINGS,
        approver: "Approver | None" = None,
        answerer: "Answerer | None" = None,
        tool_secrets: Mapping[str, Mapping[str, str]] | None = None,
        before_call: "Sequence[BeforeHook]" = (),
        after_call: "Sequence[AfterHook]" = (),
        sign_ins: "SignInStore | None" = None,
        state: RegistryState | None = None,
        locked: LockedSets | None = None,
        store: "DefinitionStore | None" = None,
        offer_of: "OfferOf | None" = None,
        allows_definitions: bool = True,
        record: "KeepRecord | Callable[[], KeepRecord] | None" = None,
        logs: LogListener | None = None,
        admitted: "AdmittedBefore | None" = None,
        shared: "SharedState | None" = None,
        fleet: "Callable[[GrantOf], FleetRunner] | None" = None,
    ) -> None:
        note_keep()
        bus = Bus()
        logs = logs or LogListener()
        bus.subscribe(logs, timed=logs.is_timed)
        super().__init__(
            bus=bus,
            services=services,
            limits=limits,
            include_actual_values=include_actual_values,
            tier=tier,
            formats=formats,
            closed=closed,
            state=state,
            locked=locked,
            store=store,
            offer_of=offer_of,
            allows_definitions=allows_definitions,
            permissions=policy.permissions,
            admitted=admitted,
        )
        self._refusals = RefusalHistory(bus=bus)
        self._validate: Validate = self._validate_first
        self._policy = policy
        self._sources = policy.sources
        """Policies of the configuration and of the host's program."""
        self._examples = policy.examples
        self._stored_policies = tuple(state.policies()) if state is not None else ()
        self._declared = {**dict.fromkeys(KNOWN_AGENTS, DEFAULT_GRANT), **policy.agents}
        """The grants as they were declared."""
        self._grants = self._left_of(self._declared)
        self._approver = approver
        self._answerer = answerer
        self._authorizer: Authorizer | None = None
        self._call_limits = call_limits
        self._normalizers = dict(normalizers or {})
        self._tool_secrets = tool_secrets or {}
        self._hooks = tuple(before_call), tuple(after_call)
        self._sign_ins = sign_ins
        self._shared = shared
        self._fleet = fleet
        self._given_record = record
        self._making = threading.Lock()
        self._authorizing = threading.Lock()
        self._storing = threading.Lock()
        self._made: Pipeline | None = None
        self._is_closed = False
        self._is_ending = False
        self._loop: LoopThread | None = None
        self._follower: ChangeFeed | None = None
        self._state = state
        self._state_follower: StateFollower | None = None
        self._webhooks: list[Webhook] = []
        self._speaks: KeepProvider | None = None
        self._trusted: TrustedPaths | None = None
        self._code: RegisteredCode | None = None
        self._callable: CallableTools | None = None
        self._files = resolved(policy.files)
        _OPEN.add(self)
        for grant in policy.agents.values():
            self._watch(grant)

    def __repr__(self) -> str:
        """The number of tools, for a notebook."""
        return f"<Keep with {counted(len(self), 'tool')}{', closed' if self._is_closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._made is not None:
            await self._made.end_processes()
        self.close()

    def __del__(self) -> None:
        """Warn that a keep was dropped with its log open; a finalizer cannot close it."""
        if self._holds_log and not self._is_closed:
            warn = "unclosed keep: its threads stay, its newest bodies may be lost; close it, or use `with`"
            warnings.warn(warn, ResourceWarning, source=self, stacklevel=2)

    def close(self) -> None:
        """Close everything that the keep holds open."""
        with self._making:
            if self._loop is not None:
                self._loop.check_elsewhere("a tool that call_sync runs cannot close the keep that runs it")
            self._is_closed = True
            _OPEN.discard(self)
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(self._made.end_processes if self._made is not None else None)
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
        of_state, self._state_follower = self._state_follower, None
        if of_state is not None:
            of_state.close()
        if self._made is not None:
            self._made.close()
        self.close_store()
        if self._shared is not None:
            self._shared.close()
        for webhook in self._webhooks:
            webhook.close()

    def post_events(self, webhook: "Webhook") -> None:
        """Send events to a webhook from now on; it is closed with the keep."""
        self.subscribe(webhook)
        self._webhooks.append(webhook)

    def follow_store(self) -> None:
        """Follow what other processes change, within a second, until the keep is closed.

        That is definitions in the store, and which tools are disabled, enabled and accepted.
        """
        if self._is_closed:
            return
        from toolkeep.storage.sql.change_feed import ChangeFeed
        from toolkeep.storage.sql.definition_store import SqlDefinitionStore
        from toolkeep.storage.sqlite.state_db import KeepState

        state, store = self._state, self._store
        if isinstance(state, KeepState) and self._state_follower is None:
            self._state_follower = state.follow(self._follow_state)
        if self._follower is not None:
            return
        if isinstance(store, SqlDefinitionStore):
            self._follower = ChangeFeed(store.place, self.editor.follow, self._bus.tell)

    @property
    def shared(self) -> "SharedState | None":
        """What the keep shares with other servers; None for one that is alone."""
        return self._shared

    @property
    def store_lost(self) -> str:
        """Why the store cannot be reached while it is followed; empty if it can."""
        return self._follower.lost if self._follower else ""

    def declare_agent(
        self, name: str, *, capabilities: Iterable[str] = (), permissions: Iterable[str] = ()
    ) -> None:
        """Let an agent call tools, with what it holds from now on; configuration declares them too.

        `capabilities` are text such as `fs.read:./docs`, relative to the project; ValueError says what is
        wrong with one.
        """
        grant = Grant.read(capabilities=capabilities, permissions=permissions)
        self._watch(grant)
        self.authorizer.declare(name, grant)
        with self._authorizing:
            self._declared = {**self._declared, name: grant}
            self._grants = {**self._grants, name: grant}
        self._bus.tell(AgentDeclared(agent=name))
        self._use_grants()  # part of it may be withdrawn

    def withdraw(self, agent: str, capability: str = "") -> None:
        """Withdraw what an agent holds, also for later starts and on all servers that share a database.

        `capability` is one that it holds, such as `fs.write:./out`, a kind such as `fs.write`, or a
        permission; without it the agent may call nothing. ValueError if it holds no such thing.
        """
        self._switch_grant(agent, capability, enabled=False)

    def restore(self, agent: str, capability: str = "") -> None:
        """Undo `withdraw` with the same arguments."""
        self._switch_grant(agent, capability, enabled=True)

    @property
    def withdrawn(self) -> "Mapping[str, Collection[str]]":
        """What is withdrawn, by agent; an empty text stands for everything."""
        return self._registry.withdrawn

    def grant_after(self, agent: str, capability: str = "", *, restored: bool) -> "Grant | None":
        """What an agent would hold after `restore` or `withdraw` with the same arguments; None for no agent.

        Nothing is changed. ValueError as for `withdraw`.
        """
        declared = self._holds(agent, capability)
        held = set(self._registry.withdrawn.get(agent, ()))
        withdrawn = held - {capability} if restored else held | {capability}
        return None if "" in withdrawn else declared.without(withdrawn)

    def _holds(self, agent: str, capability: str) -> "Grant":
        """The declared grant; ValueError if the capability is not of it."""
        declared = self._declared.get(agent)
        if declared is None:
            raise ValueError(f"agent {echo_name(agent)!r} is not declared")
        if capability and declared.without([capability]) == declared:
            raise ValueError(f"agent {echo_name(agent)!r} holds no {echo_name(capability)!r}")
        return declared

    def _switch_grant(self, agent: str, capability: str, *, enabled: bool) -> None:
        self._holds(agent, capability)
        self._registry.switch_grant(agent, capability, enabled=enabled)
        self._use_grants()

    def _follow_state(self) -> None:
        before = self._registry.quarantined_workers
        self._registry.follow()
        if self._made is not None and self._registry.quarantined_workers - before:
            self._made.executor.cache.clear()  # it may hold results of the worker
        self._use_grants()
        self._use_stored_policies()

    def _use_grants(self) -> None:
        """Decide by the declared grants without those that are withdrawn."""
        with self._authorizing:
            before, self._grants = self._grants, self._left_of(self._declared)
            now, authorizer = self._grants, self._authorizer
            changed = [name for name in self._declared if before.get(name) != now.get(name)]
            for name in changed:
                if authorizer is not None and name in now:
                    authorizer.declare(name, now[name])
                elif authorizer is not None:
                    authorizer.drop(name)
        for name in changed:  # what runs with the old grant is ended
            self._bus.tell(AgentDeclared(agent=name))

    def _left_of(self, declared: "Mapping[str, Grant]") -> dict[str, Grant]:
        withdrawn = self._registry.withdrawn
        return {
            name: grant.without(withdrawn.get(name, ()))
            for name, grant in declared.items()
            if "" not in withdrawn.get(name, ())
        }

    def _watch(self, grant: Grant) -> None:
        """Stop this process from importing files that a tool with the grant may have written (SBX-6).

        Otherwise a tool writes `json.py` into the project, and the host runs it, outside the sandbox, at its
        next import.
        """
        folders = [held.scope for held in grant.capabilities if held.kind == "fs.write" and held.scope]
        if folders:
            from toolkeep.sandbox.import_guard import (
                watch,  # where nothing may be written, nothing is guarded
            )

            for folder in folders:
                with contextlib.suppress(
                    ValueError
                ):  # too many files to record: then each call that would write is refused
                    watch(f"{self.project}/{folder}" if folder[:1] != "/" else folder)

    @property
    def trusted(self) -> TrustedPaths:
        """What this process executes, imports or relies on, and no tool may write: of all its keeps."""
        if self._trusted is None:
            from toolkeep.execution.registered_code import programs_of_others

            def programs(agent: str) -> "Iterable[TrustedPath]":
                held = {name: grant.capabilities for name, grant in self._grants.items()}
                return programs_of_others(held, self.project, agent)

            # Of all keeps: a tool of one must not rewrite the code of another, which may hold other secrets.
            def code() -> "Iterable[TrustedPath]":
                return (one for keep in list(_OPEN) for one in keep.code)

            def files() -> "Iterable[ProcessTrust]":
                return [keep._files for keep in list(_OPEN)]  # noqa: SLF001 -- a keep like this one

            def links() -> "Iterable[TrustedPath]":
                return (one for keep in list(_OPEN) for one in keep._registered_code.links())  # noqa: SLF001 -- the same

            self._trusted = TrustedPaths(self._policy.state_folder or "", code, programs, files, links)
        return self._trusted

    @property
    def code(self) -> "Sequence[TrustedPath]":
        """The paths of the registered tools' code."""
        return self._registered_code()

    @property
    def _registered_code(self) -> "RegisteredCode":
        if self._code is None:
            from toolkeep.execution.registered_code import RegisteredCode

            self._code = RegisteredCode(lambda: self._registry.snapshot.families, self.project)
        return self._code

    def has_agent(self, name: str) -> bool:
        """Whether an agent of that name was declared."""
        return name in self._grants

    def use_policies(self, *texts: str) -> None:
        """Decide by these Cedar policies from now on; raises `PoliciesRefused` and keeps the previous
        ones."""
        sources = sources_of(texts)
        self.authorizer.use((*sources, *self._sources_of_state()), self._examples_of_state())
        self._sources, self._examples = sources, ()
        self._policies_changed()

    def _policies_changed(self) -> None:
        made = self._made
        if made is not None and made.flow is None:
            made.flow = self._watching(made.record, is_late=True)
        changed = PoliciesChanged(policy_set_hash=self.authorizer.active_policies.engine.policies.hash)
        self._bus.tell(changed)

    @property
    def policy_sources(self) -> "Sequence[PolicySource]":
        """The policies of the configuration and of the host's program, without those of the state."""
        return self._sources

    @property
    def policy_examples(self) -> "Sequence[Example]":
        """The examples beside the policies of the configuration."""
        return self._examples

    @property
    def stored_policies(self) -> "Sequence[StoredPolicies]":
        """The policies that people put in force, by name."""
        return self._stored_policies

    def put_policies(self, name: str, text: str, *, examples: str = "", by: str = LOCAL_AGENT) -> None:
        """Put policies in force, in the state and beside those of the configuration, until they are dropped.

        They replace earlier ones of that name, in all processes and on all servers of the keep. Raises
        `PoliciesRefused` if the whole set cannot be used or an example is decided otherwise.
        """
        put_at = clock.now()
        stored = StoredPolicies(name=name, text=text, examples=examples, put_by=by, put_at=put_at)
        self.check_policies(name, stored)
        self._change_policies(name, stored)

    def drop_policies(self, name: str) -> None:
        """Take policies of the state out of force; raises `PoliciesRefused` if the rest cannot be used."""
        self.check_policies(name, None)
        self._change_policies(name, None)

    def check_policies(self, name: str, stored: "StoredPolicies | None") -> None:
        """Raise `PoliciesRefused` unless the set could be used with these instead of those of that name."""
        from toolkeep.policy.policy_set import PoliciesRefused, PolicyProblem

        try:
            authorizer, examples = self.trial_of(name, stored)
        except ConfigurationInvalid as invalid:
            wrong = [
                PolicyProblem(source=name, message=one, fix="fix the examples") for one in invalid.faults
            ]
            raise PoliciesRefused(wrong) from invalid
        here = {tool.name for tool in self._known_tools()}
        failing = [
            PolicyProblem(source=one.place, message=problem, fix="change the policies, or the example")
            for one in examples
            if one.tools <= here and (problem := authorizer.example_problem(one))
        ]
        if failing:
            raise PoliciesRefused(failing)

    def trial_of(
        self, name: str, stored: "StoredPolicies | None", *, is_trial: bool = False
    ) -> "tuple[Authorizer, list[Example]]":
        """What would decide with these policies instead of those of that name, and the examples of the set.

        In a trial, policies in shadow decide too.
        Raises `PoliciesRefused` if the set cannot be used, `ConfigurationInvalid` if an example cannot be
        read.
        """
        from toolkeep.config.policy_files import read_examples
        from toolkeep.policy.active_policies import ActivePolicies

        others = [one for one in self._stored_policies if one.name != name]
        held = [*others, stored] if stored is not None else others
        sources = (*self._sources, *(PolicySource(name=one.name, text=one.text) for one in held))
        read = (read_examples(f"{one.name}, examples", one.examples.encode()) for one in held)
        examples = [*self._examples, *(found for several in read for found in several)]
        active = self.authorizer.active_policies
        active.checked(sources, self._known_tools(), self.agents)
        trial = ActivePolicies(
            sources,
            is_flow_standard=active.is_flow_standard,
            measures=active.declared,
            is_trial=is_trial,
        )
        return self.authorizer.deciding_by(trial), examples

    def _change_policies(self, name: str, stored: "StoredPolicies | None") -> None:
        if self._state is None:
            raise StateUnusable("~", "there is no state to keep policies in", hint="set TOOLKEEP_HOME")
        self._state.put_policies(name, stored)
        self._use_stored_policies()

    def _sources_of_state(self) -> "list[PolicySource]":
        return [PolicySource(name=one.name, text=one.text) for one in self._stored_policies]

    def _examples_of_state(self) -> "list[Example]":
        if not any(one.examples for one in self._stored_policies):
            return []
        from toolkeep.config.policy_files import read_examples

        return [
            found for one in self._stored_policies for found in read_examples(one.name, one.examples.encode())
        ]

    def _use_stored_policies(self) -> None:
        """Decide by the policies that the state holds now."""
        with self._storing:
            held = () if self._state is None else tuple(self._state.policies())
            if held == self._stored_policies:
                return
            self._stored_policies = held
            authorizer = self._authorizer
            if authorizer is None:
                return
            sources = (*self._sources, *self._sources_of_state())
            try:
                authorizer.use(sources, (*self._examples, *self._examples_of_state()), self._policy.held_back)
            except ToolkeepError as error:
                # Of another process, which knows other tools. To go on with the set of before could permit
                # what was just forbidden.
                authorizer.active_policies.held_back = (
                    f"policies of the state cannot be used: {error.message}"
                )
                return
        self._policies_changed()

    @property
    def authorizer(self) -> "Authorizer":
        """Decides about calls; created on first use."""
        if self._authorizer is None:
            with self._authorizing:
                if self._authorizer is None:
                    self._authorizer = self._new_authorizer()
        return self._authorizer

    def _new_authorizer(self) -> "Authorizer":
        from toolkeep.flow.flow_settings import NO_FLOW
        from toolkeep.policy.active_policies import ActivePolicies
        from toolkeep.policy.authorize import Authorizer

        policy = self._policy
        flow = policy.flow or NO_FLOW
        return Authorizer(
            ActivePolicies(
                (*self._sources, *self._sources_of_state()),
                held_back=policy.held_back,
                is_flow_standard=flow.is_standard,
                measures=flow.measures,
                tell=self._bus.tell,
            ),
            agents=self._grants,
            project=self.project,
            state_folder=policy.state_folder,
            tools=self._known_tools,
            examples=(*self._examples, *self._examples_of_state()),
            check=lambda tool, arguments: self._validate(tool, dict(arguments), self._refusals, "example"),
            trusted=self.trusted,
        )

    def _known_tools(self) -> Iterable[RegisteredTool]:
        """What policies and examples may name: a disabled tool still exists."""
        return self._registry.snapshot.all()

    @property
    def project(self) -> str:
        """The folder that grants are relative to."""
        return self._policy.project or os.getcwd()  # noqa: PTH109 -- text is wanted

    @property
    def record(self) -> "KeepRecord":
        """The records of calls: log, bodies, ledger, approvals. Opened on first use."""
        return self._pipeline.record

    @property
    def servers(self) -> int:
        """How many servers divide rates and the concurrency of agents: 1 without a shared database."""
        return 1 if self._made is None else self._made.admission.servers

    def holder(self, agent: str) -> "Holder":
        """An agent with its grant, as `toolkeep.policy.decision_explain` takes it."""
        from toolkeep.policy.decision_explain import Holder

        return Holder(
            name=agent,
            grant=self._grants.get(agent),
            project=self.project,
            state_folder=self._policy.state_folder,
            trusted=self.trusted,
        )

    @property
    def agents(self) -> "Mapping[str, Grant]":
        """The declared agents with their grants."""
        return dict(self._grants)

    @property
    def flow_settings(self) -> "FlowSettings":
        """How what passes between calls is guarded."""
        from toolkeep.flow.flow_settings import NO_FLOW

        return self._policy.flow or NO_FLOW

    @property
    def has_typed_views(self) -> bool:
        """Whether models are shown references to texts of others, and not the texts."""
        return self._policy.flow is not None and self._policy.flow.has_typed_views

    @property
    def watches_flow(self) -> bool:
        """Whether the configuration asks for it, whatever policies read."""
        return self._policy.flow is not None

    @property
    def is_paranoid(self) -> bool:
        """Whether calls of low danger need approval too."""
        return self._policy.is_paranoid

    def may_run_unconfined(self, tool: RegisteredTool) -> bool:
        """Whether the configuration lets a tool run unconfined where this machine cannot confine it."""
        if not self._policy.unconfined:
            return False
        from toolkeep.execution.isolation_check import UnconfinedTools

        return UnconfinedTools(self._policy.unconfined).includes(tool)

    def trace_with(self, spans: "Spans | None") -> None:
        """Open a span around every call from now on; see `toolkeep.telemetry.spans`."""
        self._pipeline.spans = spans

    def end_soon(self) -> None:
        """From now on, a call that is cancelled after it began has an unknown outcome: shutdown cut it short.

        Called from signal handlers, so it only sets a flag: the code that the signal interrupted may hold a
        lock, and would never release it.
        """
        self._is_ending = True

    # --- calls -----------------------------------------------------------------------------------

    @property
    def _pipeline(self) -> "Pipeline":
        """Created by the first call: a process that only lists or validates pays nothing for it."""
        return self._made or self._pipeline_for(None)

    def _pipeline_for(self, name: object) -> "Pipeline":
        """The pipeline; if it is created, then for a call of this tool."""
        if self._made is None:
            refuse_calls()
            with self._making:
                if self._made is None:
                    early = self._start_early(name)
                    try:
                        self._made = self._new_pipeline(early)
                    except BaseException:
                        if early is not None:
                            early.end()
                        raise
        return self._made

    def _start_early(self, name: object) -> "EarlyStart | None":
        """Start the sandbox of a first call, before the imports that the call needs, too."""
        tool = self._registry.snapshot.answering.get(name) if isinstance(name, str) else None
        if tool is None or self._is_closed or sys.platform != "linux":
            return None
        from toolkeep.execution.tool_isolation import has_processes, level_of, runs_in_worker
        from toolkeep.sandbox.launch import EarlyStart

        # A failure is reported by the call, which starts both anew.
        with contextlib.suppress(ToolkeepError):
            if runs_in_worker(tool):
                return EarlyStart(level_of(tool), has_processes=has_processes(tool))
        return None

    def _new_pipeline(self, early: "EarlyStart | None") -> "Pipeline":
        from toolkeep.keep.pipeline import Pipeline

        record = self._opened_record()
        flow = self._watching(record)
        made = Pipeline(
            early=early,
            registry=self._registry,
            refusals=self._refusals,
            bus=self._bus,
            record=record,
            limits=self._call_limits,
            authorizer=self.authorizer,
            policy=self._policy,
            trusted=self.trusted,
            approver=self._approver,
            answerer=self._answerer,
            normalizers=self._normalizers,
            tool_secrets=self._tool_secrets,
            before_call=self._hooks[0],
            after_call=self._hooks[1],
            sign_ins=self._sign_ins,
            suggest=self._suggest,
            is_ending=lambda: self._is_ending,
            flow=flow,
            fleet=self._fleet(self.authorizer.grant_of) if self._fleet else None,
        )
        if self._is_closed:
            made.close()
        return made

    def decided_calls(self) -> "DecidedCalls":
        """Runs calls that servers elsewhere have decided and recorded."""
        from toolkeep.keep.decided_calls import DecidedCalls

        return DecidedCalls(self.authorizer, self._pipeline.executor)

    def _watching(self, record: "KeepRecord", *, is_late: bool = False) -> "Flow | None":
        """What watches sessions, if the configuration or a policy asks for it (FLO-4)."""
        if self._policy.flow is None and not self.authorizer.active_policies.reads_flow:
            return None
        from toolkeep.flow.flow_settings import NO_FLOW
        from toolkeep.flow.tracker import Flow

        self.authorizer.flow = Flow(self._policy.flow or NO_FLOW, record.sessions, is_late=is_late)
        return self.authorizer.flow

    def _opened_record(self) -> "KeepRecord":
        from toolkeep.stores.records import MemoryRecord

        given = MemoryRecord if self._is_closed or self._given_record is None else self._given_record
        opened = given() if callable(given) else given
        self._holds_log = not isinstance(opened, MemoryRecord)
        opened.report_to(self._bus.tell)
        return opened

    def persistent_programs(self) -> "tuple[PersistentProgram, ...]":
        """The programs and upstream servers that persist between calls, with their grant, running or
        stopped."""
        return () if self._made is None else self._made.processes.programs()

    def workers(self) -> "tuple[WorkerStatus, ...] | None":
        """The workers on other machines, as far as they are known; None without `fleet` in the
        configuration."""
        if self._fleet is None:
            return None
        made = self._made
        return made.fleet.workers() if made is not None and made.fleet is not None else ()

    async def connect_workers(self) -> None:
        """Look for workers now, and not when the first call needs one."""
        if self._fleet is not None and (fleet := self._pipeline.fleet) is not None:
            await fleet.connect()

    async def disconnect_workers(self) -> None:
        """Leave the workers of this event loop; what they run ends with their leases."""
        if self._made is not None:
            await self._made.leave_fleet()

    async def call(
        self,
        name: str,
        arguments: "Arguments",
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        session: "str | Session" = "",
        caller: str = "",
        correlation_id: str = "",
        response: str = "",
        timeout_s: float | None = None,
        max_output_bytes: int | None = None,
        confirm: bool = False,
        idempotency_key: str = "",
        fresh: bool = False,
        forwarded: bool = False,
        data: Mapping[str, Any] | None = None,
        on_progress: Progress | None = None,
        on_output: Output | None = None,
        kind: str = CallKind.TOOL,
    ) -> ToolResult:
        """Call a tool. What goes wrong is in the result, never raised.

        `timeout_s` and `max_output_bytes` only ever tighten the definition; `confirm` asks a person in any
        case; the same `idempotency_key` never runs the same call twice; `fresh` runs the tool even if its
        result is known. `on_output` hears each piece of a tool that yields its output, as it comes; only the
        result was checked as a whole. `data` is JSON of yours for the tool's context, such as the tenant of
        this call; no model sees it.

        A tool that declares neither danger nor side effects runs unasked where your own program calls it as
        `local`. `forwarded` says that somebody else chose the call, such as a model: then a person is asked.

        `session` is an id of yours or what `Keep.session` gave. `caller` is for a server that passes on calls
        of others: to whom the state of flow then belongs, whatever session the caller names. `response` is an
        id of yours for the model's response that the call is part of: a person is asked at once about calls
        that are made at once and have the same.

        With another `kind` than `tool`, the name is that of what an upstream MCP server passes on beside its
        tools, such as `prompt:review`; no other call reaches it.
        """
        options = CallOptions(
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            requires_confirmation=confirm,
            idempotency_key=idempotency_key,
            fresh=fresh,
        )
        return await (self._made or self._pipeline_for(name)).call(
            name,
            arguments,
            agent=agent,
            conversation=conversation,
            session=session,
            caller=caller,
            correlation_id=correlation_id,
            response=response,
            options=options,
            data=NO_DATA if data is None else data,
            on_progress=on_progress,
            on_output=on_output,
            is_direct=agent == LOCAL_AGENT and not forwarded,
            kind=CallKind.read(kind),
        )

    def session(
        self,
        name: str,
        *,
        agent: str = LOCAL_AGENT,
        said: str = "",
        parent: "Session | None" = None,
        caller: str = "",
        anew: bool = False,
    ) -> "Session":
        """A session of an agent, for its calls: begun, or gone on with if there is one of that name (FLO-1).

        `said` are the user's own words; never put in what a tool, a file or another model said. `parent` is
        the session that a sub-agent works for; what that has seen, this one has. `caller` is as in `call`.
        `anew` begins a clean one, whatever was before. RuntimeError if nothing watches what passes between
        calls: set `flow` in `open_keep` or in the configuration.
        """
        flow = self._pipeline.flow
        if flow is None:
            raise RuntimeError("nothing watches sessions; open the keep with flow={'policy': 'standard'}")
        from toolkeep.flow.host_session import Session, state_of
        from toolkeep.keep.pipeline import named

        agent, name, caller = named(agent), named(name), named(caller)  # as calls name them
        if anew:
            flow.forget(agent, name, caller=caller)
        above = None if parent is None else state_of(parent)
        state = flow.begin(agent, name, parent=above, caller=caller)
        if said:
            state.said(said)
        return Session(state)

    def call_sync(self, name: str, arguments: "Arguments", **options: "Unpack[CallKeywords]") -> ToolResult:
        """As `call`, for code without an event loop; also inside a notebook."""
        return self._run(lambda: self.call(name, arguments, **options))

    def _run(self, make: "Callable[[], Coroutine[Any, Any, T]]") -> "T":
        """The result of a coroutine, on the keep's own event loop."""
        from toolkeep.execution.loop_thread import LoopThread

        with self._making:
            is_closed = self._is_closed
            loop = self._loop or LoopThread()
            self._loop = None if is_closed else loop
        try:
            return loop.run(make)
        finally:
            if is_closed:
                loop.close()

    async def call_all(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """Several calls, each as the keyword arguments of `call`; results in the same order.

        Each counts as forwarded: a batch is a model's response as a rule.
        Calls that cannot write run side by side; one that may waits for those before it, and the next
        ones wait for it. Before the first that needs approval runs, a person is asked about all of them at
        once. TypeError for arguments that `call` does not take comes before any is made.
        """
        import inspect

        if len(calls) > BATCH_CALLS:
            raise ValueError(f"{len(calls)} calls are more than {BATCH_CALLS} in one batch")
        taken = inspect.signature(self.call)
        for one in calls:
            taken.bind(**one)
        from toolkeep.keep.response_calls import ResponseCalls

        # They come from a model's response as a rule.
        response = ResponseCalls(
            self._pipeline, [{"agent": LOCAL_AGENT, **one, "forwarded": True} for one in calls]
        )
        results: list[ToolResult] = []
        try:
            for step in response.steps():
                await response.ask_ahead(step)
                results += await self._side_by_side([response.call(at) for at in step])
        finally:
            await response.end()
        return results

    async def _side_by_side(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        import asyncio

        if len(calls) == 1:
            return [await self.call(**calls[0])]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.call(**one)) for one in calls]
        return [task.result() for task in tasks]

    async def submit(
        self, call_id: str, value: Any, *, agent: str = LOCAL_AGENT, forwarded: bool = False
    ) -> ToolResult:
        """The client's result of a pending call: checked, hashed and recorded like any other.

        `forwarded` says that somebody else chose the value, such as a remote caller: whatever the labels of
        the tool say, it is text from outside.
        """
        return await self._pipeline.submit(call_id, value, agent=agent, is_labelled=not forwarded)

    def diagnosis(self, call_id: str) -> Diagnosis | None:
        """Why the tool of a recent call failed, for the operator: what it was denied, and its traceback.

        Remembered for the last failed calls of this keep, until it is closed.
        """
        return self._pipeline.executor.diagnoses.get(call_id)

    async def receipt(self, result: ToolResult) -> "Receipt":
        """A proof that the outcome of a call is in the log, verifiable offline with the public key."""
        import asyncio

        if result.leaf is None:
            raise NotRecorded("the result has no record in the log")
        return await asyncio.to_thread(self.record.receipt, result.leaf)

    async def witness_request(self, old_size: int = 0) -> str:
        """The text that asks a witness to cosign the log; `old_size` is the size that it signed last."""
        import asyncio

        return await asyncio.to_thread(self.record.witness_request, old_size)

    async def replay(self, call_id: str, *, agent: str = LOCAL_AGENT) -> "Replay":
        """Make a recorded call of a deterministic tool again, and compare; raises `NotRecorded`."""
        from toolkeep.keep.replay import replay

        return await replay(self, self.record, call_id, agent=agent)

    async def undo(self, call_id: str, *, agent: str = LOCAL_AGENT) -> ToolResult:
        """Take back what a call of a built-in tool wrote, by a call of its own; raises `NotRecorded`."""
        from toolkeep.keep.undo import undo

        return await undo(self, self.record.replaced, call_id, agent=agent)

    def replaced(self, *, call: str = "", session: str = "", agent: str = "") -> "Sequence[Replaced]":
        """What a call, or the calls of a session or conversation, replaced in files, newest first."""
        kept = self.record.replaced
        if not call:
            return kept.of_session(session, agent)
        found = kept.of_call(call)
        return () if found is None else (found,)

    def read_output(self, reference: str) -> bytes:
        """The whole output that a truncated result refers to."""
        return self.record.bodies.get(reference.removeprefix("sha256:"))

    # --- what an agent may know ------------------------------------------------------------------

    @property
    def _has_policies(self) -> bool:
        return bool(self._sources or self._stored_policies)

    def _sees(self, agent: str) -> "Callable[[RegisteredTool], bool] | None":
        """Whether an agent may see a tool; None if every agent may see all."""
        if self._authorizer is None and not self._has_policies:
            return None
        return partial(self.authorizer.sees, agent) if self.authorizer.hides_tools else None

    def tools(
        self,
        *,
        enabled: bool | None = None,
        category: Category | str | None = None,
        capability: str | None = None,
        kind: str | None = CallKind.TOOL,
        agent: str | None = None,
    ) -> "list[RegisteredTool]":
        """Every tool, or those that match, by category, then by name; with an agent, those it may see.

        `kind` is `prompt`, `resource`, `completion` or `subscription` for what upstream MCP servers pass on;
        None for all.
        """
        found = super().tools(enabled=enabled, category=category, capability=capability, kind=kind)
        sees = None if agent is None else self._sees(agent)
        return found if sees is None else list(filter(sees, found))

    def offered_tools(self, *, agent: str, kind: str = CallKind.TOOL) -> "list[RegisteredTool]":
        """The enabled tools that an agent may see and could call with some arguments.

        Left out is what it lacks a capability or permission for, and what a policy forbids it whatever the
        arguments are. A call of such a tool still says what is missing.
        """
        found, grant = self.tools(enabled=True, agent=agent, kind=kind), self._grants.get(agent)
        if grant is None:
            return found
        from toolkeep.policy.callable_tools import CallableTools

        self._callable = self._callable or CallableTools()
        # Policies are asked only where there are some: else listing would load Cedar.
        has_policies = self._has_policies or self._authorizer is not None
        authorizer = self.authorizer if has_policies else None
        return [tool for tool in found if self._callable.could_call(agent, grant, tool, authorizer)]

    def _suggest(self, agent: str) -> Suggestions:
        return Suggestions(self.offered_tools(agent=agent), self.start_up.notice)

    def search(self, text: str, *, limit: int = 5, agent: str | None = None) -> "list[RegisteredTool]":
        """The enabled tools that match a description best; with an agent, of those it may see."""
        sees = None if agent is None else self._sees(agent)
        if sees is None:
            return super().search(text, limit=limit)
        return list(filter(sees, super().search(text, limit=len(self))))[:limit]

    def look_up(self, name: str, *, agent: str) -> RegisteredTool | None:
        """The tool of a name, if the agent may see it."""
        found = self.try_get(name)
        sees = self._sees(agent)
        return found if found is None or sees is None or sees(found) else None

    # --- how a model speaks ----------------------------------------------------------------------

    @property
    def _speaker(self) -> "KeepProvider":
        from toolkeep.providers.keep_provider import KeepProvider

        self._speaks = self._speaks or KeepProvider(self)
        return self._speaks

    def tools_for(
        self,
        provider: str,
        *,
        agent: str = LOCAL_AGENT,
        strict: bool = False,
        loaded: Iterable[str] | None = None,
        cache: bool = False,
    ) -> "Exported":
        """The tools that an agent may see, as a model provider's request takes them.

        `strict` asks for the provider's strict mode; say it to `answer` too. `loaded` names the tools that
        the model is told of at once, the others it finds by the provider's own search. `cache` marks where
        the provider may cache. The list also says what was lost (`losses`) and left out (`omitted`).
        """
        from toolkeep.providers.export import Options

        named = None if loaded is None else tuple(loaded)
        options = Options(strict=strict, loaded=named, cache=cache)
        return self._speaker.tools_for(provider, agent=agent, options=options)

    async def answer(
        self,
        provider: str,
        response: Any,
        *,
        agent: str = LOCAL_AGENT,
        session: "str | Session" = "",
        conversation: str = "",
        correlation_id: str = "",
        data: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> "Answers":
        """Make every call of a model's response, and return the messages that answer them; none: no calls.

        The response is what the provider's SDK gave, its data, or its JSON text. A call that the model did
        not finish is answered and never run. The list also holds the `results`. Without a correlation id of
        yours, each call has the id that the provider gave to it. Raises `ResponseUnreadable` for what is no
        response of that provider.
        """
        turn = self._speaker.read(provider, response)
        who = {"agent": agent, "session": session, "conversation": conversation, "data": data}
        return await self._speaker.answer(provider, turn, who, correlation_id=correlation_id, strict=strict)

    def answer_sync(self, provider: str, response: Any, **options: "Unpack[AnswerKeywords]") -> "Answers":
        """As `answer`, for code without an event loop; also inside a notebook."""
        return self._run(lambda: self.answer(provider, response, **options))

    async def answer_stream(
        self, provider: str, events: "Events", **options: "Unpack[AnswerKeywords]"
    ) -> "Answers":
        """As `answer`, for the events of a stream. It is read to its end before anything is run."""
        return await self.answer(provider, await self._speaker.read_stream(provider, events), **options)

    # --- does a call fit -------------------------------------------------------------------------

    def try_validate_arguments(
        self,
        name: str,
        arguments: "Arguments",
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        correlation_id: str = "",
    ) -> CheckedCall | Refusal:
        """Validate a call without running it; never raises. Arguments are JSON text, bytes, or a dict."""
        if type(name) is not str:
            name = str(name)
        began = time.perf_counter() if self._bus.timed else 0.0
        sees = self._sees(agent)
        snapshot = self._registry.snapshot
        registered = snapshot.answering.get(name) if sees is None else None
        if registered is None:
            suggest = partial(self._suggest, agent)
            found = resolve_name(
                name,
                snapshot,
                self._bus,
                suggest,
                correlation_id=correlation_id,
                sees=sees,
                kind=kind_of(name),  # nothing is run, so the name alone says what is meant
            )
            if isinstance(found, Refusal):
                return found
            registered = found
        check = self._validate(registered, arguments, self._refusals, agent, conversation, correlation_id)
        if began and check.success:
            elapsed_ms = (time.perf_counter() - began) * 1000
            passed = ValidationPassed(tool_name=check.tool, agent=agent, validation_ms=elapsed_ms)
            self._bus.tell_passed(passed)
        return check

    def _validate_first(
        self, tool: RegisteredTool, arguments: "Arguments", *caller: Any
    ) -> CheckedCall | Refusal:
        """Load the validator on first use: a process that only lists tools does without."""
        from toolkeep.validation.validate import validate

        self._validate = validate
        return validate(tool, arguments, *caller)

    def validate_arguments(
        self,
        name: str,
        arguments: "Arguments",
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        correlation_id: str = "",
    ) -> dict[str, Any]:
        """The parsed arguments with defaults; raises `ArgumentsRefused`, which holds the refusal."""
        check = self.try_validate_arguments(
            name, arguments, agent=agent, conversation=conversation, correlation_id=correlation_id
        )
        if isinstance(check, Refusal):
            raise ArgumentsRefused(check)
        return check.arguments
