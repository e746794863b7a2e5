"""Decide whether a schema is safe and follows the rules; report all problems at once.

In: a schema as written. Out: problems (which refuse it), warnings, and the schema with references resolved.
Author rules refuse definitions written by hand and only warn about imported ones (DEF-2). Nothing that a
schema names is compiled or fetched here.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec
import orjson

from toolkeep.definitions.argument_roles import ArgumentMarks
from toolkeep.definitions.parameter import ANY_TYPE
from toolkeep.definitions.parameter_marks import FLOW_KEY, SECRET_KEY, TOUCHES_KEY, Touches
from toolkeep.definitions.vocabulary import Role
from toolkeep.errors import Code, Problem
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.frozen import thaw
from toolkeep.json_values.pointers import pointer
from toolkeep.limits import Limits
from toolkeep.text.display import echo
from toolkeep.text.nearest import nearest_name
from toolkeep.validation.dialect import Dialect, dialect_of, upgrade
from toolkeep.validation.references import BadReference, resolve_references
from toolkeep.validation.schema_keywords import (
    DECLARES_TYPE,
    KNOWN,
    Schema,
    directly_inside,
    every_schema,
    types_of,
)

_Parts: TypeAlias = list[tuple[str, dict[str, Any]]]
"""A schema and every subschema, with its JSON Pointer."""

SNAKE_CASE = re.compile(r"[a-z_][a-z0-9_]*")
_OUR_KEYWORDS = frozenset((FLOW_KEY, SECRET_KEY, TOUCHES_KEY))
_NAMES = {True: sorted(_OUR_KEYWORDS), False: sorted(KNOWN)}
"""The keywords that a typo may stand for: ours begin with `x-`."""


class Inspection(msgspec.Struct):
    """The findings about a schema."""

    problems: list[Problem]
    warnings: list[Problem]
    dialect: Dialect = Dialect.DRAFT_2020_12
    resolved: dict[str, Any] | None = None
    """The schema with every reference a local pointer; None if it cannot be read."""


class _Notes:
    """Collects findings about one schema, under the field of the definition that holds it."""

    def __init__(self, field: str, *, by_hand: bool) -> None:
        self.field = field
        self.by_hand = by_hand
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def refuse(self, path: str, message: str, fix: str, code: Code = Code.SCHEMA_REFUSED) -> None:
        self.problems.append(Problem(field=self.field + path, code=code, message=message, fix=fix))

    def warn(self, path: str, message: str, fix: str) -> None:
        problem = Problem(field=self.field + path, code=Code.SCHEMA_REFUSED, message=message, fix=fix)
        self.warnings.append(problem)

    def author(self, path: str, message: str, fix: str) -> None:
        """An author rule: refuses definitions written by hand, warns about imported ones."""
        (self.refuse if self.by_hand else self.warn)(path, message, fix)


def inspect_schema(
    schema: dict[str, Any], *, field: str, by_hand: bool, limits: Limits, is_arguments: bool
) -> Inspection:
    """Inspect one schema of a definition: its parameters, or its output."""
    schema = thaw(schema)  # the engine accepts plain lists and dicts only
    notes = _Notes(field, by_hand=by_hand)
    inspection = Inspection(notes.problems, notes.warnings)
    # First, because every later step is superlinear in a hostile schema.
    if not _is_small(schema, notes, limits):
        return inspection
    dialect = _dialect(schema, notes)
    if dialect is None or not _is_well_formed(schema, dialect, notes):
        return inspection
    inspection.dialect = dialect
    try:
        inspection.resolved = _resolved(schema, dialect)
    except BadReference as error:
        notes.refuse(error.path, error.reason, error.fix)
        return inspection
    parts = list(every_schema(schema))
    _keywords(parts, notes)
    if is_arguments:
        _root(schema, notes)
        _roles(schema, parts, notes)
        _author_rules(schema, parts, notes)
    return inspection


def resolve_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same `resolved` for a schema that was inspected before."""
    schema = thaw(schema)
    return _resolved(schema, dialect_of(schema) or Dialect.DRAFT_2020_12)


