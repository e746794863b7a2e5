"""Declared measures and budgets: what is counted or summed, over a session or a time window (FLO-4).

In: the keys `measures` and `budget` of `flow`. Out: `Measures`, which policies name and `meter.py` fills.
Values are whole numbers of ten-thousandths, as many places as a Cedar decimal has: sums are exact.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

PLACES: Final = 10_000
"""A value of 1, in ten-thousandths."""
MOST: Final = 2**63 - 1
"""The largest Cedar decimal, in ten-thousandths."""
AMOUNT: Final = MOST // 1000
"""The largest amount of one call; a sum of 1,000 of them still fits."""
MEASURES: Final = 50
"""Measures and budgets of one keep; each that a call matches is a row for that call."""
LONGEST_S: Final = 31 * 86_400.0
"""The longest time window: for so long the rows of calls are kept."""

AT_ONCE: Final = ("calls",)
LATE: Final = ("questions", "result_bytes", "run_seconds")
"""Built-in measures that are known only once a call asked or ended: a decision sees those of other calls."""
BUILT_IN: Final = (*AT_ONCE, *LATE)
_COUNTED: Final = ("calls", "questions")

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_TOOL: Final = re.compile(r"[A-Za-z0-9_:-]{1,128}")
_NUMBER: Final = re.compile(r"(\d{1,15})(?:\.(\d{1,4})0*)?")
_BUDGET: Final = re.compile(r"([\d.]+)(?:/(.+))?")
_WINDOW: Final = re.compile(r"(\d{1,7})([smhd])|second|minute|hour|day|week")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A count or a sum over earlier calls and this one."""

    name: str
    of: str
    """A built-in measure, or the name of the tool whose calls count."""
    parameter: str = ""
    """The parameter of the tool that is summed; empty if its calls are counted."""
    over_s: float | None
    """The time window, in which the calls of an agent count; None for those of a session."""

    @property
    def source(self) -> str:
        """What is counted; measures of one source share their rows."""
        return f"{self.of}/{self.parameter}" if self.parameter else self.of

    @property
    def is_of_budget(self) -> bool:
        """Whether a budget made it, of a built-in or a declared one."""
        return "." in self.name

    @property
    def is_late(self) -> bool:
        """Whether a call adds to it only after the decision."""
        return self.of in LATE

    @property
    def window(self) -> str:
        """Over what, in words."""
        if self.over_s is None:
            return "a session"
        for seconds, word in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
            if self.over_s % seconds == 0:
                number = int(self.over_s // seconds)
                return f"{number} {word}{'s' if number > 1 else ''}"
        return f"{self.over_s:g} seconds"

    def counts(self, tool: str) -> bool:
        """Whether a call of a tool adds to it at once."""
        return self.of == "calls" if self.of in BUILT_IN else self.of == tool

    def own_value(self, arguments: Mapping[str, Any]) -> int:
        """What a call adds; ValueError says what is wrong with its amount."""
        if not self.parameter:
            return PLACES
        if self.parameter not in arguments:
            raise ValueError(f"'{self.parameter}' is missing, and a measure sums it")
        value = read_number(arguments[self.parameter])
        if value is None or value > AMOUNT:
            raise ValueError(
                f"'{self.parameter}' must be a number from 0 to {AMOUNT // PLACES} with at most 4 decimal "
                "places, since a measure sums it"
            )
        return value


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that no approval lifts."""

    name: str
    measure: Measure
    limit: int

    def policy(self, number: int) -> str:
        """The Cedar policy that forbids what would pass the limit; `number` tells those of one name apart."""
        measure = self.measure
        # What a call adds late is not in the value yet, so its budget is used up once it is reached.
        passed = "greaterThanOrEqual" if measure.is_late else "greaterThan"
        budget = f"the budget of {_shown(self.limit)} for {self.name} in {measure.window}"
        told = f"{budget} is used up" if measure.is_late else f"this call would exceed {budget}"
        identifier = f"toolkeep.budget.{self.name}" + (f".{number}" if number > 1 else "")
        whose = "resource" if measure.of in BUILT_IN else f'resource == Tool::"{measure.of}"'
        return (
            f'@id("{identifier}")\n'
            f'@reason("{told}")\n'
            f'forbid (principal, action == Action::"call", {whose})\n'
            f'when {{ context.measures["{measure.name}"].{passed}(decimal("{to_decimal(self.limit)}")) }};\n'
        )


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What is declared in one keep."""

    declared: tuple[Measure, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.declared or self.budgets)

    @property
    def by_name(self) -> dict[str, Measure]:
        """Those that policies may read, budgets included."""
        every = (*self.declared, *(budget.measure for budget in self.budgets))
        return {measure.name: measure for measure in every}

    def policies(self) -> str:
        """The policies of all budgets."""
        seen: dict[str, int] = {}
        texts = []
        for budget in self.budgets:
            seen[budget.name] = seen.get(budget.name, 0) + 1
            texts.append(budget.policy(seen[budget.name]))
        return "\n".join(texts)

    def joined(self, other: "Measures") -> "Measures":
        """Both, and the lower of two budgets: neither loosens the other; ValueError if measures differ."""
        declared = {measure.name: measure for measure in self.declared}
        for measure in other.declared:
            if declared.setdefault(measure.name, measure) != measure:
                raise ValueError(
                    f"flow.measures.{measure.name} is declared otherwise elsewhere; choose another name"
                )
        limits = {budget.measure: budget for budget in self.budgets}
        for budget in other.budgets:
            held = limits.get(budget.measure)
            if held is None or budget.limit < held.limit:
                limits[budget.measure] = budget
        return Measures(declared=tuple(declared.values()), budgets=tuple(limits.values()))


NO_MEASURES: Final = Measures()


def read_number(given: Any) -> int | None:
    """A number of at least 0 with at most 4 places, in ten-thousandths; None if it is none."""
    if type(given) not in (int, float):
        return None
    return _scaled(repr(given))  # the shortest text that means this number


def to_decimal(value: int) -> str:
    """A value as Cedar reads it; a larger one than Cedar has is the largest."""
    whole, rest = divmod(min(value, MOST), PLACES)
    return f"{whole}.{rest:04d}"


def read_measures(declared: Any, budgets: Any) -> Measures:
    """Measures and budgets from data; ValueError says what is wrong."""
    for key, data in (("measures", declared), ("budget", budgets)):
        if data is not None and not isinstance(data, dict):
            raise ValueError(f"flow.{key} must be an object")
        if len(data or ()) > MEASURES:
            raise ValueError(f"flow.{key} has more than {MEASURES} entries")
    own = {name: _read_measure(name, data) for name, data in (declared or {}).items()}
    return Measures(
        declared=tuple(own.values()),
        budgets=tuple(_read_budget(name, said, own) for name, said in (budgets or {}).items()),
    )


def _read_measure(name: str, data: Any) -> Measure:
    at = f"flow.measures.{name}"
    if not _NAME.fullmatch(name) or name in BUILT_IN:
        raise ValueError(f"{at}: a name has letters, digits and _, and is not that of a built-in measure")
    ways = [way for way in ("count", "sum") if isinstance(data, dict) and way in data]
    if len(ways) != 1 or not data.keys() <= {"count", "sum", "over"}:
        raise ValueError(f"{at} must be an object with count or sum, and over")
    of, slash, parameter = str(data[ways[0]]).partition("/")
    is_built_in = of in BUILT_IN
    fits = (of in _COUNTED) == (ways[0] == "count") if is_built_in else bool(parameter) == (ways[0] == "sum")
    if not fits or (slash and (is_built_in or not parameter)) or not _TOOL.fullmatch(of):
        raise ValueError(
            f"{at}: count takes a tool, calls or questions; "
            "sum takes TOOL/PARAMETER, result_bytes or run_seconds"
        )
    return Measure(name=name, of=of, parameter=parameter, over_s=_read_window(at, data.get("over")))


def _read_budget(name: str, said: Any, declared: Mapping[str, Measure]) -> Budget:
    at = f"flow.budget.{name}"
    measure = declared.get(name)
    if measure is None and name not in BUILT_IN:
        known = ", ".join((*BUILT_IN, *declared))
        raise ValueError(f"{at}: there is no measure '{name}'; there are {known}")
    text = repr(said) if type(said) in (int, float) else str(said)
    found = _BUDGET.fullmatch(text)
    limit = _scaled(found[1]) if found else None
    if found is None or limit is None or limit > AMOUNT or (measure is None and not found[2]):
        usual = "200/hour" if measure is None else "500 or 500/day"
        raise ValueError(f"{at}: '{text}' is no budget; write it as {usual}")
    over_s = _read_window(at, found[2]) if found[2] or measure is None else measure.over_s
    window = "session" if over_s is None else f"{over_s:g}"
    return Budget(
        name=name,
        limit=limit,
        measure=Measure(
            name=f"budget.{name}.{window}",
            of=name if measure is None else measure.of,
            parameter="" if measure is None else measure.parameter,
            over_s=over_s,
        ),
    )


def _read_window(at: str, said: Any) -> float | None:
    if said == "session":
        return None
    found = _WINDOW.fullmatch(said) if isinstance(said, str) else None
    seconds = 0.0
    if found is not None:
        seconds = float(found[1]) * _UNITS[found[2]] if found[1] else float(_UNITS[found[0][0]])
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(
            f"{at}: {said!r} is no window; write session, minute, hour, day or week, or a time of up to 31d "
            "such as 90s, 30m, 24h or 7d"
        )
    return seconds


def _shown(value: int) -> str:
    return to_decimal(value).rstrip("0").rstrip(".")


def _scaled(text: str) -> int | None:
    found = _NUMBER.fullmatch(text)
    return None if found is None else int(found[1]) * PLACES + int((found[2] or "0").ljust(4, "0"))
