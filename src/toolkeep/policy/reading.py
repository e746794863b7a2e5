"""Cedar texts become `Policies`, or every problem with its place.

Cedar's own parser decides what is right; lines and columns are found here. The parser ends the process on
brackets nested deep, so brackets are counted first.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import cedarpy
import orjson

from toolkeep.policy.meant import nearest
from toolkeep.policy.policies import Policies, PoliciesRefused, Policy, PolicyProblem, Reads, Scope, Uid
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

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ANNOTATIONS: Final = ("id", "ask", "silent", "reason")
# Possessive, and text that does not end is a token too: a pattern that tries again takes hours.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\n\r]*|[;(){}\[\]]', re.DOTALL)
_LEADING: Final = re.compile(r"(?:\s|//[^\n\r]*+)*+")


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
        is_silent="silent" in annotations,
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
        if name not in _ANNOTATIONS and (meant := nearest(name, _ANNOTATIONS)):
            raise _Refused(f"is annotated @{echo_name(name)}", f"write @{meant}, or another word altogether")
    if "ask" in annotations and effect == "forbid":
        raise _Refused("forbids, so there is nothing to ask", "take @ask away, or write a permit")
    if "silent" in annotations:
        _check_silent(annotations, effect)


def _check_silent(annotations: dict[str, str | None], effect: str) -> None:
    if effect == "forbid":
        raise _Refused("forbids, so there is no question to spare", "take @silent away, or write a permit")
    if "ask" in annotations:
        raise _Refused("is annotated @ask and @silent", "write one of them")
    if annotations["silent"]:  # who writes @silent("high") believes that it spares that question too
        raise _Refused(
            "gives @silent a value", "write @silent alone: it spares the questions of @ask, no others"
        )


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
            path = access(node)
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


def access(node: Any) -> Reads | None:
    """The variable and attributes of `context.arguments.path`; None where it starts from something else."""
    steps: list[str] = []
    while True:
        step = node.get(".") or node.get("has")
        if step is None:
            break
        steps.append(step["attr"])
        node = step["left"]
    return (node["Var"], *reversed(steps)) if "Var" in node else None
