"""Who is asked about a call, what becomes of the answer, and what a yes is good for (POL-4)."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from msgspec.structs import replace

from tests.approval.examples import BEGAN, RULE, Clock, question
from toolkeep import Code, InvokeResult, Keep, Secret, ToolContext, tool
from toolkeep.approval.approval_store import MemoryApprovals
from toolkeep.approval.approve import ApprovalGate
from toolkeep.approval.approver import Approver
from toolkeep.approval.coverage import Constraint
from toolkeep.approval.question import Answer, Question, Standing
from toolkeep.approval.question_text import preview_answer
from toolkeep.calls import Approval, PermittedCall, ToolResult
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.parameter_marks import Touches
from toolkeep.errors import StateUnusable, StoreUnavailable
from toolkeep.limits import APPROVAL_WAIT_SECONDS, APPROVALS_WAITING, RULE_DAYS, SESSION_SECONDS
from toolkeep.policy.policy_settings import Grant, PolicySettings, PolicySource
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("POL-4")

CALLER = {"session": "session-1"}


class Person:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.questions: list[Question] = []
        self._answers = list(answers)

    def __call__(self, question: Question) -> Any:
        self.questions.append(question)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(question) if callable(answer) else answer


def says(verdict: Any = "approve", **fields: Any) -> Answer:
    return Answer(**{"verdict": verdict, "approver": "ada", "way": "terminal", **fields})


class Runs:
    """A tool that notes its runs."""

    def __init__(self, **fields: Any) -> None:
        self.made: list[str] = []

        @tool(name="greet", description="Greet a person by name", **{"danger": "medium", **fields})
        async def greet(name: str = "Ada", times: int = 1) -> str:
            self.made.append(name)
            return f"Hello {name}" * times

        self.tool = greet


class Queue(MemoryApprovals):
    """Approvals that say when there is a question."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.was_asked = asyncio.Event()

    def ask(self, question: Question) -> bool:
        self.was_asked.set()
        return super().ask(question)


class Desk:
    """A keep whose approvals have a clock of their own."""

    def __init__(
        self,
        *tools: Any,
        approver: Approver | None = None,
        policy: PolicySettings | None = None,
        wait_s: float = 0.0,
    ) -> None:
        self.clock = Clock()
        self.record = MemoryRecord()
        self.store = self.record.approvals = Queue(self.clock)
        policy = policy or PolicySettings()
        self.keep = Keep(record=lambda: self.record, policy=policy)
        self.keep.register(*tools)
        self.keep._pipeline.asker = ApprovalGate(
            self.store,
            approver=approver,
            is_paranoid=policy.is_paranoid,
            wait_s=wait_s,
            clock=self.clock,
        )

    async def call_soon(self, arguments: Any = None, name: str = "greet", **options: Any) -> ToolResult:
        return await self.keep.call(name, {} if arguments is None else arguments, **options)

    def call(self, arguments: Any = None, name: str = "greet", **options: Any) -> ToolResult:
        return asyncio.run(self.call_soon(arguments, name, **options))


def asked(answer: Any, **fields: Any) -> tuple[ToolResult, Person, Runs]:
    """One call of a tool of medium danger, and what became of it."""
    person, runs = Person(answer), Runs(**fields)
    return Desk(runs.tool, approver=person).call(), person, runs


