"""Authorization stage (policy decision point): the only place that makes a `PermittedCall`.

Three checks, all of which must pass (deny by default; without any policy file the grant alone decides): the
agent's grant covers every resource that the call touches, none of them is protected, and the Cedar policies
permit the call. Either way the result carries a `Decision` (the proof that is audited).

It does not confine the tool: a capability is checked here and enforced by the sandbox.
"""

import contextlib
import copy
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from toolkeep.calls import (
    CheckedCall,
    Decision,
    PermittedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    TouchedThing,
    refuse,
)
from toolkeep.definitions.capability import Capability
from toolkeep.errors import Code
from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.flow_settings import FlowSettings
from toolkeep.flow.meter import Caller, alone
from toolkeep.flow.session_store import MemorySessionStates
from toolkeep.flow.tracker import Flow
from toolkeep.host import clock
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import HELD_PLACES
from toolkeep.policy.active_policies import ActivePolicies
from toolkeep.policy.cedar_engine import AgentEntity, CallFacts, Finding, Verdict
from toolkeep.policy.cedar_parser import OURS
from toolkeep.policy.cedar_schema import CALL
from toolkeep.policy.effective_grant import EffectiveGrant, requirement_contains
from toolkeep.policy.example_check import Check, ExampleCheck
from toolkeep.policy.grant_advice import advice, line_to_add, scope_of
from toolkeep.policy.path_grants import ProtectedPaths, Written
from toolkeep.policy.policy_set import Policies, Policy
from toolkeep.policy.policy_settings import Example, Grant, PolicySource
from toolkeep.policy.resolved_path import DescriptorQuota, QuotaExceeded, ResolvedPath
from toolkeep.policy.touched_resources import (
    ANY_SCOPE,
    FS_WRITE,
    PROCESS_SPAWN,
    Touched,
    TouchPlan,
    TouchRefused,
    whole_scope,
)
from toolkeep.sandbox.import_guard import writable_folders
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths, search_path
from toolkeep.text.display import HIDDEN, visible

log = logging.getLogger("toolkeep.policy")
_NO_PERMIT: Final = (
    "every call is denied: there are policies, and none permits a call; "
    'add one, such as @id("all") permit (principal, action == Action::"call", resource);'
)

_PLANS: Final = 10_000
"""Size of the cache of touch plans, by definition hash."""

ANYTHING: Final = "*"
"""Wildcard in `context.hosts`, `context.roots` and so on: the tool requires a capability without naming a
scope."""

_ASK_OPERATOR: Final = "Do without it, or ask the operator."
_EXPLAIN: Final = "Run `toolkeep policy explain` to see what would have to change."
NAME_ANOTHER: Final = "Name something else."
"""Advice where other arguments would do, and no grant or policy is at fault."""
OPERATOR: Final = "operator"
"""The agent of the command line (POL-8)."""
PERMISSIONS_POLICY: Final = "toolkeep.permissions"


class Agent:
    """A declared agent (the Cedar principal) with its effective grant."""

    def __init__(self, name: str, grant: Grant, *, base: str, search: str, written: Written) -> None:
        self.grant = grant
        self.effective_grant = EffectiveGrant(grant, base=base, search=search, written=written)
        self.written = [
            os.path.realpath(os.path.join(base, held.scope))
            for held in grant.capabilities
            if held.kind == "fs.write" and held.scope not in ANY_SCOPE
        ]
        """Real paths of the folders that it may write, resolved when the agent was declared."""
        self.entity = AgentEntity(
            id=name,
            permissions=self.effective_grant.permissions,
            capabilities=self.effective_grant.capabilities,
        )
        self.share = DescriptorQuota(HELD_PLACES)
        """Quota of descriptors that its calls may hold open, so that one agent cannot exhaust those of the
        host."""
        self._bound = ("", "")

    def grant_hash(self, policy_set_hash: str) -> str:
        """Hash of the grant and the policy set.

        An approval is bound to it, so a yes given under other rules is void.
        """
        bound = self._bound  # read once: another thread may decide by other policies
        if bound[0] != policy_set_hash:
            bound = self._bound = (
                policy_set_hash,
                canonical_hash([policy_set_hash, self.effective_grant.hash]),
            )
        return bound[1]


