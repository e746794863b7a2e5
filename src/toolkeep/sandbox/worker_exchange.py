"""One request to one worker and its one reply, within a deadline and a size limit.

Everything from the worker is untrusted. Protocol: the worker reports that it is confined (or why not), then
that the tool is loaded (or why not), then, after the request, progress and output pieces, and last its reply.
Only the first message is sent before the tool's code runs; all later ones may be forged, and can at worst
spoil the tool's own call. The caller kills the worker afterwards, whatever the result.
"""

import asyncio
import binascii
import io
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from toolkeep.limits import LARGE_ANSWER_BYTES, PROGRESS_AT_ONCE
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.frames import HEADER_BYTES, FrameRefused, frame, parse
from toolkeep.sandbox.output_pieces import OutputListener, OutputPieces
from toolkeep.sandbox.pipe_streams import PipeWriter
from toolkeep.sandbox.proc_stats import ProcessUse
from toolkeep.sandbox.progress_frames import Listener, ProgressFrames, nobody
from toolkeep.sandbox.tool_exception import ToolException
from toolkeep.text.display import excerpt

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
    """`value` is what the tool returned."""
    FAILED = "failed"
    """The tool raised ToolFailed; `text` is for the model."""
    RAISED = "raised"
    """The tool raised something else; `text` is type and place, `exception` all that it says."""
    UNLOADED = "unloaded"
    """The tool could not be imported; `text` has details, `why` the category."""
    TIMED_OUT = "timed_out"
    TOO_BIG = "too_big"
    """The reply exceeds the size limit."""
    BROKEN = "broken"
    """The worker violated the protocol."""
    DIED = "died"
    """The worker exited without a reply: it crashed, exited, or hit an rlimit."""
    OUT_OF_MEMORY = "out_of_memory"
    """The worker was killed: its processes together exceeded the memory limit."""


class Unloaded(StrEnum):
    """Why a tool could not be imported, as our own categories: a tool's own text may say anything."""

    UNGUARDED = "unguarded"
    """Its module opens a keep and then fails: a script without a main guard."""
    EXITED = "exited"
    MISSING = "missing"
    """It imports, or is, a module that the worker does not find."""
    ABSENT = "absent"
    """Its module has no callable of that name."""
    RAISED = "raised"


@dataclass(frozen=True, slots=True)
class Reply:
    """Result of one call."""

    ending: Ending
    value: Any = None
    pieces: list[Any] | None = None
    """Output of a generator tool."""
    text: str = ""
    why: Unloaded | None = None
    exception: ToolException | None = None
    is_templated: bool = field(default=False, compare=False)
    """Whether its worker was forked from a template."""
    use: ProcessUse | None = field(default=None, compare=False)
    """What its worker took, until its reply."""


class Request(msgspec.Struct, frozen=True):
    """One request, and the listeners for what comes before its reply."""

    body: bytes
    until: float
    """Deadline, in event loop time."""
    output_bytes: int
    on_progress: Listener = nobody
    on_output: OutputListener | None = None
    serve: "Serve | None" = None
    """Serves the egress proxy of a worker that has one."""


Serve = Callable[[Sequence[socket.socket]], AbstractAsyncContextManager[object]]


class WorkerPipes(Protocol):
    """The pipes of a worker."""

    @property
    def request(self) -> int:
        """Descriptor to write to; non-blocking."""

    @property
    def reply(self) -> int:
        """Descriptor to read from; non-blocking."""

    @property
    def is_furnished(self) -> bool:
        """Whether it has its grant and has imported its tool already."""