def message(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.errors[0].message


# --- who is asked when -------------------------------------------------------------------------------

ASKING = PolicySource(
    name="asking", text='@id("ask-first") @ask permit (principal, action == Action::"call", resource);'
)
REASONS = {
    "danger": "its danger is {danger}",
    "paranoid": "its danger is low, and approvals.paranoid is set",
    "always": "the tool requires confirmation",
    "confirm": "the caller requires confirmation",
    "policy": "policy 'ask-first' requires approval",
}


def reasons(danger: str, paranoid: bool, always: bool, confirm: bool, policy: bool) -> tuple[str, ...]:
    """Why a person is asked, as POL-4 has it."""
    holds = {
        "danger": danger in ("medium", "high", "critical"),
        "paranoid": paranoid and danger == "low",
        "always": always,
        "confirm": confirm,
        "policy": policy,
    }
    return tuple(REASONS[name].format(danger=danger) for name, is_so in holds.items() if is_so)


@pytest.mark.parametrize("danger", ["safe", "low", "medium", "high", "critical"])
@pytest.mark.parametrize(
    ("paranoid", "always", "confirm", "policy"), list(itertools.product([False, True], repeat=4))
)
def test_who_is_asked_follows_from_danger_paranoia_confirmation_and_policy(
    danger: str, paranoid: bool, always: bool, confirm: bool, policy: bool
) -> None:
    runs = Runs(danger=danger, requires_confirmation=always)
    person = Person(says(), says(typed_name="greet"))
    settings = PolicySettings(is_paranoid=paranoid, sources=(ASKING,) if policy else ())
    result = Desk(runs.tool, approver=person, policy=settings).call(confirm=confirm)
    expected = reasons(danger, paranoid, always, confirm, policy)
    acts = 0 if not expected else 2 if danger == "critical" else 1
    assert [question.why for question in person.questions] == [expected] * acts
    assert (result.ok, runs.made) == (True, ["Ada"])
    assert (result.approval is None) == (not expected)


@pytest.mark.parametrize("danger", ["safe", "low"])
def test_nobody_need_be_there_where_nobody_is_asked(danger: str) -> None:
    runs = Runs(danger=danger)
    assert Desk(runs.tool).call().ok


@pytest.mark.parametrize("danger", ["medium", "high", "critical"])
def test_where_nobody_can_be_asked_nothing_runs_and_nothing_waits(danger: str) -> None:
    runs = Runs(danger=danger)
    desk = Desk(runs.tool)
    result = desk.call()
    assert (result.code, runs.made, desk.store.waiting()) == (Code.APPROVAL_NEEDED, [], [])
    assert f"its danger is {danger}" in message(result)


# --- what is asked -----------------------------------------------------------------------------------


def test_a_question_shows_the_exact_call() -> None:
    person, runs = Person(True), Runs()
    desk = Desk(runs.tool, approver=person)
    options = {"agent": "operator", "conversation": "talk-1", "session": "session-1"}
    result = desk.call({"name": "Bob\u202e"}, **options)
    (question,) = person.questions
    assert result.decision is not None
    assert question == Question(
        id=question.id,
        call_id=result.call_id,
        agent="operator",
        conversation="talk-1",
        session="session-1",
        tool="greet",
        version="1.0.0",
        definition_hash=result.definition_hash,
        argument_hash=result.argument_hash,
        grant_hash=question.grant_hash,
        danger="medium",
        why=("its danger is medium",),
        arguments='{"name": "Bob\u202e", "times": 1}',
        policies=("toolkeep.call",),
        choices=question.choices,
        asked_at=BEGAN,
        expires_at=BEGAN + APPROVAL_WAIT_SECONDS,
    )
    assert preview_answer(question, says(reach="rule")).split("\n") == [
        "operator calls greet 1.0.0 with",
        '  name equal to "Bob\\u202e"',
        "  times equal to 1",
    ]
    assert question.grant_hash != ""


PASSWORD = "hunter2-S3CRET"


@tool(danger="medium")
async def log_in(user: str, password: Annotated[str, Secret()], pin: Annotated[int, Secret()] = 0) -> int:
    """Log in."""
    return len(password)


@tool(danger="medium", sensitive=True)
async def whisper(text: str) -> int:
    """Whisper to somebody."""
    return len(text)


def test_of_a_secret_only_its_length_is_shown() -> None:
    person = Person(True)
    desk = Desk(log_in, whisper, approver=person)
    assert desk.call({"user": "ada", "password": PASSWORD, "pin": 4711}, name="log_in").ok
    assert desk.call({"text": PASSWORD}, name="whisper").ok
    first, second = person.questions
    assert first.argument_data == {
        "user": "ada",
        "password": "(secret, 14 characters)",
        "pin": "(secret, 4 characters)",
    }
    assert PASSWORD not in second.arguments
    assert [one.fixed for one in (*first.choices, *second.choices)] == [
        "",
        "a credential",
        "a credential",
        "a credential",
    ]
    assert PASSWORD not in repr((first, second))


def test_no_secret_of_an_asked_call_is_written_to_disk(tmp_path: Path) -> None:
    with Keep(record=lambda: FileRecord(tmp_path / "state"), approver=Person(True)) as keep:
        keep.register(log_in, whisper)
        for name, arguments in {
            "log_in": {"user": "a", "password": PASSWORD},
            "whisper": {"text": PASSWORD},
        }.items():
            assert asyncio.run(keep.call(name, arguments)).ok
        contents = {
            path.name: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()
        }
    assert {"approvals.db", "approvals.db-wal"} <= set(contents)
    assert [name for name, content in contents.items() if PASSWORD.encode() in content] == []


# --- answers -----------------------------------------------------------------------------------------


async def later(answer: Any) -> Any:
    await asyncio.sleep(0)
    return answer


YESES: dict[str, tuple[Any, Approval]] = {
    "True": (True, Approval(approver="program", way="program")),
    "True, later": (lambda _: later(True), Approval(approver="program", way="program")),
    "an answer": (says(), Approval(approver="ada", way="terminal")),
    "an answer, later": (lambda _: later(says()), Approval(approver="ada", way="terminal")),
}


@pytest.mark.parametrize("case", YESES)
def test_a_yes_lets_the_call_run_and_the_result_says_who_agreed(case: str) -> None:
    answer, approval = YESES[case]
    result, person, runs = asked(answer)
    assert (result.ok, runs.made) == (True, ["Ada"])
    assert result.approval == Approval(
        approver=approval.approver, way=approval.way, id=person.questions[0].id
    )


def raises(question: Question) -> Any:
    raise RuntimeError("the terminal is gone")


async def raises_later(question: Question) -> Any:
    raise RuntimeError("the terminal is gone")


NOT_ASKED = (
    "Tool 'greet' was not called: approval is required (its danger is medium), but asking for it failed"
)

NOES: dict[str, tuple[Any, Code, str]] = {
    "False": (False, Code.APPROVAL_DENIED, "A person denied this call to 'greet'"),
    "False, later": (lambda _: later(False), Code.APPROVAL_DENIED, "A person denied this call to 'greet'"),
    "an answer": (says("deny", reason="not today."), Code.APPROVAL_DENIED, 'A person denied this call to \'greet\': "not today"'),
    "raises": (raises, Code.APPROVAL_NEEDED, NOT_ASKED),
    "raises StopIteration": (lambda _: next(iter(())), Code.APPROVAL_NEEDED, NOT_ASKED),
    "raises, later": (raises_later, Code.APPROVAL_NEEDED, NOT_ASKED),
    "None": (None, Code.APPROVAL_NEEDED, "This call to 'greet' was not approved in time"),
    "None, later": (lambda _: later(None), Code.APPROVAL_NEEDED, "This call to 'greet' was not approved in time"),
    "the calling agent": (says(approver="local"), Code.APPROVAL_NEEDED, "This call to 'greet' was not approved in time"),
    "a session that there is not": (says(reach="session"), Code.APPROVAL_NEEDED, "This call to 'greet' was not approved in time"),
    "text": ("yes", Code.APPROVAL_NEEDED, NOT_ASKED),
    "a number": (1, Code.APPROVAL_NEEDED, NOT_ASKED),
}  # fmt: skip


@pytest.mark.parametrize("case", NOES)
def test_anything_but_a_yes_is_a_no(case: str) -> None:
    answer, code, said = NOES[case]
    person, runs = Person(answer), Runs()
    desk = Desk(runs.tool, approver=person)
    result = desk.call()
    assert (result.status, result.code, message(result), runs.made) == ("error", code, said, [])
    assert (len(person.questions), result.approval) == (1, None)
    standing = desk.store.standing(person.questions[0].id)
    assert standing is not None
    assert standing.state == ("denied" if code is Code.APPROVAL_DENIED else "withdrawn")


def test_an_approver_that_is_cancelled_by_itself_has_not_agreed() -> None:
    async def gives_up(question: Question) -> Any:
        raise asyncio.CancelledError

    result, _, runs = asked(gives_up)
    assert (result.code, message(result), runs.made) == (Code.APPROVAL_NEEDED, NOT_ASKED, [])


def test_an_object_that_answers_asynchronously_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asynchronous:
        async def __call__(self, question: Question) -> Any:
            return True

    monkeypatch.setattr(asyncio, "to_thread", None)  # cancelled there, it would leave a coroutine behind
    runs = Runs()
    desk = Desk(runs.tool, approver=Asynchronous())
    assert (desk.call().status, runs.made) == ("ok", ["Ada"])


def test_an_approver_that_hangs_is_ended_when_the_question_expires() -> None:
    ended: list[str] = []

    async def hang(question: Question) -> Any:
        desk.clock.now = question.expires_at
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def scenario() -> ToolResult:
        result = await desk.call_soon()
        await asyncio.sleep(0)
        assert ended == ["ended"]  # now, and not with the loop
        return result

    runs = Runs()
    desk = Desk(runs.tool, approver=hang)
    assert (asyncio.run(scenario()).code, runs.made) == (Code.APPROVAL_NEEDED, [])
    assert desk.store.waiting() == []


def test_a_yes_that_comes_too_late_is_none() -> None:
    async def slow(question: Question) -> Any:
        desk.clock.now = question.expires_at
        return True

    runs = Runs()
    desk = Desk(runs.tool, approver=slow)
    assert (desk.call().code, runs.made) == (Code.APPROVAL_NEEDED, [])


def test_the_reason_of_a_no_reaches_the_model_whole_and_with_nothing_hidden() -> None:
    result, _, _ = asked(says("deny", reason="use /tmp\u202e\x1b[2J\u200b instead."))
    assert message(result).endswith(': "use /tmp\\u202e\\u001b[2J\\u200b instead"')
    assert not {"\u202e", "\x1b", "\u200b"} & set(result.text)
    assert "Do not try again" in result.text


def test_a_long_reason_is_cut() -> None:
    result, _, _ = asked(says("deny", reason="x" * 100_000))
    assert message(result).endswith("x" * 599 + '…"')
    assert len(result.text) <= 1200


def test_a_reason_is_cut_as_it_is_shown() -> None:
    """What is hidden takes six characters each once it can be seen."""
    result, _, _ = asked(says("deny", reason="\u202e" * 500))
    assert len(message(result)) < 700
    assert len(result.text) <= 1200


# --- great danger ------------------------------------------------------------------------------------


@pytest.mark.parametrize("danger", ["high", "critical"])
def test_great_danger_is_asked_about_every_time(danger: str) -> None:
    person = Person(lambda q: says(typed_name="greet" if q.wants_name else ""))
    runs = Runs(danger=danger)
    desk = Desk(runs.tool, approver=person)
    acts = 2 if danger == "critical" else 1
    for number in (1, 2, 3):
        assert desk.call(**CALLER).ok
        assert len(person.questions) == acts * number
    assert len(runs.made) == 3


@pytest.mark.parametrize("danger", ["high", "critical"])
@pytest.mark.parametrize("reach", ["session", "rule"])
def test_great_danger_is_never_agreed_to_for_more_than_one_call(danger: str, reach: str) -> None:
    person, runs = Person(says(reach=reach, typed_name="greet")), Runs(danger=danger)
    desk = Desk(runs.tool, approver=person)
    result = desk.call(**CALLER)
    assert (result.code, runs.made, desk.store.rules()) == (Code.APPROVAL_NEEDED, [], [])


@pytest.mark.parametrize("second", [True, says(), says(typed_name="Greet"), None, False])
def test_a_critical_call_runs_only_once_its_name_was_typed(second: Any) -> None:
    person, runs = Person(True, second), Runs(danger="critical")
    result = Desk(runs.tool, approver=person).call()
    assert (result.ok, runs.made) == (False, [])
    assert [question.wants_name for question in person.questions] == [False, True]


def test_the_second_act_of_a_critical_call_types_the_tools_name() -> None:
    person, runs = Person(True, says(typed_name="greet")), Runs(danger="critical")
    result = Desk(runs.tool, approver=person).call()
    assert (result.ok, runs.made) == (True, ["Ada"])
    assert [(q.acts, q.acts_done) for q in person.questions] == [(2, 0), (2, 1)]
    assert len({question.id for question in person.questions}) == 1


def test_one_answer_with_the_name_is_not_two_acts() -> None:
    person, runs = Person(says(typed_name="greet"), None), Runs(danger="critical")
    assert not Desk(runs.tool, approver=person).call().ok
    assert (len(person.questions), runs.made) == (2, [])


@pytest.mark.parametrize("danger", ["high", "critical"])
def test_great_danger_is_asked_about_whatever_rule_there_is(danger: str) -> None:
    """Nobody can give such a rule; one that came into the store some other way covers nothing."""
    runs, person = Runs(danger=danger), Person(False)
    desk = Desk(runs.tool, approver=person)
    registered = desk.keep.get("greet")
    wide = tuple(Constraint(name=name, kind="any") for name in ("name", "times"))
    rule = replace(RULE, agent="local", constraints=wide, definition_hash=registered.definition_hash)
    desk.store.add_rule(rule)
    assert (desk.call().code, len(person.questions), runs.made) == (Code.APPROVAL_DENIED, 1, [])


def test_the_first_of_two_acts_alone_is_no_answer_in_time() -> None:
    async def scenario() -> ToolResult:
        call = asyncio.create_task(desk.call_soon())
        question = await waiting_question(desk)
        desk.store.answer(question.id, says())
        desk.clock.now = question.expires_at
        result = await call
        standing = desk.store.standing(question.id)
        assert standing is not None
        assert standing.state == "expired"
        return result

    runs = Runs(danger="critical")
    desk = Desk(runs.tool, wait_s=60)
    result = asyncio.run(scenario())
    assert (result.code, runs.made) == (Code.APPROVAL_NEEDED, [])
    assert message(result) == "This call to 'greet' was not approved in time"


# --- answers from elsewhere --------------------------------------------------------------------------


async def waiting_question(desk: Desk) -> Question:
    """The question, once it is in the queue."""
    await desk.store.was_asked.wait()
    return desk.store.waiting()[0].question


def test_a_call_waits_for_an_answer_from_elsewhere() -> None:
    async def scenario() -> ToolResult:
        call = asyncio.create_task(desk.call_soon())
        question = await waiting_question(desk)
        assert question.expires_at == BEGAN + 60
        desk.store.answer(question.id, says())
        return await call

    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)
    result = asyncio.run(scenario())
    assert (result.ok, runs.made) == (True, ["Ada"])


