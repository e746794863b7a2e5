"""Dry run of authorization: why a call would be permitted or denied, and what would have to change (POL-5).

In come an authorizer, the agent's grant and a checked call; out goes an `Explanation`. The verdict is that of
the authorizer itself, so explanation and enforcement cannot disagree. Details (each touched resource, each
policy) come from the same parts without stopping at the first denial. Nothing is run, recorded or asked.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from toolkeep.calls import CheckedCall, PermittedCall, Refusal, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.errors import Code
from toolkeep.json_values.pointers import look_up
from toolkeep.network.addresses import AddressClass, classify, non_public_reason
from toolkeep.network.hosts import Host
from toolkeep.policy.authorize import PERMISSIONS_POLICY, Authorizer
from toolkeep.policy.cedar_engine import Finding
from toolkeep.policy.cedar_parser import OURS
from toolkeep.policy.effective_grant import EffectiveGrant, requirement_contains
from toolkeep.policy.grant_advice import CONFIG_FILE, GrantLine, advice, any_of, line_to_add, scope_of
from toolkeep.policy.held_conditions import in_words
from toolkeep.policy.path_grants import ProtectedPaths
from toolkeep.policy.policy_settings import Grant
from toolkeep.policy.resolved_path import ResolvedPath
from toolkeep.policy.touched_resources import (
    ANY_SCOPE,
    FS_WRITE,
    Touched,
    TouchPlan,
    TouchRefused,
    whole_scope,
)
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths, search_path
from toolkeep.text.display import HIDDEN, echo_name


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """A reason for denial, and the change that would remove it."""

    what: str
    change: str
    capability: str = ""
    """The capability that would have to be granted, if that is the change."""


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """One touched resource."""

    capability: str
    """The capability kind, `fs.read`."""
    thing: str
    """Canonical form; empty if the argument names no resource."""
    argument: str
    """JSON Pointer of the argument that names it; empty if the tool's requirement does."""
    grant: str = ""
    """The granted scope that contains it."""
    objections: tuple[Objection, ...] = ()
    held_down: tuple[str, ...] = ()
    """Trusted paths inside it that stay read-only although the folder may be written (SBX-6)."""
    leads_to: tuple[str, ...] = ()
    """For a host that is held, the networks that it may have addresses of: private ones, or `public`."""

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


class ConditionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a part of a policy's conditions holds, and the arguments that it reads."""

    kind: str
    """`when` or `unless`."""
    text: str
    holds: bool
    reads: dict[str, Any]
    """Its arguments with their values; what may be secret is hidden. Not of a test whether there is one."""


class PolicyResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one policy evaluated alone, with its source position."""

    finding: Finding
    place: str
    reason: str
    asks: bool
    is_silent: bool
    conditions: tuple[ConditionResult, ...] = ()
    """The parts of its conditions, if it forbids the call."""
    says: str = ""
    """What it forbids of the call in words, such as: forbids `cents` above 2000; this call has 2400."""
    change: str = ""
    """What would have to change, if it forbids the call."""

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
        return {
            "policy": self.finding.policy,
            "effect": self.finding.effect,
            "holds": self.finding.is_satisfied,
            "error": self.finding.error,
            "place": self.place,
            "reason": self.reason,
            "asks": self.asks,
            "is_silent": self.is_silent,
            "conditions": msgspec.to_builtins(self.conditions),
            "says": self.says,
            "change": self.change,
        }


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a call would be permitted, why, and what would have to change."""

    outcome: PermittedCall | Refusal
    """The authorizer's own result; the caller closes what a permitted call holds open."""
    touches: tuple[Touch, ...] = ()
    policies: tuple[PolicyResult, ...] = ()
    changes: tuple[str, ...] = ()
    """All changes that are needed before the call is permitted; the first is the `line`, if there is one."""
    line: GrantLine | None = None
    """The line of the configuration that grants all that the agent lacks."""

    @property
    def is_allowed(self) -> bool:
        """Whether the call would be permitted."""
        return isinstance(self.outcome, PermittedCall)

    @property
    def spared_by(self) -> list[str]:
        """The `@silent` policies that override `@ask`."""
        decision = self.outcome.decision
        return list(decision.spared_by or ()) if decision is not None else []


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that would call, with its grant and the project that scopes are relative to."""

    name: str
    grant: Grant | None
    """None for an undeclared agent."""
    project: str
    """The folder that grants are relative to."""
    state_folder: str | None = None
    trusted: TrustedPaths = THIS_PROCESS

    def where(self, kind: str) -> str:
        """Where in the configuration the grant would be written."""
        return f"in {CONFIG_FILE}, agents: {echo_name(self.name)}: {kind}"

    def lacking(self, permissions: Iterable[str]) -> list[str]:
        """Those of the permissions that it does not hold."""
        held = self.grant.permissions if self.grant else ()
        return [name for name in permissions if name not in held]


def explain(authorizer: Authorizer, holder: Holder, request: ToolCall, checked: CheckedCall) -> Explanation:
    """Explain the authorizer's decision about a call."""
    outcome = authorizer.authorize(request, checked)
    touches = tuple(touches_of(holder, checked))
    # Without the canonical form of a touched argument the Cedar context is incomplete: no policy is
    # evaluated.
    is_named = all(touch.capability for touch in touches)
    policies = tuple(_says(authorizer, holder, request, checked)) if is_named else ()
    changes: tuple[str, ...] = ()
    line: GrantLine | None = None
    if isinstance(outcome, Refusal):
        line = _line(holder, checked, touches, policies)
        found = [
            *([advice(line)] if line else _of_grant(holder, touches)),
            *_of_everything(authorizer, outcome),
            *_of_policies(policies, holder, checked, is_granted=line is not None),
        ]
        # No change is known: give at least the reason.
        changes = tuple(dict.fromkeys(found)) or (outcome.errors[0].message,)
    return Explanation(outcome=outcome, touches=touches, policies=policies, changes=changes, line=line)


