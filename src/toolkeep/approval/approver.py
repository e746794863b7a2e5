"""Calls the host's approver, with one question or with those of one response at once (FLO-7).

Its answers go to the approval store, whose rules decide whether they count. An approver that fails, or
returns what is no answer, approves nothing.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from toolkeep.approval.approval_store import Approvals
from toolkeep.approval.question import Answer, AnswerRefused, Question, Standing

log = logging.getLogger("toolkeep.approval")

Approver = Callable[[Question], "Awaitable[Answer | bool | None] | Answer | bool | None"]
"""Callback of the host that asks a person. True approves, False denies, None is no answer.

A coroutine is cancelled when its answer is no longer needed. The text of the `CancelledError` says why,
unless the call itself was cancelled.

A critical call is asked about twice; the second approval is an `Answer` with the tool's name typed.

An object with a method `ask_all` gets the questions of one response at once, as a tuple; it returns, or is a
coroutine that returns, an answer for each.
"""

PROGRAM: Final = "program"
"""`way` of an approval that the host's own code gave."""

GATHER_SECONDS: Final = 0.05
"""How long the first question of a response waits for others. A framework starts the calls of a response at
once; a person does not notice the delay."""


class ApproverFailed(Exception):
    """The host's approver raised, or returned what is no answer: nobody was asked, so nobody denied."""


class Prompt:
    """One or more questions that an approver is asked at once."""

    def __init__(self) -> None:
        self.questions: dict[str, Question] = {}
        self.task: asyncio.Future[None]
        """Ends once each answer is stored."""

    def leave(self, question: Question, why: str | None) -> None:
        """The answer to a question is no longer needed; without others the approver is cancelled."""
        self.questions.pop(question.id, None)
        if not self.questions and not self.task.done():
            self.task.cancel(why)


class Prompter:
    """Puts questions to one approver."""

    def __init__(self, approver: Approver, store: Approvals) -> None:
        self._approver = approver
        self._ask_all: Callable[[tuple[Question, ...]], Any] | None = getattr(approver, "ask_all", None)
        self._store = store
        self._gathering: dict[tuple[asyncio.AbstractEventLoop, str], Prompt] = {}

    def put(self, question: Question) -> Prompt:
        """Ask a question, together with those of the same response that come now."""
        if self._ask_all is None or not question.response:
            return self.put_all([question])
        key = asyncio.get_running_loop(), question.response
        prompt = self._gathering.get(key)
        if prompt is None or not prompt.questions:  # those of a prompt without questions have all left
            prompt = self._gathering[key] = Prompt()
            prompt.task = _started(self._gathered(key, prompt))
        prompt.questions[question.id] = question
        return prompt

    def put_all(self, questions: Sequence[Question]) -> Prompt:
        """Ask these questions at once."""
        prompt = Prompt()
        prompt.questions = {question.id: question for question in questions}
        prompt.task = _started(self._run(prompt))
        return prompt

    @property
    def takes_several(self) -> bool:
        """Whether the approver can be asked about several calls at once."""
        return self._ask_all is not None

    async def _gathered(self, key: tuple[asyncio.AbstractEventLoop, str], prompt: Prompt) -> None:
        try:
            await asyncio.sleep(GATHER_SECONDS)
        finally:
            if self._gathering.get(key) is prompt:
                del self._gathering[key]
        await self._run(prompt)

    async def _run(self, prompt: Prompt) -> None:
        questions = tuple(prompt.questions.values())
        if len(questions) == 1:
            answers = [await self._said(questions[0])]
        else:
            answers = await self._said_to_all(questions)
        # All of them first: the second act of a critical call must not delay the others.
        taken = [
            await self._take(question, answer)
            for question, answer in zip(questions, answers, strict=True)
            if question.id in prompt.questions
        ]
        while taken:
            standing = taken.pop(0)
            if standing is not None and standing.state == "waiting":
                second = await self._take(standing.question, await self._said(standing.question))
                taken.insert(0, second)

    async def _take(self, question: Question, answer: Answer | None) -> Standing | None:
        """Store an answer; an invalid one counts as none, never as a yes."""
        if answer is None:
            return None
        try:
            return await self._store.run(self._store.answer, question.id, answer)
        except AnswerRefused as refused:
            fields = {"reason": refused.reason}
            log.warning("an answer was rejected: %(reason)s", fields, extra=fields)
            await self._store.run(self._store.withdraw, question.id)
            return None

    async def _said(self, question: Question) -> Answer | None:
        return _answer(await self._called(self._approver, question, question.tool), question.tool)

    async def _said_to_all(self, questions: tuple[Question, ...]) -> list[Answer | None]:
        tools = ", ".join(question.tool for question in questions)
        said = await self._called(self._ask_all, questions, tools)
        if not isinstance(said, Sequence) or len(said) != len(questions):
            raise _failed(tools, "ask_all returns an answer for each question", said)
        return [_answer(one, question.tool) for one, question in zip(said, questions, strict=True)]

    async def _called(self, approver: Any, asked: Any, tool: str) -> Any:
        """What the host's code returns; raises `ApproverFailed`, which never approves (fail closed)."""
        try:
            # A plain function may block on a key press: run it in a thread, not on the event loop.
            is_async = any(map(inspect.iscoroutinefunction, (approver, type(approver).__call__)))
            said: Any = approver(asked) if is_async else await asyncio.to_thread(_in_thread, approver, asked)
            return await said if isinstance(said, Awaitable) else said
        except Exception as error:
            log.exception("the approver failed", extra={"tool_name": tool})
            raise ApproverFailed from error


def _started(work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
    task = asyncio.ensure_future(work)
    # Read here, too: a call that gave up does not read it, and asyncio would complain.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _in_thread(approver: Any, asked: Any) -> Any:
    """What an approver says; `StopIteration` would never leave its thread, and the call would hang."""
    try:
        return approver(asked)
    except StopIteration as error:
        raise RuntimeError("the approver raised StopIteration") from error


def _answer(said: object, tool: str) -> Answer | None:
    # Exactly a bool: a truthy object that a broken approver returns must not approve.
    if isinstance(said, bool):
        return Answer(verdict="approve" if said else "deny", approver=PROGRAM, way=PROGRAM)
    if said is not None and not isinstance(said, Answer):
        raise _failed(tool, "it returns True, False, None or an Answer", said)
    return said


def _failed(tool: str, rule: str, said: object) -> ApproverFailed:
    fields = {"tool_name": tool, "returned": type(said).__name__}
    log.error(f"the approver failed: {rule}, not %(returned)s", fields, extra=fields)  # noqa: G004 -- our words
    return ApproverFailed()
