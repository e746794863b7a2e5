"""Turn faults into violations that a model can fix: each with a pointer, what is expected, and what to do.

Path and code are computed at once, texts when they are read. They are built from the engine's structured
error kinds and from the call, never from the engine's messages, which may quote values; secrets are left out
(`SecretFilter` decides). At most `limits.errors`, in schema order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from jsonschema_rs import ValidationErrorKind as Kind

from toolkeep.calls import Violation, Words
from toolkeep.definitions.parameter_marks import is_secret
from toolkeep.errors import Code
from toolkeep.json_values.pointers import pointer as pointer_of
from toolkeep.limits import ECHOED_CHARS, LISTED_NAMES
from toolkeep.text.display import HIDDEN, echo, echo_name, listing, type_name
from toolkeep.text.nearest import intended_name, nearest_or_none
from toolkeep.validation.compile import CompiledSchema
from toolkeep.validation.faults import Fault, Place, value_at
from toolkeep.validation.misplaced import home_of, inner_names
from toolkeep.validation.patterns import to_ecma262
from toolkeep.validation.schema_keywords import Schema
from toolkeep.validation.secret_values import log_internal_error
from toolkeep.validation.signature_hint import describe

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

_UNEXPLAINED = Words("The arguments do not fit", "a JSON object", None, "Follow the signature.")


def violations_of(
    compiled: CompiledSchema,
    value: Any,
    faults: Sequence[Fault],
) -> tuple[Violation, ...]:
    """The violations to report for the faults of one call. The value must not change from now on."""
    report = _Report(_Wording(compiled, value))
    for fault in without_echoes(faults):
        report.explain(fault, alternatives=3)
    if not report.found:
        report.misfit(faults[0].place)
    return report.violations(compiled.limits.errors)


def without_echoes(faults: Sequence[Fault]) -> Iterable[Fault]:
    """Drop duplicates: closing `oneOf` adds an `anyOf` that fails together with it."""
    if len(faults) == 1:
        return faults
    rivals = [fault for fault in faults if type(fault.kind) in _ALTERNATIVES]
    return _one_of_each(faults, rivals) if len(rivals) > 1 else faults


def _one_of_each(faults: Sequence[Fault], alternatives: Sequence[Fault]) -> Iterator[Fault]:
    by_place: dict[Place, list[Fault]] = {}
    for fault in alternatives:
        by_place.setdefault(fault.place, []).append(fault)
    for fault in faults:
        rivals = by_place.get(fault.place, [])
        if fault in rivals and len(rivals) > 1:
            several = next((r for r in rivals if isinstance(r.kind, Kind.OneOfMultipleValid)), None)
            closed = next((r for r in rivals if isinstance(r.kind, Kind.AnyOf)), None)
            if fault is not (several or closed or rivals[0]):
                continue
        yield fault


def _ranks(names: Iterable[str]) -> dict[str | int, int]:
    return {name: rank for rank, name in enumerate(names)}


Say = Callable[["_Wording", Place, Any], Words]
"""From a place, and what the engine or the schema says about it, to a text."""


class _Report:
    """Which violations there are, where, and in which order."""

    __slots__ = ("found", "wording")

    def __init__(self, wording: "_Wording") -> None:
        self.wording = wording
        self.found: dict[object, tuple[Place, Violation]] = {}
        """By path; by violation where that path has another one already."""

    def violations(self, most: int) -> tuple[Violation, ...]:
        """The violations in schema order."""
        if len(self.found) == 1:
            ((_, violation),) = self.found.values()
            return (violation,)
        ranks: dict[Place, dict[str | int, int]] = {(): _ranks(self.wording.names(()))}
        ordered = sorted(self.found.values(), key=lambda one: self._order(one[0], ranks))
        return tuple([violation for _, violation in ordered][:most])

    def _order(self, place: Place, ranks: dict[Place, dict[str | int, int]]) -> list[tuple[int, str]]:
        """The position of a place in the schema: known properties in order, then others by name."""
        if len(place) == 1 and place[0] in ranks[()]:  # the common case
            return [(ranks[()][place[0]], "")]
        keys: list[tuple[int, str]] = []
        for depth, step in enumerate(place):
            if isinstance(step, int):
                keys.append((step, ""))
                continue
            above = place[:depth]
            if above not in ranks:
                ranks[above] = _ranks(self.wording.names(above))
            rank = ranks[above].get(step)
            keys.append((len(ranks[above]), step) if rank is None else (rank, ""))
        return keys

    def misfit(self, place: Place) -> None:
        """A value that matches no alternative though each part is known, or that is too large to say more."""
        self._add(place, Code.CONSTRAINT, _Wording.misfit)

    def explain(self, fault: Fault, *, alternatives: int) -> None:
        """Add one or more violations for a fault."""
        kind, place = fault.kind, fault.place
        words = _Wording.BY_KIND.get(type(kind))
        if words is not None:  # the common case
            self._add(place, Code.WRONG_TYPE if type(kind) is Kind.Type else Code.CONSTRAINT, words, kind)
        elif kind is None:
            self.misfit(place)
        elif isinstance(kind, _UNKNOWN):
            self._unknown(place, kind.unexpected)
        elif isinstance(kind, Kind.Required):
            self._add((*place, kind.property), Code.REQUIRED_MISSING, _Wording.missing)
        elif isinstance(kind, _ALTERNATIVES):
            self._alternatives(fault, alternatives)
        else:
            self._add(place, Code.CHECK_FAILED, _Wording.unchecked)

    def _add(self, place: Place, code: Code, words: Say, about: Any = None) -> None:
        path = self.wording.pointer(place)
        violation = Violation.worded_later(path, code, partial(self.wording.worded, words, place, about))
        _, first = self.found.setdefault(path, (place, violation))
        if first is not violation and first != violation:  # the comparison makes the texts of both
            self.found.setdefault(violation, (place, violation))

    def _unknown(self, place: Place, unexpected: Iterable[str]) -> None:
        known = self.wording.fitting_names(place)
        strangers = [name for name in unexpected if name not in known]
        for name in strangers[: self.wording.compiled.limits.errors]:
            self._add((*place, name), Code.CONSTRAINT, _Wording.stranger, known)

    def _alternatives(self, fault: Fault, depth: int) -> None:
        """Report the alternative that the value comes closest to."""
        kind, place = fault.kind, fault.place
        if isinstance(kind, Kind.OneOfMultipleValid):
            self._add(place, Code.CONSTRAINT, _Wording.several)
            return
        branches = fault.alternatives(self.wording.value)
        closest = [
            branch for branch in branches if branch and not any(_is_wrong_kind(f, place) for f in branch)
        ]
        if closest and depth:
            for inner in self._of_the_closest(closest):
                self.explain(inner, alternatives=depth - 1)
            return
        types = [
            name
            for branch in branches
            for f in branch
            for name in getattr(f.kind, "types", ())
            if f.place == place
        ]
        if types:
            self._add(place, Code.WRONG_TYPE, _Wording.other_type, list(dict.fromkeys(types)))
        else:
            self._add(place, Code.CONSTRAINT, _Wording.no_alternative)

    def _of_the_closest(self, branches: list[list[Fault]]) -> Sequence[Fault]:
        """The faults of the closest alternative; of several that are equally close, those that all have."""
        if tag := _tag_place(branches):
            tags = {one: branch for branch in branches for one in _allowed(branch, tag)}
            self._add(tag, Code.CONSTRAINT, _Wording.tag, list(tags))
            given = value_at(self.wording.value, tag)
            meant = nearest_or_none(given, list(tags)) if isinstance(given, str) else None
            branches = branches if meant is None else [tags[meant]]
            branches = [[fault for fault in branch if fault.place != tag] for branch in branches]
        distance = [(_wrong_tags(branch), len(branch)) for branch in branches]
        best = [branch for branch, far in zip(branches, distance, strict=True) if far == min(distance)]
        shared = [fault for fault in best[0] if all(_has(branch, fault) for branch in best[1:])]
        return shared or ([] if tag else best[0])


class _Wording:
    """The texts about one call, made when they are read.

    A refusal keeps only this: the schema, and a value that nothing else may change.
    """

    __slots__ = ("_described", "compiled", "root", "secrecy", "value")

    def __init__(self, compiled: CompiledSchema, value: Any) -> None:
        self.compiled = compiled
        self.root = compiled.schema
        self.value = value
        self.secrecy = compiled.secrecy
        self._described: dict[tuple[int, bool], str] = {}

    def names(self, place: Place) -> dict[str, Schema]:
        """The property names that an object at a place may have."""
        if not place and "properties" in self.root and "$ref" not in self.root and "allOf" not in self.root:
            return self.root["properties"]  # type: ignore[no-any-return]  # a schema
        return self.compiled.locator.names_at(place)

    def fitting_names(self, place: Place) -> dict[str, Schema]:
        """The property names that the object at a place may have with the tags that it has."""
        return self.compiled.locator.names_at(place, value_at(self.value, place))

    def pointer(self, place: Place) -> str:
        """The pointer to a place, with hidden names replaced."""
        if len(place) == 1 and not self.secrecy.has_secrets:  # the common case
            (step,) = place
            if type(step) is str and step.isidentifier() and step.isascii() and len(step) <= ECHOED_CHARS:
                return f"/{step}"
        return pointer_of(
            [
                self._name(place[: depth + 1]) if isinstance(step, str) else step
                for depth, step in enumerate(place)
            ]
        )

    def worded(self, words: Say, place: Place, about: Any) -> Words:
        """The text of one violation; a generic one if it cannot be made, because reading a refusal never
        raises."""
        try:
            return words(self, place, about)
        except Exception as error:  # noqa: BLE001 -- a refused call stays refused
            log_internal_error("a violation could not be worded", error)
            return _UNEXPLAINED

    def _words(self, place: Place, what: str, expected: str, suggestion: str) -> Words:
        value = value_at(self.value, place)
        actual = f"{type_name(value)} {HIDDEN}" if self.secrecy.hides_value(place) else echo(value)
        return Words(f"{self._subject(place)} {what}", expected, actual, f"{suggestion}.")

    def misfit(self, place: Place, _: None) -> Words:
        expected = self._expected(place)
        return self._words(place, "does not match its schema", expected, f"Send {expected}")

    def unchecked(self, place: Place, _: None) -> Words:
        return self._words(place, "could not be checked", "a simpler value", _SIMPLER)

    def _subject(self, place: Place) -> str:
        if not place:
            return "The arguments"
        return f"item {place[-1]}" if isinstance(place[-1], int) else f"'{self._name(place)}'"

    def _name(self, place: Place) -> str:
        """The last name of a place.

        Inside a secret object, names that the schema does not list are secret too.
        """
        name = str(place[-1])
        if self.secrecy.has_secrets:
            above = place[:-1]
            if name not in self.names(above) and self.secrecy.hides_schema(above):
                return HIDDEN
        return echo_name(name)

    def _expected(self, place: Place) -> str:
        """What the schema expects at a place, without secrets."""
        parts = self.compiled.locator.parts_at(place)
        if not parts:
            return "another value"
        key = (id(parts[0]), self.secrecy.hides_schema(place))
        if key not in self._described:
            self._described[key] = describe(parts[0], self.root, hide=key[1])
        return self._described[key]

    def _type(self, place: Place, kind: Kind) -> Words:
        types = list(getattr(kind, "types", ()))
        allowed = " or ".join(sorted(types, key="null".__eq__))
        got = type_name(value_at(self.value, place))
        if "integer" in types and got == "number":
            got = "a number with a fraction"
        wanted = _article(allowed)
        return self._words(place, f"must be {wanted}, got {got}", allowed, f"Send {wanted}")

    def _enum(self, place: Place, kind: Kind) -> Words:
        options = getattr(kind, "options", None)
        allowed = [kind.value] if options is None else options
        if isinstance(kind, Kind.Constant):
            allowed = [kind.expected_value]
        return self.tag(place, allowed)

    def tag(self, place: Place, allowed: Sequence[Any]) -> Words:
        if self.secrecy.hides_schema(place):
            return self._words(place, "is not an allowed value", "an allowed value", _OTHER)
        shown = listing(map(echo, allowed), len(allowed), LISTED_NAMES)
        expected = f"one of {shown}" if len(allowed) > 1 else shown
        value = value_at(self.value, place)
        near = (
            nearest_or_none(value, [o for o in allowed if isinstance(o, str)])
            if isinstance(value, str)
            else None
        )
        suggestion = (
            f"Use {echo(near)}" if near and not self.secrecy.hides_value(place) else f"Use {expected}"
        )
        return self._words(place, "is not an allowed value", expected, suggestion)

    def _limit(self, place: Place, kind: Kind) -> Words:
        if self.secrecy.hides_schema(place):
            return self._words(place, "is outside its limits", "a value inside its limits", _OTHER)
        verb, text = _LIMITS[type(kind)]
        expected = text.format(echo(getattr(kind, "limit", None)))
        return self._words(place, f"must {verb} {expected}", expected, f"Send {expected}")

    def _pattern(self, place: Place, kind: Kind) -> Words:
        if self.secrecy.hides_schema(place):
            return self._words(place, "has the wrong form", "text of the right form", "Send another text")
        expected = f"text matching {echo_name(self._written(place, str(getattr(kind, 'pattern', ''))))}"
        return self._words(place, "does not match its pattern", expected, f"Send {expected}")

    def _written(self, place: Place, meant: str) -> str:
        """A pattern as its author wrote it."""
        patterns = (part.get("pattern") for part in self.compiled.locator.parts_at(place))
        return next((one for one in patterns if isinstance(one, str) and to_ecma262(one) == meant), meant)

    def _format(self, place: Place, kind: Kind) -> Words:
        name = echo_name(str(getattr(kind, "format", "")))
        return self._words(place, f"is not a valid {name}", name, f"Send a valid {name}")

    def _multiple(self, place: Place, kind: Kind) -> Words:
        if self.secrecy.hides_schema(place):
            return self._words(place, "is outside its limits", "another number", _OTHER)
        factor = echo(getattr(kind, "multiple_of", None))
        return self._words(
            place,
            f"is not a multiple of {factor}",
            f"a multiple of {factor}",
            f"Send a multiple of {factor}",
        )

    def _unique(self, place: Place, _: Kind) -> Words:
        return self._words(place, "holds the same item twice", "different items", "Send each item once")

    def _contains(self, place: Place, _: Kind) -> Words:
        return self._words(
            place,
            "lacks an item that it must contain",
            self._expected(place),
            "Add such an item",
        )

    def _property_name(self, place: Place, kind: Kind) -> Words:
        name = echo_name(str(kind.error.instance)) if isinstance(kind, Kind.PropertyNames) else ""
        parts = [part.get("propertyNames") for part in self.compiled.locator.parts_at(place)]
        rules = [rule for rule in parts if isinstance(rule, dict)]
        is_hidden = any(map(is_secret, rules)) or self.secrecy.hides_schema(place)
        expected = "allowed property names"
        if rules and not is_hidden:
            expected = f"property names: {describe({'type': 'string', **rules[0]}, self.root)}"
        return self._words(
            place,
            f"has a property name that is not allowed, {HIDDEN if is_hidden else repr(name)}",
            expected,
            "Rename that property",
        )

    def _excluded(self, place: Place, _: Kind) -> Words:
        return self._words(place, "is a value that is excluded", "another value", _OTHER)

    def _not_allowed(self, place: Place, _: Kind) -> Words:
        return self._words(place, "must not be given", "nothing", "Remove it")

    def _extra_items(self, place: Place, kind: Kind) -> Words:
        count = len(getattr(kind, "unexpected", ()))
        return self._words(place, f"has {count} items too many", "fewer items", "Remove the last items")

    def missing(self, at: Place, _: None) -> Words:
        name = echo_name(str(at[-1]))
        schemas = self.compiled.locator.schemas_of_missing(at, value_at(self.value, at[:-1])) or [True]
        is_hidden = self.secrecy.hides_schema(at)
        expected = " | ".join(
            dict.fromkeys(describe(one, self.root, hide=is_hidden) for one in schemas[:LISTED_NAMES])
        )
        message = f"Required property '{name}' is missing"
        return Words(message, expected, None, f"Add '{name}': {expected}.")

    def stranger(self, at: Place, known: dict[str, Schema]) -> Words:
        locator, above = self.compiled.locator, at[:-1]
        given = value_at(self.value, above)
        free = [name for name in known if name not in given]
        required = locator.required_at(above, given)
        missing = [name for name in free if name in required]
        shown = self._name(at)
        names = listing(map(echo_name, known), len(known), LISTED_NAMES)
        expected = f"one of {names}" if known else "no properties"
        if (
            not known
            and (patterns := locator.name_patterns_at(above))
            and not self.secrecy.hides_schema(above)
        ):
            expected = f"names matching {listing(map(echo_name, patterns), len(patterns), LISTED_NAMES)}"
        if inner := inner_names(given[at[-1]], free):
            suggestion = f"Give {_quoted(inner)} directly, not inside '{shown}'."
        elif home := home_of(locator, self.value, at):
            suggestion = f"Move it to {echo_name(self.pointer(home))}."
        elif meant := intended_name(str(at[-1]), missing, free):
            suggestion = f"Did you mean '{echo_name(meant)}'?"
        elif missing:
            suggestion = f"Missing: {_quoted(missing)}. Rename '{shown}' if you meant that, else remove it."
        elif not known and expected != "no properties":
            suggestion = f"Rename '{shown}'."
        else:
            suggestion = f"Remove '{shown}'."
        return Words(f"Unknown property '{shown}'", expected, None, suggestion)

    def several(self, place: Place, _: None) -> Words:
        advice = "Leave out what belongs to the other alternatives"
        return self._words(place, "fits more than one alternative", "exactly one alternative", advice)

    def no_alternative(self, place: Place, _: None) -> Words:
        expected = self._expected(place)
        return self._words(place, "matches none of its alternatives", expected, f"Send {expected}")

    def other_type(self, place: Place, types: list[str]) -> Words:
        wanted = _article(" or ".join(types))
        got = type_name(value_at(self.value, place))
        return self._words(place, f"must be {wanted}, got {got}", self._expected(place), f"Send {wanted}")

    BY_KIND: ClassVar[dict[type[Kind] | type[None], Say]] = {
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
    """Whether an alternative is about another type altogether."""
    return fault.place == place and isinstance(fault.kind, (Kind.Type, Kind.FalseSchema))


def _wrong_tags(branch: Sequence[Fault]) -> int:
    """How many fixed values differ: the alternative with the right tag is the one that was meant."""
    return sum(isinstance(fault.kind, (Kind.Constant, Kind.Enum)) for fault in branch)


def _tag_place(branches: Sequence[Sequence[Fault]]) -> Place | None:
    """Where every alternative has another fixed value than the one given."""
    places = [
        [f.place for f in branch if isinstance(f.kind, (Kind.Constant, Kind.Enum))] for branch in branches
    ]
    return next((one for one in places[0] if all(one in other for other in places[1:])), None)


def _allowed(branch: Sequence[Fault], place: Place) -> list[Any]:
    """The fixed values of an alternative at a place, if they are text."""
    found: list[Any] = []
    for fault in branch:
        if fault.place == place and isinstance(fault.kind, Kind.Constant):
            found.append(fault.kind.expected_value)
        elif fault.place == place and isinstance(fault.kind, Kind.Enum):
            found += fault.kind.options
    return [one for one in found if isinstance(one, str)]


def _has(branch: Sequence[Fault], fault: Fault) -> bool:
    return any(
        one.place == fault.place
        and type(one.kind) is type(fault.kind)
        and getattr(one.kind, "property", None) == getattr(fault.kind, "property", None)
        for one in branch
    )


def _quoted(names: Sequence[str]) -> str:
    return listing([f"'{echo_name(name)}'" for name in names], len(names), LISTED_NAMES)


def _article(types: str) -> str:
    return f"an {types}" if types[:1] in "aeio" else f"a {types}"
