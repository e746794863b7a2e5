"""Which level runs which ordinary programs; `docs/sandbox.md` has the same table."""

import asyncio
from typing import Final

import pytest

from tests.sandbox.workers import caller, recipe
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.worker_exchange import Ending

EVERYWHERE: Final = frozenset(("standard", "strict", "strict, may spawn", "restricted"))
WITH_FILES: Final = EVERYWHERE - {"restricted"}
WITH_PROCESSES: Final = frozenset(("standard", "strict, may spawn"))

RUNS: Final = {
    "threads": EVERYWHERE,
    "event_loop": EVERYWHERE,
    "database_in_memory": EVERYWHERE,
    "database_in_a_file": WITH_FILES,
    "temporary_file": WITH_FILES,
    "time_zone": EVERYWHERE,
    "foreign_function": EVERYWHERE,
    "program": WITH_PROCESSES,
    "forked_process": WITH_PROCESSES,
    "queue_between_processes": WITH_PROCESSES,
}


@pytest.mark.spec("SBX-2")
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("where", sorted(EVERYWHERE))
def test_an_ordinary_program_runs_where_it_should(name: str, where: str) -> None:
    level, _, spawn = where.partition(", ")

    async def main() -> tuple[Ending, object]:
        async with caller() as here:
            reply = await here.call(recipe(Isolation(level), f"ordinary:{name}", may_spawn=bool(spawn)))
            return reply.ending, reply.value

    ending, value = asyncio.run(main())
    assert (ending is Ending.OK) is (where in RUNS[name]), ending
    if where in RUNS[name]:
        assert value in (8, 36)
