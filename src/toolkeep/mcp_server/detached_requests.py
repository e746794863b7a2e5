"""Work that may outlive its request (2026-07-28): suspended until the client answers, or continued as a task.

The request waits until the work ends, sends a request to the client, or becomes a task. A client that cancels
the request before that cancels the work.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from toolkeep.mcp_protocol.jsonrpc import INVALID_PARAMS, ProtocolError
from toolkeep.mcp_server.approval_notices import ApprovalNotices
from toolkeep.mcp_server.client_context import (
    Client,
    OnText,
    Requests,
    fits,
    forget_current,
    set_current,
)
from toolkeep.mcp_server.connection import Connection, Emit
from toolkeep.mcp_server.progress_notifications import Progress

Outliving = Callable[[asyncio.Task[Any]], object]
outliving: ContextVar[Outliving | None] = ContextVar("toolkeep_outliving", default=None)
"""Called with work that outlives its request, so that revoking the token can cancel it."""


class DetachedRequest:
    """One piece of work and its pending requests to the client."""

    def __init__(
        self,
        connection: Connection,
        emit: Emit,
        answers: dict[str, Any],
        progress: Progress | None = None,
        notices: ApprovalNotices | None = None,
        on_text: OnText = lambda: None,
    ) -> None:
        self.client = Client(connection, emit, self, progress=progress, notices=notices, on_text=on_text)
        self.agent = connection.agent
        self.task: asyncio.Task[Any]
        self.asked: Requests = {}
        """Pending requests to the client."""
        self.is_task = False
        """Whether it is, or is about to become, a task."""
        self.notice: Callable[[], str] | None = None
        """What to tell the client while the call waits for approval; empty once it was answered."""
        self.on_change: Callable[[], None] | None = None
        """Called when it sends a request, gets an answer, or ends."""
        self.outliving = outliving.get()
        self._may_be_task = connection.has_tasks
        self._answers = answers
        self._progress = progress
        self._answered: asyncio.Future[None] | None = None
        self._asking = asyncio.Lock()
        self._woken: asyncio.Future[None] | None = None

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start the work."""
        # Reset at once: the next request of the same HTTP connection may start in this context, and its
        # tools would talk to the wrong client.
        token = set_current(self.client)
        self.task = asyncio.ensure_future(work)
        forget_current(token)
        self.task.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        # Breaks a reference cycle that would keep the result until the next garbage collection, which runs
        # rarely here: see `serve_http.raise_gc_threshold`.
        self.client.let_go()
        self.wake()
        self.on_change = None

    def go_on_for(self, emit: Emit, progress: Progress | None) -> None:
        """Continue on behalf of another request; `progress` is None while the client is being asked."""
        self.client.emit = emit
        if self._progress is not None:
            self._progress.go_on_for(progress)

    def wake(self, _: object = None) -> None:
        """Wake the waiting request, so that it checks the state again."""
        if self.on_change is not None:
            self.on_change()
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def settle(self, task_after_s: float) -> None:
        """Wait until it ends, asks, or becomes a task (after `task_after_s`, if supported)."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(task_after_s, self.start_task) if self._may_be_task else None
        try:
            while not (self.task.done() or self.asked or self.is_task):
                self._woken = loop.create_future()
                await self._woken
        finally:
            self._woken = None
            if timer is not None:
                timer.cancel()

    # --- how the work asks -----------------------------------------------------------------------

    async def ask(self, requests: Requests) -> dict[str, Any]:
        """Return the answers: those sent along already, and those that the client sends for the rest."""
        async with self._asking:
            missing = {name: one for name, one in requests.items() if name not in self._answers}
            if missing:
                self.asked = missing
                self._answered = asyncio.get_running_loop().create_future()
                self.wake()
                try:
                    await self._answered
                finally:
                    self.asked = {}
            return {name: self._answers.pop(name) for name in requests}

    def start_task(self) -> bool:
        """Continue as a task, if the client supports tasks."""
        if self._may_be_task:
            self.is_task = True
            self.wake()
        return self._may_be_task

    def person_is_asked(self, notice: Callable[[], str]) -> None:
        """The call waits for approval for an unknown time: continue as a task if possible."""
        self.notice = notice
        self.start_task()

    # --- how the client answers ------------------------------------------------------------------

    def give(self, answers: dict[str, Any]) -> None:
        """Take answers; unexpected names are ignored, malformed answers are refused."""
        fitting = {name: answer for name, answer in answers.items() if name in self.asked}
        for name, answer in fitting.items():
            if not fits(self.asked[name]["method"], answer):
                raise ProtocolError(INVALID_PARAMS, f"inputResponses.{name} does not answer what was asked")
        self._answers.update(fitting)
        self.asked = {name: one for name, one in self.asked.items() if name not in fitting}
        if not self.asked and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)
        self.wake()

    def cancel(self) -> None:
        """Cancel the work."""
        self.task.cancel()


def read_answers(params: dict[str, Any]) -> dict[str, Any]:
    """Read `inputResponses` of a request; raises unless it is an object of objects."""
    if "inputResponses" not in params:
        return {}
    answers = params["inputResponses"]
    if not isinstance(answers, dict) or not all(isinstance(one, dict) for one in answers.values()):
        raise ProtocolError(INVALID_PARAMS, "inputResponses must be an object of objects")
    return dict(answers)
