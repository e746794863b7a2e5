"""Move what references of an imported schema lead to below unknown keywords into `$defs`.

Other systems write `#/components/schemas/X`. Nothing checks what an unknown keyword holds: neither the guard,
nor the search for secrets and hidden text. Below `$defs` all of them do. A reference that is not moved is
refused later.
"""

import re
from typing import Any, Final
from urllib.parse import unquote

from toolkeep.json_values.pointers import look_up

_MOST_OBJECTS: Final = 10_000
"""Objects copied for one schema: pointers into each other would multiply them. The guard accepts 50 KB."""
_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_DATA: Final = frozenset(("default", "const", "enum", "example", "examples"))
_OBJECTS: Final = (_NAMED | _DATA).union(
    (
        "items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties",
        "unevaluatedProperties", "propertyNames", "not", "if", "then", "else", "contentSchema",
        "dependencies", "dependentRequired", "$vocabulary",
    )
)  # fmt: skip
"""Keywords whose value may be an object; any other key that holds one is unknown."""


class _TooMany(Exception):
    """More objects than are copied."""


def with_moved_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with such targets in `$defs`; as it is if there are none."""
    unknown = {key for key, value in schema.items() if isinstance(value, dict) and key not in _OBJECTS}
    if not unknown:
        return schema
    mover = _Mover(schema, unknown)
    try:
        made = mover.moved()
    except _TooMany:
        return schema
    return made if mover.definitions else schema


class _Mover:
    def __init__(self, root: dict[str, Any], unknown: set[str]) -> None:
        self._root = root
        self._unknown = unknown
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._copied = 0
        self._emptied: set[str] = set()
        self.definitions: dict[str, Any] = {}
        known = root.get("$defs")
        self._taken = set(known) if isinstance(known, dict) else set()

    def moved(self) -> dict[str, Any]:
        made = self._schema({key: value for key, value in self._root.items() if key not in self._unknown})
        while self._waiting:
            name, target = self._waiting.pop()
            self.definitions[name] = self._schema(target)
        kept = made.get("$defs")
        made |= {key: self._root[key] for key in self._unknown - self._emptied}
        return {**made, "$defs": {**(kept if isinstance(kept, dict) else {}), **self.definitions}}

    def _schema(self, value: Any, *, is_names: bool = False) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._schema(item) for item in value]
        if not isinstance(value, dict):
            return value
        self._copied += 1
        # Inside another base, a pointer begins elsewhere.
        if self._copied > _MOST_OBJECTS or ("$id" in value and self._copied > 1 and not is_names):
            raise _TooMany
        made: dict[str, Any] = {}
        for key, inside in value.items():
            if is_names:
                made[key] = self._schema(inside)
            elif key == "$ref" and isinstance(inside, str):
                made[key] = self._reference(inside)
            else:
                made[key] = inside if key in _DATA else self._schema(inside, is_names=key in _NAMED)
        return made

    def _reference(self, reference: str) -> str:
        first = unquote(reference).removeprefix("#/").partition("/")[0]
        if not reference.startswith("#/") or first not in self._unknown:
            return reference
        if reference not in self._names:
            try:
                target = look_up(self._root, unquote(reference[1:]))
            except KeyError:
                return reference
            if not isinstance(target, (dict, bool)):
                return reference
            self._emptied.add(first)
            self._names[reference] = name = self._free_name(reference.rpartition("/")[2])
            self._waiting.append((name, target))
        return f"#/$defs/{self._names[reference]}"

    def _free_name(self, wanted: str) -> str:
        base = _ODD.sub("_", unquote(wanted)) or "schema"
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name
