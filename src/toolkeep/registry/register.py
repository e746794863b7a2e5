"""Register tools: turn whatever is given into registered tools, or report why not.

What the host registers itself is all or nothing, and raises. What providers offer is registered one by one: a
broken tool or provider is skipped, counted and named, and the rest load (REG-4). One bad plugin must not take
away the user's other tools.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolkeep.authoring.code_reference import isolation_problems
from toolkeep.calls import RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.version_order import fold
from toolkeep.definitions.vocabulary import Tier
from toolkeep.errors import DefinitionError, DuplicateTool, ProviderFailed, ToolkeepError
from toolkeep.events import (
    Bus,
    CompilationSlow,
    ConstraintViolated,
    ProviderSkipped,
    RegistrationFailed,
    SettingUnmatched,
    StartUpBegan,
    StartUpEnded,
    ToolDefinitionRejected,
    ToolDefinitionValidatedEvent,
)
from toolkeep.limits import DEFAULT_LIMITS, EXECUTION_SECONDS, OUTPUT_BYTES, SLOW_COMPILATION_MS, Limits
from toolkeep.registry.admit import AdmissionContext, AdmittedBefore, admit
from toolkeep.registry.coerce import (
    Offer,
    coerce_tool,
    located,
    name_of,
    names_of,
    pass_through,
    suspicion_of,
)
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.tiers import check_custom, includes_built_in
from toolkeep.registry.tool_provider import CODE, CORE, OURS, PROJECT, ToolProvider

if TYPE_CHECKING:
    from toolkeep.validation.schema_engine import Formats


class Skipped(msgspec.Struct, frozen=True):
    """A tool, or a whole provider, that was skipped."""

    provider: str
    tool: str
    """Empty if the whole provider was skipped."""
    error: ToolkeepError


NOTICE: Final = (
    "Tools of this project are missing: its configuration waits to be accepted. "
    "Ask the user to run `toolkeep accept` in the project, and to restart this server."
)


_FILE_NOTICE: Final = (
    "Tools are missing: their code is new, changed or broken, and waits to be accepted. Ask the user to run "
    "{commands} in the project. If the tools do not appear then, the user restarts this client."
)


class StartUp(msgspec.Struct, frozen=True):
    """The result of loading the providers."""

    tool_count: int
    skipped: tuple[Skipped, ...] = ()
    elapsed_ms: float = 0.0
    held_back: tuple[str, ...] = ()
    """Configuration files that have no effect until a person accepts them."""
    why_held_back: tuple[str, ...] = ()
    """The reason of each, for the operator."""
    unmatched: tuple[tuple[str, str], ...] = ()
    """What the configuration disables although no tool has that name, with its position."""
    commands: tuple[str, ...] = ()
    """What accepts the files of tools that a command named, and that are left out until then."""

    @property
    def notice(self) -> str:
        """What agents are told while a configuration or a file of tools waits to be accepted.

        Of names it repeats only the harmless ones in commands: whoever wrote the project chose them, and a
        model would read them.
        """
        commands = " and ".join(f"`{command}`" for command in self.commands)
        files = _FILE_NOTICE.format(commands=commands) if commands else ""
        return " ".join(filter(None, (NOTICE if self.held_back else "", files)))


class Registrar:
    """Checks and compiles what is given, and adds it to the registry."""

    def __init__(
        self,
        registry: ToolRegistry,
        bus: Bus,
        *,
        services: Sequence[object] = (),
        limits: Limits = DEFAULT_LIMITS,
        shows_values: bool = True,
        tier: Tier = Tier.ENTERPRISE,
        formats: "Formats | None" = None,
        permissions: Iterable[str] = (),
        admitted: AdmittedBefore | None = None,
    ) -> None:
        self._registry = registry
        self._bus = bus
        self._services = tuple(services)
        self._limits = limits
        self._shows_values = shows_values
        self._tier = tier
        self._formats = formats or {}
        self._permissions = frozenset(permissions)
        # Formats are functions of the host: nobody knows whether they decide the same again.
        self._admitted = None if formats else admitted
        self._loaded: set[str] = set()
        self._missed: set[str] = set()
        """Names of skipped tools that do not belong to the project, which may not take them over."""

    def register(self, given: Sequence[Any]) -> None:
        """Register everything or nothing; raises the problems of the first that cannot be registered."""
        try:
            self._registry.add_all([self._admit(one, provider=CODE) for one in given])
        except ToolkeepError as error:
            self._skip(CODE, ", ".join(map(name_of, given)), error)
            raise

    def load(
        self,
        providers: Sequence[ToolProvider],
        *,
        own: Sequence[ToolProvider] = (),
        failed: Sequence[ProviderFailed] = (),
    ) -> StartUp:
        """Register what the providers offer, lowest priority number first.

        `own` are toolkeep's own, with reserved names; `failed` could not even be constructed.
        """
        began = time.perf_counter()
        failures = list(failed)
        known = [*_known(own, failures), *self._strangers(providers, failures)]
        ordered = sorted(known, key=lambda known: (known[1] == PROJECT, known[0]))
        self._bus.tell(StartUpBegan(providers=tuple(name for _, name, _ in ordered)))
        skipped = [self._skip_provider(error.provider, error) for error in failures]
        for _, name, provider in ordered:
            self._load_one(name, provider, skipped)
        if self._admitted is not None:
            self._admitted.save()
        elapsed_ms = round((time.perf_counter() - began) * 1000, 3)
        count = len(self._registry)
        self._bus.tell(StartUpEnded(tool_count=count, skipped_count=len(skipped), elapsed_ms=elapsed_ms))
        unmatched = tuple(self._registry.unmatched().items())
        for name, place in unmatched:
            self._bus.tell(SettingUnmatched(setting="disabled_tools", name=name, place=place))
        return StartUp(count, tuple(skipped), elapsed_ms, unmatched=unmatched)

    def _skip_provider(self, provider: str, error: ToolkeepError) -> Skipped:
        told = ProviderSkipped(provider=provider, error_code=error.code.value, error_message=error.message)
        self._bus.tell(told)
        return Skipped(provider, "", error)

    def _strangers(
        self, providers: Sequence[ToolProvider], failures: list[ProviderFailed]
    ) -> Iterator[tuple[int, str, ToolProvider]]:
        """Providers of others, each with a unique name."""
        for priority, name, provider in _known(providers, failures):
            if name.casefold() in OURS or name in self._loaded:
                whose = "toolkeep's own" if name.casefold() in OURS else "that of another provider"
                failures.append(ProviderFailed(name, f"has a name that is {whose}"))
                continue
            self._loaded.add(name)
            yield priority, name, provider

    def _load_one(self, provider_name: str, provider: ToolProvider, skipped: list[Skipped]) -> None:
        try:
            offered = list(provider.get_tool_definitions())
        except BaseException as error:  # noqa: BLE001 -- one failing provider never stops the others
            pass_through(error)
            failure = error if isinstance(error, ToolkeepError) else _broken(provider_name, error)
            skipped.append(self._skip_provider(provider_name, failure))
            return
        admitted: list[tuple[tuple[str, ...], RegisteredTool]] = []
        for given in offered:
            name, *aliases = names = names_of(given)
            try:
                self._refuse_missed(provider_name, names)
                admitted.append((names, self._admit(given, provider=provider_name)))
            except DefinitionError as error:
                skipped.append(self._skip(provider_name, name, located(given, error), aliases))
            except BaseException as error:  # noqa: BLE001 -- one broken tool never stops the others
                pass_through(error)
                failure = error if isinstance(error, ToolkeepError) else _broken(provider_name, error, name)
                skipped.append(self._skip(provider_name, name, failure, aliases))
        is_whole = getattr(provider, "lists_whole_set", False) is True
        outcomes = self._registry.add_each([tool for _, tool in admitted], is_whole=is_whole)
        for ((name, *aliases), _), outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, ToolkeepError):
                skipped.append(self._skip(provider_name, name, outcome, aliases))

    def _refuse_missed(self, provider: str, names: Iterable[str]) -> None:
        for name in names if provider == PROJECT else ():
            if fold(name) in self._missed:
                held_by = "a tool of yours that was skipped"
                raise DuplicateTool(name, held_by=held_by, hint="give it another name")

    def skip(self, provider: str, name: str, error: ToolkeepError) -> Skipped:
        """Note and publish that a tool was skipped."""
        return self._skip(provider, name, error)

    def _skip(self, provider: str, name: str, error: ToolkeepError, aliases: Iterable[str] = ()) -> Skipped:
        if provider != PROJECT:
            self._missed.update(map(fold, (name, *aliases)))
        failed = RegistrationFailed(
            tool_name=name, provider=provider, error_code=error.code.value, error_message=error.message
        )
        self._bus.tell(failed)
        return Skipped(provider, name, error)

    def admit(self, given: Any, *, provider: str) -> RegisteredTool:
        """The tool, checked and compiled but not registered; raises its problems."""
        return self._admit(given, provider=provider)

    def _admit(self, given: Any, *, provider: str) -> RegisteredTool:
        definition, runner = coerce_tool(given, self._services)
        offer = given if isinstance(given, Offer) else None
        if offer and offer.is_custom:
            check_custom(self._tier, definition)
        admitted = None if provider == CORE else self._admitted
        known = admitted.warnings_of(definition.hash) if admitted is not None else None
        circumstances = AdmissionContext(
            provider=provider,
            is_built_in=provider == CORE,
            is_custom=bool(offer and offer.is_custom),
            code_hash=offer.code_hash if offer else "",
            held_back=offer.held_back if offer else "",
            suspicion=suspicion_of(definition, offer.removed if offer else (), is_known=known is not None),
            problems=isolation_problems(given, definition, runner, self._services),
            warnings=offer.warnings if offer else (),
        )
        try:
            tool = admit(
                definition,
                runner=runner,
                limits=self._limits,
                shows_values=self._shows_values,
                formats=self._formats,
                permissions=self._permissions,
                circumstances=circumstances,
                known_warnings=known,
            )
        except DefinitionError as error:
            self._tell_rejected(definition, error)
            raise
        self._tell_validated(tool)
        if known is None:
            self._note_admitted(tool)
        return tool

    def _note_admitted(self, tool: RegisteredTool) -> None:
        """Its schemas are compiled on first use from the next start on, unless a call would wait for that."""
        if self._admitted is None or tool.is_built_in or tool.suspicion:
            return
        if tool.compile_ms <= SLOW_COMPILATION_MS:
            self._admitted.add(tool.definition_hash, tuple(tool.schemas.warnings))

    def _tell_validated(self, tool: RegisteredTool) -> None:
        if not self._bus.listeners:
            return
        validated = ToolDefinitionValidatedEvent(
            tool_name=tool.name,
            category=tool.definition.category.value,
            parameter_count=len(tool.definition.properties),
            validation_duration_s=tool.compile_ms / 1000,
            timestamp=datetime.now(UTC),
        )
        self._bus.tell(validated)
        if tool.compile_ms > SLOW_COMPILATION_MS:
            self._bus.tell(CompilationSlow(tool_name=tool.name, compilation_ms=tool.compile_ms))

    def _tell_rejected(self, definition: ToolDefinition, error: DefinitionError) -> None:
        name = name_of(definition)
        self._bus.tell(ToolDefinitionRejected(tool_name=name, errors=tuple(map(str, error.problems))))
        limits = {
            "max_execution_time": (definition.constraints.max_execution_time_s, EXECUTION_SECONDS[1]),
            "max_output_size": (definition.constraints.max_output_bytes, OUTPUT_BYTES[1]),
        }
        for constraint, (value, most) in limits.items():
            if value is not None and value > most:
                violated = ConstraintViolated(
                    tool_name=name, constraint=constraint, value=value, max_value=most
                )
                self._bus.tell(violated)


def tools_of_tier(tools: Iterable[Any], tier: Tier) -> list[Any]:
    """The built-in tools that the tier includes."""
    return [tool for tool in tools if includes_built_in(tier, name_of(tool))]


def _known(
    providers: Sequence[ToolProvider], failures: list[ProviderFailed]
) -> Iterator[tuple[int, str, ToolProvider]]:
    """Priority, name and provider of those that state them; the reason for the others."""
    for provider in providers:
        name = type(provider).__name__
        try:
            name = str(provider.name)
            yield int(provider.priority), name, provider
        except BaseException as error:  # noqa: BLE001 -- one failing provider never stops the others
            pass_through(error)
            failures.append(_broken(name, error))


def _broken(provider: str, error: BaseException, tool: str = "") -> ProviderFailed:
    """A bug in foreign code: its type is reported, its message may hold anything and is not."""
    what = f"could not make {tool!r}" if tool else "could not list its tools"
    return ProviderFailed(provider, f"{what}: {type(error).__name__}", hint="see the provider's own logs")
