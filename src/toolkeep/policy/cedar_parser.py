"""Parses Cedar policy texts into `Policies`, or lists every problem with line and column.

Cedar's own parser decides what is valid; positions are found here. Its recursive parser overflows the stack
and kills the process on deeply nested brackets, so brackets are counted first.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from toolkeep.policy.cedar_bindings import cedarpy
from toolkeep.policy.policy_set import (
    Policies,
    PoliciesRefused,
    Policy,
    PolicyProblem,
    Reads,
    Scope,
    Uid,
    placed,
)
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.text.display import echo_name
from toolkeep.text.nearest import nearest_name

OURS: Final = "toolkeep."
"""Prefix of the ids of built-in policies."""

POLICIES: Final = 10_000
"""Maximum number of policies in a set; a decision may have to evaluate each."""

POLICY_CHARS: Final = 64 * 1024
"""Maximum length of one policy."""

BRACKETS: Final = 50
"""Maximum nesting of brackets. From a few hundred on, Cedar's parser overflows the stack of a thread."""

TREE_DEPTH: Final = 240
"""Maximum depth of a policy's syntax tree: about 120 chained operators."""

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ANNOTATIONS: Final = ("id", "ask", "silent", "shadow", "reason")
# Possessive quantifiers, and an unterminated string is a token too: a pattern that backtracks takes hours
# (ReDoS).
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|//[^\n\r]*|[;(){}\[\]]', re.DOTALL)
_NAMED: Final = re.compile(r"unexpected token `([^`]+)`|: ([A-Za-z_][A-Za-z0-9_]*)$")
_PLACES: Final = 50
"""Places of a token that are tried, each by parsing the text before it."""
_LEADING: Final = re.compile(r"(?:\s|//[^\n\r]*+)*+")


def read_policies(sources: Iterable[PolicySource]) -> Policies:
    """Parse every source; `PoliciesRefused` lists all problems."""
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
        problems.append(PolicyProblem(source="", message=message, fix="write fewer that say more"))
    if problems:
        raise PoliciesRefused(problems)
    return Policies(tuple(held[name] for name in sorted(held)))


class _Chunk(NamedTuple):
    text: str
    line: int
    column: int
    depth: int


class _Lines:
    """Line and column of ascending offsets in a text, in linear time."""

    def __init__(self, text: str) -> None:
        self._text, self._seen, self._line, self._newline = text, 0, 1, -1

    def place(self, index: int) -> tuple[int, int]:
        self._line += self._text.count("\n", self._seen, index)
        self._newline = max(self._newline, self._text.rfind("\n", self._seen, index))
        self._seen = index
        return self._line, index - self._newline


def _chunks(text: str) -> Iterator[_Chunk]:
    """Split a text into policies: in Cedar a semicolon outside strings and comments always ends a policy."""
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
    def __init__(self, message: str, fix: str, offset: int = 0) -> None:
        """`offset` is where in the text of the policy."""
        super().__init__(message)
        self.message, self.fix, self.offset = message, fix, offset


