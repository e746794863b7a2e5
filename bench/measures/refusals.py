"""How long until every fault of a bad call is known, in words that a model could read."""

import itertools
from collections.abc import Sequence

import orjson

import toolkeep
from measures.interleave import Runner, Timing, time_interleaved
from rivals.contestant import Check, Contestant
from workloads.cases import CASES
from workloads.transfer import FIVE_FAULTS, ONE_FAULT

BAD_CALLS = {"one fault": ONE_FAULT, "five faults": FIVE_FAULTS}


def time_refusal(bad: str, contestants: Sequence[Contestant], *, rounds: int) -> list[Timing]:
    """The yardstick parses the same bytes."""
    raw = bad.encode()
    yardstick = Runner(name="orjson.loads", statement="loads(raw)", names={"loads": orjson.loads, "raw": raw})
    runners = [_toolkeep_runner(raw)]
    for contestant in contestants:
        if contestant.name != "toolkeep":
            text = bad if contestant.takes_text else raw
            names = {"explain": _explainer(contestant), "raw": text}
            runners.append(Runner(name=contestant.name, statement="explain(raw)", names=names))
    return time_interleaved(yardstick, runners, rounds=rounds)


def _toolkeep_runner(raw: bytes) -> Runner:
    function = CASES[0].function
    keep = toolkeep.open_keep()
    keep.register(function)
    # Each refusal goes to another agent: after twenty in a row one agent is told less, and sooner.
    names = {
        "validate": keep.try_validate_arguments,
        "name": function.__name__,
        "raw": raw,
        "agents": map(str, itertools.count()),
    }
    return Runner(name="toolkeep", statement="validate(name, raw, agent=next(agents)).text", names=names)


def _explainer(contestant: Contestant) -> Check:
    check = contestant.check(CASES[0].function)

    def explain(raw: str | bytes) -> str:
        try:
            check(raw)
        except Exception as error:
            return str(error)
        raise RuntimeError(f"{contestant.name} accepts a bad call")

    return explain
