"""Host side of whoever makes workers, a zygote or a fork server: orders them over a socket, and reaps them.

Belongs to one event loop. Trusts its peer; the pipes of workers are untrusted and read by `worker_exchange`.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import os
import select
import signal
import socket
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from toolkeep.host.after_fork import register_after_fork
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.memory_limits import MemoryLimit, MemoryLimits
from toolkeep.sandbox.plan import MOST_PORTS, WorkerPlan
from toolkeep.sandbox.proc_stats import ProcessUse, process_use

_MESSAGE_BYTES: Final = 1 << 17
"""Receive buffer for one message: a ticket, or the text of an error."""
_DESCRIPTORS: Final = 3
_STREAMS: Final = 3
_MOST_DESCRIPTORS: Final = _DESCRIPTORS + _STREAMS + 2 + MOST_PORTS
"""Descriptors that come with a worker: two pipes and a pidfd; stdin, stdout and stderr of a persistent one;
the listeners of its egress proxy, of its name server and of the ports that it connects to."""


class Streams(NamedTuple):
    """Host ends of a persistent program's standard streams; the reader closes them."""

    input: BinaryIO
    output: BinaryIO
    errors: BinaryIO

    def close(self) -> None:
        """Close those that are open."""
        for stream in self:
            stream.close()


class SourceGone(Exception):
    """The zygote or fork server exited; another can be started."""


class Worker(msgspec.Struct, frozen=True):
    """An idle worker: its pipes, and a pidfd to kill it."""

    request: int
    reply: int
    pidfd: int
    source: "WorkerSource"
    egress_sockets: tuple[socket.socket, ...] = ()
    """Listening sockets of its egress proxy, in its network namespace; the server closes them."""
    memory_limit: MemoryLimit | None = None
    """Its memory limit, if it may have several processes."""
    streams: Streams | None = None
    """Standard streams of its program, if it is persistent."""
    is_furnished: bool = False
    """Whether it has its grant and has imported its tool already: a fork of a template."""

    def is_alive(self) -> bool:
        """Whether it still runs."""
        ended = select.poll()
        ended.register(self.pidfd, select.POLLIN)
        return not ended.poll(0)

    def kill(self) -> None:
        """Kill it and everything that it started: it is PID 1 of its pid namespace."""
        with contextlib.suppress(ProcessLookupError):
            # By pidfd, not pid: a pid may have been reused by an unrelated process.
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def set_active(self, *, is_active: bool) -> None:
        """Say whether it handles a call now, or is idle."""
        if self.memory_limit is not None:
            self.memory_limit.set_active(is_active=is_active)

    def is_out_of_memory(self) -> bool:
        """Whether it was killed because its processes together exceeded the memory limit."""
        return self.memory_limit is not None and self.memory_limit.is_exceeded()

    def use(self) -> ProcessUse | None:
        """What it has taken so far, as the kernel counts it; None if it is gone."""
        return process_use(self.pidfd)

    def discard(self) -> None:
        """Kill it and close its descriptors when no event loop is left."""
        self.kill()
        if self.memory_limit is not None:
            self.memory_limit.release()
        for listener in self.egress_sockets:
            listener.close()
        if self.streams is not None:
            self.streams.close()
        for descriptor in (self.request, self.reply, self.pidfd):
            os.close(descriptor)


