"""Registry state beyond one process: switches, pins, declared flow. Protocol and in-memory implementation."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.version_order import fold
from toolkeep.definitions.vocabulary import Danger


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned definition of an imported tool, accepted by a person or by the first import (trust on first
    use)."""

    origin: str
    name: str
    definition_hash: str
    """Hash of the definition as received; empty if none was accepted yet."""
    version: str
    """Our own version, bumped with each accepted change."""
    definition: dict[str, Any]
    pending_hash: str = ""
    """Hash of a changed definition that awaits acceptance (quarantine)."""
    pending: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key of the pin."""
        return self.origin, self.name

    @property
    def is_accepted(self) -> bool:
        """Whether a definition was accepted, whatever is pending."""
        return bool(self.definition_hash)


class DeclaredFlow(msgspec.Struct, frozen=True, kw_only=True):
    """Roles and labels that a person declared for an imported tool, instead of those in its definition."""

    origin: str
    name: str
    definition_hash: str
    """Of the pin that the person saw. They count for no other definition: names may mean something else."""
    declared: dict[str, Any]
    """As under `upstreams.NAME.flow` of a configuration."""
    declared_by: str

    @property
    def key(self) -> tuple[str, str]:
        """The key of the pin."""
        return self.origin, self.name


class StoredPolicies(msgspec.Struct, frozen=True, kw_only=True):
    """Policies that a person put in force, beside those of the configuration."""

    name: str
    text: str
    examples: str = ""
    """YAML, as in a file beside policies."""
    put_by: str
    put_at: str


def accepted(pin: Pin) -> Pin:
    """The pin after the pending definition was accepted; the version is bumped by the kind of change."""
    if pin.pending is None:
        return pin
    new = definition_from_dict(pin.pending)
    version = new.version
    if pin.is_accepted:
        from toolkeep.compat.definition_diff import moved_version

        version = moved_version(pin.version, definition_from_dict(pin.definition), new)
    return Pin(
        origin=pin.origin,
        name=pin.name,
        definition_hash=pin.pending_hash,
        version=version,
        definition=pin.pending,
    )


def pin_key(tool: RegisteredTool) -> tuple[str, str]:
    """The pin key of an imported tool."""
    source = tool.definition.source
    return f"{source.kind}:{source.origin}", fold(tool.name)


def with_switch(switches: Mapping[str, bool], switch: str, *, enabled: bool) -> dict[str, bool]:
    """Add a switch; a `name` overrides the switches of its versions."""
    return {k: v for k, v in switches.items() if not k.startswith(f"{switch}@")} | {switch: enabled}


def grant_switch(agent: str, capability: str) -> str:
    """The switch of a grant, which is off while the grant is withdrawn; of all of it without a capability.

    No tool, version or agent has a name with a line break.
    """
    return f"agent\n{agent}\n{capability}"


def worker_switch(key: str) -> str:
    """The switch of a worker on another machine by its public key, which is off while it is quarantined."""
    return f"worker\n{key}"


def quarantined_workers(switches: Mapping[str, bool]) -> frozenset[str]:
    """The keys of the workers that are quarantined."""
    return frozenset(
        switch.partition("\n")[2]
        for switch, enabled in switches.items()
        if not enabled and switch.startswith("worker\n")
    )


def rejection_switch(pin: Pin) -> str:
    """The switch that is off while a person keeps a pending definition out; one for each definition."""
    return f"rejected\n{pin.origin}\n{pin.name}\n{pin.pending_hash}"


def danger_switch(name: str, danger: Danger) -> str:
    """The switch that is on while a person has set this danger of a tool, by its folded name."""
    return f"danger\n{name}\n{danger.value}"


def set_dangers(switches: Mapping[str, bool]) -> dict[str, Danger]:
    """The dangers that are set, by folded name; of two, the higher one: another is just being stored."""
    found: dict[str, Danger] = {}
    for switch, enabled in switches.items():
        if enabled and switch.startswith("danger\n"):
            _, name, level = switch.split("\n")
            found[name] = max(found.get(name, Danger.SAFE), Danger(level), key=lambda one: one.rank)
    return found


def withdrawn(switches: Mapping[str, bool]) -> dict[str, set[str]]:
    """The capabilities and permissions that are withdrawn, by agent."""
    found: dict[str, set[str]] = {}
    for switch, enabled in switches.items():
        if not enabled and switch.startswith("agent\n"):
            _, agent, capability = switch.split("\n")
            found.setdefault(agent, set()).add(capability)
    return found


class RegistryState(Protocol):
    """Storage of switches and pins."""

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled, by case-folded `name` or `name@version`."""

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Store a switch; a `name` overrides those of its versions."""

    def problem(self) -> str:
        """Why it is not known what others disabled or withdrew; empty if it is."""

    def pins(self) -> Iterable[Pin]:
        """All pins."""

    def pin(self, pins: Iterable[Pin]) -> list[Pin]:
        """Insert pins whose key has none yet; returns the stored pin for each."""

    def wait_for(self, pin: Pin) -> None:
        """Store a pending definition, unless the pin changed meanwhile."""

    def take(self, pin: Pin) -> bool:
        """Accept the pending definition; False if another one is pending by now (compare and swap)."""

    def replace_pins(self, origins: Iterable[str], pins: Iterable[Pin]) -> None:
        """Replace all pins of these origins atomically; declared flow goes with the last pin of its tool."""

    def flows(self) -> Iterable[DeclaredFlow]:
        """All declared flow."""

    def put_flow(self, flow: DeclaredFlow) -> None:
        """Store the declared flow of a tool, instead of an earlier one."""

    def drop_flow(self, key: tuple[str, str]) -> None:
        """Forget the declared flow of a tool."""

    def policies(self) -> Iterable[StoredPolicies]:
        """The policies that people put in force, by name."""

    def put_policies(self, name: str, stored: StoredPolicies | None) -> None:
        """Store policies instead of earlier ones of that name; None removes them."""


class MemoryState:
    """In-memory registry state."""

    def __init__(self) -> None:
        self._switches: dict[str, bool] = {}
        self._pins: dict[tuple[str, str], Pin] = {}
        self._flows: dict[tuple[str, str], DeclaredFlow] = {}
        self._policies: dict[str, StoredPolicies] = {}

    def switches(self) -> Mapping[str, bool]:
        """Enabled or disabled, by case-folded `name` or `name@version`."""
        return self._switches

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        """Store a switch; a `name` overrides those of its versions."""
        self._switches = with_switch(self._switches, switch, enabled=enabled)

    def problem(self) -> str:
        """Always known: there is nobody else."""
        return ""

    def pins(self) -> Iterable[Pin]:
        """All pins."""
        return tuple(self._pins.values())

    def pin(self, pins: Iterable[Pin]) -> list[Pin]:
        """Insert pins whose key has none yet; returns the stored pin for each."""
        return [self._pins.setdefault(pin.key, pin) for pin in pins]

    def wait_for(self, pin: Pin) -> None:
        """Store a pending definition, unless the pin changed meanwhile."""
        # Only if the accepted definition is still the one that the change was compared with.
        if self._pins[pin.key].definition_hash == pin.definition_hash:
            self._pins[pin.key] = pin

    def take(self, pin: Pin) -> bool:
        """Accept the pending definition; False if another one is pending by now (compare and swap)."""
        held = self._pins[pin.key]
        # Else a person could accept a definition that replaced the one they were shown (TOCTOU).
        if (held.definition_hash, held.pending_hash) != (pin.definition_hash, pin.pending_hash):
            return False
        self._pins[pin.key] = accepted(pin)
        return True

    def replace_pins(self, origins: Iterable[str], pins: Iterable[Pin]) -> None:
        """Replace all pins of these origins atomically; declared flow goes with the last pin of its tool."""
        gone = set(origins)
        kept = {key: pin for key, pin in self._pins.items() if pin.origin not in gone}
        self._pins = kept | {pin.key: pin for pin in pins}
        self._flows = {key: flow for key, flow in self._flows.items() if key in self._pins}

    def flows(self) -> Iterable[DeclaredFlow]:
        """All declared flow."""
        return tuple(self._flows.values())

    def put_flow(self, flow: DeclaredFlow) -> None:
        """Store the declared flow of a tool, instead of an earlier one."""
        self._flows[flow.key] = flow

    def drop_flow(self, key: tuple[str, str]) -> None:
        """Forget the declared flow of a tool."""
        self._flows.pop(key, None)

    def policies(self) -> Iterable[StoredPolicies]:
        """The policies that people put in force, by name."""
        return tuple(self._policies[name] for name in sorted(self._policies))

    def put_policies(self, name: str, stored: StoredPolicies | None) -> None:
        """Store policies instead of earlier ones of that name; None removes them."""
        self._policies = {key: held for key, held in self._policies.items() if key != name}
        if stored is not None:
            self._policies[name] = stored