def test_a_call_that_waits_looks_only_whether_it_still_does() -> None:
    """The whole question has up to some megabytes of arguments, and it is looked at five times a second."""

    class Watched(Queue):
        looks = 0
        whole = 0

        def is_waiting(self, question_id: str) -> bool:
            self.looks += 1
            if self.looks > 2:
                self.answer(question_id, says())
            return super().is_waiting(question_id)

        def standing(self, question_id: str) -> Standing | None:
            self.whole += self.looks <= 2
            return super().standing(question_id)

    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)
    store = desk.store = desk.keep._pipeline.asker.store = Watched(desk.clock)
    assert desk.call().ok
    assert (store.looks, store.whole) == (3, 0)


def test_a_call_goes_on_waiting_while_the_store_is_away() -> None:
    class Away(Queue):
        looks = 0

        def is_waiting(self, question_id: str) -> bool:
            self.looks += 1
            if self.looks <= 2:
                raise StoreUnavailable("postgresql://db", "is away", hint="wait")
            self.answer(question_id, says())
            return super().is_waiting(question_id)

    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)
    desk.store = desk.keep._pipeline.asker.store = Away(desk.clock)
    assert desk.call().ok


def test_an_agent_with_too_many_questions_is_told_so_and_others_are_asked_about() -> None:
    runs, person = Runs(), Person(says())
    desk = Desk(runs.tool, approver=person)
    desk.keep.declare_agent("another")
    for number in range(APPROVALS_WAITING):
        desk.store.ask(question(id=str(number), agent="local"))
    result = desk.call({"name": "Ada"}, agent="local")
    assert (result.code, runs.made, person.questions) == (Code.QUEUE_FULL, [], [])
    assert message(result) == (
        "Tool 'greet' was not called: too many calls of agent 'local' are already waiting for approval"
    )
    assert desk.call({"name": "Emma"}, agent="another").ok
    assert runs.made == ["Emma"]


