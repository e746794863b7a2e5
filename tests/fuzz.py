"""Random schemas and calls, and the properties that must hold for every one of them.

A short run is part of the tests, a long one of `scripts/soak`. The oracle is python-jsonschema, which
shares no code with our engine.
"""

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonschema

from toolkeep import ToolDefinition
from toolkeep.calls import Refusal, RegisteredTool
from toolkeep.errors import DefinitionError
from toolkeep.registry.admit import admit
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.repair import apply_patch
from toolkeep.validation.validate import validate

NAMES = ("a", "b", "c", "name", "nmae")
WORDS = ("", "a", "ab", "fast", "FAST", "42", "true", "null", "[1]", "{}", "é", "x" * 9)
NUMBERS: tuple[int | float, ...] = (0, 1, -1, 2, 3, 1.0, 1.5, -0.0, 42, 10**20, 2**53)


class Case(NamedTuple):
    """One schema and one value, and what was found."""

    schema: Any
    value: Any
    dialect: str


class Maker:
    """Makes schemas and values from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 -- reproducible, not secret
        self.definitions: list[str] = []
        self.says_everything = self.random.random() < 0.3

    def root(self, dialect: str) -> dict[str, Any]:
        """A schema for the arguments of a tool."""
        pick = self.random
        self.definitions = [f"d{i}" for i in range(pick.randint(0, 3))]
        schema = self.object(3)
        if pick.random() < 0.3:
            schema.update(self.composition(2))
        if self.definitions and pick.random() < 0.15:
            kept = {k: v for k, v in schema.items() if k != "properties" or pick.random() < 0.5}
            schema = {"$ref": f"#/$defs/{pick.choice(self.definitions)}", **kept}
        key = "definitions" if dialect == "draft7" else "$defs"
        if self.definitions:
            schema[key] = {name: self.schema(2) for name in self.definitions}
        text = json.dumps(schema).replace("#/$defs/", f"#/{key}/")
        fixed: dict[str, Any] = json.loads(text)
        return fixed

    def schema(self, depth: int) -> Any:
        """Any schema."""
        pick = self.random
        roll = pick.random()
        if roll < 0.04:
            return pick.choice([True, False, {}])
        if depth > 0 and roll < 0.3:
            schema = self.composition(depth - 1)
            if pick.random() < 0.4:
                schema.update(self.object(depth - 1))
            return schema
        if roll < 0.4 and self.definitions:
            return {"$ref": f"#/$defs/{pick.choice(self.definitions)}"}
        if depth > 0 and roll < 0.6:
            return self.object(depth - 1)
        if depth > 0 and roll < 0.7:
            return self.array(depth - 1)
        return self.scalar()

    def object(self, depth: int) -> dict[str, Any]:
        pick = self.random
        names = pick.sample(NAMES, pick.randint(0, 3))
        schema: dict[str, Any] = {}
        if pick.random() < 0.8:
            schema["type"] = "object"
        if names or pick.random() < 0.5:
            schema["properties"] = {name: self.schema(depth) for name in names}
        if names and pick.random() < 0.5:
            schema["required"] = pick.sample(names, pick.randint(1, len(names)))
        extras: dict[str, Any] = {
            "additionalProperties": pick.choice([True, False, self.schema(0)]),
            "patternProperties": {pick.choice(["^a", "b$", "."]): self.schema(0)},
            "propertyNames": {"maxLength": pick.randint(1, 4)},
            "minProperties": pick.randint(0, 2),
            "maxProperties": pick.randint(0, 3),
        }
        for keyword, value in extras.items():
            if pick.random() < 0.12 or (keyword == "additionalProperties" and self.says_everything):
                schema[keyword] = value
        return schema

    def array(self, depth: int) -> dict[str, Any]:
        pick = self.random
        schema: dict[str, Any] = {"type": "array"}
        if pick.random() < 0.8:
            schema["items"] = self.schema(depth)
        for keyword, value in {
            "minItems": pick.randint(0, 2),
            "maxItems": pick.randint(0, 3),
            "uniqueItems": True,
            "contains": self.schema(0),
        }.items():
            if pick.random() < 0.15:
                schema[keyword] = value
        return schema

    def composition(self, depth: int) -> dict[str, Any]:
        pick = self.random
        keyword = pick.choice(["allOf", "anyOf", "oneOf", "not", "if", "oneOf", "anyOf"])
        if keyword == "not":
            return {"not": self.schema(depth)}
        if keyword == "if":
            return {"if": self.schema(depth), "then": self.schema(depth), "else": self.schema(depth)}
        return {keyword: [self.schema(depth) for _ in range(pick.randint(1, 3))]}

    def scalar(self) -> dict[str, Any]:
        pick = self.random
        return pick.choice(
            [
                {"type": "string"},
                {"type": "string", "maxLength": pick.randint(0, 5)},
                {"type": "string", "pattern": pick.choice(["^a", "a", "^[0-9]+$"])},
                {"type": "integer"},
                {"type": "integer", "minimum": pick.randint(-1, 3)},
                {"type": "number", "maximum": 2},
                {"type": "boolean"},
                {"type": "null"},
                {"type": ["integer", "null"]},
                {"type": ["string", "number"]},
                {"enum": pick.sample(["fast", "safe", 1, None, True, "42"], 3)},
                {"const": pick.choice(["fast", 1, False])},
                {"type": "integer", "default": pick.choice([1, "1"])},
                {"pattern": "a"},
                {"minimum": 1},
            ]
        )

    def value(self, depth: int) -> Any:
        """Any JSON value."""
        pick = self.random
        roll = pick.random()
        if depth and roll < 0.45:
            names = pick.sample(NAMES, pick.randint(0, 3))
            return {name: self.value(depth - 1) for name in names}
        if depth and roll < 0.6:
            return [self.value(depth - 1) for _ in range(pick.randint(0, 3))]
        return pick.choice([pick.choice(WORDS), pick.choice(NUMBERS), True, False, None])

    def arguments(self, schema: dict[str, Any]) -> Any:
        """Arguments, more often than not close to what the schema wants."""
        if self.random.random() < 0.7:
            value = self.near(schema, schema, 6)
        else:
            value = self.value(3)
        return value if isinstance(value, dict) or self.random.random() < 0.1 else {"a": value}

    def near(self, schema: Any, root: dict[str, Any], depth: int) -> Any:
        """A value that often fits: it follows one branch and now and then goes astray."""
        pick = self.random
        if not isinstance(schema, dict) or depth == 0 or pick.random() < 0.08:
            return self.value(1)
        if "$ref" in schema:
            kind, name = schema["$ref"].split("/")[1:]
            return self.near(root[kind][name], root, depth - 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return pick.choice(schema["enum"])
        parts = [schema, *schema.get("allOf", ()), schema.get("then", {})]
        parts += [pick.choice(schema[k]) for k in ("anyOf", "oneOf") if schema.get(k)]
        if any("properties" in p or p.get("type") == "object" for p in parts if isinstance(p, dict)):
            return self.near_object([p for p in parts if isinstance(p, dict)], root, depth)
        if len(parts) > 2:
            return self.near(parts[-1], root, depth - 1)
        if schema.get("type") == "array":
            return [self.near(schema.get("items", True), root, depth - 1) for _ in range(pick.randint(0, 2))]
        by_type = {
            "string": WORDS,
            "integer": (0, 1, 2, 1.0, 42),
            "number": NUMBERS,
            "boolean": (True, False),
        }
        kinds = schema.get("type", "null")
        kind = pick.choice(kinds) if isinstance(kinds, list) else kinds
        return pick.choice(by_type.get(kind, (None,)))

    def near_object(self, parts: list[dict[str, Any]], root: dict[str, Any], depth: int) -> dict[str, Any]:
        value = {}
        for part in parts:
            for name, inside in part.get("properties", {}).items():
                if name in part.get("required", ()) or self.random.random() < 0.5:
                    value[name] = self.near(inside, root, depth - 1)
        if self.random.random() < 0.1:
            value[self.random.choice(NAMES)] = self.value(0)
        return value


ORACLES = {
    "2020-12": (None, jsonschema.Draft202012Validator),
    "2019-09": ("https://json-schema.org/draft/2019-09/schema", jsonschema.Draft201909Validator),
    "draft7": ("http://json-schema.org/draft-07/schema#", jsonschema.Draft7Validator),
}


class Found(NamedTuple):
    """What a run came across."""

    schemas: int
    calls: int
    accepted: int
    repaired: int
    failures: list[tuple[str, Case]]


def run(seed: int, schemas: int, calls_each: int = 12) -> Found:
    """Check every property on random cases; failures are returned, not raised."""
    used = calls = accepted = repaired = 0
    failures: list[tuple[str, Case]] = []
    for number in range(schemas):
        maker = Maker(seed * 1_000_003 + number)
        dialect = maker.random.choice(["2020-12", "2020-12", "2019-09", "draft7"])
        schema = maker.root(dialect)
        address, oracle_class = ORACLES[dialect]
        if address:
            schema["$schema"] = address
        try:
            tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": schema}))
        except DefinitionError:
            continue
        used += 1
        oracle = oracle_class(schema)
        for _ in range(calls_each):
            value = maker.arguments(schema)
            calls += 1
            case = Case(schema, value, dialect)
            wrong, is_accepted, is_repaired = _check(tool, oracle, case)
            accepted += is_accepted
            repaired += is_repaired
            failures += [(reason, case) for reason in wrong]
    return Found(used, calls, accepted, repaired, failures)


def _check(tool: RegisteredTool, oracle: Any, case: Case) -> tuple[list[str], bool, bool]:
    wrong = []
    raw = json.dumps(case.value).encode()
    by_bytes = validate(tool, raw, RefusalHistory(), "fuzz")
    by_data = validate(tool, case.value, RefusalHistory(), "fuzz")
    try:
        fits = isinstance(case.value, dict) and oracle.is_valid(case.value)
    except RecursionError:
        return [], False, False
    if by_bytes.success and not fits:
        wrong.append("accepted what the schema rejects")
    if by_bytes.success is not by_data.success and not isinstance(case.value, str):
        wrong.append("bytes and data disagree")
    if by_bytes.success:
        wrong += _wrong_with_accepted(tool, case.value, by_bytes.arguments)
    if isinstance(by_bytes, Refusal):
        if not by_bytes.errors or not by_bytes.text or len(by_bytes.text) > 1300:
            wrong.append("refusal without errors or with too long a text")
        if any(error.code == "ACODE-TSR-014" for error in by_bytes.errors):
            wrong.append("refusal that could not be explained")
        if by_bytes.repair is not None:
            patched = apply_patch(case.value, by_bytes.repair)
            if not validate(tool, patched, RefusalHistory(), "fuzz").success:
                wrong.append("repair does not repair")
            return wrong, False, True
        hides = case.dialect == "draft7" and "$ref" in case.schema  # there $ref hides what stands beside it
        if fits and not hides and "additionalProperties" in case.schema and _says_everything(case.schema):
            wrong.append("refused what a schema that closes its own objects accepts")
    return wrong, by_bytes.success, False


def _wrong_with_accepted(tool: RegisteredTool, value: Any, arguments: Any) -> Iterator[str]:
    """What must not be said of a call that passed, and of the arguments that came of it."""
    if not validate(tool, arguments, RefusalHistory(), "fuzz").success:
        yield "what passed does not pass again"
    if any(validate(tool, text, RefusalHistory(), "fuzz").success for text in _doubled(value)):
        yield "accepted a key that stands twice"


def _doubled(value: dict[str, Any]) -> Iterator[bytes]:
    """The text of a call, with each of its members once more."""
    text = json.dumps(value)
    return (
        f"{{{json.dumps(name)}:{json.dumps(inside)},{text[1:]}".encode() for name, inside in value.items()
    )


def _says_everything(schema: Any) -> bool:
    """Whether every object schema states additionalProperties itself, so that closing changes nothing."""
    if isinstance(schema, list):
        return all(map(_says_everything, schema))
    if not isinstance(schema, dict):
        return True
    is_object = "properties" in schema or schema.get("type") == "object"
    if is_object and "additionalProperties" not in schema:
        return False
    return all(_says_everything(value) for value in schema.values())
