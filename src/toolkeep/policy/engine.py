"""Asks Cedar whether an agent may call, or see, a tool.

In come an agent, a registered tool and what is known of the call; out goes a `Verdict`. Only Allow without a
single error allows: Cedar itself skips a policy that it cannot evaluate, a forbid too. A call whose
arguments Cedar cannot hold where a policy reads them is denied. Cedar is pure, so a decision whose inputs
were all seen before is not made again.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import cedarpy
import msgspec
import orjson

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.pointers import pointer
from toolkeep.policy.cedar_schema import CALL, CONTEXT_ATTRIBUTES, SEE, cedar_schema
from toolkeep.policy.cedar_values import ArgumentShape, Path
from toolkeep.policy.mentions import Unreadable, mail_domains, url_hosts
from toolkeep.policy.policies import Effect, Policies, Policy, Reads, tool_ancestors
from toolkeep.policy.recent import Recent

CACHED_DECISIONS: Final = 1_000
"""Decisions about calls that are remembered for one agent."""

CACHED_SIGHTS: Final = 20_000
"""Decisions about seeing that are remembered for one agent: twice the largest registry."""

CACHED_AGENTS: Final = 1_000
"""Agents for which decisions are remembered, each with what it holds."""

PREPARED_TOOLS: Final = 2_000
"""Tools whose Cedar schema is kept, about 60 KB each."""

KEY_BYTES: Final = 256
"""What policies read of a call is remembered as it is up to this size, and by its hash beyond."""

UNKNOWN_EFFECT: Final = "Unknown"


class AgentEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, and what it holds."""

    id: str
    permissions: frozenset[str] = frozenset()
    capabilities: frozenset[str] = frozenset()
    """In their text form, `fs.read:./docs`."""


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What policies may know of a call."""

    arguments: Mapping[str, Any]
    canonical: Mapping[str, str] = {}
    """The canonical form of what the arguments touch, by JSON Pointer."""
    roots: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    databases: frozenset[str] = frozenset()
    session: str = ""
    conversation: str = ""

    def around(self, name: str) -> str | list[str]:
        """An attribute of the context beside the arguments; raises `Unreadable`."""
        if (derive := _DERIVED.get(name)) is not None:
            return sorted(derive(self.arguments))
        value = getattr(self, name)
        return value if isinstance(value, str) else sorted(value)


_DERIVED: Final = {"mail_domains": mail_domains, "url_hosts": url_hosts}
"""What is worked out from the arguments, for policies that read it alone."""


class _Seen(msgspec.Struct, frozen=True):
    """What the policies of a call see of it."""

    record: dict[str, Any]
    """The arguments, as Cedar has them."""
    around: dict[str, str | list[str]]
    """The attributes beside the arguments that are read."""
    lost: list[Path]
    """Places in the arguments that Cedar cannot hold."""
    unreadable: dict[str, str]
    """Attributes beside the arguments that cannot be told, and why."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it is allowed, and by what."""

    is_allowed: bool
    policies: tuple[str, ...] = ()
    """The ids of the permits that allowed it, or of the forbids that denied it."""
    asks: bool = False
    """Whether a policy wants a person to be asked first."""
    spared_by: tuple[str, ...] = ()
    """The ids of the `@silent` permits that spared the question of an `@ask`."""
    errors: tuple[str, ...] = ()
    """Why it could not be decided, which denies it."""
    is_cached: bool = False
    request_hash: str = ""
    """SHA-256 of who asks, for what, and everything that policies read of the call."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy by itself says of a call."""

    policy: str
    effect: Effect
    is_satisfied: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """The policies that can have a say about one action on one tool, and what they read of the context."""

    policies: tuple[Policy, ...]
    handle: cedarpy.PolicySet
    around: tuple[str, ...]
    arguments: tuple[str, ...]
    """The arguments that are read, by name."""
    reads_all: bool
    """Whether all arguments are read at once."""
    read: frozenset[Path]
    """The places in the arguments whose values are read."""
    looked: frozenset[Path]
    """Those that are looked for."""
    reads_nothing: bool
    """Whether no policy reads anything of the context, so that every call is the same to them."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is made once of a tool."""

    key: tuple[str, bool]
    is_sensitive: bool
    shape: ArgumentShape
    schema: cedarpy.Schema
    entities: cedarpy.Entities
    call: _Part
    see: _Part


