"""Bound what the defaults of a schema add to a call, before any is filled in (VAL-7, VAL-9).

A default may hold objects that have defaults themselves, and stand below `items`, once for each item: a
schema of 4 KB can expand `{}` to gigabytes. In: the finisher of a schema. Out: the most that each object of a
call can gain, and the defaults that are never applied, because they recurse or add too much.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import FILLING_STEPS, Limits
from toolkeep.validation.bad_defaults import Why
from toolkeep.validation.call_size import size_of
from toolkeep.validation.cost import TooCostly
from toolkeep.validation.finish import Finisher

ENDLESS = Why("leads back to itself through the defaults inside it", "drop one of them")
EXCESSIVE = Why("adds too much to a call, with the defaults inside it", "make it smaller, or drop it")

_PLACES_PER_CALL = 4
"""One object may gain a quarter of what a call may: so no default of the root makes every call too large."""

_MEMBER_BYTES = 4
"""The quotes, the colon and the comma around a name."""


class Filling(NamedTuple):
    """What defaults add: JSON values, bytes as JSON, and levels of nesting."""

    values: int = 0
    bytes: int = 0
    depth: int = 0

    def beside(self, other: "Filling") -> "Filling":
        """The sum of both."""
        return Filling(self.values + other.values, self.bytes + other.bytes, max(self.depth, other.depth))

    def times(self, count: int) -> "Filling":
        """The same, this many times side by side."""
        return Filling(self.values * count, self.bytes * count, self.depth)

    def fits(self, most: "Filling") -> bool:
        """Whether it is within a limit."""
        return self.values <= most.values and self.bytes <= most.bytes and self.depth <= most.depth


def default_growth(limits: Limits) -> Filling:
    """What the defaults of one call may add: a step for each value, and twice the size of the call itself."""
    return Filling(limits.work, 2 * limits.argument_bytes, limits.argument_depth)


_Default = tuple[int, str]
"""A finisher by its id, and the name that it fills in."""


class FillingPlan:
    """What the defaults of one schema add, computed once."""

    __slots__ = ("_added", "_deepest", "_fills", "_most", "_totals", "at_root", "elsewhere", "faults")

    def __init__(self, finisher: Finisher, limits: Limits) -> None:
        self._most = default_growth(limits)
        places = _filling_places(finisher)
        self._fills = places.keys()
        most = self._most
        share = Filling(most.values // _PLACES_PER_CALL, most.bytes // _PLACES_PER_CALL, most.depth)
        amounts = _Amounts(places, share)
        self.faults: dict[int, Why] = amounts.faults
        """By the id of the schema that states the default: why it is never applied."""
        self._added = amounts.by_place
        self._totals = {place: _total(added) for place, added in self._added.items()}
        self._deepest = {
            place: sorted(added.items(), key=lambda one: -one[1].depth)
            for place, added in self._added.items()
        }
        self.at_root = self._totals.get(id(finisher), Filling())
        """The most that the root object gains."""
        held = {id(inside) for place in places.values() for inside in place.inside()}
        inner = [total for place, total in self._totals.items() if place in held]
        self.elsewhere = Filling(*(max(part) for part in zip(Filling(), *inner, strict=True)))
        """The most that any other object gains."""

    @property
    def uncounted_objects(self) -> int:
        """A call with no more objects than this cannot gain too much."""
        left = [most - root for most, root in zip(self._most[:2], self.at_root[:2], strict=True)]
        each = self.elsewhere[:2]
        return (
            min(room // part for room, part in zip(left, each, strict=True))
            if any(each)
            else self._most.bytes
        )

    def affords(self, finisher: Finisher, value: Any) -> bool:
        """Whether the defaults missing from a call stay within the limit."""
        return self.added(finisher, value).fits(self._most)

    def added(self, finisher: Finisher, value: Any) -> Filling:
        """What the defaults add to a call.

        Counting stops once the limit is exceeded. An object costs as many steps as it has names, not as there
        are defaults: a call may hold thousands of empty objects under a hundred defaults.
        """
        total = Filling()
        waiting: list[tuple[Finisher, Any]] = [(finisher, value)]
        while waiting and total.fits(self._most):
            place, here = waiting.pop()
            if here.__class__ is dict and id(place) in self._added:
                total = total.beside(self._added_to(here, id(place)))
            waiting.extend(child for child in place.children(here) if id(child[0]) in self._fills)
        return total

    def _added_to(self, value: dict[str, Any], place: int) -> Filling:
        """What all defaults of a place add, less those whose names the object has."""
        added, whole = self._added[place], self._totals[place]
        shorter, longer = (value, added) if len(value) < len(added) else (added, value)
        given = [added[name] for name in shorter if name in longer]
        if not given:
            return whole
        values = whole.values - sum(one.values for one in given)
        size = whole.bytes - sum(one.bytes for one in given)
        depth = next((one.depth for name, one in self._deepest[place] if name not in value), 0)
        return Filling(values, size, depth)


def _filling_places(finisher: Finisher) -> dict[int, Finisher]:
    """The finishers that fill in defaults, directly or below, by id."""
    places = finisher.with_all_inside()
    holders: dict[int, list[Finisher]] = {id(place): [] for place in places}
    for place in places:
        for inside in place.inside():
            holders[id(inside)].append(place)
    waiting = [place for place in places if place.defaults or place.fillers]
    found: dict[int, Finisher] = {}
    while waiting:
        place = waiting.pop()
        if id(place) not in found:
            found[id(place)] = place
            waiting += holders[id(place)]
    return found


def _total(added: dict[str, Filling]) -> Filling:
    total = Filling()
    for amount in added.values():
        total = total.beside(amount)
    return total


class _Amounts:
    """What each default adds with the defaults inside it, computed from the innermost outwards."""

    def __init__(self, places: dict[int, Finisher], most: Filling) -> None:
        self.faults: dict[int, Why] = {}
        self.by_place: dict[int, dict[str, Filling]] = {}
        self._places = places
        self._most = most
        self._steps = 0
        self._sizes: dict[int, Filling] = {}
        self._own: dict[_Default, Filling] = {}
        self._inner: dict[_Default, Counter[_Default]] = {}
        for key, place in places.items():
            for name, default in (*place.defaults, *place.fillers):
                self._look(key, name, default)
        self._add_up()
        for key, place in places.items():
            self._fit(key, place)

    def _look(self, key: int, name: str, default: Any) -> None:
        """The size of a default alone, and the defaults filled in inside it."""
        if id(default) not in self._sizes:  # a definition may be referenced a thousand times
            self._sizes[id(default)] = _size(default)
            self._count(self._sizes[id(default)].values)
        named = Filling(1, len(name.encode()) + _MEMBER_BYTES)
        self._own[key, name] = named.beside(self._sizes[id(default)])
        inner: Counter[_Default] = Counter()
        for place, here in self._objects(self._places[key].nested.get(name), default):
            missing = [n for n, _ in (*place.defaults, *place.fillers) if n not in here]
            self._count(len(missing))
            inner.update((id(place), n) for n in missing)
        self._inner[key, name] = inner

    def _objects(self, place: Finisher | None, value: Any) -> Iterator[tuple[Finisher, dict[str, Any]]]:
        """The objects of a default that may be filled in."""
        waiting = [(place, value)] if place is not None and id(place) in self._places else []
        while waiting:
            here = waiting.pop()
            self._count(1)
            if isinstance(here[1], dict):
                yield here
            waiting.extend(child for child in here[0].children(here[1]) if id(child[0]) in self._places)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > FILLING_STEPS:
            raise TooCostly(
                f"its defaults unfold to more than {FILLING_STEPS} values", "use fewer or smaller ones"
            )

    def _add_up(self) -> None:
        """Add up every default after those inside it; what remains is recursive."""
        holders: dict[_Default, list[_Default]] = {default: [] for default in self._own}
        for holder, inner in self._inner.items():
            for default in inner:
                holders[default].append(holder)
        open_ends = {default: len(inner) for default, inner in self._inner.items()}
        ready = [default for default, count in open_ends.items() if not count]
        while ready or (endless := _on_cycles(open_ends, self._inner, holders)):
            if not ready:
                for default in endless:
                    self._leave_out(default, ENDLESS)
                ready = sorted(endless)
            default = ready.pop()
            if open_ends.pop(default, None) is None:
                continue
            self._settle(default)
            for holder in holders[default]:
                if holder in open_ends:
                    open_ends[holder] -= 1
                    if not open_ends[holder]:
                        ready.append(holder)

    def _settle(self, default: _Default) -> None:
        key, name = default
        if name not in self.by_place.setdefault(key, {}):
            amount = own = self._own[default]
            for inside, count in self._inner[default].items():
                inner = self.by_place[inside[0]][inside[1]]
                amount = amount.beside(inner.times(count)._replace(depth=own.depth + inner.depth))
            self.by_place[key][name] = amount
            if not amount.fits(self._most):
                self._leave_out(default, EXCESSIVE)

    def _leave_out(self, default: _Default, why: Why) -> None:
        key, name = default
        self.faults.setdefault(id(self._places[key].holders[name]), why)
        self.by_place.setdefault(key, {})[name] = Filling()

    def _fit(self, key: int, place: Finisher) -> None:
        """Leave out what an object cannot gain in addition to the defaults before it."""
        total = Filling()
        for name, _ in (*place.defaults, *place.fillers):
            more = total.beside(self.by_place[key][name])
            if more.fits(self._most):
                total = more
            else:
                self._leave_out((key, name), EXCESSIVE)


def _on_cycles(
    left: dict[_Default, int],
    inner: dict[_Default, Counter[_Default]],
    holders: dict[_Default, list[_Default]],
) -> list[_Default]:
    """Of the defaults that are never ready, those on a cycle or between two cycles."""
    held = {default: sum(holder in left for holder in holders[default]) for default in left}
    waiting = [default for default, count in held.items() if not count]
    while waiting:
        default = waiting.pop()
        del held[default]
        for inside in inner[default]:
            if inside in held:
                held[inside] -= 1
                if not held[inside]:
                    waiting.append(inside)
    return list(held)


def _size(default: Any) -> Filling:
    return Filling(size_of(default).values, len(canonical_bytes(default)), _depth(default))


def _depth(value: Any) -> int:
    """How deep arrays and objects are nested."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [inside for item in level for inside in (item.values() if isinstance(item, dict) else item)]
    return depth