def test_no_answer_from_elsewhere_in_time_is_a_no() -> None:
    async def scenario() -> ToolResult:
        call = asyncio.create_task(desk.call_soon())
        question = await waiting_question(desk)
        desk.clock.now = question.expires_at
        return await call

    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)
    result = asyncio.run(scenario())
    assert (result.code, runs.made, desk.store.waiting()) == (Code.APPROVAL_NEEDED, [], [])


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_an_answer_from_elsewhere_ends_the_wait_for_the_approver(verdict: str) -> None:
    ended: list[str] = []

    async def hang(question: Question) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    async def scenario() -> ToolResult:
        call = asyncio.create_task(desk.call_soon())
        question = await waiting_question(desk)
        desk.store.answer(question.id, says(verdict))
        result = await call
        await asyncio.sleep(0)
        assert ended == ["ended"]  # now, and not with the loop
        return result

    runs = Runs()
    desk = Desk(runs.tool, approver=hang, wait_s=60)
    result = asyncio.run(scenario())
    assert (result.ok, runs.made) == ((True, ["Ada"]) if verdict == "approve" else (False, []))


def test_an_approver_without_an_answer_leaves_it_to_others() -> None:
    async def scenario() -> ToolResult:
        call = asyncio.create_task(desk.call_soon())
        question = await waiting_question(desk)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not call.done()
        desk.store.answer(question.id, says())
        return await call

    runs = Runs()
    desk = Desk(runs.tool, approver=Person(None), wait_s=60)
    assert asyncio.run(scenario()).ok