class Engine:
    """Decides by one set of policies; another set is another engine. Any number of threads may ask."""

    def __init__(self, policies: Policies) -> None:
        self.policies = policies
        self._tools: Recent[tuple[str, bool], _Prepared] = Recent(PREPARED_TOOLS)
        self._parts: Recent[tuple[str, ...], _Part] = Recent(PREPARED_TOOLS)
        self._agents: Recent[AgentEntity, tuple[_Decisions, _Decisions]] = Recent(CACHED_AGENTS)

    def decide(self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts) -> Verdict:
        """Whether the agent may make the call."""
        try:
            return self._decide(agent, tool, facts)
        except BaseException as error:  # noqa: BLE001 -- whatever breaks denies
            return _undecided(error)

    def may_see(self, agent: AgentEntity, tool: RegisteredTool) -> Verdict:
        """Whether the agent may know that the tool exists."""
        try:
            prepared = self._prepare(tool)
            key = (prepared.key, b"")
            seen = self._remembered(agent)[1]
            known = seen.get(key)
            if known is not None:
                return known
            verdict = self._ask(agent, prepared, prepared.see, _request(agent, tool.name, SEE, "{}"))
            return _remember(seen, key, verdict)
        except BaseException as error:  # noqa: BLE001 -- whatever breaks denies
            return _undecided(error)

    def each(self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts) -> list[Finding]:
        """What every policy that can have a say about the call says of it alone."""
        try:
            prepared = self._prepare(tool)
            seen = _see(prepared, facts)
            request = _request(agent, tool.name, CALL, _context(seen, facts))
        except BaseException as error:  # noqa: BLE001 -- whatever breaks is told of each
            unasked = _undecided(error)
            return [_finding(one, unasked) for one in self.policies.applying(CALL, tool.definition)]
        return [
            _finding(one, self._ask_alone(agent, prepared, one, request, seen))
            for one in prepared.call.policies
        ]

    def _ask_alone(
        self,
        agent: AgentEntity,
        prepared: _Prepared,
        policy: Policy,
        request: dict[str, Any],
        seen: _Seen,
    ) -> Verdict:
        try:
            alone = _part((policy,))
            return _unheld(seen, alone) or self._ask(agent, prepared, alone, request)
        except BaseException as error:  # noqa: BLE001 -- whatever breaks denies
            return _undecided(error)

    def _decide(self, agent: AgentEntity, tool: RegisteredTool, facts: CallFacts) -> Verdict:
        prepared = self._prepare(tool)
        seen = _see(prepared, facts)
        if (seen.lost or seen.unreadable) and (denied := _unheld(seen, prepared.call)) is not None:
            return denied
        key = (prepared.key, _read_values(prepared.call, seen))
        decisions = self._remembered(agent)[0]
        known = decisions.get(key)
        if known is not None:
            return known
        request = _request(agent, tool.name, CALL, _context(seen, facts))
        verdict = self._ask(agent, prepared, prepared.call, request)
        verdict = msgspec.structs.replace(verdict, request_hash=_hash(agent, key))
        return _remember(decisions, key, verdict)

    def _ask(self, agent: AgentEntity, prepared: _Prepared, part: _Part, request: dict[str, Any]) -> Verdict:
        entities = prepared.entities.with_added_json_str(_agent_json(agent), prepared.schema)
        answer = cedarpy.is_authorized(request, part.handle, entities, prepared.schema)
        errors = answer.diagnostics.errors
        if errors or answer.decision is cedarpy.Decision.NoDecision:
            return Verdict(is_allowed=False, errors=_told(errors, part, is_sensitive=prepared.is_sensitive))
        named = answer.diagnostics.id_annotations_by_reason
        deciding = tuple(sorted(named[reason] for reason in answer.diagnostics.reasons))
        by_id = self.policies.by_id
        wants_asking = any(by_id[policy].asks for policy in deciding)
        silent = tuple(policy for policy in deciding if by_id[policy].is_silent)
        return Verdict(
            is_allowed=answer.decision is cedarpy.Decision.Allow,
            policies=deciding,
            asks=wants_asking and not silent,
            spared_by=silent if wants_asking else (),
        )

    def _prepare(self, tool: RegisteredTool) -> _Prepared:
        key = (tool.definition_hash or tool.definition.hash, tool.is_built_in)
        prepared = self._tools.get(key)
        if prepared is not None:
            return prepared
        call = self._part_of(CALL, tool.definition)
        # Cedar reads what it is given value by value: it is given what policies read, and nothing else.
        shape = ArgumentShape(tool.arguments.schema, None if call.reads_all else frozenset(call.arguments))
        schema = cedarpy.Schema.from_json_str(_json(cedar_schema(shape.shape)))
        prepared = _Prepared(
            key=key,
            is_sensitive=tool.definition.sensitive,
            shape=shape,
            schema=schema,
            entities=cedarpy.Entities.from_json_str(_json(tool_entities(tool)), schema),
            call=call,
            see=self._part_of(SEE, tool.definition),
        )
        return self._tools.keep(key, prepared)

    def _part_of(self, action: str, tool: ToolDefinition) -> _Part:
        """Tools about which the same policies speak share what is made of them."""
        policies = self.policies.applying(action, tool)
        key = tuple(policy.id for policy in policies)
        return self._parts.get(key) or self._parts.keep(key, _part(policies))

    def _remembered(self, agent: AgentEntity) -> "tuple[_Decisions, _Decisions]":
        """An agent that holds something else is another one: nothing decided before counts."""
        known = self._agents.get(agent)
        return known or self._agents.keep(agent, (Recent(CACHED_DECISIONS), Recent(CACHED_SIGHTS)))


