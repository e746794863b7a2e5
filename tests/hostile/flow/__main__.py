"""Plays every pair under every guard, or those named, and prints the table: `.venv/bin/python -m tests.hostile.flow`.

With `--learn`: learns policies from half of the tasks, and plays the other half under them.
"""

import asyncio
import sys
import time

from tests.hostile.flow.goals import GOALS
from tests.hostile.flow.guards import NoPolicy, SimpleRule, Standard, StaticSet, Typed, TypedWithoutReader
from tests.hostile.flow.learning import print_halves
from tests.hostile.flow.replay import play_round, table
from tests.hostile.flow.tasks import TASKS


async def _main() -> None:
    rounds = []
    kinds = (NoPolicy, StaticSet, SimpleRule, Standard, Typed, TypedWithoutReader)
    for kind in [one for one in kinds if one.__name__ in sys.argv[1:]] or kinds:
        before = time.perf_counter()
        rounds.append(await play_round(kind(), TASKS, GOALS))
        print(f"{kind.name}: {time.perf_counter() - before:.1f} s", file=sys.stderr)
    print(table(rounds))
    for one in rounds:
        if one.guard in (Typed.name, TypedWithoutReader.name):
            needed = ", ".join(f"{count} of {one.tasks // 3} of {who}" for who, count in one.reads.items())
            print(f"{one.guard}: {one.asked} goals reached after a question; read_text needed by {needed}")
    for one in rounds:
        if one.guard not in (NoPolicy.name, StaticSet.name):
            print(*one.reached, sep="\n")


asyncio.run(print_halves() if "--learn" in sys.argv else _main())
