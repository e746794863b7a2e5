"""Parsed policies: effect, scope, entities and attributes that each reads, and its source position."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, takewhile
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, ToolkeepError
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.policy.cedar_bindings import cedarpy
from toolkeep.text.display import echo_name

Effect = Literal["permit", "forbid"]
Reads = tuple[str, ...]
"""An access path: a variable and its attributes, `("context", "arguments", "path")`."""


class Uid(NamedTuple):
    """A Cedar entity UID: `Tool::"read_file"`."""

    type: str
    id: str

    def __str__(self) -> str:
        return f'{self.type}::"{echo_name(self.id)}"'


class PolicyProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One validation problem: where, what, and how to fix it."""

    source: str
    policy: str = ""
    """Its id, if it has one."""
    line: int = 0
    column: int = 0
    """One-based position of the policy; zero if no policy is at fault."""
    message: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        named = f" policy '{self.policy}'" if self.policy else ""
        return f"{place}:{named} {self.message}; {self.fix}"


class PoliciesRefused(ToolkeepError):
    """A policy set that fails validation; holds every problem."""

    def __init__(self, problems: Sequence[PolicyProblem]) -> None:
        shown = "\n".join(map(str, problems[:20]))
        super().__init__(Code.POLICIES_INVALID, f"the policies cannot be used:\n{shown}")
        self.problems = tuple(problems)


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """One scope constraint of a policy (principal, action or resource): any, `==`, `in` or `is`."""

    operator: str
    entities: tuple[Uid, ...] = ()
    type: str = ""

    def admits(self, itself: Uid, ancestors: Collection[Uid]) -> bool:
        """Whether it matches an entity with these ancestors; in Cedar an entity is `in` itself."""
        # Mirrors Cedar's own semantics. A policy that Cedar would match must never be filtered out here.
        if self.type and self.type != itself.type:
            return False
        if not self.entities:
            return True
        if self.operator == "==":
            return itself in self.entities
        return any(entity == itself or entity in ancestors for entity in self.entities)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed policy."""

    id: str
    effect: Effect
    asks: bool
    """Annotated `@ask`: if it permits, approval is required; if it forbids, approval lifts it."""
    is_silent: bool
    """Annotated `@silent`: overrides `@ask` of other permits if it permits."""
    is_shadow: bool = False
    """Annotated `@shadow`: decides nothing; what it would have decided is recorded."""
    reason: str
    source: str
    line: int
    column: int
    text: str
    tree: dict[str, Any]
    """The policy in Cedar's JSON format (EST)."""
    principal: Scope
    action: Scope
    resource: Scope
    entities: frozenset[Uid]
    """Every entity UID in its scope or conditions."""
    types: frozenset[str]
    reads: frozenset[Reads]
    """Access paths whose values it reads."""
    looks: frozenset[Reads]
    """Access paths that it tests with `has`."""

    @property
    def yields(self) -> bool:
        """Whether it forbids only calls that no person approves."""
        return self.effect == "forbid" and self.asks

    @property
    def guard(self) -> dict[str, Any] | None:
        """The part of its conditions that stands before anything of the context, as a permit; None if empty.

        Where the guard does not hold, the policy neither holds nor fails, whatever the call: `&&` and a list
        of conditions stop at the first part that is false.
        """
        conditions: list[dict[str, Any]] = []
        for condition in self.tree["conditions"]:
            parts = conjuncts(condition["body"]) if condition["kind"] == "when" else [condition["body"]]
            free = list(takewhile(_is_free_of_context, parts))
            conditions += [{"kind": condition["kind"], "body": part} for part in free]
            if len(free) < len(parts):
                break
        return {**self.tree, "effect": "permit", "conditions": conditions} if conditions else None

    @property
    def evaluated(self) -> str:
        """The text that Cedar evaluates.

        A forbid that yields is evaluated as a permit: so one evaluation says whether it holds, beside the
        other policies. The engine never takes it for a permit.
        """
        if not self.yields:
            return self.text
        return cedarpy.policies_from_json_str(policy_set_json({"policy0": {**self.tree, "effect": "permit"}}))

    @property
    def context_reads(self) -> frozenset[Reads]:
        """Paths read below the context, `("arguments", "path")`; the empty path is the whole context."""
        return frozenset(path[1:] for path in self.reads if path[0] == "context")

    @property
    def context_looks(self) -> frozenset[Reads]:
        """Paths tested with `has` below the context."""
        return frozenset(path[1:] for path in self.looks if path[0] == "context")

    @property
    def argument_names(self) -> frozenset[str] | None:
        """Names of the arguments that it reads or tests; None if it reads all at once."""
        if self.context_reads & {(), ("arguments",)}:
            return None
        paths = self.context_reads | self.context_looks
        return frozenset(path[1] for path in paths if path[0] == "arguments" and len(path) > 1)

    def applies_to(self, action: str) -> bool:
        """Whether its scope matches an action."""
        return self.action.admits(Uid("Action", action), ())

    def problem(self, message: str, fix: str, at: str = "") -> PolicyProblem:
        """A problem of this policy, at the first place of the word `at` in it; else where it begins."""
        found = re.search(rf"(?<!\w){re.escape(at)}(?!\w)", self.text) if at else None
        line, column = placed(self.text, found.start() if found else 0, self.line, self.column)
        return PolicyProblem(
            source=self.source, policy=self.id, line=line, column=column, message=message, fix=fix
        )


