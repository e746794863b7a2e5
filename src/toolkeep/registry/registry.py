"""The tools of one keep, in memory. Readers see whole snapshots; writers swap in a new snapshot.

A tool is enabled unless it is quarantined, disabled by the configuration, switched off by a person, or its
definition says `enabled: false`, in this order.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolkeep.authoring.foreign_tools import ForeignTool
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition, definition_data
from toolkeep.definitions.version_order import fold, split_version
from toolkeep.definitions.vocabulary import CallKind, Category, Danger, Tier, ToolState
from toolkeep.errors import DefinitionError, NotAccepted, StaysDisabled, ToolkeepError, UnknownTool
from toolkeep.events import (
    Bus,
    DefinitionWarned,
    FlowDeclared,
    ToolAccepted,
    ToolQuarantined,
    ToolRegistered,
    ToolSwitched,
    ToolUnregistered,
)
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.registry.declared_flow import check_flow, declared_tool, undeclared_tool
from toolkeep.registry.snapshot import EMPTY, Draft, is_import, with_state
from toolkeep.stores.registry_state import (
    DeclaredFlow,
    MemoryState,
    Pin,
    RegistryState,
    accepted,
    danger_switch,
    grant_switch,
    pin_key,
    quarantined_workers,
    rejection_switch,
    set_dangers,
    with_switch,
    withdrawn,
    worker_switch,
)
from toolkeep.text.nearest import nearest_by_alias

SWITCHED_OFF = "it was switched off"
SAID_BY_DEFINITION = "its definition says enabled: false"
CHANGED = "its definition changed since it was accepted"
OTHER_FLOW = "its roles and labels were declared for another definition: declare them again (toolkeep flow)"
NEW = "it is new since the tools of its upstream were accepted"


class LockedSets(msgspec.Struct, frozen=True):
    """What a project's toolkeep.lock says. It can only hold tools back, never let one in."""

    origins: frozenset[str] = frozenset()
    """The upstreams of the project, if it has a lock."""
    hashes: Mapping[tuple[str, str], str] = {}
    """Definition hashes by origin and folded name."""
    other_packages: frozenset[str] = frozenset()
    """Upstreams whose servers consist of other packages than the lock names."""

    def disagreement(self, pin: Pin) -> str:
        """Why a pinned tool is held back, if the lock says something else."""
        if pin.origin not in self.origins:
            return ""
        if pin.origin in self.other_packages:
            return "toolkeep.lock names other packages than those that were accepted here"
        if pin.key not in self.hashes:
            return "it is not in toolkeep.lock"
        if not pin.is_accepted:
            return "toolkeep.lock names it, but it was not accepted here"
        if self.hashes[pin.key] != pin.definition_hash:
            return "toolkeep.lock names another definition than the one that was accepted here"
        return ""


