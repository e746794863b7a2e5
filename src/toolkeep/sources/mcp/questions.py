"""Questions of one server to a person, put to whoever the host names for that; without one, none is put.

The server is hostile: it is heard only while a call of ours is under way, a few times for each, and its words
come cleaned. Whoever fails, hangs or answers what does not fit has not agreed. Neither questions nor answers
are logged. What is not protected: a person can be talked into telling a server what it should not know.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from toolkeep.sources.mcp.forms import Form, FormRefused, read_form
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.wording import shorten, visible_lines

log = logging.getLogger("toolkeep.execution")

QUESTIONS: Final = 5
"""That a server may put during one call."""
ANSWER_SECONDS: Final = 300.0
"""How long an answer is waited for; a call has its own deadline besides."""
MESSAGE_CHARS: Final = 2_000

Result = dict[str, Any]
Reply = Callable[[Result], Awaitable[None]]
DECLINED: Final[Result] = {"action": "decline"}
_CANCELLED: Final[Result] = {"action": "cancel"}


class UpstreamQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a server wants to know from a person. Show who asks: the words are the server's own."""

    upstream: str
    """The server, as the configuration calls it."""
    agent: str
    """Whose call is under way."""
    message: str
    """Its words, with everything unseen made visible."""
    schema: dict[str, Any]
    """The flat form that it wants filled in, as JSON Schema."""


Answerer = Callable[[UpstreamQuestion], "Awaitable[Mapping[str, Any] | None] | Mapping[str, Any] | None"]
"""Asks a person. A mapping is sent, with what the form suggests for the fields left out; None says no."""


class Questions:
    """Those of one conversation."""

    def __init__(self, answerer: Answerer, upstream: str, agent: str) -> None:
        self._answerer = answerer
        self._upstream = upstream
        self._agent = agent
        self._calls = 0
        self._left = 0
        self._turn = asyncio.Lock()
        """A person is asked one thing at a time."""
        self._asking: set[asyncio.Task[Any]] = set()
        self._replying: set[asyncio.Task[None]] = set()

    @contextmanager
    def during_call(self) -> Iterator[None]:
        """A call is under way; questions that nobody answered end with the last one."""
        self._calls += 1
        self._left += QUESTIONS
        try:
            yield
        finally:
            self._calls -= 1
            self._left = min(self._left, self._calls * QUESTIONS)
            if not self._calls:
                _cancel(self._asking)

    def take(self, params: object, reply: Reply) -> bool:
        """Whether a question is put; the reply follows when there is one."""
        admitted = self._admitted(params)
        if admitted is None:
            return False
        task = asyncio.get_running_loop().create_task(self._replied(admitted, reply))
        self._replying.add(task)
        task.add_done_callback(self._replying.discard)
        return True

    async def answer(self, params: object) -> Result:
        """What is said to a question."""
        admitted = self._admitted(params)
        return DECLINED if admitted is None else await self._said(admitted)

    def close(self) -> None:
        """Ask nothing more."""
        self._left = 0
        _cancel(self._asking)
        _cancel(self._replying)

    def _admitted(self, params: object) -> tuple[UpstreamQuestion, Form] | None:
        """The question, where it may be put."""
        if not self._left:
            self._note("not put", f"no call is under way, or it has asked {QUESTIONS} times")
            return None
        self._left -= 1
        try:
            return self._read(params if isinstance(params, dict) else {})
        except FormRefused as refused:
            self._note("not put", str(refused))
            return None

    def _read(self, params: dict[str, Any]) -> tuple[UpstreamQuestion, Form]:
        message = params.get("message")
        if params.get("mode", "form") != "form" or type(message) is not str:
            raise FormRefused("it wants something else than a form filled in")
        form = read_form(params.get("requestedSchema"))
        words = shorten(visible_lines(message[: MESSAGE_CHARS + 1]), MESSAGE_CHARS)
        question = UpstreamQuestion(
            upstream=self._upstream, agent=self._agent, message=words, schema=form.schema
        )
        return question, form

    async def _replied(self, admitted: tuple[UpstreamQuestion, Form], reply: Reply) -> None:
        try:
            await reply(await self._said(admitted))
        except UpstreamFailed:
            log.debug("an answer was not taken", extra={"upstream": self._upstream})

    async def _said(self, admitted: tuple[UpstreamQuestion, Form]) -> Result:
        question, form = admitted
        asking = asyncio.get_running_loop().create_task(self._asked(question))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._asking.add(asking)
        try:
            await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
        finally:
            self._asking.discard(asking)
            asking.cancel()  # nobody waits for it any more
        if not asking.done() or asking.cancelled() or not self._calls:
            self._note("cancel", "nobody answered in time")
            return _CANCELLED
        return self._judged(asking, form)

    def _judged(self, asking: "asyncio.Task[Any]", form: Form) -> Result:
        """What is sent: an answer that fits, or a no."""
        if (error := asking.exception()) is not None:
            self._note("decline", f"the answerer failed: {type(error).__name__}")
            return DECLINED
        if (given := asking.result()) is None:
            self._note("decline", "the answerer said no")
            return DECLINED
        try:
            content = form.filled(given)
        except FormRefused as refused:
            self._note("decline", str(refused))
            return DECLINED
        self._note("accept", "")
        return {"action": "accept", "content": content}

    async def _asked(self, question: UpstreamQuestion) -> Any:
        async with self._turn:
            # An ordinary function may well sit and wait for a key.
            if inspect.iscoroutinefunction(self._answerer):
                return await self._answerer(question)
            said = await asyncio.to_thread(self._answerer, question)
            return await said if isinstance(said, Awaitable) else said

    def _note(self, outcome: str, reason: str) -> None:
        """That a server asked, and how it ended; never what."""
        fields = {"upstream": self._upstream, "agent": self._agent, "outcome": outcome, "reason": reason}
        log.info("a server asked a person", extra=fields)


def _cancel(tasks: "set[asyncio.Task[Any]] | set[asyncio.Task[None]]") -> None:
    for task in list(tasks):
        task.cancel()
