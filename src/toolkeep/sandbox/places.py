"""How many calls have a worker at once, and how many of them may be one owner's.

Whoever fills all the places that one owner may have leaves some to the others, however long its calls take.
Belongs to one event loop.
"""

import asyncio
from dataclasses import dataclass


@dataclass(slots=True)
class _Share:
    """The places of one owner."""

    free: asyncio.Semaphore
    users: int = 0
    """Calls that hold one of them, or wait."""


class Places:
    """Places to run in."""

    def __init__(self, most: int, most_each: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._most_each = most_each
        self._shares: dict[str, _Share] = {}

    async def take(self, owner: str) -> None:
        """Wait for a place, first for one of the owner's own."""
        share = self._shares.setdefault(owner, _Share(asyncio.Semaphore(self._most_each)))
        share.users += 1
        try:
            await share.free.acquire()
            try:
                await self._free.acquire()
            except BaseException:
                share.free.release()
                raise
        except BaseException:
            self._leave(owner, share)
            raise

    def give_back(self, owner: str) -> None:
        """Let the next one have it."""
        share = self._shares[owner]
        self._free.release()
        share.free.release()
        self._leave(owner, share)

    def _leave(self, owner: str, share: _Share) -> None:
        share.users -= 1
        if not share.users:
            del self._shares[owner]