@dataclass(frozen=True)
class Policies:
    """A parsed policy set; made by `cedar_parser.read_policies` alone."""

    policies: tuple[Policy, ...]
    """Sorted by id, so that the hash does not depend on the order of files."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all policies: names the policy set in decisions and approvals."""
        return canonical_hash({policy.id: policy.tree for policy in self.policies})

    @cached_property
    def in_force(self) -> "Policies":
        """Those that decide."""
        return Policies(tuple(policy for policy in self.policies if not policy.is_shadow))

    @cached_property
    def shadows(self) -> frozenset[str]:
        """The ids of those that decide nothing."""
        return frozenset(policy.id for policy in self.policies if policy.is_shadow)

    @cached_property
    def guards(self) -> dict[str, dict[str, Any]]:
        """The guards of the policies that have one, by id."""
        found = ((policy.id, policy.guard) for policy in self.policies)
        return {name: guard for name, guard in found if guard is not None}

    @cached_property
    def by_id(self) -> dict[str, Policy]:
        """The policies by their ids."""
        return {policy.id: policy for policy in self.policies}

    @cached_property
    def _by_scope(self) -> dict[tuple[Uid | None, Uid | None], list[tuple[int, Policy]]]:
        """Numbered policies by the entities that their scopes name: the resource, then the principal."""
        found: dict[tuple[Uid | None, Uid | None], list[tuple[int, Policy]]] = {}
        for number, policy in enumerate(self.policies):
            for key in product(policy.resource.entities or (None,), policy.principal.entities or (None,)):
                found.setdefault(key, []).append((number, policy))
        return found

    @cached_property
    def _principals(self) -> tuple[Uid | None, ...]:
        return tuple(dict.fromkeys(principal for _, principal in self._by_scope))

    def applying(self, action: str, tool: ToolDefinition, agent: str | None = None) -> tuple[Policy, ...]:
        """The policies whose scope matches an action on a tool; the others cannot affect a decision.

        Of `agent`, or of any.
        """
        itself, ancestors = Uid("Tool", tool.name), tool_ancestors(tool)
        principals = self._principals if agent is None else (None, Uid("Agent", agent))
        found = [
            (number, policy)
            for key in product((None, itself, *ancestors), principals)
            for number, policy in self._by_scope.get(key, ())
            if policy.applies_to(action)
            and policy.resource.admits(itself, ancestors)
            and (agent is None or policy.principal.admits(Uid("Agent", agent), ()))
        ]
        return tuple(policy for _, policy in sorted(found, key=itemgetter(0)))


def placed(text: str, offset: int, line: int, column: int) -> tuple[int, int]:
    """The line and column of an offset in a text that begins at a line and column."""
    before = text[:offset]
    if "\n" not in before:
        return line, column + offset
    return line + before.count("\n"), offset - before.rfind("\n")


def policy_set_json(trees: Mapping[str, Any]) -> str:
    """Policies by their ids in Cedar's JSON format."""
    return orjson.dumps({"staticPolicies": trees, "templates": {}, "templateLinks": []}).decode()


def conjuncts(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The operands of a chain of `&&`, in the order in which they are evaluated."""
    later: list[dict[str, Any]] = []
    while "&&" in body:
        later.append(body["&&"]["right"])
        body = body["&&"]["left"]
    return [body, *reversed(later)]


def _is_free_of_context(tree: Any) -> bool:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node == {"Var": "context"}:
            return False
        waiting.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return True


def tool_ancestors(tool: ToolDefinition) -> tuple[Uid, ...]:
    """Ancestors of a tool entity: its category, its kind of source, and `mcp:ORIGIN` if it is imported."""
    sources: list[str] = [tool.source.kind]
    if tool.source.origin:
        sources.append(f"{tool.source.kind}:{tool.source.origin}")
    return (Uid("Category", tool.category.value), *(Uid("Source", source) for source in sources))
