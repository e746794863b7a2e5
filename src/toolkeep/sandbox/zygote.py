"""The host's side of one zygote: starts it, asks it for workers, notices its end.

The host never forks: the zygote is a program started by path, with an empty environment. Belongs to one event
loop. Trusts the zygote; a worker's pipes and what comes through them are for `exchange` to distrust.
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

from toolkeep.forks import tell_in_forks
from toolkeep.sandbox.bounds import TreeBound, TreeBounds
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.mounts import MountsInside
from toolkeep.sandbox.plan import NotThere, WorkerPlan, ZygotePlan
from toolkeep.sandbox.trusted import INTERPRETER

START_FILE: Final = str(Path(__file__).resolve().parent.parent / "inside" / "start.py")
START_SECONDS: Final = 20.0
"""How long a zygote may take to be ready; a loaded machine takes one or two."""

_MESSAGE_BYTES: Final = 1 << 17
_DESCRIPTORS: Final = 3
_STREAMS: Final = 3
_MOST_DESCRIPTORS: Final = 7


class Streams(NamedTuple):
    """The host's ends of the standard streams of a program that stays; whoever reads them closes them."""

    input: BinaryIO
    output: BinaryIO
    errors: BinaryIO

    def close(self) -> None:
        """Close those that are open."""
        for stream in self:
            stream.close()


class ZygoteGone(Exception):
    """The zygote ended; another can be started."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that waits for its grant and its one request: its pipes, and a handle to kill it."""

    request: int
    reply: int
    pidfd: int
    zygote: "Zygote"
    way_out: socket.socket | None = None
    """Where it asks for the network, listening inside its own; whoever serves it closes it too."""
    bound: TreeBound | None = None
    """On its memory, where it may have several processes."""
    streams: Streams | None = None
    """Of the program that it runs, where it stays."""

    def is_alive(self) -> bool:
        """Whether it still runs."""
        ended = select.poll()
        ended.register(self.pidfd, select.POLLIN)
        return not ended.poll(0)

    def kill(self) -> None:
        """End it and everything that it started: it is the first process of its pid namespace."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now, or waits for one."""
        if self.bound is not None:
            self.bound.attend(closely=closely)

    def is_out_of_memory(self) -> bool:
        """Whether it was killed because its processes together took too much."""
        return self.bound is not None and self.bound.is_exceeded()

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""
        self.kill()
        if self.bound is not None:
            self.bound.release()
        if self.way_out is not None:
            self.way_out.close()
        if self.streams is not None:
            self.streams.close()
        for descriptor in (self.request, self.reply, self.pidfd):
            os.close(descriptor)