def test_a_withdrawn_question_is_a_no() -> None:
    async def scenario() -> ToolResult:
        call = asyncio.create_task(desk.call_soon())
        question = await waiting_question(desk)
        desk.store.withdraw(question.id)
        return await call

    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)
    assert (asyncio.run(scenario()).code, runs.made) == (Code.APPROVAL_NEEDED, [])


def test_giving_up_while_a_person_is_asked_withdraws_the_question() -> None:
    async def hang(question: Question) -> Any:
        await asyncio.Event().wait()

    async def scenario() -> None:
        call = asyncio.create_task(desk.call_soon())
        await waiting_question(desk)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    runs = Runs()
    desk = Desk(runs.tool, approver=hang)
    asyncio.run(scenario())
    assert (desk.store.waiting(), runs.made) == ([], [])
    records = [entry.record for entry in desk.record.log.entries]
    assert records[-1]["codes"] == [Code.CANCELLED.value]


METHODS = (
    "ask",
    "answer",
    "is_waiting",
    "standing",
    "use",
    "withdraw",
    "session_answer",
    "rules",
    "add_rule",
)


class Slow(Queue):
    """Approvals that wait for a network, so that no event loop may call them itself."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.thread = ThreadPoolExecutor(1)
        self.may_ask = threading.Event()
        self.may_ask.set()
        self.called: set[str] = set()
        for name in METHODS:
            setattr(self, name, self._slow(getattr(self, name)))

    def _slow(self, method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.called.add(method.__name__)
            assert threading.current_thread() is not threading.main_thread()
            if method.__name__ == "ask":
                self.loop.call_soon_threadsafe(self.was_asked.set)
                assert self.may_ask.wait(20)
            return method(*arguments)

        return call

    async def run(self, method: Callable[..., Any], *arguments: object) -> Any:
        self.loop = asyncio.get_running_loop()
        return await self.loop.run_in_executor(self.thread, method, *arguments)


def slow_desk(runs: Runs, approver: Any) -> tuple[Desk, Slow]:
    desk = Desk(runs.tool, approver=approver)
    store = Slow(desk.clock)
    desk.keep._pipeline.asker = ApprovalGate(store, approver=approver, wait_s=60, clock=desk.clock)
    return desk, store


def test_a_slow_store_does_not_block_the_event_loop() -> None:
    runs = Runs()
    desk, store = slow_desk(runs, lambda _: says(reach="rule"))
    assert asyncio.run(desk.call_soon()).ok
    desk, other = slow_desk(runs, lambda _: says(reach="session"))  # without a session it does not count
    assert not asyncio.run(desk.call_soon()).ok
    assert (store.called | other.called, len(runs.made)) == (set(METHODS), 1)


def test_giving_up_while_a_question_is_put_withdraws_it() -> None:
    async def scenario() -> None:
        call = asyncio.create_task(desk.call_soon())
        await store.was_asked.wait()
        call.cancel()
        await asyncio.sleep(0)
        store.may_ask.set()
        with pytest.raises(asyncio.CancelledError):
            await call

    runs = Runs()
    desk, store = slow_desk(runs, lambda _: says())
    store.may_ask.clear()
    asyncio.run(scenario())
    assert store.thread.submit(store.waiting).result() == []
    assert runs.made == []


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps as far as a test says."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


def test_a_clock_that_is_put_back_lets_nobody_wait_for_longer() -> None:
    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)

    async def scenario() -> ToolResult:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        call = asyncio.create_task(desk.call_soon())
        await waiting_question(desk)
        desk.clock.now -= 86_400
        loop.skipped_s += 60
        return await call

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        result = runner.run(scenario())
    assert (result.code, runs.made, desk.store.waiting()) == (Code.APPROVAL_NEEDED, [], [])


def test_giving_up_stays_giving_up_where_the_question_cannot_be_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object, question_id: str) -> None:
        raise StateUnusable("approvals.db", f"cannot be used: {question_id}", hint="none")

    async def scenario() -> None:
        call = asyncio.create_task(desk.call_soon())
        await waiting_question(desk)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    monkeypatch.setattr(MemoryApprovals, "withdraw", fail)
    runs = Runs()
    desk = Desk(runs.tool, wait_s=60)
    asyncio.run(scenario())
    assert runs.made == []


def test_waiting_for_a_person_is_not_execution_time() -> None:
    async def slow(question: Question) -> Any:
        loop.skipped_s += 100
        await asyncio.sleep(0)
        return True

    runs = Runs(constraints={"max_execution_time": 1})
    desk = Desk(runs.tool, approver=slow)
    loop = SkippingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(desk.call_soon())
    assert (result.ok, result.code, runs.made) == (True, None, ["Ada"])


# --- after the answer --------------------------------------------------------------------------------

FORBID = '@id("closed") forbid (principal, action == Action::"call", resource);'
PERMIT = '@id("open") permit (principal, action == Action::"call", resource);'


def replaced(keep: Keep) -> None:
    keep.unregister("greet")
    keep.register(tool(name="greet", description="Greet another one", danger="medium")(Runs().tool.function))


def newer(keep: Keep) -> None:
    other = tool(name="greet", description="Greet a person by name", danger="medium", version="2.0.0")
    keep.register(other(Runs().tool.function))


CHANGES: dict[str, tuple[Callable[[Keep], Any], Code]] = {
    "definition replaced": (replaced, Code.TOUCHED_CHANGED),
    "newer version answers": (newer, Code.TOUCHED_CHANGED),
    "tool disabled": (lambda keep: keep.disable("greet"), Code.TOOL_DISABLED),
    "tool unregistered": (lambda keep: keep.unregister("greet"), Code.UNKNOWN_TOOL),
    "policies forbid": (lambda keep: keep.use_policies(PERMIT, FORBID), Code.NOT_PERMITTED),
    "other policies that permit": (lambda keep: keep.use_policies(PERMIT), Code.APPROVAL_NEEDED),
    "grant smaller": (lambda keep: keep.declare_agent("local"), Code.APPROVAL_NEEDED),
    "grant larger": (
        lambda keep: keep.declare_agent("local", capabilities=["fs.read:.", "fs.write:."]),
        Code.APPROVAL_NEEDED,
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_changed_while_a_person_was_asked_refuses_the_call(case: str) -> None:
    change, code = CHANGES[case]

    def agree(question: Question) -> bool:
        change(desk.keep)
        return True

    runs = Runs()
    desk = Desk(runs.tool, approver=agree)
    result = desk.call()
    assert (result.code, runs.made) == (code, [])


def test_a_yes_that_somebody_else_used_is_no_longer_good() -> None:
    def agree(question: Question) -> Any:
        desk.store.answer(question.id, says())
        assert desk.store.use(question)
        return None

    runs = Runs()
    desk = Desk(runs.tool, approver=agree)
    assert (desk.call().code, runs.made) == (Code.APPROVAL_NEEDED, [])


def test_a_yes_is_bound_to_the_definition_that_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another one slipped in after the call was looked at again."""

    async def slipped_in(permitted: PermittedCall, _: object) -> PermittedCall:
        other = replace(permitted.tool, definition_hash="another")
        checked = replace(permitted.checked, registered=other)
        return replace(permitted, tool=other, checked=checked)

    runs = Runs()
    desk = Desk(runs.tool, approver=Person(True))
    monkeypatch.setattr(desk.keep._pipeline, "_still_permitted", slipped_in)
    assert (desk.call().code, runs.made) == (Code.APPROVAL_NEEDED, [])


