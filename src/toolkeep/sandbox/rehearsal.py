"""Starts a real zygote and a real worker of a level, and lets it answer a call.

Mechanisms that work one by one may not work together: as root without CAP_SYS_ADMIN each can be had by giving
up root first, while a zygote has to mount before it does. A level counts only after its rehearsal.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from toolkeep.errors import ToolkeepError
from toolkeep.sandbox.exchange import Ending, Reply
from toolkeep.sandbox.filters import for_level
from toolkeep.sandbox.levels import Isolation, memory_bound
from toolkeep.sandbox.plan import Recipe, WorkerPlan, ZygotePlan
from toolkeep.sandbox.pool import Key, Pool, PoolSize

_SECONDS: Final = 20.0
_TOOL: Final = "os:getpid"
_EXPECTED: Final = Reply(Ending.OK, value=1)
"""A worker is the first process of its pid namespace."""


def rehearse(levels: Iterable[Isolation]) -> Mapping[Isolation, str]:
    """Why a level cannot be given, for those that cannot. Runs an event loop of its own."""
    return asyncio.run(_rehearse(tuple(levels)))


async def _rehearse(levels: tuple[Isolation, ...]) -> Mapping[Isolation, str]:
    pool = Pool(PoolSize(warm_per_kind=0))
    try:
        reasons = await asyncio.gather(*(_reason(pool, level) for level in levels))
    finally:
        await pool.close()
    return {level: reason for level, reason in zip(levels, reasons, strict=True) if reason}


async def _reason(pool: Pool, level: Isolation) -> str:
    try:
        key = Key(_TOOL, level, "")
        pool.admit(key, _recipe(level))
        reply = await pool.run(key, b'{"arguments":{}}', _SECONDS, 1024)
    except ToolkeepError as error:
        return error.message
    except ValueError as error:
        return str(error)
    return "" if reply == _EXPECTED else f"a worker gave no answer: {reply.ending} {reply.text}".rstrip()


def _recipe(level: Isolation) -> Recipe:
    worker = WorkerPlan(
        tool=_TOOL, level=level, filter=for_level(level).program(), memory_by=memory_bound(level)
    )
    return Recipe(zygote=ZygotePlan(level=level, warms=False), worker=worker)