Key = tuple[tuple[str, bool], bytes]
_Decisions = Recent[Key, Verdict]


def _remember(decisions: _Decisions, key: Key, verdict: Verdict) -> Verdict:
    """Remember a verdict, unless something went wrong on the way to it."""
    if not verdict.errors:
        decisions.keep(key, msgspec.structs.replace(verdict, is_cached=True))
    return verdict


def tool_entities(tool: RegisteredTool) -> list[dict[str, Any]]:
    """The tool, and what it is in, as Cedar entities in JSON."""
    definition = tool.definition
    effects = definition.effects
    attributes = {
        "danger": definition.danger_level.rank,
        "category": definition.category.value,
        "source": definition.source.kind,
        "effects": [UNKNOWN_EFFECT] if effects is None else [effect.value for effect in effects],
        "requires": list(definition.required_permissions),
        "capabilities": list(map(str, definition.capabilities)),
        "isolation": definition.constraints.isolation.rank,
        "is_built_in": tool.is_built_in,
        "version": definition.version,
    }
    ancestors = [uid._asdict() for uid in tool_ancestors(definition)]
    itself = {"uid": {"type": "Tool", "id": tool.name}, "attrs": attributes, "parents": ancestors}
    return [itself, *({"uid": uid, "attrs": {}, "parents": []} for uid in ancestors)]


def _agent_json(agent: AgentEntity) -> str:
    attributes = {"permissions": sorted(agent.permissions), "capabilities": sorted(agent.capabilities)}
    return _json([{"uid": {"type": "Agent", "id": agent.id}, "attrs": attributes, "parents": []}])


def _request(agent: AgentEntity, tool: str, action: str, context: str) -> dict[str, Any]:
    return {
        "principal": {"type": "Agent", "id": agent.id},
        "action": {"type": "Action", "id": action},
        "resource": {"type": "Tool", "id": tool},
        "context": context,
    }


_NOTHING_SEEN: Final = _Seen({}, {}, [], {})


def _see(prepared: _Prepared, facts: CallFacts) -> _Seen:
    """What policies read of a call, and nothing else of it."""
    part = prepared.call
    if part.reads_nothing:
        return _NOTHING_SEEN
    arguments = facts.arguments
    if not part.reads_all:
        arguments = {name: arguments[name] for name in part.arguments if name in arguments}
    lost: list[Path] = []
    record = prepared.shape.record(arguments, facts.canonical, lost)
    around: dict[str, str | list[str]] = {}
    unreadable: dict[str, str] = {}
    for name in part.around:
        try:
            around[name] = facts.around(name)
        except Unreadable as error:
            where = f" in {error.pointer}" if error.pointer else ""
            unreadable[name] = f"policies read context.{name}, and there is {error.what}{where}"
    return _Seen(record, around, lost, unreadable)


