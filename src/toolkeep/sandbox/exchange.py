"""One request to one worker and its one reply, within a time and a size.

Everything from the worker is distrusted. A worker says first that it is confined (or why not), then that the
tool is ready (or why not), then, after the request, how far it is, and last its reply. Only the first is said
before the tool's code runs. Whoever calls this ends the worker afterwards, whatever came out.
"""

import asyncio
import binascii
import errno
import io
import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from toolkeep.limits import LARGE_ANSWER_BYTES, PROGRESS_AT_ONCE
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.frames import HEADER_BYTES, FrameRefused, frame, parse
from toolkeep.sandbox.pieces import OutputListener, PiecesHeard
from toolkeep.sandbox.progress import Listener, ProgressHeard, nobody
from toolkeep.sandbox.streams import Orders
from toolkeep.sandbox.zygote import Worker
from toolkeep.wording import excerpt

_GREETING_BYTES: Final = 16 * 1024
_ENVELOPE_BYTES: Final = 16
"""`{"ok":}` and a little more."""

_CHUNK_BYTES: Final = 1 << 18
_TEXT_CHARS: Final = 500
_BASE64_CHARS: Final = 1 << 20
"""Decoded at once; a multiple of four."""


class Ending(StrEnum):
    """How a call of a worker ended."""

    OK = "ok"
    """`value` is what the tool gave back."""
    FAILED = "failed"
    """The tool raised ToolFailed; `text` is for the model."""
    RAISED = "raised"
    """The tool raised something else; `text` is its type and place, `errno` the kernel's reason."""
    UNLOADED = "unloaded"
    """The tool could not be imported; `text` says why, and `why` of which kind that is."""
    TIMED_OUT = "timed_out"
    TOO_BIG = "too_big"
    """The reply is longer than allowed."""
    BROKEN = "broken"
    """The worker said something that is no reply."""
    DIED = "died"
    """The worker ended without a reply: it crashed, left, or passed a limit of its own."""
    OUT_OF_MEMORY = "out_of_memory"
    """The worker was killed: its processes together took more memory than granted."""


class Unloaded(StrEnum):
    """Why a tool could not be imported, in words of ours: those of a tool may say anything."""

    UNGUARDED = "unguarded"
    """Its module opens a keep and then fails: a script that does its work when it is imported."""
    EXITED = "exited"
    MISSING = "missing"
    """It imports a module that a worker does not find, or is one."""
    ABSENT = "absent"
    """Its module has nothing of that name that can be called."""
    RAISED = "raised"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one call."""

    ending: Ending
    value: Any = None
    pieces: list[Any] | None = None
    """The value of a tool that yields it."""
    text: str = ""
    why: Unloaded | None = None
    errno: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What one worker is asked, and what of it is heard."""

    body: bytes
    until: float
    """When there must be a reply, in the loop's time."""
    output_bytes: int
    on_progress: Listener = nobody
    on_output: OutputListener | None = None
    serve: "Serve | None" = None
    """Serves the way out of a worker that has one."""


Serve = Callable[[socket.socket], AbstractAsyncContextManager[object]]


