"""Why a call would be permitted or not, and what would have to change (POL-5).

In come an authorizer, what the agent holds, and a checked call; out goes an `Explanation`. The verdict is the
authorizer's own. What stands beside it (each thing that the call would touch, each policy's say) is worked
out from the same parts without stopping at the first no. Nothing is run, recorded or asked.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from toolkeep.calls import CheckedCall, PermittedCall, Refusal, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.errors import Code
from toolkeep.pointers import look_up
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.engine import Finding
from toolkeep.policy.folders import Protected
from toolkeep.policy.holdings import Holdings, requirement_contains
from toolkeep.policy.places import Place
from toolkeep.policy.reading import OURS
from toolkeep.policy.settings import DEFAULT_GRANT, Grant
from toolkeep.policy.touched import ANY_SCOPE, FS_WRITE, Touched, TouchPlan, TouchRefused, whole_scope
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths, search_path
from toolkeep.wording import HIDDEN, echo_name

PERMISSIONS_POLICY = "toolkeep.permissions"


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """Something that stands against a call, and what would have to change."""

    what: str
    change: str


class Touch(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a call would touch."""

    capability: str
    """Its kind, `fs.read`."""
    thing: str
    """In canonical form; empty where the argument names nothing that could be touched."""
    argument: str
    """The JSON Pointer of the argument that names it; empty where the tool's own requirement does."""
    grant: str = ""
    """The scope, as it was granted, that it lies in."""
    objections: tuple[Objection, ...] = ()
    held_down: tuple[str, ...] = ()
    """What inside it can only be read although it may be written: the trusted set (SBX-6)."""

    def to_dict(self) -> dict[str, Any]:
        """The thing as JSON data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


class PolicySay(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy by itself says of a call, and where it stands."""

    finding: Finding
    place: str
    reason: str
    asks: bool
    is_silent: bool

    def to_dict(self) -> dict[str, Any]:
        """It as JSON data."""
        return {
            "policy": self.finding.policy,
            "effect": self.finding.effect,
            "holds": self.finding.is_satisfied,
            "error": self.finding.error,
            "place": self.place,
            "reason": self.reason,
            "asks": self.asks,
            "is_silent": self.is_silent,
        }


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a call would be permitted, why, and what would have to change."""

    outcome: PermittedCall | Refusal
    """What the authorizer itself says; whoever asked closes what a permitted call holds."""
    touches: tuple[Touch, ...] = ()
    policies: tuple[PolicySay, ...] = ()
    changes: tuple[str, ...] = ()
    """Everything that stands in the way, each with what would take it out of the way."""

    @property
    def is_allowed(self) -> bool:
        """Whether policy permits the call."""
        return isinstance(self.outcome, PermittedCall)

    @property
    def spared_by(self) -> list[str]:
        """The `@silent` policies that spare the question of those that ask."""
        decision = self.outcome.decision
        return list(decision.spared_by or ()) if decision is not None else []


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who would make the call, and where: what the things it touches are measured by."""

    name: str
    grant: Grant | None
    """None for an agent that nobody declared."""
    project: str
    """The folder that grants are relative to."""
    state_folder: str | None = None
    trusted: TrustedPaths = THIS_PROCESS

    def where(self, kind: str) -> str:
        """Where a person grants the agent something."""
        place = f"in config.yml, agents: {echo_name(self.name)}: {kind}"
        ends = "; with it all else that it should hold, for the defaults end there"
        return place + ends if self.grant == DEFAULT_GRANT else place


def explain(authorizer: Authorizer, holder: Holder, request: ToolCall, checked: CheckedCall) -> Explanation:
    """What the authorizer says of a call, with everything that speaks for and against it."""
    outcome = authorizer.authorize(request, checked)
    touches = tuple(touches_of(holder, checked))
    # Of an argument that names nothing there is no canonical form, and without it no policy can be asked.
    is_named = all(touch.capability for touch in touches)
    policies = tuple(_says(authorizer, request, checked)) if is_named else ()
    changes: tuple[str, ...] = ()
    if isinstance(outcome, Refusal):
        found = [
            *_of_everything(authorizer, outcome, holder),
            *(objection.change for touch in touches for objection in touch.objections),
            *_of_policies(policies, holder, checked),
        ]
        # Whatever we cannot name a way out of is at least said.
        changes = tuple(dict.fromkeys(found)) or (outcome.errors[0].message,)
    return Explanation(outcome=outcome, touches=touches, policies=policies, changes=changes)


def _of_everything(authorizer: Authorizer, outcome: Refusal, holder: Holder) -> Iterator[str]:
    """What keeps every call of the agent from being permitted."""
    if outcome.code is Code.POLICIES_INVALID:
        look = "" if authorizer.rulebook.held_back else "; see `toolkeep policy check`"
        yield f"no call at all is permitted: {authorizer.problem()}{look}"
    if holder.grant is None:
        yield f"declare the agent: write '{echo_name(holder.name)}' under agents: in config.yml"


# --- what it would touch -------------------------------------------------------------------------


