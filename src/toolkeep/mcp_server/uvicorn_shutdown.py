"""Graceful shutdown of uvicorn: closes idle streams and returns to the caller, which closes the keep.

uvicorn itself waits for every stream, which may stay open for days, and then kills the process with the
signal it received, before audit log and sandboxes are closed.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn


class GracefulServer(uvicorn.Server):
    """Serves until the process receives a signal, and returns."""

    def __init__(self, config: uvicorn.Config, begin_shutdown: Callable[[], None]) -> None:
        """`begin_shutdown` is called once; requests in flight have the grace period of `config`."""
        super().__init__(config)
        self._begin_shutdown = begin_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close idle streams, then wait for requests in flight."""
        self._begin_shutdown()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but without raising the signal again: the keep is still open."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)
