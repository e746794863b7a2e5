"""The tools of a keep: register, list, find, enable, disable, accept, search."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import CallKind, Category, Danger, Tier
from toolkeep.errors import ProviderFailed
from toolkeep.events import Bus, Event, Listener, ProjectNotAccepted
from toolkeep.limits import Limits
from toolkeep.registry.register import Registrar, StartUp
from toolkeep.registry.registry import LockedSets, ToolRegistry
from toolkeep.registry.tool_provider import ToolProvider
from toolkeep.stores.registry_state import RegistryState

if TYPE_CHECKING:
    from toolkeep.config.settings import ConfigFile
    from toolkeep.registry.admit import AdmittedBefore
    from toolkeep.registry.coerce import Offer
    from toolkeep.registry.custom_definitions import DefinitionEditor, OfferOf
    from toolkeep.registry.pending_review import Review
    from toolkeep.registry.search import ToolSearch
    from toolkeep.stores.definitions import BrokenDefinition, DefinitionStore, StoredDefinition
    from toolkeep.validation.schema_engine import Formats


class ToolCatalog:
    """The half of a keep that holds tools; the other half makes calls."""

    def __init__(
        self,
        *,
        bus: Bus,
        services: Sequence[object],
        limits: Limits,
        include_actual_values: bool,
        tier: Tier,
        formats: "Formats | None",
        closed: Mapping[str, str] | None,
        state: RegistryState | None,
        locked: LockedSets | None,
        store: "DefinitionStore | None",
        offer_of: "OfferOf | None",
        allows_definitions: bool,
        permissions: Iterable[str] = (),
        admitted: "AdmittedBefore | None" = None,
    ) -> None:
        self._bus = bus
        self._tier = tier
        self._store = store
        self._offer_of = offer_of
        self._allows_definitions = allows_definitions
        self._made_editor: DefinitionEditor | None = None
        self._making_editor = threading.Lock()
        self._registry = ToolRegistry(bus=bus, state=state, tier=tier, closed=closed, locked=locked)
        self._registrar = Registrar(
            self._registry,
            bus,
            services=services,
            limits=limits,
            shows_values=include_actual_values,
            tier=tier,
            formats=formats,
            permissions=permissions,
            admitted=admitted,
        )
        self._search: ToolSearch | None = None
        self._ready = threading.Event()
        self._ready.set()
        self.start_up = StartUp(0)
        """The result of loading the providers: how many tools, and everything that was skipped."""

    def subscribe(self, listener: Listener, *, timed: bool = False) -> Callable[[], None]:
        """Subscribe to the events of `toolkeep.events`; returns a function to unsubscribe.

        Successful calls only if `timed`.
        """
        return self._bus.subscribe(listener, timed=timed)

    def publish(self, event: Event) -> None:
        """Publish an event of what happens around the keep, such as in its server."""
        self._bus.tell(event)

    def register(self, *tools: Any) -> None:
        """Add tools: functions made with `@tool` or plain typed ones, agent-tool classes, definitions, data.

        Tools of LangChain, pydantic-ai and FastMCP are taken as they are.

        All or none: raises a `DefinitionError` with everything that is wrong, or `DuplicateTool`.
        """
        self._registrar.register(tools)

    def load(
        self,
        *providers: ToolProvider,
        own: Sequence[ToolProvider] = (),
        failed: Sequence[ProviderFailed] = (),
    ) -> StartUp:
        """Add what providers offer; broken ones are skipped and named in the result, and the rest load.

        `own` and `failed` are for the code that assembles a keep: toolkeep's own providers, and why others
        could not be constructed.
        """
        self._ready.clear()
        try:
            loaded = self._registrar.load(providers, own=own, failed=failed)
        finally:
            self._ready.set()
        self.start_up = StartUp(
            loaded.tool_count,
            (*self.start_up.skipped, *loaded.skipped),
            self.start_up.elapsed_ms + loaded.elapsed_ms,
            self.start_up.held_back,
            self.start_up.why_held_back,
            loaded.unmatched,
            self.start_up.commands,
        )
        return loaded

    def hold_back(self, *files: "ConfigFile") -> None:
        """Record configuration files that have no effect until a person accepts them."""
        for file in files:
            told = ProjectNotAccepted(path=file.path, file_hash=file.seal, effect_count=len(file.effects))
            self._bus.tell(told)
        self.start_up = msgspec.structs.replace(
            self.start_up,
            held_back=tuple(file.path for file in files),
            why_held_back=tuple(file.why_held_back for file in files),
        )

    @property
    def tier(self) -> Tier:
        """What the license includes."""
        return self._tier

    @property
    def allows_definitions(self) -> bool:
        """Whether custom definitions can be created and changed at run time."""
        return self._allows_definitions

    @property
    def is_ready(self) -> bool:
        """Whether every provider was asked for its tools."""
        return self._ready.is_set()

    def wait_until_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until then, in another thread than the one that loads."""
        return self._ready.wait(timeout_s)

    def unregister(self, name: str) -> None:
        """Remove a tool with all of its versions, or one `name@version`; built-in tools stay."""
        self._registry.remove(name)

    def enable(self, name: str, *, remember: bool = False) -> None:
        """Enable a tool, or one `name@version`; `remember` makes it persistent."""
        self._registry.enable(name, remember=remember)

    def disable(self, name: str, *, remember: bool = False) -> None:
        """Disable a tool, or one `name@version`; `remember` makes it persistent."""
        self._registry.disable(name, remember=remember)

    def accept(self, name: str, *, definition_hash: str) -> RegisteredTool:
        """Accept the changed definition of a quarantined tool, the one with this hash: what the person
        reviewed.

        Without the hash, a definition that changed once more after the review would be accepted unseen. The
        version is bumped by what changed.
        """
        return self._registry.accept(name, definition_hash)

    def set_danger(self, name: str, danger: Danger | str | None) -> RegisteredTool:
        """Use another danger than that of a tool's definition, in all processes; None returns to it.

        The definition's hash changes with it, so approvals that were remembered end.
        """
        return self._registry.set_danger(name, None if danger is None else Danger.read(danger))

    def review(self, name: str) -> "Review | None":
        """What `accept` would put in use: how the definition of a quarantined import differs; None if none
        awaits acceptance."""
        from toolkeep.registry.pending_review import review_of

        pin = self._registry.pending(self._registry.get(name))
        return None if pin is None else review_of(pin)

    def reject(self, name: str, *, definition_hash: str) -> None:
        """Keep the changed definition of a quarantined tool out, the one with this hash.

        It stays quarantined and no longer needs attention. `accept` still accepts it; another change is
        reviewed anew.
        """
        self._registry.reject(name, definition_hash)

    def is_rejected(self, name: str) -> bool:
        """Whether a person keeps out the definition of a quarantined tool that awaits acceptance."""
        return self._registry.is_rejected(self._registry.get(name))

    def declare_flow(
        self, name: str, declared: Mapping[str, Any] | None, *, by: str = "local"
    ) -> RegisteredTool:
        """Use these roles and labels of an imported tool, as `upstreams.NAME.flow` would say them.

        They replace those of its definition, and are persistent; None takes them back. `by` is the person
        who promises them. If the upstream changes the tool, they no longer count, and it is quarantined.
        """
        return self._registry.declare_flow(name, declared, by=by)

    def declared_flow(self, name: str) -> Mapping[str, Any] | None:
        """What `declare_flow` was given for a tool, also if it counts for an earlier definition only."""
        flow = self._registry.declared_flow(self._registry.get(name))
        return None if flow is None else flow.declared

    # --- stored definitions ----------------------------------------------------------------------

    @property
    def editor(self) -> "DefinitionEditor":
        """Changes stored definitions; created on first use."""
        with self._making_editor:
            if self._made_editor is None:
                self._made_editor = self._new_editor()
            return self._made_editor

    def _new_editor(self) -> "DefinitionEditor":
        from toolkeep.registry.custom_definitions import DefinitionEditor
        from toolkeep.stores.definitions import MemoryStore

        return DefinitionEditor(
            self._registry,
            self._registrar,
            self._bus,
            self._store or MemoryStore(),
            offer_of=self._offer_of or _offer,
            tier=self._tier,
            allows_definitions=self._allows_definitions,
        )

    def close_store(self) -> None:
        """Close the store's connections; what was read stays usable, and a change reconnects."""
        if self._store is not None:
            self._store.close()

    def create_definition(
        self, data: Mapping[str, Any], *, by: str = "local", may_run: bool = False
    ) -> "StoredDefinition":
        """Store a custom definition and register it; data as in a configuration file.

        `by` is the author of the change. `run`, which names what runs the tool, needs `may_run`: it decides
        what is executed on this machine. Blocks while the store works.
        """
        return self.editor.create(data, by=by, may_run=may_run)

    def check_definition(self, data: Mapping[str, Any], *, may_run: bool = False) -> None:
        """Raise what `create_definition` would, or `update_definition` of a stored one; changes nothing."""
        self.editor.check(data, may_run=may_run)

    def update_definition(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        by: str = "local",
        revision: int | None = None,
        may_run: bool = False,
    ) -> "StoredDefinition":
        """Change fields of a stored definition; null resets one to its default.

        Anything but `enabled` needs a higher `version`. With `revision`, the update is refused if the
        definition changed since that revision. A tool with a runner is changed only with `may_run`.
        """
        return self.editor.update(name, changes, by=by, revision=revision, may_run=may_run)

    def delete_definition(
        self, name: str, *, by: str = "local", revision: int | None = None
    ) -> "StoredDefinition":
        """Delete a stored definition with all of its versions; returns the newest."""
        return self.editor.delete(name, by=by, revision=revision)

    def definition_versions(self, name: str) -> "tuple[StoredDefinition, ...]":
        """Every stored version of a tool, newest first; raises `UnknownTool` if none is stored."""
        return self.editor.versions(name)

    def tools(
        self,
        *,
        enabled: bool | None = None,
        category: Category | str | None = None,
        capability: str | None = None,
        kind: str | None = CallKind.TOOL,
    ) -> list[RegisteredTool]:
        """Every tool, or those that match, by category, then by name; of each the newest enabled version.

        `kind` is `prompt` or `resource` for what upstream MCP servers pass on; None for all.
        """
        wanted = None if category is None else Category.read(category)
        of_kind = None if kind is None else CallKind.read(kind)
        return self._registry.all(enabled=enabled, category=wanted, capability=capability, kind=of_kind)

    def registered_names(self) -> list[str]:
        """Every name and alias, also of prompts and resources: what no other one can have."""
        return [
            name for tool in self._registry.all(kind=None) for name in (tool.name, *tool.definition.aliases)
        ]

    def search(self, text: str, *, limit: int = 5) -> list[RegisteredTool]:
        """The enabled tools that match a description best."""
        from toolkeep.registry.search import ToolSearch

        self._search = self._search or ToolSearch()
        return self._search.find(text, self._registry.snapshot.answering, limit=limit)

    def get(self, name: str) -> RegisteredTool:
        """The tool of that name or alias, ignoring case, or of `name@version`; raises `UnknownTool`."""
        return self._registry.get(name)

    def try_get(self, name: str) -> RegisteredTool | None:
        """As `get`, or None."""
        return self._registry.find(name)

    def versions(self, name: str) -> tuple[RegisteredTool, ...]:
        """Every version of a tool, newest first."""
        return self._registry.versions(name)

    def __contains__(self, name: object) -> bool:
        return name in self._registry

    def __len__(self) -> int:
        return len(self._registry)

    def __bool__(self) -> bool:
        """A keep without tools is true."""
        return True


def _offer(held: "StoredDefinition | BrokenDefinition") -> "Offer":
    """A stored definition in a keep that has nothing to run it with."""
    from toolkeep.registry.coerce import Offer
    from toolkeep.stores.definitions import StoredDefinition

    if isinstance(held, StoredDefinition) and held.run is None:
        return Offer(tool=held.definition, name=held.name, is_custom=True)
    raise TypeError("this keep was not told how stored tools are run")
