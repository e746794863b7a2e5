"""Elicitation (MCP): questions of a server to a person, handled by the host's answerer; declined without one.

The server is hostile: it may ask only during one of our calls, a few times each, and its text is sanitized. A
failing or hanging answerer, or an invalid answer, never accepts. Each request emits an event and is recorded
in the audit log of the calls it may belong to, an accepted one before the reply is sent. Neither questions
nor answers are logged. Not protected: a person can be tricked into disclosing something (social engineering).
"""

import asyncio
import inspect
import logging
import re
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from toolkeep.errors import ToolkeepError
from toolkeep.limits import NAMED_CHARS
from toolkeep.mcp_client.elicitation_audit import (
    ActiveCall,
    ElicitationAudit,
    ElicitationRecord,
    Record,
    Tell,
    hash_of,
)
from toolkeep.mcp_client.elicitation_form import Form, FormRefused, read_form
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.text.display import excerpt, truncated_lines

log = logging.getLogger("toolkeep.execution")

QUESTIONS: Final = 5
"""Maximum number of elicitations during one call."""
ANSWER_SECONDS: Final = 300.0
"""Time limit for an answer; the call's deadline is paused meanwhile."""
MESSAGE_CHARS: Final = 2_000
"""Characters of a server's question that a person is shown: less than half a screen, so that it cannot push
the form out of sight."""
ELICITATION: Final = "elicitation/create"
PROGRAM: Final = "program"
"""Answerer name in the log if the host's code gives none."""
_OTHER: Final = "other"
_REFUSED: Final = {
    ELICITATION: "no one answers elicitations here",
    "sampling/createMessage": "sampling is not offered",
    "roots/list": "roots are not offered",
    _OTHER: "the request is not supported",
}
_REFUSALS_TOLD: Final = 20
"""Maximum number of refusals that are logged for one call: a server may ask without end."""

Result = dict[str, Any]
Reply = Callable[[Result], Awaitable[None]]
DECLINED: Final[Result] = {"action": "decline"}
_CANCELLED: Final[Result] = {"action": "cancel"}
_current_call: ContextVar["ActiveCall | None"] = ContextVar("the call whose server is heard", default=None)
"""The call whose response stream is being read; unset on streams that serve all calls."""


class ElicitationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An elicitation request for a person. Show which server asks: the text is the server's own."""

    upstream: str
    """The upstream's name in the configuration."""
    agent: str
    """The agent whose call is active."""
    message: str
    """The server's message with invisible characters escaped."""
    schema: dict[str, Any]
    """The requested form as a flat JSON Schema."""
    expires_at: float
    """When the request expires, in POSIX seconds."""


class ElicitationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an elicitation, and who gave it."""

    content: Mapping[str, Any] | None
    """The content to send; None declines."""
    by: str
    """Name for the audit log, such as `terminal:ada`."""


Answer = ElicitationAnswer | Mapping[str, Any] | None
Answerer = Callable[[ElicitationRequest], Awaitable[Answer] | Answer]
"""Callback of the host that asks a person. A mapping is sent, with the form's defaults for missing fields;
None declines."""


def _nobody(_: ElicitationRequest) -> None:
    """Answerer that declines everything."""


class _Question(msgspec.Struct, eq=False):
    """A pending elicitation."""

    record: ElicitationRecord
    shown: ElicitationRequest
    form: Form
    asking: "asyncio.Task[Answer] | None" = None


class _Response(msgspec.Struct, frozen=True):
    """The reply to the server."""

    result: Result
    by: str = ""
    reason: str = ""
    """Why it was not accepted."""


class Elicitations:
    """The elicitations of one session."""

    def __init__(
        self, answerer: Answerer | None, upstream: str, agent: str, tell: Tell, record: Record
    ) -> None:
        self.has_answerer = answerer is not None
        """Whether an answerer is configured."""
        self._answerer = answerer or _nobody
        self._upstream = upstream
        self._agent = agent
        self._audit = ElicitationAudit(upstream, agent, tell, record)
        self._refusals_left = _REFUSALS_TOLD
        self._calls: list[ActiveCall] = []
        self._questions_left = 0
        self._lock = asyncio.Lock()
        """Serializes questions: a person is asked one at a time."""
        self._open: set[_Question] = set()
        self._replying: set[asyncio.Task[None]] = set()

    @contextmanager
    def during_call(self, call: ActiveCall) -> Iterator[None]:
        """Mark a call as active.

        Pending questions are cancelled with the last call that they may belong to.
        """
        within = _current_call.set(call)
        self._calls.append(call)
        self._questions_left += QUESTIONS
        self._refusals_left = _REFUSALS_TOLD
        try:
            yield
        finally:
            _current_call.reset(within)
            self._calls.remove(call)
            # A budget belongs to its call: questions saved up by one call must not be spent during another.
            self._questions_left = min(self._questions_left, len(self._calls) * QUESTIONS)
            for question in list(self._open):
                self._detach(question, [call])

    def refuse(self, method: str, params: object = None, reason: str = "") -> None:
        """Record a server request that was refused without asking anybody."""
        known = method if method in _REFUSED else _OTHER
        self._refuse(self._new_record(known), params, reason or _REFUSED[known])

    def take(self, params: object, reply: Reply) -> bool:
        """Accept an elicitation for asynchronous reply; False if it is refused."""
        question = self._admitted(params)
        if question is None:
            return False
        task = asyncio.get_running_loop().create_task(self._replied(question, reply))
        self._replying.add(task)
        task.add_done_callback(self._replying.discard)
        return True

    async def answer(self, params: object) -> Result:
        """Answer an elicitation."""
        question = self._admitted(params)
        return DECLINED if question is None else await self._respond(question)

    def close(self) -> None:
        """Cancel all pending questions."""
        self._questions_left = 0
        for question in list(self._open):
            self._detach(question, question.record.calls)
        for task in list(self._replying):
            task.cancel()

    def _new_record(self, method: str) -> ElicitationRecord:
        """Attribute a request to the call whose stream is being read, or else to all active calls."""
        own = _current_call.get()
        calls = [own] if own is not None and own in self._calls else list(self._calls)
        return ElicitationRecord(method, calls, len(calls))

    def _refuse(self, record: ElicitationRecord, params: object, reason: str) -> None:
        self._refusals_left -= 1
        if self._refusals_left >= 0:
            record.hash = hash_of(params)
            self._audit.write(record, record.calls, "refused")
            self._audit.tell(record, "refused", reason)

    def _admitted(self, params: object) -> _Question | None:
        """Validate an elicitation; None if it is refused."""
        record = self._new_record(ELICITATION)
        try:
            question = self._read(record, params if isinstance(params, dict) else {})
        except FormRefused as refused:
            self._refuse(record, params, str(refused))
            return None
        record.hash = hash_of(params)
        self._open.add(question)
        return question

    def _read(self, record: ElicitationRecord, params: dict[str, Any]) -> _Question:
        if not self.has_answerer:
            raise FormRefused(_REFUSED[ELICITATION])
        # Outside of a call nobody expects a question, and the answer would go to a server that needs none.
        if not self._questions_left:
            raise FormRefused(f"no call is under way, or it has asked {QUESTIONS} times")
        # Counted before the form is validated: invalid forms use up the budget too.
        self._questions_left -= 1
        message = params.get("message")
        if params.get("mode", "form") != "form" or type(message) is not str:
            raise FormRefused("it wants something else than a form filled in")
        form = read_form(params.get("requestedSchema"))
        words = truncated_lines(message, MESSAGE_CHARS)
        # MCP forbids servers to ask for secrets in a form: the answer would pass through the host in the
        # clear.
        if wants_secret(words, form.schema):
            raise FormRefused("it asks for a secret, which no server may do in a form")
        shown = ElicitationRequest(
            upstream=self._upstream,
            agent=self._agent,
            message=words,
            schema=form.schema,
            expires_at=time.time() + ANSWER_SECONDS,
        )
        return _Question(record, shown, form)

    async def _replied(self, question: _Question, reply: Reply) -> None:
        try:
            await reply(await self._respond(question))
        except UpstreamFailed:
            log.debug("an answer was rejected", extra={"upstream": self._upstream})

    async def _respond(self, question: _Question) -> Result:
        """The reply, after it is durable in the audit log."""
        record = question.record
        try:
            said = await self._answered(question)
        except BaseException:  # the waiting call was cancelled
            self._detach(question, record.calls)
            self._audit.tell(record, "cancel", "its call was over")
            raise
        finally:
            self._open.discard(question)
        # Recorded before it is sent, and declined if that fails: consent without an audit record must not
        # count.
        try:
            for written in self._audit.write(record, record.calls, said.result["action"], said.by):
                await written
        except ToolkeepError as error:
            fields = {"upstream": self._upstream, "error_code": error.code.value}
            log.error("a question was not recorded, and is declined", extra=fields)  # noqa: TRY400 -- whole
            said = _Response(DECLINED, reason="that it was asked could not be recorded")
        self._audit.tell(record, said.result["action"], said.reason)
        return said.result

    async def _answered(self, question: _Question) -> _Response:
        if not question.record.calls:  # it arrived together with the call's response
            return _Response(_CANCELLED, reason="its call was over")
        asking = asyncio.get_running_loop().create_task(self._asked(question.shown))
        asking.add_done_callback(lambda task: task.cancelled() or task.exception())
        question.asking = asking
        try:
            with ExitStack() as paused:
                for call in question.record.calls:
                    # All calls that the question may belong to: we cannot tell which of them the server is
                    # working on.
                    paused.enter_context(call.pause())
                await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
        finally:
            asking.cancel()  # the question has expired
        if not asking.done() or asking.cancelled() or not question.record.calls:
            return _Response(_CANCELLED, reason="no answer in time")
        if (error := asking.exception()) is not None:
            return _Response(DECLINED, reason=f"the answerer failed: {type(error).__name__}")
        return _validated(asking.result(), question.form)

    async def _asked(self, question: ElicitationRequest) -> Answer:
        async with self._lock:
            # A plain function may block on a key press: run it in a thread, not on the event loop.
            if inspect.iscoroutinefunction(self._answerer):
                said: Any = self._answerer(question)
            else:
                said = await asyncio.to_thread(self._answerer, question)
            answer: Answer = await said if isinstance(said, Awaitable) else said
            return answer

    def _detach(self, question: _Question, calls: list[ActiveCall]) -> None:
        """Detach finished calls from a question; cancel it with the last one."""
        record = question.record
        self._audit.write(record, [call for call in calls if call in record.calls], "cancel")
        if not record.calls and question.asking is not None:
            question.asking.cancel()


def _validated(answer: Answer, form: Form) -> _Response:
    given, by = (answer.content, answer.by) if isinstance(answer, ElicitationAnswer) else (answer, PROGRAM)
    by = excerpt(str(by), NAMED_CHARS)
    if given is None:
        return _Response(DECLINED, by, "the answerer said no")
    try:
        # Validated against the form that was shown: a server gets only fields that the person has seen.
        return _Response({"action": "accept", "content": form.filled(given)}, by)
    except FormRefused as refused:
        return _Response(DECLINED, by, str(refused))


_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN: Final = re.compile(r"[\W_]+")
_PLAIN: Final = (
    r"pass ?(?:word|phrase|code)s?|passwd|credentials?|(?:seed|recovery) phrase|card number|social security|"
    r"(?:api|access|private|secret|ssh|signing|recovery) ?keys?|"
    r"(?:access|auth|api|bearer|session|refresh|security) ?tokens?|"
    r"(?:pin|security|verification|authentication|one time) ?code|one time password"
)
_IN_SENTENCES: Final = re.compile(rf"\b(?:{_PLAIN})\b")
_IN_NAMES: Final = re.compile(rf"\b(?:{_PLAIN}|pwd|secrets?|token|pin|otp|totp|2fa|mfa|cvv|cvc|ssn)\b")


def wants_secret(message: str, schema: dict[str, Any]) -> bool:
    """Whether a form has a free-text field and asks for a secret. A word list: other wordings pass."""
    fields = {name: field for name, field in schema["properties"].items() if _is_free(field)}
    texts = any(field["type"] == "string" for field in fields.values())
    return (texts and _has(_IN_SENTENCES, message)) or any(
        _has(_IN_NAMES, name)
        or _has(_IN_NAMES, field.get("title", ""))
        or _has(_IN_SENTENCES, field.get("description", ""))
        for name, field in fields.items()
    )


def _is_free(field: dict[str, Any]) -> bool:
    """Whether a person types the value; a choice holds no secret."""
    return field["type"] in ("string", "integer", "number") and not field.keys() & {"enum", "oneOf"}


def _has(pattern: re.Pattern[str], text: str) -> bool:
    # NFKC and word splitting, so that `apiKey`, `api_key` and fullwidth letters match the same words.
    words = _HUMP.sub(" ", unicodedata.normalize("NFKC", text))
    return pattern.search(_BETWEEN.sub(" ", words).casefold()) is not None
