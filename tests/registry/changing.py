"""Random schemas, random changes of them and calls aimed at both: does what the difference promises hold?

A plain generator, many times as fast as a property test: for the long form in `soak.py`, and for a short one in
the tests.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from toolkeep.compat.change_effects import Effect, SchemaChange
from toolkeep.compat.definition_diff import schema_changes
from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.validation.compile import compile_arguments, compile_output

Schema = Any
NAMES = ("a", "b", "x", "y", "value", "next", "xa")
TEXTS = ("", "a", "b", "x", "ab", "xyz", "abcde", "2026-01-01", "a@b.example", "1")
NUMBERS = (-1, 0, 1, 2, 3, 4, 6, 7, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 1e3, 2**53, 2**64)
TYPES = ("integer", "number", "string", "null", "object", "array", "boolean")


@dataclass(kw_only=True)
class Found:
    """What a run saw."""

    changes: int = 0
    promises: int = 0
    calls: int = 0
    failures: list[str] = field(default_factory=list)


def run(seed: int, *, changes: int) -> Found:
    """So many random changes, each compared with calls where something is promised."""
    chance, found = random.Random(seed), Found()  # noqa: S311 -- no secret
    for _ in range(changes):
        before = Maker(chance).root()
        after = Changer(chance).changed_root(before)
        _compare(before, after, chance, found)
    return found


def joint_effect(changes: tuple[SchemaChange, ...]) -> Effect:
    """What all changes of a schema mean together."""
    effects = {change.effect for change in changes} - {Effect.WORDS}
    if not effects:
        return Effect.WORDS
    return effects.pop() if len(effects) == 1 else Effect.CHANGED


def _compare(before: Schema, after: Schema, chance: random.Random, found: Found) -> None:
    closes = chance.random() < 0.7
    make = compile_arguments if closes else compile_output
    made = [make(schema, by_hand=False, limits=DEFAULT_LIMITS).compiled for schema in (before, after)]
    effect = joint_effect(schema_changes(before, after, "parameters", closes=closes))
    found.changes += 1
    if made[0] is None or made[1] is None or effect is Effect.CHANGED:
        return
    found.promises += 1
    aim = Aim(chance)
    for root in (before, after) * 12:
        call = aim.at(root, root)
        if not isinstance(call, dict):
            continue
        found.calls += 1
        was, is_now = made[0].is_valid(call), made[1].is_valid(call)
        if not _holds(effect, was_valid=was, is_valid=is_now):
            found.failures.append(
                f"closes={closes} {effect}: {before!r} -> {after!r} with {call!r}: {was} then {is_now}"
            )
            return


def _holds(effect: Effect, *, was_valid: bool, is_valid: bool) -> bool:
    if effect is Effect.WIDENED:
        return is_valid or not was_valid
    if effect is Effect.NARROWED:
        return was_valid or not is_valid
    return was_valid == is_valid


class Maker:
    """Schemas of every keyword that is compared."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def root(self) -> dict[str, Any]:
        chance = self.chance
        made: dict[str, Any] = {"properties": {name: self.part(3) for name in self.some(NAMES, 1, 3)}}
        if chance.random() < 0.8:
            made["type"] = "object"
        made |= {k: v for k, v in self.objects(2).items() if k != "properties" and chance.random() < 0.5}
        if chance.random() < 0.15:
            made[chance.choice(("allOf", "anyOf"))] = [self.part(2) for _ in range(chance.randint(1, 2))]
        made["$defs"] = {"n": self.part(2), "m": self.part(2)}
        return made

    def part(self, depth: int) -> Schema:
        kinds = ["typed", "strings", "numbers", "enum", "const", "any", "boolean", "mixed", "reference"]
        if depth:
            kinds += [
                "arrays",
                "arrays",
                "objects",
                "objects",
                "composed",
                "composed",
                "negated",
                "conditional",
            ]
        kind = self.chance.choice(kinds)
        made: Schema = getattr(self, f"_{kind}")(depth)
        if isinstance(made, dict) and self.chance.random() < 0.1:
            made["description"] = self.chance.choice(TEXTS)
        if isinstance(made, dict) and self.chance.random() < 0.05:
            made["default"] = self.chance.choice(TEXTS)
        return made

    def some(self, choices: tuple[Any, ...], least: int, most: int) -> list[Any]:
        return self.chance.sample(choices, self.chance.randint(least, most))

    def objects(self, depth: int) -> dict[str, Any]:
        chance = self.chance

        def part() -> Schema:
            return self.part(max(depth - 1, 0))

        made: dict[str, Any] = {}
        if chance.random() < 0.8:
            made["properties"] = {name: part() for name in self.some(NAMES, 0, 3)}
        if chance.random() < 0.4:
            made["required"] = self.some(NAMES, 0, 2)
        if chance.random() < 0.4:
            made["additionalProperties"] = chance.choice((True, False, part()))
        if chance.random() < 0.2:
            made["patternProperties"] = {chance.choice(("^x", "a", "y$")): part()}
        if chance.random() < 0.15:
            made[chance.choice(("minProperties", "maxProperties"))] = chance.randint(0, 3)
        if chance.random() < 0.1:
            made["propertyNames"] = chance.choice(
                ({"maxLength": 1}, {"pattern": "^[a-x]"}, {"enum": ["a", "x"]})
            )
        if chance.random() < 0.1:
            made["dependentRequired"] = {chance.choice(NAMES): self.some(NAMES, 0, 2)}
        if chance.random() < 0.05:
            made["dependentSchemas"] = {chance.choice(NAMES): part()}
        if chance.random() < 0.05:
            made["unevaluatedProperties"] = chance.choice((True, False, part()))
        return made

    def _typed(self, _: int) -> Schema:
        return {"type": self.chance.choice(TYPES)}

    def _strings(self, _: int) -> Schema:
        made: dict[str, Any] = {"type": "string"} if self.chance.random() < 0.8 else {}
        for keyword in self.some(("minLength", "maxLength", "pattern", "format"), 1, 2):
            made[keyword] = (
                self.chance.choice(("^a", "b$", "."))
                if keyword == "pattern"
                else self.chance.choice(("date", "email"))
                if keyword == "format"
                else self.chance.randint(0, 3)
            )
        return made

    def _numbers(self, _: int) -> Schema:
        made: dict[str, Any] = (
            {"type": self.chance.choice(("integer", "number"))} if self.chance.random() < 0.8 else {}
        )
        for keyword in self.some(
            ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), 1, 3
        ):
            steps = keyword == "multipleOf"
            made[keyword] = (
                self.chance.choice((1, 2, 3, 0.5, 0.1, 4)) if steps else self.chance.choice(NUMBERS[:12])
            )
        return made

    def _enum(self, _: int) -> Schema:
        values: tuple[Any, ...] = (None, True, False, *TEXTS[:4], *NUMBERS[:8], 1.0, [], ["a"], {}, {"a": 1})
        made: dict[str, Any] = {"enum": self.some(values, 1, 4)}
        if self.chance.random() < 0.2:
            made["type"] = self.chance.choice(TYPES)
        return made

    def _const(self, _: int) -> Schema:
        made: dict[str, Any] = {"const": self.chance.choice((None, True, 1, 1.0, 0, "a", "", [1], {"a": 1}))}
        if self.chance.random() < 0.1:
            made["enum"] = [1, "a", None]
        return made

    def _any(self, _: int) -> Schema:
        return {}

    def _boolean(self, _: int) -> Schema:
        return self.chance.random() < 0.6

    def _mixed(self, depth: int) -> Schema:
        made: dict[str, Any] = {"type": self.some(TYPES, 1, 3)}
        for maker in self.chance.sample((self._strings, self._numbers, self._arrays), 1):
            made |= {k: v for k, v in maker(max(depth - 1, 0)).items() if k != "type"}
        return made

    def _reference(self, depth: int) -> Schema:
        made: dict[str, Any] = {"$ref": f"#/$defs/{self.chance.choice('nm')}"}
        if depth and self.chance.random() < 0.3:
            beside = self.part(depth - 1)
            made |= beside if isinstance(beside, dict) else {}
        return made

    def _arrays(self, depth: int) -> Schema:
        chance, below = self.chance, max(depth - 1, 0)
        made: dict[str, Any] = {"type": "array"} if chance.random() < 0.7 else {}
        if chance.random() < 0.7:
            made["items"] = self.part(below)
        if chance.random() < 0.25:
            made["prefixItems"] = [self.part(below) for _ in range(chance.randint(1, 2))]
        if chance.random() < 0.2:
            made["contains"] = self.part(below)
            if chance.random() < 0.5:
                made[chance.choice(("minContains", "maxContains"))] = chance.randint(0, 2)
        if chance.random() < 0.3:
            made[chance.choice(("minItems", "maxItems"))] = chance.randint(0, 2)
        if chance.random() < 0.2:
            made["uniqueItems"] = chance.random() < 0.7
        if chance.random() < 0.05:
            made["unevaluatedItems"] = self.part(below)
        return made

    def _objects(self, depth: int) -> Schema:
        made = self.objects(depth)
        return {"type": "object", **made} if self.chance.random() < 0.7 else made

    def _composed(self, depth: int) -> Schema:
        keyword = self.chance.choice(("allOf", "anyOf", "oneOf"))
        made: dict[str, Any] = {keyword: [self.part(depth - 1) for _ in range(self.chance.randint(1, 3))]}
        if self.chance.random() < 0.3:
            beside = self.part(depth - 1)
            made |= beside if isinstance(beside, dict) else {}
        return made

    def _negated(self, depth: int) -> Schema:
        return {"not": self.part(depth - 1)}

    def _conditional(self, depth: int) -> Schema:
        made: dict[str, Any] = {"if": self.part(depth - 1)}
        for keyword in self.some(("then", "else"), 0, 2):
            made[keyword] = self.part(depth - 1)
        return made


