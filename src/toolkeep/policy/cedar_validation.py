"""Validates policies against the registered tools and declared agents, before any call is decided by them.

Cedar's validator checks types; entities that do not exist and policies that can never hold are found here.
Without it a misspelled tool name in a forbid would silently forbid nothing.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, get_args

import orjson

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import SourceKind
from toolkeep.definitions.vocabulary import Category
from toolkeep.flow.measures import BUILT_IN, Measure
from toolkeep.policy.cedar_bindings import cedarpy
from toolkeep.policy.cedar_schema import (
    AGENT_ATTRIBUTES,
    CALL,
    CONTEXT_ATTRIBUTES,
    ENTITY_TYPES,
    FLOW_SECTIONS,
    NO_ARGUMENTS,
    SEE,
    STATE_ATTRIBUTES,
    TOOL_ATTRIBUTES,
    Kind,
    Shape,
    cedar_schema,
    flow_types,
    read_sections,
    read_shape,
)
from toolkeep.policy.policy_set import Policies, Policy, PolicyProblem, Scope, Uid, tool_ancestors
from toolkeep.text.display import echo_name
from toolkeep.text.nearest import did_you_mean

CHECKS: Final = 20_000
"""Maximum number of pairs of policy and argument shape that one validation checks, 0.2 ms each."""


def check_policies(
    policies: Policies,
    tools: Iterable[RegisteredTool],
    agents: Iterable[str],
    measures: Mapping[str, Measure] | None = None,
) -> list[PolicyProblem]:
    """All problems of a policy set, given the registered tools, declared agents and measures."""
    world = _KnownEntities(list(tools), frozenset(agents), measures or {})
    problems: list[PolicyProblem] = list(_wrong_measures(world))
    sound: list[Policy] = []
    for policy in policies.policies:
        found = [*_unknown_names(policy, world), *_unknown_attributes(policy, world)]
        problems.extend(found)
        if not found:
            sound.append(policy)
    problems.extend(_validate(sound, world))
    return sorted(problems, key=lambda problem: (problem.source, problem.line, problem.column))


class _KnownEntities:
    """The registered tools and declared agents that policies may name."""

    def __init__(
        self, tools: list[RegisteredTool], agents: frozenset[str], measures: Mapping[str, Measure]
    ) -> None:
        self.tools = tools
        self.measures = measures
        ancestors = {uid for tool in tools for uid in tool_ancestors(tool.definition)}
        self.names: dict[str, frozenset[str]] = {
            "Agent": agents,
            "Tool": frozenset(tool.name for tool in tools),
            "Category": frozenset(category.value for category in Category),
            "Source": frozenset(get_args(SourceKind)) | {uid.id for uid in ancestors if uid.type == "Source"},
            "Action": frozenset((CALL, SEE)),
        }
        self._shapes: dict[int, Shape] = {}
        self._within: dict[Scope, list[RegisteredTool]] = {}
        self.kinds: dict[tuple[_Names, _Names, Scope], list[_Kind]] = {}
        """Distinct kinds of tools, by the names that are read and the scope that matches them."""

    def within(self, scope: Scope) -> list[RegisteredTool]:
        """The tools that a policy's scope matches."""
        if scope not in self._within:
            self._within[scope] = [
                tool
                for tool in self.tools
                if scope.admits(Uid("Tool", tool.name), tool_ancestors(tool.definition))
            ]
        return self._within[scope]

    def shape(self, tool: RegisteredTool) -> Shape:
        """The Cedar shape of a tool's arguments."""
        if id(tool) not in self._shapes:
            self._shapes[id(tool)] = read_shape(tool.schemas.resolved)
        return self._shapes[id(tool)]


def _wrong_measures(world: _KnownEntities) -> Iterator[PolicyProblem]:
    """Measures of tools or parameters that do not exist: they would stay zero, and forbid nothing."""
    by_name = {tool.name: tool for tool in world.tools}
    for measure in world.measures.values():
        if measure.of in BUILT_IN or measure.is_of_budget:
            continue
        source, tool = f"flow.measures.{measure.name}", by_name.get(measure.of)
        if tool is None:
            message = f"there is no tool '{echo_name(measure.of)}'"
            yield PolicyProblem(source=source, message=message, fix=did_you_mean(measure.of, by_name))
        elif measure.parameter:
            numbers = {
                name: shape
                for name, shape in world.shape(tool).attributes.items()
                if shape.kind in (Kind.WHOLE, Kind.DECIMAL)
            }
            if measure.parameter not in numbers:
                message = (
                    f"'{echo_name(measure.parameter)}' is no number that tool '{tool.name}' takes openly"
                )
                yield PolicyProblem(
                    source=source, message=message, fix=did_you_mean(measure.parameter, numbers)
                )