class Authorizer:
    """Policy decision point: checks capabilities of declared agents, then evaluates the active policies."""

    def __init__(
        self,
        active_policies: ActivePolicies,
        *,
        agents: Mapping[str, Grant],
        project: str,
        state_folder: str | None,
        tools: Callable[[], Iterable[RegisteredTool]],
        examples: Iterable[Example] = (),
        check: Check | None = None,
        trusted: TrustedPaths = THIS_PROCESS,
        now: Callable[[], str] = clock.now,
    ) -> None:
        """Relative scopes of grants start from `project`.

        Relative path arguments from the working folder, where tools run.

        All `examples` must hold before anything is permitted; `check` validates their arguments. Paths in
        `trusted` may not be written.
        """
        self.flow: Flow | None = None
        """Knows the sessions, where something watches them."""
        self.active_policies = active_policies
        self._examples = tuple(examples)
        self._check_arguments = check
        self._logged = ""
        """The problem of the policies that was logged last."""
        self._project = project
        self._search = search_path()
        self._protected = ProtectedPaths(state_folder, trusted)
        self._tools = tools
        self._now = now
        self._lock = threading.Lock()
        self._plans: dict[str, TouchPlan] = {}
        self._agents: dict[str, Agent] = {}
        for name, grant in agents.items():
            self.declare(name, grant)

    def declare(self, name: str, grant: Grant, *, principal: str = "") -> None:
        """Declare an agent, or replace its grant; raises ValueError for a scope that cannot be parsed.

        Policies know it as `principal`, by default by its name.
        """
        principal = principal or name
        agent = Agent(principal, grant, base=self._project, search=self._search, written=self._written)
        with self._lock:
            # Copy and swap: a call on another thread reads the old mapping or the new one, never one that
            # changes.
            self._agents = {**self._agents, name: agent}

    def is_declared(self, name: str) -> bool:
        """Whether there is an agent of that name."""
        return name in self._agents

    def grant_of(self, name: str) -> Grant:
        """What an agent holds; nothing if it is not declared."""
        agent = self._agents.get(name)
        return Grant() if agent is None else agent.grant

    def excess_over(self, name: str, call: PermittedCall) -> str:
        """What a permitted call takes that another agent does not hold; empty if nothing.

        Compared with what was resolved for the call, which is what it will use. Told as the model wrote it:
        where a link leads, or what else is granted, is not the model's to know.
        """
        agent = self._agents[name]
        for one in call.touched:
            held = isinstance(one, Touched) and agent.effective_grant.root_of(one) is not None
            # A name alone says nothing of the addresses behind it: those are the grant's.
            if not held or not agent.effective_grant.covers_hosts(one.kind, one.hosts):
                return f"{one.kind}:{getattr(one, 'named', '')}"
        for kind, scope in call.held:
            with contextlib.closing(whole_scope(Capability(kind, scope), "/", self._search)) as whole:
                if agent.effective_grant.root_of(whole) is None:
                    return kind
        return ""

    def drop(self, name: str) -> None:
        """Refuse an agent from now on, as one that was never declared."""
        with self._lock:
            self._agents = {held: agent for held, agent in self._agents.items() if held != name}

    def _written(self) -> Iterator[str]:
        """Every folder that tools of any agent may write, here or in another process with the same agents."""
        yield from writable_folders()
        for agent in self._agents.values():
            yield from agent.written

    def use(
        self, sources: Sequence[PolicySource], examples: Iterable[Example] = (), held_back: str = ""
    ) -> None:
        """Swap the policy set, and its examples with it; raises `PoliciesRefused`.

        `held_back` says why every call is denied all the same.
        """
        self.active_policies.swap(sources, self._tools(), self._agents, held_back)
        self._examples = tuple(examples)

    def deciding_by(self, policies: ActivePolicies) -> "Authorizer":
        """The same authorizer with other policies and no sessions, to try them."""
        other = self.beside(None)
        other.active_policies, other._examples = policies, ()  # noqa: SLF001 -- its own
        return other

    def holding(self, name: str, grant: Grant | None) -> "Authorizer":
        """The same authorizer with another grant of an agent and no sessions, to try it; None for none."""
        other = self.beside(None)
        other.drop(name)
        if grant is not None:
            other.declare(name, grant)
        return other

    def beside(self, flow: Flow | None) -> "Authorizer":
        """The same authorizer with other sessions and measures, for calls that nobody makes."""
        other = copy.copy(self)
        other.flow = flow
        return other

    @property
    def hides_tools(self) -> bool:
        """Whether any policy forbids the action `see` (tool visibility)."""
        return self.active_policies.hides_tools

    def sees(self, agent: str, tool: RegisteredTool) -> bool:
        """Whether the agent may see the tool: in lists, in search and in suggestions.

        An undeclared agent sees none.
        """
        if not self.active_policies.hides_tools:
            return True
        declared = self._agents.get(agent)
        return declared is not None and self.active_policies.engine.may_see(declared.entity, tool).is_allowed

    def may_ask(self, agent: str, tool: RegisteredTool) -> bool:
        """Whether a policy may ask a person about some call of the agent to the tool."""
        declared = self._agents.get(agent)
        return declared is not None and self.active_policies.engine.may_ask(declared.entity, tool)

    def could_permit(self, agent: str, tool: RegisteredTool) -> bool:
        """Whether the policies could permit a call of the tool, whatever its arguments."""
        return self.ruled_out(agent, tool) is None

    def ruled_out(self, agent: str, tool: RegisteredTool) -> tuple[Policy, ...] | None:
        """The policies that forbid every call of the tool; empty if none permits one; None if one could pass.

        Decided by the policies that do not read the context, since their results depend on agent and tool
        alone. One that reads it may permit some call.
        """
        declared, engine = self._agents.get(agent), self.active_policies.engine
        applying = engine.policies.applying(CALL, tool.definition)
        if declared is None or all(policy.id.startswith(OURS) for policy in applying):
            permits = declared is None or any(policy.effect == "permit" for policy in applying)
            return None if permits else ()
        findings = engine.without_context(declared.entity, tool)
        if any(finding.error for finding in findings):
            return None  # unsure: a tool that is listed in vain is only refused
        by_id = engine.policies.by_id
        forbidding = tuple(
            by_id[finding.policy]
            for finding in findings
            if finding.effect == "forbid" and finding.is_satisfied and not by_id[finding.policy].yields
        )
        if forbidding:
            return forbidding
        fixed = {finding.policy: finding.is_satisfied for finding in findings}
        permits = any(fixed.get(policy.id, True) for policy in applying if policy.effect == "permit")
        return None if permits else ()

    def may_ask_by(self, agent: str, tool: RegisteredTool) -> tuple[Policy, ...]:
        """The policies that ask a person about some or all calls of an agent to a tool."""
        declared, engine = self._agents.get(agent), self.active_policies.engine
        applying = engine.policies.applying(CALL, tool.definition, agent)
        asking = [policy for policy in applying if policy.asks]
        if declared is None or not asking:
            return ()
        fixed = {one.policy: one.is_satisfied for one in engine.without_context(declared.entity, tool)}
        return tuple(policy for policy in asking if fixed.get(policy.id, True))

    def hidden_by(self, agent: str, tool: RegisteredTool) -> tuple[str, ...]:
        """The policies that hide a tool from an agent; empty if it sees the tool."""
        declared = self._agents.get(agent)
        if declared is None or self.sees(agent, tool):
            return ()
        return self.active_policies.engine.may_see(declared.entity, tool).policies

    def authorize(
        self, request: ToolCall, checked: CheckedCall, before: FlowFacts | None = None
    ) -> PermittedCall | Refusal:
        """Permit a call, or refuse it with the reason; `before` are the facts of an earlier decision."""
        # Fail closed: an unusable policy set denies every call. To skip only the broken policy could skip a
        # forbid.
        if problem := self.problem():
            if problem != self._logged:  # once, not for each call of a model that tries again
                self._logged = problem
                log.error("no call is permitted: %(problem)s", {"problem": problem})
            message = f"No call is permitted: {problem}"
            return self._denied(
                checked, refuse(request, Code.POLICIES_INVALID, message, "Tell the operator.")
            )
        if self.active_policies.lacks_permit and self._logged != _NO_PERMIT:
            self._logged = _NO_PERMIT
            log.warning(_NO_PERMIT)
        return self._evaluate(request, checked, before=before)

    def problem(self) -> str:
        """Why every call is denied: the policies cannot be used, or an example is decided otherwise."""
        return self.active_policies.problem(self._tools, self._agents) or self._failing_example()

    def findings(self, request: ToolCall, checked: CheckedCall) -> list[Finding]:
        """Evaluate each policy alone, for `explain`, whatever the capability check says."""
        agent = self._agents.get(request.agent)
        touched: list[Touched] = []
        if agent is None:
            return []
        try:
            plan = self.touch_plan(checked.registered)
            touched = plan.touched(checked.arguments, os.getcwd(), self._search)
            for capability in list(plan.wholes(touched)):
                if capability.scope not in ANY_SCOPE:
                    touched.append(whole_scope(capability, self._project, self._search))
            for one in touched:
                one.root = agent.effective_grant.root_of(one) or ""
        except TouchRefused:
            pass
        try:
            facts = self._facts(request, checked, self.touch_plan(checked.registered), touched)
            if self._measure(request, checked, facts.flow) is not None:
                return []
            return self.active_policies.engine.each(agent.entity, checked.registered, facts)
        finally:
            _close(touched)

    def _evaluate(
        self, request: ToolCall, checked: CheckedCall, base: str = "", before: FlowFacts | None = None
    ) -> PermittedCall | Refusal:
        """Check capabilities, then evaluate policies, which are known to be usable.

        Relative paths start from `base`.
        """
        agent = self._agents.get(request.agent)
        if agent is None:
            # An undeclared agent has no grant, so it gets no default one: whoever may choose a name would
            # choose a new one.
            message = f"Agent '{request.agent}' is not declared"
            return refuse(request, Code.AGENT_UNKNOWN, message, "Ask the operator.")
        touched: list[Touched] = []
        try:
            plan = self.touch_plan(checked.registered)
            if not plan.touches_nothing:
                touched += self._touched(plan, checked, agent, base)
            return self._decided(request, checked, agent, plan, touched, before)
        except TouchRefused as refused:
            _close(touched)
            advice = self._advice(request, checked.registered, agent, refused.lacks) if refused.lacks else ""
            return self._denied(checked, _touch_refusal(request, checked.registered, refused, advice))
        except QuotaExceeded:
            message = f"The calls of agent '{request.agent}' hold {HELD_PLACES} files and folders already"
            return refuse(request, Code.QUEUE_FULL, message, "Try again when some of them have ended.")
        except BaseException:
            _close(touched)
            raise

    def authorize_again(self, call: PermittedCall) -> PermittedCall | Refusal:
        """Authorize again after a wait (TOCTOU).

        The touched files are the same, and policies still permit the call.

        A person may take minutes to approve. Without this the approved path could be swapped, or the grant
        revoked, meanwhile.
        """
        if (refusal := self.unchanged(call)) is not None:
            return refusal
        again = self.authorize(call.request, call.checked, call.flow)
        if isinstance(again, Refusal):
            return again
        if [one.shown for one in again.touched] != [one.shown for one in call.touched]:
            _close(again.touched)
            return _changed(call, "", "a resource that the call accesses has changed")
        _close(again.touched)
        return replace(again, touched=call.touched)  # the descriptors held since the first check

    def unchanged(self, call: PermittedCall) -> Refusal | None:
        """Refuse if a touched path was replaced since it was permitted (TOCTOU).

        Called right before execution.
        """
        try:
            for one in call.touched:
                one.check_unchanged()
        except TouchRefused as refused:
            return _changed(call, refused.pointer, refused.reason)
        return None

    # --- capabilities ----------------------------------------------------------------------------

    def touch_plan(self, tool: RegisteredTool) -> TouchPlan:
        """Where the arguments of a tool name resources."""
        plan = self._plans.get(tool.definition_hash)
        if plan is None:
            plan = TouchPlan(tool.definition)
            with self._lock:
                if len(self._plans) >= _PLANS:
                    self._plans.clear()
                self._plans[tool.definition_hash] = plan
        return plan

    def _touched(self, plan: TouchPlan, checked: CheckedCall, agent: Agent, base: str) -> list[Touched]:
        """Resolve what a call touches; check protection, the tool's requirements and the grant."""
        touched = plan.touched(checked.arguments, base or os.getcwd(), self._search)
        effective_grant = agent.effective_grant
        try:
            for one in touched:
                one.count(agent.share)
                self._check(one, plan, agent, is_whole=False)
            for capability in list(plan.wholes(touched)):
                # A requirement without a scope means "whatever the agent holds": known only from its grant.
                if capability.scope in ANY_SCOPE:
                    _check_any(capability, plan, effective_grant)
                    continue
                whole = whole_scope(capability, self._project, self._search)
                touched.append(whole)
                whole.count(agent.share)
                self._check(whole, plan, agent, is_whole=True)
        except BaseException:
            _close(touched)
            raise
        return touched

    def _check(self, one: Touched, plan: TouchPlan, agent: Agent, *, is_whole: bool) -> None:
        effective_grant = agent.effective_grant
        # Protection comes before grants: no grant, policy or approval lets a tool touch the state or the
        # trusted paths, from which it could approve its own calls.
        if isinstance(one.thing, ResolvedPath):
            writes, name = one.kind == FS_WRITE, agent.entity.id
            objection = self._protected.objection(one.thing, writes=writes, is_whole=is_whole, agent=name)
            if objection:
                raise TouchRefused(one.pointer, objection)
        # Least privilege: a call stays inside what its definition declares, even where the agent holds more.
        # A hijacked argument must not use the agent's other grants.
        if not is_whole and not self._is_required(one, plan.required):
            why = "is outside what the tool may touch: the capabilities of its definition do not include it"
            raise TouchRefused(one.pointer, f"'{one.named}' {why}")
        root = effective_grant.root_of(one)
        if root is None:
            # Only for the operator: the scope tells whether the file exists.
            lacks = f"{one.kind}:{scope_of(one, self._project)}" if agent.entity.id == OPERATOR else ""
            raise _ungranted(one.pointer, f"{one.kind} of '{one.named}'", lacks)
        one.root, one.folder = root, effective_grant.folder_of(root, one.kind)
        one.hosts = effective_grant.reach_of(one)
        # Only now: "does not exist" is told only to an agent that may read there. Earlier it would reveal
        # which files exist outside its grant.
        if one.objection:
            raise TouchRefused(one.pointer, one.objection, can_be_fixed=True)

    def _whole_grants(
        self, plan: TouchPlan, effective_grant: EffectiveGrant, touched: list[Touched]
    ) -> tuple[tuple[str, str], ...]:
        """Capabilities that the call takes without naming a resource.

        The agent's whole scope of that kind.
        """
        if plan.touches_nothing:
            return ()
        kinds = [capability.kind for capability in plan.wholes(touched) if capability.scope in ANY_SCOPE]
        if Capability(PROCESS_SPAWN) in plan.required:  # any program, and those it starts
            kinds.append(PROCESS_SPAWN)
        found: list[tuple[str, str]] = []
        for kind in dict.fromkeys(kinds):
            found += [(kind, scope) for scope in effective_grant.hosts(kind)]
            for place in effective_grant.places(kind):
                with place:
                    writes = kind == FS_WRITE
                    if objection := self._protected.objection(place, writes=writes, is_whole=True):
                        raise TouchRefused("", objection)
                    found.append((kind, place.path))
        return tuple(found)

    def _is_required(self, one: Touched, required: Iterable[Capability]) -> bool:
        """Whether the resource lies inside the tool's declared requirements.

        Without one of that kind the grant decides.
        """
        same = [capability for capability in required if capability.kind == one.kind]
        where = {"base": self._project, "search": self._search}
        return not same or any(requirement_contains(capability, one, **where) for capability in same)

    def _advice(self, request: ToolCall, tool: RegisteredTool, agent: Agent, lacks: str = "") -> str:
        """What the operator at the command line would add to the configuration; empty for any other agent.

        A model is not told how to write its own grant.
        """
        held = agent.effective_grant.permissions
        missing = [name for name in tool.definition.required_permissions if name not in held]
        if request.agent != OPERATOR or not (lacks or missing) or tool.arguments.secrecy.has_secrets:
            return ""
        grant = agent.effective_grant.grant
        return advice(line_to_add(request.agent, grant, [lacks] if lacks else [], missing))

    # --- policies --------------------------------------------------------------------------------

    def _facts(
        self,
        request: ToolCall,
        checked: CheckedCall,
        plan: TouchPlan,
        touched: list[Touched],
        before: FlowFacts | None = None,
    ) -> CallFacts:
        """The Cedar context of a call, with resources in canonical form."""
        flow = self._flow_facts(request, checked, before)
        if plan.touches_nothing:
            return CallFacts(
                arguments=checked.arguments,
                session=request.session,
                conversation=request.conversation,
                flow=flow,
            )
        held: dict[str, set[str]] = {area: set() for area in ("fs", "net", "process", "db", "mcp")}
        canonical: dict[str, str] = {}
        for capability in plan.wholes(touched):
            if capability.scope in ANY_SCOPE:  # fails every allowlist: the call may touch anything
                held[capability.kind.partition(".")[0]].add(ANYTHING)
        for one in touched:
            area = one.kind.partition(".")[0]
            held[area].add(one.root if area == "fs" else one.shown)
            if one.pointer and not one.is_program:
                canonical[one.pointer] = one.shown
        return CallFacts(
            arguments=checked.arguments,
            canonical=canonical,
            roots=frozenset(held["fs"]),
            hosts=frozenset(held["net"]),
            programs=frozenset(held["process"]),
            databases=frozenset(held["db"]),
            session=request.session,
            conversation=request.conversation,
            flow=flow,
        )

    def _flow_facts(
        self, request: ToolCall, checked: CheckedCall, before: FlowFacts | None
    ) -> FlowFacts | None:
        if self.flow is not None:
            return self.flow.facts(request, checked, before)
        if self.active_policies.counted_too:  # a call that is only explained, or decided again
            return FlowFacts(make_plan(checked.registered), None, checked.arguments)
        return None

    def _measure(self, request: ToolCall, checked: CheckedCall, flow: FlowFacts | None) -> Refusal | None:
        """Fill the measures that policies read, with this call counted in; refuse it without its amount."""
        active = self.active_policies
        if flow is None or not active.counted_too:
            return None
        read = active.engine.read_measures(checked.registered)
        if active.shadow is not None:
            more = {*read, *active.shadow.read_measures(checked.registered)}
            # What only policies in shadow read refuses nothing, such as a call without the amount.
            with contextlib.suppress(Exception):
                if self._measured(request, checked, flow, active.counted_too, more) is None:
                    return None
        return self._measured(request, checked, flow, active.counted, read)

    def _measured(
        self,
        request: ToolCall,
        checked: CheckedCall,
        flow: FlowFacts,
        counted: Collection[str],
        read: Collection[str],
    ) -> Refusal | None:
        active, tool = self.active_policies, checked.registered.name
        try:
            if self.flow is None or flow.session is None:
                flow.measures = alone(active.measures, tool, checked.arguments, read)
                return None
            caller = Caller(request.agent, flow.session.key)
            flow.reserved = self.flow.meter.reserve(
                request.id, caller, tool, checked.arguments, counted=counted, read=read
            )
            flow.measures = flow.reserved.values
        except ValueError as error:
            message = f"This call cannot be measured: {error}"
            return self._denied(
                checked, refuse(request, Code.NOT_PERMITTED, message, "Call again with an amount.")
            )
        return None

    def _release(self, flow: FlowFacts | None) -> None:
        """Give back what a call reserved that is refused."""
        if self.flow is not None and flow is not None and flow.reserved is not None:
            self.flow.meter.release(flow.reserved)

    def _decided(
        self,
        request: ToolCall,
        checked: CheckedCall,
        agent: Agent,
        plan: TouchPlan,
        touched: list[Touched],
        before: FlowFacts | None,
    ) -> PermittedCall | Refusal:
        facts = self._facts(request, checked, plan, touched, before)
        try:
            outcome = self._measure(request, checked, facts.flow) or self._by_policy(
                request, checked, agent, plan, touched, facts
            )
        except BaseException:
            self._release(facts.flow)
            raise
        if isinstance(outcome, Refusal):
            _close(touched)
            self._release(facts.flow)
        return outcome

    def _by_policy(
        self,
        request: ToolCall,
        checked: CheckedCall,
        agent: Agent,
        plan: TouchPlan,
        touched: list[Touched],
        facts: CallFacts,
    ) -> PermittedCall | Refusal:
        engine = self.active_policies.engine
        verdict = engine.decide(agent.entity, checked.registered, facts)
        decision = self._decision(checked, verdict, touched, engine.policies, facts.flow)
        # After the decision, which it never changes.
        if (shadow := self.active_policies.shadow) is not None and (
            would := shadow.difference(agent.entity, checked.registered, facts, verdict)
        ) is not None:
            decision = replace(decision, shadow=would)
        if not verdict.is_allowed:
            advice = self._advice(request, checked.registered, agent)
            return replace(_policy_refusal(request, verdict, engine.policies, advice), decision=decision)
        return PermittedCall(
            request=request,
            checked=checked,
            tool=checked.registered,
            decision=decision,
            touched=tuple(touched),
            held=self._whole_grants(plan, agent.effective_grant, touched),
            asks=_asking(engine.policies, verdict.policies) if verdict.asks else (),
            asked_by=_asking(engine.policies, verdict.yielding),
            flow=facts.flow,
            is_spared=self.flow is not None and self.flow.settings.spares(verdict.yielding),
            grant_hash=_bound(request, agent.grant_hash(decision.policy_set_hash)),
        )

    def _failing_example(self) -> str:
        """The first example that fails; once all hold, they are not evaluated again.

        Examples of tools that are not registered are left to `toolkeep policy check`: a program may omit some
        tools.
        """
        if not self._examples:
            return ""
        here = {tool.name for tool in self._tools()}
        shadow = self.active_policies.shadow
        for example in self._examples:
            if shadow is not None and example.named_policies & shadow.ids:
                continue  # of a policy that decides nothing
            if example.tools <= here and (problem := self.example_problem(example)):
                return problem
        self._examples = ()
        return ""

    def example_problem(self, example: Example) -> str:
        """Why an example fails; empty if it holds."""
        flow = Flow(FlowSettings(measures=self.active_policies.declared), MemorySessionStates())
        # Relative to the project, like grants: the result must not depend on the working directory.
        evaluate = partial(self.beside(flow)._evaluate, base=self._project)  # noqa: SLF001 -- its own
        check = ExampleCheck(flow, tools=self._tools(), check=self._check_arguments, evaluate=evaluate)
        return check.problem(example)

    def _decision(
        self,
        checked: CheckedCall,
        verdict: Verdict,
        touched: Iterable[Touched],
        policies: Policies,
        flow: FlowFacts | None = None,
    ) -> Decision:
        """The audited decision. `policies` is the set that decided, even if another one is active by now."""
        return Decision(
            decision="allow" if verdict.is_allowed else "deny",
            asked_by=verdict.yielding or UNSET,
            flow=flow.to_record() if flow is not None else UNSET,
            policies=verdict.policies,
            policy_set_hash=policies.hash,
            # The hash covers argument values: a secret with little entropy could be guessed from it offline.
            request_hash="" if checked.registered.arguments.secrecy.has_secrets else verdict.request_hash,
            spared_by=verdict.spared_by or UNSET,
            capabilities=checked.registered.capability_names,
            touches=tuple([_audit_text(one, checked) for one in touched]),
            decided_at=self._now(),
        )

    def _denied(self, checked: CheckedCall, refusal: Refusal) -> Refusal:
        """A refusal before any policy was evaluated, with its decision for the audit log."""
        nothing = Verdict(is_allowed=False)
        policies = self.active_policies.engine.policies
        return replace(refusal, decision=self._decision(checked, nothing, (), policies))


