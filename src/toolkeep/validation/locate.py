"""Which parts of a schema speak about a place in the arguments. Used to explain, never to decide."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from toolkeep.validation.closing import in_place
from toolkeep.validation.keywords import Schema

Path = Sequence["str | int"]


class Locator:
    """Looks places up in one schema and remembers the last few hundred, as a refusal asks again and again."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._known: dict[tuple[str | int, ...], list[dict[str, Any]]] = {}

    def parts_at(self, path: Path) -> list[dict[str, Any]]:
        """Every schema that is, or could be, applied to the value at the path, each once."""
        key = tuple(path)
        if key in self._known:
            return self._known[key]
        if key:
            inside = [s for s in _inside(self.parts_at(key[:-1]), key[-1]) if isinstance(s, dict)]
        else:
            inside = [self.root]
        found = {id(part): part for schema in inside for part in in_place(schema, self.root)}
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = list(found.values())
        return self._known[key]

    def names_at(self, path: Path) -> dict[str, Schema]:
        """The property names that an object at the path may have, in schema order."""
        names: dict[str, Schema] = {}
        for part in self.parts_at(path):
            for name, schema in part.get("properties", {}).items():
                names.setdefault(name, schema)
        return names


_REMEMBERED = 500


def _inside(parts: Iterable[dict[str, Any]], step: "str | int") -> Iterator[Schema]:
    for part in parts:
        yield from _by_position(part, step) if isinstance(step, int) else _by_name(part, step)


def _by_position(part: dict[str, Any], step: int) -> Iterator[Schema]:
    for keyword in ("prefixItems", "items"):
        listed = part.get(keyword)
        if isinstance(listed, list) and step < len(listed):
            yield listed[step]
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
