"""Create, update and delete custom definitions at run time (STO-2): checked here, persisted by a store.

A definition takes the same path as every other one: checked, compiled, tried against the names and the tier
of this keep, stored, and only then registered. If anything raises, nothing was changed. Blocks while the
store works.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.calls import RegisteredTool
from toolkeep.compat.definition_diff import moved_version
from toolkeep.definitions.definition_rules import written_by_hand
from toolkeep.definitions.serialization import OTHER_SPELLINGS, definition_from_dict
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.version_order import fold, precedence
from toolkeep.definitions.vocabulary import Tier
from toolkeep.errors import (
    BuiltInProtected,
    Code,
    DefinitionInvalid,
    FeatureClosed,
    NotAccepted,
    Problem,
    StoreConflict,
    ToolkeepError,
    UnknownTool,
)
from toolkeep.events import (
    Bus,
    RegistrationFailed,
    StoreFollowed,
    ToolDefinitionCreatedEvent,
    ToolDefinitionDeletedEvent,
    ToolDefinitionUpdatedEvent,
)
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import CHANGER_CHARS, STORED_DEFINITION_BYTES
from toolkeep.registry.coerce import Offer
from toolkeep.registry.register import Registrar
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.tiers import BUILT_INS, check_count, needed_tier
from toolkeep.registry.tool_provider import STORE
from toolkeep.stores.definitions import (
    BrokenDefinition,
    Contents,
    DefinitionStore,
    Family,
    StoredDefinition,
    changed_meanwhile,
)

OfferOf = Callable[[StoredDefinition | BrokenDefinition], Offer]
_UNREAD: Final = -1
_SWITCH: Final = ("enabled",)
"""The fields of a change that needs no higher version."""


class DefinitionEditor:
    """Changes the stored definitions of one keep, and follows changes by other processes."""

    def __init__(
        self,
        registry: ToolRegistry,
        registrar: Registrar,
        bus: Bus,
        store: DefinitionStore,
        *,
        offer_of: OfferOf,
        tier: Tier,
        allows_definitions: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self._registry = registry
        self._registrar = registrar
        self._bus = bus
        self._offer_of = offer_of
        self._tier = tier
        self._allows_definitions = allows_definitions
        self._now = now
        self._lock = threading.RLock()
        self._seen = _UNREAD
        self._has_built_ins = False

    # --- what is stored --------------------------------------------------------------------------

    def read(self) -> Contents:
        """Everything that is stored, to be registered; later changes are followed from there."""
        contents = self.store.read()
        with self._lock:
            self._seen = contents.revision
        return contents

    def versions(self, name: str) -> tuple[StoredDefinition, ...]:
        """Every stored version of a tool, newest first; raises `UnknownTool` if none is stored."""
        registered = self._registry.find(name)
        family = self.store.find(registered.name if registered else name)
        if family is None:
            raise UnknownTool(name)
        return family.all

    def holds(self, stored: StoredDefinition) -> bool:
        """Whether a stored version is registered here."""
        held = self._registry.versions(stored.name)
        return any(tool.provider == STORE and _key(tool) == _stored_key(stored) for tool in held)

    # --- changes ---------------------------------------------------------------------------------

    def create(self, data: Mapping[str, Any], *, by: str, may_run: bool) -> StoredDefinition:
        """Store a new definition and register it."""
        _check_name(by)
        definition, run = self._readable(data, may_run=may_run)
        now = self._now()
        new = self._sized(
            StoredDefinition(
                id=str(uuid.uuid4()),
                definition=definition,
                run=run,
                license_tier=needed_tier(definition, is_built_in=False).number,
                created_by=by,
                created_at=now,
                updated_by=by,
                updated_at=now,
            )
        )
        tool = self._admit(new)
        with self._lock:
            self._registry.add_all([tool], is_trial=True)
            self._note_built_ins()
            kept = self.store.create(new, check=self._check_count)
            self._take(kept.name, Family(current=kept), [tool])
        self._bus.tell(
            ToolDefinitionCreatedEvent(
                definition_id=kept.id,
                tool_name=kept.name,
                category=definition.category.value,
                created_by=by,
                timestamp=now,
            )
        )
        return kept

    def check(self, data: Mapping[str, Any], *, may_run: bool) -> None:
        """Raise what `create`, or `update` to this whole definition, would; changes nothing."""
        definition, run = self._readable(data, may_run=may_run)
        now = self._now()
        new = self._sized(
            StoredDefinition(id="", definition=definition, run=run, created_at=now, updated_at=now)
        )
        tool = self._admit(new)
        with self._lock:
            family = self.store.find(definition.name)
            if family is not None:
                self._refuse_change(family.current, new, may_run=may_run)
            held = self._registry.versions(definition.name)
            if held and held[0].provider == STORE and held[0].name == definition.name:  # no alias
                others = [one for one in held if one.version != tool.version]
                self._registry.exchange([definition.name], [tool, *others], provider=STORE, is_trial=True)
            else:
                self._registry.add_all([tool], is_trial=True)

    def _readable(
        self, data: Mapping[str, Any], *, may_run: bool
    ) -> tuple[ToolDefinition, dict[str, Any] | None]:
        """A whole definition and its runner; raises for one that may not be stored here."""
        self._refuse_closed()
        definition, run = read_definition(data)
        self._refuse_built_in(definition.name, action="overwritten")
        if run is not None and not may_run:
            raise _runs(definition.name)
        return definition, run

    def update(
        self, name: str, changes: Mapping[str, Any], *, by: str, revision: int | None, may_run: bool
    ) -> StoredDefinition:
        """Store a changed definition; null in `changes` resets a field to its default."""
        _check_name(by)
        self._refuse_closed()
        with self._lock:
            family = self._found(name, revision, action="changed")
            before = family.current
            definition, run = with_changes(before, changes)
            fields = self._changed_fields(before, replace(before, definition=definition, run=run))
            if not fields:
                return before
            is_switch = fields == _SWITCH
            self._refuse_change(before, replace(before, definition=definition, run=run), may_run=may_run)
            tier = needed_tier(definition, is_built_in=False).number
            new = replace(
                before,
                definition=definition,
                run=run,
                license_tier=tier,
                updated_by=by,
                updated_at=self._now(),
            )
            self._sized(new)
            versions = (new, *(family.earlier if is_switch else family.all))
            tried = self._admit_all(versions, self._registry.versions(before.name))
            self._registry.exchange([before.name], tried, provider=STORE, is_trial=True)
            keep = self.store.switch if is_switch else self.store.replace
            kept = keep(new, revision=before.revision)
            self._take(kept.name, self.store.find(kept.name), tried)
        told = ToolDefinitionUpdatedEvent(
            definition_id=kept.id,
            tool_name=kept.name,
            changed_fields=fields,
            updated_by=by,
            timestamp=new.updated_at,
        )
        self._bus.tell(told)
        return kept

    def delete(self, name: str, *, by: str, revision: int | None) -> StoredDefinition:
        """Delete a definition with all of its versions."""
        _check_name(by)
        self._refuse_closed()
        with self._lock:
            old = self._found(name, revision, action="deleted").current
            self.store.delete(old, by=by)
            self._take(old.name, None)
        told = ToolDefinitionDeletedEvent(
            definition_id=old.id, tool_name=old.name, deleted_by=by, timestamp=self._now()
        )
        self._bus.tell(told)
        return old

    # --- what others change ----------------------------------------------------------------------

    def follow(self) -> frozenset[str]:
        """Apply what changed since the store was last read; returns the names of those tools."""
        with self._lock:
            last, names = self._changed()
            taken = frozenset(name for name in sorted(names) if self._take_over(name))
            self._seen = last
        if taken:
            self._tell_followed(last, taken)
        return taken

    def _changed(self) -> tuple[int, frozenset[str]]:
        """The store's revision at that time, and the tools that may have changed."""
        if self._seen != _UNREAD:
            last, names = self.store.changed_since(self._seen)
            if last >= self._seen:
                return last, names
        # It could not be read when the keep was opened, or was restored to an earlier state.
        contents = self.store.read()
        held = {family[0].name for family in self._registry.snapshot.families.values() if _is_stored(family)}
        return contents.revision, frozenset(one.name for one in contents.held) | held

    def _tell_followed(self, revision: int, names: Iterable[str]) -> None:
        shown = getattr(getattr(self.store, "place", None), "shown", "memory")
        self._bus.tell(StoreFollowed(store=shown, revision=revision, tool_names=tuple(sorted(names))))

    def _take_over(self, name: str) -> bool:
        """Register what is stored under a name now. A failure is reported, and the other names follow.

        If the newest version does not fit here, the tool is removed: the version before was replaced for a
        reason, and might be the one with the flaw.
        """
        try:
            return self._take(name, self.store.find(name))
        except ToolkeepError as error:
            if error.code is Code.STORE_UNAVAILABLE:
                raise
            failed = RegistrationFailed(
                tool_name=name, provider=STORE, error_code=error.code.value, error_message=error.message
            )
            self._bus.tell(failed)
            if is_stored := any(tool.provider == STORE for tool in self._registry.versions(name)):
                self._registry.exchange([name], [], provider=STORE)
            return is_stored

    def _take(self, name: str, family: Family | None, admitted: Iterable[RegisteredTool] = ()) -> bool:
        """Register what is stored; False if it is registered already."""
        ours = [tool for tool in self._registry.versions(name) if tool.provider == STORE]
        stored = () if family is None or family.current.is_built_in else family.all
        if [_key(tool) for tool in ours] == [_stored_key(one) for one in stored]:
            return False
        tools = self._admit_all(stored, [*ours, *admitted])
        self._registry.exchange([name], tools, provider=STORE)
        return True

    def _admit_all(
        self, stored: Iterable[StoredDefinition], known: Iterable[RegisteredTool]
    ) -> list[RegisteredTool]:
        """The tools, checked and compiled; those known already are not checked again."""
        ready = {_key(tool): tool for tool in known}
        return [ready.get(_stored_key(one)) or self._admit(one) for one in stored]

    def _changed_fields(self, before: StoredDefinition, after: StoredDefinition) -> tuple[str, ...]:
        try:
            return _changed_fields(before, after)
        except TypeError:
            self._admit(after)  # reports the field that is not JSON
            raise

    # --- checks ----------------------------------------------------------------------------------

    def _refuse_change(self, before: StoredDefinition, after: StoredDefinition, *, may_run: bool) -> None:
        """Raise for a change by somebody who may not decide what runs it, or without a higher version."""
        if self._changed_fields(before, after) in ((), _SWITCH):
            return
        if not may_run and (before.run is not None or after.run is not None):
            raise _runs(before.name)
        _refuse_not_higher(before, after)

    def _admit(self, stored: StoredDefinition) -> RegisteredTool:
        return self._registrar.admit(self._offer_of(stored), provider=STORE)

    def _found(self, name: str, revision: int | None, *, action: str) -> Family:
        """The stored versions of a tool that may be changed."""
        if "@" in name:
            hint = "leave the version out: a change is about a tool with all of its versions"
            raise StoreConflict(name, f"names one version, and cannot be {action}", hint=hint)
        self._refuse_built_in(name, action=action)
        registered = self._registry.find(name)
        family = self.store.find(registered.name if registered else name)
        if family is None and registered is not None:
            reason = f"is not kept in the store: it comes from {registered.provider!r}"
            raise StoreConflict(registered.name, reason, hint="change it where it is written")
        if family is None:
            self._registry.get(name)
            raise UnknownTool(name)
        if family.current.is_built_in:
            raise BuiltInProtected(family.current.name, action=action)
        if revision is not None and revision != family.current.revision:
            raise changed_meanwhile(family.current.name)
        return family

    def _refuse_closed(self) -> None:
        if not self._allows_definitions:
            raise FeatureClosed("definitions cannot be changed", key="features.tools.definition")

    def _refuse_built_in(self, name: str, *, action: str) -> None:
        held = self._registry.find(name)
        if (held is not None and held.is_built_in) or fold(name) in BUILT_INS:
            raise BuiltInProtected(held.name if held else name, action=action)

    def _check_count(self, stored: int) -> None:
        """Whether the tier allows one more beside those that are stored, by this or another keep."""
        heads = self._registry.snapshot.families.values()
        configured = sum(family[0].is_custom and family[0].provider != STORE for family in heads)
        check_count(self._tier, stored + configured)

    def _sized(self, stored: StoredDefinition) -> StoredDefinition:
        try:
            size = len(canonical_bytes([stored.definition.to_dict(), stored.run]))
        except TypeError:
            return stored  # admission reports the field that is not JSON
        if size <= STORED_DEFINITION_BYTES:
            return stored
        message = f"takes {size} bytes as JSON; a stored definition has at most {STORED_DEFINITION_BYTES}"
        raise DefinitionInvalid(stored.name, [_problem("metadata", message, "leave something out")])

    def _note_built_ins(self) -> None:
        """Store the built-in tools as rows, once, with the first definition that this process stores."""
        if self._has_built_ins:
            return
        now = self._now()
        self.store.note_built_ins(
            StoredDefinition(
                id=str(uuid.uuid4()),
                definition=tool.definition,
                is_built_in=True,
                license_tier=needed_tier(tool.definition, is_built_in=True).number,
                created_at=now,
                updated_at=now,
            )
            for tool in self._registry.all()
            if tool.is_built_in
        )
        self._has_built_ins = True


