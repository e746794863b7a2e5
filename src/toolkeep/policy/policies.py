"""Policies are read, and checked against the tools and agents that exist, before any call is judged by them.

In come Cedar texts; out go `Policies`, or every problem with its place. Cedar's own parser and validator
decide what is right; what they do not say (lines, names that nothing bears, policies that can never hold) is
found here. Cedar's parser ends the process on brackets nested deep, so brackets are counted first.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, get_args

import cedarpy
import orjson

from toolkeep.calls import RegisteredTool
from toolkeep.canonical import canonical_hash
from toolkeep.definitions.tool import SourceKind, ToolDefinition
from toolkeep.definitions.vocabulary import Category
from toolkeep.errors import Code, ToolkeepError
from toolkeep.policy.cedar_schema import (
    AGENT_ATTRIBUTES,
    CALL,
    CONTEXT_ATTRIBUTES,
    ENTITY_TYPES,
    NO_ARGUMENTS,
    SEE,
    TOOL_ATTRIBUTES,
    Kind,
    Shape,
    cedar_schema,
    read_shape,
)
from toolkeep.policy.settings import PolicySource
from toolkeep.wording import echo_name

OURS: Final = "toolkeep."
"""How the ids of our own policies begin."""

POLICIES: Final = 10_000
"""Policies in one set; a decision may have to look at each."""

POLICY_CHARS: Final = 64 * 1024
"""The longest policy."""

BRACKETS: Final = 50
"""Brackets inside brackets. From a few hundred on Cedar's parser overflows the stack of a thread."""

TREE_DEPTH: Final = 240
"""How deep the tree of a policy may be: about 120 operators in a row."""

CHECKS: Final = 20_000
"""Policies times kinds of arguments that one check looks at, 0.2 ms each."""

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ANNOTATIONS: Final = ("id", "ask", "reason")
# Possessive, and text that does not end is a token too: a pattern that tries again takes hours.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\n\r]*|[;(){}\[\]]', re.DOTALL)
_LEADING: Final = re.compile(r"(?:\s|//[^\n\r]*+)*+")

Effect = Literal["permit", "forbid"]
Reads = tuple[str, ...]
"""A variable and the attributes that are read of it, `("context", "arguments", "path")`."""


class Uid(NamedTuple):
    """The name of an entity: `Tool::"read_file"`."""

    type: str
    id: str

    def __str__(self) -> str:
        return f'{self.type}::"{echo_name(self.id)}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProblem:
    """One thing that is wrong with a policy: where, what, and how to mend it."""

    source: str
    policy: str = ""
    """Its id, where it has one."""
    line: int = 0
    column: int = 0
    """Where the policy begins, counted from one; zero where no policy is at fault."""
    message: str
    mend: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        named = f" policy '{self.policy}'" if self.policy else ""
        return f"{place}:{named} {self.message}; {self.mend}"


