"""What does a fresh, confined process for each call cost? Prints tables.

bench/run sandbox [--quick] [--seconds N] [--against CHECKOUT] [--only PART ...]

Whole calls of a keep with its log on disk, at `strict` unless said otherwise, beside the same function
without toolkeep: a Python that starts for each call, bare, in bubblewrap and in sandlock. Each lane has a
process of its own.
"""

import argparse
import compileall
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from measures.lane_process import Held, LaneProcess, Peak, Slice, adopt_orphans
from measures.sandbox_lane import BENCH, KEYS, MANY, is_installed
from measures.statistics import median, median_ratio, percentile
from tables import print_notes, print_table

REFERENCE, LIVE, READ_FILE = "by reference", "live", "read_file"
RIVALS = ("bwrap", "sandlock", "cold")
MIB = 1 << 20
HERE = BENCH.parent
T = TypeVar("T")
MEMORY_CALLS = 20
USE_UP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured, and against what."""

    seconds: float
    rounds: int
    samples: int
    key_calls: int
    against: Path | None

    def lanes(self, *names: str, compared: Iterable[str] = ()) -> dict[str, tuple[str, Path]]:
        """Lane and checkout by title: what is installed here, and what is compared of the other checkout."""
        here = [name for name in names if is_installed(name)]
        if missing := [name for name in names if name not in here]:
            print_notes([f"not installed: {'; '.join(missing)}"])
        found = {name: (name, HERE) for name in here}
        if self.against:
            found |= {self.there(name): (name, self.against) for name in compared if name in here}
        return found

    def there(self, name: str) -> str:
        """The title of a lane of the other checkout."""
        return f"{name}, {self.against.resolve().name}" if self.against else ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a fresh, confined process for each call costs.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    parser.add_argument("--seconds", type=float, help="of calls for each lane and number in flight")
    parser.add_argument("--against", type=Path, help="another checkout of toolkeep, to compare with")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts to measure")
    options = parser.parse_args()
    plan = Plan(
        seconds=options.seconds or (2 if options.quick else 30),
        rounds=1 if options.quick else 3,
        samples=3 if options.quick else 20,
        key_calls=100 if options.quick else KEYS,
        against=options.against,
    )
    # As where it is installed, even if the environment forbids to write bytecode.
    for code in (BENCH / "workloads", HERE / "src", *([plan.against / "src"] if plan.against else [])):
        compileall.compile_dir(code, quiet=1)
    adopt_orphans()
    for part in options.only:
        PARTS[part](plan)


def _light(plan: Plan) -> None:
    names = [f"light, {kind}" for kind in (REFERENCE, LIVE, *RIVALS)]
    lanes = plan.lanes(*names, READ_FILE, compared=[*names[:2], READ_FILE])
    _sustained("A light function", lanes, plan, beside=["light, bwrap", "light, cold", names[0]])


def _pandas(plan: Plan) -> None:
    names = [f"pandas, {kind}" for kind in (REFERENCE, LIVE, *RIVALS)]
    lanes = plan.lanes(*names, compared=names[:2])
    _sustained(
        "A function whose module imports pandas", lanes, plan, beside=["pandas, bwrap", "pandas, cold"]
    )


def _sustained(
    title: str, named: Mapping[str, tuple[str, Path]], plan: Plan, *, beside: Sequence[str]
) -> None:
    """Back to back, so many in flight; the lanes take turns in rounds."""
    if not named:
        return
    beside = [name for name in beside if name in named]
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(LaneProcess(*lane)) for name, lane in named.items()}
        for in_flight in (1, 8, 64):

            def turn(lane: LaneProcess, in_flight: int = in_flight) -> Slice:
                # What was made ready during the pause is used up before anything counts.
                lane.run(in_flight=min(in_flight, 8), seconds=USE_UP_S)
                return lane.run(in_flight=in_flight, seconds=plan.seconds / plan.rounds)

            found = _interleaved(lanes, plan.rounds, turn)
            _print_sustained(f"{title}, {in_flight} in flight", found, beside)


def _interleaved(
    lanes: Mapping[str, LaneProcess], rounds: int, turn: Callable[[LaneProcess], T]
) -> dict[str, list[T]]:
    """Each lane once a round, another one first each time, all others idle."""
    found: dict[str, list[T]] = {name: [] for name in lanes}
    names = list(lanes)
    for lane in lanes.values():
        lane.settle()
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            found[name].append(turn(lanes[name]))
            lanes[name].settle()
    return found


def _print_sustained(title: str, found: Mapping[str, list[Slice]], beside: Sequence[str]) -> None:
    rates = {name: [one.rate for one in slices] for name, slices in found.items()}
    used = {name: [one.processor_of_a_call_s for one in slices] for name, slices in found.items()}
    rivals = [name for name in beside if _last(name) in RIVALS]
    rows = []
    for name, slices in found.items():
        latencies = [latency for one in slices for latency in one.latencies_s]
        rows.append(
            [
                name,
                f"{median(rates[name]):.1f}",
                *(f"{percentile(latencies, part) * 1e3:.1f}" for part in (0.5, 0.99)),
                f"{median(used[name]) * 1e3:.1f}",
                *(f"{median_ratio(rates[name], rates[other]):.2f}" for other in beside),
                *(f"{median_ratio(used[name], used[other]):.2f}" for other in rivals),
            ]
        )
    heads = ["", "calls/s", "p50 ms", "p99 ms", "cpu ms"]
    heads += [f"rate × {_last(other)}" for other in beside]
    heads += [f"cpu × {_last(other)}" for other in rivals]
    print_table(title, heads, rows)


def _last(name: str) -> str:
    return name.rpartition(", ")[2]


def _pause(plan: Plan) -> None:
    """One call after a pause, at each level."""
    levels = [f"light, live, {level}" for level in ("none", "standard", "restricted")]
    named = plan.lanes("light, live", *levels, "light, bwrap", "light, cold")
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(LaneProcess(*lane)) for name, lane in named.items()}
        for lane in lanes.values():
            lane.run(calls=2)
        times = _interleaved(lanes, plan.samples, LaneProcess.call_once)
    rows = [
        [
            name,
            *(f"{percentile(found, part) * 1e3:.1f}" for part in (0.5, 0.99)),
            f"{median_ratio(found, times['light, cold']):.2f}",
        ]
        for name, found in times.items()
    ]
    print_table("One call after a pause", ["", "p50 ms", "p99 ms", "× cold"], rows)


def _first_call(plan: Plan) -> None:
    """Processes that make one call, in turn."""
    names = [f"light, {kind}" for kind in (REFERENCE, LIVE)]
    named = plan.lanes(*names, "light, bwrap", compared=names)
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(LaneProcess(*lane)) for name, lane in named.items()}
        for lane in lanes.values():
            lane.call_once()  # bytecode and state folder are there before, as for a user's second process
        found = _interleaved(lanes, plan.samples, _restarted)
    calls = {name: [call for call, _ in times] for name, times in found.items()}
    wholes = {name: [whole for _, whole in times] for name, times in found.items()}
    rows = []
    for name in found:
        there = plan.there(name)
        rows.append(
            [
                name,
                *(f"{median(times[name]) * 1e3:.0f}" for times in (calls, wholes)),
                *(
                    f"{median_ratio(times[name], times[there]):.2f}" if there in times else ""
                    for times in (calls, wholes)
                ),
            ]
        )
    heads = ["", "call ms", "process ms", "call × there", "process × there"]
    print_table("First call of a process", heads, rows)
    print_notes(
        [
            "call: the first call of an open keep; process: from the start of the process to its answer",
            "× there: beside the other checkout, within rounds",
        ]
    )


def _restarted(lane: LaneProcess) -> tuple[float, float]:
    """Of a new process: its first call, and from its start to the answer."""
    lane.end()
    start = time.perf_counter()
    lane.start()
    call = lane.call_once()
    return call, time.perf_counter() - start


def _memory(plan: Plan) -> None:
    """What stands after calls, when nothing is under way."""
    names = [f"{work}, {kind}" for work in ("light", "pandas") for kind in (REFERENCE, LIVE)]
    fifty = ["light, 50 tools", "pandas, 50 tools"]
    rows = []
    for title, lane in plan.lanes(*names, *fifty, compared=[*names, *fifty]).items():
        with LaneProcess(*lane) as process:
            process.run(calls=MANY if lane[0] in fifty else MEMORY_CALLS)
            process.settle()
            rows.append([title, *_held(process.held())])
    print_table("Memory after calls", ["", "processes", "Pss MiB"], rows)
    print_notes([f"{MEMORY_CALLS} calls of one tool, or one of each; the process of the keep is left out"])


def _keys(plan: Plan) -> None:
    """Ten tools, ten agents and ten granted files in rotation."""
    named = plan.lanes("1,000 keys", compared=["1,000 keys"])
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(LaneProcess(*lane)) for name, lane in named.items()}
        peaks: dict[LaneProcess, Held] = {}

        def turn(lane: LaneProcess) -> Slice:
            with Peak(lane) as peak:
                found = lane.run(in_flight=8, calls=plan.key_calls)
            peaks[lane] = peak.held.most(peaks.get(lane, peak.held))
            return found

        found = _interleaved(lanes, plan.rounds, turn)
        rates = {name: [one.rate for one in slices] for name, slices in found.items()}
        rows = [
            [
                name,
                f"{median(rates[name]):.1f}",
                *_held(peaks[lane]),
                *(f"{median_ratio(rates[name], rates[other]):.2f}" for other in list(rates)[1:]),
            ]
            for name, lane in lanes.items()
        ]
    heads = [
        "",
        "calls/s",
        "processes",
        "Pss MiB",
        *(f"rate × {_last(one)}" for one in list(rates)[1:]),
    ]
    print_table("1,000 keys in rotation, 8 in flight", heads, rows)
    print_notes(["the most of processes and memory, looked at twice a second; the keep's own is left out"])


def _held(held: Held) -> list[str]:
    return [str(held.processes), f"{held.proportional_bytes / MIB:.1f}"]


PARTS: dict[str, Callable[[Plan], None]] = {
    "light": _light,
    "pandas": _pandas,
    "pause": _pause,
    "first-call": _first_call,
    "memory": _memory,
    "keys": _keys,
}

if __name__ == "__main__":
    main()
