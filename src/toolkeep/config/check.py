"""A configuration file against its schema, with the engine and the words that check tool calls."""

from functools import cache
from typing import Any

from toolkeep.calls import Violation
from toolkeep.config.schema import FILE_SCHEMA
from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.validation.compiler import CompiledSchema, compile_arguments


def violations(data: Any) -> tuple[Violation, ...]:
    """Everything that is wrong with the data of a file."""
    schema = _compiled()
    if schema.is_valid(data):
        return ()
    from toolkeep.validation.faults import find_faults
    from toolkeep.validation.report import violations_of

    return violations_of(schema, data, find_faults(schema, data, limit=schema.limits.errors))


@cache
def _compiled() -> CompiledSchema:
    compilation = compile_arguments(FILE_SCHEMA, by_hand=True, limits=DEFAULT_LIMITS)
    if compilation.compiled is None:
        raise RuntimeError(f"the schema of the configuration is broken: {compilation.problems}")
    return compilation.compiled
