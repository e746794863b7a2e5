"""Calls a tool on a machine that runs out of something, and says what came of it each time, as a line of JSON.

poor_host.py processes|descriptors N…: at most so many processes of this user, or descriptors of this process
more than it has; one call for each number.
"""

import asyncio
import json
import os
import resource
import sys

from tests.sandbox.workers import caller, recipe
from toolkeep.errors import ToolkeepError
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.plan import Recipe
from toolkeep.sandbox.worker_pool import PoolSize

KINDS = {"processes": resource.RLIMIT_NPROC, "descriptors": resource.RLIMIT_NOFILE}
TOOL = "textwrap:shorten"
ARGUMENTS = {"text": "a b", "width": 9}
RECIPES = (recipe(Isolation.STRICT, TOOL), recipe(Isolation.STRICT, TOOL, may_spawn=True))


async def outcome(made: Recipe, *, is_started: bool, kind: int, most: int) -> str:
    """What one call gives in a pool of its own, whose zygote runs already or not; a later one must work."""
    async with caller(PoolSize(warm_per_kind=0)) as here:
        here.deadline_s = 15.0
        if is_started:
            await here.call(made, **ARGUMENTS)
        before, filled = resource.getrlimit(kind), fill(kind)
        taken = filled[-1] + 1 if filled else 0
        resource.setrlimit(kind, (taken + most, before[1]))
        try:
            said = (await here.call(made, **ARGUMENTS)).ending.value
        except ToolkeepError as error:
            said = type(error).__name__
        resource.setrlimit(kind, before)
        for descriptor in filled:
            os.close(descriptor)
        if kind == resource.RLIMIT_NOFILE:  # a zygote keeps the limit on processes that it began with
            await here.call(made, **ARGUMENTS)
        return said


def fill(kind: int) -> list[int]:
    """Leave no number free below those of the descriptors that are open, so that they can be counted."""
    if kind != resource.RLIMIT_NOFILE:
        return []
    opened: list[int] = []
    highest = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 -- text
    while not opened or opened[-1] < highest:
        opened.append(os.open("/dev/null", os.O_RDONLY))
    return opened


async def main(kind: int, numbers: list[int]) -> list[str]:
    starts = (False, True) if kind == resource.RLIMIT_NOFILE else (False,)
    return [
        await outcome(made, is_started=is_started, kind=kind, most=number)
        for made in RECIPES
        for number in numbers
        for is_started in starts
    ]


if __name__ == "__main__":
    found = asyncio.run(main(KINDS[sys.argv[1]], list(map(int, sys.argv[2:]))))
    sys.stdout.write(json.dumps(found) + "\n")
