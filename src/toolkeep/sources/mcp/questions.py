"""Questions of one server to a person, put to whoever the host names for that; without one, none is put.

The server is hostile: it is heard only while a call of ours is under way, a few times for each, and its words
come cleaned. Whoever fails, hangs or answers what does not fit has not agreed. That a server asked, for this
or for anything else, is told as an event; neither questions nor answers are. What is not protected: a person
can be talked into telling a server what it should not know.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from toolkeep.events import UpstreamAsked
from toolkeep.sources.mcp.forms import Form, FormRefused, read_form
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.wording import excerpt_lines

log = logging.getLogger("toolkeep.execution")

QUESTIONS: Final = 5
"""That a server may put during one call."""
ANSWER_SECONDS: Final = 300.0
"""How long an answer is waited for; a call has its own deadline besides."""
MESSAGE_CHARS: Final = 2_000
ELICITATION: Final = "elicitation/create"
_OTHER: Final = "other"
_REFUSED: Final = {
    ELICITATION: "nobody answers questions of servers here",
    "sampling/createMessage": "no model answers servers here",
    "roots/list": "no server is told of roots here",
    _OTHER: "it is nothing that is answered here",
}
_REFUSALS_TOLD: Final = 20
"""Events of one call about what was refused: a server may ask without end."""

Result = dict[str, Any]
Reply = Callable[[Result], Awaitable[None]]
Tell = Callable[[UpstreamAsked], None]
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


def _nobody(_: UpstreamQuestion) -> None:
    """There is nobody to ask."""


class Questions:
    """Those of one conversation."""

    def __init__(self, answerer: Answerer | None, upstream: str, agent: str, tell: Tell) -> None:
        self.has_answerer = answerer is not None
        """Whether anybody is asked."""
        self._answerer = answerer or _nobody
        self._upstream = upstream
        self._agent = agent
        self._tell = tell
        self._untold = _REFUSALS_TOLD
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
        self._untold = _REFUSALS_TOLD
        try:
            yield
        finally:
            self._calls -= 1
            self._left = min(self._left, self._calls * QUESTIONS)
            if not self._calls:
                _cancel(self._asking)

    def refuse(self, method: str, reason: str = "") -> None:
        """The server wanted something, and nobody was asked."""
        self._untold -= 1
        if self._untold >= 0:
            known = method if method in _REFUSED else _OTHER
            self._note(known, "refused", reason or _REFUSED[known])

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
        if not self.has_answerer:
            self.refuse(ELICITATION)
            return None
        if not self._left:
            self.refuse(ELICITATION, f"no call is under way, or it has asked {QUESTIONS} times")
            return None
        self._left -= 1
        try:
            return self._read(params if isinstance(params, dict) else {})
        except FormRefused as refused:
            self.refuse(ELICITATION, str(refused))
            return None

    def _read(self, params: dict[str, Any]) -> tuple[UpstreamQuestion, Form]:
        message = params.get("message")
        if params.get("mode", "form") != "form" or type(message) is not str:
            raise FormRefused("it wants something else than a form filled in")
        form = read_form(params.get("requestedSchema"))
        words = excerpt_lines(message, MESSAGE_CHARS)
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
        said, reason = await self._answered(*admitted)
        self._note(ELICITATION, said["action"], reason)
        return said

    async def _answered(self, question: UpstreamQuestion, form: Form) -> tuple[Result, str]:
        """What is said, and why it is no yes."""
        asking = asyncio.get_running_loop().create_task(self._asked(question))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._asking.add(asking)
        try:
            await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
        finally:
            self._asking.discard(asking)
            asking.cancel()  # nobody waits for it any more
        if not asking.done() or asking.cancelled() or not self._calls:
            return _CANCELLED, "nobody answered in time"
        if (error := asking.exception()) is not None:
            return DECLINED, f"the answerer failed: {type(error).__name__}"
        if (given := asking.result()) is None:
            return DECLINED, "the answerer said no"
        try:
            return {"action": "accept", "content": form.filled(given)}, ""
        except FormRefused as refused:
            return DECLINED, str(refused)

    async def _asked(self, question: UpstreamQuestion) -> Any:
        async with self._turn:
            # An ordinary function may well sit and wait for a key.
            if inspect.iscoroutinefunction(self._answerer):
                return await self._answerer(question)
            said = await asyncio.to_thread(self._answerer, question)
            return await said if isinstance(said, Awaitable) else said

    def _note(self, method: str, outcome: str, reason: str) -> None:
        """That a server asked, and how it ended; never what."""
        self._tell(
            UpstreamAsked(
                upstream=self._upstream, agent=self._agent, method=method, outcome=outcome, reason=reason
            )
        )


def _cancel(tasks: "set[asyncio.Task[Any]] | set[asyncio.Task[None]]") -> None:
    for task in list(tasks):
        task.cancel()