def _unknown_names(policy: Policy, world: _KnownEntities) -> Iterator[PolicyProblem]:
    for name in sorted(policy.types | {uid.type for uid in policy.entities}):
        if name not in ENTITY_TYPES:
            message = f"names the entity type '{echo_name(name)}', which does not exist"
            yield policy.problem(message, did_you_mean(name, ENTITY_TYPES), name)
    for uid in sorted(policy.entities):
        known = world.names.get(uid.type)
        if known is not None and uid.id not in known:
            message = f"names {uid}, which does not exist"
            yield policy.problem(message, did_you_mean(uid.id, known), f'"{uid.id}"')


def _unknown_attributes(policy: Policy, world: _KnownEntities) -> Iterator[PolicyProblem]:
    known: dict[str, Collection[str]] = {
        "principal": AGENT_ATTRIBUTES,
        "resource": TOOL_ATTRIBUTES,
        "context": ("arguments", *CONTEXT_ATTRIBUTES, *FLOW_SECTIONS),
        "context.state": STATE_ATTRIBUTES,
        "context.measures": world.measures,
    }
    for path in sorted(policy.reads | policy.looks):
        names = known.get(path[0], ())
        if len(path) > 1 and path[1] not in names:
            message = f"reads {path[0]}.{echo_name(path[1])}, which does not exist"
            yield policy.problem(message, did_you_mean(path[1], names), path[1])
        section = ".".join(path[:2])
        if section in known and len(path) > 2 and path[2] not in known[section]:
            message = f"reads {section}.{echo_name(path[2])}, which does not exist"
            yield policy.problem(message, did_you_mean(path[2], known[section]), path[2])
    tools = world.within(policy.resource)
    for name in sorted(_flow_names(policy) or ()):
        if tools and not any(name in tool.definition.properties for tool in tools):
            yield _unknown_argument(policy, name, tools, world)
    for name in sorted(policy.argument_names or ()):
        if tools and not any(name in world.shape(tool).attributes for tool in tools):
            yield _unknown_argument(policy, name, tools, world)


def _unknown_argument(
    policy: Policy, name: str, tools: list[RegisteredTool], world: _KnownEntities
) -> PolicyProblem:
    of_whom = f"'{tools[0].name}'" if len(tools) == 1 else "any tool that it is about"
    if any(name in tool.definition.properties for tool in tools):
        message = f"reads the argument '{echo_name(name)}' of {of_whom}, which policies cannot see"
        return policy.problem(message, "read another: it is secret, or of a type that Cedar lacks", name)
    message = f"reads the argument '{echo_name(name)}', which is not an argument of {of_whom}"
    known = {n for t in tools for n in world.shape(t).attributes}
    return policy.problem(message, did_you_mean(name, known), name)


_Names = frozenset[str] | None
"""Names of arguments; None for all."""


class _Kind(NamedTuple):
    """What a policy can tell of a tool: the shape of its arguments, the types of what it reads of flow."""

    tool: str
    """A tool of this kind; empty if it does not matter."""
    arguments: Shape
    flow: dict[str, Any]

    @property
    def key(self) -> bytes:
        return orjson.dumps([self.arguments.to_cedar(), self.flow], option=orjson.OPT_SORT_KEYS)


class _Group(NamedTuple):
    """Policies that are validated against one schema."""

    kind: _Kind
    policies: list[Policy]


def _flow_names(policy: Policy) -> _Names:
    """Names of the arguments whose origin a policy reads; None if it reads all at once."""
    sections = read_sections(policy.context_reads | policy.context_looks)
    read = sections.get("flow", frozenset())
    return None if read is None else frozenset(read)