class WorkerSource:
    """One running zygote or fork server."""

    makes_furnished: ClassVar[bool] = False
    """Whether its workers have their grant and their tool from birth."""

    def __init__(self, control: socket.socket, memory_limits: MemoryLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._memory_limits = memory_limits
        self._tickets = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Worker], WorkerPlan]] = {}
        self._unfinished: set[asyncio.Future[Any]] = set()
        """Workers being put under a memory limit, or being reaped."""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.forks = 0
        """Workers requested so far."""
        self.workers = 0
        """Workers that are not reaped yet."""
        self.is_gone = False
        self.last_words = ""
        """Why it exited, if it could report it."""
        control.setblocking(False)  # noqa: FBT003 -- its only argument
        self._loop.add_reader(control, self._on_readable)
        register_after_fork(self)

    @property
    def is_used(self) -> bool:
        """Whether a worker of it lives or was requested."""
        return bool(self.workers or self._waiting)

    def is_stale(self) -> bool:
        """Whether its workers would see something else than was granted."""
        return self.is_gone

    def _order(self, message: dict[str, Any], plan: WorkerPlan) -> "asyncio.Future[Worker]":
        """Request a new worker; one that arrives for a cancelled future is reaped."""
        if self.is_gone:
            raise SourceGone
        ticket = next(self._tickets)
        self._send({**message, "ticket": ticket})
        worker_future: asyncio.Future[Worker] = self._loop.create_future()
        self._waiting[ticket] = worker_future, plan
        self.forks += 1
        return worker_future

    async def _arrived(self, worker_future: "asyncio.Future[Worker]") -> Worker:
        """The ordered worker."""
        try:
            return await worker_future
        except asyncio.CancelledError:
            # It arrived in the same loop iteration: nobody else would kill it.
            if worker_future.done() and not worker_future.cancelled() and worker_future.exception() is None:
                self.reap(worker_future.result())
            raise

    def reap(self, worker: Worker) -> "asyncio.Future[None]":
        """Kill a worker and close its pipes; the future is done when its process tree is gone."""
        worker.kill()
        for listener in worker.egress_sockets:
            listener.close()
        if worker.streams is not None:
            worker.streams.close()
        os.close(worker.request)
        os.close(worker.reply)
        gone: asyncio.Future[None] = self._loop.create_future()
        self._unfinished.add(gone)
        self._loop.add_reader(worker.pidfd, self._reaped, worker, gone)
        return gone

    def _reaped(self, worker: Worker, gone: "asyncio.Future[None]") -> None:
        self._loop.remove_reader(worker.pidfd)
        if worker.memory_limit is not None:
            worker.memory_limit.release()
        os.close(worker.pidfd)
        self.workers -= 1
        self._unfinished.discard(gone)
        if not gone.done():
            gone.set_result(None)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except BlockingIOError as error:
            raise SandboxExhausted("there are more orders for workers than can be taken") from error
        except OSError as error:
            self._mark_gone()
            raise SourceGone from error

    def _on_readable(self) -> None:
        try:
            message, descriptors, flags, _ = socket.recv_fds(
                self._control, _MESSAGE_BYTES, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            self._mark_gone()
            return
        if not message:
            self._mark_gone()
            return
        self._handle_message(json.loads(message), descriptors, is_cut=bool(flags & socket.MSG_CTRUNC))

    def _handle_message(self, message: dict[str, Any], descriptors: list[int], *, is_cut: bool) -> None:
        if "ready" in message:
            if not self._ready.done():
                self._ready.set_result(None)
        elif "ticket" not in message:
            self.last_words = message["error"]
            if not self._ready.done():
                self._ready.set_exception(SandboxBroken(self.last_words))
        else:
            self._deliver(message, descriptors, is_cut=is_cut)

    def _is_ready(self) -> bool:
        return self._ready.done() and not self._ready.cancelled() and self._ready.exception() is None

    def _deliver(self, message: dict[str, Any], descriptors: list[int], *, is_cut: bool) -> None:
        worker_future, plan = self._waiting.pop(message["ticket"], (None, None))
        if "broken" in message:
            fail(worker_future, SandboxBroken(message["broken"]))
        elif "exhausted" in message:
            fail(worker_future, SandboxExhausted(message["exhausted"]))
        # MSG_CTRUNC: at the descriptor limit the kernel drops some descriptors of a message. A worker without
        # its pidfd could not be killed, so all are closed, which ends it.
        elif is_cut or len(descriptors) != _expected(plan):
            for descriptor in descriptors:
                os.close(descriptor)
            fail(worker_future, SandboxExhausted("this process has no file descriptor left"))
        else:
            worker = self._worker(descriptors, plan)
            self.workers += 1
            if plan is not None and plan.has_processes:
                self._limit_memory(worker_future, worker, plan, message["ticket"])
            else:
                self._deliver_worker(worker_future, worker)

    def _worker(self, descriptors: list[int], plan: WorkerPlan | None) -> Worker:
        request, reply, pidfd, *more = descriptors
        for descriptor in (request, reply):
            os.set_blocking(descriptor, False)
        streams = None
        if plan is not None and plan.is_persistent:
            *more, stdin, stdout, stderr = more
            streams = Streams(
                os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)
            )
        egress_sockets = tuple(socket.socket(fileno=descriptor) for descriptor in more)
        return Worker(
            request, reply, pidfd, self, egress_sockets, streams=streams, is_furnished=self.makes_furnished
        )

    def _limit_memory(
        self,
        worker_future: "asyncio.Future[Worker] | None",
        worker: Worker,
        plan: WorkerPlan,
        ticket: int,
    ) -> None:
        """Apply the memory limit before anybody gets the worker, which runs no tool code until then."""
        placing = self._memory_limits.apply(plan, worker.pidfd)
        self._unfinished.add(placing)
        placing.add_done_callback(functools.partial(self._memory_limited, worker_future, worker, ticket))

    def _note_bounded(self, ticket: int) -> None:
        """Called when the memory of a worker is bounded."""

    def _memory_limited(
        self,
        worker_future: "asyncio.Future[Worker] | None",
        worker: Worker,
        ticket: int,
        placing: "asyncio.Future[MemoryLimit]",
    ) -> None:
        self._unfinished.discard(placing)
        error = placing.exception()
        if error is None:
            self._note_bounded(ticket)
            self._deliver_worker(worker_future, replace(worker, memory_limit=placing.result()))
        else:
            self.reap(worker)
            fail(worker_future, error)

    def _deliver_worker(self, worker_future: "asyncio.Future[Worker] | None", worker: Worker) -> None:
        if worker_future is None or worker_future.done():
            self.reap(worker)
        else:
            worker_future.set_result(worker)

    def _close_control(self) -> None:
        """Close the control socket; shutdown ends it even if a fork of this process holds a copy."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: close our copies. The peer belongs to the parent and ends with it."""
        self._control.close()

    async def _all_reaped(self) -> None:
        while self._unfinished:
            await asyncio.wait(self._unfinished)

    def _mark_gone(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._loop.remove_reader(self._control)
        self._close_control()
        waiting, self._waiting = self._waiting, {}
        for worker_future, _ in waiting.values():
            fail(worker_future, SourceGone())
        if not self._ready.done():
            self._ready.set_exception(SourceGone())


def _expected(plan: WorkerPlan | None) -> int:
    """Number of descriptors that come with a worker."""
    if plan is None:
        return _DESCRIPTORS
    listeners = plan.connects + bool(plan.ports) + len(plan.ports)
    return _DESCRIPTORS + listeners + _STREAMS * plan.is_persistent


def fail(worker_future: "asyncio.Future[Any] | None", error: BaseException) -> None:
    """Let whoever waits for it know, if anybody does."""
    if worker_future is not None and not worker_future.done():
        worker_future.set_exception(error)


async def until_readable(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    """Wait until a descriptor can be read; a pidfd can when its process has ended."""
    is_readable: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not is_readable.done():
            is_readable.set_result(None)

    loop.add_reader(descriptor, settle)
    try:
        await is_readable
    finally:
        loop.remove_reader(descriptor)
