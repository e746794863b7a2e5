"""Reduce a schema that cannot be checked here as it is, so that its operation can still be called.

Patterns that do not run in linear time are dropped, then words inside, then alternatives inside alternatives:
the server checks its request too. Each reduction is reported as a warning.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.validation.compile import compile_arguments
from toolkeep.validation.schema_keywords import LISTS, MAPS, SINGLE, Schema, all_schemas

_WORDS: Final = frozenset(("title", "description", "example", "examples", "externalDocs", "deprecated"))
_ALTERNATIVES: Final = frozenset(("anyOf", "oneOf"))
_NOT_LINEAR: Final = re.compile(r"\(\?<?[=!]|\\[1-9]")
"""Look-around and back-references."""
_SUSPICIOUS_CHARS: Final = DEFAULT_LIMITS.schema_bytes // 2
"""Of the text that Python prints, which is about as long as JSON."""
_DEPTHS: Final = ((3, 2), (2, 1), (1, 1), (1, 0), (0, 0))
"""Alternatives inside each other that are still checked, in the arguments and in each definition."""

Rewrite = Callable[[Schema], Any]


def reduced(parameters: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The parameters of an operation as they can be checked, and what was left out, if anything was."""
    if not _is_suspicious(parameters) or _is_checked(parameters):
        return parameters, ""
    for what, smaller in _smaller(parameters):
        if _is_checked(smaller):
            return smaller, what
    return parameters, ""


def _is_suspicious(parameters: dict[str, Any]) -> bool:
    """Whether it is worth the time to try; most operations are small."""
    alternatives = 0
    for part in all_schemas(parameters):
        alternatives += len(_ALTERNATIVES & part.keys())
        if alternatives > 1 or (isinstance(part.get("pattern"), str) and _NOT_LINEAR.search(part["pattern"])):
            return True
    return len(str(parameters)) > _SUSPICIOUS_CHARS


def _is_checked(parameters: dict[str, Any]) -> bool:
    return compile_arguments(parameters, by_hand=False, limits=DEFAULT_LIMITS).compiled is not None


def _smaller(parameters: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ever smaller schemas, and what each leaves out."""
    linear = _without_patterns(parameters)
    if linear != parameters:
        yield "patterns with look-around or back-references are not checked here", linear
    plain = {**_without_words(linear), "properties": _arguments(linear)}
    yield "descriptions inside its arguments are left out, since the schema is too large", plain
    for depth, in_definitions in _DEPTHS:
        defined = {
            name: _with_alternatives(one, in_definitions) for name, one in plain.get("$defs", {}).items()
        }
        cut = {**_with_alternatives(plain, depth), **({"$defs": defined} if defined else {})}
        yield "some alternatives are not checked here, since the check would be too costly", cut


def _arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """The arguments themselves, which keep their descriptions."""
    found: dict[str, Any] = {}
    for name, schema in parameters.get("properties", {}).items():
        said = schema.get("description") if isinstance(schema, dict) else None
        bare = _without_words(schema)
        found[name] = {**bare, "description": said} if said and isinstance(bare, dict) else bare
    return found


def _without_words(schema: Schema) -> Any:
    return _rewritten(schema, _without_words, _WORDS)


def _without_patterns(schema: Schema) -> Any:
    pattern = schema.get("pattern") if isinstance(schema, dict) else None
    is_linear = not isinstance(pattern, str) or _NOT_LINEAR.search(pattern) is None
    return _rewritten(schema, _without_patterns, frozenset() if is_linear else frozenset({"pattern"}))


def _with_alternatives(schema: Schema, depth: int) -> Any:
    """The schema without alternatives that stand inside `depth` others."""
    if not isinstance(schema, dict) or _ALTERNATIVES.isdisjoint(schema):
        return _rewritten(schema, lambda one: _with_alternatives(one, depth))
    if depth == 0:
        return {"description": schema["description"]} if "description" in schema else {}
    return _rewritten(schema, lambda one: _with_alternatives(one, depth - 1))


def _rewritten(schema: Schema, rewrite: Rewrite, dropped: frozenset[str] = frozenset()) -> Any:
    """A schema with the schemas inside rewritten, and without some keywords."""
    if not isinstance(schema, dict):
        return schema
    return {key: _inside(key, value, rewrite) for key, value in schema.items() if key not in dropped}


def _inside(keyword: str, value: Any, rewrite: Rewrite) -> Any:
    if keyword in MAPS and isinstance(value, dict):
        return {name: rewrite(one) for name, one in value.items()}
    if (keyword in LISTS or keyword == "items") and isinstance(value, list):
        return [rewrite(one) for one in value]
    return rewrite(value) if keyword in SINGLE else value
