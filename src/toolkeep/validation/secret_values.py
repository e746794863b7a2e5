"""Decide what may be shown of a call (VAL-6): nothing at, above or below a place marked secret.

A value above a secret is hidden too, because a model that gets the shape wrong puts the secret there. In: a
schema with marks. Out: redacted copies and yes or no for each place. It relies on the marks: a secret in a
parameter that is not marked is shown.
"""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from toolkeep.definitions.parameter_marks import is_secret
from toolkeep.json_values.pointers import look_up
from toolkeep.text.display import HIDDEN, counted, echo_name, type_name
from toolkeep.validation.close_objects import in_place
from toolkeep.validation.schema_keywords import Schema, all_schemas

log = logging.getLogger("toolkeep.validation")

Path = Sequence["str | int"]


class Spot:
    """The schemas that are, or may be, applied to the value at a place, each once."""

    __slots__ = ("holds_secret", "inside", "is_secret", "names", "parts", "prefix")

    def __init__(self, parts: list[dict[str, Any]]) -> None:
        self.parts = parts
        self.is_secret = any(map(is_secret, parts))
        self.holds_secret: bool | None = None
        """Whether something here or below is secret; None until computed."""
        self.names = frozenset(name for part in parts for name in part.get("properties", ()))
        self.prefix = max((len(listed) for part in parts for listed in _listed(part)), default=0)
        """The number of items with schemas of their own."""
        self.inside: dict[str | int | None, Spot] = {}
        """The spots inside that were looked up: one for all names that no schema lists, and one for all items
        after the last with its own schema. A call may hold a hundred thousand of either."""

    def key(self, step: "str | int") -> "str | int | None":
        """The cache key of a step."""
        if isinstance(step, int):
            return min(step, self.prefix)
        return step if step in self.names else None


