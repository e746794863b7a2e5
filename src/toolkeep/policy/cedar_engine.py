"""Evaluates Cedar policies: may this principal (agent) do this action (call, see) on this resource (tool)?

In come an agent, a registered tool and the facts of the call; out goes a `Verdict`. Only Allow with no error
in the diagnostics allows: Cedar skips a policy that fails to evaluate, a forbid as well. A call is denied if
a policy reads an argument that Cedar cannot represent. Evaluation is pure, so decisions are cached by exactly
the values that the policies read.

Cedar gets the slice of policies that can hold for this agent and tool. Where the tool neither acts nor sends
anything out, the slice is compiled (`compiled_policies.py`); a contradiction to Cedar denies and alarms.
"""

import functools
import hashlib
import random
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec
import orjson

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.events import CompiledPolicyDisputed, Event
from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.flow_plan import make_plan
from toolkeep.json_values.pointers import pointer
from toolkeep.policy.cedar_bindings import cedarpy
from toolkeep.policy.cedar_schema import (
    AGENT_TYPE,
    CALL,
    CONTEXT_ATTRIBUTES,
    SEE,
    TOOL_TYPE,
    Sections,
    cedar_schema,
    context_type,
    flow_types,
    read_sections,
)
from toolkeep.policy.cedar_values import ArgumentShape, Path
from toolkeep.policy.compiled_check import CONTEXTS, FORMS, disputed, forms, generated
from toolkeep.policy.compiled_policies import Evaluate, NotCompiled, Values, compile_policies
from toolkeep.policy.held_conditions import Condition, IsHeld, held_conditions
from toolkeep.policy.mentioned_hosts import Unreadable, mail_domains, url_hosts
from toolkeep.policy.policy_set import (
    Effect,
    Policies,
    Policy,
    Reads,
    policy_set_json,
    tool_ancestors,
)

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Approximate LRU cache of two generations.

    Holds at most `limit` values, and surely the newest half. Thread-safe.
    """

    def __init__(self, limit: int) -> None:
        self._room = max(1, limit // 2)
        self._lock = threading.Lock()
        self._newer: dict[K, V] = {}
        self._older: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Look up a key and mark it as recently used; None on a miss."""
        # No lock for a hit: one dict lookup is atomic, and most lookups hit.
        found = self._newer.get(key)
        return self._renewed(key) if found is None else found

    def put(self, key: K, value: V) -> V:
        """Insert a value."""
        with self._lock:
            return self._put(key, value)

    def _renewed(self, key: K) -> V | None:
        with self._lock:
            found = self._older.get(key)
            return None if found is None else self._put(key, found)

    def _put(self, key: K, value: V) -> V:
        if len(self._newer) >= self._room and key not in self._newer:
            self._newer, self._older = {}, self._newer
        self._newer[key] = value
        return value


CACHED_DECISIONS: Final = 1_000
"""Cached decisions of the action `call` for one agent."""

CACHED_SIGHTS: Final = 20_000
"""Cached decisions of the action `see` for one agent: twice the largest registry."""

CACHED_AGENTS: Final = 1_000
"""Agents with cached decisions. The grant is part of the key."""

PREPARED_TOOLS: Final = 2_000
"""Tools, by agent, whose Cedar schema and entities are cached; about 65 KB each, of which agents share 60."""

KEY_BYTES: Final = 256
"""Cache keys up to this size are kept verbatim; larger ones as their SHA-256."""

MISSES_BEFORE_COMPILING: Final = 16
"""Decisions of a slice that Cedar makes before its policies are compiled: most programs make few calls."""

DECIDED_AGAIN: Final = 0.01
"""Share of the decisions of compiled policies that Cedar makes too."""

UNKNOWN_EFFECT: Final = "Unknown"

ToolKey = tuple[str, bool]
"""The hash of a definition, and whether the tool is built in."""
Ids = tuple[str, ...]


