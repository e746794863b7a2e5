"""Host side of one zygote: starts it, requests workers, notices its exit.

The host never forks: a fork of a multi-threaded process copies its locks and secrets. The zygote is a program
started by path, with an empty environment. Belongs to one event loop. Trusts the zygote; worker pipes are
untrusted and read by `worker_exchange`.
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
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from toolkeep.host.after_fork import register_after_fork
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.memory_limits import MemoryLimit, MemoryLimits
from toolkeep.sandbox.mountinfo import MountWatch
from toolkeep.sandbox.plan import NotThere, WorkerPlan, ZygotePlan
from toolkeep.sandbox.trusted_paths import INTERPRETER

START_FILE: Final = str(Path(__file__).resolve().parent / "guest" / "start.py")
START_SECONDS: Final = 20.0
"""How long a zygote may take to become ready; a loaded machine needs one or two seconds."""

_MESSAGE_BYTES: Final = 1 << 17
"""Receive buffer for one message of a zygote: a ticket, or the text of an error."""
_DESCRIPTORS: Final = 3
_STREAMS: Final = 3
_MOST_DESCRIPTORS: Final = 7
"""Descriptors that come with a worker: two pipes and a pidfd; stdin, stdout and stderr of a persistent one.
At most seven with the listener of its egress proxy."""


class Streams(NamedTuple):
    """Host ends of a persistent program's standard streams; the reader closes them."""

    input: BinaryIO
    output: BinaryIO
    errors: BinaryIO

    def close(self) -> None:
        """Close those that are open."""
        for stream in self:
            stream.close()


class ZygoteGone(Exception):
    """The zygote exited; another can be started."""


@dataclass(frozen=True, slots=True)
class Worker:
    """An idle worker: its pipes, and a pidfd to kill it."""

    request: int
    reply: int
    pidfd: int
    zygote: "Zygote"
    egress_socket: socket.socket | None = None
    """Listening socket of its egress proxy, in its network namespace; the server closes it."""
    memory_limit: MemoryLimit | None = None
    """Its memory limit, if it may have several processes."""
    streams: Streams | None = None
    """Standard streams of its program, if it is persistent."""

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

    def discard(self) -> None:
        """Kill it and close its descriptors when no event loop is left."""
        self.kill()
        if self.memory_limit is not None:
            self.memory_limit.release()
        if self.egress_socket is not None:
            self.egress_socket.close()
        if self.streams is not None:
            self.streams.close()
        for descriptor in (self.request, self.reply, self.pidfd):
            os.close(descriptor)


