"""Where questions, answers and rules are kept: in memory and in a file, the same."""

import contextlib
import itertools
import json
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.approval.examples import BEGAN, NO, QUESTION, RULE, YES, Clock, question, yes
from tests.approval.stores import server
from tests.storage.cluster import Cluster
from toolkeep.approval import approval_store as store_module
from toolkeep.approval.approval_store import Approvals, MemoryApprovals, advance, covering_rule
from toolkeep.approval.question import Answer, AnswerRefused, Rule, Standing
from toolkeep.calls import Identity
from toolkeep.errors import StateUnusable
from toolkeep.limits import APPROVALS_BYTES, APPROVALS_WAITING, SESSION_SECONDS
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

pytestmark = pytest.mark.spec("POL-4")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "file", "postgres"])
def store(request: pytest.FixtureRequest, folder: Path, clock: Clock) -> Iterator[Approvals]:
    if request.param == "memory":
        yield MemoryApprovals(clock)
    elif request.param == "file":
        with closing(SqliteApprovals(folder, clock)) as store:
            yield store
    else:
        cluster: Cluster = request.getfixturevalue("postgres")
        with server(cluster.clean(), folder, clock) as shared:
            yield shared


@pytest.fixture(params=["file", "postgres"])
def pair(request: pytest.FixtureRequest, folder: Path, clock: Clock) -> Iterator[tuple[Approvals, Approvals]]:
    """Two connections to the same file, as two processes have; or two servers on one database."""
    with contextlib.ExitStack() as stack:
        if request.param == "file":
            opened = [SqliteApprovals(folder, clock) for _ in range(2)]
            yield stack.enter_context(closing(opened[0])), stack.enter_context(closing(opened[1]))
        else:
            url = request.getfixturevalue("postgres").clean()
            one, other = (server(url, folder / name, clock) for name in ("one", "other"))
            yield stack.enter_context(one), stack.enter_context(other)


def state_of(store: Approvals, question_id: str = QUESTION.id) -> str | None:
    standing = store.standing(question_id)
    return None if standing is None else standing.state


def refused(store: Approvals, answer: Answer, question_id: str = QUESTION.id) -> str:
    with pytest.raises(AnswerRefused) as error:
        store.answer(question_id, answer)
    return error.value.reason


# --- asking and answering ----------------------------------------------------------------------------


def test_a_question_waits_for_its_answer(store: Approvals) -> None:
    store.ask(QUESTION)
    expected = Standing(question=QUESTION, state="waiting")
    assert store.standing(QUESTION.id) == expected
    assert store.waiting() == [expected]


@pytest.mark.parametrize(("answer", "state"), [(YES, "approved"), (NO, "denied")], ids=["yes", "no"])
def test_an_answered_question_stands_so_and_waits_no_longer(
    store: Approvals, answer: Answer, state: str
) -> None:
    store.ask(QUESTION)
    standing = store.answer(QUESTION.id, answer)
    assert (standing.state, standing.answer) == (state, replace(answer, given_at=BEGAN))
    assert store.standing(QUESTION.id) == standing
    assert store.waiting() == []


def test_nobody_can_answer_what_was_never_asked(store: Approvals) -> None:
    assert refused(store, YES) == "there is no such approval request"
    store.ask(QUESTION)
    assert refused(store, YES, "question-2") == "there is no such approval request"
    assert state_of(store) == "waiting"


@pytest.mark.parametrize("first", [YES, NO], ids=["yes", "no"])
@pytest.mark.parametrize("second", [YES, NO], ids=["yes", "no"])
def test_the_first_answer_counts(store: Approvals, first: Answer, second: Answer) -> None:
    store.ask(QUESTION)
    before = store.answer(QUESTION.id, first)
    assert refused(store, second) == f"it is {before.state} already"
    assert store.standing(QUESTION.id) == before


@pytest.mark.parametrize(
    "answer",
    [yes(approver="planner"), yes(reach="rule"), yes(reach="session")],
    ids=["of the agent itself", "rule", "session"],
)
def test_an_answer_that_does_not_count_changes_nothing(store: Approvals, answer: Answer) -> None:
    asked = question(danger="high")
    store.ask(asked)
    assert refused(store, answer) != ""
    assert store.standing(QUESTION.id) == Standing(question=asked, state="waiting")
    assert store.use(asked) is False
    assert store.answer(QUESTION.id, YES).state == "approved"