class Exchange:
    """Speaks to one worker; `reply` is done when there is something to say about the call."""

    def __init__(self, worker: Worker, request: Request, grant: bytes) -> None:
        """`grant` is said first, as a frame: until then the worker has none."""
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._until = request.until
        self._orders = Orders(worker.request, grant + frame(request.body))
        self._most = request.output_bytes + _ENVELOPE_BYTES
        self._heard = bytearray()
        self._reading: asyncio.Task[None] | None = None
        """Parses a large frame."""
        self._progress = ProgressHeard(request.on_progress)
        self._pieces = PiecesHeard(request.on_output, self._most)
        self._is_narrowed = False
        self.is_ready = False
        """Whether the worker has said that its tool is imported."""
        self.reply: asyncio.Future[Reply] = self._loop.create_future()

    async def run(self) -> Reply:
        """The reply, or that there was none in time."""
        self._loop.add_reader(self._worker.reply, self._hear)
        self._orders.send()
        alarm = self._loop.call_at(self._until, self._settle, Reply(Ending.TIMED_OUT))
        try:
            return await self.reply
        finally:
            alarm.cancel()
            if self._reading is not None:
                self._reading.cancel()
            self._loop.remove_reader(self._worker.reply)
            self._orders.close()

    def _settle(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def _hear(self) -> None:
        try:
            more = os.read(self._worker.reply, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            self._settle(Reply(Ending.DIED))
            return
        self._heard += more
        self._digest()

    def _digest(self) -> None:
        """Understand what was heard, some frames at a time; nothing more is read until that is done."""
        for _ in range(PROGRESS_AT_ONCE):
            if self.reply.done() or (body := self._next_frame()) is None:
                return
            if len(body) > LARGE_ANSWER_BYTES:
                self._loop.remove_reader(self._worker.reply)
                self._reading = self._loop.create_task(self._read_aside(body, len(body)))
                return
            self._understand(partial(parse, body), len(body))
        self._loop.remove_reader(self._worker.reply)
        self._loop.call_soon(self._digest_on)

    async def _read_aside(self, body: bytearray, size: int) -> None:
        """Have a thread parse a large frame: other calls go on, and this worker is not heard meanwhile."""
        read = await asyncio.to_thread(_read_large, body)
        if isinstance(read, Reply):
            self._settle(read)
        else:
            self._understand(lambda: read, size)
            self._digest_on()

    def _digest_on(self) -> None:
        if not self.reply.done():
            self._loop.add_reader(self._worker.reply, self._hear)
            self._digest()

    def _next_frame(self) -> bytearray | None:
        if len(self._heard) < HEADER_BYTES:
            return None
        length = int.from_bytes(self._heard[:HEADER_BYTES], "big")
        if length > (self._most if self.is_ready else _GREETING_BYTES):
            self._settle(Reply(Ending.TOO_BIG if self.is_ready else Ending.BROKEN))
            return None
        end = HEADER_BYTES + length
        if len(self._heard) < end:
            return None
        # Handed on as it is: a copy of a hundred megabytes takes memory and time.
        body, self._heard = self._heard, self._heard[end:]
        del body[end:]
        del body[:HEADER_BYTES]
        return body

    def _understand(self, read: Callable[[], dict[str, Any]], size: int) -> None:
        try:
            said = read()
            if not self.is_ready:
                self._greet(said)
            elif "progress" in said:
                self._progress.hear(said, size)
            elif "piece" in said:
                self._pieces.hear(said, size)
            else:
                self._settle(_reply(said))
        except FrameRefused as refused:
            self._settle(Reply(Ending.BROKEN, text=str(refused)))

    def _greet(self, said: dict[str, Any]) -> None:
        if not self._is_narrowed:
            self._confirm(said)
        elif said == {"ready": True}:
            self.is_ready = True
        elif isinstance(said.get("unloaded"), dict):
            self._settle(_unloaded(said["unloaded"]))
        else:
            raise FrameRefused("it is no greeting")

    def _confirm(self, said: dict[str, Any]) -> None:
        """Hear from our own code, as long as it is alone in there, whether the sandbox is up."""
        if said == {"narrowed": True}:
            self._is_narrowed = True
        elif isinstance(said.get("unprepared"), str):
            if not self.reply.done():
                self.reply.set_exception(SandboxBroken(said["unprepared"][:_TEXT_CHARS]))
        else:
            raise FrameRefused("it is no greeting")


def _read_large(body: bytearray) -> dict[str, Any] | Reply:
    """What a large frame says: the reply, or what is told before it. The bytes are let go of."""
    try:
        said = parse(body)
        body.clear()  # before bytes are decoded: not three forms of one answer at once
        return said if "progress" in said or "piece" in said else _reply(said)
    except FrameRefused as refused:
        return Reply(Ending.BROKEN, text=str(refused))


def _unloaded(said: dict[str, Any]) -> Reply:
    raised, where, text = (str(said.get(name, "")) for name in ("raised", "where", "text"))
    why = said.get("why")
    known = Unloaded(why) if why in tuple(Unloaded) else Unloaded.RAISED
    return Reply(Ending.UNLOADED, text=excerpt(f"{raised} at {where}: {text}", _TEXT_CHARS), why=known)


def _reply(said: dict[str, Any]) -> Reply:
    match said:
        case {"ok": value, **rest} if not rest:
            return Reply(Ending.OK, value=value)
        case {"pieces": [*pieces], **rest} if not rest:
            return Reply(Ending.OK, pieces=pieces)
        case {"bytes": str(text), **rest} if not rest:
            return Reply(Ending.OK, value=_decoded(text))
        case {"failed": str(text), **rest} if not rest:
            return Reply(Ending.FAILED, text=text)
        case {"raised": str(kind), "where": str(where), "errno": int(number), **rest} if not rest:
            # In words of this machine: those of the exception may hold values, its path first of all.
            reason = os.strerror(number) if number in errno.errorcode else "unknown"
            text = excerpt(f"{kind} at {where}: {reason}", _TEXT_CHARS)
            return Reply(Ending.RAISED, text=text, errno=number)
        case {"raised": str(kind), "where": str(where), **rest} if not rest:
            return Reply(Ending.RAISED, text=excerpt(f"{kind} at {where}", _TEXT_CHARS))
        case _:
            raise FrameRefused("it is no reply")


def _decoded(text: str) -> bytes:
    """Bytes from base64, some at a time: all at once would hold the interpreter, and take a copy more."""
    decoded = io.BytesIO()
    try:
        for start in range(0, len(text), _BASE64_CHARS):
            decoded.write(binascii.a2b_base64(text[start : start + _BASE64_CHARS], strict_mode=True))
    except ValueError as error:
        raise FrameRefused("its bytes are not base64") from error
    if "=" in text[:-2]:  # each portion may have an end of its own
        raise FrameRefused("its bytes are not base64")
    return decoded.getvalue()
