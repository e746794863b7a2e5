"""Closes objects: a call may hold only what its schema names (VAL-2), and never accepts more by it.

A schema whose references are pointers comes in; one whose silent objects are closed goes out. Adding a
constraint can only narrow what is accepted, except where the result is turned around: below `not` and
`if`, in the branches of `oneOf` (two matches could become one) and in `contains` beside `maxContains`.
There everything stays as written. So each schema has three forms:

    closed  a place in the arguments: its own object is closed, and so is everything inside
    inner   a part of a composed place: its own object stays open, what is inside is closed
    plain   below a turning point: as written

Each definition that is referred to gets the forms that are needed, under `$defs`. In every form a pattern
or format is tried only on strings of `MATCHED_CHARS`, and every place that has one refuses longer strings.
"""

from collections.abc import Iterator
from typing import Any, Literal

from toolkeep.json_values.pointers import look_up
from toolkeep.limits import MATCHED_CHARS
from toolkeep.validation.cost import TooCostly
from toolkeep.validation.patterns import to_ecma262
from toolkeep.validation.references import applied_in_place, is_alone
from toolkeep.validation.schema_keywords import (
    ASSERTED_FORMATS,
    HOLDERS,
    KNOWN,
    LISTS,
    MAPS,
    SINGLE,
    Schema,
    all_schemas,
    children,
    types_of,
)

Form = Literal["closed", "inner", "plain"]

COMPOSERS = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")
PLAIN_BELOW = ("not", "if", "oneOf", "propertyNames", "contentSchema")
_NOT_BELOW = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$defs", "definitions")
_SHAPING = HOLDERS | {"$ref", "pattern", "format"}
"""A schema without any of these keywords has one form only."""
WORDS = frozenset(("title", "description", "examples", "example", "$comment", "deprecated"))
"""Annotations for readers."""
_CARRIED = KNOWN - WORDS - {"readOnly", "writeOnly"}
"""What the engine is given.

The other keywords mean nothing to it, but take a third of a validator's memory and more than half of its
build time.
"""
_IN_PLACE = ("allOf", "anyOf", "then", "else", "dependentSchemas")


