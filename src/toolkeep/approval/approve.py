"""The door of approval: a permitted call becomes an `ApprovedCall`, or a refusal. Nothing else makes one.

Whether a person is asked follows from danger, confirmation, paranoia and policies with `@ask` (POL-4). A yes
is bound to definition, arguments, agent and grant, and is used up by one atomic update before the call is
recorded.
"""

import asyncio
import contextlib
import hashlib
import inspect
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from toolkeep.approval.coverage import arguments_of
from toolkeep.approval.difference import difference
from toolkeep.approval.question import Answer, AnswerRefused, Question, Rule, Standing, covered
from toolkeep.approval.store import Approvals, covering_rule
from toolkeep.approval.undeclared import danger_reason, warn_undeclared
from toolkeep.approval.view import rule_text
from toolkeep.calls import Approval, ApprovedCall, PermittedCall, Refusal
from toolkeep.definitions.roles import ArgumentMarks
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, ToolkeepError
from toolkeep.events import ApprovalDecided, ApprovalRequested, Event
from toolkeep.limits import APPROVAL_POLL_SECONDS, APPROVAL_WAIT_SECONDS, MODEL_TEXT_CHARS, RULE_DAYS
from toolkeep.refusals import refuse
from toolkeep.wording import shorten, visible_lines

log = logging.getLogger("toolkeep.approval")

Approver = Callable[[Question], "Awaitable[Answer | bool | None] | Answer | bool | None"]
"""Asks a person. True is a yes, False a no, None no answer.

A critical call is asked about twice, and the second yes is an `Answer` with the tool's name typed.
"""

Waiting = Callable[[], contextlib.AbstractAsyncContextManager[None]]

PROGRAM = "program"
"""The way of an approver that the host's own code is."""

_FAILED = Answer(verdict="deny", approver=PROGRAM, way=PROGRAM, reason="nobody could be asked")


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Asked(NamedTuple):
    """What came of asking: a question with a yes, an earlier answer, or nobody had to be asked."""

    question: Question | None = None
    approval: Approval | None = None


_NOBODY: Final = Asked()
_MARKS: Final = 1_000
"""Definitions whose marks are remembered."""