def _line(
    holder: Holder, checked: CheckedCall, touches: Iterable[Touch], policies: Iterable[PolicyResult]
) -> GrantLine | None:
    """The line that grants what the call lacks; None if a grant is not what it lacks."""
    objections = [objection for touch in touches for objection in touch.objections]
    others = [say for say in policies if say.finding.policy != PERMISSIONS_POLICY]
    is_forbidden = any(say.finding.error or _forbids(say) for say in others)
    missing = holder.lacking(checked.registered.definition.required_permissions)
    capabilities = [objection.capability for objection in objections]
    if not all(capabilities) or is_forbidden or not (capabilities or missing):
        return None
    return line_to_add(holder.name, holder.grant, capabilities, missing)


def _forbids(say: PolicyResult) -> bool:
    return say.finding.effect == "forbid" and say.finding.is_satisfied and not say.asks


def _of_grant(holder: Holder, touches: Iterable[Touch]) -> Iterator[str]:
    """Changes to what the agent holds or the call touches, each by itself."""
    if holder.grant is None:
        yield f"declare the agent: write '{echo_name(holder.name)}' under agents: in {CONFIG_FILE}"
    yield from (objection.change for touch in touches for objection in touch.objections)


def _of_everything(authorizer: Authorizer, outcome: Refusal) -> Iterator[str]:
    """Changes that are needed before any call of the agent is permitted."""
    if outcome.code is Code.POLICIES_INVALID:
        look = "" if authorizer.active_policies.held_back else "; see `toolkeep policy check`"
        yield f"no call at all is permitted: {authorizer.problem()}{look}"


# --- what it would touch -------------------------------------------------------------------------


def touches_of(holder: Holder, checked: CheckedCall) -> Iterator[Touch]:
    """All resources that a call would touch, each with every objection."""
    plan = TouchPlan(checked.registered.definition)
    search = search_path()
    if plan.touches_nothing:
        return
    try:
        named = plan.touched(checked.arguments, os.getcwd(), search)
    except TouchRefused as refused:
        change = f"name something else in {refused.pointer or 'the arguments'}: {refused.reason}"
        objection = Objection(what=refused.reason, change=change)
        yield Touch(capability="", thing="", argument=refused.pointer, objections=(objection,))
        return
    look = _Look(holder, plan, checked, search)
    try:
        yield from map(look.at, named)
        for capability in plan.wholes(named):
            yield look.at_whole(capability)
    finally:
        for one in named:
            one.close()


