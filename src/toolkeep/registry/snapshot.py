"""An immutable view of all tools. Readers hold a snapshot; writers build a `Draft` of the next and swap it
in.

A snapshot never changes, so a reader that keeps one never sees half an update.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

import msgspec

from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.version_order import fold, precedence, split_version
from toolkeep.definitions.vocabulary import CallKind, Tier, ToolState
from toolkeep.errors import BuiltInProtected, DuplicateTool
from toolkeep.limits import VERSIONS
from toolkeep.registry.tiers import check_count
from toolkeep.registry.tool_provider import PROJECT

V = TypeVar("V")
D = TypeVar("D")

Family = tuple[RegisteredTool, ...]
"""The versions of one name, newest first."""


class Index(Mapping[str, V]):
    """An immutable mapping in two layers, of which the next index copies only the small one.

    Copying everything for each tool would make registering one by one quadratic.
    """

    __slots__ = ("base", "recent")

    def __init__(self, base: Mapping[str, V], recent: Mapping[str, V]) -> None:
        self.base = base
        self.recent = recent

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, default: V | D, /) -> V | D: ...
    def get(self, key: str, default: V | D | None = None, /) -> V | D | None:
        """The value, or the default. No value is None."""
        found = self.recent.get(key)
        return self.base.get(key, default) if found is None else found

    def __getitem__(self, key: str) -> V:
        return self.recent[key] if key in self.recent else self.base[key]

    def __iter__(self) -> Iterator[str]:
        yield from self.base
        yield from (key for key in self.recent if key not in self.base)

    def __len__(self) -> int:
        return len(self.base) + sum(key not in self.base for key in self.recent)


class _IndexDraft(Generic[V]):
    """The next index while it is built."""

    def __init__(self, index: Index[V]) -> None:
        self._base = index.base
        self._recent = dict(index.recent)

    def finish(self) -> Index[V]:
        """The index; a recent layer above the square root of the rest is merged into it."""
        if len(self._recent) ** 2 > len(self._base):
            return Index({**self._base, **self._recent}, {})
        return Index(self._base, self._recent)

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, default: V, /) -> V: ...
    def get(self, key: str, default: V | None = None, /) -> V | None:
        """The value, or the default."""
        found = self._recent.get(key)
        return self._base.get(key, default) if found is None else found

    def __getitem__(self, key: str) -> V:
        return self._recent[key] if key in self._recent else self._base[key]

    def __setitem__(self, key: str, value: V) -> None:
        self._recent[key] = value

    def remove(self, key: str) -> None:
        """Remove a key, if it is there; this alone copies everything."""
        if key in self._base:
            self._recent = {**self._base, **self._recent}
            self._base = {}
        self._recent.pop(key, None)


class Snapshot:
    """The tools by name, alias and version, and the prompts and resources; lookup ignores case."""

    __slots__ = ("_ordered", "_tools", "answering", "custom_count", "families", "names")

    def __init__(
        self,
        families: Index[Family],
        names: Index[str],
        answering: Index[RegisteredTool],
        custom_count: int = 0,
    ) -> None:
        self.families = families
        """Versions by folded name."""
        self.names = names
        """Folded names and aliases, mapped to folded names."""
        self.answering = answering
        """Tools by exact name, the newest enabled version: the fast path of a call."""
        self.custom_count = custom_count
        self._ordered: tuple[RegisteredTool, ...] | None = None
        self._tools: dict[CallKind, tuple[RegisteredTool, ...]] = {}

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of that name or alias, ignoring case, or of that name and version.

        Of several versions the newest enabled one; if none is enabled, the newest.
        """
        if found := self.answering.get(name):
            return found
        base, version = split_version(name)
        family = self.versions(base)
        if version:
            return next((tool for tool in family if tool.version == version), None)
        return _head(family) if family else None

    def versions(self, name: str) -> Family:
        """Every version of the tool of that name or alias, newest first."""
        return self.families.get(self.names.get(fold(name), ""), ())

    def all(self) -> tuple[RegisteredTool, ...]:
        """One version of every tool, as `find` returns it: by category, then by name."""
        if self._ordered is None:
            heads = map(_head, self.families.values())
            self._ordered = tuple(sorted(heads, key=lambda t: (t.definition.category.number, t.name)))
        return self._ordered

    def of_kind(self, kind: CallKind) -> tuple[RegisteredTool, ...]:
        """The same, of one kind."""
        found = self._tools.get(kind)
        if found is None:
            found = self._tools[kind] = tuple(t for t in self.all() if t.definition.kind is kind)
        return found


EMPTY = Snapshot(Index({}, {}), Index({}, {}), Index({}, {}))


def _head(family: Family) -> RegisteredTool:
    newest = family[0]
    if newest.state is ToolState.ENABLED or len(family) == 1:
        return newest
    return next((tool for tool in family if tool.is_enabled), newest)