class Asker:
    """Asks people about calls."""

    def __init__(
        self,
        store: Approvals,
        *,
        approver: Approver | None = None,
        is_paranoid: bool = False,
        wait_s: float = 0.0,
        clock: Callable[[], float] = time.time,
        tell: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """`wait_s` is how long a call waits for another process to answer; zero: nobody answers there."""
        self.store = store
        self._marks: dict[str, ArgumentMarks] = {}
        self._is_paranoid = is_paranoid
        self._wait_s = wait_s
        self._approver = approver
        self._clock = clock
        self._tell = tell
        self._warned: set[str] = set()
        """The tools whose missing declaration was said, by the hash of their definition."""

    async def ask(
        self, call: PermittedCall, sealed: bytes, waiting: Waiting = contextlib.nullcontext
    ) -> Asked | Refusal:
        """A yes, where one is needed; else why there is none. `waiting` is held while a person is asked.

        `sealed` holds the canonical arguments with each secret replaced by its HMAC.
        """
        why = self._why(call)
        if not why:
            return _NOBODY
        question = self._question(call, sealed, why)
        if (earlier := self._earlier(call, question)) is not None:
            return Asked(approval=earlier)
        if self._approver is None and not self._wait_s:
            return _nobody(call, question)
        if not self.store.ask(question):
            return _too_many(call, question)
        self._tell_requested(question)
        try:
            async with waiting():
                standing = await self._answered(question)
        except BaseException:
            self._withdraw(question)
            self._tell_decided(question, None, "withdrawn")
            raise
        if standing is None or standing.answer is None or standing.state in ("waiting", "expired"):
            self._withdraw(question)
            self._tell_decided(question, None, "expired")
            message = f"Nobody agreed to this call of '{question.tool}' in time"
            return refuse(call.request, Code.APPROVAL_NEEDED, message, "Do without it, or tell the user.")
        self._tell_decided(question, standing.answer, standing.state)
        if standing.state == "denied":
            return _denied(call, standing.answer)
        return Asked(question=standing.question)

    def _withdraw(self, question: Question) -> None:
        """Nobody waits any more; a question whose store fails just now ends with its time."""
        try:
            self.store.withdraw(question.id)
        except ToolkeepError as error:
            log.warning("a question was not withdrawn", extra={"error_code": error.code.value})

    def _tell_requested(self, question: Question) -> None:
        self._tell(
            ApprovalRequested(
                approval_id=question.id,
                tool_name=question.tool,
                agent=question.agent,
                danger=question.danger,
                expires_at=_utc(question.expires_at),
                timestamp=_utc(question.asked_at),
            )
        )

    def _tell_decided(self, question: Question, answer: Answer | None, verdict: str) -> None:
        self._tell(
            ApprovalDecided(
                approval_id=question.id,
                tool_name=question.tool,
                agent=question.agent,
                verdict=verdict,
                approver=answer.approver if answer else "",
                timestamp=_utc(self._clock()),
            )
        )

    def approve(self, call: PermittedCall, asked: Asked) -> ApprovedCall | Refusal:
        """The call with its yes, which is used up now."""
        question = asked.question
        if question is None:
            return ApprovedCall(permitted=call, approval=asked.approval)
        standing = self.store.standing(question.id)
        now = replace(question, definition_hash=call.tool.definition_hash, grant_hash=call.grant_hash)
        if standing is None or standing.answer is None or not self.store.use(now):
            message = "The approval does not fit the call any more, or was used before"
            return refuse(call.request, Code.APPROVAL_NEEDED, message, "Call again to be asked about anew.")
        answer = standing.answer
        if answer.reach == "rule":
            self._remember(question, answer)
        approval = Approval(approver=answer.approver, way=answer.way, id=question.id)
        return ApprovedCall(permitted=call, approval=approval)

    def _why(self, call: PermittedCall) -> tuple[str, ...]:
        definition, danger = call.tool.definition, call.tool.danger
        if call.tool.is_undeclared and call.request.is_direct:
            if call.tool.definition_hash not in self._warned:
                self._warned.add(call.tool.definition_hash)
                warn_undeclared(call.tool)
            danger = Danger.SAFE  # the host's own program knows what it calls (DEF-8)
        confirms = definition.requires_confirmation or call.request.options.requires_confirmation
        if danger is Danger.SAFE and not confirms and not call.asks:
            return ()
        reasons = (
            (danger.rank >= Danger.MEDIUM.rank, danger_reason(call.tool)),
            (danger is Danger.LOW and self._is_paranoid, "its danger is low, and the keep is paranoid"),
            (definition.requires_confirmation, "the tool always wants confirmation"),
            (call.request.options.requires_confirmation, "the caller wants confirmation"),
            (call.asks, "a policy wants a person to be asked"),
        )
        return tuple(reason for holds, reason in reasons if holds)

    def _earlier(self, call: PermittedCall, question: Question) -> Approval | None:
        """The yes that a person gave before, for this session or for good."""
        if not question.may_be_remembered or call.request.options.requires_confirmation:
            return None
        if (answer := self.store.session_answer(question)) is not None:
            return Approval(approver=answer.approver, way="session")
        rule = covering_rule(self.store.rules(), question)
        return None if rule is None else Approval(approver=rule.approver, way="rule", id=rule.id)

    def _question(self, call: PermittedCall, sealed: bytes, why: tuple[str, ...]) -> Question:
        request, definition = call.request, call.tool.definition
        now = self._clock()
        wait_s = self._wait_s or APPROVAL_WAIT_SECONDS
        shown = _shown(call)
        return Question(
            id=secrets.token_hex(8),
            call_id=request.id,
            agent=request.agent,
            conversation=request.conversation,
            session=request.session,
            tool=call.tool.name,
            version=call.tool.version,
            definition_hash=call.tool.definition_hash,
            argument_hash=hashlib.sha256(sealed).hexdigest(),
            grant_hash=call.grant_hash,
            danger=definition.danger_level.value,
            why=why,
            acts=2 if definition.danger_level is Danger.CRITICAL else 1,
            arguments=json.dumps(shown, ensure_ascii=False),
            touches=call.decision.touches,
            difference=difference(call, shown),
            policies=call.decision.policies,
            choices=arguments_of(
                definition,
                self._marks_of(call),
                call.checked.arguments,
                json.loads(sealed),
                shown,
                call.touched,
            ),
            asked_at=now,
            expires_at=now + wait_s,
        )

    def _marks_of(self, call: PermittedCall) -> ArgumentMarks:
        """Worked out once a definition: every call of a tool that asks needs it."""
        held = self._marks  # read once: other threads put others in its place
        wanted = call.tool.definition_hash
        if (marks := held.get(wanted)) is None:
            marks = ArgumentMarks(call.tool.definition.parameters)
            self._marks = {**(held if len(held) < _MARKS else {}), wanted: marks}
        return marks

    async def _answered(self, question: Question) -> Standing | None:
        """Where the question stands once somebody answered, or time is up."""
        asking: asyncio.Future[Answer | None] | None = None
        loop = asyncio.get_running_loop()
        until = loop.time() + question.expires_at - question.asked_at  # also where the clock is put back
        if self._approver is not None:
            asking = asyncio.ensure_future(self._from_approver(question))
        try:
            while True:
                is_over = self._clock() >= question.expires_at or loop.time() >= until
                if is_over or not self.store.is_waiting(question.id):
                    return self.store.standing(question.id)
                if asking is not None and asking.done():
                    # Cancelled by itself, not by the caller of the call: it has not agreed.
                    answer = _FAILED if asking.cancelled() else asking.result()
                    if answer is None:
                        if not self._wait_s:
                            return None
                        asking = None
                        continue
                    standing = self.store.answer(question.id, answer)
                    if standing.state != "waiting":
                        return standing
                    asking = asyncio.ensure_future(self._from_approver(standing.question))
                await _pause(asking)
        except AnswerRefused as refused:
            log.warning("an answer was not taken", extra={"reason": refused.reason})
            return None
        finally:
            if asking is not None and not asking.done():
                asking.cancel()

    async def _from_approver(self, question: Question) -> Answer | None:
        """What the host's approver says; one that fails has not agreed."""
        approver = self._approver
        if approver is None:
            return None
        try:
            # An ordinary function may well sit and wait for a key.
            is_async = any(map(inspect.iscoroutinefunction, (approver, type(approver).__call__)))
            said = approver(question) if is_async else await asyncio.to_thread(approver, question)
            if isinstance(said, Awaitable):
                said = await said
        except Exception:
            log.exception("the approver failed", extra={"tool_name": question.tool})
            return _FAILED
        if isinstance(said, bool):
            return Answer(verdict="approve" if said else "deny", approver=PROGRAM, way=PROGRAM)
        return said

    def _remember(self, question: Question, answer: Answer) -> None:
        now = self._clock()
        constraints = covered(question, answer)
        rule = Rule(
            id=f"rule-{question.id}",
            text=rule_text(question, constraints),
            constraints=constraints,
            agent=question.agent,
            tool=question.tool,
            definition_hash=question.definition_hash,
            approver=answer.approver,
            made_at=now,
            ends_at=now + min(max(1, answer.days), RULE_DAYS) * 86_400,
        )
        self.store.add_rule(rule)


async def _pause(asking: "asyncio.Future[Any] | None") -> None:
    if asking is None:
        await asyncio.sleep(APPROVAL_POLL_SECONDS)
    else:
        await asyncio.wait({asking}, timeout=APPROVAL_POLL_SECONDS)


def _shown(call: PermittedCall) -> dict[str, Any]:
    """The whole arguments; of a secret only how long it is."""
    secrecy = call.tool.arguments.secrecy
    arguments = call.checked.arguments
    shown = secrecy.replace(arguments, _length) if secrecy.has_secrets else arguments
    return shown if isinstance(shown, dict) else {"arguments": shown}


def _length(secret: Any) -> str:
    text = secret if isinstance(secret, str) else json.dumps(secret, ensure_ascii=False)
    return f"(secret, {len(text)} characters)"


def _nobody(call: PermittedCall, question: Question) -> Refusal:
    why = f"a person would have to agree ({question.why[0]}), and nobody can be asked"
    message = f"Tool '{question.tool}' was not called: {why}"
    hint = "Do without it, or tell the operator to open the keep with an approver or to set approvals.wait."
    return refuse(call.request, Code.APPROVAL_NEEDED, message, hint)


def _too_many(call: PermittedCall, question: Question) -> Refusal:
    why = f"too many calls of agent '{question.agent}' wait for a person already"
    message = f"Tool '{question.tool}' was not called: {why}"
    return refuse(call.request, Code.QUEUE_FULL, message, "Call again when some of them are answered.")


def _denied(call: PermittedCall, answer: Answer) -> Refusal:
    said = shorten(visible_lines(answer.reason).strip().removesuffix("."), MODEL_TEXT_CHARS // 2)
    message = f"A person said no to this call of '{call.tool.name}'" + (f": {said}" if said else "")
    refusal = refuse(
        call.request, Code.APPROVAL_DENIED, message, "Do not try again; find another way, or ask the user."
    )
    return replace(refusal, denied_by=answer.approver)