class _Look:
    """Checks the touched resources of one call against the grant, without stopping."""

    def __init__(self, holder: Holder, plan: TouchPlan, checked: CheckedCall, search: str) -> None:
        self._holder = holder
        self._plan = plan
        self._search = search
        self._protected = ProtectedPaths(holder.state_folder, holder.trusted)
        self._holdings = EffectiveGrant(holder.grant or Grant(), base=holder.project, search=search)
        self._arguments = checked.arguments
        self._redacted = checked.registered.arguments.secrecy.redact(checked.arguments)

    def at(self, one: Touched) -> Touch:
        """A resource that an argument names."""
        against = self._protection(one) or [
            *self._against_nature(one),
            *self._against_tool(one),
            *self._against_agent(one),
        ]
        return self._touch(one, against)

    def at_whole(self, capability: Capability) -> Touch:
        """A requirement for which no argument names a resource."""
        if capability.scope in ANY_SCOPE:
            found = self._holdings.holds(capability.kind) or capability.kind in self._plan.dispensable
            missing = self._not_held(any_of(capability.kind))
            return Touch(
                capability=capability.kind,
                thing="(whatever is granted to the agent)",
                argument="",
                objections=() if found else (missing,),
                held_down=self._held_down(capability.kind, self._folders(capability.kind)),
            )
        try:
            whole = whole_scope(capability, self._holder.project, self._search)
        except TouchRefused as refused:
            objection = Objection(what=refused.reason, change=f"fix the definition: {refused.reason}")
            return Touch(
                capability=capability.kind, thing=capability.scope, argument="", objections=(objection,)
            )
        try:
            against = self._protection(whole, is_whole=True) or [
                *self._against_nature(whole),
                *self._against_agent(whole),
            ]
            return self._touch(whole, against)
        finally:
            whole.close()

    def _touch(self, one: Touched, objections: Iterable[Objection]) -> Touch:
        """A resource with its objections.

        Redacted if a secret argument names it, since the output is for terminals and logs.
        """
        is_secret = bool(one.pointer) and _at(self._redacted, one.pointer) != _at(
            self._arguments, one.pointer
        )
        if is_secret:
            objections = tuple(
                Objection(what=HIDDEN, change="a secret argument names something that may not be touched")
                for _ in objections
            )[:1]
        return Touch(
            capability=one.kind,
            thing=HIDDEN if is_secret else one.shown,
            argument=one.pointer,
            grant=self._holdings.root_of(one) or "",
            objections=tuple(objections),
            held_down=() if is_secret else self._held_down(one.kind, [one.shown]),
            leads_to=tuple(
                dict.fromkeys(str(scope.leads_to or "public") for scope in self._holdings.reach_of(one))
            ),
        )

    def _folders(self, kind: str) -> list[str]:
        found: list[str] = []
        for place in self._holdings.places(kind):
            with place:
                found.append(place.path)
        return found

    def _held_down(self, kind: str, folders: Iterable[str]) -> tuple[str, ...]:
        """Trusted paths inside these folders, which stay read-only."""
        if kind != FS_WRITE:
            return ()
        trusted, agent = self._holder.trusted, self._holder.name
        inside = (one for folder in folders for one in trusted.inside(folder, agent))
        return tuple(f"{_relative(one.path, self._holder.project)} ({one.what})" for one in inside)

    def _protection(self, one: Touched, *, is_whole: bool = False) -> list[Objection]:
        """Protection that no grant, policy or approval can lift."""
        if isinstance(one.thing, Host) and classify(one.thing.name) is AddressClass.BARRED:
            what = non_public_reason(one.thing.name) if one.thing.is_address else ""
            barred = f"the address is {what}"
            return [Objection(what=barred, change=f"nothing can permit this: {barred}")] if what else []
        if not isinstance(one.thing, ResolvedPath):
            return []
        writes, agent = one.kind == FS_WRITE, self._holder.name
        why = self._protected.objection(one.thing, writes=writes, is_whole=is_whole, agent=agent)
        return [Objection(what=why, change=f"nothing can permit this: {why}")] if why else []

    def _against_nature(self, one: Touched) -> Iterator[Objection]:
        if one.objection:
            yield Objection(what=one.objection, change=f"name something else: {one.objection}")

    def _against_tool(self, one: Touched) -> Iterator[Objection]:
        same = [capability for capability in self._plan.required if capability.kind == one.kind]
        where = {"base": self._holder.project, "search": self._search}
        if same and not any(requirement_contains(capability, one, **where) for capability in same):
            needs = ", ".join(map(str, same))
            yield Objection(
                what="outside the capabilities that the tool requires",
                change=f"name something inside {needs}, or let the tool's definition require more",
            )

    def _against_agent(self, one: Touched) -> Iterator[Objection]:
        if self._holdings.root_of(one) is None:
            yield self._not_held(f"{one.kind}:{scope_of(one, self._holder.project)}")

    def _not_held(self, needed: str) -> Objection:
        where = self._holder.where("capabilities")
        return Objection(
            what="not granted to the agent",
            change=f"grant {echo_name(self._holder.name)} {needed} ({where})",
            capability=needed,
        )


