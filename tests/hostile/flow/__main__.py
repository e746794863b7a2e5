"""Plays every pair under every guard and prints the table: `.venv/bin/python -m tests.hostile.flow`.

With `--learn`: learns policies from half of the tasks, and plays the other half under them.
"""

import asyncio
import sys
import time

from tests.hostile.flow.goals import GOALS
from tests.hostile.flow.guards import NoPolicy, SimpleRule, Standard, StaticSet
from tests.hostile.flow.learning import print_halves
from tests.hostile.flow.replay import play_round, table
from tests.hostile.flow.tasks import TASKS


async def _main() -> None:
    rounds = []
    for kind in (NoPolicy, StaticSet, SimpleRule, Standard):
        before = time.perf_counter()
        rounds.append(await play_round(kind(), TASKS, GOALS))
        print(f"{kind.name}: {time.perf_counter() - before:.1f} s", file=sys.stderr)
    print(table(rounds))
    for one in rounds[2:]:
        print(*one.reached, sep="\n")


asyncio.run(print_halves() if "--learn" in sys.argv else _main())
