"""Find defaults and enum values that violate their own schema (DEF-5).

In: the schema of a tool's arguments with references resolved, and a factory for validators of subschemas.
Out: the subschemas at fault. If the type alone decides, no validator is built: that covers most defaults.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from toolkeep.errors import Code, Problem
from toolkeep.json_values.pointers import look_up
from toolkeep.validation.close_objects import WORDS
from toolkeep.validation.schema_keywords import every_schema


class BadDefault(msgspec.Struct):
    """A default or enum value that its own schema does not accept."""

    part: dict[str, Any]
    problem: Problem


class Why(NamedTuple):
    """Why a value is at fault, and how to fix it."""

    message: str
    fix: str


DISAGREES = Why("does not satisfy its own schema", "make the two agree")
TOO_LARGE = Why("is too large: a call with it would take too much work to check", "make it smaller")

Check = Callable[[Any], Why | None]
"""Why a value violates a subschema or is too large to send; None where it is accepted."""

MakeCheck = Callable[[dict[str, Any]], Check]


def misfitting_values(root: dict[str, Any], make_check: MakeCheck) -> Iterator[BadDefault]:
    """Every default and enum that contradicts the keywords beside it."""
    checks: dict[int, Check] = {}
    for path, part in every_schema(root):
        if "default" in part and (why := _against_default(part, root, make_check, checks)):
            yield BadDefault(part, default_problem(path, why))
        if "enum" in part and (why := _against_options(part, make_check)):
            yield BadDefault({}, _problem(path, "an enum value", why))


def _against_default(
    part: dict[str, Any], root: dict[str, Any], make_check: MakeCheck, checks: dict[int, Check]
) -> Why | None:
    if "enum" not in part and _is_of_type(part["default"], part):
        return None
    decisive = _behind_reference(part, root)
    if id(decisive) not in checks:
        checks[id(decisive)] = make_check(decisive)
    return checks[id(decisive)](part["default"])


def _against_options(part: dict[str, Any], make_check: MakeCheck) -> Why | None:
    if all(_is_of_type(option, part) for option in part["enum"]):
        return None
    rest = {keyword: value for keyword, value in part.items() if keyword != "enum"}
    return next(filter(None, map(make_check(rest), part["enum"])), None)


def _is_of_type(value: Any, part: dict[str, Any]) -> bool:
    """Whether a subschema constrains the type only, apart from an enum, and the value certainly has that
    type."""
    name = part.get("type")
    return isinstance(name, str) and type(value) is _TYPES.get(name) and part.keys() <= _SAYS_TYPE


_TYPES = {"string": str, "boolean": bool, "integer": int, "number": int}
_SAYS_TYPE = WORDS | {"type", "default", "enum"}


def _behind_reference(part: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The definition behind a bare `$ref`, so that properties which share a definition share one check."""
    if isinstance(part.get("$ref"), str) and part.keys() <= _ONLY_REFERS:
        target: dict[str, Any] = look_up(root, part["$ref"][1:])
        return target
    return part


_ONLY_REFERS = WORDS | {"$ref", "default"}


def default_problem(path: str, why: Why) -> Problem:
    """The problem to report about the default of the schema at a path."""
    return _problem(path, "its default", why)


def _problem(path: str, what: str, why: Why) -> Problem:
    return Problem(
        field=f"parameters{path}",
        code=Code.SCHEMA_REFUSED,
        message=f"{what} {why.message}",
        fix=why.fix,
    )