def test_questions_wait_in_the_order_in_which_they_were_asked(store: Approvals, clock: Clock) -> None:
    for number in (3, 1, 2):
        store.ask(question(id=f"question-{number}", asked_at=clock.now))
        clock.now += 1
    assert [one.question.id for one in store.waiting()] == ["question-3", "question-1", "question-2"]


def test_a_question_waits_until_somebody_answers(store: Approvals) -> None:
    assert not store.is_waiting(QUESTION.id)
    store.ask(question(acts=2))
    assert store.is_waiting(QUESTION.id)
    store.answer(QUESTION.id, YES)
    assert store.is_waiting(QUESTION.id)
    store.answer(QUESTION.id, NO)
    assert not store.is_waiting(QUESTION.id)


# --- how much waits ----------------------------------------------------------------------------------


def test_an_agent_has_so_many_questions_and_no_more(store: Approvals) -> None:
    asked = [store.ask(question(id=f"question-{number}")) for number in range(APPROVALS_WAITING + 1)]
    assert asked == [True] * APPROVALS_WAITING + [False]
    assert state_of(store, f"question-{APPROVALS_WAITING}") is None
    assert store.ask(question(id="another's", agent="writer"))
    store.answer("question-0", YES)
    assert store.ask(question(id="one more"))


def test_what_expired_takes_no_room(store: Approvals, clock: Clock) -> None:
    for number in range(APPROVALS_WAITING):
        store.ask(question(id=f"question-{number}"))
    clock.now = QUESTION.expires_at
    assert store.ask(question(id="one more", expires_at=clock.now + 300))


