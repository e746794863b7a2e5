"""Refusals of this checkout beside those of another, in turns, in processor time."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from measures.refused import BAD_CALLS, READINGS, WHOLE_CALL
from measures.statistics import median, median_ratio

_BENCH = Path(__file__).parent.parent
_WARM_UP = 10


@contextmanager
def _asked(checkout: Path) -> Iterator["subprocess.Popen[str]"]:
    source = checkout.resolve() / "src"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(source), str(_BENCH)))}
    command = [sys.executable, "-m", "measures.refused"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        if not Path(_next(process)).is_relative_to(source):
            raise RuntimeError(f"{source} holds no toolkeep")
        yield process


def _next(process: "subprocess.Popen[str]", *question: str) -> Any:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a process without pipes")
    if question:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    return json.loads(process.stdout.readline())


def compare(here: Path, other: Path, *, rounds: int) -> dict[str, dict[str, float]]:
    """For each bad call and what is read of its refusal: microseconds here and there, and their ratio."""
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        ours, theirs = (stack.enter_context(_asked(checkout)) for checkout in (here, other))
        for title, reading in itertools.product(BAD_CALLS, (*READINGS, WHOLE_CALL)):
            times: dict[bool, list[float]] = {True: [], False: []}
            for number in range(_WARM_UP + rounds):
                for is_ours in (number % 2 == 0, number % 2 == 1):
                    took = _next(ours if is_ours else theirs, title, reading)
                    times[is_ours] += [took] if number >= _WARM_UP else []
            found[f"{title}: {reading}"] = {
                "here_us": median(times[True]) * 1e6,
                "there_us": median(times[False]) * 1e6,
                "ratio": median_ratio(times[True], times[False]),
            }
    return found
