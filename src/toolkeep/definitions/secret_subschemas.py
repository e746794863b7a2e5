"""Find the secret subschemas of a schema, followed through `$ref` both ways.

In: a schema. Out: the ids of the subschemas that must not be shown. What applies to the same value as a
secret is secret, so is a property of the same name, and so is what a secret refers to. A reference that
cannot be resolved may lead anywhere: beside a secret it makes everything secret.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote

from toolkeep.definitions.parameter_marks import is_secret
from toolkeep.json_values.frozen import objects_in
from toolkeep.json_values.pointers import referred

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SINGLE: Final = ("if", "then", "else", "not")

Part = dict[str, Any]


def find_secret_subschemas(schema: Part) -> set[int]:
    """The ids of the secret subschemas; empty if nothing is marked."""
    parts = list(objects_in(schema))
    marked = list(filter(is_secret, parts))
    if not marked:
        return set()
    try:
        return _Parts(schema, parts).secret(marked)
    except _NotUnderstood:
        return set(map(id, parts))


def has_secret(schema: Any) -> bool:
    """Whether anything in a schema is marked secret."""
    return any(map(is_secret, objects_in(schema)))


def has_reference(schema: Any) -> bool:
    """Whether a schema contains a reference."""
    return any(not part.keys().isdisjoint(_REFERENCES) for part in objects_in(schema))


class _NotUnderstood(Exception):
    """The reference may lead anywhere."""


class _Parts:
    """The subschemas of one schema, and how they refer to each other."""

    def __init__(self, root: Part, parts: list[Part]) -> None:
        self._root = root
        self._parts = parts
        self._has_bases = any("$id" in part for part in parts if part is not root)
        self._anchors: dict[str, list[Part]] = defaultdict(list)
        for part in parts:
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(part.get(keyword), str):
                    self._anchors[part[keyword]].append(part)
        self._targets = {id(part): list(self._referred(part)) for part in parts}

    def secret(self, marked: Iterable[Part]) -> set[int]:
        """Everything that is secret if these subschemas are."""
        found = self._above(marked)
        named = [item for part in self._parts for item in _properties(part)]
        names = {name for name, inside in named if id(inside) in found}
        found |= {id(inside) for name, inside in named if name in names}
        return self._below(found)

    def _above(self, marked: Iterable[Part]) -> set[int]:
        """The subschemas that apply to the same value as a marked one."""
        above: dict[int, list[Part]] = defaultdict(list)
        for part in self._parts:
            for inner in (*_applied(part), *self._targets[id(part)]):
                above[id(inner)].append(part)
        found: set[int] = set()
        waiting = list(marked)
        while waiting:
            part = waiting.pop()
            if id(part) not in found:
                found.add(id(part))
                waiting += above[id(part)]
        return found

    def _below(self, found: set[int]) -> set[int]:
        """With everything inside them, and what that refers to."""
        seen: set[int] = set()
        waiting = [part for part in self._parts if id(part) in found]
        while waiting:
            part = waiting.pop()
            if id(part) not in seen:
                seen.add(id(part))
                waiting += [*_directly_inside(part), *self._targets[id(part)]]
        return seen

    def _referred(self, part: Part) -> Iterator[Part]:
        """The targets of a subschema's references."""
        for keyword in _REFERENCES:
            reference = part.get(keyword)
            if isinstance(reference, str):
                target = self._target(unquote(reference))
                if isinstance(target, dict):
                    yield target

    def _target(self, reference: str) -> Any:
        anchored = self._anchors.get(reference.removeprefix("#"), [])
        if self._has_bases or not reference.startswith("#") or len(anchored) > 1:
            raise _NotUnderstood
        try:
            return anchored[0] if anchored else referred(self._root, reference)
        except KeyError:
            raise _NotUnderstood from None


def _applied(part: Part) -> Iterator[Part]:
    """The direct subschemas that apply to the same value."""
    inside = [part[keyword] for keyword in _SINGLE if keyword in part]
    for keyword in _LISTS:
        inside += part[keyword] if isinstance(part.get(keyword), list) else ()
    dependent = part.get("dependentSchemas")
    inside += dependent.values() if isinstance(dependent, dict) else ()
    return (one for one in inside if isinstance(one, dict))


def _properties(part: Part) -> Iterable[tuple[str, Any]]:
    properties = part.get("properties")
    return properties.items() if isinstance(properties, dict) else ()


def _directly_inside(value: Any) -> Iterator[Part]:
    """The objects directly inside a value, also those in its lists."""
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, dict):
            yield one
        elif isinstance(one, list):
            yield from _directly_inside(one)
