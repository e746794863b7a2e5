"""The memory of all processes of a worker together is bounded, by a watch where there is no cgroup."""

import asyncio
import os
from typing import Any

import pytest
from msgspec.structs import replace

from tests.sandbox.workers import caller, recipe, until
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.plan import Recipe, ResourceLimits
from toolkeep.sandbox.proc_stats import tree_bytes
from toolkeep.sandbox.worker_exchange import Ending, Reply
from toolkeep.sandbox.worker_pool import Pool, PoolSize

SMALL = ResourceLimits(memory_bytes=256 << 20)
SPAWNING = (Isolation.STANDARD, Isolation.STRICT)


def spawning(level: Isolation, tool: str, limits: ResourceLimits = SMALL) -> Recipe:
    return recipe(level, tool, may_spawn=True, limits=limits)


def called(made: Recipe, **arguments: Any) -> Reply:
    async def main() -> Reply:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            return await here.call(made, **arguments)

    return asyncio.run(main())


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("level", SPAWNING)
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_children_that_take_too_much_together_are_killed(level: Isolation, kind: str) -> None:
    made = spawning(level, "take_memory_in_children")
    assert called(made, children=2, megabytes=40, kind=kind) == Reply(Ending.OK, value=2)
    reply = called(made, children=4, megabytes=100, kind=kind, hold_s=10)
    assert reply == Reply(Ending.OUT_OF_MEMORY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees how much of its memory a process shares")
def test_memory_that_processes_share_counts_once_where_that_can_be_seen() -> None:
    made = spawning(Isolation.STRICT, "take_memory_in_children", replace(SMALL, memory_bytes=400 << 20))
    reply = called(made, children=4, megabytes=150, kind="first", hold_s=1)
    assert reply == Reply(Ending.OK, value=4)


def test_one_process_still_meets_its_own_limit_first() -> None:
    reply = called(spawning(Isolation.STRICT, "take_memory"), megabytes=400)
    assert (reply.ending, "MemoryError" in reply.text) == (Ending.RAISED, True)


@pytest.mark.parametrize("level", SPAWNING)
def test_what_a_tool_takes_when_it_is_imported_counts_too(level: Isolation) -> None:
    assert called(spawning(level, "takes_at_import:never")) == Reply(Ending.OUT_OF_MEMORY)


def watched(pool: Pool) -> int:
    return len(pool._memory_limits._watch._watched)


def test_only_workers_that_may_start_processes_are_watched_and_only_while_they_live() -> None:
    async def main() -> list[int]:
        async with caller(PoolSize(warm_per_kind=1)) as here:
            counts = []
            for made in (
                recipe(Isolation.RESTRICTED, "add"),
                recipe(Isolation.STRICT, "add"),
                spawning(Isolation.STRICT, "add"),
            ):
                key = here.key(made)
                await here.call(made, first=1, second=1)
                await until(here.is_settled)
                counts.append(watched(here.pool))
                here.pool.forget(key)
                await until(lambda: not watched(here.pool))
            return [*counts, watched(here.pool)]

    assert asyncio.run(main()) == [0, 0, 1, 0]


def test_a_tree_is_looked_at_from_its_root() -> None:
    before = tree_bytes(os.getpid(), 1 << 50)
    ready, tell = os.pipe()
    over, end = os.pipe()
    if (child := os.fork()) == 0:
        taken = bytearray(b"x") * (64 << 20)
        os.write(tell, b"." if taken else b"")
        os.read(over, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        assert tree_bytes(os.getpid(), 1 << 50) - before > 64 << 20
        assert tree_bytes(child, 1 << 50) > 64 << 20
    finally:
        os.write(end, b".")
        os.waitpid(child, 0)
        for descriptor in (ready, tell, over, end):
            os.close(descriptor)


@pytest.mark.parametrize(
    ("level", "may_spawn", "memory_by", "is_fit"),
    [
        (Isolation.STANDARD, False, Mechanism.MEMORY_LIMIT, False),
        (Isolation.STRICT, True, Mechanism.MEMORY_LIMIT, False),
        (Isolation.STRICT, False, Mechanism.MEMORY_WATCH, False),
        (Isolation.STRICT, False, Mechanism.MEMORY_LIMIT, True),
        (Isolation.STRICT, True, Mechanism.MEMORY_CGROUP, True),
        (Isolation.STANDARD, False, Mechanism.MEMORY_WATCH, True),
    ],
)
def test_a_plan_bounds_the_memory_of_several_processes_together(
    level: Isolation, may_spawn: bool, memory_by: Mechanism, is_fit: bool
) -> None:
    worker = recipe(level, "add", may_spawn=may_spawn).worker
    if is_fit:
        assert replace(worker, memory_by=memory_by).memory_by is memory_by
    else:
        with pytest.raises(ValueError, match="limited by a cgroup or a watch"):
            replace(worker, memory_by=memory_by)