def _relative(thing: str, project: str) -> str:
    """A resource as the operator sees it: paths inside the project are relative to it."""
    real = os.path.realpath(project)
    if thing == real:
        return "."
    return f"./{thing.removeprefix(real + '/')}" if thing.startswith(f"{real}/") else thing


def _at(data: Any, pointer: str) -> Any:
    try:
        return look_up(data, pointer)
    except KeyError:
        return None


# --- what the policies say -----------------------------------------------------------------------


def _says(
    authorizer: Authorizer, holder: Holder, request: ToolCall, checked: CheckedCall
) -> Iterator[PolicyResult]:
    if authorizer.active_policies.held_back:  # the policies that would apply were not parsed
        return
    by_id = authorizer.active_policies.engine.policies.by_id
    for finding in authorizer.findings(request, checked):
        policy = by_id[finding.policy]
        is_ours = policy.id.startswith(OURS)
        place = "toolkeep itself" if is_ours else f"{policy.source}:{policy.line}:{policy.column}"
        result = PolicyResult(
            finding=finding,
            place=place,
            reason=policy.reason,
            asks=policy.asks,
            is_silent=policy.is_silent,
        )
        yield _with_change(result, holder, checked) if _forbids(result) else result


def _with_change(say: PolicyResult, holder: Holder, checked: CheckedCall) -> PolicyResult:
    """A policy that forbids a call, with what it looked at and what would have to change."""
    if say.finding.policy == PERMISSIONS_POLICY:
        return replace(say, change=_of_permissions(holder, checked))
    redacted = checked.registered.arguments.secrecy.redact(checked.arguments)
    sent = redacted if isinstance(redacted, dict) else {}
    conditions = tuple(
        ConditionResult(
            kind=one.kind,
            text=one.text,
            holds=one.holds,
            reads={name: sent[name] for name in one.arguments if name in sent and not one.is_test},
        )
        for one in say.finding.conditions
    )
    says = in_words(say.finding.conditions, sent)
    what = says or "forbids it"
    reason = f": {say.reason}" if say.reason else ""
    instead = "change the policy" if says and not conditions else "change the call, or the policy"
    change = f"policy '{say.finding.policy}' ({say.place}) {what}{reason}; {instead}"
    return replace(say, conditions=conditions, says=says, change=change)


def _of_policies(
    policies: Iterable[PolicyResult], holder: Holder, checked: CheckedCall, *, is_granted: bool
) -> Iterator[str]:
    """Changes to the policies; `is_granted` says that another change gives the permissions."""
    says = list(policies)
    for say in says:
        finding = say.finding
        if finding.error:
            yield f"fix policy '{finding.policy}' ({say.place}): {finding.error}"
        elif _forbids(say) and not (is_granted and finding.policy == PERMISSIONS_POLICY):
            yield say.change
    permits = [say for say in says if say.finding.effect == "permit"]
    if says and not any(say.finding.is_satisfied for say in permits):
        yield _of_no_permit(permits, holder, checked)


def _of_permissions(holder: Holder, checked: CheckedCall) -> str:
    missing = ", ".join(holder.lacking(checked.registered.definition.required_permissions))
    where = holder.where("permissions")
    return f"give {echo_name(holder.name)} the permission {missing} ({where})"


def _of_no_permit(permits: list[PolicyResult], holder: Holder, checked: CheckedCall) -> str:
    agent, tool = f'Agent::"{echo_name(holder.name)}"', f'Tool::"{checked.tool}"'
    head = f'principal == {agent}, action == Action::"call", resource == {tool}'
    others = ", ".join(f"'{say.finding.policy}' ({say.place})" for say in permits)
    instead = f", or widen {others}" if others else ""
    return f"no policy permits it: add one such as permit ({head}){instead}"
