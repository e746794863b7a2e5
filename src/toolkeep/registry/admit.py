"""A definition becomes a registered tool: everything about it is checked and its schemas are compiled.

All problems come at once (DEF-12). By hand every lapse refuses; from elsewhere the rules for authors only
warn, and the warnings stay with the tool.
"""

from typing import Any

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.check import problems_of
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import Code, DefinitionError, DefinitionInvalid, Problem, SchemaBroken, SchemaRefused
from toolkeep.limits import DEFAULT_LIMITS, Limits
from toolkeep.validation.compiler import Compilation, compile_arguments, compile_output
from toolkeep.validation.secrecy import Display


def admit(
    definition: ToolDefinition,
    *,
    runner: Any = None,
    limits: Limits = DEFAULT_LIMITS,
    shows_values: bool = True,
) -> RegisteredTool:
    """The registered tool; raises the `DefinitionError` that its problems call for."""
    by_hand = definition.source.is_by_hand
    problems, warnings = problems_of(definition)
    display = Display(is_sensitive=definition.sensitive, shows_values=shows_values)
    arguments = compile_arguments(definition.parameters, by_hand=by_hand, limits=limits, display=display)
    output = Compilation(None, [], [])
    if definition.output_schema is not None:
        output = compile_output(definition.output_schema, by_hand=by_hand, limits=limits)
    problems += arguments.problems + output.problems
    if problems or arguments.compiled is None:
        raise _error(definition.name, problems)
    return RegisteredTool(
        definition=definition,
        arguments=arguments.compiled,
        output=output.compiled,
        runner=runner,
        warnings=(*warnings, *arguments.warnings, *output.warnings),
        definition_hash=definition.hash,
    )


def check_definition(
    definition: ToolDefinition, *, limits: Limits = DEFAULT_LIMITS
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """Everything that would refuse the definition, and what would only warn; nothing is registered."""
    try:
        return (), admit(definition, limits=limits).warnings
    except DefinitionError as error:
        return error.problems, ()


def _error(name: str, problems: list[Problem]) -> DefinitionError:
    codes = {problem.code for problem in problems}
    if Code.DEFINITION_INVALID in codes:
        return DefinitionInvalid(name, problems)
    if Code.SCHEMA_REFUSED in codes:
        return SchemaRefused(name, problems)
    return SchemaBroken(name, problems)
