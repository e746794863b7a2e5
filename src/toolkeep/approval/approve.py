"""Approval stage (human in the loop): the only place that makes an `ApprovedCall`.

Danger level, confirmation flags, paranoid mode and `@ask` policies decide whether a person is asked (POL-4).
An approval is bound to definition, arguments, agent and grant. It is consumed by one atomic update before the
call is recorded, so it cannot be replayed.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from toolkeep.approval.approval_store import Approvals, bound, covering_rule
from toolkeep.approval.approver import Approver, ApproverFailed, Prompt, Prompter
from toolkeep.approval.coverage import arguments_of, beginning
from toolkeep.approval.file_diff import difference
from toolkeep.approval.question import (
    BY_CLIENT,
    Answer,
    FlowLine,
    Question,
    Rule,
    Standing,
    covered,
)
from toolkeep.approval.question_text import rule_text
from toolkeep.authoring.declaration_advice import declaration
from toolkeep.calls import (
    Approval,
    ApprovedCall,
    PermittedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    Waited,
    refuse,
)
from toolkeep.definitions.argument_roles import ArgumentMarks
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, StoreUnavailable, ToolkeepError
from toolkeep.events import ApprovalDecided, ApprovalRequested, Event
from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.session_state import Origin
from toolkeep.flow.value_source import BodyOf, find_source
from toolkeep.host.log_lines import has_listener
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import escaped
from toolkeep.limits import APPROVAL_WAIT_SECONDS, MODEL_TEXT_CHARS, RULE_DAYS
from toolkeep.text.display import HIDDEN, shorten, visible_lines

ADVICE: Final = "; its author adds "
"""What parts the reason of a tool that declares nothing from the line that declares it."""


def danger_reason(tool: RegisteredTool) -> str:
    """Why approval is required, if the danger level is the reason."""
    if not tool.is_undeclared:
        return f"its danger is {tool.danger.value}"
    line = declaration(tool.definition, tool.runner)
    return f"the tool declares no side effects, so its danger is {tool.danger.value}{ADVICE}{line}"


def reasons_of_tool(tool: RegisteredTool, danger: Danger, *, is_paranoid: bool) -> Iterator[str]:
    """Why a person must be asked about a call of the tool, whatever its arguments."""
    if danger.rank >= Danger.MEDIUM.rank:
        yield danger_reason(tool)
    if danger is Danger.LOW and is_paranoid:
        yield "its danger is low, and approvals.paranoid is set"
    if tool.definition.requires_confirmation:
        yield "the tool requires confirmation"


def warn_undeclared(tool: RegisteredTool) -> None:
    """Warn the host once: it runs the tool without approval, but a call by a model would need one."""
    if not log.isEnabledFor(logging.WARNING):
        return
    message = (
        f"tool '{tool.name}' declares neither danger nor side effects, so calls by a model need approval"
    )
    text = f"{message}; add {declaration(tool.definition, tool.runner)}"
    named = {"tool_name": tool.name}
    record = log.makeRecord(log.name, logging.WARNING, __file__, 0, text, (), None, extra=named)
    log.handle(record)
    if not has_listener(log) and logging.lastResort is not None:
        logging.lastResort.handle(record)  # without a logging setup, so that a first script shows it


log = logging.getLogger("toolkeep.approval")

Waiting = Callable[[], contextlib.AbstractAsyncContextManager[None]]


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Asked(NamedTuple):
    """Result of the approval step: an approved question, an earlier approval, or none needed."""

    question: Question | None = None
    approval: Approval | None = None
    waited: Waited | None = None


class Ahead(NamedTuple):
    """A question that is in the store, and the approver that is being asked it."""

    question: Question
    prompt: Prompt | None = None


_OUTSIDE_TEXT: Final = "toolkeep.flow.outside_text"
"""The shipped policy that asks because the session has read text from outside."""
_NOT_NEEDED: Final = Asked()
_MARKS: Final = 1_000
"""Size of the cache of argument marks, by definition hash."""


def _no_body(digest: str) -> bytes:
    raise KeyError(digest)


class ApprovalGate:
    """Requests approvals from people and waits for their answers."""

    def __init__(
        self,
        store: Approvals,
        *,
        approver: Approver | None = None,
        is_paranoid: bool = False,
        wait_s: float = 0.0,
        clock: Callable[[], float] = time.time,
        tell: Callable[[Event], None] = lambda _: None,
        body_of: BodyOf = _no_body,
    ) -> None:
        """`wait_s` is how long a call waits for an answer from another process.

        Zero if none answers there. `body_of` gives the result of an earlier call by its hash.
        """
        self._body_of = body_of
        self.store = store
        self._marks: dict[str, ArgumentMarks] = {}
        self._is_paranoid = is_paranoid
        self._wait_s = wait_s
        self._prompter = None if approver is None else Prompter(approver, store)
        self._can_ask = approver is not None or wait_s > 0
        self._ahead: dict[str, Ahead] = {}
        """Questions that were put before their calls run, by call id."""
        self._response_key = secrets.token_bytes(16)
        self._clock = clock
        self._tell = tell
        self._warned: set[str] = set()
        """Tools whose missing declaration was reported, by definition hash."""

    async def ask(
        self, call: PermittedCall, sealed: bytes, waiting: Waiting = contextlib.nullcontext
    ) -> Asked | Refusal:
        """Get an approval if one is needed, or refuse. `waiting` is entered while a person is asked.

        `sealed` holds the canonical arguments with each secret replaced by its HMAC, so that the approval
        store learns no secret.
        """
        why = self._reasons(call)
        ahead = self._ahead.get(call.request.id)
        if not why and ahead is None:
            return _NOT_NEEDED
        question = self._question(call, sealed, why)
        holds = ahead is not None and await self._holds(ahead.question, question, call)
        # After the look at the store, which may fail: what is left here is withdrawn after the response.
        self._ahead.pop(call.request.id, None)
        if ahead is None or not holds:
            if ahead is not None:
                await self._give_up(ahead)
            if not why:
                return _NOT_NEEDED
            # Looked up before anything is queued: a covered call must not show up in anybody's inbox.
            if (earlier := await self._remembered_approval(call, question)) is not None:
                return Asked(approval=earlier)
            # Nobody could ever answer: refuse at once rather than let the call wait for its time limit.
            if not self._can_ask:
                return _no_approver(call, question)
            if not await self._put(question):
                return _too_many(call, question)
            ahead = Ahead(question)
        return await self._waited(call, ahead, waiting)

    async def _waited(self, call: PermittedCall, asked: Ahead, waiting: Waiting) -> Asked | Refusal:
        """Wait for the answer to a question that is in the store."""
        question = asked.question
        try:
            # Releases the tool's slot: calls that wait for people must not block the tool for other agents.
            async with waiting():
                standing = await self._answered(question, asked.prompt)
        except ApproverFailed:
            await self._withdraw(question)
            self._tell_decided(question, None, "withdrawn")
            return _not_asked(call, question, "asking for it failed", "Do without it, or tell the operator.")
        # Also on cancellation: an approval that comes later must not be waiting for a call that is gone.
        except BaseException:
            await self._withdraw(question)
            self._tell_decided(question, None, "withdrawn")
            raise
        answer = None if standing is None else standing.answer
        took_s = (answer.given_at if answer is not None else self._clock()) - question.asked_at
        took_ms = max(0, round(took_s * 1000))
        waited = Waited(id=question.id, asked_at=question.asked_at, waited_ms=took_ms)
        # No answer is a no (fail closed), also when the question was removed from the store.
        if standing is None or answer is None or standing.state in ("waiting", "expired"):
            await self._withdraw(question)
            self._tell_decided(question, None, "expired")
            message = f"This call to '{question.tool}' was not approved in time"
            hint = "Do without it, or tell the user: `toolkeep approvals list` shows the calls that wait."
            return replace(refuse(call.request, Code.APPROVAL_NEEDED, message, hint), waited=waited)
        self._tell_decided(question, answer, standing.state)
        if standing.state == "denied":
            return replace(_denied(call, answer), waited=waited)
        return Asked(question=standing.question, waited=waited)

    def may_ask(self, tool: RegisteredTool, *, confirms: bool) -> bool:
        """Whether a call may need a person whatever its arguments, policies apart."""
        return (
            confirms
            or tool.definition.requires_confirmation
            or tool.danger.rank >= Danger.MEDIUM.rank
            or (tool.danger is Danger.LOW and self._is_paranoid)
        )

    async def question_of(self, call: PermittedCall, sealed: bytes) -> Question | None:
        """What a person is yet to be asked about a call; None if nothing, or if nobody could be."""
        why = self._reasons(call) if self._can_ask else ()
        question = self._question(call, sealed, why) if why else None
        if question is None or await self._remembered_approval(call, question) is not None:
            return None
        ahead = self._ahead.get(call.request.id)
        is_put = ahead is not None and await self._holds(ahead.question, question, call)
        return None if is_put else question

    async def ask_ahead(self, questions: Sequence[Question]) -> None:
        """Put the questions of one response at once, before its calls run (FLO-7).

        Each call finds its own when it comes to `ask`, where it is decided again.
        """
        await self.forget_ahead(question.call_id for question in questions)
        placed = []
        for question in questions:
            if await self._put(question):
                self._ahead[question.call_id] = Ahead(question)
                placed.append(question)
        prompter = self._prompter
        # Another approver is called for each call in its turn: it may block on one key press.
        if placed and prompter is not None and prompter.takes_several:
            prompt = prompter.put_all(placed)
            self._ahead.update({question.call_id: Ahead(question, prompt) for question in placed})

    async def forget_ahead(self, call_ids: Iterable[str]) -> None:
        """Withdraw questions of calls that will not be made."""
        for call_id in call_ids:
            if (ahead := self._ahead.pop(call_id, None)) is not None:
                await self._give_up(ahead)

    async def _put(self, question: Question) -> bool:
        """Put a question; False if the agent's quota is used up."""
        try:
            is_put = await self.store.run(self.store.ask, question)
        except (StoreUnavailable, asyncio.CancelledError):  # whether it was put is not known
            await self._withdraw(question)
            raise
        if is_put:
            self._tell_requested(question)
        return is_put

    async def _give_up(self, ahead: Ahead) -> None:
        await self._withdraw(ahead.question)
        self._tell_decided(ahead.question, None, "withdrawn")
        if ahead.prompt is not None:
            ahead.prompt.leave(ahead.question, None)

    async def _holds(self, shown: Question, now: Question, call: PermittedCall) -> bool:
        """Whether the question that was put ahead is still that of the call.

        Not if there is a reason to ask now that the person was not shown. Text from outside that calls before
        it in the response brought is none: the model had chosen this call by then.
        """
        standing = await self.store.run(self.store.standing, shown.id)
        if standing is None or bound(shown) != bound(now):
            return False
        if standing.state == "denied":
            return True  # a no stays one, whatever asks now, or if nothing does
        by_policy = zip(call.decision.asked_by or (), call.asked_by, strict=True)
        excused = {reason for policy, reason in by_policy if policy == _OUTSIDE_TEXT}
        if not set(now.why) - excused <= set(shown.why):
            return False
        if standing.state == "approved":
            return self._clock() < shown.expires_at  # while earlier calls ran, it may have expired
        return bool(now.why)

    async def _withdraw(self, question: Question) -> None:
        """Withdraw a question that the caller no longer waits for.

        If the store fails, it expires by itself.
        """
        try:
            await self.store.run(self.store.withdraw, question.id)
        except ToolkeepError as error:
            log.warning("an approval request was not withdrawn", extra={"error_code": error.code.value})

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

    async def approve(self, call: PermittedCall, asked: Asked) -> ApprovedCall | Refusal:
        """Consume the approval and return the approved call."""
        question = asked.question
        if question is None:
            return ApprovedCall(permitted=call, approval=asked.approval)
        standing = await self.store.run(self.store.standing, question.id)
        # Bound to the tool and grant of *now*: a definition or policy set that changed during the wait voids
        # the yes.
        now = replace(question, definition_hash=call.tool.definition_hash, grant_hash=call.grant_hash)
        answer = None if standing is None else standing.answer
        if answer is None or not await self.store.run(self.store.use, now):
            message = "The approval no longer matches the call, or was already used"
            refusal = refuse(call.request, Code.APPROVAL_NEEDED, message, "Call again to request another.")
            return replace(refusal, waited=asked.waited)
        # After `use` succeeded: an approval that turned out void must not create a rule.
        if answer.reach == "rule":
            await self._remember(question, answer)
        approval = Approval(
            approver=answer.approver, way=answer.way, id=question.id, identity=answer.identity or UNSET
        )
        return ApprovedCall(permitted=call, approval=approval, waited=asked.waited)

    def _reasons(self, call: PermittedCall) -> tuple[str, ...]:
        """Reasons why a person must be asked; empty if none must."""
        definition, danger = call.tool.definition, call.tool.danger
        if call.tool.is_undeclared and call.request.is_direct:
            if call.tool.definition_hash not in self._warned:
                self._warned.add(call.tool.definition_hash)
                warn_undeclared(call.tool)
            danger = Danger.SAFE  # the host's own code chose the tool (DEF-8)
        confirms = definition.requires_confirmation or call.request.options.requires_confirmation
        if danger is Danger.MEDIUM and call.is_spared and not call.tool.is_undeclared:
            danger = Danger.SAFE
        if danger is Danger.SAFE and not confirms and not call.asks and not call.asked_by:
            return ()
        return (
            *call.asked_by,
            *reasons_of_tool(call.tool, danger, is_paranoid=self._is_paranoid),
            *(("the caller requires confirmation",) if call.request.options.requires_confirmation else ()),
            *call.asks,
        )

    async def _remembered_approval(self, call: PermittedCall, question: Question) -> Approval | None:
        """An earlier approval that covers the call: for this session, or as a rule."""
        # High danger and explicit confirmation are asked about every time; a remembered approval must not
        # skip them.
        if not question.may_be_remembered or call.request.options.requires_confirmation:
            return None
        answer = await self.store.run(self.store.session_answer, question)
        if answer is not None:
            return Approval(approver=answer.approver, way="session", identity=answer.identity or UNSET)
        rule = covering_rule(await self.store.run(self.store.rules), question)
        if rule is None:
            return None
        return Approval(approver=rule.approver, way="rule", id=rule.id, identity=rule.identity or UNSET)

    def _question(self, call: PermittedCall, sealed: bytes, why: tuple[str, ...]) -> Question:
        request, definition = call.request, call.tool.definition
        now = self._clock()
        wait_s = self._wait_s or APPROVAL_WAIT_SECONDS
        shown = _shown(call)
        return Question(
            # Unpredictable, so that no client can refer to questions that it was not shown.
            id=secrets.token_hex(8),
            response=self._response_id(request),
            call_id=request.id,
            agent=request.agent,
            conversation=request.conversation,
            session=request.session,
            tool=call.tool.name,
            version=call.tool.version,
            definition_hash=call.tool.definition_hash,
            # Over the sealed form: a plain hash of a short secret could be reversed by guessing.
            argument_hash=hashlib.sha256(sealed).hexdigest(),
            grant_hash=call.grant_hash,
            danger=definition.danger_level.value,
            why=why,
            acts=2 if definition.danger_level is Danger.CRITICAL else 1,
            arguments=json.dumps(shown, ensure_ascii=False),
            # From the audited decision, so the person sees exactly what the log says, secrets redacted.
            touches=call.decision.touches,
            difference=difference(call, shown),
            policies=call.decision.policies,
            flow=tuple(_flow_lines(call, self._body_of)) if call.asked_by else (),
            is_about_flow=bool(call.asked_by),
            choices=arguments_of(
                definition,
                self._marks_of(call),
                call.checked.arguments,
                json.loads(sealed),
                shown,
                call.touched,
            ),
            data_hash=request.data_hash,
            identity=request.identity,
            asked_at=now,
            expires_at=now + wait_s,
        )

    def _response_id(self, request: ToolCall) -> str:
        """The id by which questions of one response belong together.

        Callers name responses. Keyed, and with the agent: none gets its calls among those of another.
        """
        if not request.response:
            return ""
        named = canonical_bytes([request.agent, request.session, request.conversation, request.response])
        return hmac.new(self._response_key, named, hashlib.sha256).hexdigest()[:16]

    def _marks_of(self, call: PermittedCall) -> ArgumentMarks:
        """Argument marks, cached per definition."""
        held = self._marks  # read once: other threads swap the mapping
        wanted = call.tool.definition_hash
        if (marks := held.get(wanted)) is None:
            marks = ArgumentMarks(call.tool.definition.parameters)
            self._marks = {**(held if len(held) < _MARKS else {}), wanted: marks}
        return marks

    async def _answered(self, question: Question, prompt: Prompt | None) -> Standing | None:
        """Wait until the question is answered or expires.

        From the host's approver, from another process or on another server.
        """
        over: str | None = None
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def heard(question_id: str) -> None:
            if question_id in ("", question.id):
                loop.call_soon_threadsafe(changed.set)

        # Monotonic: setting the wall clock back must not extend it.
        until = loop.time() + question.expires_at - max(question.asked_at, self._clock())
        if prompt is None and self._prompter is not None and await self._is_waiting(question):
            prompt = self._prompter.put(question)
        asking = prompt.task if prompt is not None else None
        try:
            with self.store.watch(heard) as poll_s:
                while True:
                    changed.clear()  # before the look: what changes after it is heard
                    is_over = self._clock() >= question.expires_at or loop.time() >= until
                    if is_over or not await self._is_waiting(question):
                        standing = await self.store.run(self.store.standing, question.id)
                        over = _why_over(standing)
                        return standing
                    if asking is not None and asking.done():
                        # The approver cancelled itself: that is no approval (fail closed).
                        if asking.cancelled():
                            raise ApproverFailed
                        asking.result()
                        if not self._wait_s:
                            return None
                        asking = None
                        continue
                    await _wait(asking, changed, min(poll_s, until - loop.time()))
        finally:
            if prompt is not None:
                prompt.leave(question, over)

    async def _is_waiting(self, question: Question) -> bool:
        """Whether a question is unanswered, as far as is known: the call outlasts an outage of the store."""
        try:
            return await self.store.run(self.store.is_waiting, question.id)
        except StoreUnavailable:
            return True

    async def _remember(self, question: Question, answer: Answer) -> None:
        """Store the approval as a rule that covers later calls."""
        now = self._clock()
        constraints = covered(question, answer)
        rule = Rule(
            id=f"rule-{question.id}",
            text=rule_text(question, constraints),
            constraints=constraints,
            agent=question.agent,
            tool=question.tool,
            definition_hash=question.definition_hash,
            data_hash=question.data_hash,
            approver=answer.approver,
            identity=answer.identity,
            made_at=now,
            # Capped here too: an answer comes from a client that may send any number.
            ends_at=now + min(max(1, answer.days), RULE_DAYS) * 86_400,
        )
        await self.store.run(self.store.add_rule, rule)


