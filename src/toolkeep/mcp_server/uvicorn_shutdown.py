"""Graceful shutdown of uvicorn: closes idle streams and returns to the caller, which closes the keep.

uvicorn itself waits for every stream, which may stay open for days, and then kills the process with the
signal it received, before audit log and sandboxes are closed.
"""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import uvicorn

_LOOK_S: Final = 0.1
"""How often a shutdown looks for a second signal, as often as uvicorn looks for the first."""
_ANSWER_S: Final = 1.0
"""How long the answers of cancelled requests may take before their connections are closed."""


class GracefulServer(uvicorn.Server):
    """Serves until the process receives a signal, and returns. A second signal ends the grace period."""

    def __init__(self, config: uvicorn.Config, begin_shutdown: Callable[[], None]) -> None:
        """`begin_shutdown` is called once; requests in flight have the grace period of `config`."""
        super().__init__(config)
        self._begin_shutdown = begin_shutdown
        self.signals = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 -- a signal handler
        """Signal handler; it only sets flags, as it may have interrupted anything."""
        self.signals += 1
        self.stop()

    def stop(self) -> None:
        """Begin the shutdown soon."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close idle streams, then wait for requests in flight."""
        self._begin_shutdown()
        cutting = asyncio.create_task(self._cut_short())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_short(self) -> None:
        """At a second signal, cancel the requests in flight."""
        while self.signals < 2:  # noqa: ASYNC110 -- set by a signal handler
            await asyncio.sleep(_LOOK_S)
        for task in list(self.server_state.tasks):
            task.cancel()
        await asyncio.sleep(_ANSWER_S)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

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
