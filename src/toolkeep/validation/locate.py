"""Which parts of a schema speak about a place in the arguments. Used to explain, never to decide."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from toolkeep.validation.closing import in_place
from toolkeep.validation.keywords import Schema

Path = Sequence["str | int"]


def parts_at(root: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Every schema that is, or could be, applied to the value at the path."""
    here = list(in_place(root, root))
    for step in path:
        here = [part for child in _inside(here, step) for part in in_place(child, root)]
    return here


def names_at(root: dict[str, Any], path: Path) -> dict[str, Schema]:
    """The property names that an object at the path may have, in schema order."""
    names: dict[str, Schema] = {}
    for part in parts_at(root, path):
        for name, schema in part.get("properties", {}).items():
            names.setdefault(name, schema)
    return names


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
    if step in part.get("properties", {}):
        yield part["properties"][step]
        return
    yield from part.get("patternProperties", {}).values()
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if isinstance(part.get(keyword), dict):
            yield part[keyword]