def _context(seen: _Seen, facts: CallFacts) -> str:
    unread = {name: [] if name in _DERIVED else facts.around(name) for name in _AROUND - seen.around.keys()}
    return _json({"arguments": seen.record, **unread, **seen.around})


def _part(policies: tuple[Policy, ...]) -> _Part:
    reads: frozenset[Reads] = frozenset().union(*(policy.context_reads for policy in policies))
    looks: frozenset[Reads] = frozenset().union(*(policy.context_looks for policy in policies))
    read, looked = _in_arguments(reads), _in_arguments(looks)
    around = _AROUND if () in reads else _AROUND & {path[0] for path in reads | looks}
    return _Part(
        policies=policies,
        handle=cedarpy.PolicySet.from_str("\n".join(policy.text for policy in policies)),
        around=tuple(sorted(around)),
        arguments=tuple(sorted({place[0] for place in read | looked if place})),
        reads_all=() in read,
        read=read,
        looked=looked,
        reads_nothing=not (around or read or looked),
    )


def _in_arguments(paths: frozenset[Reads]) -> frozenset[Path]:
    """Places in the context as places in the arguments; all of the context is all of the arguments."""
    return frozenset(path[1:] for path in paths if path[:1] in ((), ("arguments",)))


_AROUND: Final = frozenset(CONTEXT_ATTRIBUTES)


_NOTHING_READ: Final = b"[]"


def _read_values(part: _Part, seen: _Seen) -> bytes:
    """What the policies read of a call, and nothing else, as bytes that differ wherever it differs.

    JSON in Cedar's form tells true, 1 and 1.0 apart, and an attribute that is absent from any value.
    """
    if part.reads_nothing:
        return _NOTHING_READ
    values = [*(seen.around[name] for name in part.around), seen.record]
    written = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    # What is written begins with a bracket, so no hash can be taken for it.
    return written if len(written) <= KEY_BYTES else b"#" + hashlib.sha256(written).digest()


def _is_read(path: Path, part: _Part) -> bool:
    """Whether a policy would see another value, or look in vain, because a place was left out."""
    above = any(place[: len(path)] == path for place in part.read | part.looked)
    return above or any(path[: len(place)] == place for place in part.read)


def _unheld(seen: _Seen, part: _Part) -> Verdict | None:
    """A denial, where policies read what was left out: a list of it would be met by what is not there."""
    told = tuple(why for name, why in seen.unreadable.items() if name in part.around)
    if told:
        return Verdict(is_allowed=False, errors=told)
    unheld = [path for path in seen.lost if _is_read(path, part)]
    if not unheld:
        return None
    places = ", ".join(sorted(map(pointer, unheld)))
    return Verdict(is_allowed=False, errors=(f"policies read {places}, which Cedar cannot hold",))


def _finding(policy: Policy, verdict: Verdict) -> Finding:
    return Finding(
        policy=policy.id,
        effect=policy.effect,
        is_satisfied=policy.id in verdict.policies,
        error=next(iter(verdict.errors), ""),
    )


def _told(errors: Iterable[str], part: _Part, *, is_sensitive: bool) -> tuple[str, ...]:
    """Cedar's errors with our ids. They may hold values, so of a sensitive tool nothing is told."""
    told = [] if is_sensitive else [_with_ids(error, part) for error in errors]
    return tuple(told) or ("Cedar could not decide",)


def _with_ids(error: str, part: _Part) -> str:
    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"`{part.policies[number].id}`" if number < len(part.policies) else match[0]

    return re.sub(r"`policy(\d{1,6})`", named, error)


def _undecided(error: BaseException) -> Verdict:
    """Whatever breaks on the way denies; a panic inside Cedar is no Exception in Python."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return Verdict(is_allowed=False, errors=(f"the policy could not be asked: {type(error).__name__}",))
    raise error


def _hash(agent: AgentEntity, key: Key) -> str:
    who = [agent.id, sorted(agent.permissions), sorted(agent.capabilities), *key[0], key[1].hex()]
    return hashlib.sha256(orjson.dumps(who)).hexdigest()


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