def _why_over(standing: Standing | None) -> str:
    """Why an approver is no longer needed, for the person who was being asked."""
    if standing is not None and standing.state in ("approved", "denied"):
        return f"The call was {standing.state} elsewhere; your answer is no longer needed."
    return "The approval request has expired; the call was not made."


async def _wait(asking: "asyncio.Future[Any] | None", changed: asyncio.Event, most_s: float) -> None:
    heard = asyncio.ensure_future(changed.wait())
    try:
        awaited = {heard} if asking is None else {heard, asking}
        await asyncio.wait(awaited, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()


def _flow_lines(call: PermittedCall, body_of: BodyOf) -> Iterator[FlowLine]:
    """Each value that the call would act on, with its origin, and for those that nobody trusted named the
    result that brought it."""
    facts: FlowFacts | None = call.flow
    if facts is None or facts.session is None or call.tool.definition.sensitive:
        return
    secrecy = call.tool.arguments.secrecy
    shown = (
        secrecy.replace(call.checked.arguments, _length) if secrecy.has_secrets else call.checked.arguments
    )
    for origin in facts.origins:
        is_hidden = shown.get(origin.name) != call.checked.arguments.get(origin.name)
        parts = origin.untrusted or ((f"/{escaped(origin.name)}", shown.get(origin.name)),)
        word = min(origin.origins, key=_TRUST.index, default=Origin.USER)
        for pointer, part in parts:
            source = find_source(facts.session, part, body_of) if origin.untrusted and not is_hidden else None
            yield FlowLine(
                argument=pointer,
                role=origin.role.value,
                value=HIDDEN if is_hidden else beginning(part),
                origin=word.value if source is None or word is not Origin.UNKNOWN else Origin.OUTSIDE.value,
                source=f"{source.tool} {source.pointer}".rstrip() if source else "",
                excerpt=source.excerpt if source else "",
            )


_TRUST: Final = (Origin.UNKNOWN, Origin.OUTSIDE, Origin.SYSTEM, Origin.USER)
"""Worst first."""


def _shown(call: PermittedCall) -> dict[str, Any]:
    """All arguments as shown to a person; of a secret only its length."""
    secrecy = call.tool.arguments.secrecy
    arguments = call.checked.arguments
    shown = secrecy.replace(arguments, _length) if secrecy.has_secrets else arguments
    return shown if isinstance(shown, dict) else {"arguments": shown}


def _length(secret: Any) -> str:
    text = secret if isinstance(secret, str) else json.dumps(secret, ensure_ascii=False)
    return f"(secret, {len(text)} characters)"


def _no_approver(call: PermittedCall, question: Question) -> Refusal:
    hint = "Do without it, or tell the operator to open the keep with an approver or to set approvals.wait."
    return _not_asked(call, question, "no approver is available", hint)


def _not_asked(call: PermittedCall, question: Question, why: str, hint: str) -> Refusal:
    required = f"approval is required ({question.why[0]}), but {why}"
    return refuse(
        call.request, Code.APPROVAL_NEEDED, f"Tool '{question.tool}' was not called: {required}", hint
    )


def _too_many(call: PermittedCall, question: Question) -> Refusal:
    why = f"too many calls of agent '{question.agent}' are already waiting for approval"
    message = f"Tool '{question.tool}' was not called: {why}"
    return refuse(call.request, Code.QUEUE_FULL, message, "Call again when some of them are answered.")


def _denied(call: PermittedCall, answer: Answer) -> Refusal:
    """The approver's reason goes to the model, cut and escaped: it may quote text of the call."""
    said = shorten(visible_lines(answer.reason).strip().removesuffix("."), MODEL_TEXT_CHARS // 2)
    who = "The client declined" if answer.way == BY_CLIENT else "A person denied"
    message = f"{who} this call to '{call.tool.name}'" + (f': "{said}"' if said else "")
    refusal = refuse(
        call.request, Code.APPROVAL_DENIED, message, "Do not try again; find another way, or ask the user."
    )
    return replace(refusal, denied_by=answer.approver, denied_identity=answer.identity)