def close_objects(root: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments with every silent object closed."""
    return _Closer(root).document()


def close_part(root: dict[str, Any], part: Schema) -> dict[str, Any]:
    """The schema of one place inside it, for a check on its own."""
    closer = _Closer(root)
    return _document(closer.make(part, "closed"), closer.definitions)


def guard_matching(root: dict[str, Any], part: Schema | None = None) -> dict[str, Any]:
    """A schema as written (an output schema), with only the length guard on patterns and formats."""
    closer = _Closer(root)
    return _document(closer.make(root if part is None else part, "plain"), closer.definitions)


def _document(body: Schema, definitions: dict[str, Schema]) -> dict[str, Any]:
    if not isinstance(body, dict):
        body = {} if body else {"not": {}}
    return {**body, "$defs": definitions}


class _Closer:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._in_place = InPlace(root)
        self.definitions: dict[str, Schema] = {}
        self._names: dict[tuple[str, Form], str] = {}

    def document(self) -> dict[str, Any]:
        body = self._closed(self.root, top=True)
        return {**body, "type": "object", "$defs": self.definitions}

    def make(self, schema: Schema, form: Form) -> Schema:
        """Build one form of a schema."""
        if not isinstance(schema, dict):
            return schema
        if _SHAPING.isdisjoint(schema):
            return {keyword: value for keyword, value in schema.items() if keyword in _CARRIED}
        if form == "closed":
            return self._closed(schema)
        return self._inner(schema) if form == "inner" else self._copy(schema, "plain")

    def _refer(self, reference: str, form: Form) -> str:
        """A reference to the requested form of a definition, which is built on first use."""
        key = (reference, form)
        if key not in self._names:
            name = self._names[key] = f"{form}{len(self._names)}"
            self.definitions[name] = True  # placeholder while the definition refers to itself
            self.definitions[name] = self.make(look_up(self.root, reference[1:]), form)
        return f"#/$defs/{self._names[key]}"

    def _closed(self, schema: dict[str, Any], *, top: bool = False) -> dict[str, Any]:
        composers = [keyword for keyword in COMPOSERS if keyword in schema]
        has_own = "properties" in schema or "patternProperties" in schema
        is_stated = "additionalProperties" in schema or "unevaluatedProperties" in schema
        if composers == ["oneOf"] and not has_own and not is_stated:
            body = self._copy(schema, "inner")
            _require_one(body, [self.make(branch, "closed") for branch in schema["oneOf"]])
        else:
            body = self._inner(schema)
            if not is_stated:
                self._close_own(
                    body, schema, composers if not has_own else [*composers, "properties"], top=top
                )
        if _is_matched(schema, self._in_place):
            body["maxLength"] = min(schema.get("maxLength", MATCHED_CHARS), MATCHED_CHARS)
        return body

    def _close_own(
        self, body: dict[str, Any], schema: dict[str, Any], parts: list[str], *, top: bool
    ) -> None:
        """Close the object itself in the cheapest way that its subschemas allow."""
        if parts in ([], ["properties"]):
            if parts or top:
                body["additionalProperties"] = False
        elif parts == ["$ref"] and not top:
            body["$ref"] = self._refer(schema["$ref"], "closed")
        elif parts == ["allOf"] and len(schema["allOf"]) == 1 and not top:
            body["allOf"] = [self.make(schema["allOf"][0], "closed")]
        elif parts == ["anyOf"] and are_exclusive(schema["anyOf"], self.root):
            body["anyOf"] = [self.make(branch, "closed") for branch in schema["anyOf"]]
        elif top or any(map(is_silent_object, self._in_place(schema, with_tests=False))):
            body["unevaluatedProperties"] = False

    def _inner(self, schema: dict[str, Any]) -> dict[str, Any]:
        body = self._copy(schema, "inner")
        if "oneOf" in schema and _hold_objects(schema["oneOf"], self.root):
            _require_one(body, [self.make(branch, "inner") for branch in schema["oneOf"]])
        return body

    def _copy(self, schema: dict[str, Any], form: Literal["inner", "plain"]) -> dict[str, Any]:
        """A copy of the schema whose subschemas have the forms that follow from its own."""
        place: Form = "plain" if form == "plain" else "closed"
        body: dict[str, Any] = {}
        for keyword, value in schema.items():
            if keyword == "$ref":
                body["$ref"] = self._refer(value, form)
            elif keyword not in HOLDERS:
                if keyword in _CARRIED:
                    body[keyword] = value
            elif keyword not in ("$defs", "definitions"):
                child: Form = form if keyword in _IN_PLACE else place
                if keyword in PLAIN_BELOW or (keyword == "contains" and "maxContains" in schema):
                    child = "plain"
                body[keyword] = self._inside(keyword, value, child)
        return _guard_matching(body)

    def _inside(self, keyword: str, value: Any, form: Form) -> Any:
        """One form of the value of a keyword."""
        if keyword in SINGLE and isinstance(value, (dict, bool)):
            return self.make(value, form)
        if (keyword in LISTS or keyword == "items") and isinstance(value, list):
            return [self.make(item, form) for item in value]
        if keyword in MAPS and isinstance(value, dict):
            made = {name: self.make(item, form) for name, item in value.items()}
            return _as_meant(made) if keyword == "patternProperties" else made
        return value


def _require_one(body: dict[str, Any], branches: list[Schema]) -> None:
    """Exactly one branch as written, and that branch closed as well."""
    body["allOf"] = [*body.get("allOf", []), {"anyOf": branches}]


def _guard_matching(body: dict[str, Any]) -> dict[str, Any]:
    """Match patterns and formats against short strings only, in whatever order the engine works.

    Without this guard an attacker sends a megabyte to a costly pattern: collecting the errors took 6.8 s.
    """
    if "pattern" not in body and "format" not in body:
        return body
    matched = {k: body[k] for k in ("pattern", "format") if k in body and _is_asserted(k, body[k])}
    if not matched:
        return body
    if "pattern" in matched:
        matched["pattern"] = to_ecma262(matched["pattern"])
    rest = {key: value for key, value in body.items() if key not in matched}
    condition = {"if": {"maxLength": MATCHED_CHARS}, "then": matched}
    if "if" in rest:
        return {**rest, "allOf": [*rest.get("allOf", []), condition]}
    return {**rest, **condition}


def _as_meant(by_pattern: dict[str, Schema]) -> dict[str, Schema]:
    """The same subschemas under patterns in the engine's syntax; two patterns that become equal stay two."""
    made: dict[str, Schema] = {}
    for pattern, schema in by_pattern.items():
        meant = to_ecma262(pattern)
        while meant in made:
            meant += "(?:)"
        made[meant] = schema
    return made


def _is_asserted(keyword: str, value: object) -> bool:
    return keyword == "pattern" or value in ASSERTED_FORMATS


def turns_matching(root: dict[str, Any]) -> bool:
    """Whether a pattern or format inside a condition decides what another subschema demands.

    Such a pattern passes strings that are too long for it, and the place that it is about has no guard of its
    own. Then no string of the call may be that long.
    """
    in_place = InPlace(root)
    return any(
        _matches_below(test, in_place, set())
        for schema in all_schemas(root)
        if not _TESTING.isdisjoint(schema)
        for test in _tests(schema)
        if isinstance(test, dict)
    )


_TESTING = frozenset(("not", "if", "contains"))


def _tests(schema: dict[str, Any]) -> Iterator[Schema]:
    yield from (schema[keyword] for keyword in ("not", "if") if keyword in schema)
    if "contains" in schema and "maxContains" in schema:
        yield {"items": schema["contains"]}


def _matches_below(schema: Schema, in_place: "InPlace", seen: set[int]) -> bool:
    for part in in_place(schema):
        for keys, child in children(part):
            if keys[0] in _NOT_BELOW or id(child) in seen or not isinstance(child, dict):
                continue
            seen.add(id(child))
            if _is_matched(child, in_place) or _matches_below(child, in_place, seen):
                return True
    return False


def in_place(schema: Schema, root: dict[str, Any], *, with_tests: bool = True) -> list[dict[str, Any]]:
    """The schema and every other schema applied to the same value, references followed.

    Without `tests`, those below `not` and `if` are left out: they assert nothing about a valid value.
    """
    if not isinstance(schema, dict):
        return []
    if is_alone(schema):
        return [schema]
    found: dict[int, dict[str, Any]] = {}
    stack: list[Schema] = [schema]
    while stack:
        here = stack.pop()
        if not isinstance(here, dict) or id(here) in found:
            continue
        found[id(here)] = here
        if not is_alone(here):
            tests = () if with_tests else [id(here[keyword]) for keyword in ("not", "if") if keyword in here]
            stack += [inside for inside in reversed(applied_in_place(here, root)) if id(inside) not in tests]
    return list(found.values())


_MOST_APPLIED = 20_000
"""Schemas applied in place, summed over all places; a few µs each.

Real tools need at most 248. Nested references multiply them, so that a small schema could take minutes to
compile without this limit.
"""


class InPlace:
    """`in_place` for one document, computed once for each schema; the total is bounded."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self._known: dict[tuple[int, bool], list[dict[str, Any]]] = {}
        self._applied = 0

    def __call__(self, schema: Schema, *, with_tests: bool = True) -> list[dict[str, Any]]:
        """The schema and every other schema applied to the same value."""
        key = (id(schema), with_tests)
        if key not in self._known:
            found = self._known[key] = in_place(schema, self.root, with_tests=with_tests)
            self._applied += len(found)
            if self._applied > _MOST_APPLIED:
                raise TooCostly(
                    f"its references unfold to more than {_MOST_APPLIED} parts", "refer less often"
                )
        return self._known[key]


def is_silent_object(schema: dict[str, Any]) -> bool:
    """Whether a schema lists properties and says nothing about others."""
    names = "properties" in schema or "patternProperties" in schema
    return names and "additionalProperties" not in schema and "unevaluatedProperties" not in schema


def _is_matched(schema: dict[str, Any], in_place: "InPlace") -> bool:
    return any(
        not _MATCHING.isdisjoint(s) and ("pattern" in s or s.get("format") in ASSERTED_FORMATS)
        for s in in_place(schema)
    )


_MATCHING = frozenset(("pattern", "format"))


def _hold_objects(branches: list[Schema], root: dict[str, Any]) -> bool:
    """Whether a value that matches one of the branches may be an object, or an array of objects."""
    types = [types_of(_without_detour(branch, root)) for branch in branches]
    return any(declared is None or declared & {"object", "array"} for declared in types)


def _without_detour(schema: Schema, root: dict[str, Any]) -> dict[str, Any]:
    """The schema behind references, close enough to tell alternatives apart."""
    for _ in range(100):
        if not isinstance(schema, dict):
            return {"not": {}} if schema is False else {}
        if "$ref" not in schema or any(
            k in schema for k in (*COMPOSERS[1:], "properties", "patternProperties")
        ):
            return schema
        schema = look_up(root, schema["$ref"][1:])
    return {"$ref": "#"}


def _may_be_object(schema: Schema, root: dict[str, Any]) -> bool:
    schema = _without_detour(schema, root)
    declared = types_of(schema)
    if declared is not None:
        return "object" in declared
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return allowed is None or any(isinstance(value, dict) for value in allowed)


def are_exclusive(branches: list[Schema], root: dict[str, Any]) -> bool:
    """Whether no object matches two of the branches: closing each is then the same as closing the whole."""
    objects = [_without_detour(branch, root) for branch in branches if _may_be_object(branch, root)]
    if len(objects) <= 1:
        return True
    first = objects[0].get("properties")
    names = first if isinstance(first, dict) else {}
    return any(_tells_apart(name, objects) for name in names)


def _tells_apart(name: str, objects: list[dict[str, Any]]) -> bool:
    seen: set[str] = set()
    for schema in objects:
        property_schema = schema.get("properties", {}).get(name)
        if name not in schema.get("required", ()) or not isinstance(property_schema, dict):
            return False
        tags = property_schema.get("enum", [property_schema.get("const")])
        if not all(isinstance(tag, str) for tag in tags) or seen & set(tags):
            return False
        seen.update(tags)
    return True