class ToolRegistry:
    """Registered tools by name, alias and version; lookup ignores case."""

    def __init__(
        self,
        *,
        bus: Bus | None = None,
        state: RegistryState | None = None,
        tier: Tier = Tier.ENTERPRISE,
        closed: Mapping[str, str] | None = None,
        locked: LockedSets | None = None,
    ) -> None:
        self.snapshot = EMPTY
        """Swapped as a whole, never changed: keep a reference for a consistent view."""
        self._lock = threading.Lock()
        self._bus = bus or Bus()
        self._state = state or MemoryState()
        self._tier = tier
        self._closed = {_switch_key(name): why for name, why in (closed or {}).items()}
        """What the configuration disables, by `name` or `name@version`, with the reason."""
        self._remembered = dict(self._state.switches())
        """The persistent switches, as this process last read them."""
        self._switches = dict(self._remembered)
        self._dangers = set_dangers(self._switches)
        self._pins = {pin.key: pin for pin in self._state.pins()}
        self._flows = {flow.key: flow for flow in self._state.flows()}
        self._locked = locked or LockedSets()

    def add(self, tool: RegisteredTool) -> RegisteredTool:
        """Register one tool; see `add_all`."""
        return self.add_all([tool])[0]

    def add_all(self, tools: Sequence[RegisteredTool], *, is_trial: bool = False) -> list[RegisteredTool]:
        """Register tools, all or none, and return what is registered now; with `trial`, only raise.

        The same definition again is no change; another one of the same name and version is refused.
        """
        with self._lock:
            for tried in self._tried_imports(tools):
                if isinstance(tried, ToolkeepError):
                    raise tried
            draft = Draft(self.snapshot, self._tier)
            settled = self._settled(tools, is_whole=False)
            held = [draft.add(tool) for tool in settled]
            if is_trial:
                return held
            self.snapshot = draft.finish()
        self._tell_registered(settled, held)
        return held

    def exchange(
        self,
        names: Sequence[str],
        tools: Sequence[RegisteredTool],
        *,
        provider: str,
        is_trial: bool = False,
    ) -> None:
        """Atomically replace all versions that a provider has under some names; a name without a tool is
        removed."""
        with self._lock:
            draft = Draft(self.snapshot, self._tier)
            before: dict[str, RegisteredTool] = {}
            known: set[str] = set()
            for name in names:
                family = self.snapshot.versions(name)
                known.update(tool.run_key for tool in family)
                if family and family[0].provider == provider and fold(family[0].name) not in before:
                    before[fold(family[0].name)] = family[0]
                    draft.remove(fold(family[0].name))
            settled = self._settled(tools, is_whole=False)
            held = [draft.add(tool) for tool in settled]
            if is_trial:
                return
            self.snapshot = draft.finish()
        new = [
            (tool, holder) for tool, holder in zip(settled, held, strict=True) if tool.run_key not in known
        ]
        self._tell_registered([tool for tool, _ in new], [holder for _, holder in new])
        for key, removed in before.items():
            if all(fold(tool.name) != key for tool in tools):
                self._bus.tell(ToolUnregistered(tool_name=removed.name, version=""))

    def add_each(
        self, tools: Sequence[RegisteredTool], *, is_whole: bool = False
    ) -> list[RegisteredTool | ToolkeepError]:
        """Register those that can be; returns for each what is registered now, or the error.

        `is_whole`: they are everything that their upstreams offer, so one under a new name waits for
        approval.
        """
        with self._lock:
            tried = self._tried_imports(tools)
            draft = Draft(self.snapshot, self._tier)
            usable = [tool for tool in tried if isinstance(tool, RegisteredTool)]
            settled = self._settled(usable, is_whole=is_whole)
            held = [_tried(draft, tool) for tool in settled]
            self.snapshot = draft.finish()
        self._tell_registered(settled, held)
        outcomes = iter(held)
        return [tool if isinstance(tool, ToolkeepError) else next(outcomes) for tool in tried]

    def remove(self, name: str) -> None:
        """Remove a tool, or one `name@version`; raises for an unknown or built-in one."""
        version = split_version(name)[1]
        with self._lock:
            tool = self.get(name)
            draft = Draft(self.snapshot, self._tier)
            draft.remove(fold(tool.name), version)
            self.snapshot = draft.finish()
        self._bus.tell(ToolUnregistered(tool_name=tool.name, version=version))

    def enable(self, name: str, *, remember: bool = False) -> None:
        """Enable a tool, or one `name@version`; raises if something stronger disables it."""
        self._switch(name, enabled=True, remember=remember)

    def disable(self, name: str, *, remember: bool = False) -> None:
        """Disable a tool, all of its versions or one `name@version`."""
        self._switch(name, enabled=False, remember=remember)

    def accept(self, name: str, definition_hash: str) -> RegisteredTool:
        """Accept the changed definition of a quarantined import: pin it, bump its version, enable it."""
        with self._lock:
            key = self._key(name)
            tool = self.snapshot.families[key][0]
            pin = self.pinned(tool)
            if pin is None or not pin.pending_hash or pin.pending_hash != _arrived(tool).hash:
                what = f"tool {name!r} has no changed definition to accept"
                raise NotAccepted(what, hint="`toolkeep list` shows what is quarantined")
            if definition_hash != pin.pending_hash or not self._state.take(pin):
                what = f"the definition of tool {name!r} that waits is not the one with this hash"
                raise NotAccepted(what, hint="review it again: it has changed")
            new = self._pins[pin.key] = accepted(pin)
            taken = self._as_pinned(tool, new)
            draft = Draft(self.snapshot, self._tier)
            draft.change(key, lambda _: taken)
            self.snapshot = draft.finish()
        told = ToolAccepted(tool_name=tool.name, version=new.version, definition_hash=new.definition_hash)
        self._bus.tell(told)
        return taken

    def set_danger(self, name: str, danger: Danger | None) -> RegisteredTool:
        """Use another danger than that of the definition, also for later starts; None returns to it.

        The definition has another hash then: approvals that were remembered for the previous danger end.
        """
        with self._lock:
            key = self._key(name)
            if self.snapshot.families[key][0].state is ToolState.QUARANTINED:
                raise NotAccepted(f"tool {name!r} is quarantined", hint="accept it first")
            # The new one first: if the process ends in between, the higher one counts.
            levels = sorted(Danger, key=lambda level: level is not danger)
            for level in levels:
                switch, is_set = danger_switch(key, level), level is danger
                if self._switches.get(switch, False) is not is_set:
                    self._put_switch(switch, enabled=is_set)
            self._dangers = set_dangers(self._switches)
            draft = Draft(self.snapshot, self._tier)
            draft.change(key, self._restate)
            self.snapshot = draft.finish()
            taken = self.snapshot.families[key][0]
        self._bus.tell(ToolSwitched(tool_name=taken.name, version="", state=taken.state.value))
        return taken

    def _put_switch(self, switch: str, *, enabled: bool) -> None:
        self._state.put_switch(switch, enabled=enabled)
        self._remembered = with_switch(self._remembered, switch, enabled=enabled)
        self._switches = with_switch(self._switches, switch, enabled=enabled)

    def pending(self, tool: RegisteredTool) -> Pin | None:
        """The pin of a quarantined import whose definition awaits acceptance."""
        pin = self.pinned(tool)
        waits = pin is not None and pin.pending_hash and pin.pending_hash == _arrived(tool).hash
        return pin if waits and tool.state is ToolState.QUARANTINED else None

    def reject(self, name: str, definition_hash: str) -> None:
        """Remember that a person keeps a pending definition out: it stays quarantined, and is reviewed."""
        with self._lock:
            pin = self.pending(self.get(name))
            if pin is None or pin.pending_hash != definition_hash:
                what = f"the definition of tool {name!r} that waits is not the one with this hash"
                raise NotAccepted(what, hint="review it again: it has changed")
            self._put_switch(rejection_switch(pin), enabled=False)

    def is_rejected(self, tool: RegisteredTool) -> bool:
        """Whether a person keeps out the definition that awaits acceptance."""
        pin = self.pending(tool)
        return pin is not None and self._switches.get(rejection_switch(pin)) is False

    def declared_flow(self, tool: RegisteredTool) -> DeclaredFlow | None:
        """What a person declared about an imported tool."""
        return self._flows.get(pin_key(tool)) if is_import(tool) else None

    def declare_flow(self, name: str, declared: Mapping[str, Any] | None, *, by: str) -> RegisteredTool:
        """Use these roles and labels of an imported tool instead of those in its definition; None ends that.

        Raises `DefinitionInvalid` for what does not fit the definition. The pin stays: it is about what the
        upstream sent.
        """
        with self._lock:
            key = self._key(name)
            held = self.snapshot.families[key][0]
            pin = self.pinned(held)
            is_held_back = held.state is ToolState.QUARANTINED and held.why != OTHER_FLOW
            if pin is None or not pin.is_accepted or is_held_back or isinstance(held.runner, ForeignTool):
                what = f"tool {held.name!r} is no accepted tool of an upstream"
                raise NotAccepted(what, hint="declare the flow of other tools where they are defined")
            tool = undeclared_tool(_own(held))
            if declared is None:
                self._state.drop_flow(pin.key)
                self._flows.pop(pin.key, None)
            else:
                check_flow(tool, declared)
                flow = DeclaredFlow(
                    origin=pin.origin,
                    name=pin.name,
                    definition_hash=pin.definition_hash,
                    declared=dict(declared),
                    declared_by=by,
                )
                self._state.put_flow(flow)
                self._flows[pin.key] = flow
            taken = self._as_pinned(tool, pin)
            draft = Draft(self.snapshot, self._tier)
            draft.change(key, lambda _: taken)
            self.snapshot = draft.finish()
        self._bus.tell(
            FlowDeclared(tool_name=taken.name, definition_hash=taken.definition_hash, declared_by=by)
        )
        return taken

    @property
    def problem(self) -> str:
        """Why it is not known what other servers disabled or withdrew; empty if it is."""
        return self._state.problem()

    @property
    def withdrawn(self) -> dict[str, set[str]]:
        """The capabilities and permissions that are withdrawn, by agent; an empty text is all of them."""
        return withdrawn(self._switches)

    def switch_grant(self, agent: str, capability: str, *, enabled: bool) -> None:
        """Withdraw a grant or restore it, also for later starts and on other servers."""
        with self._lock:
            self._put_switch(grant_switch(agent, capability), enabled=enabled)

    @property
    def quarantined_workers(self) -> frozenset[str]:
        """The keys of workers on other machines that take no calls."""
        return quarantined_workers(self._switches)

    def is_worker_quarantined(self, key: str) -> bool:
        """Whether the worker of this key takes no calls."""
        return self._switches.get(worker_switch(key)) is False

    def quarantine_worker(self, key: str) -> None:
        """Keep calls from a worker, also after later starts and on other servers."""
        with self._lock:
            self._put_switch(worker_switch(key), enabled=False)

    def follow(self) -> None:
        """Apply the switches and pins that other processes stored, and publish what changed."""
        with self._lock:
            before, earlier, declared = self.snapshot, self._pins, self._flows
            remembered = dict(self._state.switches())
            for switch, enabled in remembered.items():
                if self._remembered.get(switch) is not enabled:  # what only this process switched stays
                    self._switches = with_switch(self._switches, switch, enabled=enabled)
            self._remembered = remembered
            self._dangers = set_dangers(self._switches)
            self._pins = {pin.key: pin for pin in self._state.pins()}
            self._flows = {flow.key: flow for flow in self._state.flows()}
            draft = Draft(before, self._tier)
            for key in before.families:
                draft.change(key, lambda tool: self._followed(tool, earlier, declared))
            self.snapshot = draft.finish()
        for key, family in before.families.items():
            for old, new in zip(family, self.snapshot.families.get(key, ()), strict=False):
                if new is not old:
                    told = ToolSwitched(tool_name=new.name, version=new.version, state=new.state.value)
                    self._bus.tell(told)

    def _followed(
        self,
        tool: RegisteredTool,
        earlier: Mapping[tuple[str, str], Pin],
        declared: Mapping[tuple[str, str], DeclaredFlow],
    ) -> RegisteredTool:
        """A tool according to the stored state; writes nothing, because another process may be writing."""
        key = pin_key(tool) if is_import(tool) else None
        before, now = earlier.get(key) if key else None, self._pins.get(key) if key else None
        if _moment(before) == _moment(now) and (not key or declared.get(key) == self._flows.get(key)):
            return self._restate(tool)
        tool = undeclared_tool(_own(tool))
        waited = before is not None and before.pending_hash == _arrived(tool).hash
        if tool.state is ToolState.QUARANTINED and not waited and tool.why != OTHER_FLOW:
            return tool  # for another reason than its pin, such as a file that nobody accepted
        if now is None or not _is_pinned(now, tool):
            return with_state(tool, ToolState.QUARANTINED, CHANGED)
        if why := self._locked.disagreement(now):
            return with_state(tool, ToolState.QUARANTINED, why)
        return self._as_pinned(tool, now)

    def _as_pinned(self, tool: RegisteredTool, pin: Pin) -> RegisteredTool:
        """An accepted import: with its version, what a person declared about its flow, and its state."""
        tool = _with_version(tool, pin.version)
        flow = self._flows.get(pin.key)
        if flow is not None:
            # Left out, what they call secret would be open; used, they could call a recipient content.
            if flow.definition_hash != pin.definition_hash:
                return with_state(tool, ToolState.QUARANTINED, OTHER_FLOW)
            try:
                tool = declared_tool(tool, flow.declared)
            except DefinitionError:
                return with_state(tool, ToolState.QUARANTINED, OTHER_FLOW)
        return self._in_its_state(tool)

    def pinned(self, tool: RegisteredTool) -> Pin | None:
        """The pin of an imported tool."""
        return self._pins.get(pin_key(tool)) if is_import(tool) else None

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of that name or alias, ignoring case, or of that `name@version`."""
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
            near = nearest_by_alias(base, {tool.name: tool.definition.aliases for tool in snapshot.all()})
            raise UnknownTool(name, near=[near] if near else [])
        return found

    def versions(self, name: str) -> tuple[RegisteredTool, ...]:
        """Every version of a tool, newest first; empty if there is none."""
        return self.snapshot.versions(name)

    def all(
        self,
        *,
        enabled: bool | None = None,
        category: Category | None = None,
        capability: str | None = None,
        kind: CallKind | None = CallKind.TOOL,
    ) -> list[RegisteredTool]:
        """Tools by category, then by name: all, or those that match the filters.

        `capability` is a kind, `fs.read`, or a kind with its scope, `fs.read:./docs`. Without `kind`, prompts
        and resources are there too.
        """
        found = self.snapshot.all() if kind is None else self.snapshot.of_kind(kind)
        if enabled is None and category is None and capability is None:
            return list(found)
        return [
            tool
            for tool in found
            if (enabled is None or tool.is_enabled is enabled)
            and (category is None or tool.definition.category is category)
            and (capability is None or _requires(tool, capability))
        ]

    def unmatched(self) -> dict[str, str]:
        """What the configuration disables although no tool has that name, with its position."""
        known = {
            key for family in self.snapshot.families.values() for t in family for key in _closing_keys(t)
        }
        return {name: why for name, why in self._closed.items() if name not in known}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def __len__(self) -> int:
        return len(self.snapshot.of_kind(CallKind.TOOL))

    def __bool__(self) -> bool:
        return True

    def _key(self, name: str) -> str:
        return fold(self.get(split_version(name)[0]).name)

    def _tried_imports(self, tools: Sequence[RegisteredTool]) -> list[RegisteredTool | ToolkeepError]:
        """The tools, or why one cannot be registered: a refused import must leave no pin."""
        if not any(map(is_import, tools)):
            return list(tools)
        trial = Draft(self.snapshot, self._tier)
        outcomes = [(tool, _tried(trial, tool)) for tool in tools]
        return [outcome if isinstance(outcome, ToolkeepError) else tool for tool, outcome in outcomes]

    def _settled(self, tools: Sequence[RegisteredTool], *, is_whole: bool) -> list[RegisteredTool]:
        """The tools in their initial states; new imports are pinned, or wait for approval."""
        sealed = {origin for origin, _ in self._pins} if is_whole else frozenset()
        arrived = [tool for tool in reversed(tools) if _arrives(tool)]
        sealed = sealed | self._locked.origins
        unknown = {key: tool for tool in arrived if (key := pin_key(tool)) not in self._pins}
        if unknown:
            new = [_pin(tool, waits=key[0] in sealed) for key, tool in unknown.items()]
            self._pins.update((pin.key, pin) for pin in self._state.pin(new))
        return [self._settle(tool) for tool in tools]

    def _settle(self, tool: RegisteredTool) -> RegisteredTool:
        """The tool in its initial state."""
        if tool.state is ToolState.QUARANTINED:
            return tool
        if is_import(tool):
            pin = self._pins[pin_key(tool)]
            met = _met(pin, tool)
            if met is not pin:
                self._pins[pin.key] = met
                self._state.wait_for(met)
            disagreement = self._locked.disagreement(met)
            if met.definition_hash != _arrived(tool).hash or disagreement:
                return with_state(tool, ToolState.QUARANTINED, _why_it_waits(met, tool, disagreement))
            return self._as_pinned(tool, met)
        return self._in_its_state(tool)

    def _in_its_state(self, tool: RegisteredTool) -> RegisteredTool:
        """The tool in the state that configuration, switches and its own definition give it."""
        name = fold(tool.name)
        tool = _with_danger(tool, self._dangers.get(name))
        both = f"{name}@{tool.version}", name
        for key in _closing_keys(tool):
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
            key = fold(tool.name)
            if enabled:
                self._refuse_if_held(tool, version)
            switch = f"{key}@{version}" if version else key
            if remember:
                self._state.put_switch(switch, enabled=enabled)
                self._remembered = with_switch(self._remembered, switch, enabled=enabled)
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
            which = f" {tool.name}" if is_import(tool) else ""
            hint = f"see what it is about and accept it: toolkeep accept{which}"
            raise NotAccepted(f"tool {tool.name!r} is quarantined: {tool.why}", hint=hint)
        keys = [key for key in _closing_keys(tool) if version or "@" not in key]
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
            if tool.state is ToolState.QUARANTINED and (pin := self.pinned(tool)):
                changed = ToolQuarantined(
                    tool_name=tool.name,
                    pinned_hash=pin.definition_hash,
                    definition_hash=_arrived(tool).hash,
                )
                self._bus.tell(changed)


def _tried(draft: Draft, tool: RegisteredTool) -> RegisteredTool | ToolkeepError:
    try:
        return draft.add(tool)
    except ToolkeepError as error:
        return error


def _closing_keys(tool: RegisteredTool) -> list[str]:
    """The keys by which a configuration may disable a tool: each name, with and without its version."""
    names = [fold(name) for name in (tool.name, *tool.definition.aliases)]
    return [*(f"{name}@{tool.version}" for name in names), *names]


def _switch_key(name: str) -> str:
    """`name` or `name@version` with the name folded; versions are case-sensitive."""
    base, at, version = name.partition("@")
    return f"{fold(base)}{at}{version}"


def _arrives(tool: RegisteredTool) -> bool:
    """Whether it is an import that its provider did not quarantine."""
    return is_import(tool) and tool.state is not ToolState.QUARANTINED


def _arrived(tool: RegisteredTool) -> ToolDefinition:
    """The definition that an import brought: what the host states about it in code is not pinned.

    A statement of the program itself, such as `tool(effects="none")(theirs)`, needs no person's consent.
    """
    return tool.runner.arrived if isinstance(tool.runner, ForeignTool) else tool.definition


def _own(tool: RegisteredTool) -> RegisteredTool:
    """The tool with the danger of its definition."""
    if tool.own is None:
        return tool
    return msgspec.structs.replace(tool, definition=tool.own, definition_hash=tool.own.hash, own=None)


def _with_danger(tool: RegisteredTool, danger: Danger | None) -> RegisteredTool:
    """The tool with the danger that a person set; without one, with its own."""
    if danger is None or (tool.own is None and tool.definition.danger is danger):
        return _own(tool)
    if tool.definition.danger is danger:
        return tool
    own = tool.own or tool.definition
    definition = own.replace(danger=danger)
    return msgspec.structs.replace(tool, definition=definition, definition_hash=definition.hash, own=own)


def _pin(tool: RegisteredTool, *, waits: bool) -> Pin:
    """The pin of a new import: trusted on first use, or waiting for approval."""
    origin, name = pin_key(tool)
    arrived = _arrived(tool)
    definition = definition_data(arrived)
    if waits or tool.suspicion:
        return Pin(
            origin=origin,
            name=name,
            definition_hash="",
            version=tool.version,
            definition={},
            pending_hash=arrived.hash,
            pending=definition,
        )
    return Pin(
        origin=origin,
        name=name,
        definition_hash=arrived.hash,
        version=tool.version,
        definition=definition,
    )


def _why_it_waits(pin: Pin, tool: RegisteredTool, disagreement: str) -> str:
    is_changed = pin.is_accepted and pin.definition_hash != _arrived(tool).hash
    reasons = [CHANGED] if is_changed else [disagreement] if disagreement else []
    if not reasons and not tool.suspicion:
        reasons = [NEW]
    return "; ".join([*reasons, *filter(None, [tool.suspicion])])


def _met(pin: Pin, tool: RegisteredTool) -> Pin:
    """The pin after the definition arrived again: the same, or with a change that waits for approval."""
    arrived = _arrived(tool)
    pending_hash = "" if arrived.hash == pin.definition_hash else arrived.hash
    if pin.pending_hash == pending_hash:
        return pin
    pending = definition_data(arrived) if pending_hash else None
    return msgspec.structs.replace(pin, pending_hash=pending_hash, pending=pending)


def _moment(pin: Pin | None) -> tuple[str, ...]:
    return () if pin is None else (pin.definition_hash, pin.pending_hash, pin.version)


def _is_pinned(pin: Pin, tool: RegisteredTool) -> bool:
    """Whether a pin is about this very definition, whichever version we assigned."""
    arrived = _arrived(tool)
    numbered = arrived.replace(version=pin.definition.get("version", tool.version))
    return pin.definition_hash in (arrived.hash, numbered.hash)


def _with_version(tool: RegisteredTool, version: str) -> RegisteredTool:
    if tool.version == version:
        return tool
    definition = tool.definition.replace(version=version)
    return msgspec.structs.replace(tool, definition=definition, definition_hash=definition.hash)


def _requires(tool: RegisteredTool, capability: str) -> bool:
    return any(capability in (str(held), held.kind) for held in tool.definition.capabilities)