def test_a_yes_is_used_up_before_the_tool_runs() -> None:
    left: list[bool] = []

    @tool(danger="medium")
    async def look() -> None:
        """See whether the yes could be used once more."""
        left.append(desk.store.use(person.questions[0]))

    person = Person(True)
    desk = Desk(look, approver=person)
    assert desk.call(name="look").ok
    assert left == [False]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    for name in ("inside", "other"):
        (project / name).mkdir(parents=True)
        (project / name / "a.txt").write_text(name)
    (project / "link").symlink_to("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text("outside")
    monkeypatch.chdir(project)
    return project


def relink(target: str) -> None:
    Path("link").unlink()
    Path("link").symlink_to(target)


def rewrite() -> None:
    Path("inside/a.txt").unlink()
    Path("inside/a.txt").write_text("another file")


SWAPS: dict[str, Callable[[], None]] = {
    "link to another folder that is granted": lambda: relink("other"),
    "link out of what is granted": lambda: relink("../outside"),
    "link that leads nowhere": lambda: relink("nowhere"),
    "file replaced": rewrite,
    "file gone": lambda: Path("inside/a.txt").unlink(),
}


WRITE = {"path": "link/a.txt", "content": "new"}


def writing_desk(written: list[str], approver: Approver) -> Desk:
    """A desk with a tool that notes what it would write."""

    @tool(danger="medium", side_effects=["FsWrite"], capabilities=["fs.write:."])
    async def save(path: Annotated[str, Touches("fs.write")], content: str) -> None:
        """Write a file."""
        written.append(path)

    held = Grant(capabilities=(Capability("fs.write", "."),))
    return Desk(save, approver=approver, policy=PolicySettings(agents={"local": held}))


@pytest.mark.parametrize("case", SWAPS)
def test_a_place_that_was_swapped_while_a_person_was_asked_is_not_touched(case: str, project: Path) -> None:
    def agree(question: Question) -> bool:
        SWAPS[case]()
        return True

    written: list[str] = []
    result = writing_desk(written, agree).call(WRITE, name="save")
    assert (result.code, written) == (Code.TOUCHED_CHANGED, [])


@pytest.mark.parametrize("case", SWAPS)
def test_a_place_that_was_swapped_after_the_yes_was_used_is_not_touched(
    case: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    desk = writing_desk(written, Person(True))
    intent = desk.keep._pipeline.recorder.intent

    async def swapped(*args: Any, **options: Any) -> Any:
        SWAPS[case]()
        return await intent(*args, **options)

    monkeypatch.setattr(desk.keep._pipeline.recorder, "intent", swapped)
    result = desk.call(WRITE, name="save")
    assert (result.code, written) == (Code.TOUCHED_CHANGED, [])


def test_a_place_that_leads_elsewhere_the_second_time_is_not_touched(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was swapped just after it was found unchanged."""

    def agree(question: Question) -> bool:
        relink("other")
        return True

    written: list[str] = []
    desk = writing_desk(written, agree)
    monkeypatch.setattr(desk.keep._pipeline.authorizer, "unchanged", lambda _: None)
    result = desk.call(WRITE, name="save")
    assert (result.code, written) == (Code.TOUCHED_CHANGED, [])


def test_a_place_that_stayed_the_same_is_touched(project: Path) -> None:
    @tool(danger="medium", side_effects=["FsWrite"], capabilities=["fs.write:."])
    def save(path: Annotated[str, Touches("fs.write")], content: str) -> None:
        """Write a file."""
        Path(path).write_text(content)

    person = Person(True)
    held = Grant(capabilities=(Capability("fs.write", "."),))
    desk = Desk(save, approver=person, policy=PolicySettings(agents={"local": held}))
    assert desk.call({"path": "link/a.txt", "content": "new"}, name="save").ok
    assert (project / "inside" / "a.txt").read_text() == "new"
    (question,) = person.questions
    assert question.touches == (f"fs.write:{project}/inside/a.txt",)
    assert [line for line in question.difference.split("\n")[3:] if line[0] in "+-"] == ["-inside", "+new"]


# --- for the session ---------------------------------------------------------------------------------


def session_desk(**fields: Any) -> tuple[Desk, Person, Runs]:
    """A desk after a yes for session-1 of the agent `local`."""
    person, runs = Person(says(reach="session"), False), Runs(**fields)
    agents = {"planner": Grant(capabilities=(Capability("fs.read", "."),))}
    desk = Desk(runs.tool, approver=person, policy=PolicySettings(agents=agents))
    assert desk.call(**CALLER).ok
    return desk, person, runs


def test_a_yes_for_the_session_covers_the_same_call_in_it_and_no_other() -> None:
    desk, person, runs = session_desk()
    result = desk.call({"name": "Ada"}, **CALLER)
    assert result.approval == Approval(approver="ada", way="session")
    assert (len(person.questions), runs.made) == (1, ["Ada", "Ada"])
    assert desk.call({"name": "Bob"}, **CALLER).code is Code.APPROVAL_DENIED
    assert (len(person.questions), runs.made) == (2, ["Ada", "Ada"])


def test_a_yes_for_the_session_covers_what_the_person_freed() -> None:
    person, runs = Person(says(reach="session", arguments={"name": "any", "times": "max:2"}), False), Runs()
    desk = Desk(runs.tool, approver=person)
    assert desk.call(**CALLER).ok
    assert desk.call({"name": "Bob", "times": 2}, **CALLER).ok
    assert desk.call({"name": "Bob", "times": 3}, **CALLER).code is Code.APPROVAL_DENIED


def test_several_yeses_for_one_session_hold_side_by_side() -> None:
    person, runs = Person(says(reach="session")), Runs()
    desk = Desk(runs.tool, approver=person)
    for name in ("Ada", "Bob", "Ada", "Bob"):
        assert desk.call({"name": name}, **CALLER).ok
    assert len(person.questions) == 2


@pytest.mark.parametrize("arguments", [{"nobody": "any"}, {"name": "max:1"}, {"name": "often"}])
@pytest.mark.parametrize("reach", ["session", "rule"])
def test_a_yes_with_a_choice_that_is_not_possible_does_not_count(reach: str, arguments: Any) -> None:
    person, runs = Person(says(reach=reach, arguments=arguments)), Runs()
    desk = Desk(runs.tool, approver=person)
    assert (desk.call(**CALLER).code, runs.made, desk.store.rules()) == (Code.APPROVAL_NEEDED, [], [])


SESSIONS: dict[str, tuple[dict[str, Any], Callable[[Keep], Any]]] = {
    "another session": ({"session": "session-2"}, lambda _: None),
    "no session": ({"session": ""}, lambda _: None),
    "another agent": ({"agent": "planner"}, lambda _: None),
    "confirmation asked for": ({"confirm": True}, lambda _: None),
    "another definition": ({}, replaced),
    "a newer version": ({}, newer),
    "another grant": ({}, lambda keep: keep.declare_agent("local", capabilities=["fs.read:."])),
    "other policies": ({}, lambda keep: keep.use_policies(PERMIT)),
}


@pytest.mark.parametrize("case", SESSIONS)
def test_a_yes_for_the_session_covers_nothing_else(case: str) -> None:
    desk, person, runs = session_desk()
    options, change = SESSIONS[case]
    change(desk.keep)
    result = desk.call(**{**CALLER, **options})
    assert (result.code, len(person.questions), runs.made) == (Code.APPROVAL_DENIED, 2, ["Ada"])


def test_a_call_that_a_session_covers_is_still_authorized() -> None:
    desk, _, runs = session_desk()
    desk.keep.use_policies(PERMIT, FORBID)
    assert (desk.call(**CALLER).code, runs.made) == (Code.NOT_PERMITTED, ["Ada"])


def test_a_yes_for_the_session_ends_with_time() -> None:
    """The same name of a session may come again next year."""
    desk, person, runs = session_desk()
    desk.clock.now = BEGAN + SESSION_SECONDS - 1
    assert desk.call(**CALLER).ok
    desk.clock.now = BEGAN + SESSION_SECONDS
    assert desk.call(**CALLER).code is Code.APPROVAL_DENIED
    assert (len(person.questions), len(runs.made)) == (2, 2)


# --- as a rule ---------------------------------------------------------------------------------------

ARGUMENTS = {"name": "Ada", "times": 2}


def rule_desk(**answer: Any) -> tuple[Desk, Person, Runs]:
    """A desk after a yes as a rule, for the agent `local` and ARGUMENTS."""
    person, runs = Person(says(reach="rule", **answer), False), Runs()
    agents = {"planner": Grant(capabilities=(Capability("fs.read", "."),))}
    desk = Desk(runs.tool, approver=person, policy=PolicySettings(agents=agents))
    assert desk.call(ARGUMENTS).ok
    return desk, person, runs


def test_a_rule_covers_the_same_call_in_any_session() -> None:
    desk, person, runs = rule_desk()
    (rule,) = desk.store.rules()
    for session in ("", "session-1", "session-2"):
        result = desk.call(ARGUMENTS, session=session)
        assert result.approval == Approval(approver="ada", way="rule", id=rule.id)
    assert (len(person.questions), len(runs.made)) == (1, 4)


OTHERS: dict[str, tuple[Any, dict[str, Any], Callable[[Keep], Any]]] = {
    "another value": ({"name": "Bob", "times": 2}, {}, lambda _: None),
    "another number": ({"name": "Ada", "times": 3}, {}, lambda _: None),
    "an argument left out": ({"name": "Ada"}, {}, lambda _: None),
    "another agent": (ARGUMENTS, {"agent": "planner"}, lambda _: None),
    "confirmation asked for": (ARGUMENTS, {"confirm": True}, lambda _: None),
    "another definition": (ARGUMENTS, {}, replaced),
    "a newer version": (ARGUMENTS, {}, newer),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_rule_covers_nothing_else(case: str) -> None:
    desk, person, runs = rule_desk()
    arguments, options, change = OTHERS[case]
    change(desk.keep)
    result = desk.call(arguments, **options)
    assert (result.code, len(person.questions), runs.made) == (Code.APPROVAL_DENIED, 2, ["Ada"])


class Greeter:
    """Greets as it is told; one argument may be left out, and has no default."""

    TOOL_NAME = "greet_somehow"
    TOOL_USAGE_METADATA = "Use it in tests."
    TOOL_FIELDS: ClassVar[dict[str, Any]] = {"danger": "medium"}
    is_tool_fully_executed_on_server = True

    @property
    def name(self) -> str:
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        properties = {
            "name": {"type": "string", "description": "Whom to greet."},
            "greeting": {"type": "string", "description": "How to greet."},
        }
        return {
            "type": "function",
            "name": "greet_somehow",
            "description": "Greet a person.",
            "parameters": {"type": "object", "properties": properties, "required": ["name"]},
        }

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        return InvokeResult.ok(arguments_json)


@pytest.mark.parametrize("added", [{"greeting": "Hey"}, {"greeting": ""}])
def test_a_rule_does_not_cover_an_optional_argument_that_is_added(added: dict[str, str]) -> None:
    person = Person(says(reach="rule"), False)
    desk = Desk(Greeter, approver=person)
    assert desk.call({"name": "Ada"}, name="greet_somehow").ok
    assert desk.call({"name": "Ada"}, name="greet_somehow").ok
    assert desk.call({"name": "Ada", **added}, name="greet_somehow").code is Code.APPROVAL_DENIED
    assert len(person.questions) == 2


@pytest.mark.parametrize(
    ("days", "length_s"),
    [(30, 30 * 86_400), (1, 86_400), (0, 86_400), (-5, 86_400), (10_000, RULE_DAYS * 86_400)],
)
def test_a_rule_ends_at_its_date(days: int, length_s: int) -> None:
    desk, person, _ = rule_desk(days=days)
    (rule,) = desk.store.rules()
    assert (rule.made_at, rule.ends_at, rule.approver) == (BEGAN, BEGAN + length_s, "ada")
    desk.clock.now = rule.ends_at - 1
    assert desk.call(ARGUMENTS).ok
    desk.clock.now = rule.ends_at
    assert desk.call(ARGUMENTS).code is Code.APPROVAL_DENIED
    assert len(person.questions) == 2


def test_a_revoked_rule_covers_nothing() -> None:
    desk, _, runs = rule_desk()
    assert desk.store.revoke(desk.store.rules()[0].id)
    assert (desk.call(ARGUMENTS).code, runs.made) == (Code.APPROVAL_DENIED, ["Ada"])


def test_a_call_that_a_rule_covers_is_still_authorized() -> None:
    desk, _, runs = rule_desk()
    desk.keep.use_policies(PERMIT, FORBID)
    assert (desk.call(ARGUMENTS).code, runs.made) == (Code.NOT_PERMITTED, ["Ada"])


def test_no_rule_is_made_of_a_yes_that_was_not_used() -> None:
    def agree(question: Question) -> Answer:
        desk.keep.use_policies(PERMIT, FORBID)
        return says(reach="rule")

    runs = Runs()
    desk = Desk(runs.tool, approver=agree)
    assert (desk.call().code, desk.store.rules()) == (Code.NOT_PERMITTED, [])


# --- what is recorded --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "way"), [(says(), "terminal"), (says("deny", reason="no"), "refused"), (None, "refused")]
)
def test_the_answer_is_in_the_log(answer: Any, way: str) -> None:
    runs = Runs()
    desk = Desk(runs.tool, approver=Person(answer))
    result = desk.call()
    (record,) = [e.record for e in desk.record.log.entries if e.record["type"] == "Approval"]
    assert (record["call"], record["way"]) == (result.call_id, way)
    if result.approval is not None:
        assert record["approver"] == "ada"
        assert record["id"] == result.approval.id
