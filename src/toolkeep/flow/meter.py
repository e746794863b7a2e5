"""Fills measures: sums what calls added, and reserves what this one adds, in one transaction (FLO-4).

A decision sees the sum with this call in it, and the reservation counts for every other call from then on:
calls at once cannot pass a limit together. A call that is refused or does not run gives its reservation back.
One whose process died does not: it may have run.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from toolkeep.flow.measures import PLACES, Measure, Measures, to_decimal
from toolkeep.flow.session_store import Addition, SessionStates, Window, of_session


class Caller(msgspec.Struct, frozen=True):
    """Whose calls are added up."""

    agent: str
    session: str
    """The key of the session's state."""

    def subject(self, measure: Measure) -> str:
        """To whom the rows of a measure belong."""
        return of_session(self.session) if measure.over_s is None else f"agent\n{self.agent}"


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """What one call holds of its measures."""

    call: str
    values: Mapping[str, str]
    """What policies read, with this call counted in: decimals by the name of the measure."""
    additions: tuple[Addition, ...] = ()
    late: tuple[Addition, ...] = ()
    """What the call will add once it is known, with a value of 0."""


class Meter:
    """The measures of one keep."""

    def __init__(
        self,
        measures: Measures,
        states: SessionStates,
        clock: Callable[[], float] = time.time,
        *,
        is_dry: bool = False,
    ) -> None:
        """`is_dry`: calls are only explained, so that nothing is added."""
        self._is_dry = is_dry
        self._by_name = measures.by_name
        self._states = states
        self._clock = clock
        self._kept_s: dict[str, float] = {}
        for measure in self._by_name.values():
            if measure.over_s is not None:
                self._kept_s[measure.source] = max(measure.over_s, self._kept_s.get(measure.source, 0.0))

    def reserve(
        self,
        call: str,
        caller: Caller,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        counted: Collection[str],
        read: Collection[str],
    ) -> Reserved:
        """Add a call to the measures in `counted`, and sum those in `read`; ValueError for a wrong amount.

        A call that asks again has one reservation, that of now.
        """
        now = self._clock()
        measures = [self._by_name[name] for name in counted]
        own = {m.name: m.own_value(arguments) for m in measures if m.counts(tool)}
        added = () if self._is_dry else measures
        additions = tuple({self._addition(m, caller, own[m.name]) for m in added if m.name in own})
        late = tuple({self._addition(m, caller, 0) for m in measures if m.is_late})
        names = sorted(read)
        windows = [self._window(self._by_name[name], caller, now) for name in names]
        if not additions and not windows:
            return Reserved(call=call, values={}, late=late)
        others = self._states.reserve(call, additions, windows, now)
        values = {
            name: to_decimal(other + own.get(name, 0)) for name, other in zip(names, others, strict=True)
        }
        return Reserved(call=call, values=values, additions=additions, late=late)

    def totals(self, caller: Caller) -> dict[str, str]:
        """What every measure amounts to now, as decimals by its name; nothing is added."""
        now, measures = self._clock(), list(self._by_name.values())
        windows = [self._window(one, caller, now) for one in measures]
        sums = self._states.reserve("no call", (), windows, now) if windows else []
        return {one.name: to_decimal(value) for one, value in zip(measures, sums, strict=True)}

    def add(self, reserved: Reserved, **amounts: float) -> None:
        """Add what is known of a call by now: `questions`, `result_bytes`, `run_seconds`."""
        known = tuple(
            one._replace(value=math.ceil(amounts[one.source] * PLACES))
            for one in reserved.late
            if amounts.get(one.source)
        )
        if known:
            self._states.add(reserved.call, known, self._clock())

    def release(self, reserved: Reserved) -> None:
        """Give back what a call reserved that did not run; questions stay, since somebody was asked."""
        if reserved.additions:
            self._states.release(reserved.call, reserved.additions)

    def _addition(self, measure: Measure, caller: Caller, value: int) -> Addition:
        kept_s = None if measure.over_s is None else self._kept_s[measure.source]
        return Addition(measure.source, caller.subject(measure), value, kept_s)

    def _window(self, measure: Measure, caller: Caller, now: float) -> Window:
        since = None if measure.over_s is None else now - measure.over_s
        return Window(measure.source, caller.subject(measure), since)


def alone(
    measures: Mapping[str, Measure], tool: str, arguments: Mapping[str, Any], read: Collection[str]
) -> dict[str, str]:
    """What policies read of a call that is only explained: as if no call came before it."""
    return {
        name: to_decimal(measure.own_value(arguments) if measure.counts(tool) else 0)
        for name, measure in sorted(measures.items())
        if name in read
    }
