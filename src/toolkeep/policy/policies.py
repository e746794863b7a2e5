"""Policies as they were read: what each says, names and reads, and where it stands."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from toolkeep.canonical import canonical_hash
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, ToolkeepError
from toolkeep.wording import echo_name

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
    is_silent: bool
    """Whether it spares the question of policies that ask, where it permits."""
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
    """A set of policies that Cedar can read; made by `reading.read_policies` alone."""

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
