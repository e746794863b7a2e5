"""The door of policy: a checked call becomes a `PermittedCall`, or a refusal. Nothing else makes one.

Three questions, each to be answered with yes: may this agent touch what the call would touch, is none of it
protected, and do the policies permit the call. The answer leaves a proof, either way.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from toolkeep import clock
from toolkeep.calls import (
    CheckedCall,
    Decision,
    PermittedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    TouchedThing,
)
from toolkeep.canonical import canonical_hash
from toolkeep.definitions.capability import Capability
from toolkeep.errors import Code
from toolkeep.limits import HELD_PLACES
from toolkeep.policy.engine import AgentEntity, CallFacts, Finding, Verdict
from toolkeep.policy.folders import Protected, Written
from toolkeep.policy.holdings import Holdings, requirement_contains
from toolkeep.policy.places import NoRoom, Place, Share
from toolkeep.policy.policies import Policies
from toolkeep.policy.rulebook import Rulebook
from toolkeep.policy.settings import Example, Grant, PolicySource
from toolkeep.policy.touched import (
    ANY_SCOPE,
    FS_WRITE,
    PROCESS_SPAWN,
    Touched,
    TouchPlan,
    TouchRefused,
    whole_scope,
)
from toolkeep.refusals import refuse
from toolkeep.sandbox.import_guard import writable_folders
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths, search_path
from toolkeep.wording import HIDDEN

_PLANS: Final = 10_000
"""Tools whose plan is kept."""

ANYTHING: Final = "*"
"""Stands in `context.hosts` and the like for a tool that needs what policy grants, and does not say what."""

_ELSEWHERE: Final = "Do without it, or ask the operator."
_OTHERWISE: Final = "Name something else."


Check = Callable[[RegisteredTool, Mapping[str, Any]], CheckedCall | Refusal]


class Agent:
    """A declared agent and what it holds."""

    def __init__(self, name: str, grant: Grant, *, base: str, search: str, written: Written) -> None:
        self.holdings = Holdings(grant, base=base, search=search, written=written)
        self.written = [
            os.path.realpath(os.path.join(base, held.scope))
            for held in grant.capabilities
            if held.kind == "fs.write" and held.scope not in ANY_SCOPE
        ]
        """The folders that it may write, as they were when it was declared."""
        self.entity = AgentEntity(
            id=name, permissions=self.holdings.permissions, capabilities=self.holdings.capabilities
        )
        self.share = Share(HELD_PLACES)
        """How much its calls may hold open."""
        self._bound = ("", "")

    def grant_hash(self, policy_set_hash: str) -> str:
        """What an approval is bound to beside the call: what the agent holds, under which policies."""
        bound = self._bound  # read once: another thread may decide by other policies
        if bound[0] != policy_set_hash:
            bound = self._bound = (policy_set_hash, canonical_hash([policy_set_hash, self.holdings.hash]))
        return bound[1]


class Authorizer:
    """Decides about calls: capabilities of declared agents, and the rulebook."""

    def __init__(
        self,
        rulebook: Rulebook,
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
        """Grants are relative to `project`, arguments to the working folder, where the tools run.

        `examples` must hold before anything is permitted; `check` says whether their arguments are valid;
        what is `trusted` may not be written.
        """
        self.rulebook = rulebook
        self._examples = tuple(examples)
        self._check_arguments = check
        self._project = project
        self._search = search_path()
        self._protected = Protected(state_folder, trusted)
        self._tools = tools
        self._now = now
        self._lock = threading.Lock()
        self._plans: dict[str, TouchPlan] = {}
        self._agents: dict[str, Agent] = {}
        for name, grant in agents.items():
            self.declare(name, grant)

    def declare(self, name: str, grant: Grant) -> None:
        """Let an agent call tools, with what it holds from now on; ValueError for a scope that cannot be."""
        agent = Agent(name, grant, base=self._project, search=self._search, written=self._written)
        with self._lock:
            self._agents = {**self._agents, name: agent}

    def _written(self) -> Iterator[str]:
        """The folders that tools of any agent may write, here or in another process with the same agents."""
        yield from writable_folders()
        for agent in self._agents.values():
            yield from agent.written

    def use(self, sources: Sequence[PolicySource]) -> None:
        """Decide by other policies; raises `PoliciesRefused`. Examples belong to the ones before."""
        self.rulebook.swap(sources, self._tools(), self._agents)
        self._examples = ()

    @property
    def hides_tools(self) -> bool:
        """Whether any policy keeps an agent from knowing of a tool."""
        return self.rulebook.hides_tools

    def sees(self, agent: str, tool: RegisteredTool) -> bool:
        """Whether an agent may know of a tool."""
        if not self.rulebook.hides_tools:
            return True
        declared = self._agents.get(agent)
        return declared is not None and self.rulebook.engine.may_see(declared.entity, tool).is_allowed

    def authorize(self, request: ToolCall, checked: CheckedCall) -> PermittedCall | Refusal:
        """Permit a call, or say who or what stands against it."""
        if problem := self.problem():
            message = f"No call is permitted: {problem}"
            return self._denied(
                checked, refuse(request, Code.POLICIES_INVALID, message, "Tell the operator.")
            )
        return self._judge(request, checked)

    def problem(self) -> str:
        """Why nothing at all is permitted: policies that cannot be used, or decide an example otherwise."""
        return self.rulebook.problem(self._tools, self._agents) or self._failing_example()

    def findings(self, request: ToolCall, checked: CheckedCall) -> list[Finding]:
        """What each policy by itself says of a call, whatever it would touch."""
        agent = self._agents.get(request.agent)
        touched: list[Touched] = []
        if agent is None:
            return []
        try:
            plan = self._plan(checked.registered)
            touched = plan.touched(checked.arguments, os.getcwd(), self._search)
            for capability in list(plan.wholes(touched)):
                if capability.scope not in ANY_SCOPE:
                    touched.append(whole_scope(capability, self._project, self._search))
            for one in touched:
                one.root = agent.holdings.root_of(one) or ""
        except TouchRefused:
            pass
        try:
            facts = self._facts(request, checked, self._plan(checked.registered), touched)
            return self.rulebook.engine.each(agent.entity, checked.registered, facts)
        finally:
            _close(touched)

    def _judge(self, request: ToolCall, checked: CheckedCall, base: str = "") -> PermittedCall | Refusal:
        """Permit a call or not, by policies that are known to be usable; its paths start from `base`."""
        agent = self._agents.get(request.agent)
        if agent is None:
            message = f"Agent '{request.agent}' is not declared"
            return refuse(request, Code.AGENT_UNKNOWN, message, "Ask the operator.")
        touched: list[Touched] = []
        try:
            plan = self._plan(checked.registered)
            if not plan.touches_nothing:
                touched += self._touched(plan, checked, agent, base)
            return self._decided(request, checked, agent, plan, touched)
        except TouchRefused as refused:
            _close(touched)
            return self._denied(checked, _of_touch(request, checked.registered, refused))
        except NoRoom:
            message = f"The calls of agent '{request.agent}' hold {HELD_PLACES} files and folders already"
            return refuse(request, Code.QUEUE_FULL, message, "Try again when some of them have ended.")
        except BaseException:
            _close(touched)
            raise

    def authorize_again(self, call: PermittedCall) -> PermittedCall | Refusal:
        """The same after time has passed: nothing it touches is another thing, and policy still says yes."""
        if (refusal := self.unchanged(call)) is not None:
            return refusal
        again = self.authorize(call.request, call.checked)
        if isinstance(again, Refusal):
            return again
        if [one.shown for one in again.touched] != [one.shown for one in call.touched]:
            _close(again.touched)
            return _changed(call, "", "what the call would touch is no longer the same")
        _close(again.touched)
        return replace(again, touched=call.touched)  # what was held all the time

    def unchanged(self, call: PermittedCall) -> Refusal | None:
        """A refusal where something that the call would touch was replaced since it was permitted."""
        try:
            for one in call.touched:
                one.check_unchanged()
        except TouchRefused as refused:
            return _changed(call, refused.pointer, refused.reason)
        return None

    # --- capabilities ----------------------------------------------------------------------------

    def _plan(self, tool: RegisteredTool) -> TouchPlan:
        plan = self._plans.get(tool.definition_hash)
        if plan is None:
            plan = TouchPlan(tool.definition)
            with self._lock:
                if len(self._plans) >= _PLANS:
                    self._plans.clear()
                self._plans[tool.definition_hash] = plan
        return plan

    def _touched(self, plan: TouchPlan, checked: CheckedCall, agent: Agent, base: str) -> list[Touched]:
        touched = plan.touched(checked.arguments, base or os.getcwd(), self._search)
        holdings = agent.holdings
        try:
            for one in touched:
                one.count(agent.share)
                self._check(one, plan, agent, is_whole=False)
            for capability in list(plan.wholes(touched)):
                if capability.scope in ANY_SCOPE:
                    _check_any(capability, plan, holdings)
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
        holdings = agent.holdings
        if isinstance(one.thing, Place):
            writes, name = one.kind == FS_WRITE, agent.entity.id
            objection = self._protected.objection(one.thing, writes=writes, is_whole=is_whole, agent=name)
            if objection:
                raise TouchRefused(one.pointer, objection)
        if not is_whole and not self._is_required(one, plan.required):
            raise TouchRefused(one.pointer, f"'{one.named}' is outside what the tool says that it needs")
        root = holdings.root_of(one)
        if root is None:
            raise TouchRefused(one.pointer, f"the agent does not hold {one.kind} of '{one.named}'")
        one.root, one.folder = root, holdings.folder_of(root, one.kind)
        if one.objection:
            raise TouchRefused(one.pointer, one.objection, can_be_mended=True)

    def _held(
        self, plan: TouchPlan, holdings: Holdings, touched: list[Touched]
    ) -> tuple[tuple[str, str], ...]:
        """What a call takes as a whole: what it does not name, and programs where it may be any."""
        if plan.touches_nothing:
            return ()
        kinds = [capability.kind for capability in plan.wholes(touched) if capability.scope in ANY_SCOPE]
        if Capability(PROCESS_SPAWN) in plan.required:  # any program, and what it starts in turn
            kinds.append(PROCESS_SPAWN)
        found: list[tuple[str, str]] = []
        for kind in dict.fromkeys(kinds):
            found += [(kind, scope) for scope in holdings.hosts(kind)]
            for place in holdings.places(kind):
                with place:
                    writes = kind == FS_WRITE
                    if objection := self._protected.objection(place, writes=writes, is_whole=True):
                        raise TouchRefused("", objection)
                    found.append((kind, place.path))
        return tuple(found)

    def _is_required(self, one: Touched, required: Iterable[Capability]) -> bool:
        same = [capability for capability in required if capability.kind == one.kind]
        where = {"base": self._project, "search": self._search}
        return not same or any(requirement_contains(capability, one, **where) for capability in same)

    # --- policies --------------------------------------------------------------------------------

    def _facts(
        self, request: ToolCall, checked: CheckedCall, plan: TouchPlan, touched: list[Touched]
    ) -> CallFacts:
        if plan.touches_nothing:
            return CallFacts(
                arguments=checked.arguments, session=request.session, conversation=request.conversation
            )
        held: dict[str, set[str]] = {"fs": set(), "net": set(), "process": set(), "db": set()}
        canonical: dict[str, str] = {}
        for capability in plan.wholes(touched):
            if capability.scope in ANY_SCOPE:  # anything: a policy that lists what is allowed must not be met
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
        )

    def _decided(
        self,
        request: ToolCall,
        checked: CheckedCall,
        agent: Agent,
        plan: TouchPlan,
        touched: list[Touched],
    ) -> PermittedCall | Refusal:
        engine = self.rulebook.engine
        facts = self._facts(request, checked, plan, touched)
        verdict = engine.decide(agent.entity, checked.registered, facts)
        decision = self._decision(checked, verdict, touched, engine.policies)
        if not verdict.is_allowed:
            _close(touched)
            return replace(_by_policy(request, verdict, engine.policies), decision=decision)
        return PermittedCall(
            request=request,
            checked=checked,
            tool=checked.registered,
            decision=decision,
            touched=tuple(touched),
            held=self._held(plan, agent.holdings, touched),
            asks=verdict.asks,
            grant_hash=agent.grant_hash(decision.policy_set_hash),
        )

    def _failing_example(self) -> str:
        """The first example that the policies decide otherwise; once all hold, they are not asked again.

        Those of tools that are not here are left to `toolkeep policy check`: a program may do without some.
        """
        if not self._examples:
            return ""
        here = {tool.name for tool in self._tools()}
        for example in self._examples:
            if example.tool in here and (problem := self.example_problem(example)):
                return problem
        self._examples = ()
        return ""

    def example_problem(self, example: Example) -> str:
        """What is wrong with an example; empty where it holds."""
        tool = next((tool for tool in self._tools() if tool.name == example.tool), None)
        if tool is None or self._check_arguments is None:
            return f"{example.place}: there is no tool '{example.tool}'"
        checked = self._check_arguments(tool, example.arguments)
        if isinstance(checked, Refusal):
            return f"{example.place}: the arguments are not valid: {checked.errors[0].message}"
        request = ToolCall(id="example", tool=tool.name, arguments=None, agent=example.agent)
        # From the project, as grants are: whether an example holds must not depend on where one stands.
        outcome = self._judge(request, checked, self._project)
        decision: Decision | None = outcome.decision
        said = "it is allowed" if isinstance(outcome, PermittedCall) else outcome.errors[0].message
        if isinstance(outcome, PermittedCall):
            _close(outcome.touched)
        if isinstance(outcome, PermittedCall) != example.is_allowed:
            wanted = "allowed" if example.is_allowed else "denied"
            return f"{example.place}: the example should be {wanted}; {said}"
        decided = decision.policies if decision is not None else ()
        if example.policy and example.policy not in decided:
            instead = ", ".join(decided) or f"none: {said}"
            return f"{example.place}: policy '{example.policy}' should decide it, not {instead}"
        return ""

    def _decision(
        self, checked: CheckedCall, verdict: Verdict, touched: Iterable[Touched], policies: Policies
    ) -> Decision:
        """The proof; `policies` are those that decided, whatever is in force by now."""
        return Decision(
            decision="allow" if verdict.is_allowed else "deny",
            policies=verdict.policies,
            policy_set_hash=policies.hash,
            # A hash gives a secret away that can be guessed, and policies read arguments of sensitive tools.
            request_hash="" if checked.registered.arguments.secrecy.has_secrets else verdict.request_hash,
            spared_by=verdict.spared_by or UNSET,
            capabilities=checked.registered.capability_names,
            touches=tuple([_told(one, checked) for one in touched]),
            decided_at=self._now(),
        )

    def _denied(self, checked: CheckedCall, refusal: Refusal) -> Refusal:
        """A refusal before any policy was asked, with its proof."""
        nothing = Verdict(is_allowed=False)
        policies = self.rulebook.engine.policies
        return replace(refusal, decision=self._decision(checked, nothing, (), policies))


def _by_policy(request: ToolCall, verdict: Verdict, policies: Policies) -> Refusal:
    if verdict.errors:
        message = f"The policies could not be applied: {verdict.errors[0]}"
    elif verdict.policies:
        first = policies.by_id[verdict.policies[0]]
        message = f"Policy '{first.id}' forbids it" + (f": {first.reason}" if first.reason else "")
    else:
        message = f"No policy permits agent '{request.agent}' to make this call of '{request.tool}'"
    return refuse(request, Code.NOT_PERMITTED, message, _ELSEWHERE)


def _check_any(capability: Capability, plan: TouchPlan, holdings: Holdings) -> None:
    """A tool that needs "what policy grants", and names nothing, needs that something is granted."""
    if capability.kind in plan.unread:
        raise TouchRefused("", f"what the call would touch of {capability.kind} cannot be told from it")
    if not holdings.holds(capability.kind):
        raise TouchRefused("", f"the agent holds no {capability.kind}")


def _told(one: Touched, checked: CheckedCall) -> str:
    """What is touched, as the log may hold it: what a secret argument names is not said (AUD-5)."""
    is_secret = bool(one.pointer) and checked.registered.arguments.secrecy.has_secrets
    return f"{one.kind}:{HIDDEN if is_secret else one.shown}"


def _close(touched: Iterable[TouchedThing]) -> None:
    for one in touched:
        one.close()


def _of_touch(request: ToolCall, tool: RegisteredTool, refused: TouchRefused) -> Refusal:
    reason = refused.reason[0].upper() + refused.reason[1:]
    mend = _OTHERWISE if refused.can_be_mended else _ELSEWHERE
    if tool.arguments.secrecy.has_secrets:  # the reason may quote an argument
        reason, mend = "An argument names something that may not be touched", _ELSEWHERE
    return refuse(request, Code.NOT_PERMITTED, reason, mend, path=refused.pointer)


def _changed(call: PermittedCall, pointer: str, reason: str) -> Refusal:
    reason = reason[0].upper() + reason[1:]
    if call.tool.arguments.secrecy.has_secrets:  # the reason may quote an argument
        reason = "Something that the call would touch is no longer what it was when it was checked"
    return refuse(
        call.request,
        Code.TOUCHED_CHANGED,
        reason,
        "Tell the user: something is being replaced.",
        path=pointer,
    )
