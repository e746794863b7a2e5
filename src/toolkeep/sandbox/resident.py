"""A confined program that stays for many calls, and speaks in lines over its standard streams (SBX-3).

Comes in: a recipe for a worker that stays, a program with its environment, and how long a line may be. Goes
out: whole lines, or `ResidentOver`, which says why there will be none. Everything that the program writes is
distrusted: nothing is read beyond the bound of a line, and of its standard error the end alone is kept. It
ends, with everything that it started, when it is closed, when the pool is, and when this process is gone.
Between calls it can be suspended: none of its processes runs until it is resumed (SBX-2).
What lines mean, when to give up and whether to start another is for the caller.
"""

import asyncio
import contextlib
import json
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.exchange import Serve
from toolkeep.sandbox.frames import HEADER_BYTES, FrameRefused, frame, parse
from toolkeep.sandbox.plan import SCRATCH, Recipe
from toolkeep.sandbox.pool import BURIAL_SECONDS, Pool
from toolkeep.sandbox.processes import Still, host_pid, still
from toolkeep.sandbox.streams import Inlet, Lines, LineTooLong, Orders, Tail
from toolkeep.sandbox.zygote import Streams, Worker

_SAID_BYTES: Final = 16 * 1024
"""The longest thing that our own code in a worker says of its program."""

_LAST_WORDS_BYTES: Final = 2_000
_ERRORS_PAUSE_S: Final = 0.05
"""After each piece of standard error, so that a program which floods it costs its host next to nothing."""

_LEAVING_SECONDS: Final = 1.0
"""How long a program that closed its output may take to end, and say how."""

_SUSPEND_SECONDS: Final = 2.0
"""How long its processes may take to stop; one that waits for a disk cannot be stopped before."""
_LOOK_S: Final = (0.001, 0.1)
"""The first pause between two looks at them, and the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a resident runs; its environment may hold secrets, and nobody but the program is told."""

    path: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    folder: str = SCRATCH

    def to_json(self) -> dict[str, Any]:
        """What its worker is told."""
        environment = dict(self.environment)
        return {"program": self.path, "argv": self.argv, "environment": environment, "folder": self.folder}


class Over(StrEnum):
    """Why a resident says nothing more."""

    UNSTARTED = "unstarted"
    """The program could not be started; `text` says why."""
    ENDED = "ended"
    """The program ended; `status` is how, where that is known."""
    CLOSED = "closed"
    """The program closed its standard output and went on."""
    TOO_LONG = "too_long"
    """A line is longer than allowed."""
    OUT_OF_MEMORY = "out_of_memory"


class ResidentOver(Exception):
    """There will be no more lines. The last words are the program's, for the operator and not for a model."""

    def __init__(self, why: Over, *, status: int | None = None, text: str = "", last_words: str = "") -> None:
        super().__init__(why.value)
        self.why = why
        self.status = status
        self.text = text
        self.last_words = last_words


