"""THE ORDER: takes a call through the stages. Today: get, then validate."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.definitions.vocabulary import Category, Tier
from toolkeep.errors import ArgumentsRefused, Code, ProviderFailed
from toolkeep.events import Bus, Listener, ProjectNotAccepted, ToolUnanswered, ValidationPassed
from toolkeep.limits import DEFAULT_LIMITS, Limits
from toolkeep.registry.register import Registrar, StartUp, ToolProvider
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.state import RegistryState
from toolkeep.registry.unanswered import closed_tool, unknown_tool
from toolkeep.telemetry.logs import LogListener
from toolkeep.validation.compiler import Formats
from toolkeep.validation.memory import RefusalMemory
from toolkeep.validation.validate import Arguments, validate

if TYPE_CHECKING:
    from toolkeep.config.settings import ConfigFile
    from toolkeep.registry.search import ToolSearch

LOCAL_AGENT = "local"


class Keep:
    """Keeps an agent's tools. Made by `open_keep`."""

    def __init__(
        self,
        *,
        services: Sequence[object] = (),
        limits: Limits = DEFAULT_LIMITS,
        include_actual_values: bool = True,
        tier: Tier = Tier.ENTERPRISE,
        formats: Formats | None = None,
        closed: Mapping[str, str] | None = None,
        state: RegistryState | None = None,
        logs: LogListener | None = None,
    ) -> None:
        self._bus = Bus()
        logs = logs or LogListener()
        self._bus.subscribe(logs, timed=logs.is_timed)
        self._registry = ToolRegistry(bus=self._bus, state=state, tier=tier, closed=closed)
        self._registrar = Registrar(
            self._registry,
            self._bus,
            services=services,
            limits=limits,
            shows_values=include_actual_values,
            tier=tier,
            formats=formats,
        )
        self._refusals = RefusalMemory(bus=self._bus)
        self._search: ToolSearch | None = None
        self._ready = threading.Event()
        self._ready.set()
        self.start_up = StartUp(0)
        """What came of loading the providers: how many tools, and everything that was skipped."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything that the keep holds open."""

    def subscribe(self, listener: Listener, *, timed: bool = False) -> Callable[[], None]:
        """Hear of every event of `toolkeep.events`; returns how to stop. Calls that pass only if `timed`."""
        return self._bus.subscribe(listener, timed=timed)

    # --- which tools exist -----------------------------------------------------------------------

    def register(self, *tools: Any) -> None:
        """Add tools: functions made with `@tool` or plain typed ones, agent-tool classes, definitions, data.

        All or none: raises a `DefinitionError` with everything that is wrong, or `DuplicateTool`.
        """
        self._registrar.register(tools)

    def load(self, *providers: ToolProvider, failed: Sequence[ProviderFailed] = ()) -> StartUp:
        """Add what providers offer; what is broken is skipped, named in the answer, and the rest loads.

        `failed` says of providers that could not even be made why.
        """
        self._ready.clear()
        try:
            loaded = self._registrar.load(providers, failed)
        finally:
            self._ready.set()
        self.start_up = StartUp(
            loaded.tool_count,
            (*self.start_up.skipped, *loaded.skipped),
            self.start_up.elapsed_ms + loaded.elapsed_ms,
            self.start_up.held_back,
        )
        return loaded

    def hold_back(self, *files: "ConfigFile") -> None:
        """Note configuration files that do not count until a person accepts them."""
        for file in files:
            told = ProjectNotAccepted(
                path=file.path, file_hash=file.file_hash, effect_count=len(file.effects)
            )
            self._bus.tell(told)
        paths = tuple(file.path for file in files)
        self.start_up = msgspec.structs.replace(self.start_up, held_back=paths)

    @property
    def is_ready(self) -> bool:
        """Whether every provider was asked for its tools."""
        return self._ready.is_set()

    def wait_until_ready(self, timeout_s: float | None = None) -> bool:
        """Wait for that, from another thread than the one that loads."""
        return self._ready.wait(timeout_s)

    def unregister(self, name: str) -> None:
        """Take a tool out, with all of its versions, or one `name@version`; a built-in one stays."""
        self._registry.remove(name)

    def enable(self, name: str, *, remember: bool = False) -> None:
        """Let a tool, or one `name@version`, answer; `remember` for the next start too."""
        self._registry.enable(name, remember=remember)

    def disable(self, name: str, *, remember: bool = False) -> None:
        """Keep a tool, or one `name@version`, from answering; `remember` for the next start too."""
        self._registry.disable(name, remember=remember)

    def accept(self, name: str) -> RegisteredTool:
        """Take the changed definition of a quarantined tool; its version moves by what changed."""
        return self._registry.accept(name)

    def tools(
        self,
        *,
        enabled: bool | None = None,
        category: Category | str | None = None,
        capability: str | None = None,
    ) -> list[RegisteredTool]:
        """Every tool, or those that fit, by category, then by name; of each the newest enabled version."""
        wanted = None if category is None else Category.read(category)
        return self._registry.all(enabled=enabled, category=wanted, capability=capability)

    def search(self, text: str, *, limit: int = 5) -> list[RegisteredTool]:
        """The enabled tools that fit a description in words best."""
        from toolkeep.registry.search import ToolSearch

        self._search = self._search or ToolSearch()
        return self._search.find(text, self._registry.snapshot.answering, limit=limit)

    def get(self, name: str) -> RegisteredTool:
        """The tool of that name or alias, in any case, or of `name@version`; raises `UnknownTool`."""
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
        """A keep without tools is a keep."""
        return True

    # --- does a call fit -------------------------------------------------------------------------

    def try_validate_arguments(
        self,
        name: str,
        arguments: Arguments,
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        correlation_id: str = "",
    ) -> CheckedCall | Refusal:
        """Check a call without running it; never raises. Arguments are JSON text, bytes, or a dict."""
        if type(name) is not str:
            name = str(name)
        began = time.perf_counter() if self._bus.is_timed else 0.0
        registered = self._registry.snapshot.answering.get(name) or self._answering(name, correlation_id)
        if isinstance(registered, Refusal):
            return registered
        check = validate(registered, arguments, self._refusals, agent, conversation, correlation_id)
        if began and check.success:
            elapsed_ms = (time.perf_counter() - began) * 1000
            passed = ValidationPassed(tool_name=check.tool, agent=agent, validation_ms=elapsed_ms)
            self._bus.tell_passed(passed)
        return check

    def _answering(self, name: str, correlation_id: str) -> RegisteredTool | Refusal:
        """The tool behind another spelling, an alias or a version, or why none answers."""
        snapshot = self._registry.snapshot
        found = snapshot.find(name)
        if found is not None and found.is_enabled:
            return found
        if found is not None:
            refusal = closed_tool(found, correlation_id=correlation_id)
        else:
            refusal = unknown_tool(name, snapshot.answering, correlation_id=correlation_id)
        told = "unknown" if refusal.code is Code.UNKNOWN_TOOL else refusal.tool
        unanswered = ToolUnanswered(
            tool_name=told, error_code=refusal.code.value, correlation_id=refusal.correlation_id
        )
        self._bus.tell(unanswered)
        return refusal

    def validate_arguments(
        self,
        name: str,
        arguments: Arguments,
        *,
        agent: str = LOCAL_AGENT,
        conversation: str = "",
        correlation_id: str = "",
    ) -> dict[str, Any]:
        """The parsed arguments with defaults; raises `ArgumentsRefused`, which holds the refusal."""
        check = self.try_validate_arguments(
            name, arguments, agent=agent, conversation=conversation, correlation_id=correlation_id
        )
        if isinstance(check, Refusal):
            raise ArgumentsRefused(check)
        return check.arguments
