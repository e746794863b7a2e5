"""The output of a tool that yields it: each piece goes out as a frame before the reply, which has them all.

No more of them than the host takes; bytes only come with the reply.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from .context import Send
from .plain import plain

_TOLD: Final = 10_000
_MOST: Final = 1_000_000


class Pieces:
    """What a generator has given so far."""

    def __init__(self, send: Send) -> None:
        self.given: list[Any] = []
        self._send = send

    def take(self, generator: Iterator[Any]) -> "Pieces":
        """Everything that it gives."""
        for piece in generator:
            self._add(piece)
        return self

    async def take_soon(self, generator: AsyncIterator[Any]) -> "Pieces":
        """Everything that it gives, in its own time."""
        async for piece in generator:
            self._add(piece)
        return self

    @property
    def are_bytes(self) -> bool:
        """Whether they are to be joined here, because JSON cannot hold them."""
        return bool(self.given) and all(isinstance(piece, bytes) for piece in self.given)

    def _add(self, piece: Any) -> None:
        if len(self.given) >= _MOST:
            raise ValueError(f"more than {_MOST} pieces")
        if isinstance(piece, (bytes, bytearray, memoryview)):
            self.given.append(bytes(piece))
            return
        self.given.append(plain(piece))
        if len(self.given) <= _TOLD:
            body = json.dumps({"piece": self.given[-1]}, ensure_ascii=False, allow_nan=False)
            self._send(body.encode())