class AgentEntity(msgspec.Struct, frozen=True, kw_only=True):
    """The principal: an agent with its permissions and capabilities as entity attributes."""

    id: str
    permissions: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    """In their text form, `fs.read:./docs`."""


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a call from which the Cedar context is built."""

    arguments: Mapping[str, Any]
    canonical: Mapping[str, str] = {}
    """Canonical form of touched resources, by JSON Pointer of the argument."""
    roots: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    databases: frozenset[str] = frozenset()
    session: str = ""
    conversation: str = ""
    flow: FlowFacts | None = None
    """None if nothing watches what passes between calls."""

    def attributes(self, name: str) -> str | list[str]:
        """A context attribute other than `arguments`; raises `Unreadable`."""
        if (derive := _DERIVED.get(name)) is not None:
            return sorted(derive(self.arguments))
        value = getattr(self, name)
        return value if isinstance(value, str) else sorted(value)


_DERIVED: Final = {"mail_domains": mail_domains, "url_hosts": url_hosts}
"""Attributes derived from the arguments, computed only if a policy reads them."""


class _ContextView(msgspec.Struct, frozen=True):
    """The part of a call that its policies read."""

    record: dict[str, Any]
    """The arguments as a Cedar record."""
    attributes: dict[str, Any]
    """The other context attributes that are read, those of flow too."""
    lost: list[Path]
    """Paths of arguments that Cedar cannot represent."""
    unreadable: dict[str, str]
    """Context attributes that cannot be derived with certainty, and why."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation: allow or deny, and the deciding policies."""

    is_allowed: bool
    policies: tuple[str, ...] = ()
    """The ids of the permits that allowed it, or of the forbids that denied it."""
    asks: bool = False
    """Whether a permitting policy is annotated `@ask` (approval required)."""
    spared_by: tuple[str, ...] = ()
    """The ids of the `@silent` permits that override an `@ask`."""
    yielding: tuple[str, ...] = ()
    """The ids of the forbids that hold and yield to a person's approval."""
    errors: tuple[str, ...] = ()
    """Evaluation errors. Any error denies."""
    is_cached: bool = False
    request_hash: str = ""
    """SHA-256 of principal, resource and every value that the policies read."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one policy evaluated alone."""

    policy: str
    effect: Effect
    is_satisfied: bool
    error: str = ""
    conditions: tuple[Condition, ...] = ()
    """The parts of its conditions, if it forbids the call."""


class _MatchingPolicies(msgspec.Struct, frozen=True):
    """Policies that are evaluated together, and which context paths they read."""

    policies: tuple[Policy, ...]
    forbids: frozenset[str]
    """The ids of those that forbid whatever a person says."""
    handle: cedarpy.PolicySet
    attributes: tuple[str, ...]
    sections: Sections
    """What is read of flow."""
    arguments: tuple[str, ...]
    """Names of the top-level arguments that are read."""
    reads_all: bool
    """Whether a policy reads `context.arguments` as a whole."""
    read: frozenset[Path]
    """Argument paths whose values are read."""
    looked: frozenset[Path]
    """Argument paths tested with `has`."""
    reads_nothing: bool
    """Whether no policy reads the context, so that all calls of the tool share one decision."""


class _PreparedTool(msgspec.Struct, frozen=True):
    """What one set of policies needs to be asked about one tool, built once."""

    key: ToolKey
    tool: RegisteredTool
    call: _MatchingPolicies
    shape: ArgumentShape
    context: dict[str, Any]
    """The type of the context."""
    schema: cedarpy.Schema


class _Slice(msgspec.Struct):
    """Everything that can matter to the calls of one tool by one agent."""

    prepared: _PreparedTool
    entities: cedarpy.Entities
    """The tool, its ancestors and the agent."""
    request: dict[str, Any]
    """What all requests to Cedar have in common."""
    hashed: "hashlib._Hash"
    """The hash of what `request_hash` covers first: agent and tool."""
    is_compilable: bool
    """Whether Cedar need not decide each call itself: the tool neither acts nor sends anything out."""
    misses: int = 0
    """Decisions that Cedar made."""
    evaluate: Evaluate | None = None
    """The policies as a function, once it agreed with Cedar."""


def _tell_nobody(_: Event) -> None:
    pass