class Resident:
    """One running program. Belongs to one event loop."""

    def __init__(self, worker: Worker, streams: Streams, line_bytes: int) -> None:
        self._worker = worker
        self._control = _Control(worker)
        self._output = Lines(streams.output.fileno(), line_bytes)
        self._errors = Tail(streams.errors.fileno(), _LAST_WORDS_BYTES, _ERRORS_PAUSE_S)
        self._input = Inlet(streams.input.fileno())
        self._served = AsyncExitStack()
        self._is_closed = False
        self._suspended: Still | None = None
        """Its threads, where they are stopped."""

    @classmethod
    async def start(
        cls,
        pool: Pool,
        recipe: Recipe,
        program: Program,
        *,
        line_bytes: int,
        serve: Serve | None = None,
    ) -> Self:
        """Start a program. Raises SandboxBroken, SandboxExhausted, or ResidentOver where it cannot be."""
        worker = await pool.lend(recipe)
        if worker.streams is None:
            worker.zygote.bury(worker)
            raise ValueError("the recipe is not for a worker that stays")
        resident = cls(worker, worker.streams, line_bytes)
        try:
            await resident._begin(recipe, program, serve)
        except BaseException:
            await resident.close()
            raise
        return resident

    async def _begin(self, recipe: Recipe, program: Program, serve: Serve | None) -> None:
        self._worker.attend(closely=True)
        if serve is not None and self._worker.way_out is not None:
            await self._served.enter_async_context(serve(self._worker.way_out))
        grant = json.dumps(recipe.grant.to_json()).encode()
        order = json.dumps(program.to_json()).encode()
        await self._control.start(frame(grant) + frame(order))

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._is_closed and not self._control.ended.done() and self._worker.is_alive()

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._errors.text

    @property
    def waiting_bytes(self) -> int:
        """How much of what it was sent it has not read yet."""
        return self._input.waiting_bytes

    def attend(self, *, closely: bool) -> None:
        """Say whether it has a call now, or waits for one."""
        if not self._is_closed:
            self._worker.attend(closely=closely)

    async def suspend(self) -> None:
        """Stop all its processes; SandboxBroken where it cannot be shown that none of them runs."""
        try:
            process = host_pid(self._worker.pidfd)
            async with asyncio.timeout(_SUSPEND_SECONDS):
                self._suspended = await self._stopped(process)
        except (TimeoutError, OSError) as error:
            raise SandboxBroken("the processes of a program could not be stopped") from error

    async def _stopped(self, process: int) -> Still:
        pause_s, longest_s = _LOOK_S
        while True:
            await self._control.suspend()  # again each time: one that was not stopped yet may continue others
            first = await asyncio.to_thread(still, process)
            if first is not None and first == await asyncio.to_thread(still, process):
                return first
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def resume(self) -> None:
        """Continue its processes where they are stopped; SandboxBroken where one of them ran meanwhile."""
        stopped, self._suspended = self._suspended, None
        if stopped is None:
            return
        if stopped != await asyncio.to_thread(still, host_pid(self._worker.pidfd)):
            raise SandboxBroken("a program ran between two calls, although it was stopped")
        self._control.resume()

    async def send(self, data: bytes) -> None:
        """Write to its standard input; waits for as long as the program does not read."""
        if not self.is_alive:
            raise await self._over()
        try:
            await self._input.send(data)
        except ConnectionError as error:
            raise await self._over() from error

    async def line(self) -> bytes:
        """Its next line, without its end."""
        try:
            return await self._output.next()
        except LineTooLong as error:
            raise ResidentOver(Over.TOO_LONG, last_words=self.last_words) from error
        except EOFError as error:
            raise await self._over() from error

    async def _over(self) -> ResidentOver:
        """Why it speaks no more; one that is leaving gets a moment to do so."""
        if not self._is_closed:
            await asyncio.wait({self._control.ended}, timeout=_LEAVING_SECONDS)
        is_over = self._is_closed or self._control.ended.done()
        status = self._control.ended.result() if self._control.ended.done() else None
        why = Over.ENDED if is_over else Over.CLOSED
        if self._worker.is_out_of_memory():
            why = Over.OUT_OF_MEMORY
        return ResidentOver(why, status=status, last_words=self.last_words)

    async def close(self) -> None:
        """End it and everything that it started."""
        if self._is_closed:
            return
        self._is_closed = True
        for part in (self._control, self._output, self._errors, self._input):
            part.close()
        gone = self._worker.zygote.bury(self._worker)
        await self._served.aclose()
        await asyncio.wait({gone}, timeout=BURIAL_SECONDS)

    def abandon(self) -> None:
        """Let go of it when no event loop is left."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.abandon()


class _Control:
    """What our own code in the worker says: that it is confined, that the program runs, how it ended."""

    def __init__(self, worker: Worker) -> None:
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._orders: Orders | None = None
        self._heard = bytearray()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._suspended: asyncio.Future[None] | None = None
        self.ended: asyncio.Future[int | None] = self._loop.create_future()
        """Its exit status, minus its signal, or None where nobody could say."""

    async def start(self, orders: bytes) -> None:
        """Tell the worker its grant and its program, and wait until that runs."""
        self._loop.add_reader(self._worker.reply, self._hear)
        self._tell(orders)
        await self._started

    async def suspend(self) -> None:
        """Let the worker send its program the signal to stop; OSError where it is gone."""
        if self.ended.done():
            raise ProcessLookupError("the program has ended")
        self._suspended = self._loop.create_future()
        self._tell(frame(json.dumps({"suspend": True}).encode()))
        await self._suspended

    def resume(self) -> None:
        """Let the worker send its program the signal to go on."""
        self._tell(frame(json.dumps({"suspend": False}).encode()))

    def _tell(self, orders: bytes) -> None:
        self._orders = Orders(self._worker.request, orders)
        self._orders.send()

    def close(self) -> None:
        """Hear nothing more."""
        self._loop.remove_reader(self._worker.reply)
        if self._orders is not None:
            self._orders.close()
        self._started.cancel()
        self._settle(None)

    def _hear(self) -> None:
        try:
            more = os.read(self._worker.reply, _SAID_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        self._heard += more
        try:
            while (body := self._next()) is not None:
                self._understand(parse(body))
        except FrameRefused:
            more = b""
        if not more:
            self._loop.remove_reader(self._worker.reply)
            self._settle(None)

    def _next(self) -> bytes | None:
        end = HEADER_BYTES + int.from_bytes(self._heard[:HEADER_BYTES], "big")
        if end > _SAID_BYTES:
            raise FrameRefused("it is too long")
        if len(self._heard) < max(end, HEADER_BYTES):
            return None
        body = bytes(self._heard[HEADER_BYTES:end])
        del self._heard[:end]
        return body

    def _understand(self, said: dict[str, Any]) -> None:
        match said:
            case {"narrowed": True}:
                pass
            case {"started": True}:
                if not self._started.done():
                    self._started.set_result(None)
            case {"suspended": True}:
                if self._suspended is not None and not self._suspended.done():
                    self._suspended.set_result(None)
            case {"unprepared": str(text)}:
                self._fail(SandboxBroken(text))
            case {"unstarted": str(text)}:
                self._fail(ResidentOver(Over.UNSTARTED, text=text))
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
