"""State in a schema which of its objects validation closes, for readers who take silence for open.

`close_objects` decides; this says the same in the words of the schema, so that a model is told. A subschema
that is also applied where it must stay open, such as a base in `allOf`, stays as written: closing it there
would forbid valid calls.
"""

from typing import Any

from toolkeep.json_values.pointers import referred
from toolkeep.validation.close_objects import (
    COMPOSERS,
    PLAIN_BELOW,
    Form,
    InPlace,
    are_exclusive,
    is_silent_object,
)
from toolkeep.validation.cost import TooCostly
from toolkeep.validation.schema_keywords import Schema, children

_COMPOSING = frozenset((*COMPOSERS, "dependencies", "$dynamicRef", "$recursiveRef"))
_IN_PLACE = frozenset(("allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas"))
"""`oneOf` too: a valid value matches one branch as written, and then that branch in its closed form."""


def state_closing(root: dict[str, Any]) -> bool:
    """Add `additionalProperties: false` or `unevaluatedProperties: false` to every closed object, in place.

    A composed root stays as it is. Returns whether the root is closed, so that the caller states it there.
    """
    try:
        walk = _Walk(root)
        for schema in walk.closed_places():
            if schema is root or not walk.is_closed_by_itself(schema):
                continue
            schema["unevaluatedProperties" if is_composed(schema) else "additionalProperties"] = False
        return walk.is_closed_by_itself(root)
    except (KeyError, TooCostly):
        # A reference by anchor or to another place: where else a subschema is applied is not known.
        return False


def state_closed_root(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own object closed, unless it says so itself."""
    if _is_stated(schema):
        return schema
    return {**schema, "unevaluatedProperties" if is_composed(schema) else "additionalProperties": False}


def is_composed(schema: dict[str, Any]) -> bool:
    """Whether other schemas name properties of the same object."""
    return not _COMPOSING.isdisjoint(schema)


def _is_stated(schema: dict[str, Any]) -> bool:
    return "additionalProperties" in schema or "unevaluatedProperties" in schema


class _Walk:
    """The forms in which each subschema is applied, as `close_objects` builds them."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._in_place = InPlace(root)
        self._forms: dict[int, set[Form]] = {}
        self._found: list[dict[str, Any]] = []
        stack: list[tuple[Schema, Form]] = [(root, "closed")]
        while stack:
            schema, form = stack.pop()
            if not isinstance(schema, dict):
                continue
            forms = self._forms.setdefault(id(schema), set())
            if not forms:
                self._found.append(schema)
            if form not in forms:
                forms.add(form)
                stack += self._inside(schema, form)

    def _inside(self, schema: dict[str, Any], form: Form) -> list[tuple[Schema, Form]]:
        place: Form = "plain" if form == "plain" else "closed"
        part: Form = "inner" if form == "closed" and not self._is_delegated(schema) else form
        found: list[tuple[Schema, Form]] = []
        for keys, child in children(schema):
            keyword = keys[0]
            if keyword in ("$defs", "definitions"):
                continue
            if keyword in _IN_PLACE:
                found.append((child, part))
            else:
                is_turned = keyword in PLAIN_BELOW or (keyword == "contains" and "maxContains" in schema)
                found.append((child, "plain" if is_turned else place))
        if "$ref" in schema:
            found.append((referred(self._root, schema["$ref"]), part))
        if not _UNTRACKED.isdisjoint(schema) or ("$id" in schema and schema is not self._root):
            raise KeyError("a reference that is not a pointer from the root")
        return found

    def _is_delegated(self, schema: dict[str, Any]) -> bool:
        """Whether closing its only part is the same as closing it."""
        parts = [keyword for keyword in _COMPOSING if keyword in schema]
        if schema is self._root or len(parts) != 1 or _names_properties(schema) or _is_stated(schema):
            return False
        (keyword,) = parts
        value = schema[keyword]
        if keyword == "anyOf":
            return are_exclusive(value, self._root)
        return keyword in ("$ref", "oneOf") or (keyword == "allOf" and len(value) == 1)

    def closed_places(self) -> list[dict[str, Any]]:
        """The subschemas that are applied in their closed form only."""
        return [schema for schema in self._found if self._forms[id(schema)] == {"closed"}]

    def is_closed_by_itself(self, schema: dict[str, Any]) -> bool:
        """Whether unknown properties are refused here, and neither it nor a part of it says something."""
        if _is_stated(schema) or self._is_delegated(schema):
            return False
        if not is_composed(schema):
            return schema is self._root or _names_properties(schema)
        parts = self._in_place(schema, with_tests=False)
        is_open = any(part.get(keyword, False) is not False for part in parts for keyword in _STATING)
        return not is_open and (schema is self._root or any(map(is_silent_object, parts)))


_STATING = ("additionalProperties", "unevaluatedProperties")
_UNTRACKED = frozenset(("$dynamicRef", "$recursiveRef", "dependencies"))


def _names_properties(schema: dict[str, Any]) -> bool:
    return "properties" in schema or "patternProperties" in schema
