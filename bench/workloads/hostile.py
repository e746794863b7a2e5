"""Random hostile schemas with calls made for them, and small changes of both.

Everything is JSON, so that a case can be printed and run again. A call is a template: `{"§many": [item,
count]}` is an array of so many items, `{"§names": [value, count, length]}` an object of so many names of that
length, `{"§text": [text, count]}` a text repeated. It is written out only as bytes.
"""

import copy
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

Json = Any

DIVISORS = (0.01, 0.01, 0.1, 0.5, 5e-324, 1e-300, 1e-17, 0.123456789, 3, 7, 3.0, 1e22, 1e300, 10**300)
BOUNDS = (0, 1, 5, -1, 0.5, 1e300, 10**20, 10**1000)
NUMBERS = ("0", "7", "0.07", "1.5", "123456789.12", "1e300", "1e-300", "5e-324", "0.30000000000000004",
           "1e22", "1" + "0" * 25, "9" * 300, "9" * 4000, "-1", "1.0", "2e5")  # fmt: skip
PATTERNS = ("^a*$", "^[a-z0-9_]+$", "[ab]*a[ab]{40}c", "^(a|b|ab)*c$", ".")
FORMATS = ("date-time", "email", "uri", "regex", "idn-hostname", "duration", "ipv6", "uuid")
WIDTHS = (1, 2, 3, 6, 12, 30, 60, 100, 120, 200)
SCHEMA_BYTES = 45_000
COUNTS = (0, 1, 2, 3, 8, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 180_000)


class Case(NamedTuple):
    """A schema, and a call (or an answer of the tool) for it."""

    schema: Json
    value: Json
    is_output: bool

    @property
    def text(self) -> str:
        """The case as one line, to run again."""
        return json.dumps(self._asdict(), ensure_ascii=False)


def write(template: Json) -> str:
    """A template written out as JSON; numbers stand as they are written."""
    match template:
        case {"§many": [item, count]}:
            return "[" + ",".join([write(item)] * count) + "]"
        case {"§names": [value, count, length]}:
            written = write(value)
            return "{" + ",".join(f'"{_name(i, length)}":{written}' for i in range(count)) + "}"
        case {"§text": [text, count]}:
            return json.dumps(text * count)
        case {"§number": number}:
            return str(number)
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{write(v)}" for k, v in template.items()) + "}"
        case list():
            return "[" + ",".join(map(write, template)) + "]"
        case _:
            return json.dumps(template)


def _name(number: int, length: int) -> str:
    return f"p{number}".ljust(length, "x")


