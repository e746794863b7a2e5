"""A confined persistent process that serves many calls, speaking lines over its standard streams (SBX-3).

Input: a recipe for a persistent worker, a program with its environment, and a line length limit. Output:
whole lines, or `ProcessExited` with the reason. Everything that the program writes is untrusted: nothing is
read beyond the line limit, and only the tail of standard error is kept. It ends, with everything that it
started, when it is closed, when the pool closes, and when this process dies. Between calls it can be
suspended: none of its processes runs until it is resumed (SBX-2), so that it cannot act while nobody
authorised a call. The meaning of lines, timeouts and restarts are the caller's.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol, Self

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.frames import HEADER_BYTES, FrameRefused, frame, parse
from toolkeep.sandbox.pipe_streams import LineReader, LineTooLong, PipeWriter, StdinWriter, TailReader
from toolkeep.sandbox.plan import SCRATCH, Recipe
from toolkeep.sandbox.proc_stats import StoppedThreads, host_pid, stopped_threads
from toolkeep.sandbox.worker_exchange import Serve
from toolkeep.sandbox.worker_pool import REAP_SECONDS, Pool
from toolkeep.sandbox.worker_source import Streams, Worker

OnNamed = Callable[[str, str], None]
"""What a program did with a name (`seccomp_filters.supervision`), and the name."""

_SAID_BYTES: Final = 16 * 1024
"""Longest control frame of our own code in a worker."""

_LAST_WORDS_BYTES: Final = 8_000
"""A traceback, or the reason with the usage text that many programs print after it."""
_ERRORS_PAUSE_S: Final = 0.05
"""Pause after each chunk of standard error, so that a program that floods it costs the host almost no CPU."""

LEAVING_SECONDS: Final = 1.0
"""How long a program that closed its output may take to exit."""

_SUSPEND_SECONDS: Final = 2.0
"""How long its processes may take to stop; a process in uninterruptible sleep cannot be stopped sooner."""
_LOOK_S: Final = (0.001, 0.1)
"""First and longest pause between two checks of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a persistent process runs. Its environment may hold secrets: only the program is told."""

    path: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    folder: str = SCRATCH

    def to_json(self) -> dict[str, Any]:
        """The order that its worker gets."""
        environment = dict(self.environment)
        return {"program": self.path, "argv": self.argv, "environment": environment, "folder": self.folder}


class ExitReason(StrEnum):
    """Why a persistent process says nothing more."""

    UNSTARTED = "unstarted"
    """The program could not be started; `text` says why."""
    ENDED = "ended"
    """The program exited; `status` is its exit status, where known."""
    CLOSED = "closed"
    """The program closed its standard output and went on."""
    TOO_LONG = "too_long"
    """A line exceeds the limit."""
    OUT_OF_MEMORY = "out_of_memory"


class ProcessExited(Exception):
    """No more lines will come. `last_words` was written by the program: for the operator, not for a model."""

    def __init__(
        self, why: ExitReason, *, status: int | None = None, text: str = "", last_words: str = ""
    ) -> None:
        super().__init__(why.value)
        self.why = why
        self.status = status
        self.text = text
        self.last_words = last_words


class LineProcess(Protocol):
    """A running program that speaks in lines, confined or not."""

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""

    @property
    def last_words(self) -> str:
        """Tail of its standard error."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes sent to it that it has not read yet."""

    def set_active(self, *, is_active: bool) -> None:
        """Say whether it handles a call now, or is idle."""

    async def suspend(self) -> None:
        """Stop all its processes; SandboxBroken if it cannot be shown that none runs."""

    async def resume(self) -> None:
        """Continue its processes if stopped; SandboxBroken if one of them ran meanwhile."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input; waits while the program does not read."""

    async def line(self) -> bytes:
        """Its next line, without the newline."""

    async def close(self) -> None:
        """Kill it."""

    def discard(self) -> None:
        """Release it when no event loop is left."""