def _bound(request: ToolCall, grant_hash: str) -> str:
    """What an approval is bound to; also the per-call data: one tenant's yes must not cover another."""
    return canonical_hash([grant_hash, request.data_hash]) if request.data_hash else grant_hash


def _policy_refusal(request: ToolCall, verdict: Verdict, policies: Policies, advice: str = "") -> Refusal:
    if verdict.errors:
        log.error("the policies could not be applied: %(problem)s", {"problem": verdict.errors[0]})
        message = f"The policies could not be applied: {verdict.errors[0]}"
    elif verdict.policies:
        first = policies.by_id[verdict.policies[0]]
        message = f"Policy '{first.id}' forbids it" + (f": {first.reason}" if first.reason else "")
    else:
        message = f"No policy permits agent '{request.agent}' to make this call to '{request.tool}'"
    is_lacking = verdict.policies[:1] == (PERMISSIONS_POLICY,) and not verdict.errors
    fix = (advice if is_lacking else "") or _ask(request)
    return refuse(request, Code.NOT_PERMITTED, message, fix)


def _asking(policies: Policies, ids: Iterable[str]) -> tuple[str, ...]:
    """Why a person is asked, of those that ask."""
    return tuple(asking_reason(policy) for one in ids if (policy := policies.by_id[one]).asks)


