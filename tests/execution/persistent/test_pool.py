"""The programs that stay: how many there are at once."""

import asyncio

from toolkeep.events import Bus
from toolkeep.execution.persistent.pool import ProcessPool, User
from toolkeep.sandbox.errors import SandboxExhausted
from toolkeep.sandbox.worker_pool import Pool

USER = User("talk", "a")


class Slow:
    """Stays, and takes its time to end."""

    def __init__(self) -> None:
        self.is_alive = True

    def set_active(self, *, is_active: bool) -> None:
        pass

    async def suspend(self) -> None:
        pass

    async def resume(self) -> None:
        pass

    async def close(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.discard()

    def discard(self) -> None:
        self.is_alive = False


async def start(_: Pool) -> Slow:
    return Slow()


def test_two_that_want_the_last_place_at_once_do_not_both_get_it() -> None:
    """Whoever waits for another to make room looks again afterwards."""

    async def use(processes: ProcessPool, key: str, until: asyncio.Event) -> str:
        try:
            async with processes.use(key, start, user=USER, idle_s=60.0):
                await until.wait()
        except SandboxExhausted:
            return "none"
        return "had one"

    async def main() -> list[str]:
        processes, until = ProcessPool(Bus(), most=1), asyncio.Event()
        async with processes.use("first", start, user=USER, idle_s=60.0):
            pass
        users = [asyncio.ensure_future(use(processes, key, until)) for key in ("second", "third")]
        asyncio.get_running_loop().call_later(0.05, until.set)
        said = await asyncio.gather(*users)
        await processes.close()
        return sorted(said)

    assert asyncio.run(main()) == ["had one", "none"]