class LineStreams:
    """The host ends of a program's standard streams; `LineProcess` without its process."""

    def __init__(self, output: int, errors: int, standard_input: int, line_bytes: int) -> None:
        self._output = LineReader(output, line_bytes)
        self._errors = TailReader(errors, _LAST_WORDS_BYTES, _ERRORS_PAUSE_S)
        self._input = StdinWriter(standard_input)

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        raise NotImplementedError

    async def _exit_error(self) -> ProcessExited:
        """Why it says nothing more."""
        raise NotImplementedError

    @property
    def last_words(self) -> str:
        """Tail of its standard error."""
        return self._errors.text()

    @property
    def waiting_bytes(self) -> int:
        """Bytes sent to it that it has not read yet."""
        return self._input.waiting_bytes

    async def send(self, data: bytes) -> None:
        """Write to its standard input; waits while the program does not read."""
        if not self.is_alive:
            raise await self._exit_error()
        try:
            await self._input.send(data)
        except ConnectionError as error:
            raise await self._exit_error() from error

    async def line(self) -> bytes:
        """Its next line, without the newline."""
        try:
            return await self._output.next()
        except LineTooLong as error:
            raise ProcessExited(ExitReason.TOO_LONG, last_words=self.last_words) from error
        except EOFError as error:
            raise await self._exit_error() from error

    def _close_streams(self) -> None:
        for part in (self._output, self._errors, self._input):
            part.close()


