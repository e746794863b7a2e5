"""Claude's strict mode: a subset of JSON Schema, and budgets for all tools of a request together.

Optional properties stay optional, so nothing is rewritten that would have to be undone. A tool outside the
subset is sent as it is, without the flag.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.json_values.pointers import look_up
from toolkeep.limits import CLAUDE_OPTIONAL_PARAMETERS, CLAUDE_STRICT_TOOLS, CLAUDE_UNION_PARAMETERS
from toolkeep.providers.composition import local_references
from toolkeep.providers.profiles import Profile
from toolkeep.providers.schema_adaptation import fit, plain
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.validation.schema_keywords import every_schema, types_of

_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)
_OTHER_REGEX: Final = re.compile(r"\(\?[=!<]|\\[1-9bBkG]")
KEYWORDS: Final = frozenset(
    (
        "type", "enum", "const", "anyOf", "$ref", "$defs", "default", "required", "properties", "items",
        "additionalProperties", "format", "minItems", "pattern", "description", "title",
    )
)  # fmt: skip


class StrictCost(msgspec.Struct, frozen=True):
    """What a strict tool takes of the budgets of a request."""

    optional: int
    unions: int


class StrictForm(msgspec.Struct, frozen=True):
    """A tool inside the subset."""

    schema: dict[str, Any]
    cost: StrictCost


def strict_form(definition: ToolDefinition, profile: Profile, losses: Losses) -> StrictForm:
    """The parameters inside the subset; raises `NotExpressible` if that is impossible."""
    schema = plain(public_schema(definition.parameters, is_sensitive=definition.sensitive))
    narrowed = _narrowed(fit(schema, _within(profile), losses), losses)
    _check(narrowed)
    return StrictForm(narrowed, _cost(narrowed))


def _within(profile: Profile) -> Profile:
    forbids = tuple(dict.fromkeys((*profile.root_forbids, "allOf", "anyOf", "oneOf")))
    return replace(profile, keywords=KEYWORDS, root_forbids=forbids, takes_booleans=False)


def _narrowed(schema: dict[str, Any], losses: Losses) -> dict[str, Any]:
    """Closed objects, and no keyword value outside the subset."""
    made = dict(schema)
    for path, part in every_schema(made):
        if "object" in (types_of(part) or ()) or "properties" in part:
            is_free = not part.get("properties") and "additionalProperties" not in part and path
            if is_free or part.get("additionalProperties", False) is not False:
                raise NotExpressible("an object of it takes any properties", "name them", pointer=path)
            part["additionalProperties"] = False
        _drop(part, "format", part.get("format") not in _FORMATS, path, losses)
        _drop(part, "minItems", part.get("minItems") not in (0, 1), path, losses)
        pattern = part.get("pattern")
        is_odd = not isinstance(pattern, str) or _OTHER_REGEX.search(pattern) is not None
        _drop(part, "pattern", is_odd, path, losses)
    return made


def _drop(part: dict[str, Any], keyword: str, is_odd: bool, path: str, losses: Losses) -> None:  # noqa: FBT001 -- private
    if keyword in part and is_odd:
        said = f"{keyword}: {part.pop(keyword)}"
        part["description"] = f"{part.get('description', '')} ({said})".lstrip()
        losses.note(path, keyword, "moved", "said in the description")


def _check(schema: dict[str, Any]) -> None:
    for path, part in every_schema(schema):
        if any(isinstance(value, (dict, list)) for value in part.get("enum", ())):
            raise NotExpressible("an enum of it holds objects or lists", "use plain values", pointer=path)
        if isinstance(part.get("const"), (dict, list)):
            raise NotExpressible("a const of it is an object or a list", "use a plain value", pointer=path)
    if _goes_round(schema):
        raise NotExpressible("it refers to itself", "bound how deep it goes")


def _goes_round(schema: dict[str, Any]) -> bool:
    """Whether a definition is recursive; each is visited once."""
    inner = {one: set(local_references(look_up(schema, one[1:]))) for one in set(local_references(schema))}
    while ends := [one for one, others in inner.items() if not others]:
        for one in ends:
            del inner[one]
        for others in inner.values():
            others.difference_update(ends)
    return bool(inner)


def _cost(schema: dict[str, Any]) -> StrictCost:
    optional = unions = 0
    for _, part in every_schema(schema):
        optional += len(part.get("properties", {})) - len(part.get("required", ()))
        unions += "anyOf" in part or isinstance(part.get("type"), list)
    return StrictCost(max(optional, 0), unions)


def packed(tools: Sequence[tuple[ToolDefinition, StrictCost]]) -> set[str]:
    """Which of several tools are strict: the most dangerous first, within the budgets."""
    chosen: set[str] = set()
    optional = unions = 0
    by_danger = sorted(tools, key=lambda one: -one[0].danger_level.rank)
    for definition, cost in by_danger:
        if len(chosen) == CLAUDE_STRICT_TOOLS:
            break
        if (
            optional + cost.optional <= CLAUDE_OPTIONAL_PARAMETERS
            and unions + cost.unions <= CLAUDE_UNION_PARAMETERS
        ):
            chosen.add(definition.name)
            optional += cost.optional
            unions += cost.unions
    return chosen