class Engine:
    """Evaluates one immutable policy set; another set needs another engine. Thread-safe."""

    def __init__(
        self,
        policies: Policies,
        measures: tuple[str, ...] = (),
        *,
        tell: Callable[[Event], None] = _tell_nobody,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`measures` are the names of those that policies may read.

        `tell` publishes an alarm; `draw` gives numbers from 0 to 1 that choose what Cedar decides again.
        """
        self.policies = policies
        self._measures = measures
        self._tell = tell
        self._draw = draw
        self._slices: LruCache[tuple[AgentEntity, ToolKey], _Slice] = LruCache(PREPARED_TOOLS)
        self._tools: LruCache[tuple[ToolKey, Ids], _PreparedTool] = LruCache(PREPARED_TOOLS)
        self._entities: LruCache[ToolKey, cedarpy.Entities] = LruCache(PREPARED_TOOLS)
        self._parts: LruCache[Ids, _MatchingPolicies] = LruCache(PREPARED_TOOLS)
        self._guards: LruCache[Ids, cedarpy.PolicySet] = LruCache(PREPARED_TOOLS)
        self._read_measures: LruCache[ToolKey, Collection[str]] = LruCache(PREPARED_TOOLS)
        self._agents: LruCache[AgentEntity, tuple[_Decisions, _Decisions]] = LruCache(CACHED_AGENTS)
        self._compiles = True
        """Until a compiled policy contradicts Cedar."""

    def may_ask(self, agent: AgentEntity, tool: RegisteredTool) -> bool:
        """Whether a policy may ask a person about some call of an agent to a tool."""
        return any(policy.asks for policy in self._slice(agent, tool).prepared.call.policies)

    def read_measures(self, tool: RegisteredTool) -> Collection[str]:
        """The names of the measures that policies about calls of a tool read."""
        if not self._measures:
            return ()
        key = _tool_key(tool)
        known = self._read_measures.get(key)
        if known is None:
            applying = self.policies.applying(CALL, tool.definition)
            paths = [path for policy in applying for path in policy.context_reads | policy.context_looks]
            read = read_sections(paths).get("measures", ())
            known = self._read_measures.put(key, self._measures if read is None else read)
        return known

    def decide(self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts) -> Verdict:
        """Evaluate the action `call`."""
        try:
            return self._decide(agent, tool, facts)
        except BaseException as error:  # noqa: BLE001 -- whatever breaks denies
            return _undecided(error)

    def may_see(self, agent: AgentEntity, tool: RegisteredTool) -> Verdict:
        """Evaluate the action `see`. It has no context, so the decision depends on agent and tool alone."""
        try:
            key = (_tool_key(tool), b"")
            seen = self._caches(agent)[1]
            known = seen.get(key)
            if known is not None:
                return known
            part = self._part(self.policies.applying(SEE, tool.definition, agent.id))
            request = _request(agent, tool.name, SEE, "{}")
            verdict = self._evaluate(
                request, part, self._with_agent(agent, tool), _entity_schema(), tool.definition
            )
            return _cache(seen, key, verdict)
        except BaseException as error:  # noqa: BLE001 -- whatever breaks denies
            return _undecided(error)

    def each(self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts) -> list[Finding]:
        """Evaluate each matching policy alone, for `explain`."""
        applying = self.policies.applying(CALL, tool.definition)
        try:
            prepared = self._prepare(tool, applying)
            seen = _context_view(prepared, facts)
            request = _request(agent, tool.name, CALL, _json(_context(seen)))
            entities = self._with_agent(agent, tool)
        except BaseException as error:  # noqa: BLE001 -- any failure is reported for each
            undecided = _undecided(error)
            return [_finding(one, undecided) for one in applying]
        findings = []
        for policy in applying:
            try:
                alone = _part((policy,))
                verdict = _unrepresentable(seen, alone) or self._evaluate(
                    request, alone, entities, prepared.schema, tool.definition
                )
            except BaseException as error:  # noqa: BLE001 -- whatever breaks denies
                verdict = _undecided(error)
            found = _finding(policy, verdict)
            if found.effect == "forbid" and found.is_satisfied:
                conditions = _conditions(policy, partial(_is_held, request, entities, prepared.schema))
                found = msgspec.structs.replace(found, conditions=conditions)
            findings.append(found)
        return findings

    def without_context(self, agent: AgentEntity, tool: RegisteredTool) -> list[Finding]:
        """Evaluate alone each matching policy that reads no context: its result holds for every call."""
        request = _request(agent, tool.name, CALL, "{}")
        findings = []
        for policy in self.policies.applying(CALL, tool.definition):
            if policy.context_reads or policy.context_looks:
                continue
            try:
                entities = self._with_agent(agent, tool)
                verdict = self._evaluate(request, _part((policy,)), entities, None, tool.definition)
            except BaseException as error:  # noqa: BLE001 -- any failure is reported
                verdict = _undecided(error)
            findings.append(_finding(policy, verdict))
        return findings

    def _decide(self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts) -> Verdict:
        sliced = self._slice(agent, tool)
        prepared = sliced.prepared
        seen = _context_view(prepared, facts)
        # Before the cache: such a call has no complete key, and its denial depends on the missing value.
        if (seen.lost or seen.unreadable) and (denied := _unrepresentable(seen, prepared.call)) is not None:
            return denied
        key = (prepared.key, _read_values(prepared.call, seen))
        decisions = self._caches(agent)[0]
        known = decisions.get(key)
        if known is not None:
            return known
        context = _context(seen)
        verdict = self._compiled_verdict(agent, sliced, context) or self._by_cedar(sliced, context)
        verdict = msgspec.structs.replace(verdict, request_hash=_hash(sliced.hashed, key[1]))
        return _cache(decisions, key, verdict)

    def _by_cedar(self, sliced: _Slice, context: Values) -> Verdict:
        prepared = sliced.prepared
        request = {**sliced.request, "context": _json(context)}
        definition = prepared.tool.definition
        return self._evaluate(request, prepared.call, sliced.entities, prepared.schema, definition)

    def _evaluate(
        self,
        request: dict[str, Any],
        part: _MatchingPolicies,
        entities: cedarpy.Entities,
        schema: cedarpy.Schema | None,
        tool: ToolDefinition,
    ) -> Verdict:
        """Run Cedar and read its diagnostics; the request is compared with the schema, if any."""
        answer = cedarpy.is_authorized(request, part.handle, entities, schema)
        # Fail closed on any error: Cedar drops a policy that errors and decides by the rest, so a forbid that
        # compares a missing attribute would stop forbidding.
        errors = answer.diagnostics.errors
        if errors or answer.decision is cedarpy.Decision.NoDecision:
            return Verdict(is_allowed=False, errors=_shown_errors(errors, part, is_sensitive=tool.sensitive))
        named = answer.diagnostics.id_annotations_by_reason
        holding = sorted(named[reason] for reason in answer.diagnostics.reasons)
        return self._verdict(holding, is_permitted=answer.decision is cedarpy.Decision.Allow)

    def _verdict(self, holding: Sequence[str], *, is_permitted: bool) -> Verdict:
        """The verdict if these policies determine the decision."""
        named = [self.policies.by_id[policy] for policy in holding]
        deciding = [policy for policy in named if not policy.yields]
        wants_asking = any(policy.asks for policy in deciding)
        # `@silent` wins over `@ask` among the permits that hold; a high danger level asks anyway
        # (`approve.py`).
        silent = tuple([policy.id for policy in deciding if policy.is_silent])
        return Verdict(
            is_allowed=is_permitted and bool(deciding),
            policies=tuple([policy.id for policy in deciding]),
            asks=wants_asking and not silent,
            spared_by=silent if wants_asking else (),
            yielding=tuple([policy.id for policy in named if policy.yields]),
        )

    # --- compiled policies -----------------------------------------------------------------------

    def _compiled_verdict(self, agent: AgentEntity, sliced: _Slice, context: Values) -> Verdict | None:
        """The verdict of the compiled policies; None if Cedar must decide."""
        # A call that may write is decided by Cedar itself, whatever agreed before: a wrong permit could not
        # be undone.
        if not (sliced.is_compilable and self._compiles):
            return None
        evaluate = sliced.evaluate
        if evaluate is None:
            sliced.misses = misses = sliced.misses + 1  # two threads may count one, and never skip one
            if misses == MISSES_BEFORE_COMPILING:
                sliced.evaluate = self._compile(agent, sliced)
            return None
        verdict = self._held_verdict(sliced.prepared.call, evaluate, context)
        if verdict is not None and self._draw() < DECIDED_AGAIN:
            again = self._by_cedar(sliced, context)
            if again != verdict:
                self._compiles = False
                self._agents = LruCache(CACHED_AGENTS)  # what was remembered may be as wrong
                return self._alarm(agent, sliced, [*verdict.policies, *again.policies])
        return verdict

    def _held_verdict(self, part: _MatchingPolicies, evaluate: Evaluate, context: Values) -> Verdict | None:
        try:
            holding = [part.policies[number].id for number in evaluate(context)]
        except Exception:  # noqa: BLE001 -- an error in Cedar too, or something that only Cedar knows
            return None
        forbidding = [policy for policy in holding if policy in part.forbids]
        return self._verdict(forbidding or holding, is_permitted=bool(holding) and not forbidding)

    def _compile(self, agent: AgentEntity, sliced: _Slice) -> Evaluate | None:
        """Compile the policies of a slice and check them against Cedar; None if Cedar must decide."""
        prepared = sliced.prepared
        part = prepared.call
        types = {"principal": AGENT_TYPE, "resource": TOOL_TYPE, "context": prepared.context}
        attributes = (_agent_attributes(agent), _tool_attributes(prepared.tool))
        try:
            evaluate = compile_policies(part.policies, types)(*attributes)
        except NotCompiled:
            return None
        checked = forms(part.policies)
        if len(checked) > FORMS:
            return None

        def ask(policy: Policy, contexts: list[Values]) -> list[bool | None]:
            requests = [{**sliced.request, "context": _json(context)} for context in contexts]
            alone = cedarpy.PolicySet.from_str(policy.text)
            answers = cedarpy.is_authorized_batch(requests, alone, sliced.entities, prepared.schema)
            return [None if one.diagnostics.errors else bool(one.diagnostics.reasons) for one in answers]

        wrong = [policy.id for policy in checked if disputed(policy, types, attributes, ask)]
        for context in generated(part.policies, prepared.context, CONTEXTS):
            verdict = self._held_verdict(part, evaluate, context)
            again = self._by_cedar(sliced, context)
            if verdict is not None and verdict != again:
                wrong += [*verdict.policies, *again.policies]
        if wrong:
            self._alarm(agent, sliced, wrong)
            return None
        return evaluate

    def _alarm(self, agent: AgentEntity, sliced: _Slice, policies: Iterable[str]) -> Verdict:
        """Publish that compiled policies contradict Cedar; the verdict denies."""
        named = tuple(dict.fromkeys(policies))
        self._tell(
            CompiledPolicyDisputed(tool_name=sliced.prepared.tool.name, agent=agent.id, policies=named)
        )
        return Verdict(is_allowed=False, errors=("compiled policies and Cedar decide differently",))

    # --- slices ----------------------------------------------------------------------------------

    def _slice(self, agent: AgentEntity, tool: RegisteredTool) -> _Slice:
        key = (agent, _tool_key(tool))
        known = self._slices.get(key)
        if known is not None:
            return known
        entities = self._with_agent(agent, tool)
        applying = self.policies.applying(CALL, tool.definition, agent.id)
        plan = make_plan(tool)
        made = _Slice(
            prepared=self._prepare(tool, self._that_can_hold(agent, tool, entities, applying)),
            entities=entities,
            request=_request(agent, tool.name, CALL, "{}"),
            hashed=_hashed(agent, key[1]),
            is_compilable=not (plan.acts or plan.leaves),
        )
        return self._slices.put(key, made)

    def _that_can_hold(
        self,
        agent: AgentEntity,
        tool: RegisteredTool,
        entities: cedarpy.Entities,
        policies: tuple[Policy, ...],
    ) -> tuple[Policy, ...]:
        """Leave out the policies whose guard does not hold: no call of this agent to this tool meets them.

        Cedar itself says which. What only they read is not even worked out.
        """
        known = self.policies.guards
        guards = {policy.id: known[policy.id] for policy in policies if policy.id in known}
        if not guards:
            return policies
        key = tuple(guards)
        handle = self._guards.get(key)
        if handle is None:
            handle = self._guards.put(key, cedarpy.PolicySet.from_json_str(policy_set_json(guards)))
        answer = cedarpy.is_authorized(_request(agent, tool.name, CALL, "{}"), handle, entities)
        if answer.diagnostics.errors:  # the policy fails at each call: told there
            return policies
        holding = set(answer.diagnostics.reasons)
        return tuple(policy for policy in policies if policy.id not in guards or policy.id in holding)

    def _prepare(self, tool: RegisteredTool, policies: tuple[Policy, ...]) -> _PreparedTool:
        key = (_tool_key(tool), tuple(policy.id for policy in policies))
        prepared = self._tools.get(key)
        if prepared is not None:
            return prepared
        call = self._part(policies)
        # Only the arguments that policies read are converted: Cedar's cost grows with each value in the
        # context.
        shape = ArgumentShape(tool.arguments.schema, None if call.reads_all else frozenset(call.arguments))
        types = flow_types(call.sections, tool.definition.properties, self._measures)
        schema = cedar_schema(shape.shape, call.attributes, types)
        prepared = _PreparedTool(
            key=key[0],
            tool=tool,
            call=call,
            shape=shape,
            context=context_type(schema),
            schema=cedarpy.Schema.from_json_str(_json(schema)),
        )
        return self._tools.put(key, prepared)

    def _with_agent(self, agent: AgentEntity, tool: RegisteredTool) -> cedarpy.Entities:
        """The tool, its ancestors and the agent."""
        key, schema = _tool_key(tool), _entity_schema()
        entities = self._entities.get(key)
        if entities is None:
            made = cedarpy.Entities.from_json_str(_json(tool_entities(tool)), schema)
            entities = self._entities.put(key, made)
        return entities.with_added_json_str(_agent_json(agent), schema)

    def _part(self, policies: tuple[Policy, ...]) -> _MatchingPolicies:
        """Policies with their parsed set; tools and agents matched by the same ones share it."""
        key = tuple(policy.id for policy in policies)
        return self._parts.get(key) or self._parts.put(key, _part(policies))

    def _caches(self, agent: AgentEntity) -> "tuple[_Decisions, _Decisions]":
        """Decision caches of an agent.

        The grant is part of the key, so a changed grant starts with empty caches.
        """
        known = self._agents.get(agent)
        return known or self._agents.put(agent, (LruCache(CACHED_DECISIONS), LruCache(CACHED_SIGHTS)))


Key = tuple[ToolKey, bytes]
_Decisions = LruCache[Key, Verdict]


def _cache(decisions: _Decisions, key: Key, verdict: Verdict) -> Verdict:
    """Cache a verdict unless it has errors.

    Those may be transient, and a denial by accident must not stick.
    """
    if not verdict.errors:
        decisions.put(key, msgspec.structs.replace(verdict, is_cached=True))
    return verdict


def _tool_key(tool: RegisteredTool) -> ToolKey:
    # `is_built_in` is an attribute of the entity and not part of the definition, so it belongs to the key.
    return (tool.definition_hash or tool.definition.hash, tool.is_built_in)


@functools.cache
def _entity_schema() -> cedarpy.Schema:
    """The schema of entities, which is the same for all tools, and of requests without a context."""
    return cedarpy.Schema.from_json_str(_json(cedar_schema()))


def tool_entities(tool: RegisteredTool) -> list[dict[str, Any]]:
    """The tool and its ancestors (category, sources) as Cedar entities in JSON."""
    ancestors = [uid._asdict() for uid in tool_ancestors(tool.definition)]
    uid = {"type": "Tool", "id": tool.name}
    itself = {"uid": uid, "attrs": _tool_attributes(tool), "parents": ancestors}
    return [itself, *({"uid": uid, "attrs": {}, "parents": []} for uid in ancestors)]


def _tool_attributes(tool: RegisteredTool) -> dict[str, Any]:
    definition, plan = tool.definition, make_plan(tool)
    effects = definition.effects
    return {
        "danger": definition.danger_level.rank,
        "category": definition.category.value,
        "source": definition.source.kind,
        # Undeclared effects are "Unknown", not an empty set: a policy for tools without write effects must
        # not match.
        "effects": [UNKNOWN_EFFECT] if effects is None else [effect.value for effect in effects],
        "requires": list(definition.required_permissions),
        "capabilities": list(map(str, definition.capabilities)),
        "isolation": definition.constraints.isolation.rank,
        "is_built_in": tool.is_built_in,
        "roles": plan.role_words,
        "consequential": plan.acts,
        "egress": plan.leaves,
        "kind": definition.kind.value,
        "version": definition.version,
    }


def _agent_json(agent: AgentEntity) -> str:
    uid = {"type": "Agent", "id": agent.id}
    return _json([{"uid": uid, "attrs": _agent_attributes(agent), "parents": []}])


def _agent_attributes(agent: AgentEntity) -> dict[str, Any]:
    return {"permissions": sorted(agent.permissions), "capabilities": sorted(agent.capabilities)}


def _request(agent: AgentEntity, tool: str, action: str, context: str) -> dict[str, Any]:
    return {
        "principal": {"type": "Agent", "id": agent.id},
        "action": {"type": "Action", "id": action},
        "resource": {"type": "Tool", "id": tool},
        "context": context,
    }


_NOTHING_SEEN: Final = _ContextView({}, {}, [], {})


def _context_view(prepared: _PreparedTool, facts: CallFacts) -> _ContextView:
    """Project a call onto what its policies read."""
    part = prepared.call
    if part.reads_nothing:
        return _NOTHING_SEEN
    arguments = facts.arguments
    if not part.reads_all:
        arguments = {name: arguments[name] for name in part.arguments if name in arguments}
    lost: list[Path] = []
    record = prepared.shape.record(arguments, facts.canonical, lost)
    attributes: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name in part.attributes:
        try:
            attributes[name] = facts.attributes(name)
        except Unreadable as error:
            where = f" in {error.pointer}" if error.pointer else ""
            attributes[name] = []
            unreadable[name] = f"policies read context.{name}, and there is {error.what}{where}"
    if part.sections:
        flow = facts.flow or FlowFacts(make_plan(prepared.tool), None, facts.arguments)
        attributes |= {name: flow.section(name, read) for name, read in part.sections.items()}
    return _ContextView(record, attributes, lost, unreadable)


def _context(seen: _ContextView) -> dict[str, Any]:
    """The Cedar context: what policies read, and nothing else."""
    return {"arguments": seen.record, **seen.attributes}


def _part(policies: tuple[Policy, ...]) -> _MatchingPolicies:
    reads: frozenset[Reads] = frozenset().union(*(policy.context_reads for policy in policies))
    looks: frozenset[Reads] = frozenset().union(*(policy.context_looks for policy in policies))
    read, looked = _in_arguments(reads), _in_arguments(looks)
    attributes = _OTHER_ATTRIBUTES if () in reads else _OTHER_ATTRIBUTES & {path[0] for path in reads | looks}
    return _MatchingPolicies(
        policies=policies,
        forbids=frozenset(one.id for one in policies if one.effect == "forbid" and not one.yields),
        handle=cedarpy.PolicySet.from_str("\n".join(policy.evaluated for policy in policies)),
        attributes=tuple(sorted(attributes)),
        sections=(sections := read_sections(reads | looks)),
        arguments=tuple(sorted({place[0] for place in read | looked if place})),
        reads_all=() in read,
        read=read,
        looked=looked,
        reads_nothing=not (attributes or sections or read or looked),
    )


def _in_arguments(paths: frozenset[Reads]) -> frozenset[Path]:
    """Context paths as argument paths; a read of the whole context reads all arguments."""
    return frozenset(path[1:] for path in paths if path[:1] in ((), ("arguments",)))


_OTHER_ATTRIBUTES: Final = frozenset(CONTEXT_ATTRIBUTES)


_NOTHING_READ: Final = b"[]"


def _read_values(part: _MatchingPolicies, seen: _ContextView) -> bytes:
    """Cache key: an injective encoding of exactly the values that the policies read.

    Cedar's JSON form distinguishes true, 1 and 1.0, and an absent attribute from every value. Two calls with
    one key would share a decision, so no distinction that a policy can make may be lost here.
    """
    if part.reads_nothing:
        return _NOTHING_READ
    names = (*part.attributes, *part.sections)
    values = [*(seen.attributes[name] for name in names), seen.record]
    written = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    # A verbatim key begins with "[", so it cannot equal a hashed one: nobody can craft arguments that
    # collide.
    return written if len(written) <= KEY_BYTES else b"#" + hashlib.sha256(written).digest()


def _is_read(path: Path, part: _MatchingPolicies) -> bool:
    """Whether omitting a path changes what a policy reads or what `has` returns."""
    above = any(place[: len(path)] == path for place in part.read | part.looked)
    return above or any(path[: len(place)] == place for place in part.read)


def _unrepresentable(seen: _ContextView, part: _MatchingPolicies) -> Verdict | None:
    """Deny if policies read a value that was omitted.

    An allowlist (`containsAll`) would pass on the missing value.
    """
    told = tuple(why for name, why in seen.unreadable.items() if name in part.attributes)
    if told:
        return Verdict(is_allowed=False, errors=told)
    unheld = [path for path in seen.lost if _is_read(path, part)]
    if not unheld:
        return None
    places = ", ".join(sorted(map(pointer, unheld)))
    return Verdict(is_allowed=False, errors=(f"policies read {places}, which Cedar cannot hold",))


def _conditions(policy: Policy, is_held: IsHeld) -> tuple[Condition, ...]:
    try:
        return held_conditions(policy, is_held)
    except BaseException as error:  # noqa: BLE001 -- the finding is told without them
        _undecided(error)  # raises what is no failure of Cedar
        return ()


def _is_held(
    request: dict[str, Any],
    entities: cedarpy.Entities,
    schema: cedarpy.Schema,
    tree: dict[str, Any],
) -> bool | None:
    """Whether a permit holds; None if Cedar cannot evaluate it."""
    policies = cedarpy.PolicySet.from_json_str(policy_set_json({"policy0": tree}))
    answer = cedarpy.is_authorized(request, policies, entities, schema)
    undecided = answer.diagnostics.errors or answer.decision is cedarpy.Decision.NoDecision
    return None if undecided else answer.decision is cedarpy.Decision.Allow


def _finding(policy: Policy, verdict: Verdict) -> Finding:
    return Finding(
        policy=policy.id,
        effect=policy.effect,
        is_satisfied=policy.id in verdict.policies or policy.id in verdict.yielding,
        error=next(iter(verdict.errors), ""),
    )


def _shown_errors(errors: Iterable[str], part: _MatchingPolicies, *, is_sensitive: bool) -> tuple[str, ...]:
    """Cedar's errors with our policy ids.

    They may quote values, so those of a sensitive tool are replaced.
    """
    told = [] if is_sensitive else [_with_ids(error, part) for error in errors]
    return tuple(told) or ("Cedar could not decide",)


def _with_ids(error: str, part: _MatchingPolicies) -> str:
    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"`{part.policies[number].id}`" if number < len(part.policies) else match[0]

    return re.sub(r"`policy(\d{1,6})`", named, error)


def _undecided(error: BaseException) -> Verdict:
    """Fail closed: any exception denies.

    A Rust panic inside Cedar is a BaseException, so it is matched by name.
    """
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return Verdict(is_allowed=False, errors=(f"the policy could not be asked: {type(error).__name__}",))
    raise error


def _hashed(agent: AgentEntity, tool: ToolKey) -> "hashlib._Hash":
    who = [agent.id, sorted(agent.permissions), sorted(agent.capabilities), *tool]
    return hashlib.sha256(orjson.dumps(who)[:-1])


def _hash(agent_and_tool: "hashlib._Hash", values: bytes) -> str:
    """SHA-256 of one JSON array: agent and tool, then the values that policies read, as hex."""
    whole = agent_and_tool.copy()  # between two calls of Cedar 7 µs less than a new one
    whole.update(b',"%b"]' % values.hex().encode())
    return whole.hexdigest()


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
