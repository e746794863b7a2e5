"""A bound on the work that any call can cause, found from the schema alone (VAL-7).

The engine holds the interpreter while it works, so no timer can stop it: what could run away is not let
in. `measure` counts, for the worst place of the schema, how many subschemas one value meets (`fanout`),
how much their work weighs (`steps`, of about 100 ns), what matching a character costs (`char_steps`), what a
digit of an integer beyond 64 bits costs (`digit_steps`), and what a number costs that is divided by a
fraction or compared with such an integer (`number_steps`, `exponent_steps`). A call's work is at most

    values × steps + characters × char_steps + wide digits × digit_steps
    + numbers × number_steps + exponents × exponent_steps
    + wide integers × wide digits × 2, where items are compared with each other
"""

import math
import operator
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec

from toolkeep.limits import FANOUT, KIB, PATTERN_BYTES, PATTERN_CACHE_BYTES, PATTERNS, SCHEMA_NODES
from toolkeep.validation.call_size import Size
from toolkeep.validation.references import applied_in_place, is_alone
from toolkeep.validation.schema_keywords import ASSERTED_FORMATS, Schema, all_schemas, is_leaf, types_of

_ROUNDS = 64
"""Levels of nesting that the analysis looks ahead; arguments are never nested deeper."""

_CONTAINER_OPTION_STEPS = 5
"""Comparing a value with one object or array of an enum (0.4 µs); plain options are hashed."""

_UNIQUE_STEPS = 4
"""Hashing one item for uniqueItems (0.3 µs)."""

_CHAR_STEPS_PER_KIB = 2
"""Matching one character, for each KiB of compiled pattern, when the engine's cache thrashes (0.2 µs)."""


_DIGIT_STEPS = {
    "minimum": 3, "maximum": 3, "exclusiveMinimum": 3, "exclusiveMaximum": 3, "multipleOf": 9, "const": 2,
    "enum": 2,
}  # fmt: skip
"""Handling one digit of an integer beyond 64 bits, which the engine turns into text and back (0.1 µs a
digit for a type check, 0.25 for a limit, 0.85 for multipleOf)."""

_FRACTION_STEPS = 40
"""Dividing a number by a fraction (`multipleOf: 0.01`): 3 µs for an amount of money, 11 for 17 digits."""

_WHOLE_STEPS = 8
"""Dividing a number with a fraction by a whole one (`multipleOf: 3`): 0.8 µs."""

_FRACTION_EXPONENT_STEPS = 3
"""The same for each power of ten of either, which the engine multiplies out (0.15 to 0.28 µs): a number took
100 µs under 5e-324."""

_BOUND_STEPS = 20
"""Comparing a number with a bound beyond 64 bits (1.5 to 3.7 µs)."""

_DIGITS_PER_STEP = 10
"""Digits of an integer beyond 64 bits in `const` or `enum` that are written out in a step, for any number."""

_OPTIONS_PER_ERROR = 10
"""Options of an enum that cost as much to list in an error as another error does."""

_MOST_PLACES = 10_000
"""Places that are weighed, counted each time they are reached.

Real tools need at most 376; without the limit a small schema with many references takes minutes to analyze.
"""

_NAME_ERRORS = 60
"""An error about a property's name copies the whole object, once for each bad name."""

PAIR_STEPS = 2
"""Comparing two such integers for uniqueItems, for each digit; the engine compares each with each."""