def test_the_questions_of_an_agent_hold_so_much_and_no_more(store: Approvals) -> None:
    half = json.dumps({"name": "x" * (APPROVALS_BYTES // 2 - 2_000)})
    asked = [store.ask(question(id=f"question-{number}", arguments=half)) for number in range(3)]
    assert asked == [True, True, False]
    assert store.ask(question(id="another's", agent="writer", arguments=half))


def test_one_question_alone_may_be_of_any_size(store: Approvals) -> None:
    assert store.ask(question(difference="x" * (APPROVALS_BYTES + 1)))
    assert not store.ask(question(id="question-2"))


def test_who_asks_and_gives_up_again_and_again_leaves_no_more_than_others(
    store: Approvals, clock: Clock
) -> None:
    for number in range(APPROVALS_WAITING + 2):
        clock.now += 1
        store.ask(question(id=f"question-{number}", asked_at=clock.now))
        store.withdraw(f"question-{number}")
    left = [number for number in range(APPROVALS_WAITING + 2) if state_of(store, f"question-{number}")]
    assert len(left) <= APPROVALS_WAITING + 1
    assert 0 not in left


def test_a_question_that_expired_is_nobodys_to_answer(store: Approvals, clock: Clock) -> None:
    store.ask(QUESTION)
    clock.now = QUESTION.expires_at
    assert store.waiting() == []
    assert refused(store, YES) == "this approval request has expired"
    assert state_of(store) == "expired"
    store.withdraw(QUESTION.id)
    assert state_of(store) == "expired"
    assert store.use(QUESTION) is False


def test_what_nobody_came_back_for_is_forgotten_with_its_arguments(store: Approvals, clock: Clock) -> None:
    store.ask(QUESTION)
    store.answer(QUESTION.id, NO)
    clock.now = QUESTION.expires_at + 61
    store.ask(question(id="question-2", expires_at=clock.now + 300))
    assert (state_of(store), state_of(store, "question-2")) == (None, "waiting")


# --- two acts ----------------------------------------------------------------------------------------

CRITICAL = question(danger="critical", acts=2)


def test_a_critical_call_takes_two_yeses_the_second_with_its_name(store: Approvals) -> None:
    store.ask(CRITICAL)
    first = store.answer(CRITICAL.id, YES)
    assert (first.state, first.question.acts_done, first.question.wants_name) == ("waiting", 1, True)
    assert store.use(CRITICAL) is False
    assert refused(store, YES).startswith("confirm by typing")
    assert state_of(store) == "waiting"
    second = store.answer(CRITICAL.id, yes(typed_name="greet"))
    assert (second.state, second.question.acts_done) == ("approved", 2)
    assert store.use(CRITICAL) is True


def test_a_no_to_the_second_act_is_a_no(store: Approvals) -> None:
    store.ask(CRITICAL)
    store.answer(CRITICAL.id, YES)
    assert store.answer(CRITICAL.id, NO).state == "denied"
    assert store.use(CRITICAL) is False


@pytest.mark.parametrize("state", ["approved", "denied", "used", "withdrawn"])
def test_only_what_waits_goes_on(state: Any) -> None:
    with pytest.raises(AnswerRefused, match=f"it is {state} already"):
        advance(Standing(question=QUESTION, state=state), YES, BEGAN)


# --- using a yes -------------------------------------------------------------------------------------


def approved(store: Approvals) -> None:
    store.ask(QUESTION)
    store.answer(QUESTION.id, YES)


def test_a_yes_is_used_once(store: Approvals) -> None:
    approved(store)
    assert [store.use(QUESTION) for _ in range(3)] == [True, False, False]
    with pytest.raises(AnswerRefused):
        store.answer(QUESTION.id, YES)
    assert store.use(QUESTION) is False


@pytest.mark.parametrize("name", ["definition_hash", "argument_hash", "agent", "grant_hash", "call_id", "id"])
def test_a_yes_is_bound_to_what_was_shown(store: Approvals, name: str) -> None:
    approved(store)
    assert store.use(question(**{name: "another"})) is False
    assert store.use(QUESTION) is True  # a wrong attempt uses nothing up


@pytest.mark.parametrize("answer", [None, NO], ids=["waiting", "denied"])
def test_without_a_yes_there_is_nothing_to_use(store: Approvals, answer: Answer | None) -> None:
    assert store.use(QUESTION) is False
    store.ask(QUESTION)
    if answer is not None:
        store.answer(QUESTION.id, answer)
    assert store.use(QUESTION) is False


@pytest.mark.parametrize(("after_s", "counts"), [(299.9, True), (300.0, False)])
def test_a_yes_counts_until_its_question_expires(
    store: Approvals, clock: Clock, after_s: float, counts: bool
) -> None:
    approved(store)
    clock.now = BEGAN + after_s
    assert store.use(QUESTION) is counts


@pytest.mark.parametrize("answer", [YES, NO], ids=["yes", "no"])
def test_withdrawing_does_not_overwrite_an_answer(store: Approvals, answer: Answer) -> None:
    store.ask(QUESTION)
    before = store.answer(QUESTION.id, answer)
    store.withdraw(QUESTION.id)
    assert store.standing(QUESTION.id) == before


def test_a_withdrawn_question_can_be_neither_answered_nor_used(store: Approvals) -> None:
    store.ask(question(id="question-2"))
    store.withdraw("question-2")
    assert store.waiting() == []
    with pytest.raises(AnswerRefused):
        store.answer("question-2", YES)


def test_withdrawing_what_was_used_or_never_asked_changes_nothing(store: Approvals) -> None:
    approved(store)
    store.use(QUESTION)
    before = store.standing(QUESTION.id)
    store.withdraw(QUESTION.id)
    store.withdraw("question-2")
    assert store.standing(QUESTION.id) == before
    assert store.standing("question-2") is None


# --- for the session ---------------------------------------------------------------------------------


def test_a_yes_for_the_session_covers_later_questions_whatever_their_arguments(store: Approvals) -> None:
    store.ask(QUESTION)
    store.answer(QUESTION.id, yes(reach="session"))
    given = yes(reach="session", given_at=BEGAN)
    later = question(id="question-2", call_id="call-2", argument_hash="arguments-2")
    assert store.session_answer(later) == given
    assert store.use(QUESTION) is True
    assert store.session_answer(later) == given  # the one call is used up, the session is not


@pytest.mark.parametrize("name", ["definition_hash", "agent", "session", "grant_hash"])
def test_a_yes_for_the_session_is_bound(store: Approvals, name: str) -> None:
    store.ask(QUESTION)
    store.answer(QUESTION.id, yes(reach="session"))
    assert store.session_answer(question(**{name: "another"})) is None


@pytest.mark.parametrize(
    "answer", [YES, yes(reach="rule"), NO, Answer(verdict="deny", approver="ada", way="x", reach="session")]
)
def test_nothing_else_covers_a_session(store: Approvals, answer: Answer) -> None:
    store.ask(QUESTION)
    store.answer(QUESTION.id, answer)
    assert store.session_answer(QUESTION) is None


def test_a_yes_for_the_session_ends_with_time_whatever_the_answer_says(
    store: Approvals, clock: Clock
) -> None:
    store.ask(QUESTION)
    store.answer(QUESTION.id, yes(reach="session", given_at=BEGAN * 1000))
    clock.now = BEGAN + SESSION_SECONDS - 0.1
    assert store.session_answer(QUESTION) is not None
    clock.now = BEGAN + SESSION_SECONDS
    assert store.session_answer(QUESTION) is None


def test_calls_without_a_session_share_none(store: Approvals) -> None:
    nowhere = question(session="")
    assert store.session_answer(nowhere) is None
    store.ask(nowhere)
    assert refused(store, yes(reach="session")) == "the call belongs to no session"
    assert store.session_answer(nowhere) is None


def test_calls_without_a_session_share_none_even_if_such_an_answer_was_taken(
    store: Approvals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "check_answer", lambda *_: None)
    nowhere = question(session="")
    store.ask(nowhere)
    store.answer(QUESTION.id, yes(reach="session"))
    assert store.session_answer(nowhere) is None


# --- rules -------------------------------------------------------------------------------------------


def test_a_rule_holds_until_its_end(store: Approvals, clock: Clock) -> None:
    store.add_rule(RULE)
    clock.now = RULE.ends_at - 0.1
    assert store.rules() == [RULE]
    clock.now = RULE.ends_at
    assert store.rules() == []


def test_a_revoked_rule_is_gone(store: Approvals) -> None:
    other = msgspec.structs.replace(RULE, id="rule-2")
    store.add_rule(RULE)
    store.add_rule(other)
    assert [store.revoke(RULE.id) for _ in range(2)] == [True, False]
    assert store.rules() == [other]


def test_a_yes_as_a_rule_makes_none_by_itself(store: Approvals) -> None:
    """The asker adds it once the yes was used up; an answer alone permits one call."""
    store.ask(QUESTION)
    store.answer(QUESTION.id, yes(reach="rule"))
    assert store.rules() == []


# --- at once -----------------------------------------------------------------------------------------


def wins(attempt: Callable[[int, int], bool], questions: int = 20) -> list[int]:
    """How many of eight threads succeed with each question."""
    together = threading.Barrier(8)

    def all_of(thread: int) -> list[bool]:
        together.wait()
        return [attempt(thread, number) for number in range(questions)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(all_of, range(8)))
    return [sum(column) for column in zip(*won, strict=True)]


def test_what_is_used_or_answered_in_memory_is_looked_at_and_changed_in_one_step() -> None:
    """Threads rarely meet in so short a step, so it is the lock that is looked at."""
    held: list[bool] = []

    def clock() -> float:
        held.append(approvals._lock.locked())
        return BEGAN

    approvals = MemoryApprovals(clock)
    approvals.ask(QUESTION)
    held.clear()
    approvals.answer(QUESTION.id, YES)
    assert approvals.use(QUESTION)
    assert held
    assert all(held)


def numbered(number: int) -> Any:
    return question(id=f"question-{number}", call_id=f"call-{number}")


def test_of_eight_threads_exactly_one_answers(store: Approvals) -> None:
    for number in range(20):
        store.ask(numbered(number))

    def attempt(thread: int, number: int) -> bool:
        try:
            store.answer(f"question-{number}", YES if thread % 2 else NO)
        except AnswerRefused:
            return False
        return True

    assert wins(attempt) == [1] * 20


def test_of_eight_threads_exactly_one_uses_a_yes(store: Approvals) -> None:
    for number in range(20):
        store.ask(numbered(number))
        store.answer(f"question-{number}", YES)
    assert wins(lambda _, number: store.use(numbered(number))) == [1] * 20


# --- in a file ---------------------------------------------------------------------------------------


def test_reading_makes_nothing(folder: Path) -> None:
    store = SqliteApprovals(folder)
    assert (store.standing("question-1"), store.waiting()) == (None, [])
    assert (store.session_answer(QUESTION), store.rules()) == (None, [])
    store.close()
    assert not folder.exists()


def test_everything_is_private(folder: Path) -> None:
    store = SqliteApprovals(folder)
    store.ask(QUESTION)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert made == dict.fromkeys(("approvals.db", "approvals.db-shm", "approvals.db-wal"), 0o600)
    store.close()


def test_a_folder_that_is_open_to_others_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(StateUnusable):
        SqliteApprovals(folder).ask(QUESTION)
    assert list(folder.iterdir()) == []


def test_a_link_in_the_place_of_the_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "approvals.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateUnusable):
        SqliteApprovals(folder).ask(QUESTION)
    assert not (tmp_path / "elsewhere").exists()


def test_everything_outlasts_the_store(folder: Path, clock: Clock) -> None:
    first = SqliteApprovals(folder, clock)
    first.ask(QUESTION)
    standing = first.answer(QUESTION.id, yes(reach="session"))
    first.add_rule(RULE)
    first.close()
    second = SqliteApprovals(folder, clock)
    assert second.standing(QUESTION.id) == standing
    assert second.session_answer(QUESTION) == yes(reach="session", given_at=BEGAN)
    assert second.rules() == [RULE]
    assert second.use(QUESTION) is True
    second.close()


def test_what_one_connection_says_the_other_sees(pair: tuple[Approvals, Approvals]) -> None:
    first, second = pair
    first.ask(QUESTION)
    assert [one.question for one in second.waiting()] == [QUESTION]
    second.answer(QUESTION.id, YES)
    assert state_of(first) == "approved"
    assert [first.use(QUESTION), second.use(QUESTION)] == [True, False]
    second.add_rule(RULE)
    assert first.rules() == [RULE]
    assert first.revoke(RULE.id) is True
    assert second.rules() == []


def test_the_quota_of_an_agent_holds_over_both(
    pair: tuple[Approvals, Approvals], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "APPROVALS_WAITING", 5)
    asked = itertools.count()
    won = wins(lambda thread, _: pair[thread % 2].ask(numbered(next(asked))), questions=2)
    assert sum(won) == 5


def test_of_two_connections_exactly_one_answers_and_one_uses(
    pair: tuple[Approvals, Approvals],
) -> None:
    for number in range(20):
        pair[0].ask(numbered(number))

    def answers(thread: int, number: int) -> bool:
        try:
            pair[thread % 2].answer(f"question-{number}", YES)
        except AnswerRefused:
            return False
        return True

    assert wins(answers) == [1] * 20
    assert wins(lambda thread, number: pair[thread % 2].use(numbered(number))) == [1] * 20


PROCESS = """
import sys
from pathlib import Path
from tests.approval.examples import Clock, YES, question
from toolkeep.approval.question import AnswerRefused
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

store = SqliteApprovals(Path(sys.argv[1]), Clock())

def attempt(number):
    {attempt}

print("ready", flush=True)
input()
print("".join(str(int(attempt(number))) for number in range(40)), flush=True)
"""

ATTEMPTS = {
    "answer": """
        try:
            store.answer(f"question-{number}", YES)
        except AnswerRefused:
            return False
        return True
    """,
    "use": """
        return store.use(question(id=f"question-{number}", call_id=f"call-{number}"))
    """,
}

Starts = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path) -> Iterator[Starts]:
    """Starts processes that share the folder, and ends them after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(attempt: str) -> "subprocess.Popen[str]":
        body = textwrap.indent(textwrap.dedent(ATTEMPTS[attempt]), "    ").strip()
        command = [sys.executable, "-c", PROCESS.replace("{attempt}", body), str(folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_of_three_processes_exactly_one_wins(attempt: str, folder: Path, clock: Clock, start: Starts) -> None:
    store = SqliteApprovals(folder, clock)
    for number in range(40):
        store.ask(numbered(number))
        if attempt == "use":
            store.answer(f"question-{number}", YES)
    processes = [start(attempt) for _ in range(3)]
    assert [said(process) for process in processes] == ["ready"] * 3
    for process in processes:
        tell(process)
    won = [map(int, said(process)) for process in processes]
    assert [sum(column) for column in zip(*won, strict=True)] == [1] * 40
    after = {"answer": "approved", "use": "used"}[attempt]
    assert {state_of(store, f"question-{number}") for number in range(40)} == {after}
    store.close()


def test_a_rule_is_kept_whole(folder: Path, clock: Clock) -> None:
    store = SqliteApprovals(folder, clock)
    odd = msgspec.structs.replace(RULE, text='"é🙂\x00\n', tool="o'neil; DROP TABLE rules")
    store.add_rule(odd)
    assert store.rules() == [odd]
    store.close()


def rule(number: int) -> Rule:
    return msgspec.structs.replace(RULE, id=f"rule-{number}")


def test_rules_of_two_connections_are_all_kept(pair: tuple[Approvals, Approvals]) -> None:
    for number, store in zip(range(10), itertools.cycle(pair), strict=False):
        store.add_rule(rule(number))
    assert pair[0].rules() == pair[1].rules() == [rule(number) for number in range(10)]


ASKER = """
import sys
from pathlib import Path
from tests.approval.examples import Clock, question
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

store = SqliteApprovals(Path(sys.argv[1]), Clock())
store.ask(question(id="question-0", call_id="call-0"))
print("ready", flush=True)
input()
"""


@pytest.fixture
def asker(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that has asked a question and waits for the answer."""
    command = [sys.executable, "-c", ASKER, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert said(process) == "ready"
    yield process
    process.kill()
    process.communicate()


def test_a_question_of_a_process_that_was_killed_waits_for_nobody(
    folder: Path, clock: Clock, asker: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "APPROVALS_WAITING", 1)
    store = SqliteApprovals(folder, clock)
    assert [standing.question.id for standing in store.waiting()] == ["question-0"]
    assert not store.ask(numbered(1))
    asker.kill()
    asker.wait()
    assert store.waiting() == []
    with pytest.raises(AnswerRefused, match="has ended"):
        store.answer("question-0", YES)
    assert store.ask(numbered(1))
    assert state_of(store, "question-0") == "withdrawn"
    assert [standing.question.id for standing in store.waiting()] == ["question-1"]
    store.close()


def test_a_question_of_a_process_that_cannot_be_seen_waits_like_any_other(
    folder: Path, clock: Clock, asker: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    asker.kill()
    asker.wait()
    monkeypatch.setattr("toolkeep.storage.sqlite.process_identity._namespace", lambda: "another")
    store = SqliteApprovals(folder, clock)
    assert [standing.question.id for standing in store.waiting()] == ["question-0"]
    assert store.answer("question-0", YES).state == "approved"
    store.close()


@pytest.mark.spec("IDN-1")
def test_what_a_person_approved_in_advance_does_not_cover_what_is_called_on_their_behalf(
    store: Approvals,
) -> None:
    ada = Identity(issuer="https://a", subject="ada")
    store.ask(QUESTION)
    store.answer(QUESTION.id, yes(reach="session", identity=ada))
    own = question(id="question-2", identity=replace(ada, client="another"))
    assert store.session_answer(QUESTION) is not None
    assert store.session_answer(own) is None
    names: Any = {"id": "r", "text": "", "agent": own.agent, "tool": own.tool, "approver": "x"}
    rule = Rule(
        **names,
        definition_hash=own.definition_hash,
        constraints=(),
        identity=ada,
        made_at=0.0,
        ends_at=1e11,
    )
    assert covering_rule([replace(rule, identity=None)], replace(own, choices=())) is not None
    assert covering_rule([rule], replace(own, choices=())) is None
