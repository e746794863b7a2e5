"""The tools of one keep, in memory. Readers see whole snapshots; writers replace the snapshot.

A tool answers unless it is quarantined, disabled by the configuration, switched off by a person, or its
definition says `enabled: false`, in this order.
"""

import threading
from collections.abc import Mapping, Sequence

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.canonical import canonical_bytes
from toolkeep.definitions.vocabulary import Category, Tier, ToolState
from toolkeep.errors import NotAccepted, StaysDisabled, ToolkeepError, UnknownTool
from toolkeep.events import (
    Bus,
    DefinitionWarned,
    ToolAccepted,
    ToolQuarantined,
    ToolRegistered,
    ToolSwitched,
    ToolUnregistered,
)
from toolkeep.registry.snapshot import EMPTY, Draft, is_import, with_state
from toolkeep.registry.state import MemoryState, Pin, RegistryState, accepted, pin_key, with_switch
from toolkeep.registry.versions import split_version
from toolkeep.validation.nearest import nearest_name

SWITCHED_OFF = "it was switched off"
SAID_BY_DEFINITION = "its definition says enabled: false"
CHANGED = "its definition changed since it was accepted"


class ToolRegistry:
    """Registered tools by name, alias and version; look-up ignores case."""

    def __init__(
        self,
        *,
        bus: Bus | None = None,
        state: RegistryState | None = None,
        tier: Tier = Tier.ENTERPRISE,
        closed: Mapping[str, str] | None = None,
    ) -> None:
        self.snapshot = EMPTY
        """Replaced as a whole, never changed: hold it to see one moment."""
        self._lock = threading.Lock()
        self._bus = bus or Bus()
        self._state = state or MemoryState()
        self._tier = tier
        self._closed = {_switch_key(name): why for name, why in (closed or {}).items()}
        """What the configuration disables, by `name` or `name@version`, with the reason."""
        self._switches = dict(self._state.switches())
        self._pins = {pin.key: pin for pin in self._state.pins()}

    def add(self, tool: RegisteredTool) -> RegisteredTool:
        """Register one tool; see `add_all`."""
        return self.add_all([tool])[0]

    def add_all(self, tools: Sequence[RegisteredTool]) -> list[RegisteredTool]:
        """Register tools, all or none, and return what is held now.

        The same definition again is no change; another of the same name and version is refused.
        """
        with self._lock:
            pins: dict[tuple[str, str], Pin] = {}
            settled = [self._settle(tool, pins) for tool in tools]
            draft = Draft(self.snapshot, self._tier)
            held = [draft.add(tool) for tool in settled]
            self._swap(draft, pins)
        self._tell_registered(settled, held)
        return held

    def add_each(self, tools: Sequence[RegisteredTool]) -> list[RegisteredTool | ToolkeepError]:
        """Register those that can be, and return for each what is held now, or why it is not."""
        with self._lock:
            pins: dict[tuple[str, str], Pin] = {}
            settled = [self._settle(tool, pins) for tool in tools]
            draft = Draft(self.snapshot, self._tier)
            held: list[RegisteredTool | ToolkeepError] = []
            for tool in settled:
                try:
                    held.append(draft.add(tool))
                except ToolkeepError as error:
                    held.append(error)
                    pins.pop(pin_key(tool), None)
            self._swap(draft, pins)
        self._tell_registered(settled, held)
        return held

    def remove(self, name: str) -> None:
        """Take out a tool, or one `name@version`; raises for an unknown or a built-in one."""
        version = split_version(name)[1]
        with self._lock:
            tool = self.get(name)
            draft = Draft(self.snapshot, self._tier)
            draft.remove(tool.name.casefold(), version)
            self.snapshot = draft.finish()
        self._bus.tell(ToolUnregistered(tool_name=tool.name, version=version))

    def enable(self, name: str, *, remember: bool = False) -> None:
        """Let a tool answer, or one `name@version`; raises where something stronger keeps it from it."""
        self._switch(name, enabled=True, remember=remember)

    def disable(self, name: str, *, remember: bool = False) -> None:
        """Keep a tool from answering, all of its versions or one `name@version`."""
        self._switch(name, enabled=False, remember=remember)

    def accept(self, name: str) -> RegisteredTool:
        """Take the changed definition of a quarantined import: pin it, move its version, let it answer."""
        with self._lock:
            key = self._key(name)
            tool = self.snapshot.families[key][0]
            pin = self._pins.get(pin_key(tool))
            if pin is None or tool.why != CHANGED:
                what = f"tool {name!r} has no changed definition to accept"
                raise NotAccepted(what, hint="`toolkeep list` shows what is quarantined")
            pin = accepted(pin)
            taken = self._in_its_state(_with_version(tool, pin.version))
            draft = Draft(self.snapshot, self._tier)
            draft.change(key, lambda _: taken)
            self._swap(draft, {pin.key: pin})
        told = ToolAccepted(tool_name=tool.name, version=pin.version, definition_hash=pin.definition_hash)
        self._bus.tell(told)
        return taken

    def pinned(self, tool: RegisteredTool) -> Pin | None:
        """The pin of an imported tool."""
        return self._pins.get(pin_key(tool)) if is_import(tool) else None

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of that name or alias, in any case, or of that `name@version`."""
        return self.snapshot.find(name)

    def get(self, name: str) -> RegisteredTool:
        """As `find`; raises `UnknownTool`."""
        snapshot = self.snapshot
        found = snapshot.find(name)
        if found is None:
            base, version = split_version(name)
            versions = snapshot.versions(base)
            if version and versions:
                raise UnknownTool(name, near=[f"{tool.name}@{tool.version}" for tool in versions[:3]])
            near = nearest_name(base, [tool.name for tool in snapshot.all()])
            raise UnknownTool(name, near=[near] if near else [])
        return found

    def versions(self, name: str) -> tuple[RegisteredTool, ...]:
        """Every version of a tool, newest first; empty where there is none."""
        return self.snapshot.versions(name)

    def all(
        self,
        *,
        enabled: bool | None = None,
        category: Category | None = None,
        capability: str | None = None,
    ) -> list[RegisteredTool]:
        """Tools by category, then by name: all, or those that fit what is asked for.

        `capability` is a kind, `fs.read`, or a kind with its scope, `fs.read:./docs`.
        """
        found = self.snapshot.all()
        if enabled is None and category is None and capability is None:
            return list(found)
        return [
            tool
            for tool in found
            if (enabled is None or tool.is_enabled is enabled)
            and (category is None or tool.definition.category is category)
            and (capability is None or _requires(tool, capability))
        ]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __len__(self) -> int:
        return len(self.snapshot.families)

    def __bool__(self) -> bool:
        return True

    def _key(self, name: str) -> str:
        return self.get(split_version(name)[0]).name.casefold()

    def _swap(self, draft: Draft, pins: Mapping[tuple[str, str], Pin]) -> None:
        if pins:
            self._state.put_pins(pins.values())
            self._pins.update(pins)
        self.snapshot = draft.finish()

    def _settle(self, tool: RegisteredTool, new_pins: dict[tuple[str, str], Pin]) -> RegisteredTool:
        """The tool in the state in which it enters."""
        if tool.state is ToolState.QUARANTINED:
            return tool
        if is_import(tool):
            known = new_pins.get(pin_key(tool)) or self._pins.get(pin_key(tool))
            pin = _pin(tool) if known is None else _met(known, tool)
            if pin is not known:
                new_pins[pin.key] = pin
            if pin.definition_hash != tool.definition_hash:
                return with_state(tool, ToolState.QUARANTINED, CHANGED)
            tool = _with_version(tool, pin.version)
        return self._in_its_state(tool)

    def _in_its_state(self, tool: RegisteredTool) -> RegisteredTool:
        """The tool as configuration, switches and its own definition have it."""
        name = tool.name.casefold()
        both = f"{name}@{tool.version}", name
        for key in (*both, *map(str.casefold, tool.definition.aliases)):
            if key in self._closed:
                return with_state(tool, ToolState.DISABLED, self._closed[key])
        switched = next((self._switches[key] for key in both if key in self._switches), None)
        if switched is False:
            return with_state(tool, ToolState.DISABLED, SWITCHED_OFF)
        if switched is None and not tool.definition.enabled:
            return with_state(tool, ToolState.DISABLED, SAID_BY_DEFINITION)
        return with_state(tool, ToolState.ENABLED, "")

    def _switch(self, name: str, *, enabled: bool, remember: bool) -> None:
        version = split_version(name)[1]
        with self._lock:
            tool = self.get(name)
            key = tool.name.casefold()
            if enabled:
                self._refuse_if_held(tool, version)
            switch = f"{key}@{version}" if version else key
            if remember:
                self._state.put_switch(switch, enabled=enabled)
            self._switches = with_switch(self._switches, switch, enabled=enabled)
            draft = Draft(self.snapshot, self._tier)
            draft.change(key, self._restate)
            self.snapshot = draft.finish()
        state = (ToolState.ENABLED if enabled else ToolState.DISABLED).value
        self._bus.tell(ToolSwitched(tool_name=tool.name, version=version, state=state))

    def _restate(self, tool: RegisteredTool) -> RegisteredTool:
        return tool if tool.state is ToolState.QUARANTINED else self._in_its_state(tool)

    def _refuse_if_held(self, tool: RegisteredTool, version: str) -> None:
        if tool.state is ToolState.QUARANTINED:
            hint = "see what changed and accept it with `toolkeep accept`"
            raise NotAccepted(f"tool {tool.name!r} is quarantined: {tool.why}", hint=hint)
        name = tool.name.casefold()
        keys = [
            name,
            *map(str.casefold, tool.definition.aliases),
            *([f"{name}@{version}"] if version else []),
        ]
        if why := next((self._closed[key] for key in keys if key in self._closed), None):
            raise StaysDisabled(tool.name, why=why)

    def _tell_registered(
        self, settled: Sequence[RegisteredTool], held: Sequence[RegisteredTool | ToolkeepError]
    ) -> None:
        if not self._bus.listeners:
            return
        for tool, holder in zip(settled, held, strict=True):
            if tool is not holder:
                continue
            size = len(canonical_bytes(tool.definition.parameters))
            self._bus.tell(
                ToolRegistered(
                    tool_name=tool.name,
                    version=tool.version,
                    definition_hash=tool.definition_hash,
                    schema_size_bytes=size,
                    provider=tool.provider,
                    state=tool.state.value,
                )
            )
            for warning in tool.warnings:
                told = DefinitionWarned(tool_name=tool.name, field=warning.field, warning=warning.message)
                self._bus.tell(told)
            if tool.why == CHANGED and (pin := self.pinned(tool)):
                changed = ToolQuarantined(
                    tool_name=tool.name,
                    pinned_hash=pin.definition_hash,
                    definition_hash=tool.definition_hash,
                )
                self._bus.tell(changed)


def _switch_key(name: str) -> str:
    """`name` or `name@version`, the name folded; versions know case."""
    base, at, version = name.partition("@")
    return f"{base.casefold()}{at}{version}"


def _pin(tool: RegisteredTool) -> Pin:
    origin, name = pin_key(tool)
    return Pin(
        origin=origin,
        name=name,
        definition_hash=tool.definition_hash,
        version=tool.version,
        definition=tool.definition.to_dict(),
    )


def _met(pin: Pin, tool: RegisteredTool) -> Pin:
    """The pin after the definition arrived again: the same, or another that waits to be accepted."""
    pending_hash = "" if tool.definition_hash == pin.definition_hash else tool.definition_hash
    if pin.pending_hash == pending_hash:
        return pin
    pending = tool.definition.to_dict() if pending_hash else None
    return msgspec.structs.replace(pin, pending_hash=pending_hash, pending=pending)


def _with_version(tool: RegisteredTool, version: str) -> RegisteredTool:
    if tool.version == version:
        return tool
    definition = tool.definition.replace(version=version)
    return msgspec.structs.replace(tool, definition=definition, definition_hash=definition.hash)


def _requires(tool: RegisteredTool, capability: str) -> bool:
    return any(capability in (str(held), held.kind) for held in tool.definition.capabilities)