class Locator:
    """Finds the schemas of a place, and caches them: a refusal or a record looks up each value of a call."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._known: dict[tuple[int, ...], Spot] = {}
        self._top: Spot | None = None

    def top(self) -> Spot:
        """The spot of the arguments as a whole."""
        top = self._top  # read once: another thread may clear the cache
        if top is None:
            top = self._top = self._spot([self.root])
        return top

    def inside(self, spot: Spot, step: "str | int") -> Spot:
        """The spot one step below another."""
        key = spot.key(step)
        found = spot.inside.get(key)
        if found is None:
            found = spot.inside[key] = self._spot(_inside(spot.parts, step))
        return found

    def way(self, path: Path) -> Iterator[Spot]:
        """The spots from the root to a place."""
        spot = self.top()
        yield spot
        for step in path:
            spot = self.inside(spot, step)
            yield spot

    def parts_at(self, path: Path) -> list[dict[str, Any]]:
        """Every schema that is, or may be, applied to the value at the path, each once."""
        *_, spot = self.way(path)
        return spot.parts

    def _spot(self, schemas: Iterable[Schema]) -> Spot:
        found = {id(part): part for schema in schemas for part in in_place(schema, self.root)}
        key = tuple(found)
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known, self._top = {}, None
            self._known[key] = Spot(list(found.values()))
        return self._known[key]

    def names_at(self, path: Path, given: Any = None) -> dict[str, Schema]:
        """The property names that an object at the path may have, in schema order; of the alternatives, those
        whose tags do not contradict the object `given`, if there are such."""
        names: dict[str, Schema] = {}
        for part in self._fitting(path, given):
            for name, schema in part.get("properties", {}).items():
                names.setdefault(name, schema)
        return names

    def required_at(self, path: Path, given: Any = None) -> set[str]:
        """The property names that an object at the path must have, be it in one alternative."""
        return {name for part in self._fitting(path, given) for name in part.get("required", ())}

    def name_patterns_at(self, path: Path) -> list[str]:
        """The patterns of further property names."""
        return [one for part in self.parts_at(path) for one in part.get("patternProperties", ())]

    def schemas_of_missing(self, path: Path, given: Any) -> list[Schema]:
        """The schemas of a property that is missing: one for each alternative that the object may be."""
        *above, name = path
        parts = [part for part in self._fitting(above, given) if name in part.get("properties", ())]
        meant = [part for part in parts if given.keys() <= part["properties"].keys()]
        return [part["properties"][name] for part in meant or parts]

    def _fitting(self, path: Path, given: Any) -> list[dict[str, Any]]:
        parts = self.parts_at(path)
        if len(parts) == 1 or not isinstance(given, dict):
            return parts
        fitting = [part for part in parts if not _is_other_tag(part, given)]
        return fitting if any("properties" in part for part in fitting) else parts


def _is_other_tag(part: dict[str, Any], given: dict[str, Any]) -> bool:
    """Whether a fixed value of an alternative, such as `"type": {"const": "circle"}`, differs from the one
    given."""
    for name, schema in part.get("properties", {}).items():
        if name in given and isinstance(schema, dict) and not {"const", "enum"}.isdisjoint(schema):
            allowed = schema.get("enum", [schema.get("const")])
            if not any(one.__class__ is given[name].__class__ and one == given[name] for one in allowed):
                return True
    return False


_REMEMBERED = 500
"""Spots of one schema. A hostile call can ask for combinations without end; the cache is then cleared."""


def _listed(part: dict[str, Any]) -> list[list[Schema]]:
    """The keywords that constrain items by position."""
    return [part[word] for word in ("prefixItems", "items") if isinstance(part.get(word), list)]


def _inside(parts: Iterable[dict[str, Any]], step: "str | int") -> Iterator[Schema]:
    for part in parts:
        yield from _by_position(part, step) if isinstance(step, int) else _by_name(part, step)


def _by_position(part: dict[str, Any], step: int) -> Iterator[Schema]:
    yield from (listed[step] for listed in _listed(part) if step < len(listed))
    for keyword in ("items", "contains", "additionalItems", "unevaluatedItems"):
        if isinstance(part.get(keyword), dict):
            yield part[keyword]


def _by_name(part: dict[str, Any], step: str) -> Iterator[Schema]:
    is_listed = step in part.get("properties", {})
    if is_listed:
        yield part["properties"][step]
    yield from part.get("patternProperties", {}).values()
    if is_listed:
        return
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if isinstance(part.get(keyword), dict):
            yield part[keyword]


REDACTED = "***"


class Display(NamedTuple):
    """What the tool and the keep allow to be shown at all."""

    is_sensitive: bool = False
    """The tool is marked sensitive."""
    shows_values: bool = True
    """The keep's `include_actual_values`."""


SHOW_ALL = Display()


