"""An event loop in its own thread, for synchronous callers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from toolkeep.host.after_fork import register_after_fork
from toolkeep.limits import CLOSE_GRACE_SECONDS

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for synchronous callers; started by the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._farewell: Callable[[], Coroutine[Any, Any, None]] | None = None
        register_after_fork(self)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine; works inside a notebook, whose own loop is running."""
        # Whatever is submitted before `close` stops the loop is still run by it.
        with self._lock:
            self.check_elsewhere("call_sync was called by a tool that call_sync runs; await keep.call there")
            future = asyncio.run_coroutine_threadsafe(make(), self._started())
        try:
            return future.result()
        except BaseException:
            # KeyboardInterrupt in the caller must stop the call, not leave it running.
            future.cancel()
            raise

    def check_elsewhere(self, otherwise: str) -> None:
        """Raise on the loop's own thread, which would deadlock waiting for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(otherwise)

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Stop the loop: cancel what runs on it, then run `farewell`."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            self._farewell = farewell
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: there is a loop, but no thread that runs it or holds the lock."""
        self._lock, self._loop, self._thread = threading.Lock(), None, None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=self._serve, args=(loop,), name="toolkeep-loop", daemon=True)
            thread.start()
            self._loop, self._thread = loop, thread
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            _run_until_stopped(loop)
            loop.run_until_complete(_cancel_all())
            if self._farewell is not None:
                loop.run_until_complete(self._farewell())
        finally:
            loop.close()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop; asyncio stops it on SystemExit and KeyboardInterrupt of a task, so start it again."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
        return


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        together = asyncio.gather(*left, return_exceptions=True)
        await asyncio.wait({together}, timeout=CLOSE_GRACE_SECONDS)