def _check_name(by: str) -> None:
    """Check the name of the author of a change: a person must be able to read it, and any database to hold
    it."""
    if not 0 < len(by) <= CHANGER_CHARS or not by.isprintable():
        raise ValueError(f"by must be a printable name of at most {CHANGER_CHARS} characters")


def read_definition(data: Mapping[str, Any]) -> tuple[ToolDefinition, dict[str, Any] | None]:
    """A definition and its runner from their data; raises `DefinitionInvalid`."""
    rest = dict(data)
    run = rest.pop("run", None)
    rest.setdefault("category", "custom")
    definition = written_by_hand(definition_from_dict(rest))
    try:
        canonical_bytes(run)
    except (TypeError, ValueError, RecursionError) as error:
        problem = _problem("run", "is no JSON", "use texts, numbers, lists and objects")
        raise DefinitionInvalid(definition.name, [problem]) from error
    return definition, run


def with_changes(
    before: StoredDefinition, changes: Mapping[str, Any]
) -> tuple[ToolDefinition, dict[str, Any] | None]:
    """The definition with changes applied, and its runner then."""
    given = {OTHER_SPELLINGS.get(key, key): value for key, value in changes.items()}
    merged = {**before.definition.to_dict(), "run": before.run, **given}
    if merged.get("name") != before.name:
        raise StoreConflict(before.name, "cannot be renamed", hint="create another, and delete this one")
    return read_definition({key: value for key, value in merged.items() if value is not None})


