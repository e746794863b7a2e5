"""A valid call from its text to validated arguments, as a multiple of `orjson.loads` of the same bytes."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

import toolkeep
from measures.interleave import Runner, Timing, time_interleaved
from rivals.contestant import Contestant
from workloads.cases import Case
from workloads.real import NotAFunction, RealCall, function_for

YARDSTICK = "orjson.loads"
TOOLKEEP = "toolkeep"


def time_case(case: Case, contestants: Sequence[Contestant], *, rounds: int) -> list[Timing]:
    """One tool, one call."""
    raw = case.raw.encode()
    yardstick = Runner(name=YARDSTICK, statement="loads(raw)", names={"loads": orjson.loads, "raw": raw})
    runners = [_toolkeep_runner(case.function, raw)]
    for contestant in contestants:
        if contestant.name != TOOLKEEP:
            check, text = contestant.check(case.function), _text(contestant, case.raw)
            check(text)  # raises here, where the call is not accepted
            runners.append(
                Runner(name=contestant.name, statement="check(raw)", names={"check": check, "raw": text})
            )
    return time_interleaved(yardstick, runners, rounds=rounds)


def time_real(
    calls: Sequence[RealCall], contestants: Sequence[Contestant], *, rounds: int
) -> tuple[list[Timing], int]:
    """Every real call once a batch; the times are per call. Also the number of calls that took part."""
    usable = [(call, function) for call in calls if (function := _function(call)) is not None]
    raws = [call.raw.encode() for call, _ in usable]
    yardstick = Runner(
        name=YARDSTICK, statement="for raw in raws: loads(raw)", names={"loads": orjson.loads, "raws": raws}
    )
    runners = [_toolkeep_over([call for call, _ in usable])]
    for contestant in contestants:
        if contestant.name != TOOLKEEP:
            pairs = [(contestant.check(function), _text(contestant, call.raw)) for call, function in usable]
            for check, text in pairs:
                check(text)
            runners.append(
                Runner(
                    name=contestant.name,
                    statement="for check, raw in pairs: check(raw)",
                    names={"pairs": pairs},
                )
            )
    timings = time_interleaved(yardstick, runners, rounds=rounds)
    return [_per_call(timing, len(usable)) for timing in timings], len(usable)


def _toolkeep_runner(function: Callable[..., Any], raw: bytes) -> Runner:
    keep = toolkeep.open_keep()
    keep.register(function)
    name = function.__name__
    keep.validate_arguments(name, raw)
    names = {"validate": keep.try_validate_arguments, "name": name, "raw": raw}
    return Runner(name=TOOLKEEP, statement="validate(name, raw)", names=names)


def _toolkeep_over(calls: Sequence[RealCall]) -> Runner:
    keep = toolkeep.open_keep()
    for call in calls:
        keep.register(call.definition)
    pairs = [(call.name, call.raw.encode()) for call in calls]
    for name, raw in pairs:
        keep.validate_arguments(name, raw)
    names = {"validate": keep.try_validate_arguments, "pairs": pairs}
    return Runner(name=TOOLKEEP, statement="for name, raw in pairs: validate(name, raw)", names=names)


def _function(call: RealCall) -> Callable[..., Any] | None:
    try:
        return function_for(call)
    except NotAFunction:
        return None


def _text(contestant: Contestant, raw: str) -> str | bytes:
    return raw if contestant.takes_text else raw.encode()


def _per_call(timing: Timing, calls: int) -> Timing:
    return Timing(
        name=timing.name,
        microseconds=timing.microseconds / calls,
        ratio=timing.ratio,
        ratio_p10=timing.ratio_p10,
        ratio_p90=timing.ratio_p90,
    )