class Draft:
    """The next snapshot while it is built; used by one writer."""

    def __init__(self, snapshot: Snapshot, tier: Tier) -> None:
        self._families = _IndexDraft(snapshot.families)
        self._names = _IndexDraft(snapshot.names)
        self._answering = _IndexDraft(snapshot.answering)
        self._tier = tier
        self._custom = snapshot.custom_count

    def finish(self) -> Snapshot:
        """The snapshot."""
        indices = self._families.finish(), self._names.finish(), self._answering.finish()
        return Snapshot(*indices, self._custom)

    def add(self, tool: RegisteredTool) -> RegisteredTool:
        """The tool, or the one with the same definition that is registered already; raises if a name is
        taken."""
        key = fold(tool.name)
        self._let_go_of_the_projects(tool)
        family = self._families.get(key, ())
        if held := _same(family, tool):
            return held
        self._refuse_taken_names(tool, key)
        if family:
            _refuse_conflict(family, tool)
        if tool.is_custom and not family:
            check_count(self._tier, self._custom)
            self._custom += 1
        if family and is_import(tool):
            self._forget_names(family)
            family = ()
        self._put(key, (*family, tool))
        return tool

    def change(self, key: str, change: Callable[[RegisteredTool], RegisteredTool]) -> None:
        """Replace each version of a name."""
        self._put(key, tuple(map(change, self._families[key])))

    def remove(self, key: str, version: str = "") -> None:
        """Remove a tool, with all of its versions or one of them; raises for a built-in."""
        family = self._families[key]
        if family[0].is_built_in:
            raise BuiltInProtected(family[0].name, action="removed")
        self._families.remove(key)
        self._answering.remove(family[0].name)
        self._forget_names(family)
        if version and (rest := tuple(tool for tool in family if tool.version != version)):
            self._put(key, rest)
        else:
            self._custom -= family[0].is_custom

    def _forget_names(self, family: Family) -> None:
        for tool in family:
            for name in (tool.name, *tool.definition.aliases):
                self._names.remove(fold(name))

    def _put(self, key: str, versions: Family) -> None:
        family = tuple(sorted(versions, key=lambda tool: precedence(tool.version), reverse=True))
        self._families[key] = family
        for tool in family:
            for name in (tool.name, *tool.definition.aliases):
                self._names[fold(name)] = key
        head = _head(family)
        if kind_of(head.name) is not CallKind.TOOL:
            return  # found by `find` only: what a model or client calls as a tool must be one
        if head.is_enabled:
            self._answering[head.name] = head
        else:
            self._answering.remove(head.name)

    def _let_go_of_the_projects(self, tool: RegisteredTool) -> None:
        """Remove a project's tool whose name another provider wants: a cloned project could otherwise block
        or replace the user's own tools."""
        for name in (tool.name, *tool.definition.aliases):
            family = self._families.get(self._names.get(fold(name), ""), ())
            if family and family[0].provider != tool.provider and _gives_way(family[0]):
                self.remove(fold(family[0].name))

    def _refuse_taken_names(self, tool: RegisteredTool, key: str) -> None:
        for name in (tool.name, *tool.definition.aliases):
            base = self._names.get(fold(name), key)
            if base != key:
                holder = self._families[base][0]
                raise DuplicateTool(name, held_by=f"{holder.name} {holder.version}")


def _gives_way(tool: RegisteredTool) -> bool:
    return tool.provider == PROJECT


def is_import(tool: RegisteredTool) -> bool:
    """Whether the definition is an import, of which only the current version exists."""
    return not tool.definition.source.is_by_hand


def _origin(tool: RegisteredTool) -> tuple[str, str]:
    return tool.definition.source.kind, tool.definition.source.origin


def _same(family: Family, tool: RegisteredTool) -> RegisteredTool | None:
    """The version with the same definition and code; an agent-tool class is only equal to itself (DEF-10)."""
    for held in family:
        is_same_runner = (
            held.runner is None or tool.runner is None or _has_same_code(held.runner, tool.runner)
        )
        is_same = held.definition_hash == tool.definition_hash and held.provider == tool.provider
        is_quarantined = held.state is ToolState.QUARANTINED
        if is_same and is_same_runner and is_quarantined == (tool.state is ToolState.QUARANTINED):
            return held
    return None


def _has_same_code(runner: Any, other: Any) -> bool:
    """Whether two runners of one definition do the same; an edited function would silently not be used."""
    if isinstance(runner, FunctionTool) and isinstance(other, FunctionTool):
        return runner.function == other.function and runner.overrides == other.overrides
    return type(runner) is type(other)


def _refuse_conflict(family: Family, tool: RegisteredTool) -> None:
    holder = family[0]
    if holder.is_built_in and not tool.is_built_in:
        raise DuplicateTool(
            tool.name, held_by="toolkeep itself", hint="built-in tools are protected; choose another name"
        )
    if holder.provider != tool.provider or _origin(holder) != _origin(tool):
        held_by = f"provider {holder.provider!r}"
        raise DuplicateTool(tool.name, held_by=held_by, hint="give yours another name")
    if holder.name != tool.name:
        raise DuplicateTool(tool.name, held_by=f"{holder.name} {holder.version}")
    if len(family) >= VERSIONS:
        raise DuplicateTool(
            tool.name, held_by=f"{len(family)} versions", hint="unregister old versions first"
        )
    for held in family:
        if held.version == tool.version and not is_import(tool):
            hint = "give yours another name or a higher version, or unregister the other first"
            raise DuplicateTool(tool.name, held_by=f"{held.name} {held.version}", hint=hint)


def with_state(tool: RegisteredTool, state: ToolState, why: str) -> RegisteredTool:
    """The tool in that state."""
    if tool.state is state and tool.why == why:
        return tool
    return msgspec.structs.replace(tool, state=state, why=why)