class Zygote:
    """One running zygote."""

    def __init__(self, plan: ZygotePlan, bounds: TreeBounds) -> None:
        """Launch one. Raises NotThere where a path of its plan is gone."""
        self._loop = asyncio.get_running_loop()
        self._plan = plan
        # Before it mounts anything: what changes meanwhile is noticed.
        self._identities = plan.identities()
        self._mounts = _mounts_inside(plan)
        try:
            process, control = _launched()
        except BaseException:
            self._mounts.close()
            raise
        self._process = process
        self._control = control
        self._bounds = bounds
        self._tickets = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Worker], WorkerPlan]] = {}
        self._prepared: set[str] = set()
        self._unfinished: set[asyncio.Future[Any]] = set()
        """Workers that are being bounded, or buried."""
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self.forks = 0
        """Workers asked for so far."""
        self.workers = 0
        """Workers that are not buried yet."""
        self.is_gone = False
        self.last_words = ""
        """Why it ended, if it could say so."""
        self._loop.add_reader(control, self._hear)
        tell_in_forks(self)

    @classmethod
    async def start(cls, plan: ZygotePlan, bounds: TreeBounds) -> "Zygote":
        """Start one and wait until it can fork."""
        zygote = cls(plan, bounds)
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
                zygote._give_up()
        return zygote

    @property
    def is_used(self) -> bool:
        """Whether a worker of it lives or is on its way."""
        return bool(self.workers or self._waiting)

    def is_stale(self) -> bool:
        """Whether a path of its plan leads elsewhere by now: its mounts hold folders, not their names."""
        if self.is_gone or self._mounts.have_changed():
            return True
        try:
            return self._plan.identities() != self._identities
        except NotThere:
            return True

    async def fork(self, name: str, plan: WorkerPlan) -> Worker:
        """A new worker. Raises ZygoteGone, SandboxExhausted or SandboxBroken."""
        asked = self.order(name, plan)
        try:
            return await asked
        except asyncio.CancelledError:
            # It came in the same moment: nobody else would end it.
            if asked.done() and not asked.cancelled() and asked.exception() is None:
                self.bury(asked.result())
            raise

    def order(self, name: str, plan: WorkerPlan) -> "asyncio.Future[Worker]":
        """Ask for a new worker; one that comes for a cancelled future is buried."""
        if self.is_gone:
            raise ZygoteGone
        if name not in self._prepared:
            self._send({"prepare": plan.to_json(), "name": name})
            self._prepared.add(name)
        ticket = next(self._tickets)
        self._send({"fork": name, "ticket": ticket})
        asked: asyncio.Future[Worker] = self._loop.create_future()
        self._waiting[ticket] = asked, plan
        self.forks += 1
        return asked

    def forget(self, name: str) -> None:
        """No more workers of this name will be asked for."""
        if name in self._prepared and not self.is_gone:
            self._prepared.discard(name)
            with contextlib.suppress(ZygoteGone, SandboxExhausted):
                self._send({"forget": name})

    def bury(self, worker: Worker) -> "asyncio.Future[None]":
        """Kill a worker and let go of it; the future is done when its whole tree is gone."""
        worker.kill()
        if worker.way_out is not None:
            worker.way_out.close()
        if worker.streams is not None:
            worker.streams.close()
        os.close(worker.request)
        os.close(worker.reply)
        gone: asyncio.Future[None] = self._loop.create_future()
        self._unfinished.add(gone)
        self._loop.add_reader(worker.pidfd, self._buried, worker, gone)
        return gone

    def _buried(self, worker: Worker, gone: "asyncio.Future[None]") -> None:
        self._loop.remove_reader(worker.pidfd)
        if worker.bound is not None:
            worker.bound.release()
        os.close(worker.pidfd)
        self.workers -= 1
        self._unfinished.discard(gone)
        if not gone.done():
            gone.set_result(None)

    async def close(self) -> None:
        """End it and all its workers, and wait until it is gone."""
        self._let_go()
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self._process.pid)
            try:
                await _readable(self._loop, pidfd)
            finally:
                os.close(pidfd)
        self._process.wait()
        while self._unfinished:  # all are dead by now
            await asyncio.wait(self._unfinished)

    def _give_up(self) -> None:
        """End it before it is ready, without a moment in which the caller could give up a second time."""
        self._let_go()
        self._process.kill()
        self._process.wait()

    def abandon(self) -> None:
        """End it after its loop was closed."""
        self.is_gone = True
        self._hang_up()
        self._process.wait()

    def _hang_up(self) -> None:
        """Let it hear the end, even if a fork of this process still has the socket open."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._mounts.close()

    def leave_to_parent(self) -> None:
        """In a fork of the process: it belongs to the parent, and is to end with that."""
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
            self._let_go()
            raise ZygoteGone from error

    def _hear(self) -> None:
        try:
            message, descriptors, flags, _ = socket.recv_fds(
                self._control, _MESSAGE_BYTES, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            self._let_go()
            return
        if not message:
            self._let_go()
            return
        self._understand(json.loads(message), descriptors, is_cut=bool(flags & socket.MSG_CTRUNC))

    def _understand(self, message: dict[str, Any], descriptors: list[int], *, is_cut: bool) -> None:
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
        asked, plan = self._waiting.pop(message["ticket"], (None, None))
        if "broken" in message:
            _fail(asked, SandboxBroken(message["broken"]))
        elif "exhausted" in message:
            _fail(asked, SandboxExhausted(message["exhausted"]))
        elif is_cut or len(descriptors) != _expected(plan):
            for descriptor in descriptors:
                os.close(descriptor)
            _fail(asked, SandboxExhausted("this process has no file descriptor left"))
        else:
            worker = self._worker(descriptors)
            self.workers += 1
            if plan is not None and plan.has_processes:
                self._bound(asked, worker, plan)
            else:
                self._hand_over(asked, worker)

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
        way_out = socket.socket(fileno=more[0]) if more else None
        return Worker(request, reply, pidfd, self, way_out, streams=streams)

    def _bound(self, asked: "asyncio.Future[Worker] | None", worker: Worker, plan: WorkerPlan) -> None:
        """Bound its memory before anybody has it: it runs nothing of a tool before it has its grant."""
        placing = self._bounds.put_on(plan, worker.pidfd)
        self._unfinished.add(placing)
        placing.add_done_callback(functools.partial(self._bounded, asked, worker))

    def _bounded(
        self,
        asked: "asyncio.Future[Worker] | None",
        worker: Worker,
        placing: "asyncio.Future[TreeBound]",
    ) -> None:
        self._unfinished.discard(placing)
        error = placing.exception()
        if error is None:
            self._hand_over(asked, replace(worker, bound=placing.result()))
        else:
            self.bury(worker)
            _fail(asked, error)

    def _hand_over(self, asked: "asyncio.Future[Worker] | None", worker: Worker) -> None:
        if asked is None or asked.done():
            self.bury(worker)
        else:
            asked.set_result(worker)

    def _let_go(self) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        self._loop.remove_reader(self._control)
        self._hang_up()
        waiting, self._waiting = self._waiting, {}
        for asked, _ in waiting.values():
            _fail(asked, ZygoteGone())
        if not self._ready.done():
            self._ready.set_exception(ZygoteGone())


def _expected(plan: WorkerPlan | None) -> int:
    """How many descriptors come with a worker."""
    more = 0 if plan is None else plan.connects + _STREAMS * plan.stays
    return _DESCRIPTORS + more


def _fail(asked: "asyncio.Future[Worker] | None", error: BaseException) -> None:
    if asked is not None and not asked.done():
        asked.set_exception(error)


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


def _mounts_inside(plan: ZygotePlan) -> MountsInside:
    try:
        return MountsInside(plan.shown)
    except OSError as error:
        raise SandboxExhausted(f"no descriptor for a zygote: {error.strerror}") from error


def _launched() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise SandboxExhausted(f"no socket for a zygote: {error.strerror}") from error
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 -- our own file, by our own interpreter
                [interpreter(), "-I", "-S", "-E", START_FILE, "zygote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxExhausted(f"a zygote could not be started: {error.strerror}") from error
    ours.setblocking(False)  # noqa: FBT003 -- its only argument
    return process, ours


def interpreter() -> str:
    """The real file of this interpreter; a Python that is part of another program has none."""
    if not INTERPRETER:
        raise SandboxBroken("this Python has no executable of its own, which zygotes are started with")
    return INTERPRETER