def touches_of(holder: Holder, checked: CheckedCall) -> Iterator[Touch]:
    """Everything that a call would touch, each with all that stands against it."""
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
    """Measures what one call would touch by what its agent holds."""

    def __init__(self, holder: Holder, plan: TouchPlan, checked: CheckedCall, search: str) -> None:
        self._holder = holder
        self._plan = plan
        self._search = search
        self._protected = Protected(holder.state_folder, holder.trusted)
        self._holdings = Holdings(holder.grant or Grant(), base=holder.project, search=search)
        self._arguments = checked.arguments
        self._redacted = checked.registered.arguments.secrecy.redact(checked.arguments)

    def at(self, one: Touched) -> Touch:
        """A thing that an argument names."""
        against = self._protection(one) or [
            *self._against_nature(one),
            *self._against_tool(one),
            *self._against_agent(one),
        ]
        return self._touch(one, against)

    def at_whole(self, capability: Capability) -> Touch:
        """What the tool requires, and no argument says how much of."""
        if capability.scope in ANY_SCOPE:
            found = self._holdings.holds(capability.kind)
            missing = self._not_held(capability.kind, "…")
            return Touch(
                capability=capability.kind,
                thing="(whatever the agent holds)",
                argument="",
                objections=() if found else (missing,),
                held_down=self._held_down(capability.kind, self._folders(capability.kind)),
            )
        try:
            whole = whole_scope(capability, self._holder.project, self._search)
        except TouchRefused as refused:
            objection = Objection(what=refused.reason, change=f"mend the definition: {refused.reason}")
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
        )

    def _folders(self, kind: str) -> list[str]:
        found: list[str] = []
        for place in self._holdings.places(kind):
            with place:
                found.append(place.path)
        return found

    def _held_down(self, kind: str, folders: Iterable[str]) -> tuple[str, ...]:
        """What of these folders stays as it is, whatever a tool with the grant does."""
        if kind != FS_WRITE:
            return ()
        trusted, agent = self._holder.trusted, self._holder.name
        inside = (one for folder in folders for one in trusted.inside(folder, agent))
        return tuple(f"{_relative(one.path, self._holder.project)} ({one.what})" for one in inside)

    def _protection(self, one: Touched, *, is_whole: bool = False) -> list[Objection]:
        """What no grant, policy or person can take away."""
        if not isinstance(one.thing, Place):
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
                what="outside what the tool says that it needs",
                change=f"name something inside {needs}, or let the tool's definition require more",
            )

    def _against_agent(self, one: Touched) -> Iterator[Objection]:
        if self._holdings.root_of(one) is None:
            yield self._not_held(one.kind, _relative(one.shown, self._holder.project))

    def _not_held(self, kind: str, scope: str) -> Objection:
        where = self._holder.where("capabilities")
        return Objection(
            what="not held by the agent",
            change=f"grant {echo_name(self._holder.name)} {kind}:{scope} ({where})",
        )


def _relative(thing: str, project: str) -> str:
    """A thing as a grant would name it: a path inside the project relative to it."""
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


def _says(authorizer: Authorizer, request: ToolCall, checked: CheckedCall) -> Iterator[PolicySay]:
    if authorizer.rulebook.held_back:  # those that would count were not even read
        return
    by_id = authorizer.rulebook.engine.policies.by_id
    for finding in authorizer.findings(request, checked):
        policy = by_id[finding.policy]
        is_ours = policy.id.startswith(OURS)
        place = "toolkeep itself" if is_ours else f"{policy.source}:{policy.line}:{policy.column}"
        yield PolicySay(
            finding=finding,
            place=place,
            reason=policy.reason,
            asks=policy.asks,
            is_silent=policy.is_silent,
        )


def _of_policies(policies: Iterable[PolicySay], holder: Holder, checked: CheckedCall) -> Iterator[str]:
    says = list(policies)
    for say in says:
        finding = say.finding
        if finding.error:
            yield f"mend policy '{finding.policy}' ({say.place}): {finding.error}"
        elif finding.effect == "forbid" and finding.is_satisfied:
            yield _of_forbid(say, holder, checked)
    permits = [say for say in says if say.finding.effect == "permit"]
    if says and not any(say.finding.is_satisfied for say in permits):
        yield _of_no_permit(permits, holder, checked)


def _of_forbid(say: PolicySay, holder: Holder, checked: CheckedCall) -> str:
    if say.finding.policy == PERMISSIONS_POLICY:
        held = holder.grant.permissions if holder.grant else ()
        required = checked.registered.definition.required_permissions
        missing = ", ".join(name for name in required if name not in held)
        where = holder.where("permissions")
        return f"give {echo_name(holder.name)} the permission {missing} ({where})"
    reason = f": {say.reason}" if say.reason else ""
    return f"policy '{say.finding.policy}' ({say.place}) forbids it{reason}; call otherwise, or change it"


def _of_no_permit(permits: list[PolicySay], holder: Holder, checked: CheckedCall) -> str:
    agent, tool = f'Agent::"{echo_name(holder.name)}"', f'Tool::"{checked.tool}"'
    head = f'principal == {agent}, action == Action::"call", resource == {tool}'
    others = ", ".join(f"'{say.finding.policy}' ({say.place})" for say in permits)
    instead = f", or widen {others}" if others else ""
    return f"no policy permits it: add one such as permit ({head}){instead}"
