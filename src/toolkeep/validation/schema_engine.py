"""The JSON Schema engine: options, dialects, and how a schema becomes a validator."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema_rs

from toolkeep.limits import PATTERN_BYTES, PATTERN_CACHE_BYTES
from toolkeep.validation.dialect import Dialect

Formats = Mapping[str, Callable[[str], bool]]
"""The host's own checks for `format`, by name."""

NO_FORMATS: Final[Formats] = {}

ENGINE_OPTIONS: Final[dict[str, Any]] = {
    # or the engine fetches a $ref to http: or file:, on behalf of whoever wrote the schema (SSRF)
    "offline": True,
    "validate_formats": True,
    "ignore_unknown_formats": True,
    # or the engine copies argument values into its messages; ours are built from the call, without secrets
    "mask": "value",
    "pattern_options": jsonschema_rs.RegexOptions(
        size_limit=PATTERN_BYTES, dfa_size_limit=PATTERN_CACHE_BYTES
    ),
}
"""The engine options of every schema.

Its regular expressions run in linear time, so no pattern backtracks.
"""

ENGINES: Final = {
    Dialect.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
    Dialect.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Dialect.DRAFT_07: jsonschema_rs.Draft201909Validator,  # after `upgrade`
}


def compile_schema(
    schema: dict[str, Any], dialect: Dialect, formats: Formats = NO_FORMATS
) -> jsonschema_rs.Validator:
    """The engine's validator; raises `Uncompilable` if it makes none, for whatever reason."""
    options = {**ENGINE_OPTIONS, "formats": dict(formats)} if formats else ENGINE_OPTIONS
    try:
        return ENGINES[dialect](schema, **options)
    except Exception as error:
        # some schemas make the engine panic; treat that as a refusal, never as valid
        raise Uncompilable from error


class Uncompilable(ValueError):
    """The engine cannot build a validator for a schema."""
