"""Host side of one template's fork server: a worker for each call, with its grant and its tool from birth."""

import contextlib
import os
import signal
import socket
from typing import Any, ClassVar

from toolkeep.sandbox.errors import SandboxExhausted
from toolkeep.sandbox.memory_limits import MemoryLimits
from toolkeep.sandbox.plan import Grant, WorkerPlan
from toolkeep.sandbox.worker_source import SourceGone, Worker, WorkerSource, until_readable


class Unsealed(Exception):
    """The tool has no template: its workers import it anew. The text says why."""


class Template(WorkerSource):
    """One template and its fork server."""

    makes_furnished: ClassVar[bool] = True

    def __init__(self, control: socket.socket, pidfd: int, memory_limits: MemoryLimits) -> None:
        super().__init__(control, memory_limits)
        self._pidfd = pidfd
        self.is_over = False
        """Whether it can make no more workers, because its template was killed; those that it made go on."""

    async def sealed(self) -> None:
        """Wait until its tool is imported. Raises Unsealed or SourceGone."""
        await self._ready

    async def fork(self, plan: WorkerPlan, grant: Grant) -> Worker:
        """A new worker. Raises SourceGone, SandboxExhausted or SandboxBroken."""
        order = {"grant": grant.to_json(), "waits": plan.has_processes}
        return await self._arrived(self._order(order, plan))

    async def close(self) -> None:
        """Kill it, its template and all its workers, and wait until they are gone."""
        self._mark_gone()
        if self._pidfd >= 0:
            pidfd, self._pidfd = self._pidfd, -1
            _kill(pidfd)
            await until_readable(self._loop, pidfd)
            os.close(pidfd)
        await self._all_reaped()

    def discard(self) -> None:
        """Kill it after its loop was closed."""
        self.is_gone = True
        self._close_control()
        if self._pidfd >= 0:
            pidfd, self._pidfd = self._pidfd, -1
            _kill(pidfd)
            os.close(pidfd)

    def _handle_message(self, message: dict[str, Any], descriptors: list[int], *, is_cut: bool) -> None:
        self.is_over |= message.get("is_over", False)
        if "unsealed" in message:
            if not self._ready.done():
                self._ready.set_exception(Unsealed(message["unsealed"]))
        else:
            super()._handle_message(message, descriptors, is_cut=is_cut)

    def _note_bounded(self, ticket: int) -> None:
        """Let a worker run: unlike a zygote's, it does not wait for its grant."""
        with contextlib.suppress(SourceGone, SandboxExhausted):  # Then it never runs, and its call times out.
            self._send({"bounded": ticket})


def _kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