class SecretFilter:
    """Decides for each place whether its value, pattern, enum or default may be shown."""

    def __init__(self, locator: Locator, display: Display) -> None:
        schema = locator.root
        self._schema = schema
        self._locator = locator
        self._has_secrets = any(map(is_secret, all_schemas(schema)))
        self.hides_all = display.is_sensitive
        self.has_secrets = self.hides_all or self._has_secrets
        """Whether anything of a call must be kept out of the log."""
        self._shows_values = display.shows_values

    def hides_schema(self, place: Path) -> bool:
        """Whether the pattern, enum or limits of a place are hidden."""
        if self.hides_all:
            return True
        if not self._has_secrets:
            return False
        return any(spot.is_secret for spot in self._locator.way(place))

    def hides_value(self, place: Path) -> bool:
        """Whether the value at a place is hidden."""
        if not self._shows_values or self.hides_schema(place):
            return True
        if not self._has_secrets:
            return False
        *_, spot = self._locator.way(place)
        return self._holds_secret(spot)

    def _holds_secret(self, spot: Spot) -> bool:
        if spot.holds_secret is None:
            spot.holds_secret = self._has_secret_below(spot.parts)
        return spot.holds_secret

    def _has_secret_below(self, parts: Iterable[dict[str, Any]]) -> bool:
        waiting: list[Schema] = list(parts)
        seen: set[int] = set()
        while waiting:
            for part in all_schemas(waiting.pop()):
                if is_secret(part):
                    return True
                if isinstance(part.get("$ref"), str) and id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(look_up(self._schema, part["$ref"][1:]))
        return False

    def replace(self, value: Any, stand_in: Callable[[Any], Any]) -> Any:
        """A copy of a valid value in which each secret, and each value that no schema covers, is replaced."""
        if self.hides_all:
            return stand_in(value)
        return self._replace(value, stand_in, self._locator.top()) if self._has_secrets else value

    def redact(self, value: Any) -> Any:
        """A copy for a debug log: secrets, and values that no schema covers beside them, are replaced."""
        if self.hides_all or not self._shows_values:
            return REDACTED
        if not self._has_secrets:
            return value
        return self._replace(value, lambda _: REDACTED, self._locator.top(), items=_LOGGED_ITEMS)

    def outline(self, value: Any) -> Any:
        """A copy of refused arguments of a tool with secrets, for what is kept beside the log (AUD-5).

        A model that gets the call wrong may put a secret anywhere: values that no schema covers, and those of
        another type than the schema's, are described by type and length alone.
        """
        return self._outline(value, self._locator.top())

    def _outline(self, value: Any, spot: Spot) -> Any:
        if spot.is_secret:
            return HIDDEN
        if not spot.parts or not _may_be(value, spot.parts):
            return described(value)
        inside = self._locator.inside
        if isinstance(value, dict):
            return {echo_name(name): self._outline(one, inside(spot, name)) for name, one in value.items()}
        if isinstance(value, list):
            return [self._outline(one, inside(spot, at)) for at, one in enumerate(value)]
        return described(value) if self.hides_all or self._holds_secret(spot) else value

    def _replace(
        self, value: Any, stand_in: Callable[[Any], Any], spot: Spot, *, items: int | None = None
    ) -> Any:
        """The copy, with at most `items` items of each array."""
        # No schema knows this place, so nothing says that it is not secret: hide it.
        if not spot.parts or spot.is_secret:
            return stand_in(value)
        inside = self._locator.inside
        if isinstance(value, dict):
            return {n: self._replace(v, stand_in, inside(spot, n), items=items) for n, v in value.items()}
        if isinstance(value, list):
            shown = enumerate(value[:items])
            return [self._replace(v, stand_in, inside(spot, i), items=items) for i, v in shown]
        return stand_in(value) if self._holds_secret(spot) else value


def described(value: Any) -> str:
    """A value by its type and length alone."""
    if isinstance(value, str):
        return f"(string, {counted(len(value), 'character')})"
    if isinstance(value, dict):
        return f"(object, {counted(len(value), 'property', 'properties')})"
    if isinstance(value, list):
        return f"(array, {counted(len(value), 'item')})"
    return f"({type_name(value)})"


def _may_be(value: Any, parts: Iterable[dict[str, Any]]) -> bool:
    """Whether a value has a type, and is one of the fixed values, that some schema of its place names."""
    kinds = {type_name(value)} | ({"number"} if isinstance(value, (int, float)) else set())
    typed, fixed = [], []
    for part in parts:
        if "type" in part:
            named = part["type"]
            typed.append(not kinds.isdisjoint([named] if isinstance(named, str) else named))
        if "enum" in part or "const" in part:
            fixed.append(value in part.get("enum", [part.get("const")]))
    return (not typed or any(typed)) and (not fixed or any(fixed))


_LOGGED_ITEMS = 100
"""Items of each array in a debug log; the line is cut anyway."""


def log_internal_error(what: str, error: Exception, *, tool: str = "") -> None:
    """Log a bug of toolkeep: what failed, the type of the error and where it was raised.

    Never the message of the exception: it may quote an argument, and so a secret (VAL-6).
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames[-5:]))
    log.error(what, extra={"tool_name": tool, "error_type": type(error).__name__, "where": where})