def _resolved(schema: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    upgraded = upgrade(schema, dialect)
    return resolve_references(upgraded if isinstance(upgraded, dict) else {})


def _is_small(schema: dict[str, Any], notes: _Notes, limits: Limits) -> bool:
    size = _bytes(schema)
    if size > limits.schema_bytes:
        notes.refuse("", f"is {size} bytes, at most {limits.schema_bytes} are allowed", "describe less")
        return False
    if _is_deeper_than(schema, limits.schema_depth):
        notes.refuse("", f"is nested deeper than {limits.schema_depth} schemas", "use flatter parameters")
        return False
    return True


def _bytes(schema: dict[str, Any]) -> int:
    try:
        return len(orjson.dumps(schema))
    except TypeError:  # integers beyond 64 bits
        return len(canonical_bytes(schema))


def _is_deeper_than(schema: Schema, depth: int) -> bool:
    level = [schema]
    for _ in range(depth + 1):
        level = [child for parent in level if parent.__class__ is dict for child in directly_inside(parent)]
        if not level:
            return False
    return True


def _dialect(schema: dict[str, Any], notes: _Notes) -> Dialect | None:
    dialect = dialect_of(schema)
    if dialect is None or (notes.by_hand and dialect is not Dialect.DRAFT_2020_12):
        allowed = "2020-12" if notes.by_hand else "2020-12, 2019-09 or draft-07"
        notes.refuse("/$schema", f"is not JSON Schema {allowed}", "leave $schema out and write 2020-12")
        return None
    return dialect


_EXCLUSIVE = (["exclusiveMinimum"], ["exclusiveMaximum"])


def _is_well_formed(schema: dict[str, Any], dialect: Dialect, notes: _Notes) -> bool:
    """Validate against the dialect's meta-schema; one finding names the place."""
    try:
        jsonschema_rs.meta.validate({**schema, "$schema": dialect.value})
    except jsonschema_rs.ValidationError as error:
        path = pointer(error.instance_path)
        message = "is not valid JSON Schema"
        fix = "see the JSON Schema specification"
        if error.instance_path and error.instance_path[-1] == "type":
            message = f"{echo(error.instance)} is not a type of JSON Schema"
            fix = "valid types: string, number, integer, boolean, array, object, null"
        elif isinstance(error.instance, bool) and error.instance_path[-1:] in _EXCLUSIVE:
            message = "is true or false, as in draft-04"
            fix = "write the bound itself there, and leave out minimum or maximum"
        notes.refuse(path, message, fix, Code.SCHEMA_BROKEN)
        return False
    except (ValueError, RuntimeError, jsonschema_rs.ReferencingError):
        notes.refuse("", "cannot be read as JSON Schema", "check its references", Code.SCHEMA_BROKEN)
        return False
    return True


def _keywords(parts: _Parts, notes: _Notes) -> None:
    """Keep unknown keywords, which mean nothing, and warn about likely typos (VAL-1)."""
    for path, part in parts:
        for keyword in () if KNOWN.issuperset(part) else part:
            if keyword in KNOWN or keyword in _OUR_KEYWORDS:
                continue
            if near := nearest_name(keyword, _NAMES[keyword.startswith("x-")]):
                notes.warn(
                    f"{path}/{keyword}",
                    "is not a JSON Schema keyword and has no effect",
                    f"did you mean {near!r}?",
                )
        if TOUCHES_KEY in part:
            try:
                Touches.read(part[TOUCHES_KEY])
            except ValueError as error:
                notes.refuse(f"{path}/{TOUCHES_KEY}", str(error), "use a kind such as 'fs.read'")


def _root(schema: dict[str, Any], notes: _Notes) -> None:
    types = types_of(schema)
    if types is not None and "object" not in types:
        notes.refuse("/type", "arguments are an object", 'use "type": "object" at the root')
    elif types is None and notes.by_hand and not DECLARES_TYPE & schema.keys():
        notes.refuse("/type", "is missing", 'add "type": "object" at the root')


def _roles(schema: dict[str, Any], parts: _Parts, notes: _Notes) -> None:
    """Check roles: only on parameters, and never a weaker one on a credential or a resource that the call
    touches."""
    declared = [(path, part[FLOW_KEY]) for path, part in parts if FLOW_KEY in part]
    if not declared:
        return
    properties = schema.get("properties")
    owners = {pointer(("properties", name)): name for name in properties or ()}
    marks = ArgumentMarks(schema)
    for path, word in declared:
        place = f"{path}/{FLOW_KEY}"
        try:
            role = Role.read(word)
        except ValueError as error:
            notes.refuse(place, str(error), "use one of these words, or leave it out")
            continue
        if path not in owners:
            notes.refuse(place, "is not on a parameter", "declare the role on the parameter itself")
        elif not role.carries_authority and (why := marks.why_authority(owners[path])):
            # Otherwise one remembered approval would let the call reach any path, host or program.
            notes.refuse(place, f"cannot be {role.value}: {why}", "leave it out; the argument stays bound")


def _author_rules(schema: dict[str, Any], parts: _Parts, notes: _Notes) -> None:
    for path, part in parts:
        properties = part.get("properties")
        if isinstance(properties, dict):
            for name, inside in properties.items():
                _property(name, inside, path, part, notes)
        if "object" in (types_of(part) or ()):
            _required(part, path, notes)
    for name in schema.get("properties", {}):
        if not SNAKE_CASE.fullmatch(name):
            notes.author(pointer(("properties", name)), "is not snake_case", "name it like 'start_line'")


def _required(part: dict[str, Any], path: str, notes: _Notes) -> None:
    if any(keyword in part for keyword in ("allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties")):
        return
    if part.get("additionalProperties", False) is not False:
        return
    for name in part.get("required", ()):
        if name not in part.get("properties", {}):
            notes.author(f"{path}/required", f"{name[:64]!r} is required but not a property", "define it")


def _property(name: str, schema: Schema, above: str, parent: dict[str, Any], notes: _Notes) -> None:
    for message, fix in _lapses(name, schema, parent):
        notes.author(above + pointer(("properties", name)), message, fix)


def _lapses(name: str, schema: Schema, parent: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What an author must add to a property, and how."""
    if schema is True or (isinstance(schema, dict) and DECLARES_TYPE.isdisjoint(schema)):
        yield "declares no type", 'add "type", "enum", "const", "$ref" or a combinator'
        return
    if not isinstance(schema, dict):
        return
    if "default" in schema and name in parent.get("required", ()):
        yield "is required and has a default", "drop one of the two"
    if "enum" in schema or "const" in schema:
        return
    types = types_of(schema) or frozenset()
    if types.issuperset(ANY_TYPE):
        return  # a free value, which lint warns about
    if "array" in types and _SHAPES_ARRAY.isdisjoint(schema):
        yield "is an array without items", 'add "items"'


_SHAPES_ARRAY = frozenset(("items", "prefixItems", "contains"))
