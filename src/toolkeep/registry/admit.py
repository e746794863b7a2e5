"""Turn a definition into a registered tool: check every rule and compile its schemas.

All problems are reported at once (DEF-12). For a definition written by hand every problem refuses; for an
import the author rules only warn, and the warnings stay with the tool.
"""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.definition_rules import problems_of
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.errors import Code, DefinitionError, DefinitionInvalid, Problem, SchemaBroken, SchemaRefused
from toolkeep.limits import DEFAULT_LIMITS, Limits
from toolkeep.policy.policy_settings import KNOWN_PERMISSIONS
from toolkeep.text.display import echo_name
from toolkeep.text.nearest import nearest_name
from toolkeep.validation.tool_schemas import ToolSchemas

if TYPE_CHECKING:
    from toolkeep.validation.compile import Compilation
    from toolkeep.validation.schema_engine import Formats


class AdmissionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The provider of a tool, and what follows from it."""

    provider: str = "code"
    is_built_in: bool = False
    is_custom: bool = False
    code_hash: str = ""
    """Hash of its code, where a file of tools brings it."""
    held_back: str = ""
    """Why it is quarantined, if it is."""
    suspicion: str = ""
    """What a person should review first in the text of an import."""
    problems: tuple[Problem, ...] = ()
    """Problems of the provider, whatever the definition says."""
    warnings: tuple[Problem, ...] = ()


BY_CODE = AdmissionContext()


class AdmittedBefore(Protocol):
    """The definitions that this program admitted before under the same limits, by definition hash."""

    def warnings_of(self, definition_hash: str) -> tuple[Problem, ...] | None:
        """The warnings about the schemas of such a definition; None if it is unknown."""

    def add(self, definition_hash: str, warnings: tuple[Problem, ...]) -> None:
        """Note that a definition was admitted, and that its text is not suspicious."""

    def save(self) -> None:
        """Write what was added."""


def admit(
    definition: ToolDefinition,
    *,
    runner: Any = None,
    limits: Limits = DEFAULT_LIMITS,
    shows_values: bool = True,
    formats: "Formats | None" = None,
    permissions: Iterable[str] = (),
    circumstances: AdmissionContext = BY_CODE,
    known_warnings: tuple[Problem, ...] | None = None,
) -> RegisteredTool:
    """The registered tool; raises the `DefinitionError` that its problems call for.

    `permissions` are the names that exist beside those of POL-3; `known_warnings` are those of schemas that
    were compiled before, which then are compiled on first use.
    """
    began = time.thread_time()  # not the clock: a busy machine makes no schema slow
    by_hand = definition.source.is_by_hand
    problems, warnings = problems_of(definition)
    # A quarantined tool may name permissions that exist once its file is accepted.
    is_refused = by_hand and not circumstances.held_back
    (problems if is_refused else warnings).extend(_unknown_permissions(definition, permissions))
    compile_both = partial(_compile, definition, limits, formats or {}, shows_values=shows_values)
    schemas = ToolSchemas(definition.name, definition.parameters, compile_both)
    # The schemas of built-in tools are constants, which the default limits admit (a test checks). A process
    # that only lists its tools needs neither them nor the engine.
    if known_warnings is not None:
        warnings += known_warnings
    elif not (circumstances.is_built_in and limits == DEFAULT_LIMITS):
        problems += schemas.problems
        warnings += schemas.warnings
    problems += circumstances.problems
    if problems:
        raise _error(definition.name, problems)
    effects = definition.effects
    return RegisteredTool(
        definition=definition,
        schemas=schemas,
        runner=runner,
        warnings=(*circumstances.warnings, *warnings),
        definition_hash=definition.hash,
        code_hash=circumstances.code_hash,
        provider=circumstances.provider,
        is_built_in=circumstances.is_built_in,
        is_custom=circumstances.is_custom,
        state=ToolState.QUARANTINED if circumstances.held_back else ToolState.ENABLED,
        why=circumstances.held_back,
        suspicion=circumstances.suspicion,
        compile_ms=(time.thread_time() - began) * 1000,
        may_write=effects is None or definition.has_write_effects,
        effect_names=None if effects is None else tuple(effect.value for effect in effects),
        capability_names=tuple(map(str, definition.capabilities)),
    )


def _compile(
    definition: ToolDefinition, limits: Limits, formats: "Formats", *, shows_values: bool
) -> "tuple[Compilation, Compilation]":
    """Compile the schemas of the parameters and of the output."""
    from toolkeep.validation.compile import Compilation, compile_arguments, compile_output
    from toolkeep.validation.secret_values import Display

    by_hand = definition.source.is_by_hand
    display = Display(is_sensitive=definition.sensitive, shows_values=shows_values)
    arguments = compile_arguments(
        definition.parameters, by_hand=by_hand, limits=limits, display=display, formats=formats
    )
    if definition.output_schema is None:
        return arguments, Compilation(None, [], [])
    return arguments, compile_output(
        definition.output_schema, by_hand=by_hand, limits=limits, formats=formats
    )


def _unknown_permissions(definition: ToolDefinition, added: Iterable[str]) -> Iterator[Problem]:
    """Permissions that nobody can hold: the tool could never be called (POL-3)."""
    if not definition.required_permissions:
        return
    known = {*KNOWN_PERMISSIONS, *added}
    for index, name in enumerate(definition.required_permissions):
        if name not in known:
            meant = nearest_name(name, sorted(known))
            yield Problem(
                field=f"required_permissions/{index}",
                code=Code.DEFINITION_INVALID,
                message=f"there is no permission '{echo_name(name)}'",
                fix=f"did you mean '{meant}'?"
                if meant
                else "name it under `permissions` of the configuration",
            )


def check_definition(
    definition: ToolDefinition, *, limits: Limits = DEFAULT_LIMITS, permissions: Iterable[str] = ()
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """The problems that would refuse the definition, and the warnings; registers nothing."""
    try:
        return (), admit(definition, limits=limits, permissions=permissions).warnings
    except DefinitionError as error:
        return error.problems, ()


def _error(name: str, problems: list[Problem]) -> DefinitionError:
    codes = {problem.code for problem in problems}
    if Code.DEFINITION_INVALID in codes:
        return DefinitionInvalid(name, problems)
    if Code.SCHEMA_REFUSED in codes:
        return SchemaRefused(name, problems)
    return SchemaBroken(name, problems)
