"""What a registry remembers beyond one process: switches and pins. A Protocol, and its twin in memory."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.registry.versions import fold


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of an imported tool that a person, or the first import, accepted."""

    origin: str
    name: str
    definition_hash: str
    """Of the definition as it arrives; empty where none was accepted yet and the first one waits."""
    version: str
    """Ours: it moves with each accepted change."""
    definition: dict[str, Any]
    pending_hash: str = ""
    """Of a changed definition that arrived and waits for a person."""
    pending: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What the pin is about."""
        return self.origin, self.name

    @property
    def is_accepted(self) -> bool:
        """Whether a definition was accepted, whatever waits."""
        return bool(self.definition_hash)


def accepted(pin: Pin) -> Pin:
    """The pin after a person took the changed definition; the version moves by what changed."""
    if pin.pending is None:
        return pin
    new = ToolDefinition.from_dict(pin.pending)
    version = new.version
    if pin.is_accepted:
        from toolkeep.registry.difference import moved_version

        version = moved_version(pin.version, ToolDefinition.from_dict(pin.definition), new)
    return Pin(
        origin=pin.origin,
        name=pin.name,
        definition_hash=pin.pending_hash,
        version=version,
        definition=pin.pending,
    )


def pin_key(tool: RegisteredTool) -> tuple[str, str]:
    """The key of the pin of an imported tool."""
    source = tool.definition.source
    return f"{source.kind}:{source.origin}", fold(tool.name)


def with_switch(switches: Mapping[str, bool], switch: str, *, enabled: bool) -> dict[str, bool]:
    """The switches with one more; a `name` takes the place of those of its versions."""
    return {k: v for k, v in switches.items() if not k.startswith(f"{switch}@")} | {switch: enabled}


class RegistryState(Protocol):
    """Where switches and pins are kept."""

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled by folded `name` or `name@version`."""

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Remember one; a `name` takes the place of those of its versions."""

    def pins(self) -> Iterable[Pin]:
        """Every pin."""

    def pin(self, pins: Iterable[Pin]) -> list[Pin]:
        """Remember those whose key has no pin yet; what is remembered now for each of them."""

    def wait_for(self, pin: Pin) -> None:
        """Remember what arrived in place of a pinned definition, unless that was replaced meanwhile."""

    def take(self, pin: Pin) -> bool:
        """Put what waits in the place of what is pinned; False where something else waits by now."""

    def replace_pins(self, origins: Iterable[str], pins: Iterable[Pin]) -> None:
        """Put these in the place of all pins of these origins, at once."""


class MemoryState:
    """Remembers for as long as it lives."""

    def __init__(self) -> None:
        self._switches: dict[str, bool] = {}
        self._pins: dict[tuple[str, str], Pin] = {}

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled by folded `name` or `name@version`."""
        return self._switches

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Remember one; a `name` takes the place of those of its versions."""
        self._switches = with_switch(self._switches, switch, enabled=enabled)

    def pins(self) -> Iterable[Pin]:
        """Every pin."""
        return tuple(self._pins.values())

    def pin(self, pins: Iterable[Pin]) -> list[Pin]:
        """Remember those whose key has no pin yet; what is remembered now for each of them."""
        return [self._pins.setdefault(pin.key, pin) for pin in pins]

    def wait_for(self, pin: Pin) -> None:
        """Remember what arrived in place of a pinned definition, unless that was replaced meanwhile."""
        if self._pins[pin.key].definition_hash == pin.definition_hash:
            self._pins[pin.key] = pin

    def take(self, pin: Pin) -> bool:
        """Put what waits in the place of what is pinned; False where something else waits by now."""
        held = self._pins[pin.key]
        if (held.definition_hash, held.pending_hash) != (pin.definition_hash, pin.pending_hash):
            return False
        self._pins[pin.key] = accepted(pin)
        return True

    def replace_pins(self, origins: Iterable[str], pins: Iterable[Pin]) -> None:
        """Put these in the place of all pins of these origins, at once."""
        gone = set(origins)
        kept = {key: pin for key, pin in self._pins.items() if pin.origin not in gone}
        self._pins = kept | {pin.key: pin for pin in pins}
