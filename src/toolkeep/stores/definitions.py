"""Store of custom definitions (STO-1, STO-2). Protocol and in-memory implementation.

A store knows rows, not rules: permissions and validity are checked before. In its transaction it checks one
thing, whether the change still applies (optimistic locking by revision, names, count).
"""

import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.version_order import fold, precedence
from toolkeep.errors import DuplicateTool, StoreConflict
from toolkeep.limits import VERSIONS


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A stored definition."""

    id: str
    """A UUID, shared by all versions of a tool."""
    definition: ToolDefinition
    run: dict[str, Any] | None = None
    """How the tool runs, in the format of the configuration file."""
    is_built_in: bool = False
    license_tier: int = 0
    """The lowest license tier that includes it."""
    revision: int = 0
    """Store-wide change counter; changes are made against it (optimistic locking)."""
    created_by: str = ""
    created_at: datetime
    updated_by: str = ""
    updated_at: datetime

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name

    @property
    def names(self) -> tuple[str, ...]:
        """Name and aliases, case-folded; unique within a store."""
        return tuple(dict.fromkeys(map(fold, (self.name, *self.definition.aliases))))


class BrokenDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """An unusable row, and why."""

    name: str
    reason: str


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a store."""

    revision: int
    """Revision of the last change."""
    held: tuple[StoredDefinition | BrokenDefinition, ...]
    """All versions of custom definitions, oldest tool first."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of one tool."""

    current: StoredDefinition
    earlier: tuple[StoredDefinition, ...] = ()
    """Newest first."""

    @property
    def all(self) -> tuple[StoredDefinition, ...]:
        """All versions, newest first."""
        return (self.current, *self.earlier)


class DefinitionStore(Protocol):
    """Storage of definitions. It raises `ToolkeepError`; then nothing was changed."""

    def read(self) -> Contents:
        """All custom definitions."""

    def find(self, name: str) -> Family | None:
        """The versions of one tool, built-in ones included."""

    def create(self, new: StoredDefinition, *, check: Callable[[int], None]) -> StoredDefinition:
        """Insert a definition, unless a name is taken or `check` raises for the current count."""

    def replace(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Add a higher version on top of the one with this revision."""

    def switch(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Enable or disable all versions of a tool whose newest one has this revision."""

    def delete(self, old: StoredDefinition, *, by: str) -> None:
        """Delete all versions of a tool, if its newest one is unchanged."""

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The last revision, and the names of tools changed since the given one."""

    def note_built_ins(self, tools: Iterable[StoredDefinition]) -> None:
        """Store rows of the built-in tools, for readers of the table."""

    def close(self) -> None:
        """Close the storage."""


def changed_meanwhile(name: str) -> StoreConflict:
    """Conflict: a concurrent change was first."""
    return StoreConflict(name, "has changed since you read it", hint="reload it, then repeat your change")


def refuse_taken(name: str, holder: str) -> NoReturn:
    """Conflict: another stored tool has the name or alias."""
    raise DuplicateTool(name, held_by=f"{holder} in the store", hint="choose another name")


class MemoryStore:
    """In-memory store."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._families: dict[str, Family] = {}
        self._changes: list[str] = []

    def read(self) -> Contents:
        """All custom definitions."""
        with self._lock:
            held = [one for family in self._families.values() for one in family.all if not one.is_built_in]
            return Contents(revision=len(self._changes), held=tuple(held))

    def find(self, name: str) -> Family | None:
        """The versions of one tool, built-in ones included."""
        return self._families.get(fold(name))

    def create(self, new: StoredDefinition, *, check: Callable[[int], None]) -> StoredDefinition:
        """Insert a definition, unless a name is taken or `check` raises for the current count."""
        with self._lock:
            check(sum(not family.current.is_built_in for family in self._families.values()))
            self._refuse_taken(new)
            return self._keep(new)

    def replace(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Add a higher version on top of the one with this revision."""
        with self._lock:
            held = self._unchanged(new.name, revision)
            self._refuse_taken(new)
            return self._keep(new, *newest_first(held.all)[: VERSIONS - 1])

    def switch(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Enable or disable all versions of a tool whose newest one has this revision."""
        with self._lock:
            held = self._unchanged(new.name, revision)
            enabled = new.definition.enabled
            earlier = [
                replace(one, definition=one.definition.replace(enabled=enabled)) for one in held.earlier
            ]
            return self._keep(new, *earlier)

    def delete(self, old: StoredDefinition, *, by: str) -> None:  # noqa: ARG002 -- the Protocol's
        """Delete all versions of a tool, if its newest one is unchanged."""
        with self._lock:
            self._unchanged(old.name, old.revision)
            del self._families[fold(old.name)]
            self._changes.append(old.name)

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The last revision, and the names of tools changed since the given one."""
        with self._lock:
            return len(self._changes), frozenset(self._changes[max(revision, 0) :])

    def note_built_ins(self, tools: Iterable[StoredDefinition]) -> None:
        """Store rows of the built-in tools, for readers of the table."""
        with self._lock:
            for tool in tools:
                self._families[fold(tool.name)] = Family(current=tool)

    def close(self) -> None:
        """No-op."""

    def _unchanged(self, name: str, revision: int) -> Family:
        held = self._families.get(fold(name))
        # Optimistic locking: the writer saw an older version, and would silently undo somebody's change.
        if held is None or held.current.revision != revision:
            raise changed_meanwhile(name)
        return held

    def _refuse_taken(self, new: StoredDefinition) -> None:
        for key, family in self._families.items():
            if key != fold(new.name) or family.current.id != new.id:
                # Aliases and old versions too: a call by any of these names must reach one tool only.
                taken = names_of(family.all) & set(new.names)
                if taken:
                    refuse_taken(min(taken), family.current.name)

    def _keep(self, new: StoredDefinition, *earlier: StoredDefinition) -> StoredDefinition:
        self._changes.append(new.name)
        kept = replace(new, revision=len(self._changes))
        self._families[fold(new.name)] = Family(current=kept, earlier=newest_first(earlier))
        return kept


def names_of(family: Iterable[StoredDefinition]) -> set[str]:
    """Names and aliases of all versions, case-folded."""
    return {name for one in family for name in one.names}


def newest_first(versions: Collection[StoredDefinition]) -> tuple[StoredDefinition, ...]:
    """Versions in order of precedence, newest first."""
    return tuple(sorted(versions, key=lambda one: precedence(one.definition.version), reverse=True))