class Zygote:
    """One running zygote."""

    def __init__(self, plan: ZygotePlan, memory_limits: MemoryLimits) -> None:
        """Launch one. Raises NotThere if a path of its plan is gone."""
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        # Recorded before it mounts anything, so that a folder swapped meanwhile is noticed (`is_stale`).
        self._identities = plan.identities()
        self._mounts = _mounts_inside(plan)
        try:
            process, control = _launched()
        except BaseException:
            self._mounts.close()
            raise
        self._process = process
        self._control = control
        self._memory_limits = memory_limits
        self._tickets = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Worker], WorkerPlan]] = {}
        self._prepared: set[str] = set()
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
        self._loop.add_reader(control, self._on_readable)
        register_after_fork(self)

    @classmethod
    async def start(cls, plan: ZygotePlan, memory_limits: MemoryLimits) -> "Zygote":
        """Start one and wait until it can fork."""
        zygote = cls(plan, memory_limits)
        try:
            zygote._send(plan.to_json())
            async with asyncio.timeout(START_SECONDS):
                await zygote._ready
        except TimeoutError as error:
            raise SandboxBroken(f"the zygote was not ready in {START_SECONDS:.0f} s") from error
        except ZygoteGone as error:
            raise SandboxBroken("the zygote ended while it started") from error
        finally:
            if not zygote._is_ready():
                zygote._kill_unready()
        return zygote

    @property
    def is_used(self) -> bool:
        """Whether a worker of it lives or was requested."""
        return bool(self.workers or self._waiting)

    def is_stale(self) -> bool:
        """Whether a path of its plan changed: mounts refer to folders, not to their names.

        A call that used the old mount would read and write a folder that is no longer at the granted path.
        """
        if self.is_gone or self._mounts.have_changed():
            return True
        try:
            return self._plan.identities() != self._identities
        except NotThere:
            return True

    async def fork(self, name: str, plan: WorkerPlan) -> Worker:
        """A new worker. Raises ZygoteGone, SandboxExhausted or SandboxBroken."""
        worker_future = self.order(name, plan)
        try:
            return await worker_future
        except asyncio.CancelledError:
            # It arrived in the same loop iteration: nobody else would kill it.
            if worker_future.done() and not worker_future.cancelled() and worker_future.exception() is None:
                self.reap(worker_future.result())
            raise

    def order(self, name: str, plan: WorkerPlan) -> "asyncio.Future[Worker]":
        """Request a new worker; one that arrives for a cancelled future is reaped."""
        if self.is_gone:
            raise ZygoteGone
        if name not in self._prepared:
            self._send({"prepare": plan.to_json(), "name": name})
            self._prepared.add(name)
        ticket = next(self._tickets)
        self._send({"fork": name, "ticket": ticket})
        worker_future: asyncio.Future[Worker] = self._loop.create_future()
        self._waiting[ticket] = worker_future, plan
        self.forks += 1
        return worker_future

    def forget(self, name: str) -> None:
        """Drop a worker plan that will not be requested again."""
        if name in self._prepared and not self.is_gone:
            self._prepared.discard(name)
            with contextlib.suppress(ZygoteGone, SandboxExhausted):
                self._send({"forget": name})

    def reap(self, worker: Worker) -> "asyncio.Future[None]":
        """Kill a worker and close its pipes; the future is done when its process tree is gone."""
        worker.kill()
        if worker.egress_socket is not None:
            worker.egress_socket.close()
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

    async def close(self) -> None:
        """Kill it and all its workers, and wait until they are gone."""
        self._mark_gone()
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self._process.pid)
            try:
                await _readable(self._loop, pidfd)
            finally:
                os.close(pidfd)
        self._process.wait()
        while self._unfinished:  # All are dead: PID 1 of their namespace is.
            await asyncio.wait(self._unfinished)

    def _kill_unready(self) -> None:
        """Kill it before it is ready, without an await at which the caller could be cancelled again."""
        self._mark_gone()
        self._process.kill()
        self._process.wait()

    def discard(self) -> None:
        """Kill it after its loop was closed."""
        self.is_gone = True
        self._close_control()
        self._process.wait()

    def _close_control(self) -> None:
        """Close the control socket; shutdown ends it even if a fork of this process holds a copy."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._mounts.close()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: close our copies. The zygote belongs to the parent and ends with it."""
        self._control.close()
        self._mounts.close()

    def _is_ready(self) -> bool:
        return self._ready.done() and not self._ready.cancelled() and self._ready.exception() is None

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except BlockingIOError as error:
            raise SandboxExhausted("the zygote has more orders than it can take") from error
        except OSError as error:
            self._mark_gone()
            raise ZygoteGone from error

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

    def _deliver(self, message: dict[str, Any], descriptors: list[int], *, is_cut: bool) -> None:
        worker_future, plan = self._waiting.pop(message["ticket"], (None, None))
        if "broken" in message:
            _fail(worker_future, SandboxBroken(message["broken"]))
        elif "exhausted" in message:
            _fail(worker_future, SandboxExhausted(message["exhausted"]))
        # MSG_CTRUNC: at the descriptor limit the kernel drops some descriptors of a message. A worker without
        # its pidfd could not be killed, so all are closed, which ends it.
        elif is_cut or len(descriptors) != _expected(plan):
            for descriptor in descriptors:
                os.close(descriptor)
            _fail(worker_future, SandboxExhausted("this process has no file descriptor left"))
        else:
            worker = self._worker(descriptors)
            self.workers += 1
            if plan is not None and plan.has_processes:
                self._limit_memory(worker_future, worker, plan)
            else:
                self._deliver_worker(worker_future, worker)

    def _worker(self, descriptors: list[int]) -> Worker:
        request, reply, pidfd, *more = descriptors
        for descriptor in (request, reply):
            os.set_blocking(descriptor, False)
        streams = None
        if len(more) >= _STREAMS:
            *more, stdin, stdout, stderr = more
            streams = Streams(
                os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)
            )
        egress_socket = socket.socket(fileno=more[0]) if more else None
        return Worker(request, reply, pidfd, self, egress_socket, streams=streams)

    def _limit_memory(
        self, worker_future: "asyncio.Future[Worker] | None", worker: Worker, plan: WorkerPlan
    ) -> None:
        """Apply the memory limit before anybody gets the worker: without a grant it runs no tool code yet."""
        placing = self._memory_limits.apply(plan, worker.pidfd)
        self._unfinished.add(placing)
        placing.add_done_callback(functools.partial(self._memory_limited, worker_future, worker))

    def _memory_limited(
        self,
        worker_future: "asyncio.Future[Worker] | None",
        worker: Worker,
        placing: "asyncio.Future[MemoryLimit]",
    ) -> None:
        self._unfinished.discard(placing)
        error = placing.exception()
        if error is None:
            self._deliver_worker(worker_future, replace(worker, memory_limit=placing.result()))
        else:
            self.reap(worker)
            _fail(worker_future, error)

    def _deliver_worker(self, worker_future: "asyncio.Future[Worker] | None", worker: Worker) -> None:
        if worker_future is None or worker_future.done():
            self.reap(worker)
        else:
            worker_future.set_result(worker)

    def _mark_gone(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._loop.remove_reader(self._control)
        self._close_control()
        waiting, self._waiting = self._waiting, {}
        for worker_future, _ in waiting.values():
            _fail(worker_future, ZygoteGone())
        if not self._ready.done():
            self._ready.set_exception(ZygoteGone())


def _expected(plan: WorkerPlan | None) -> int:
    """Number of descriptors that come with a worker."""
    more = 0 if plan is None else plan.connects + _STREAMS * plan.is_persistent
    return _DESCRIPTORS + more


def _fail(worker_future: "asyncio.Future[Worker] | None", error: BaseException) -> None:
    if worker_future is not None and not worker_future.done():
        worker_future.set_exception(error)


async def _readable(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    is_readable: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not is_readable.done():
            is_readable.set_result(None)

    loop.add_reader(descriptor, settle)
    try:
        await is_readable
    finally:
        loop.remove_reader(descriptor)


def _mounts_inside(plan: ZygotePlan) -> MountWatch:
    try:
        return MountWatch(plan.shown)
    except OSError as error:
        raise SandboxExhausted(f"no descriptor for a zygote: {error.strerror}") from error


def _launched() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    try:
        # SEQPACKET keeps message boundaries and passes descriptors. The zygote reads end of file when this
        # process dies, even by SIGKILL, and then exits with all its workers.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise SandboxExhausted(f"no socket for a zygote: {error.strerror}") from error
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 -- our own file, by our own interpreter
                # -I -S -E: no working directory, user site, site-packages or PYTHON* variables, each of which
                # could put foreign code into the trusted zygote.
                [interpreter(), "-I", "-S", "-E", START_FILE, "zygote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Not the host's environment: it may hold credentials, and every worker is a copy of this
                # process.
                env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
                cwd="/",
                # All other descriptors are closed: an inherited database or log descriptor would reach the
                # tools.
                pass_fds=[theirs.fileno()],
                # Own session: Ctrl-C in the terminal must not kill it before the host has ended its calls.
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxExhausted(f"a zygote could not be started: {error.strerror}") from error
    ours.setblocking(False)  # noqa: FBT003 -- its only argument
    return process, ours


def interpreter() -> str:
    """The real file of this interpreter; an embedded Python has none."""
    if not INTERPRETER:
        raise SandboxBroken("this Python has no executable of its own, which zygotes are started with")
    return INTERPRETER