class Exchange:
    """Talks to one worker; `reply` is resolved when the call is decided."""

    def __init__(self, worker: WorkerPipes, request: Request, grant: bytes) -> None:
        """`grant` is sent first, as a frame: until then the worker has none."""
        self._loop = asyncio.get_running_loop()
        self._worker = worker
        self._until = request.until
        self._orders = PipeWriter(worker.request, grant + frame(request.body))
        self._most = request.output_bytes + _ENVELOPE_BYTES
        self._buffer = bytearray()
        self._reading: asyncio.Task[None] | None = None
        """Task that parses a large frame."""
        self._progress = ProgressFrames(request.on_progress)
        self._pieces = OutputPieces(request.on_output, self._most)
        # A fork of a template was confined from outside, and has imported its tool.
        self._is_confined = worker.is_furnished
        self.is_ready = worker.is_furnished
        """Whether the worker has reported that its tool is imported."""
        self.reply: asyncio.Future[Reply] = self._loop.create_future()

    async def run(self) -> Reply:
        """The reply, or a timeout."""
        self._loop.add_reader(self._worker.reply, self._on_readable)
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

    def _on_readable(self) -> None:
        try:
            more = os.read(self._worker.reply, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:
            self._settle(Reply(Ending.DIED))
            return
        self._buffer += more
        self._process_frames()

    def _process_frames(self) -> None:
        """Process buffered frames, some per loop iteration; nothing more is read until they are done.

        Otherwise a worker that floods progress would starve all other calls of this event loop.
        """
        for _ in range(PROGRESS_AT_ONCE):
            if self.reply.done() or (body := self._next_frame()) is None:
                return
            if len(body) > LARGE_ANSWER_BYTES:
                self._loop.remove_reader(self._worker.reply)
                self._reading = self._loop.create_task(self._parse_in_thread(body, len(body)))
                return
            self._handle_message(partial(parse, body), len(body))
        self._loop.remove_reader(self._worker.reply)
        self._loop.call_soon(self._resume_reading)

    async def _parse_in_thread(self, body: bytearray, size: int) -> None:
        """Parse a large frame in a thread: other calls continue, and reading from this worker pauses."""
        read = await asyncio.to_thread(_read_large, body)
        if isinstance(read, Reply):
            self._settle(read)
        else:
            self._handle_message(lambda: read, size)
            self._resume_reading()

    def _resume_reading(self) -> None:
        if not self.reply.done():
            self._loop.add_reader(self._worker.reply, self._on_readable)
            self._process_frames()

    def _next_frame(self) -> bytearray | None:
        if len(self._buffer) < HEADER_BYTES:
            return None
        length = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        # Checked on the length prefix, before anything is buffered: a worker may announce 4 GiB.
        if length > (self._most if self.is_ready else _GREETING_BYTES):
            self._settle(Reply(Ending.TOO_BIG if self.is_ready else Ending.BROKEN))
            return None
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        # Handed over without a copy: the body may be a hundred megabytes.
        body, self._buffer = self._buffer, self._buffer[end:]
        del body[end:]
        del body[:HEADER_BYTES]
        return body

    def _handle_message(self, read: Callable[[], dict[str, Any]], size: int) -> None:
        try:
            said = read()
            if not self.is_ready:
                self._handle_greeting(said)
            elif "progress" in said:
                self._progress.accept(said, size)
            elif "piece" in said:
                self._pieces.accept(said, size)
            else:
                self._settle(_reply(said))
        except FrameRefused as refused:
            self._settle(Reply(Ending.BROKEN, text=str(refused)))

    def _handle_greeting(self, said: dict[str, Any]) -> None:
        if not self._is_confined:
            self._handle_confinement(said)
        elif said == {"ready": True}:
            self.is_ready = True
        elif isinstance(said.get("unloaded"), dict):
            self._settle(_unloaded(said["unloaded"]))
        else:
            raise FrameRefused("it is no greeting")

    def _handle_confinement(self, said: dict[str, Any]) -> None:
        """First message, from our own code, while no tool code runs: whether confinement succeeded."""
        if said == {"narrowed": True}:
            self._is_confined = True
        elif isinstance(said.get("unprepared"), str):
            if not self.reply.done():
                self.reply.set_exception(SandboxBroken(said["unprepared"][:_TEXT_CHARS]))
        else:
            raise FrameRefused("it is no greeting")


def _read_large(body: bytearray) -> dict[str, Any] | Reply:
    """Parse a large frame into the reply, progress or a piece. Frees the bytes."""
    try:
        said = parse(body)
        body.clear()  # Before decoding: not three forms of one answer in memory.
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
        case {"raised": str(kind), "where": str(where)}:
            text = excerpt(f"{kind} at {where}", _TEXT_CHARS)
            return Reply(Ending.RAISED, text=text, exception=ToolException.read(said))
        case _:
            raise FrameRefused("it is no reply")


def _decoded(text: str) -> bytes:
    """Decode base64 in portions: all at once would hold the GIL and take another copy."""
    decoded = io.BytesIO()
    try:
        for start in range(0, len(text), _BASE64_CHARS):
            decoded.write(binascii.a2b_base64(text[start : start + _BASE64_CHARS], strict_mode=True))
    except ValueError as error:
        raise FrameRefused("its bytes are not base64") from error
    if "=" in text[:-2]:  # Each portion may end with padding.
        raise FrameRefused("its bytes are not base64")
    return decoded.getvalue()
