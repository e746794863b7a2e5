"""One `:call` request: a JSON answer, or a stream of events; either goes on without its client if it must.

    JSON        200 result | 202 pending | a problem document
    events      progress … output … pending … then one `result` or `problem`

A client that goes away cancels its call, unless it was told before that the call waits for a person.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from toolkeep.approval.question import Question
from toolkeep.calls import Output, Progress, ToolResult
from toolkeep.mcp.calling import from_any_thread
from toolkeep.mcp.stream import Reply
from toolkeep.server.answers import Answer, answer, json_bytes
from toolkeep.server.calls import OpenCall, OpenCalls, view_of
from toolkeep.server.problems import of_result, problem
from toolkeep.server.request import Request


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a tool has come."""

    progress: float
    total: float | None
    message: str


class OutputView(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a tool gives; the result has all of them."""

    piece: Any


class Exchange:
    """The answer to one call while it is made."""

    def __init__(self, request: Request, calls: OpenCalls) -> None:
        self._request = request
        self._calls = calls
        self._wants_events = request.wants_events
        self._reply = Reply(request.send)
        self._task = asyncio.current_task()
        self.open_call: OpenCall | None = None
        self._tell: Callable[[bytes], None] | None = None
        if self._wants_events:
            self._tell = from_any_thread(lambda frame: self._reply.emit(frame, b"progress"))
        calls.watch.add(self)

    def look(self) -> None:
        """See whether the client is still there, from now on."""
        if self.open_call is None and self._task is not None:
            self._reply.watch(self._request.receive, self._task)

    @property
    def on_progress(self) -> Progress | None:
        """Who is told how far the tool has come."""
        return None if self._tell is None else self._progress

    def _progress(self, progress: float, total: float | None, message: str) -> None:
        if self._tell is not None:
            self._tell(json_bytes(ProgressView(progress=progress, total=total, message=message)))

    @property
    def on_output(self) -> Output | None:
        """Who is told what the tool gives, as it comes."""
        return self._output if self._wants_events else None

    def _output(self, piece: Any) -> None:
        self._reply.emit(json_bytes(OutputView(piece=piece)), b"output")

    async def asked(self, question: Question) -> None:
        """A person is asked: the client is told, and may go."""
        if self.open_call is not None or self._reply.is_gone or self._task is None:
            return
        self.open_call = call = self._calls.open(question, self._task)
        self._stop_watching()
        if self._wants_events:
            self._reply.emit(json_bytes(view_of(call)), b"pending")
        else:
            await send_whole(self._request, pending(call))

    async def finish(self, result: ToolResult) -> Answer | None:
        """What became of the call; None where the client was told already."""
        self._stop_watching()
        if self.open_call is not None:
            self._calls.end(self.open_call, result)
            if not self._wants_events:
                return None
        said = told(result)
        if self._wants_events and (self._reply.is_stream or said.status == 200):
            event = b"result" if said.status < 400 else b"problem"
            await self._reply.finish_stream(said.body, event)
            return None
        return said

    async def break_off(self, said: Answer) -> bool:
        """The call was cancelled; whether its client needs to be told no more than it was."""
        self._stop_watching()
        if self.open_call is not None:
            self._calls.end(self.open_call, None)
        if self._reply.is_stream and not self._reply.is_gone:
            await self._reply.finish_stream(said.body, b"problem")
        return self._reply.is_gone or self._reply.is_stream or self.open_call is not None

    def _stop_watching(self) -> None:
        self._calls.watch.discard(self)
        self._reply.stop_watching()


def told(result: ToolResult) -> Answer:
    """A result as an answer."""
    if result.error is not None:
        return problem(of_result(result, result.error))
    if result.status == "pending":
        place = (b"location", f"/v1/calls/{result.call_id}".encode())
        return answer(result.to_dict(), 202, [place])
    return answer(result.to_dict())


def pending(call: OpenCall) -> Answer:
    """202: where to ask what became of it."""
    place = (b"location", f"/v1/calls/{call.id}".encode())
    return answer(view_of(call), 202, [place, (b"retry-after", b"1")])


async def send_whole(request: Request, given: Answer) -> None:
    """Send one whole response."""
    await request.send({"type": "http.response.start", "status": given.status, "headers": given.head()})
    await request.send({"type": "http.response.body", "body": given.body})
