"""uvicorn that comes to an end: whoever only listens is let go, and the keep is closed by whoever opened it.

uvicorn itself waits for every stream, which may stay open for days, and ends the process by the signal that
it was told to end with, before a log or a sandbox is closed.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn


class EndingServer(uvicorn.Server):
    """Serves until the process is told to end, and returns."""

    def __init__(self, config: uvicorn.Config, let_go: Callable[[], None]) -> None:
        """`let_go` is called once, when it is told to end; requests in flight have the grace of `config`."""
        super().__init__(config)
        self._let_go = let_go

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Calls in flight have their grace."""
        self._let_go()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn, but the signal is not raised again: the keep is still open."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)