class TooCostly(ValueError):
    """The schema would let a call cost too much, or never terminate."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


class Cost(msgspec.Struct, frozen=True):
    """The most that one value, and one character, of a call can cost."""

    fanout: int
    steps: int
    char_steps: int
    digit_steps: int
    number_steps: int
    exponent_steps: int
    errors: int
    """The errors that one value can have; an error that lists many allowed values counts more."""
    matches_keys: bool
    """Whether patterns are matched against property names."""
    compares_items: bool
    """Whether array items are compared with each other."""
    has_alternatives: bool
    """Whether one error can hold the errors of several alternatives."""

    def work(self, size: Size) -> int:
        """An upper bound of the steps that validating a call of this size takes."""
        pairs = size.wide_integers * size.wide_digits * PAIR_STEPS if self.compares_items else 0
        return (
            size.values * self.steps
            + size.chars * self.char_steps
            + size.wide_digits * self.digit_steps
            + size.numbers * self.number_steps
            + size.exponents * self.exponent_steps
            + pairs
        )


class _Weight(NamedTuple):
    fanout: int
    steps: int
    chars: int
    digits: int
    numbers: int
    exponents: int
    errors: int

    def __add__(self, other: "_Weight") -> "_Weight":  # type: ignore[override]  # not as tuples are added
        return _Weight(*map(operator.add, self, other))


_NOTHING = _Weight(0, 0, 0, 0, 0, 0, 0)


def measure(root: dict[str, Any], *, fanout: int = FANOUT) -> Cost:
    """The cost of a closed schema; raises `TooCostly` where there is no acceptable bound."""
    analysis = _Analysis(root, fanout)
    worst = analysis.worst(root)
    return Cost(
        *worst,
        matches_keys=analysis.matches_keys,
        compares_items=analysis.compares_items,
        has_alternatives=analysis.has_alternatives,
    )


class _Analysis:
    """The places of a schema as a graph, whose weights are raised until a fixed point is reached."""

    def __init__(self, root: dict[str, Any], fanout: int) -> None:
        self.root = root
        self.matches_keys = False
        self.compares_items = False
        self.has_alternatives = False
        self._limit = fanout
        self._expansions = 0
        self._places = 0
        self._own: dict[int, _Weight] = {}
        self._inside: dict[int, list[tuple[_Weight, list[int]]]] = {}
        """For each place that holds others."""
        self._count(root)
        self._explore(root)

    def _count(self, root: Schema) -> None:
        """Bound the number of schemas and patterns before anything is multiplied."""
        patterns: set[str] = set()
        for count, schema in enumerate(all_schemas(root)):
            if count == SCHEMA_NODES:
                raise TooCostly(f"unfolds to more than {SCHEMA_NODES} parts", "use fewer definitions")
            if _COUNTED.isdisjoint(schema):
                continue
            if isinstance(schema.get("pattern"), str):
                patterns.add(schema["pattern"])
            named = schema.get("patternProperties", {})
            patterns.update(named)
            self.has_alternatives |= "anyOf" in schema or "oneOf" in schema
            self.compares_items |= bool(schema.get("uniqueItems"))
            self.matches_keys |= bool(named) or isinstance(schema.get("propertyNames"), dict)
        if len(patterns) > PATTERNS:
            raise TooCostly(f"has {len(patterns)} patterns, at most {PATTERNS} are allowed", "use fewer")

    def _explore(self, root: dict[str, Any]) -> None:
        """Find every place where a value can stand, and the schemas applied there."""
        waiting: list[dict[str, Any]] = [root]
        while waiting:
            schema = waiting.pop()
            if id(schema) in self._own:
                continue
            if is_leaf(schema) and _WEIGHS_MORE.isdisjoint(schema):
                self._own[id(schema)] = _own_weight(schema)
                self._expand_by_one()
                self._reach(_KINDS_OF_PLACES)
                continue
            group: list[dict[str, Any]] = []
            self._expand(schema, frozenset(), group)
            self._own[id(schema)] = sum(map(_own_weight, group), _NOTHING)
            places = list(_places(group))
            self._reach(len(places))
            self._inside[id(schema)] = [place.constant_and_parts() for place in places]
            waiting.extend(s for place in places for s in place.schemas if isinstance(s, dict))

    def _reach(self, places: int) -> None:
        self._places += places
        if self._places > _MOST_PLACES:
            raise TooCostly(f"unfolds to more than {_MOST_PLACES} places", "use fewer definitions")

    def worst(self, root: dict[str, Any]) -> _Weight:
        """The largest weight at any place. Each round looks one level of nesting further."""
        weights = dict(self._own)
        holders = self._holders()
        waiting: Iterable[int] = self._inside
        for _ in range(_ROUNDS):
            raised = {place: self._raise(place, weights) for place in waiting}
            if raised.get(id(root), weights[id(root)]).fanout > self._limit:
                raise TooCostly(
                    f"one value could be checked more than {self._limit} times",
                    "use fewer alternatives inside alternatives",
                )
            grown = [place for place, weight in raised.items() if weight != weights[place]]
            if not grown:
                break
            weights.update(raised)
            # the others cannot have changed
            waiting = {holder for place in grown for holder in holders[place]}
        return weights[id(root)]

    def _holders(self) -> dict[int, list[int]]:
        """For each place, the places that contain it."""
        holders: dict[int, list[int]] = {place: [] for place in self._own}
        for holder, insides in self._inside.items():
            for _, parts in insides:
                for part in parts:
                    holders[part].append(holder)
        return holders

    def _raise(self, place: int, weights: dict[int, _Weight]) -> _Weight:
        totals = {self._own[place]}  # most of the others are equal
        for constant, parts in self._inside[place]:
            total = constant
            for part in parts:
                total = weights[part] if total is _NOTHING else total + weights[part]
            totals.add(total)
        return _Weight(*map(max, zip(*totals, strict=True)))

    def _expand(self, schema: Schema, above: frozenset[int], group: list[dict[str, Any]]) -> None:
        """Add every schema applied to the same value, as often as it is applied."""
        if not isinstance(schema, dict):
            return
        if id(schema) in above:
            raise TooCostly("a reference leads back to itself without consuming input", "break the cycle")
        self._expand_by_one()
        group.append(schema)
        if not is_alone(schema):
            below = above | {id(schema)}
            for applied in applied_in_place(schema, self.root):
                self._expand(applied, below, group)

    def _expand_by_one(self) -> None:
        self._expansions += 1
        if self._expansions > SCHEMA_NODES:
            raise TooCostly(
                f"its references unfold to more than {SCHEMA_NODES} parts", "refer less often, or more simply"
            )


_WEIGHS_MORE = frozenset(("$ref", "uniqueItems"))
_COUNTED = frozenset(("anyOf", "oneOf", "pattern", "patternProperties", "propertyNames", "uniqueItems"))
_KINDS_OF_PLACES = 2
"""Under a name that is not listed, and in an array: the kinds that every schema covers."""


def _own_weight(schema: dict[str, Any]) -> _Weight:
    """The weight of one schema alone, applied to one value."""
    if _WEIGHED.isdisjoint(schema):  # the common case
        return _NUMBER if "number" in (types_of(schema) or ()) else _PLAIN
    containers = sum(isinstance(o, (dict, list)) for o in (*schema.get("enum", ()), schema.get("const")))
    required = len(schema.get("required", ())) + sum(map(len, schema.get("dependentRequired", {}).values()))
    chars = pattern_steps(schema["pattern"]) if isinstance(schema.get("pattern"), str) else 0
    chars += 1 if schema.get("format") in ASSERTED_FORMATS else 0
    dependents = len(schema.get("dependentRequired", ())) + len(schema.get("dependentSchemas", ()))
    steps = 1 + containers * _CONTAINER_OPTION_STEPS + dependents
    errors = 1 + required + len(schema.get("enum", ())) // _OPTIONS_PER_ERROR
    errors += _NAME_ERRORS if "propertyNames" in schema else 0
    return _Weight(1, steps, chars, _digit_steps(schema), *_number_steps(schema), errors)


_PLAIN = _Weight(1, 1, 0, 0, 0, 0, 1)
_NUMBER = _Weight(1, 1, 0, 1, 0, 0, 1)
_WEIGHED = frozenset(
    (
        "const", "dependentRequired", "dependentSchemas", "enum", "format", "pattern", "propertyNames",
         "required", *_DIGIT_STEPS,
    )
)  # fmt: skip
"""Keywords that cost more than a type check."""


def _digit_steps(schema: dict[str, Any]) -> int:
    types = types_of(schema)
    if types is not None and not types & {"number", "integer"}:
        return 0
    steps = 1 if types and "number" in types else 0
    for keyword, weight in _DIGIT_STEPS.items():
        value = schema.get(keyword, ())
        options = value if keyword == "enum" else (value,)
        steps += weight * any(isinstance(option, (int, float, dict, list)) for option in options)
    return steps


def _number_steps(schema: dict[str, Any]) -> tuple[int, int]:
    """What a number costs beyond one step, and what each power of ten of a fraction far from one costs."""
    numbers = exponents = 0
    divisor = schema.get("multipleOf")
    if isinstance(divisor, (int, float)):
        is_whole = float(divisor).is_integer() if abs(divisor) < _WIDEST else True
        if is_whole:
            numbers, exponents = _WHOLE_STEPS, 1
        else:
            numbers = _FRACTION_STEPS + _FRACTION_EXPONENT_STEPS * _decimals(divisor)
            exponents = _FRACTION_EXPONENT_STEPS
    numbers += _BOUND_STEPS * sum(_digits(schema.get(bound)) > 0 for bound in _BOUNDS)
    for option in _listed(schema):
        if digits := _digits(option):
            numbers += _BOUND_STEPS + digits // _DIGITS_PER_STEP
            exponents += _FRACTION_EXPONENT_STEPS
    return numbers, exponents


_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_WIDEST = 1e18
"""Numbers up to here fit 64 bits, where arithmetic takes constant time."""
_BITS_PER_DIGIT = 3


def _decimals(divisor: float) -> int:
    """Roughly the powers of ten that make a fraction an integer."""
    return max(0, -math.frexp(divisor)[1]) // _BITS_PER_DIGIT


def _digits(number: Any) -> int:
    """The digits of a number beyond 64 bits; 0 for others."""
    if not isinstance(number, (int, float)) or abs(number) < _WIDEST:
        return 0
    bits = number.bit_length() if isinstance(number, int) else math.frexp(number)[1]
    return bits // _BITS_PER_DIGIT


def _listed(schema: dict[str, Any]) -> Iterator[Any]:
    """The values that a schema lists, and all values inside them."""
    waiting = [*schema.get("enum", ()), schema.get("const")]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, (dict, list)):
            waiting.extend(value.values() if isinstance(value, dict) else value)


class _Place(NamedTuple):
    """What is applied to one child of a value: schemas, patterns matched against its name, further steps."""

    schemas: list[Schema]
    patterns: tuple[str, ...] = ()
    steps: int = 0

    def constant_and_parts(self) -> tuple[_Weight, list[int]]:
        """The constant cost of the place, and the schemas that add to it."""
        parts = [id(schema) for schema in self.schemas if isinstance(schema, dict)]
        trivial = len(self.schemas) - len(parts)
        if not trivial and not self.steps and not self.patterns:
            return _NOTHING, parts
        chars = sum(pattern_steps(pattern) for pattern in self.patterns)
        return _Weight(trivial, trivial + self.steps, chars, 0, 0, 0, trivial), parts


def _places(group: list[dict[str, Any]]) -> Iterator[_Place]:
    """Each kind of child that a value can have: by name, by any other name, by position."""
    named: dict[str, list[Schema]] = {}
    any_name: list[Schema] = []
    patterns: list[str] = []
    items: list[Schema] = []
    unique = 0
    for schema in group:
        if "uniqueItems" in schema:
            unique += _UNIQUE_STEPS * bool(schema["uniqueItems"])
        if is_leaf(schema):
            continue
        for name, child in schema.get("properties", {}).items():
            named.setdefault(name, []).append(child)
        if "patternProperties" in schema:
            patterns += schema["patternProperties"]
            any_name += schema["patternProperties"].values()
        any_name += [schema[k] for k in _ANY_NAME if k in schema and isinstance(schema[k], dict)]
        items += [schema[k] for k in _ANY_ITEM if k in schema and isinstance(schema[k], dict)]
        for keyword in ("prefixItems", "items"):
            if isinstance(schema.get(keyword), list):
                items += schema[keyword]
    for children_of_name in named.values():
        yield _Place([*children_of_name, *any_name], tuple(patterns), len(patterns))
    yield _Place(any_name, tuple(patterns), len(patterns))
    yield _Place(items, (), unique)


_ANY_NAME = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM = ("items", "contains", "unevaluatedItems", "additionalItems")


@lru_cache(maxsize=1000)  # bounded: imported schemas bring patterns without end
def pattern_steps(pattern: str) -> int:
    """The steps of matching one character, derived from the compiled size of the pattern."""
    size = KIB // 2
    while size < PATTERN_BYTES and not _compiles(pattern, size):
        size *= 2
    return max(1, size * _CHAR_STEPS_PER_KIB // KIB)


def _compiles(pattern: str, size: int) -> bool:
    options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=PATTERN_CACHE_BYTES)
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True, pattern_options=options)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True