def _changed_fields(before: StoredDefinition, after: StoredDefinition) -> tuple[str, ...]:
    """The names of fields that differ as JSON: in Python 1, 1.0 and True are equal."""
    old, new = ({**one.definition.to_dict(), "run": one.run} for one in (before, after))
    fields = {**old, **new}
    return tuple(f for f in fields if canonical_bytes(old.get(f)) != canonical_bytes(new.get(f)))


def _problem(field: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=Code.DEFINITION_INVALID, message=message, fix=fix)


def _refuse_not_higher(before: StoredDefinition, after: StoredDefinition) -> None:
    """Raise unless a changed definition has a higher version than the stored one."""
    held, given = before.definition.version, after.definition.version
    problems_come_first = given.count(".") < 2
    if problems_come_first or precedence(given) > precedence(held):
        return
    enough = moved_version(held, before.definition, after.definition)
    if before.run != after.run:
        enough = f"{precedence(held)[0] + 1}.0.0"  # to callers it is another tool
    raise StoreConflict(
        before.name,
        f"has version {held}, and {given} is not higher",
        hint=f"raise `version`, say to {enough}; only `enabled` changes without",
        field="version",
    )


def _runs(name: str) -> NotAccepted:
    hint = "only who may decide what runs here can change it: pass may_run=True for them"
    return NotAccepted(f"tool {name!r} names something that runs it", hint=hint)


def _is_stored(family: Sequence[RegisteredTool]) -> bool:
    return family[0].provider == STORE


def _key(tool: RegisteredTool) -> tuple[str, str]:
    """The identity of a stored tool: its definition and its runner."""
    run = None if tool.runner is None else {tool.runner.kind: tool.runner.target}
    return tool.definition_hash, canonical_bytes(run).hex()


def _stored_key(stored: StoredDefinition) -> tuple[str, str]:
    return stored.definition.hash, canonical_bytes(stored.run).hex()
