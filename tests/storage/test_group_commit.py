"""Changes in groups: one transaction for what is asked at once, and every waiter learns what became of his."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import pytest

from toolkeep.storage.group_commit import GroupCommit
from toolkeep.storage.sqlite.ledger_db import SqliteLedger


def on_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """A test that runs on an event loop of its own."""

    @functools.wraps(test)
    def run(**given: object) -> None:
        asyncio.run(test(**given))

    return run


class Disk:
    """Doubles numbers, and notes its groups with the thread that wrote them."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.groups: list[list[int]] = []
        self.threads: list[int] = []

    def write(self, changes: Sequence[int]) -> list[int]:
        time.sleep(self.takes_s)
        self.groups.append(list(changes))
        self.threads.append(threading.get_ident())
        if 13 in changes:
            raise OSError("disk full")
        return [2 * change for change in changes]


@on_a_loop
async def test_what_is_asked_at_once_is_one_group() -> None:
    disk = Disk()
    changes = GroupCommit(disk.write)
    assert await asyncio.gather(*map(changes.put, range(5))) == [0, 2, 4, 6, 8]
    assert await changes.put(7) == 14
    assert disk.groups == [[0, 1, 2, 3, 4], [7]]


@on_a_loop
async def test_a_failure_reaches_everybody_in_the_group_and_nobody_after_it() -> None:
    changes = GroupCommit(Disk().write)
    told = await asyncio.gather(*map(changes.put, (1, 13, 3)), return_exceptions=True)
    assert [str(one) for one in told] == ["disk full"] * 3
    assert await changes.put(4) == 8


@on_a_loop
async def test_a_slow_disk_blocks_no_event_loop_and_the_next_group_gathers_meanwhile() -> None:
    disk = Disk(takes_s=0.05)
    changes = GroupCommit(disk.write)
    await changes.put(0)  # shows that the disk is slow
    first = changes.put(1)
    await asyncio.sleep(0.01)
    later = [changes.put(number) for number in (2, 3)]
    assert not first.done()
    assert await asyncio.gather(first, *later) == [2, 4, 6]
    assert disk.groups == [[0], [1], [2, 3]]
    here = threading.get_ident()
    assert [thread == here for thread in disk.threads] == [True, False, False]


@on_a_loop
async def test_a_change_is_made_although_its_caller_was_cancelled() -> None:
    disk = Disk()
    changes = GroupCommit(disk.write)
    gone, stays = changes.put(1), changes.put(2)
    gone.cancel()
    assert await stays == 4
    assert disk.groups == [[1, 2]]


def test_event_loops_of_several_threads_get_their_own_answers() -> None:
    changes = GroupCommit(Disk().write)
    answers: dict[int, int] = {}

    async def ask(number: int) -> None:
        answers[number] = await changes.put(number)

    threads = [threading.Thread(target=asyncio.run, args=(ask(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: 2 * number for number in range(8)}


@pytest.mark.parametrize("keys", [["a"] * 20, ["a", "b"] * 10], ids=["one key", "two keys"])
@on_a_loop
async def test_of_claims_in_one_group_exactly_one_has_each_key(tmp_path: Path, keys: list[str]) -> None:
    ledger = SqliteLedger(tmp_path / "state")
    claims = [ledger.claim(key, f"call {number}", "hash") for number, key in enumerate(keys)]
    found = await asyncio.gather(*claims)
    won = [key for key, earlier in zip(keys, found, strict=True) if earlier is None]
    ledger.close()
    assert sorted(won) == sorted(set(keys))
    assert {earlier.state for earlier in found if earlier} == {"running"}