class PoliciesRefused(ToolkeepError):
    """Policies that cannot be used; holds every problem."""

    def __init__(self, problems: Sequence[PolicyProblem]) -> None:
        shown = "\n".join(map(str, problems[:20]))
        super().__init__(Code.POLICIES_INVALID, f"the policies cannot be used:\n{shown}")
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What one place of a policy's head admits: anything, or what an entity or type says."""

    operator: str
    entities: tuple[Uid, ...] = ()
    type: str = ""

    def admits(self, itself: Uid, ancestors: Collection[Uid]) -> bool:
        """Whether it admits an entity that is in the ancestors; as Cedar has it, an entity is in itself."""
        if self.type and self.type != itself.type:
            return False
        if not self.entities:
            return True
        if self.operator == "==":
            return itself in self.entities
        return any(entity == itself or entity in ancestors for entity in self.entities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy as it was read."""

    id: str
    effect: Effect
    asks: bool
    """Whether a person is asked where it permits."""
    reason: str
    source: str
    line: int
    column: int
    text: str
    tree: dict[str, Any] = field(repr=False)
    """Cedar's JSON form."""
    principal: Scope
    action: Scope
    resource: Scope
    entities: frozenset[Uid]
    """Every entity that it names, in its head or its conditions."""
    types: frozenset[str]
    reads: frozenset[Reads]
    """What it reads the values of."""
    looks: frozenset[Reads]
    """What it looks for with `has`."""

    @property
    def context_reads(self) -> frozenset[Reads]:
        """What it reads of the context, `("arguments", "path")`; the empty path is all of it."""
        return frozenset(path[1:] for path in self.reads if path[0] == "context")

    @property
    def context_looks(self) -> frozenset[Reads]:
        """What it looks for in the context."""
        return frozenset(path[1:] for path in self.looks if path[0] == "context")

    @property
    def argument_names(self) -> frozenset[str] | None:
        """The arguments that it reads or looks for; None where it reads all of them at once."""
        if self.context_reads & {(), ("arguments",)}:
            return None
        paths = self.context_reads | self.context_looks
        return frozenset(path[1] for path in paths if path[0] == "arguments" and len(path) > 1)

    def applies_to(self, action: str) -> bool:
        """Whether its head admits an action."""
        return self.action.admits(Uid("Action", action), ())

    def problem(self, message: str, mend: str) -> PolicyProblem:
        """Something that is wrong with it."""
        return PolicyProblem(
            source=self.source, policy=self.id, line=self.line, column=self.column, message=message, mend=mend
        )


@dataclass(frozen=True)
class Policies:
    """A set of policies that Cedar can read; made by `read_policies` alone."""

    policies: tuple[Policy, ...]
    """In the order of their ids."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all policies: what a decision names."""
        return canonical_hash({policy.id: policy.tree for policy in self.policies})

    @cached_property
    def by_id(self) -> dict[str, Policy]:
        """The policies by their ids."""
        return {policy.id: policy for policy in self.policies}

    def applying(self, action: str, tool: ToolDefinition) -> tuple[Policy, ...]:
        """The policies whose heads admit an action on a tool; the others can have no part in a decision."""
        itself, ancestors = Uid("Tool", tool.name), tool_ancestors(tool)
        return tuple(
            policy
            for policy in self.policies
            if policy.applies_to(action) and policy.resource.admits(itself, ancestors)
        )


def tool_ancestors(tool: ToolDefinition) -> tuple[Uid, ...]:
    """What a tool is in: its category, its kind of source, and `mcp:ORIGIN` where it comes from elsewhere."""
    sources: list[str] = [tool.source.kind]
    if tool.source.origin:
        sources.append(f"{tool.source.kind}:{tool.source.origin}")
    return (Uid("Category", tool.category.value), *(Uid("Source", source) for source in sources))


# --- reading -----------------------------------------------------------------------------------


def read_policies(sources: Iterable[PolicySource]) -> Policies:
    """Read every source; `PoliciesRefused` lists all that is wrong."""
    problems: list[PolicyProblem] = []
    held: dict[str, Policy] = {}
    for source in sources:
        for found in _read_source(source):
            if isinstance(found, PolicyProblem):
                problems.append(found)
            elif found.id in held:
                first = held[found.id]
                message = f"has the id of another policy, at {first.source}:{first.line}"
                problems.append(found.problem(message, "give it an id of its own"))
            else:
                held[found.id] = found
    if len(held) > POLICIES:
        message = f"there are {len(held)} policies, more than {POLICIES}"
        problems.append(PolicyProblem(source="", message=message, mend="write fewer that say more"))
    if problems:
        raise PoliciesRefused(problems)
    return Policies(tuple(held[name] for name in sorted(held)))


class _Chunk(NamedTuple):
    text: str
    line: int
    column: int
    depth: int


class _Lines:
    """Lines and columns of places in a text, asked for in their order."""

    def __init__(self, text: str) -> None:
        self._text, self._seen, self._line, self._newline = text, 0, 1, -1

    def place(self, index: int) -> tuple[int, int]:
        self._line += self._text.count("\n", self._seen, index)
        self._newline = max(self._newline, self._text.rfind("\n", self._seen, index))
        self._seen = index
        return self._line, index - self._newline


def _chunks(text: str) -> Iterator[_Chunk]:
    """One policy each: in Cedar a semicolon outside strings and comments ends a policy and nothing else."""
    lines = _Lines(text)
    begin = depth = deepest = 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("(", "{", "["):
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in (")", "}", "]"):
            depth -= 1
        elif token[0] == ";":
            yield _chunk(text, lines, begin, token.end(), deepest)
            begin, depth, deepest = token.end(), 0, 0
    if _LEADING.fullmatch(text, begin) is None:
        yield _chunk(text, lines, begin, len(text), deepest)


def _chunk(text: str, lines: _Lines, begin: int, end: int, depth: int) -> _Chunk:
    leading = _LEADING.match(text, begin, end)
    start = leading.end() if leading else begin
    line, column = lines.place(start)
    return _Chunk(text[start:end], line, column, depth)


class _Refused(Exception):
    def __init__(self, message: str, mend: str) -> None:
        super().__init__(message)
        self.message, self.mend = message, mend


def _read_source(source: PolicySource) -> Iterator[Policy | PolicyProblem]:
    for chunk in islice(_chunks(source.text), POLICIES + 1):  # one more is too many already
        try:
            yield _read_policy(chunk, source)
        except _Refused as refused:
            yield PolicyProblem(
                source=source.name,
                line=chunk.line,
                column=chunk.column,
                message=refused.message,
                mend=refused.mend,
            )


def _read_policy(chunk: _Chunk, source: PolicySource) -> Policy:
    tree = _parse(chunk)
    annotations: dict[str, str | None] = tree.get("annotations", {})
    identifier = _identifier(annotations, source)
    _check_annotations(annotations, tree["effect"])
    principal, action, resource = (_scope(tree[place]) for place in ("principal", "action", "resource"))
    body = _Body()
    for condition in tree["conditions"]:
        body.walk(condition["body"])
    heads = (principal, action, resource)
    return Policy(
        id=identifier,
        effect=tree["effect"],
        asks="ask" in annotations,
        reason=annotations.get("reason") or "",
        source=source.name,
        line=chunk.line,
        column=chunk.column,
        text=chunk.text,
        tree=tree,
        principal=principal,
        action=action,
        resource=resource,
        entities=frozenset(body.entities).union(*(scope.entities for scope in heads)),
        types=frozenset(body.types | {scope.type for scope in heads if scope.type}),
        reads=frozenset(body.reads),
        looks=frozenset(body.looks),
    )


def _parse(chunk: _Chunk) -> dict[str, Any]:
    if chunk.depth > BRACKETS or len(chunk.text) > POLICY_CHARS:
        raise _Refused("is nested too deep, or too long", "write several policies instead")
    try:
        sets = orjson.loads(cedarpy.policies_to_json_str(chunk.text))
    except orjson.JSONDecodeError as error:
        raise _Refused("has too many operators in a row", "use a set and contains") from error
    except ValueError as error:
        raise _Refused(
            f"is not Cedar: {error}", "mend the text; each policy ends with a semicolon"
        ) from error
    if sets["templates"]:
        raise _Refused("is a template", "write it without ?principal and ?resource")
    trees: list[dict[str, Any]] = list(sets["staticPolicies"].values())
    if len(trees) != 1:
        raise _Refused("is not one policy", "write one policy before each semicolon")
    if _is_deep(trees[0]):
        raise _Refused("has too many operators in a row", "use a set and contains")
    return trees[0]


def _is_deep(tree: Any) -> bool:
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > TREE_DEPTH:
            return True
        inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        waiting.extend((value, depth + 1) for value in inside)
    return False


def _identifier(annotations: dict[str, str | None], source: PolicySource) -> str:
    identifier = annotations.get("id") or ""
    if not identifier:
        raise _Refused("has no id", 'write @id("…") before it: decisions are recorded by it')
    if not _ID.fullmatch(identifier):
        shown = echo_name(identifier)
        raise _Refused(
            f"has the id '{shown}', which cannot be one", "use up to 128 of A-Z a-z 0-9 . _ -, no dot first"
        )
    if identifier.startswith(OURS) and not source.is_ours:
        raise _Refused(f"has the id '{identifier}'", f"choose one that does not begin with '{OURS}'")
    return identifier


def _check_annotations(annotations: dict[str, str | None], effect: str) -> None:
    for name in annotations:
        # One letter wrong in @ask, and nobody would be asked.
        if name not in _ANNOTATIONS and (meant := _nearest(name, _ANNOTATIONS)):
            raise _Refused(f"is annotated @{echo_name(name)}", f"write @{meant}, or another word altogether")
    if "ask" in annotations and effect == "forbid":
        raise _Refused("forbids, so there is nothing to ask", "take @ask away, or write a permit")


def _scope(head: dict[str, Any]) -> Scope:
    named = [head["entity"]] if "entity" in head else head.get("entities", [])
    if "in" in head:
        named = [head["in"]["entity"]]
    uids = tuple(Uid(entity["type"], entity["id"]) for entity in named)
    return Scope(operator=head["op"], entities=uids, type=head.get("entity_type", ""))


class _Body:
    """What the conditions of a policy name and read."""

    def __init__(self) -> None:
        self.entities: set[Uid] = set()
        self.types: set[str] = set()
        self.reads: set[Reads] = set()
        self.looks: set[Reads] = set()

    def walk(self, expression: Any) -> None:
        """Look at an expression and all inside it."""
        waiting = [expression]
        while waiting:
            node = waiting.pop()
            if isinstance(node, list):
                waiting.extend(node)
            elif isinstance(node, dict):
                for operator, operand in node.items():
                    waiting.extend(self._look(operator, operand, node))

    def _look(self, operator: str, operand: Any, node: dict[str, Any]) -> Iterable[Any]:
        """Note what an operator says; give back the expressions inside it."""
        if operator == "Var":
            self.reads.add((operand,))
            return ()
        if operator == "Value":
            self._literal(operand)
            return ()
        if operator in (".", "has"):
            path = _access(node)
            if path is None:
                return (operand["left"],)
            (self.reads if operator == "." else self.looks).add(path)
            return ()
        if operator == "is":
            self.types.add(operand["entity_type"])
        if isinstance(operand, dict):
            return operand.values()
        return operand if isinstance(operand, list) else ()

    def _literal(self, value: Any) -> None:
        if isinstance(value, dict) and "__entity" in value:
            self.entities.add(Uid(value["__entity"]["type"], value["__entity"]["id"]))


def _access(node: Any) -> Reads | None:
    """The variable and attributes of `context.arguments.path`; None where it starts from something else."""
    steps: list[str] = []
    while True:
        access = node.get(".") or node.get("has")
        if access is None:
            break
        steps.append(access["attr"])
        node = access["left"]
    return (node["Var"], *reversed(steps)) if "Var" in node else None


# --- checking ----------------------------------------------------------------------------------


def check_policies(
    policies: Policies, tools: Iterable[RegisteredTool], agents: Iterable[str]
) -> list[PolicyProblem]:
    """Everything that is wrong with policies, given the tools and agents that exist."""
    world = _World(list(tools), frozenset(agents))
    problems: list[PolicyProblem] = []
    sound: list[Policy] = []
    for policy in policies.policies:
        found = [*_unknown_names(policy, world), *_unknown_attributes(policy, world)]
        problems.extend(found)
        if not found:
            sound.append(policy)
    problems.extend(_validate(sound, world))
    return sorted(problems, key=lambda problem: (problem.source, problem.line, problem.column))


class _World:
    """The tools and agents that exist."""

    def __init__(self, tools: list[RegisteredTool], agents: frozenset[str]) -> None:
        self.tools = tools
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
        self.kinds: dict[tuple[frozenset[str] | None, Scope], list[tuple[str, Shape]]] = {}
        """The kinds of arguments, by what is read of them and the head that admits their tools."""

    def within(self, scope: Scope) -> list[RegisteredTool]:
        """The tools that the head of a policy admits."""
        if scope not in self._within:
            self._within[scope] = [
                tool
                for tool in self.tools
                if scope.admits(Uid("Tool", tool.name), tool_ancestors(tool.definition))
            ]
        return self._within[scope]

    def shape(self, tool: RegisteredTool) -> Shape:
        """What policies see of a tool's arguments."""
        if id(tool) not in self._shapes:
            self._shapes[id(tool)] = read_shape(tool.arguments.schema)
        return self._shapes[id(tool)]


def _unknown_names(policy: Policy, world: _World) -> Iterator[PolicyProblem]:
    for name in sorted(policy.types | {uid.type for uid in policy.entities}):
        if name not in ENTITY_TYPES:
            message = f"names the entity type '{echo_name(name)}', which does not exist"
            yield policy.problem(message, _did_you_mean(name, ENTITY_TYPES))
    for uid in sorted(policy.entities):
        known = world.names.get(uid.type)
        if known is not None and uid.id not in known:
            yield policy.problem(f"names {uid}, which does not exist", _did_you_mean(uid.id, known))


def _unknown_attributes(policy: Policy, world: _World) -> Iterator[PolicyProblem]:
    known: dict[str, Collection[str]] = {
        "principal": AGENT_ATTRIBUTES,
        "resource": TOOL_ATTRIBUTES,
        "context": ("arguments", *CONTEXT_ATTRIBUTES),
    }
    for path in sorted(policy.reads | policy.looks):
        names = known.get(path[0], ())
        if len(path) > 1 and path[1] not in names:
            message = f"reads {path[0]}.{echo_name(path[1])}, which does not exist"
            yield policy.problem(message, _did_you_mean(path[1], names))
    tools = world.within(policy.resource)
    for name in sorted(policy.argument_names or ()):
        if tools and not any(name in world.shape(tool).attributes for tool in tools):
            yield _unknown_argument(policy, name, tools, world)


def _unknown_argument(policy: Policy, name: str, tools: list[RegisteredTool], world: _World) -> PolicyProblem:
    of_whom = f"'{tools[0].name}'" if len(tools) == 1 else "any tool that it is about"
    if any(name in tool.definition.properties for tool in tools):
        message = f"reads the argument '{echo_name(name)}' of {of_whom}, which policies cannot see"
        return policy.problem(message, "read another: it is secret, or of a type that Cedar lacks")
    message = f"reads the argument '{echo_name(name)}', which is no argument of {of_whom}"
    return policy.problem(message, _did_you_mean(name, {n for t in tools for n in world.shape(t).attributes}))


class _Group(NamedTuple):
    """Policies to be checked against one schema."""

    arguments: Shape
    tool: str
    """A tool that has it; empty where the arguments do not matter."""
    policies: list[Policy]


def _validate(policies: list[Policy], world: _World) -> Iterator[PolicyProblem]:
    """What Cedar's validator says of each policy for each kind of tool that it is about."""
    groups: dict[bytes, _Group] = {}
    for policy in policies:
        # A policy about the arguments of tools that do not exist yet is in no group.
        for tool, shape in _argument_kinds(policy, world):
            key = orjson.dumps(shape.to_cedar(), option=orjson.OPT_SORT_KEYS)
            groups.setdefault(key, _Group(shape, tool, [])).policies.append(policy)
    if sum(len(group.policies) for group in groups.values()) > CHECKS:
        message = f"checking them for every tool takes more than {CHECKS} steps"
        mend = "name tools or categories in the heads of policies that read arguments"
        yield PolicyProblem(source="", message=message, mend=mend)
        return
    possible: set[str] = set()
    told: set[tuple[str, str]] = set()
    for group in groups.values():
        for policy, error in _validate_group(group, possible):
            if (policy.id, error) not in told:
                told.add((policy.id, error))
                whose = f" for tool '{group.tool}'" if group.tool else ""
                yield policy.problem(f"is wrong{whose}: {error}", _mend(error))
    wrong = {name for name, _ in told}
    checked = {policy.id: policy for group in groups.values() for policy in group.policies}
    for policy in checked.values():
        if policy.id not in possible and policy.id not in wrong:
            mend = "compare its conditions with its head and with the types of what it reads"
            yield policy.problem("can never hold, whatever is called", mend)


def _argument_kinds(policy: Policy, world: _World) -> Iterable[tuple[str, Shape]]:
    """The different arguments for which a policy is to be checked, no more of them than it reads."""
    names = policy.argument_names
    if names is not None and not names:
        return [("", NO_ARGUMENTS)]
    if (names, policy.resource) not in world.kinds:
        world.kinds[names, policy.resource] = _kinds(names, world.within(policy.resource), world)
    return world.kinds[names, policy.resource]


def _kinds(
    names: frozenset[str] | None, tools: list[RegisteredTool], world: _World
) -> list[tuple[str, Shape]]:
    kinds: dict[bytes, tuple[str, Shape]] = {}
    for tool in tools:
        shape = world.shape(tool)
        if names is not None:
            shape = _only(shape, names)
        kinds.setdefault(orjson.dumps(shape.to_cedar(), option=orjson.OPT_SORT_KEYS), (tool.name, shape))
    return list(kinds.values())


def _only(shape: Shape, names: frozenset[str]) -> Shape:
    attributes = {name: inside for name, inside in shape.attributes.items() if name in names}
    return Shape(kind=Kind.RECORD, attributes=attributes, required=shape.required & names)


_NEVER_TYPED: Final = ' when { 1 < "" };'
"""Appended to a policy: Cedar's validator complains about it, unless what stands before can never hold. It is
how we learn of that; cedarpy does not pass the validator's warnings on."""


def _validate_group(group: _Group, possible: set[str]) -> Iterator[tuple[Policy, str]]:
    schema = cedarpy.Schema.from_json_str(orjson.dumps(cedar_schema(group.arguments)).decode())
    texts = [text for p in group.policies for text in (p.text, p.text.removesuffix(";") + _NEVER_TYPED)]
    result = cedarpy.validate_policies("\n".join(texts), schema)
    errors: dict[int, list[str]] = {}
    for error in result.errors:
        # No policy is named where Cedar could not read the text at all: then nothing was checked.
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


def _mend(error: str) -> str:
    """What helps against a complaint of Cedar's; a guess from its words, beside which they stand."""
    return next((mend for words, mend in _MENDS if words in error), "make the types agree")


def _nearest(name: str, names: Iterable[str]) -> str | None:
    from rapidfuzz import process, utils
    from rapidfuzz.distance import OSA

    found = process.extractOne(
        name[:256],
        sorted(names),
        scorer=OSA.normalized_similarity,
        processor=utils.default_process,
        score_cutoff=0.6,
    )
    return None if found is None else str(found[0])


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    meant = _nearest(name, names)
    return f"did you mean '{echo_name(meant)}'?" if meant else "name one that exists"