class Changer(Maker):
    """Changes one or two places of a schema."""

    def changed_root(self, root: dict[str, Any]) -> dict[str, Any]:
        made = root
        for _ in range(1 if self.chance.random() < 0.7 else 2):
            kind = self.chance.choice(("properties", "properties", "$defs", "root"))
            if kind == "root":
                more = {k: v for k, v in self.objects(2).items() if k != "properties"}
                key = self.chance.choice(sorted(more) or ["required"])
                made = (
                    {**made, key: more.get(key, [])}
                    if more
                    else {k: v for k, v in made.items() if k != "required"}
                )
            else:
                name = self.chance.choice(sorted(made[kind])) if made[kind] else "a"
                made = {**made, kind: self._changed_map(made[kind], name, is_fixed=kind == "$defs")}
        return made

    def _changed_map(self, schemas: dict[str, Any], name: str, *, is_fixed: bool) -> dict[str, Any]:
        kind = self.chance.random()
        if is_fixed or kind < 0.6:
            return {**schemas, name: self.changed(schemas.get(name, True))}
        if kind < 0.75:
            return {key: value for key, value in schemas.items() if key != name}
        if kind < 0.85:
            other = self.chance.choice(NAMES)
            return {(other if key == name else key): value for key, value in schemas.items()}
        return {**schemas, self.chance.choice(NAMES): self.part(2)}

    def changed(self, schema: Schema) -> Schema:
        if not isinstance(schema, dict) or not schema or self.chance.random() < 0.15:
            return self.part(2)
        key = self.chance.choice(sorted(schema))
        if self.chance.random() < 0.15:
            return {k: v for k, v in schema.items() if k != key}
        if self.chance.random() < 0.15:
            more = self.part(1)
            return {**schema, **more} if isinstance(more, dict) else schema
        return {**schema, key: self._value(key, schema[key])}

    def _value(self, key: str, value: Any) -> Any:
        if key in ("properties", "patternProperties", "dependentSchemas") and value:
            return self._changed_map(value, self.chance.choice(sorted(value)), is_fixed=key != "properties")
        if key in ("allOf", "anyOf", "oneOf", "prefixItems"):
            return self._changed_list(value)
        if key in ("enum", "required") and isinstance(value, list):
            return value[1:] or value if self.chance.random() < 0.5 else [*value, *self._more(key, value)]
        if isinstance(value, dict) and key not in ("const", "default", "dependentRequired"):
            return self.changed(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return max(value + self.chance.choice((-1, 1)), 1 if key == "multipleOf" else 0)
        if key == "type":
            return self.chance.choice((self.chance.choice(TYPES), self.some(TYPES, 1, 3)))
        return value

    def _changed_list(self, parts: list[Any]) -> list[Any]:
        kind, index = self.chance.random(), self.chance.randrange(len(parts))
        if kind < 0.5:
            return [self.changed(part) if number == index else part for number, part in enumerate(parts)]
        if kind < 0.7:
            return [*parts, self.part(1)]
        return parts[:index] + parts[index + 1 :] if len(parts) > 1 else parts[::-1]

    def _more(self, key: str, value: list[Any]) -> list[Any]:
        more = (
            self.chance.choice(NAMES) if key == "required" else self.chance.choice((None, 2, "b", True, 1.0))
        )
        return [] if more in value else [more]


class Aim:
    """Values that come near to what a schema takes: those that fit, and those that just do not."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def at(self, schema: Schema, root: dict[str, Any], depth: int = 4) -> Any:
        chance = self.chance
        if not isinstance(schema, dict) or not schema or not depth or chance.random() < 0.12:
            return self.anything(depth)
        if "$ref" in schema and chance.random() < 0.8:
            return self.at(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth - 1)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if schema.get(keyword) and chance.random() < 0.7:
                return self.at(chance.choice(schema[keyword]), root, depth - 1)
        for keyword in ("not", "if", "then", "else"):
            if keyword in schema and chance.random() < 0.4:
                return self.at(schema[keyword], root, depth - 1)
        if "enum" in schema and schema["enum"] and chance.random() < 0.9:
            return chance.choice(schema["enum"])
        if "const" in schema and chance.random() < 0.9:
            return schema["const"]
        return self._typed(schema, root, depth)

    def _typed(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type") or next((kind for words, kind in _HINTS if words & schema.keys()), None)
        if isinstance(kind, list):
            kind = self.chance.choice(kind)
        if kind == "object":
            return self._object(schema, root, depth)
        if kind == "array":
            return self._array(schema, root, depth)
        if kind == "string":
            return self.chance.choice(TEXTS)
        if kind in ("integer", "number"):
            bounds = [value for key, value in schema.items() if key in _BOUNDS]
            near = [bound + step for bound in bounds for step in (-1, -0.5, 0, 0.5, 1)]
            return self.chance.choice((*near, *NUMBERS))
        return self.anything(depth)

    def _object(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> dict[str, Any]:
        chance, made = self.chance, dict[str, Any]()
        described = schema.get("properties") or {}
        names = {*schema.get("required", ()), *(name for name in described if chance.random() < 0.6)}
        if chance.random() < 0.3:
            names.add(chance.choice(NAMES))
        if names and chance.random() < 0.15:
            names.discard(chance.choice(sorted(names)))
        rest = schema.get("additionalProperties", True)
        for name in sorted(names):
            made[name] = self.at(described.get(name, rest), root, depth - 1)
        return made

    def _array(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> list[Any]:
        first = [self.at(part, root, depth - 1) for part in schema.get("prefixItems", ())]
        first = first[: self.chance.randint(0, len(first))] if self.chance.random() < 0.3 else first
        inside = [schema[key] for key in ("items", "contains", "unevaluatedItems") if key in schema] or [True]
        more = [
            self.at(self.chance.choice(inside), root, depth - 1) for _ in range(self.chance.randint(0, 3))
        ]
        return [*first, *more, *more[:1]] if self.chance.random() < 0.2 else [*first, *more]

    def anything(self, depth: int) -> Any:
        chance = self.chance
        kind = chance.randrange(6 if depth > 1 else 4)
        if kind == 0:
            return chance.choice((None, True, False))
        if kind == 1:
            return chance.choice(NUMBERS)
        if kind in (2, 3):
            return chance.choice(TEXTS)
        if kind == 4:
            return [self.anything(depth - 2) for _ in range(chance.randint(0, 3))]
        return {name: self.anything(depth - 2) for name in chance.sample(NAMES, chance.randint(0, 3))}


_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_HINTS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset(("properties", "required", "additionalProperties", "patternProperties", "propertyNames")),
        "object",
    ),
    (frozenset(("items", "prefixItems", "contains", "uniqueItems", "minItems", "maxItems")), "array"),
    (frozenset(("minLength", "maxLength", "pattern", "format")), "string"),
    (_BOUNDS, "number"),
)


def seeds(first: int) -> Iterator[int]:
    """One after the other, without end."""
    while True:
        yield first
        first += 1