class PersistentProcess(LineStreams):
    """One running program. Belongs to one event loop."""

    def __init__(
        self, worker: Worker, streams: Streams, line_bytes: int, on_named: OnNamed | None = None
    ) -> None:
        super().__init__(streams.output.fileno(), streams.errors.fileno(), streams.input.fileno(), line_bytes)
        self._worker = worker
        self._control = _Control(worker, on_named)
        self._served = AsyncExitStack()
        self._is_closed = False
        self._suspended: StoppedThreads | None = None
        """State of its stopped threads; None while running."""

    @classmethod
    async def start(
        cls,
        pool: Pool,
        recipe: Recipe,
        program: Program,
        *,
        line_bytes: int,
        serve: Serve | None = None,
        on_named: OnNamed | None = None,
    ) -> Self:
        """Start a program. Raises SandboxBroken, SandboxExhausted, or ProcessExited on failure.

        `on_named` hears what an observed program names.
        """
        worker = await pool.lease(recipe)
        if worker.streams is None:
            worker.source.reap(worker)
            raise ValueError("the recipe is not for a worker that stays")
        process = cls(worker, worker.streams, line_bytes, on_named)
        try:
            await process._begin(recipe, program, serve)
        except BaseException:
            await process.close()
            raise
        return process

    async def _begin(self, recipe: Recipe, program: Program, serve: Serve | None) -> None:
        self._worker.set_active(is_active=True)
        if serve is not None and self._worker.egress_sockets:
            await self._served.enter_async_context(serve(self._worker.egress_sockets))
        # The proxy listens before the program runs: it may connect with its first instruction.
        grant = json.dumps(recipe.grant.to_json()).encode()
        order = json.dumps(program.to_json()).encode()
        await self._control.start(frame(grant) + frame(order))

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._is_closed and not self._control.ended.done() and self._worker.is_alive()

    def set_active(self, *, is_active: bool) -> None:
        """Say whether it handles a call now, or is idle."""
        if not self._is_closed:
            self._worker.set_active(is_active=is_active)

    async def suspend(self) -> None:
        """Stop all its processes; SandboxBroken if it cannot be shown that none runs."""
        try:
            process = host_pid(self._worker.pidfd)
            async with asyncio.timeout(_SUSPEND_SECONDS):
                self._suspended = await self._stopped(process)
        except (TimeoutError, OSError) as error:
            raise SandboxBroken("the processes of a program could not be stopped") from error

    async def _stopped(self, process: int) -> StoppedThreads:
        """Signal and check until two consecutive checks agree that everything is stopped."""
        pause_s, longest_s = _LOOK_S
        while True:
            # Again each time: a process that was not stopped yet may have sent SIGCONT to others.
            await self._control.suspend()
            first = await asyncio.to_thread(stopped_threads, process)
            if first is not None and first == await asyncio.to_thread(stopped_threads, process):
                return first
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def resume(self) -> None:
        """Continue its processes if stopped; SandboxBroken if one of them ran meanwhile."""
        stopped, self._suspended = self._suspended, None
        if stopped is None:
            return
        # Compare the context-switch counts from before: a process that ran between calls escaped the
        # suspension.
        if stopped != await asyncio.to_thread(stopped_threads, host_pid(self._worker.pidfd)):
            raise SandboxBroken("a program ran between two calls, although it was stopped")
        self._control.resume()

    async def _exit_error(self) -> ProcessExited:
        """Why it says nothing more; a program that is exiting gets a moment to report its status."""
        if not self._is_closed:
            await asyncio.wait({self._control.ended}, timeout=LEAVING_SECONDS)
        is_over = self._is_closed or self._control.ended.done()
        status = self._control.ended.result() if self._control.ended.done() else None
        why = ExitReason.ENDED if is_over else ExitReason.CLOSED
        if self._worker.is_out_of_memory():
            why = ExitReason.OUT_OF_MEMORY
        return ProcessExited(why, status=status, last_words=self.last_words)

    async def close(self) -> None:
        """Kill it and everything that it started."""
        if self._is_closed:
            return
        self._is_closed = True
        self._control.close()
        self._close_streams()
        gone = self._worker.source.reap(self._worker)
        await self._served.aclose()
        await asyncio.wait({gone}, timeout=REAP_SECONDS)

    def discard(self) -> None:
        """Release it when no event loop is left."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.discard()


class _Control:
    """Control frames of our own code in the worker: confined, started, suspended, exited.

    They come over a pipe that the program does not inherit, so it cannot forge them.
    """

    def __init__(self, worker: Worker, on_named: OnNamed | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_named = on_named
        self._worker = worker
        self._orders: PipeWriter | None = None
        self._buffer = bytearray()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._suspended: asyncio.Future[None] | None = None
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        """Exit status, minus the signal, or None if unknown."""

    async def start(self, orders: bytes) -> None:
        """Send the grant and the program, and wait until it runs."""
        self._loop.add_reader(self._worker.reply, self._on_readable)
        self._send_orders(orders)
        await self._started

    async def suspend(self) -> None:
        """Have the worker send SIGSTOP; OSError if it has exited."""
        if self.ended.done():
            raise ProcessLookupError("the program has ended")
        self._suspended = self._loop.create_future()
        self._send_orders(frame(json.dumps({"suspend": True}).encode()))
        await self._suspended

    def resume(self) -> None:
        """Have the worker send SIGCONT."""
        self._send_orders(frame(json.dumps({"suspend": False}).encode()))

    def _send_orders(self, orders: bytes) -> None:
        self._orders = PipeWriter(self._worker.request, orders)
        self._orders.send()

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._worker.reply)
        if self._orders is not None:
            self._orders.close()
        self._started.cancel()
        self._settle(None)

    def _on_readable(self) -> None:
        try:
            more = os.read(self._worker.reply, _SAID_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._buffer += more
        try:
            while (body := self._next()) is not None:
                self._handle_message(parse(body))
        except FrameRefused:
            more = b""
        if not more:
            self._loop.remove_reader(self._worker.reply)
            self._settle(None)

    def _next(self) -> bytes | None:
        end = HEADER_BYTES + int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        if end > _SAID_BYTES:
            raise FrameRefused("it is too long")
        if len(self._buffer) < max(end, HEADER_BYTES):
            return None
        body = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return body

    def _handle_message(self, said: dict[str, Any]) -> None:
        match said:
            case {"narrowed": True}:
                pass
            case {"started": True}:
                if not self._started.done():
                    self._started.set_result(None)
            case {"named": [str(what), str(name)]} if self._on_named is not None:
                self._on_named(what, name)
            case {"suspended": True}:
                if self._suspended is not None and not self._suspended.done():
                    self._suspended.set_result(None)
            case {"unprepared": str(text)}:
                self._fail(SandboxBroken(text))
            case {"unstarted": str(text)}:
                self._fail(ProcessExited(ExitReason.UNSTARTED, text=text))
            case {"ended": int(status)}:
                self._settle(status)
            case _:
                raise FrameRefused("it is nothing that a worker says")

    def _fail(self, error: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _settle(self, status: int | None) -> None:
        self._fail(SandboxExhausted("a worker ended before its program was started"))
        if self._suspended is not None and not self._suspended.done():
            self._suspended.set_exception(ProcessLookupError("the program has ended"))
        with contextlib.suppress(asyncio.InvalidStateError):
            self.ended.set_result(status)
