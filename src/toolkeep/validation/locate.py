"""Which parts of a schema speak about a place in the arguments. Used to explain, never to decide."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from toolkeep.definitions.parameter import is_secret
from toolkeep.validation.closing import in_place
from toolkeep.validation.keywords import Schema

Path = Sequence["str | int"]


class Spot:
    """The schemas that are, or could be, applied to the value at some places of a call, each once."""

    __slots__ = ("holds_secret", "inside", "is_secret", "names", "parts", "prefix")

    def __init__(self, parts: list[dict[str, Any]]) -> None:
        self.parts = parts
        self.is_secret = any(map(is_secret, parts))
        self.holds_secret: bool | None = None
        """Whether something is secret here or below; None until somebody asked."""
        self.names = frozenset(name for part in parts for name in part.get("properties", ()))
        self.prefix = max((len(listed) for part in parts for listed in _listed(part)), default=0)
        """How many items have schemas of their own."""
        self.inside: dict[str | int | None, Spot] = {}
        """The spots inside that were asked for: one for all names that no part lists, and one for all items
        after the last that has a schema of its own. A call may hold a hundred thousand of either."""

    def key(self, step: "str | int") -> "str | int | None":
        """Under which a step is remembered."""
        if isinstance(step, int):
            return min(step, self.prefix)
        return step if step in self.names else None


class Locator:
    """Looks places up in one schema and remembers what it found, as a refusal or a record asks for each value
    of a call."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._known: dict[tuple[int, ...], Spot] = {}
        self._top: Spot | None = None

    def top(self) -> Spot:
        """The spot of the arguments as a whole."""
        top = self._top  # read once: another thread may forget it
        if top is None:
            top = self._top = self._spot([self.root])
        return top

    def inside(self, spot: Spot, step: "str | int") -> Spot:
        """The spot of what stands one step inside another."""
        key = spot.key(step)
        found = spot.inside.get(key)
        if found is None:
            found = spot.inside[key] = self._spot(_inside(spot.parts, step))
        return found

    def way(self, path: Path) -> Iterator[Spot]:
        """The spots on the way to a place, from the whole to the place itself."""
        spot = self.top()
        yield spot
        for step in path:
            spot = self.inside(spot, step)
            yield spot

    def parts_at(self, path: Path) -> list[dict[str, Any]]:
        """Every schema that is, or could be, applied to the value at the path, each once."""
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

    def names_at(self, path: Path) -> dict[str, Schema]:
        """The property names that an object at the path may have, in schema order."""
        names: dict[str, Schema] = {}
        for part in self.parts_at(path):
            for name, schema in part.get("properties", {}).items():
                names.setdefault(name, schema)
        return names


_REMEMBERED = 500


def _listed(part: dict[str, Any]) -> list[list[Schema]]:
    """What says something about items by their position."""
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
