"""Faults become violations that a model can mend: each with a pointer, what is expected, and what to do.

Built from the engine's structured kinds, never from its English, and from the call itself; what is secret
stays out (`Secrecy` decides). At most `limits.errors`, in schema order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from jsonschema_rs import ValidationErrorKind as Kind

from toolkeep.calls import Violation
from toolkeep.definitions.parameter import is_secret
from toolkeep.errors import Code
from toolkeep.limits import LISTED_NAMES
from toolkeep.pointers import pointer
from toolkeep.validation.compiler import CompiledSchema
from toolkeep.validation.faults import Fault, Place
from toolkeep.validation.hint import describe
from toolkeep.validation.keywords import Schema
from toolkeep.validation.nearest import probable_name
from toolkeep.validation.patterns import as_meant
from toolkeep.wording import HIDDEN, echo, echo_name, listing, type_name

_LIMITS: dict[type[Kind], tuple[str, str]] = {
    Kind.Minimum: ("be", "at least {}"),
    Kind.Maximum: ("be", "at most {}"),
    Kind.ExclusiveMinimum: ("be", "more than {}"),
    Kind.ExclusiveMaximum: ("be", "less than {}"),
    Kind.MinLength: ("have", "at least {} characters"),
    Kind.MaxLength: ("have", "at most {} characters"),
    Kind.MinItems: ("have", "at least {} items"),
    Kind.MaxItems: ("have", "at most {} items"),
    Kind.AdditionalItems: ("have", "at most {} items"),
    Kind.MinProperties: ("have", "at least {} properties"),
    Kind.MaxProperties: ("have", "at most {} properties"),
}

_SIMPLER = "Send a simpler value"
_OTHER = "Send another value"
_ALTERNATIVES = (Kind.AnyOf, Kind.OneOfNotValid, Kind.OneOfMultipleValid)
_UNKNOWN = (Kind.AdditionalProperties, Kind.UnevaluatedProperties)


def violations_of(
    compiled: CompiledSchema,
    value: Any,
    faults: Sequence[Fault],
) -> tuple[Violation, ...]:
    """What to tell the model about the faults of one call."""
    report = _Report(compiled, value)
    found: dict[Violation, Place] = {}
    for fault in without_echoes(faults):
        for place, violation in report.explain(fault, alternatives=3):
            found.setdefault(violation, place)
    if not found:
        found = {report.misfit(fault.place): fault.place for fault in faults[:1]}
    if len(found) == 1:
        return tuple(found)
    ordered = sorted(found, key=lambda violation: report.order(found[violation]))
    return tuple(ordered[: compiled.limits.errors])


def value_at(value: Any, place: Place) -> Any:
    """What a call holds at a place."""
    for step in place:
        value = value[step]
    return value


def without_echoes(faults: Sequence[Fault]) -> Iterator[Fault]:
    """Leave out what only repeats: closing `oneOf` adds an `anyOf` that fails along with it."""
    by_place: dict[Place, list[Fault]] = {}
    for fault in faults:
        if isinstance(fault.kind, _ALTERNATIVES):
            by_place.setdefault(fault.place, []).append(fault)
    if not by_place:
        yield from faults
        return
    for fault in faults:
        rivals = by_place.get(fault.place, [])
        if fault in rivals and len(rivals) > 1:
            several = next((r for r in rivals if isinstance(r.kind, Kind.OneOfMultipleValid)), None)
            closed = next((r for r in rivals if isinstance(r.kind, Kind.AnyOf)), None)
            if fault is not (several or closed or rivals[0]):
                continue
        yield fault


class _Report:
    def __init__(self, compiled: CompiledSchema, value: Any) -> None:
        self.compiled = compiled
        self.root = compiled.schema
        self.value = value
        self.secrecy = compiled.secrecy
        self._described: dict[tuple[int, bool], str] = {}

    def order(self, place: Place) -> list[tuple[int, str]]:
        """Where a place stands in the schema: known properties in their order, then the others by name."""
        keys = []
        for depth, step in enumerate(place):
            if isinstance(step, int):
                keys.append((step, ""))
                continue
            names = self._names(place[:depth])
            keys.append((list(names).index(step) if step in names else len(names), str(step)))
        return keys

    def _names(self, place: Place) -> dict[str, Schema]:
        if not place and "properties" in self.root and "$ref" not in self.root and "allOf" not in self.root:
            return self.root["properties"]  # type: ignore[no-any-return]  # a schema
        return self.compiled.locator.names_at(place)

    def misfit(self, place: Place) -> Violation:
        """For a value that fits no alternative though each part is known, or that is too large for more."""
        expected = self._expected(place)
        return self._violation(
            place, Code.CONSTRAINT, "does not fit its schema", expected, f"Send {expected}"
        )

    def explain(self, fault: Fault, *, alternatives: int) -> Iterator[tuple[Place, Violation]]:
        """One fault as one or more violations, each with its place."""
        kind, place = fault.kind, fault.place
        if kind is None:
            yield place, self.misfit(place)
        elif type(kind) in self._EXPLAINED_BY:  # as most
            yield place, self._at_place(place, kind)
        elif isinstance(kind, _UNKNOWN):
            yield from self._unknown(place, kind.unexpected)
        elif isinstance(kind, Kind.Required):
            yield self._missing(place, kind.property)
        elif isinstance(kind, _ALTERNATIVES):
            yield from self._alternatives(fault, alternatives)
        else:
            yield place, self._at_place(place, kind)

    def _at_place(self, place: Place, kind: Kind) -> Violation:
        explain = self._EXPLAINED_BY.get(type(kind))
        if explain is not None:
            return explain(self, place, kind)
        return self._violation(place, Code.CHECK_FAILED, "could not be checked", "a simpler value", _SIMPLER)

    def _violation(self, place: Place, code: Code, what: str, expected: str, suggestion: str) -> Violation:
        value = value_at(self.value, place)
        actual = f"{type_name(value)} {HIDDEN}" if self.secrecy.hides_value(place) else echo(value)
        return Violation(
            self._pointer(place), code, f"{self._subject(place)} {what}", expected, actual, f"{suggestion}."
        )

    def _pointer(self, place: Place) -> str:
        """The pointer to a place, its names as they may be shown."""
        if len(place) == 1 and isinstance(place[0], str) and place[0].isidentifier():
            return f"/{self._name(place)}"  # as most
        return pointer(
            [
                self._name(place[: depth + 1]) if isinstance(step, str) else step
                for depth, step in enumerate(place)
            ]
        )

    def _subject(self, place: Place) -> str:
        if not place:
            return "The arguments"
        return f"item {place[-1]}" if isinstance(place[-1], int) else f"'{self._name(place)}'"

    def _name(self, place: Place) -> str:
        """The last name of a place; of an object that is secret, the names that it gave itself are too."""
        above, name = place[:-1], str(place[-1])
        if self.secrecy.has_secrets and name not in self._names(above) and self.secrecy.hides_schema(above):
            return HIDDEN
        return echo_name(name)

    def _expected(self, place: Place) -> str:
        """What the schema says about a place, as far as it may be said."""
        parts = self.compiled.locator.parts_at(place)
        if not parts:
            return "another value"
        key = (id(parts[0]), self.secrecy.hides_schema(place))
        if key not in self._described:
            self._described[key] = describe(parts[0], self.root, hide=key[1])
        return self._described[key]

    def _type(self, place: Place, kind: Kind) -> Violation:
        types = list(getattr(kind, "types", ()))
        allowed = " or ".join(sorted(types, key="null".__eq__))
        got = type_name(value_at(self.value, place))
        if "integer" in types and got == "number":
            got = "a number with a fraction"
        wanted = _article(allowed)
        return self._violation(
            place, Code.WRONG_TYPE, f"must be {wanted}, got {got}", allowed, f"Send {wanted}"
        )

    def _enum(self, place: Place, kind: Kind) -> Violation:
        options = getattr(kind, "options", None)
        allowed = [kind.value] if options is None else options
        if isinstance(kind, Kind.Constant):
            allowed = [kind.expected_value]
        if self.secrecy.hides_schema(place):
            return self._violation(
                place, Code.CONSTRAINT, "is not an allowed value", "an allowed value", _OTHER
            )
        shown = listing(map(echo, allowed), len(allowed), LISTED_NAMES)
        expected = f"one of {shown}" if len(allowed) > 1 else shown
        value = value_at(self.value, place)
        near = (
            probable_name(value, [o for o in allowed if isinstance(o, str)])
            if isinstance(value, str)
            else None
        )
        suggestion = (
            f"Use {echo(near)}" if near and not self.secrecy.hides_value(place) else f"Use {expected}"
        )
        return self._violation(place, Code.CONSTRAINT, "is not an allowed value", expected, suggestion)

    def _limit(self, place: Place, kind: Kind) -> Violation:
        if self.secrecy.hides_schema(place):
            return self._violation(
                place, Code.CONSTRAINT, "is outside its limits", "a value inside its limits", _OTHER
            )
        verb, text = _LIMITS[type(kind)]
        expected = text.format(echo(getattr(kind, "limit", None)))
        return self._violation(
            place, Code.CONSTRAINT, f"must {verb} {expected}", expected, f"Send {expected}"
        )

    def _pattern(self, place: Place, kind: Kind) -> Violation:
        if self.secrecy.hides_schema(place):
            return self._violation(
                place, Code.CONSTRAINT, "has the wrong form", "text of the right form", "Send another text"
            )
        expected = f"text matching {echo_name(self._written(place, str(getattr(kind, 'pattern', ''))))}"
        return self._violation(
            place, Code.CONSTRAINT, "does not match its pattern", expected, f"Send {expected}"
        )

    def _written(self, place: Place, meant: str) -> str:
        """A pattern as its author wrote it."""
        patterns = (part.get("pattern") for part in self.compiled.locator.parts_at(place))
        return next((one for one in patterns if isinstance(one, str) and as_meant(one) == meant), meant)

    def _format(self, place: Place, kind: Kind) -> Violation:
        name = echo_name(str(getattr(kind, "format", "")))
        return self._violation(place, Code.CONSTRAINT, f"is not a valid {name}", name, f"Send a valid {name}")

    def _multiple(self, place: Place, kind: Kind) -> Violation:
        if self.secrecy.hides_schema(place):
            return self._violation(place, Code.CONSTRAINT, "is outside its limits", "another number", _OTHER)
        factor = echo(getattr(kind, "multiple_of", None))
        return self._violation(
            place,
            Code.CONSTRAINT,
            f"is not a multiple of {factor}",
            f"a multiple of {factor}",
            f"Send a multiple of {factor}",
        )

    def _unique(self, place: Place, _: Kind) -> Violation:
        return self._violation(
            place, Code.CONSTRAINT, "holds the same item twice", "different items", "Send each item once"
        )

    def _contains(self, place: Place, _: Kind) -> Violation:
        return self._violation(
            place,
            Code.CONSTRAINT,
            "lacks an item that it must contain",
            self._expected(place),
            "Add such an item",
        )

    def _property_name(self, place: Place, kind: Kind) -> Violation:
        name = echo_name(str(kind.error.instance)) if isinstance(kind, Kind.PropertyNames) else ""
        parts = [part.get("propertyNames") for part in self.compiled.locator.parts_at(place)]
        rules = [rule for rule in parts if isinstance(rule, dict)]
        is_hidden = any(map(is_secret, rules)) or self.secrecy.hides_schema(place)
        expected = "allowed property names"
        if rules and not is_hidden:
            expected = f"property names: {describe({'type': 'string', **rules[0]}, self.root)}"
        return self._violation(
            place,
            Code.CONSTRAINT,
            f"has a property name that is not allowed, {HIDDEN if is_hidden else repr(name)}",
            expected,
            "Rename that property",
        )

    def _excluded(self, place: Place, _: Kind) -> Violation:
        return self._violation(place, Code.CONSTRAINT, "is a value that is excluded", "another value", _OTHER)

    def _not_allowed(self, place: Place, _: Kind) -> Violation:
        return self._violation(place, Code.CONSTRAINT, "must not be given", "nothing", "Remove it")

    def _extra_items(self, place: Place, kind: Kind) -> Violation:
        count = len(getattr(kind, "unexpected", ()))
        return self._violation(
            place, Code.CONSTRAINT, f"has {count} items too many", "fewer items", "Remove the last items"
        )

    def _missing(self, place: Place, name: str) -> tuple[Place, Violation]:
        at = (*place, name)
        schema = self._names(place).get(name, True)
        expected = describe(schema, self.root, hide=self.secrecy.hides_schema(at))
        message = f"Required property '{echo_name(name)}' is missing"
        suggestion = f"Add '{echo_name(name)}': {expected}."
        return at, Violation(self._pointer(at), Code.REQUIRED_MISSING, message, expected, None, suggestion)

    def _unknown(self, place: Place, unexpected: Iterable[str]) -> Iterator[tuple[Place, Violation]]:
        known = self._names(place)
        strangers = [name for name in unexpected if name not in known]
        given = value_at(self.value, place)
        free = [name for name in known if name not in given]
        names = listing(map(echo_name, known), len(known), LISTED_NAMES)
        for name in strangers[: self.compiled.limits.errors]:
            at = (*place, name)
            shown = self._name(at)
            near = probable_name(name, free)
            expected = f"one of {names}" if known else "no properties"
            suggestion = f"Did you mean '{echo_name(near)}'?" if near else f"Remove '{shown}'."
            yield (
                at,
                Violation(
                    self._pointer(at),
                    Code.CONSTRAINT,
                    f"Unknown property '{shown}'",
                    expected,
                    None,
                    suggestion,
                ),
            )

    def _alternatives(self, fault: Fault, depth: int) -> Iterator[tuple[Place, Violation]]:
        """The alternative that the value comes closest to speaks for all."""
        kind, place = fault.kind, fault.place
        if isinstance(kind, Kind.OneOfMultipleValid):
            expected = "exactly one alternative"
            yield (
                place,
                self._violation(
                    place,
                    Code.CONSTRAINT,
                    "fits more than one alternative",
                    expected,
                    "Leave out what belongs to the other alternatives",
                ),
            )
            return
        branches = fault.alternatives()
        closest = [
            branch for branch in branches if branch and not any(_is_wrong_kind(f, place) for f in branch)
        ]
        if closest and depth:
            best = min(closest, key=lambda branch: (_wrong_tags(branch), len(branch)))
            for inner in best:
                yield from self.explain(inner, alternatives=depth - 1)
            return
        types = [
            name
            for branch in branches
            for f in branch
            for name in getattr(f.kind, "types", ())
            if f.place == place
        ]
        if types:
            yield place, self._wrong_alternative(place, list(dict.fromkeys(types)))
        else:
            expected = self._expected(place)
            yield (
                place,
                self._violation(
                    place, Code.CONSTRAINT, "fits none of its alternatives", expected, f"Send {expected}"
                ),
            )

    def _wrong_alternative(self, place: Place, types: list[str]) -> Violation:
        expected = self._expected(place)
        allowed = " or ".join(types)
        got = type_name(value_at(self.value, place))
        return self._violation(
            place,
            Code.WRONG_TYPE,
            f"must be {_article(allowed)}, got {got}",
            expected,
            f"Send {_article(allowed)}",
        )

    _EXPLAINED_BY: ClassVar[dict[type[Kind], Callable[["_Report", Place, Any], Violation]]] = {
        Kind.Type: _type,
        Kind.Enum: _enum,
        Kind.Constant: _enum,
        Kind.Pattern: _pattern,
        Kind.Format: _format,
        Kind.MultipleOf: _multiple,
        Kind.UniqueItems: _unique,
        Kind.Contains: _contains,
        Kind.PropertyNames: _property_name,
        Kind.Not: _excluded,
        Kind.FalseSchema: _not_allowed,
        Kind.UnevaluatedItems: _extra_items,
        **dict.fromkeys(_LIMITS, _limit),
    }


def _is_wrong_kind(fault: Fault, place: Place) -> bool:
    """Whether an alternative is about another type of value altogether."""
    return fault.place == place and isinstance(fault.kind, (Kind.Type, Kind.FalseSchema))


def _wrong_tags(branch: Sequence[Fault]) -> int:
    """How many fixed values differ: an alternative with the right tag is the one that was meant."""
    return sum(isinstance(fault.kind, (Kind.Constant, Kind.Enum)) for fault in branch)


def _article(types: str) -> str:
    return f"an {types}" if types[:1] in "aeio" else f"a {types}"