def _read_source(source: PolicySource) -> Iterator[Policy | PolicyProblem]:
    for chunk in islice(
        _chunks(source.text), POLICIES + 1
    ):  # one more already fails; no need to parse the rest
        try:
            yield _read_policy(chunk, source)
        except _Refused as refused:
            line, column = placed(chunk.text, refused.offset, chunk.line, chunk.column)
            yield PolicyProblem(
                source=source.name,
                line=line,
                column=column,
                message=refused.message,
                fix=refused.fix,
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
        is_shadow="shadow" in annotations,
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
    """Parse one policy into Cedar's JSON format (EST); templates are not supported."""
    # Before Cedar sees the text: a stack overflow in it is no exception but the end of the process.
    if chunk.depth > BRACKETS or len(chunk.text) > POLICY_CHARS:
        raise _Refused("is nested too deep, or too long", "write several policies instead")
    try:
        sets = orjson.loads(cedarpy.policies_to_json_str(chunk.text))
    except orjson.JSONDecodeError as error:
        raise _Refused("has too many operators in a row", "use a set and contains") from error
    except ValueError as error:
        fix = "fix the text; each policy ends with a semicolon"
        raise _Refused(f"is not Cedar: {error}", fix, _offset(chunk.text, str(error))) from error
    if sets["templates"]:
        raise _Refused("is a template", "write it without ?principal and ?resource")
    trees: list[dict[str, Any]] = list(sets["staticPolicies"].values())
    if len(trees) != 1:
        raise _Refused("is not one policy", "write one policy before each semicolon")
    if _is_deep(trees[0]):
        raise _Refused("has too many operators in a row", "use a set and contains")
    return trees[0]


def _offset(text: str, error: str) -> int:
    """Where the text is wrong, as far as Cedar's message tells: it names a token, and no place."""
    if (named := _NAMED.search(error)) is None:
        return 0
    token = next(filter(None, named.groups()))
    places = [found.start() for found in islice(re.finditer(re.escape(token), text), _PLACES)]
    for place in places:
        # The text up to the wrong token fails in the same way; up to an earlier one of its kind, otherwise.
        try:
            cedarpy.policies_to_json_str(text[: place + len(token)])
        except ValueError as other:
            if str(other) == error:
                return place
    return places[0] if places else 0


def _is_deep(tree: Any) -> bool:
    """Iterative on purpose: Python's recursion limit would be hit by the trees that are to be refused."""
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
    # A user policy with a built-in id would replace it in the records that are read by id.
    if identifier.startswith(OURS) and not source.is_ours:
        raise _Refused(f"has the id '{identifier}'", f"choose one that does not begin with '{OURS}'")
    return identifier


def _check_annotations(annotations: dict[str, str | None], effect: str) -> None:
    for name in annotations:
        # Cedar ignores unknown annotations: with the typo @aks no approval would ever be asked for.
        if name not in _ANNOTATIONS and (meant := nearest_name(name, sorted(_ANNOTATIONS))):
            raise _Refused(f"is annotated @{echo_name(name)}", f"write @{meant}, or another word altogether")
    if annotations.get("shadow"):  # the author of @shadow("until May") expects it to end
        raise _Refused("gives @shadow a value", "write @shadow alone, and remove it to put it in force")
    if "silent" in annotations:
        _check_silent(annotations, effect)


def _check_silent(annotations: dict[str, str | None], effect: str) -> None:
    if effect == "forbid":
        raise _Refused("forbids, so @silent has no effect", "remove @silent, or write a permit")
    if "ask" in annotations:
        raise _Refused("is annotated @ask and @silent", "write one of them")
    if annotations["silent"]:  # the author of @silent("high") expects it to suppress approval of high danger
        raise _Refused(
            "gives @silent a value", "write @silent alone: it spares the questions of @ask, no others"
        )


def _scope(head: dict[str, Any]) -> Scope:
    """A scope constraint from Cedar's JSON format."""
    named = [head["entity"]] if "entity" in head else head.get("entities", [])
    if "in" in head:
        named = [head["in"]["entity"]]
    uids = tuple(Uid(entity["type"], entity["id"]) for entity in named)
    return Scope(operator=head["op"], entities=uids, type=head.get("entity_type", ""))


class _Body:
    """Collects entities, types and attribute accesses in the conditions of a policy."""

    def __init__(self) -> None:
        self.entities: set[Uid] = set()
        self.types: set[str] = set()
        self.reads: set[Reads] = set()
        self.looks: set[Reads] = set()

    def walk(self, expression: Any) -> None:
        """Walk an expression and its subexpressions."""
        waiting = [expression]
        while waiting:
            node = waiting.pop()
            if isinstance(node, list):
                waiting.extend(node)
            elif isinstance(node, dict):
                for operator, operand in node.items():
                    waiting.extend(self._look(operator, operand, node))

    def _look(self, operator: str, operand: Any, node: dict[str, Any]) -> Iterable[Any]:
        """Record what an operator reads; returns its operands that are still to be walked."""
        if operator == "Var":
            # A bare variable reads all of it: `context == …`. Caches and denials must then cover every
            # attribute.
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
    """The access path of `context.arguments.path`; None if it does not start from a variable."""
    steps: list[str] = []
    while True:
        step = node.get(".") or node.get("has")
        if step is None:
            break
        steps.append(step["attr"])
        node = step["left"]
    return (node["Var"], *reversed(steps)) if "Var" in node else None