def asking_reason(policy: Policy) -> str:
    """Why a policy asks a person; of one of toolkeep the reason alone, since no operator wrote its name."""
    if policy.reason and policy.id.startswith(OURS):
        return policy.reason
    return f"policy '{policy.id}' requires approval" + (f": {policy.reason}" if policy.reason else "")


def _ask(request: ToolCall) -> str:
    return _EXPLAIN if request.agent == OPERATOR else _ASK_OPERATOR


def _check_any(capability: Capability, plan: TouchPlan, effective_grant: EffectiveGrant) -> None:
    """Check a requirement without a scope: the agent must hold something of that kind."""
    # The argument exists but its value cannot be located in the call: deny, since any resource could be
    # named.
    if capability.kind in plan.unread:
        raise TouchRefused("", f"its arguments do not show what it would access with {capability.kind}")
    if not effective_grant.holds(capability.kind) and capability.kind not in plan.dispensable:
        raise _ungranted("", capability.kind, f"{capability.kind}:SCOPE")


def _ungranted(pointer: str, what: str, lacks: str) -> TouchRefused:
    return TouchRefused(pointer, f"the agent has no grant for {what}", lacks=lacks, ungranted=what)


def _audit_text(one: Touched, checked: CheckedCall) -> str:
    """A touched resource as the audit log may hold it: redacted if an argument may be secret (AUD-5)."""
    is_secret = bool(one.pointer) and checked.registered.arguments.secrecy.has_secrets
    # That an address is private stays in the record, also for a name, whose addresses change (SBX-4).
    private = [str(scope.leads_to) for scope in one.hosts if scope.leads_to is not None]
    behind = f" (private: {', '.join(private)})" if private else ""
    return f"{one.kind}:{HIDDEN if is_secret else one.shown}{behind}"


def _close(touched: Iterable[TouchedThing]) -> None:
    for one in touched:
        one.close()


def _touch_refusal(
    request: ToolCall, tool: RegisteredTool, refused: TouchRefused, advice: str = ""
) -> Refusal:
    reason = refused.reason[0].upper() + refused.reason[1:]
    fix = NAME_ANOTHER if refused.can_be_fixed else advice or _ask(request)
    ungranted = visible(refused.ungranted)
    if tool.arguments.secrecy.has_secrets:  # the reason may quote an argument
        reason, fix = "An argument names something that may not be touched", _ask(request)
        ungranted = ""
    refusal = refuse(request, Code.NOT_PERMITTED, reason, fix, path=refused.pointer)
    return replace(refusal, ungranted=ungranted)


def _changed(call: PermittedCall, pointer: str, reason: str) -> Refusal:
    reason = reason[0].upper() + reason[1:]
    if call.tool.arguments.secrecy.has_secrets:  # the reason may quote an argument
        reason = "A resource that the call accesses has changed since it was checked"
    return refuse(
        call.request,
        Code.TOUCHED_CHANGED,
        reason,
        "Tell the user that another program may be replacing it.",
        path=pointer,
    )
