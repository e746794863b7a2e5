"""Questions of one server to a person, put to whoever the host names for that; without one, none is put.

The server is hostile: it is heard only while a call of ours is under way, a few times for each, and its words
come cleaned. Whoever fails, hangs or answers what does not fit has not agreed. That a server asked, for this
or for anything else, is told as an event, and recorded in the log of the calls that it may have asked for: of
an answer before it goes out. Neither questions nor answers are. What is not protected: a person can be talked
into telling a server what it should not know.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from toolkeep.errors import ToolkeepError
from toolkeep.limits import NAMED_CHARS
from toolkeep.sources.mcp.forms import Form, FormRefused, read_form
from toolkeep.sources.mcp.noting import Notes, Record, Tell, UnderWay, Wish, hash_of
from toolkeep.sources.mcp.secret_words import wants_secret
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.wording import excerpt, excerpt_lines

log = logging.getLogger("toolkeep.execution")

QUESTIONS: Final = 5
"""That a server may put during one call."""
ANSWER_SECONDS: Final = 300.0
"""How long an answer is waited for; the time of the call stands still meanwhile."""
MESSAGE_CHARS: Final = 2_000
ELICITATION: Final = "elicitation/create"
PROGRAM: Final = "program"
"""Who answered, where the host's own code does not say it."""
_OTHER: Final = "other"
_REFUSED: Final = {
    ELICITATION: "nobody answers questions of servers here",
    "sampling/createMessage": "no model answers servers here",
    "roots/list": "no server is told of roots here",
    _OTHER: "it is nothing that is answered here",
}
_REFUSALS_TOLD: Final = 20
"""Of one call, as events and in the log: a server may ask without end."""

Result = dict[str, Any]
Reply = Callable[[Result], Awaitable[None]]
DECLINED: Final[Result] = {"action": "decline"}
_CANCELLED: Final[Result] = {"action": "cancel"}
_call: ContextVar["UnderWay | None"] = ContextVar("the call whose server is heard", default=None)
"""Set where an answer to one call is read; what reads for all calls has none of this conversation."""


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
    expires_at: float
    """When nobody waits for the answer any more, in POSIX seconds."""


class UpstreamAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said to a question, and who it was."""

    content: Mapping[str, Any] | None
    """What is sent; None says no."""
    by: str
    """For the log, such as `terminal:ada`."""


Answer = UpstreamAnswer | Mapping[str, Any] | None
Answerer = Callable[[UpstreamQuestion], Awaitable[Answer] | Answer]
"""Asks a person. A mapping is sent, with what the form suggests for the fields left out; None says no."""


def _nobody(_: UpstreamQuestion) -> None:
    """There is nobody to ask."""


class _Question(msgspec.Struct, eq=False):
    """A question that a person may be asked, from when it came until it is answered."""

    wish: Wish
    shown: UpstreamQuestion
    form: Form
    asking: "asyncio.Task[Answer] | None" = None


class _Said(msgspec.Struct, frozen=True):
    """What the server is told."""

    result: Result
    by: str = ""
    reason: str = ""
    """Why it is no yes."""


class Questions:
    """Those of one conversation."""

    def __init__(
        self, answerer: Answerer | None, upstream: str, agent: str, tell: Tell, record: Record
    ) -> None:
        self.has_answerer = answerer is not None
        """Whether anybody is asked."""
        self._answerer = answerer or _nobody
        self._upstream = upstream
        self._agent = agent
        self._notes = Notes(upstream, agent, tell, record)
        self._untold = _REFUSALS_TOLD
        self._calls: list[UnderWay] = []
        self._left = 0
        self._turn = asyncio.Lock()
        """A person is asked one thing at a time."""
        self._open: set[_Question] = set()
        self._replying: set[asyncio.Task[None]] = set()

    @contextmanager
    def during_call(self, call: UnderWay) -> Iterator[None]:
        """A call is under way; questions that nobody answered end with the last one that they may be of."""
        within = _call.set(call)
        self._calls.append(call)
        self._left += QUESTIONS
        self._untold = _REFUSALS_TOLD
        try:
            yield
        finally:
            _call.reset(within)
            self._calls.remove(call)
            self._left = min(self._left, len(self._calls) * QUESTIONS)
            for question in list(self._open):
                self._end(question, [call])

    def refuse(self, method: str, params: object = None, reason: str = "") -> None:
        """The server wanted something, and nobody was asked."""
        known = method if method in _REFUSED else _OTHER
        self._refuse(self._wish(known), params, reason or _REFUSED[known])

    def take(self, params: object, reply: Reply) -> bool:
        """Whether a question is put; the reply follows when there is one."""
        question = self._admitted(params)
        if question is None:
            return False
        task = asyncio.get_running_loop().create_task(self._replied(question, reply))
        self._replying.add(task)
        task.add_done_callback(self._replying.discard)
        return True

    async def answer(self, params: object) -> Result:
        """What is said to a question."""
        question = self._admitted(params)
        return DECLINED if question is None else await self._said(question)

    def close(self) -> None:
        """Ask nothing more."""
        self._left = 0
        for question in list(self._open):
            self._end(question, question.wish.calls)
        for task in list(self._replying):
            task.cancel()

    def _wish(self, method: str) -> Wish:
        """What is wanted now: for the call whose answer is being read, or else for one of them all."""
        own = _call.get()
        calls = [own] if own is not None and own in self._calls else list(self._calls)
        return Wish(method, calls, len(calls))

    def _refuse(self, wish: Wish, params: object, reason: str) -> None:
        self._untold -= 1
        if self._untold >= 0:
            wish.hash = hash_of(params)
            self._notes.write(wish, wish.calls, "refused")
            self._notes.tell(wish, "refused", reason)

    def _admitted(self, params: object) -> _Question | None:
        """The question, where it may be put."""
        wish = self._wish(ELICITATION)
        try:
            question = self._read(wish, params if isinstance(params, dict) else {})
        except FormRefused as refused:
            self._refuse(wish, params, str(refused))
            return None
        wish.hash = hash_of(params)
        self._open.add(question)
        return question

    def _read(self, wish: Wish, params: dict[str, Any]) -> _Question:
        if not self.has_answerer:
            raise FormRefused(_REFUSED[ELICITATION])
        if not self._left:
            raise FormRefused(f"no call is under way, or it has asked {QUESTIONS} times")
        self._left -= 1
        message = params.get("message")
        if params.get("mode", "form") != "form" or type(message) is not str:
            raise FormRefused("it wants something else than a form filled in")
        form = read_form(params.get("requestedSchema"))
        words = excerpt_lines(message, MESSAGE_CHARS)
        if wants_secret(words, form.schema):
            raise FormRefused("it asks for a secret, which no server may do in a form")
        shown = UpstreamQuestion(
            upstream=self._upstream,
            agent=self._agent,
            message=words,
            schema=form.schema,
            expires_at=time.time() + ANSWER_SECONDS,
        )
        return _Question(wish, shown, form)

    async def _replied(self, question: _Question, reply: Reply) -> None:
        try:
            await reply(await self._said(question))
        except UpstreamFailed:
            log.debug("an answer was not taken", extra={"upstream": self._upstream})

    async def _said(self, question: _Question) -> Result:
        """What the server is told, once the log has it."""
        wish = question.wish
        try:
            said = await self._answered(question)
        except BaseException:  # whoever waited for what is said has given up
            self._end(question, wish.calls)
            self._notes.tell(wish, "cancel", "its call was over")
            raise
        finally:
            self._open.discard(question)
        try:
            for written in self._notes.write(wish, wish.calls, said.result["action"], said.by):
                await written
        except ToolkeepError as error:
            fields = {"upstream": self._upstream, "error_code": error.code.value}
            log.error("a question was not recorded, and is declined", extra=fields)  # noqa: TRY400 -- whole
            said = _Said(DECLINED, reason="that it was asked could not be recorded")
        self._notes.tell(wish, said.result["action"], said.reason)
        return said.result

    async def _answered(self, question: _Question) -> _Said:
        if not question.wish.calls:  # it came together with the answer to its call
            return _Said(_CANCELLED, reason="its call was over")
        asking = asyncio.get_running_loop().create_task(self._asked(question.shown))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        question.asking = asking
        try:
            with ExitStack() as paused:
                for call in question.wish.calls:
                    paused.enter_context(call.pause())
                await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
        finally:
            asking.cancel()  # nobody waits for it any more
        if not asking.done() or asking.cancelled() or not question.wish.calls:
            return _Said(_CANCELLED, reason="nobody answered in time")
        if (error := asking.exception()) is not None:
            return _Said(DECLINED, reason=f"the answerer failed: {type(error).__name__}")
        return _judged(asking.result(), question.form)

    async def _asked(self, question: UpstreamQuestion) -> Answer:
        async with self._turn:
            # An ordinary function may well sit and wait for a key.
            if inspect.iscoroutinefunction(self._answerer):
                said: Any = self._answerer(question)
            else:
                said = await asyncio.to_thread(self._answerer, question)
            answer: Answer = await said if isinstance(said, Awaitable) else said
            return answer

    def _end(self, question: _Question, calls: list[UnderWay]) -> None:
        """These calls are over, and the question with the last that it may be of."""
        wish = question.wish
        self._notes.write(wish, [call for call in calls if call in wish.calls], "cancel")
        if not wish.calls and question.asking is not None:
            question.asking.cancel()


def _judged(answer: Answer, form: Form) -> _Said:
    given, by = (answer.content, answer.by) if isinstance(answer, UpstreamAnswer) else (answer, PROGRAM)
    by = excerpt(str(by), NAMED_CHARS)
    if given is None:
        return _Said(DECLINED, by, "the answerer said no")
    try:
        return _Said({"action": "accept", "content": form.filled(given)}, by)
    except FormRefused as refused:
        return _Said(DECLINED, by, str(refused))