def _validate(policies: list[Policy], world: _KnownEntities) -> Iterator[PolicyProblem]:
    """Run Cedar's validator on each policy for each kind of tool that it applies to."""
    groups: dict[bytes, _Group] = {}
    for policy in policies:
        # A policy about arguments of tools that are not registered yet is in no group, and is not validated.
        for kind in _kinds_of(policy, world):
            groups.setdefault(kind.key, _Group(kind, [])).policies.append(policy)
    if sum(len(group.policies) for group in groups.values()) > CHECKS:
        message = f"checking them for every tool takes more than {CHECKS} steps"
        fix = "name tools or categories in the heads of policies that read arguments"
        yield PolicyProblem(source="", message=message, fix=fix)
        return
    possible: set[str] = set()
    told: set[tuple[str, str]] = set()
    for group in groups.values():
        for policy, error in _validate_group(group, possible):
            if (policy.id, error) not in told:
                told.add((policy.id, error))
                whose = f" for tool '{group.kind.tool}'" if group.kind.tool else ""
                yield policy.problem(f"is wrong{whose}: {error}", _fix(error))
    wrong = {name for name, _ in told}
    checked = {policy.id: policy for group in groups.values() for policy in group.policies}
    for policy in checked.values():
        if policy.id not in possible and policy.id not in wrong:
            fix = "compare its conditions with its head and with the types of what it reads"
            yield policy.problem("can never hold, whatever is called", fix)


def _kinds_of(policy: Policy, world: _KnownEntities) -> Iterable[_Kind]:
    """The distinct kinds of tools to validate a policy against, reduced to what it reads."""
    names, origins = policy.argument_names, _flow_names(policy)
    sections = read_sections(policy.context_reads | policy.context_looks)
    if names == frozenset() and origins == frozenset():
        return [_Kind("", NO_ARGUMENTS, flow_types(sections, (), world.measures))]
    if (names, origins, policy.resource) not in world.kinds:
        kinds: dict[bytes, _Kind] = {}
        for tool in world.within(policy.resource):
            shape = world.shape(tool) if names is None else world.shape(tool).only(names)
            types = flow_types({"flow": origins}, tool.definition.properties, ())
            kind = _Kind(tool.name, shape, types)
            kinds.setdefault(kind.key, kind)
        world.kinds[names, origins, policy.resource] = list(kinds.values())
    others = {section: read for section, read in sections.items() if section != "flow"}
    more = flow_types(others, (), world.measures)
    return [
        kind._replace(flow={**kind.flow, **more}) for kind in world.kinds[names, origins, policy.resource]
    ]


_NEVER_TYPED: Final = ' when { 1 < "" };'
"""A type error appended to a copy of each policy. The validator skips code after a condition that can never
hold, so a missing error shows that the policy never holds. cedarpy does not expose the validator's own
warning."""


def _validate_group(group: _Group, possible: set[str]) -> Iterator[tuple[Policy, str]]:
    types = cedar_schema(group.kind.arguments, flow=group.kind.flow)
    schema = cedarpy.Schema.from_json_str(orjson.dumps(types).decode())
    texts = [text for p in group.policies for text in (p.text, p.text.removesuffix(";") + _NEVER_TYPED)]
    result = cedarpy.validate_policies("\n".join(texts), schema)
    errors: dict[int, list[str]] = {}
    for error in result.errors:
        # Without a policy id the whole text failed to parse; nothing was validated, so blame the first
        # policy.
        number = int(error.policy_id.removeprefix("policy") or 0)
        errors.setdefault(number, []).append(re.sub(r"^for policy `[^`]*`, ", "", error.error))
    for number, policy in enumerate(group.policies):
        yield from ((policy, error) for error in errors.get(2 * number, ()))
        if 2 * number + 1 in errors:
            possible.add(policy.id)


_MENDS: Final = (
    ("optional attribute", "ask for it first: context.arguments has NAME && …"),
    ('Action::"see"', 'write action == Action::"call" in its head: seeing a tool has no context'),
    ("not found", "name the tools that have it in the head, resource == Tool::…"),
    ("applicable action", "in a head the principal is an Agent and the resource a Tool"),
)


def _fix(error: str) -> str:
    """A hint for a validator error, guessed from its text, which is shown beside it."""
    return next((fix for words, fix in _MENDS if words in error), "make the types agree")
