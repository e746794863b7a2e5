"""Defaults and enum values that their own schemas do not accept (DEF-5).

In comes the schema of a tool's arguments, references resolved, and what makes a check of a part of it; out
come the parts at fault. What a type alone decides is decided here: most defaults need no check of their own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from toolkeep.errors import Code, Problem
from toolkeep.pointers import look_up
from toolkeep.validation.closing import WORDS
from toolkeep.validation.keywords import every_schema


class Misfit(msgspec.Struct):
    """A default or enum value that its own schema does not accept."""

    part: dict[str, Any]
    problem: Problem


Check = Callable[[Any], bool]
"""Whether a value fits a part of a schema, and may be sent at all."""

MakeCheck = Callable[[dict[str, Any]], Check]


def misfitting_values(root: dict[str, Any], make_check: MakeCheck) -> Iterator[Misfit]:
    """Every default and enum that disagrees with what stands beside it."""
    checks: dict[int, Check] = {}
    for path, part in every_schema(root):
        if "default" in part and not _takes_default(part, root, make_check, checks):
            yield Misfit(part, _problem(path, "its default does not satisfy its own schema"))
        if "enum" in part and not _takes_options(part, make_check):
            yield Misfit({}, _problem(path, "an enum value does not satisfy its own schema"))


def _takes_default(
    part: dict[str, Any], root: dict[str, Any], make_check: MakeCheck, checks: dict[int, Check]
) -> bool:
    if "enum" not in part and _is_of_type(part["default"], part):
        return True
    decisive = _behind_reference(part, root)
    if id(decisive) not in checks:
        checks[id(decisive)] = make_check(decisive)
    return checks[id(decisive)](part["default"])


def _takes_options(part: dict[str, Any], make_check: MakeCheck) -> bool:
    if all(_is_of_type(option, part) for option in part["enum"]):
        return True
    rest = {keyword: value for keyword, value in part.items() if keyword != "enum"}
    return all(map(make_check(rest), part["enum"]))


def _is_of_type(value: Any, part: dict[str, Any]) -> bool:
    """Whether a part says no more than a type, apart from an enum, and the value surely is of it."""
    name = part.get("type")
    return isinstance(name, str) and type(value) is _TYPES.get(name) and part.keys() <= _SAYS_TYPE


_TYPES = {"string": str, "boolean": bool, "integer": int, "number": int}
_SAYS_TYPE = WORDS | {"type", "default", "enum"}


def _behind_reference(part: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The definition that a property only refers to, so that many that refer to it share one check."""
    if isinstance(part.get("$ref"), str) and part.keys() <= _ONLY_REFERS:
        target: dict[str, Any] = look_up(root, part["$ref"][1:])
        return target
    return part


_ONLY_REFERS = WORDS | {"$ref", "default"}


def _problem(path: str, message: str) -> Problem:
    return Problem(
        field=f"parameters{path}", code=Code.SCHEMA_REFUSED, message=message, mend="make the two agree"
    )
