"""Where custom definitions are kept beyond one process (STO-1, STO-2). A Protocol, and its twin in memory.

A store knows rows, not rules: who may change what, and whether a definition is any good, is decided before.
It decides one thing itself, in the transaction that changes something: whether the change still fits.
"""

import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, NoReturn, Protocol

import msgspec
from msgspec.structs import replace

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DuplicateTool, StoreConflict
from toolkeep.limits import VERSIONS
from toolkeep.registry.versions import fold, precedence


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as a store keeps it."""

    id: str
    """A UUID; the same for all versions of a tool."""
    definition: ToolDefinition
    run: dict[str, Any] | None = None
    """What runs the tool, as a configuration file would say it."""
    is_built_in: bool = False
    license_tier: int = 0
    """The number of the lowest tier that includes it."""
    revision: int = 0
    """Rises with every change of the whole store; what a change is made against."""
    created_by: str = ""
    created_at: datetime
    updated_by: str = ""
    updated_at: datetime

    @property
    def name(self) -> str:
        """Of the tool."""
        return self.definition.name

    @property
    def names(self) -> tuple[str, ...]:
        """Name and aliases, folded: each belongs to one tool of a store."""
        return tuple(dict.fromkeys(map(fold, (self.name, *self.definition.aliases))))


class BrokenDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be used, and why."""

    name: str
    reason: str


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a store held at one moment."""

    revision: int
    """Of the last change."""
    held: tuple[StoredDefinition | BrokenDefinition, ...]
    """Custom definitions, every version, oldest tool first."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of one tool."""

    current: StoredDefinition
    earlier: tuple[StoredDefinition, ...] = ()
    """Newest first."""

    @property
    def all(self) -> tuple[StoredDefinition, ...]:
        """Every version, newest first."""
        return (self.current, *self.earlier)


class DefinitionStore(Protocol):
    """Keeps definitions. What it raises is a `ToolkeepError`; then nothing was changed."""

    def read(self) -> Contents:
        """Every custom definition."""

    def find(self, name: str) -> Family | None:
        """The versions of one tool, of a built-in one too."""

    def create(self, new: StoredDefinition, *, check: Callable[[int], None]) -> StoredDefinition:
        """Keep a new definition, unless a name is taken or `check` raises for how many there are."""

    def replace(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Keep a higher version over the one that has this revision, which becomes an earlier one."""

    def switch(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Enable or disable every version of a tool whose newest one has this revision."""

    def delete(self, old: StoredDefinition, *, by: str) -> None:
        """Let go of every version of a tool, if its newest one still is this."""

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The revision of the last change, and the names of tools that changed since one."""

    def note_built_ins(self, tools: Iterable[StoredDefinition]) -> None:
        """Keep rows of the built-in tools, for whoever reads the table."""

    def close(self) -> None:
        """Let go of what is open."""


def changed_meanwhile(name: str) -> StoreConflict:
    """Somebody else was faster."""
    return StoreConflict(name, "was changed meanwhile", hint="look at it again, then make your change anew")


def refuse_taken(name: str, holder: str) -> NoReturn:
    """A name or alias that another stored tool has."""
    raise DuplicateTool(name, held_by=f"{holder} in the store", hint="choose another name")


class MemoryStore:
    """A store that lasts as long as the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._families: dict[str, Family] = {}
        self._changes: list[str] = []

    def read(self) -> Contents:
        """Every custom definition."""
        with self._lock:
            held = [one for family in self._families.values() for one in family.all if not one.is_built_in]
            return Contents(revision=len(self._changes), held=tuple(held))

    def find(self, name: str) -> Family | None:
        """The versions of one tool, of a built-in one too."""
        return self._families.get(fold(name))

    def create(self, new: StoredDefinition, *, check: Callable[[int], None]) -> StoredDefinition:
        """Keep a new definition, unless a name is taken or `check` raises for how many there are."""
        with self._lock:
            check(sum(not family.current.is_built_in for family in self._families.values()))
            self._refuse_taken(new)
            return self._keep(new)

    def replace(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Keep a higher version over the one that has this revision, which becomes an earlier one."""
        with self._lock:
            held = self._unchanged(new.name, revision)
            self._refuse_taken(new)
            return self._keep(new, *newest_first(held.all)[: VERSIONS - 1])

    def switch(self, new: StoredDefinition, *, revision: int) -> StoredDefinition:
        """Enable or disable every version of a tool whose newest one has this revision."""
        with self._lock:
            held = self._unchanged(new.name, revision)
            enabled = new.definition.enabled
            earlier = [
                replace(one, definition=one.definition.replace(enabled=enabled)) for one in held.earlier
            ]
            return self._keep(new, *earlier)

    def delete(self, old: StoredDefinition, *, by: str) -> None:  # noqa: ARG002 -- the Protocol's
        """Let go of every version of a tool, if its newest one still is this."""
        with self._lock:
            self._unchanged(old.name, old.revision)
            del self._families[fold(old.name)]
            self._changes.append(old.name)

    def changed_since(self, revision: int) -> tuple[int, frozenset[str]]:
        """The revision of the last change, and the names of tools that changed since one."""
        with self._lock:
            return len(self._changes), frozenset(self._changes[max(revision, 0) :])

    def note_built_ins(self, tools: Iterable[StoredDefinition]) -> None:
        """Keep rows of the built-in tools, for whoever reads the table."""
        with self._lock:
            for tool in tools:
                self._families[fold(tool.name)] = Family(current=tool)

    def close(self) -> None:
        """Nothing is open."""

    def _unchanged(self, name: str, revision: int) -> Family:
        held = self._families.get(fold(name))
        if held is None or held.current.revision != revision:
            raise changed_meanwhile(name)
        return held

    def _refuse_taken(self, new: StoredDefinition) -> None:
        for key, family in self._families.items():
            if key != fold(new.name) or family.current.id != new.id:
                taken = names_of(family.all) & set(new.names)
                if taken:
                    refuse_taken(min(taken), family.current.name)

    def _keep(self, new: StoredDefinition, *earlier: StoredDefinition) -> StoredDefinition:
        self._changes.append(new.name)
        kept = replace(new, revision=len(self._changes))
        self._families[fold(new.name)] = Family(current=kept, earlier=newest_first(earlier))
        return kept


def names_of(family: Iterable[StoredDefinition]) -> set[str]:
    """Names and aliases of all versions, folded."""
    return {name for one in family for name in one.names}


def newest_first(versions: Collection[StoredDefinition]) -> tuple[StoredDefinition, ...]:
    """Versions in the order in which they answer."""
    return tuple(sorted(versions, key=lambda one: precedence(one.definition.version), reverse=True))
