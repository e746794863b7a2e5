"""Approvals of servers that share a PostgreSQL: lost answers, forged rows, dead servers, clocks that differ."""

import contextlib
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.approval.examples import BEGAN, NO, QUESTION, YES, Clock, question, yes
from tests.approval.stores import server
from tests.storage.cluster import Cluster
from tests.storage.postgres.cut_link import CutLink, cut_link
from toolkeep.approval.question import AnswerRefused, Standing
from toolkeep.errors import StoreUnavailable
from toolkeep.storage.postgres import shared_database
from toolkeep.storage.postgres.approvals_table import PostgresApprovals
from toolkeep.storage.sql.database_location import SCHEMA

pytestmark = pytest.mark.spec("SCL-2", "POL-4")

OTHER = question(id="question-2", call_id="call-2")


@pytest.fixture
def store(postgres: Cluster, tmp_path: Path) -> Iterator[PostgresApprovals]:
    with server(postgres.clean(), tmp_path, Clock()) as store:
        yield store


@pytest.fixture
def link(postgres: Cluster) -> Iterator[CutLink]:
    postgres.clean()
    with cut_link(postgres.port) as link:
        yield link


def change(postgres: Cluster, statement: str) -> None:
    """As one who has the credential of the database, and no key of the servers."""
    postgres.execute("made", f"SET search_path = {SCHEMA}; {statement}")


@pytest.mark.parametrize("lost", [b"SET state =", b"COMMIT"])
def test_a_change_whose_answer_was_lost_is_made_once_and_is_ours(
    link: CutLink, tmp_path: Path, lost: bytes
) -> None:
    url = f"postgresql://keep@127.0.0.1:{link.port}/made"
    asked = question(acts=2)

    def cut() -> None:
        link.cut_after = lost

    with server(url, tmp_path, Clock()) as store:
        store.waiting()
        cut()
        assert store.ask(asked)
        cut()
        first = store.answer(asked.id, YES)
        assert (first.state, first.question.acts_done) == ("waiting", 1)
        cut()
        answer = yes(typed_name="greet", reach="session")
        assert store.answer(asked.id, answer) == store.standing(asked.id)
        assert store.session_answer(asked) == yes(typed_name="greet", reach="session", given_at=BEGAN)
        cut()
        assert [store.use(asked), store.use(asked)] == [True, False]
    assert link.cuts == (3 if lost == b"SET state =" else 4)


