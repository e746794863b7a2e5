"""What it costs a call that its agent is watched for new things: `.venv/bin/python bench/drift.py`."""

import statistics
import time
from collections.abc import Iterator

from toolkeep.audit.entry import Entry
from toolkeep.calls import Decision, FlowRecord, ToolResult
from toolkeep.keep.drift import DriftWatch

ROUNDS, CALLS = 200, 500


class _NoLog:
    def read_back(self, stop: int | None = None) -> Iterator[Entry]:
        return iter(())


def _result(path: str) -> ToolResult:
    flow = FlowRecord(opened=True, secret=False, session="s", origins={"to": ("user",)})
    decision = Decision(
        policies=("all",), policy_set_hash="", request_hash="", capabilities=("fs.read",), decided_at="",
        touches=(f"fs.read:{path}",), flow=flow,
    )  # fmt: skip
    return ToolResult(status="ok", tool="read", call_id="c", agent="ada", decision=decision)


def _time(results: list[ToolResult]) -> float:
    watch = DriftWatch(_NoLog(), lambda _: None, lambda _: None)
    watch.read_baseline()
    for one in results[:CALLS]:
        watch.heard(one)
    times = []
    for number in range(ROUNDS):
        some = results[number * CALLS % len(results) :][:CALLS]
        before = time.perf_counter()
        for one in some:
            watch.heard(one)
        times.append((time.perf_counter() - before) / len(some) * 1e6)
    return statistics.median(times)


def main() -> None:
    """Print microseconds a call."""
    print(f"a call as before: {_time([_result('/notes/a.txt')] * CALLS):.1f} µs")
    fresh = [_result(f"/notes/{number}/a.txt") for number in range(CALLS * 20)]
    print(f"a call with a folder that is new, or was not seen lately: {_time(fresh):.1f} µs")


if __name__ == "__main__":
    main()