class Maker:
    """Makes cases, and changes them, from a seed."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)

    def case(self) -> Case:
        """A new case."""
        pick = self.pick
        schema = self.root()
        while _bytes(schema, {}) > SCHEMA_BYTES:
            schema = self.root()
        is_output = pick.random() < 0.2
        value = self.fitting(schema, schema, 4)
        for _ in range(pick.choice((0, 1, 1, 3))):
            value = self.changed_value(value)
        return Case(schema, value, is_output)

    def changed(self, case: Case) -> Case:
        """A case that differs a little: in its schema, its call or both."""
        pick = self.pick
        schema, value, is_output = copy.deepcopy(case.schema), copy.deepcopy(case.value), case.is_output
        if pick.random() < 0.5:
            schema = self.changed_schema(schema)
            if _bytes(schema, {}) > SCHEMA_BYTES:
                schema = copy.deepcopy(case.schema)
            if pick.random() < 0.3:
                value = self.fitting(schema, schema, 4)
        if pick.random() < 0.7:
            for _ in range(pick.choice((1, 1, 2, 4))):
                value = self.changed_value(value)
        if pick.random() < 0.05:
            is_output = not is_output
        return Case(schema, value, is_output)

    # --- schemas

    def root(self) -> Json:
        names = [f"p{i}" for i in range(self.pick.choice((1, 1, 2, 3)))]
        schema: Json = {
            "type": "object",
            "properties": {name: self.schema(self.pick.choice((1, 2, 3))) for name in names},
        }
        if self.pick.random() < 0.2:
            schema |= self.composed(2)
        count = self.pick.choice((1, 2, 3, 8))
        schema["$defs"] = {f"d{i}": self.schema(2) for i in range(count)}
        if self.pick.random() < 0.2:  # each leads to the next
            for i in range(count - 1):
                schema["$defs"][f"d{i}"] = self.referring(f"d{i + 1}")
        return schema

    def referring(self, name: str) -> Json:
        inside: Json = {"$ref": f"#/$defs/{name}"}
        if self.pick.random() < 0.7:
            inside["default"] = self.pick.choice(({}, {}, [], 1))
        names = [f"p{i}" for i in range(self.pick.choice((1, 2, 10)))]
        return {"type": "object", "properties": {name: dict(inside) for name in names}}

    def schema(self, depth: int) -> Json:
        roll = self.pick.random()
        if depth <= 0 or roll < 0.2:
            made = self.scalar()
        elif roll < 0.4:
            made = self.array(depth - 1)
        elif roll < 0.6:
            made = self.object(depth - 1)
        elif roll < 0.85:
            made = self.composed(depth - 1)
        else:
            made = {"$ref": f"#/$defs/d{self.pick.randrange(3)}"}
        if isinstance(made, dict) and self.pick.random() < 0.2:
            made["default"] = self.default()
        return made

    def default(self) -> Json:
        pick = self.pick
        return pick.choice(
            ({}, {}, [], 1, "x", "x" * 5_000, [1] * 1_000, [{}] * 1_000, {"p0": {}}, [[]] * 100)
        )

    def scalar(self) -> Json:
        pick = self.pick
        return pick.choice(
            (
                lambda: {"type": "number", "multipleOf": pick.choice(DIVISORS)},
                lambda: {"multipleOf": pick.choice(DIVISORS)},
                lambda: {"type": pick.choice(("number", "integer")), "minimum": pick.choice(BOUNDS)},
                lambda: {"type": pick.choice(("string", "integer", "boolean", "null", "number"))},
                lambda: {"const": pick.choice((1, "x", {"a": [1] * 50}, ["x"] * 200, 10**300, "y" * 3_000))},
                lambda: {"enum": [{"a": i} for i in range(pick.choice(WIDTHS))]},
                lambda: {"enum": [f"word{i}" for i in range(pick.choice(WIDTHS))]},
                lambda: {"type": "string", "pattern": pick.choice(PATTERNS)},
                lambda: {"type": "string", "format": pick.choice(FORMATS)},
                lambda: {"type": "string", "maxLength": pick.choice((0, 1, 100))},
            )
        )()

    def array(self, depth: int) -> Json:
        pick = self.pick
        schema: dict[str, Json] = {"type": "array"} if pick.random() < 0.8 else {}
        keyword = pick.choice(("items", "items", "items", "contains", "unevaluatedItems", "prefixItems"))
        inside = self.schema(depth)
        schema[keyword] = [inside] * pick.choice((1, 3, 30)) if keyword == "prefixItems" else inside
        for keyword, value in (("uniqueItems", True), ("maxItems", 3), ("contains", self.schema(0)),
                               ("minContains", 5), ("maxContains", 2)):  # fmt: skip
            if pick.random() < 0.1:
                schema[keyword] = value
        return schema

    def object(self, depth: int) -> Json:
        pick = self.pick
        count = pick.choice((0, 1, 1, 2, 10, 100) if depth else (0, 1, 2, 10, 100, 800))
        inside = self.schema(depth)
        schema: dict[str, Json] = {"type": "object"} if pick.random() < 0.8 else {}
        if count:
            schema["properties"] = {f"p{i}": inside for i in range(count)}
        for keyword, value in (
            ("additionalProperties", pick.choice((False, True, self.schema(depth)))),
            ("patternProperties", {pick.choice(PATTERNS): self.schema(0)}),
            ("propertyNames", {"pattern": pick.choice(PATTERNS)}),
            ("required", [f"q{i}" for i in range(pick.choice((1, 30, 500)))]),
            ("dependentRequired", {"p0": [f"q{i}" for i in range(pick.choice((1, 30, 500)))]}),
            ("unevaluatedProperties", pick.choice((False, self.schema(0)))),
            ("maxProperties", 1),
        ):
            if pick.random() < (0.35 if keyword == "additionalProperties" else 0.07):
                schema[keyword] = value
        return schema

    def composed(self, depth: int) -> Json:
        pick = self.pick
        keyword = pick.choice(("anyOf", "anyOf", "oneOf", "oneOf", "allOf", "not", "if", "dependentSchemas"))
        inside = self.schema(depth)
        if keyword == "not":
            return {"not": inside}
        if keyword == "if":
            return {"if": inside, "then": self.schema(0), "else": self.schema(0)}
        width = pick.choice(WIDTHS)
        if keyword == "dependentSchemas":
            return {keyword: {f"p{i}": inside for i in range(width)}}
        return {keyword: [_varied(inside, i) for i in range(width)]}

    def changed_schema(self, schema: Json) -> Json:
        places = list(_places(schema))
        pick = self.pick
        holder, key = pick.choice(places)
        here = holder[key]
        changes: tuple[Callable[[], Json], ...] = (
            lambda: self.schema(2),
            lambda: {pick.choice(("anyOf", "oneOf")): [_varied(here, i) for i in range(pick.choice(WIDTHS))]},
            lambda: {"type": "array", pick.choice(("items", "contains")): here},
            lambda: {"type": "object", "properties": {f"p{i}": here for i in range(pick.choice(WIDTHS))}},
            lambda: {"type": "object", "additionalProperties": here},
            lambda: {**here, "default": self.default()} if isinstance(here, dict) else here,
            lambda: {**here, **self.scalar()} if isinstance(here, dict) else here,
            lambda: {**here, **self.object(0)} if isinstance(here, dict) else here,
            lambda: {**here, **self.array(0)} if isinstance(here, dict) else here,
            lambda: {k: v for k, v in here.items() if pick.random() < 0.7} if isinstance(here, dict) else {},
        )  # fmt: skip
        holder[key] = pick.choice(changes)()
        return schema

    # --- calls

    def fitting(self, schema: Json, root: Json, depth: int) -> Json:
        """A call that may well fit a schema, cut off at a depth."""
        pick = self.pick
        if not isinstance(schema, dict) or depth < 0:
            return self.value()
        if "$ref" in schema:
            target = root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2])
            return self.fitting(target, root, depth - 1)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if schema.get(keyword) and pick.random() < 0.8:
                return self.fitting(pick.choice(schema[keyword]), root, depth - 1)
        for keyword in ("properties", "additionalProperties"):
            if isinstance(schema.get(keyword), dict):
                return self._object_for(schema, root, depth)
        for keyword in ("items", "contains", "unevaluatedItems"):
            if isinstance(schema.get(keyword), dict):
                return {"§many": [self.fitting(schema[keyword], root, depth - 1), pick.choice(COUNTS)]}
        return self._scalar_for(schema)

    def _object_for(self, schema: Json, root: Json, depth: int) -> Json:
        pick = self.pick
        if not isinstance(schema.get("properties"), dict):
            inside = self.fitting(schema["additionalProperties"], root, depth - 1)
            return {"§names": [inside, pick.choice(COUNTS), pick.choice((1, 1, 20, 5_000))]}
        names = list(schema["properties"])
        if pick.random() < 0.3:
            names = pick.sample(names, pick.randint(0, len(names)))
        return {name: self.fitting(schema["properties"][name], root, depth - 1) for name in names[:100]}

    def _scalar_for(self, schema: Json) -> Json:
        pick = self.pick
        if "const" in schema or "enum" in schema:
            return schema.get("const", pick.choice(schema.get("enum") or [None]))
        if schema.get("type") == "string":
            return {"§text": [pick.choice(("a", "ab", "x1", "é")), pick.choice((0, 1, 10, 1_000, 4_000))]}
        if schema.get("type") in ("number", "integer") or "multipleOf" in schema:
            return {"§number": pick.choice(NUMBERS)}
        return self.value()

    def value(self) -> Json:
        pick = self.pick
        return pick.choice(
            (
                None, True, 1, "x", {}, [], {"p0": {}}, {"§number": pick.choice(NUMBERS)},
                {"§many": [pick.choice((0, "x", {}, [], {"p0": 1})), pick.choice(COUNTS)]},
                {"§names": [pick.choice((0, {}, "x")), pick.choice(COUNTS), pick.choice((1, 30))]},
                {"§text": ["ab", pick.choice((1, 4_000, 100_000))]},
            )
        )  # fmt: skip

    def changed_value(self, value: Json) -> Json:
        """The template with one place of it changed."""
        holder: list[Json] = [value]
        place, key = self.pick.choice([(holder, 0), *_inside(value)])
        here = place[key]
        pick = self.pick
        if place is not holder and _is_count(place, key, here):
            place[key] = max(0, int(here * pick.choice((0.3, 0.7, 1.4, 3, 10))) + pick.choice((-1, 0, 1)))
            return holder[0]
        changes: tuple[Callable[[], Json], ...] = (
            self.value,
            lambda: {"§many": [here, pick.choice(COUNTS)]},
            lambda: {"§names": [here, pick.choice(COUNTS), pick.choice((1, 1, 20, 500))]},
            lambda: [here] * pick.choice((1, 2, 3)),
            lambda: {f"p{i}": here for i in range(pick.choice((1, 2, 10)))},
        )
        place[key] = pick.choice(changes)()
        return holder[0]


def _bytes(part: Json, known: dict[int, int]) -> int:
    """About the bytes of a schema as JSON; parts that it shares are looked at once."""
    if id(part) not in known:
        if isinstance(part, dict):
            known[id(part)] = 2 + sum(len(name) + 4 + _bytes(value, known) for name, value in part.items())
        elif isinstance(part, list):
            known[id(part)] = 2 + sum(1 + _bytes(value, known) for value in part)
        else:
            return len(part) + 2 if isinstance(part, str) else 4
    return known[id(part)]


def _is_count(place: Any, key: Any, here: Json) -> bool:
    return isinstance(place, list) and key != 0 and type(here) is int


def scaled(template: Json, factor: float) -> Json:
    """The template with every count made smaller."""
    match template:
        case {"§many": [item, count]}:
            return {"§many": [scaled(item, factor), int(count * factor)]}
        case {"§names": [value, count, length]}:
            return {"§names": [scaled(value, factor), int(count * factor), length]}
        case {"§text": [text, count]}:
            return {"§text": [text, int(count * factor)]}
        case dict():
            return {name: scaled(value, factor) for name, value in template.items()}
        case list():
            return [scaled(value, factor) for value in template]
        case _:
            return template


def _varied(schema: Json, number: int) -> Json:
    """One of many alternatives: alike, yet not the same."""
    if not isinstance(schema, dict):
        return schema
    if "const" in schema:
        return {**schema, "const": number}
    if isinstance(schema.get("properties"), dict):
        return {**schema, "properties": {**schema["properties"], f"p{number}": True}}
    return {**schema, "minimum": number} if number % 2 else schema


def _places(schema: Json) -> list[tuple[Any, Any]]:
    """The places of a schema that hold another; of many alike only some."""
    found: list[tuple[Any, Any]] = []
    waiting = [schema]
    while waiting and len(found) < 500:
        here = waiting.pop()
        for keyword, value in here.items():
            inside: list[tuple[Any, Any]] = []
            if keyword in _MAPS and isinstance(value, dict):
                inside = [(value, name) for name in value]
            elif keyword in _LISTS and isinstance(value, list):
                inside = [(value, index) for index in range(len(value))]
            elif keyword in _SINGLE:
                inside = [(here, keyword)]
            found += inside[:5]
            waiting += [holder[key] for holder, key in inside[:3] if isinstance(holder[key], dict)]
    return found or [(schema, "properties")]


_MAPS = ("properties", "patternProperties", "$defs", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "contains", "additionalProperties", "not", "if", "then", "else", "propertyNames")


def _inside(value: Json) -> list[tuple[Any, Any]]:
    """Every place of a template that may be changed: values, and counts."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 500:
        match waiting.pop():
            case {"§number": _}:
                continue
            case {"§text": [_, _] as parts}:
                found.append((parts, 1))
            case {"§many": [item, _, *_] as parts} | {"§names": [item, _, *_] as parts}:
                found += [(parts, key) for key in range(len(parts))]
                waiting.append(item)
            case dict() as members:
                found += [(members, name) for name in members]
                waiting += members.values()
            case list() as items:
                found += [(items, index) for index in range(len(items))]
                waiting += items
    return found