FORGED = {
    "approved": "state = 'approved'",
    "with the answer to another": "state = 'approved', answer = other.answer",
    "with all of another": "state = 'approved', answer = other.answer, token = other.token, mac = other.mac",
    "as another": (
        "state = other.state, answer = other.answer, question = other.question, token = other.token, "
        "mac = other.mac"
    ),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_row_that_no_server_wrote_approves_nothing(
    store: PostgresApprovals, postgres: Cluster, forged: str
) -> None:
    for one in (QUESTION, OTHER):
        store.ask(one)
    store.answer(OTHER.id, yes(reach="session"))
    change(
        postgres,
        f"UPDATE shared_questions q SET {forged} FROM shared_questions other "  # noqa: S608 -- our own words
        f"WHERE q.id = '{QUESTION.id}' AND other.id = '{OTHER.id}'",
    )
    assert (store.standing(QUESTION.id), store.use(QUESTION)) == (None, False)
    with pytest.raises(AnswerRefused, match="no such"):
        store.answer(QUESTION.id, YES)
    assert store.use(OTHER)


def test_a_used_or_denied_approval_cannot_be_opened_again(
    store: PostgresApprovals, postgres: Cluster
) -> None:
    for one, answer in ((QUESTION, YES), (OTHER, NO)):
        store.ask(one)
        store.answer(one.id, answer)
    assert store.use(QUESTION)
    change(postgres, "UPDATE shared_questions SET state = 'approved'")
    assert [store.use(one) for one in (QUESTION, OTHER)] == [False, False]


def test_a_moved_expiry_counts_for_nothing(postgres: Cluster, tmp_path: Path) -> None:
    clock = Clock()
    with server(postgres.clean(), tmp_path, clock) as store:
        store.ask(QUESTION)
        store.ask(OTHER)
        store.answer(OTHER.id, YES)
        change(postgres, "UPDATE shared_questions SET expires_at = expires_at + 1000")
        clock.now = QUESTION.expires_at
        assert store.waiting() == []
        with pytest.raises(AnswerRefused, match="expired"):
            store.answer(QUESTION.id, YES)
        assert not store.use(OTHER)
        change(
            postgres,
            "UPDATE shared_questions SET question ="
            " convert_to(replace(convert_from(question, 'UTF8'), '1000300', '9000300'), 'UTF8')",
        )
        assert (store.standing(OTHER.id), store.use(OTHER)) == (None, False)


@pytest.mark.parametrize(
    "forged",
    [
        "session = '{session}'",
        "answer = convert_to(replace(convert_from(answer, 'UTF8'), '1000000', '9000000'), 'UTF8')",
        "constraints = '[]'",
    ],
    ids=["another session", "later", "without constraints"],
)
def test_a_changed_session_approval_covers_nothing(
    store: PostgresApprovals, postgres: Cluster, forged: str
) -> None:
    from toolkeep.storage.postgres.approvals_table import _session_digest

    store.ask(QUESTION)
    store.answer(QUESTION.id, yes(reach="session"))
    wanted = question(session="session-2") if "{session}" in forged else QUESTION
    assert (store.session_answer(wanted) is None) == (wanted is not QUESTION)
    change(postgres, f"UPDATE shared_session_answers SET {forged.format(session=_session_digest(wanted))}")  # noqa: S608
    assert store.session_answer(wanted) is None


def test_servers_with_another_key_see_no_question_and_approve_none(postgres: Cluster, tmp_path: Path) -> None:
    url = postgres.clean()
    with server(url, tmp_path / "1", Clock()) as one, server(url, tmp_path / "2", Clock(), b"x") as other:
        one.ask(QUESTION)
        assert other.waiting() == []
        with pytest.raises(AnswerRefused, match="no such"):
            other.answer(QUESTION.id, YES)
        assert one.answer(QUESTION.id, YES).state == "approved"
        assert not other.use(QUESTION)
        assert one.use(QUESTION)


def test_every_server_hears_of_a_question_and_of_its_end(
    store: PostgresApprovals, postgres: Cluster, tmp_path: Path
) -> None:
    heard = queue.Queue[str]()
    with server(postgres.url("made"), tmp_path / "2", Clock()) as other, store.watch(heard.put):
        assert heard.get(timeout=60) == ""  # connected
        for change, about in (
            (lambda: other.ask(QUESTION), QUESTION),
            (lambda: other.answer(QUESTION.id, YES), QUESTION),
            (lambda: other.ask(OTHER), OTHER),
            (lambda: other.withdraw(OTHER.id), OTHER),
        ):
            change()
            assert next(filter(None, (heard.get(timeout=60) for _ in range(8)))) == about.id


def test_the_questions_of_a_server_that_died_wait_no_longer_and_take_no_room(
    store: PostgresApprovals, postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.approval.approval_store.APPROVALS_WAITING", 1)
    with server(postgres.url("made"), tmp_path / "2", Clock()) as other:
        other.ask(QUESTION)
        assert not store.ask(OTHER)
    change(postgres, "UPDATE shared_servers SET seen_at = now() - interval '9 seconds'")
    assert [one.question.id for one in store.waiting()] == [QUESTION.id]
    change(postgres, "UPDATE shared_servers SET seen_at = now() - interval '10 seconds'")
    assert store.waiting() == []
    with pytest.raises(AnswerRefused, match="has ended"):
        store.answer(QUESTION.id, YES)
    assert store.ask(OTHER)
    assert [one.question.id for one in store.waiting()] == [OTHER.id]


def test_questions_expire_by_the_clock_of_the_database_and_are_shown_by_that_of_the_server(
    postgres: Cluster, tmp_path: Path
) -> None:
    url, clock = postgres.clean(), Clock()
    with contextlib.ExitStack() as stack:
        early, late = (
            stack.enter_context(server(url, tmp_path / name, clock, ahead_s=ahead_s))
            for name, ahead_s in (("early", -300.0), ("late", 300.0))
        )
        ours = question(asked_at=BEGAN - 300, expires_at=BEGAN)
        theirs = question(asked_at=BEGAN + 300, expires_at=BEGAN + 600)
        assert early.ask(ours)
        assert early.waiting() == [Standing(question=ours, state="waiting")]
        assert late.waiting() == [Standing(question=theirs, state="waiting")]
        assert late.answer(QUESTION.id, YES).answer == yes(given_at=BEGAN + 300)
        given = early.standing(QUESTION.id)
        assert given is not None
        assert given.answer == yes(given_at=BEGAN - 300)
        clock.now = QUESTION.expires_at
        assert not early.use(ours)
        clock.now -= 0.1
        assert early.use(ours)


def test_what_could_not_be_withdrawn_is_withdrawn_when_the_database_is_back(
    store: PostgresApprovals, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_database, "_PATIENCE_SECONDS", 0.2)
    store.ask(QUESTION)
    postgres.stop()
    changes: list[Any] = [lambda: store.withdraw(QUESTION.id), lambda: store.use(OTHER), store.waiting]
    for one in changes:
        with pytest.raises(StoreUnavailable):
            one()
    postgres.start()
    assert store.waiting() == []
    found = store.standing(QUESTION.id)
    assert found is not None
    assert found.state == "withdrawn"
