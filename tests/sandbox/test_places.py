"""Nobody can take all the places that calls run in."""

import asyncio

import pytest

from toolkeep.sandbox.worker_pool import WorkerSlots


async def soon(work: "asyncio.Future[None]") -> bool:
    """Whether it is done as soon as everything that can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)
    return work.done()


def test_an_owner_who_has_all_that_one_may_have_leaves_places_to_others() -> None:
    async def main() -> tuple[bool, bool, bool]:
        places = WorkerSlots(3, 2)
        await places.take("greedy")
        await places.take("greedy")
        third = asyncio.ensure_future(places.take("greedy"))
        is_third_let_in = await soon(third)
        is_other_let_in = await soon(asyncio.ensure_future(places.take("other")))
        places.release("greedy")
        return is_third_let_in, is_other_let_in, await soon(third)

    assert asyncio.run(main()) == (False, True, True)


def test_all_owners_together_have_no_more_places_than_there_are() -> None:
    async def main() -> tuple[bool, bool]:
        places = WorkerSlots(2, 2)
        await places.take("a")
        await places.take("b")
        waits = asyncio.ensure_future(places.take("c"))
        before = await soon(waits)
        places.release("a")
        return before, await soon(waits)

    assert asyncio.run(main()) == (False, True)


@pytest.mark.parametrize("filled_by", ["me", "others"])
def test_who_gives_up_waiting_holds_nothing(filled_by: str) -> None:
    async def main() -> bool:
        places = WorkerSlots(1, 1)
        await places.take(filled_by)
        given_up = asyncio.ensure_future(places.take("me"))
        await soon(given_up)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        places.release(filled_by)
        for owner in ("me", "others"):
            await asyncio.wait_for(places.take(owner), 30)
            places.release(owner)
        return places._shares == {}

    assert asyncio.run(main())
