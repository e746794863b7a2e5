"""Approval requests, answers and rules: `approvals.db` of the state folder, for all processes of a keep."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from toolkeep.approval.approval_store import (
    OVER,
    EmbeddedApprovals,
    SessionYes,
    advance,
    bound,
    covering,
    has_room,
    seen_at,
    session_key,
    session_yes,
)
from toolkeep.approval.coverage import Constraint
from toolkeep.approval.question import Answer, AnswerRefused, Question, Rule, Standing
from toolkeep.limits import SESSION_SECONDS
from toolkeep.storage.sqlite.database import Database
from toolkeep.storage.sqlite.process_identity import is_gone, this_process

if TYPE_CHECKING:
    import sqlite3

# synchronous = FULL: a used approval stays used after a crash of the machine; otherwise one yes could run two
# calls. The indices avoid reading the questions, of up to some megabytes each, which precede other columns.
_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;"
_TABLES = """
CREATE TABLE questions (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, question BLOB NOT NULL, answer BLOB, asked_at REAL NOT NULL,
    expires_at REAL NOT NULL, definition_hash TEXT NOT NULL, argument_hash TEXT NOT NULL, agent TEXT NOT NULL,
    grant_hash TEXT NOT NULL, call_id TEXT NOT NULL
) STRICT;
CREATE TABLE askers (question TEXT PRIMARY KEY, process TEXT NOT NULL) STRICT;
CREATE INDEX questions_of_agents ON questions (agent, state, expires_at);
CREATE INDEX questions_by_end ON questions (expires_at);
CREATE TABLE session_answers (
    definition_hash TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, grant_hash TEXT NOT NULL,
    given_at REAL NOT NULL, answer BLOB NOT NULL, constraints BLOB NOT NULL
) STRICT;
CREATE INDEX answers_of_sessions
    ON session_answers (definition_hash, agent, session, grant_hash, given_at);
CREATE TABLE argument_rules (
    id TEXT PRIMARY KEY, ends_at REAL NOT NULL, rule BLOB NOT NULL
) STRICT;
"""


class SqliteApprovals(EmbeddedApprovals):
    """The approvals of one keep."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(folder / "approvals.db", _PRAGMAS, _TABLES)
        self._clock = clock

    def ask(self, question: Question) -> bool:
        """Queue a question; False where its agent has too much in the queue already."""
        now, encoded = self._clock(), _encode(question)
        with self._database.changing() as connection:
            # Expired questions hold arguments; delete them soon.
            connection.execute("DELETE FROM questions WHERE expires_at < ?", (now - 60,))
            connection.execute("DELETE FROM askers WHERE question NOT IN (SELECT id FROM questions)")
            for left in _left(connection):
                connection.execute(_WITHDRAW, (left,))
            _forget_oldest(connection, question.agent)
            if not has_room(_waiting_sizes(connection, question.agent, now), len(encoded)):
                return False
            row = (question.id, "waiting", encoded, None, question.asked_at, question.expires_at)
            connection.execute(
                "INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, *bound(question))
            )
            connection.execute("INSERT INTO askers VALUES (?, ?)", (question.id, this_process()))
            return True

    def answer(self, question_id: str, answer: Answer) -> Standing:
        """Store an answer; raises `AnswerRefused` where it is not accepted."""
        with self._database.changing() as connection:
            standing = _find(connection, question_id)
            if standing is None:
                raise AnswerRefused("there is no such approval request")
            if question_id in _left(connection):
                raise AnswerRefused("the process that made the call has ended")
            now = self._clock()
            standing = advance(standing, answer, now)
            connection.execute(
                "UPDATE questions SET state = ?, question = ?, answer = ? WHERE id = ?",
                (standing.state, _encode(standing.question), _encode(standing.answer), question_id),
            )
            if standing.state == "approved" and answer.reach == "session":
                connection.execute(
                    "DELETE FROM session_answers WHERE given_at <= ?", (now - SESSION_SECONDS,)
                )
                given = session_yes(standing.question, answer, now)
                row = (*session_key(standing.question), now, *map(_encode, given))
                connection.execute("INSERT INTO session_answers VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            return standing

    def is_waiting(self, question_id: str) -> bool:
        """Whether a question is unanswered."""
        if not self._database.exists():
            return False
        with self._database.using() as connection:
            query = "SELECT 1 FROM questions WHERE id = ? AND state = 'waiting'"
            return connection.execute(query, (question_id,)).fetchone() is not None

    def standing(self, question_id: str) -> Standing | None:
        """The state of a question."""
        if not self._database.exists():
            return None
        with self._database.using() as connection:
            found = _find(connection, question_id)
        return None if found is None else seen_at(found, self._clock())

    def use(self, question: Question) -> bool:
        """Use the approval of exactly this question, once; False where there is none, or it was used."""
        # One UPDATE checks and uses it: of two processes, one succeeds. Comparing the hashes again keeps an
        # approval from being used for other arguments, another agent or another definition.
        with self._database.using() as connection:
            used = connection.execute(
                "UPDATE questions SET state = 'used' WHERE id = ? AND state = 'approved' AND expires_at > ? "
                "AND (definition_hash, argument_hash, agent, grant_hash, call_id) = (?, ?, ?, ?, ?)",
                (question.id, self._clock(), *bound(question)),
            )
            return used.rowcount == 1

    def withdraw(self, question_id: str) -> None:
        """Withdraw a question, because its caller stopped waiting; an answer stays."""
        with self._database.using() as connection:
            connection.execute(f"{_WITHDRAW} AND expires_at > ?", (question_id, self._clock()))

    def waiting(self) -> list[Standing]:
        """The unanswered questions, oldest first."""
        if not self._database.exists():
            return []
        query = f"{_SELECT} WHERE state = 'waiting' AND expires_at > ? ORDER BY asked_at"
        with self._database.using() as connection:
            left = _left(connection)
            standings = [_standing(*row) for row in connection.execute(query, (self._clock(),))]
        return [one for one in standings if one.question.id not in left]

    def session_answer(self, question: Question) -> Answer | None:
        """The session approval that covers a question."""
        if not question.session or not self._database.exists():
            return None
        query = (
            "SELECT answer, constraints FROM session_answers "
            "WHERE (definition_hash, agent, session, grant_hash) = (?, ?, ?, ?) ORDER BY given_at DESC"
        )
        with self._database.using() as connection:
            rows = connection.execute(query, session_key(question)).fetchall()
        return covering((_session_yes(*row) for row in rows), question, self._clock())

    def rules(self) -> list[Rule]:
        """The rules that have not expired."""
        if not self._database.exists():
            return []
        with self._database.using() as connection:
            rows = connection.execute(
                "SELECT rule FROM argument_rules WHERE ends_at > ? ORDER BY id", (self._clock(),)
            )
            return [msgspec.json.decode(rule, type=Rule) for (rule,) in rows]

    def add_rule(self, rule: Rule) -> None:
        """Store a rule."""
        with self._database.using() as connection:
            row = (rule.id, rule.ends_at, _encode(rule))
            connection.execute("INSERT OR REPLACE INTO argument_rules VALUES (?, ?, ?)", row)

    def revoke(self, rule_id: str) -> bool:
        """Revoke a rule; whether there was one."""
        with self._database.using() as connection:
            return connection.execute("DELETE FROM argument_rules WHERE id = ?", (rule_id,)).rowcount == 1

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_SELECT = "SELECT state, question, answer FROM questions"
# Only unanswered ones: the record of who denied a call, and why, must stay.
_WITHDRAW = "UPDATE questions SET state = 'withdrawn' WHERE id = ? AND state = 'waiting'"
_OVER = ", ".join(f"'{state}'" for state in OVER)
_SIZES = "SELECT id, length(question) FROM questions"


def _left(connection: "sqlite3.Connection") -> set[str]:
    """The unanswered questions of processes that have died."""
    joined = "askers JOIN questions ON questions.id = askers.question"
    query = f"SELECT id, process FROM {joined} WHERE state = 'waiting'"  # noqa: S608 -- our own words
    askers: list[tuple[str, str]] = connection.execute(query).fetchall()
    gone = {process for process in {process for _, process in askers} if is_gone(process)}
    return {question_id for question_id, process in askers if process in gone}


def _waiting_sizes(connection: "sqlite3.Connection", agent: str, now: float) -> list[int]:
    query = f"{_SIZES} WHERE agent = ? AND state = 'waiting' AND expires_at > ?"
    return [size for _, size in connection.execute(query, (agent, now))]


def _forget_oldest(connection: "sqlite3.Connection", agent: str) -> None:
    """Bound the closed questions of an agent: one that asks and withdraws in a loop would fill the disk."""
    query = f"{_SIZES} WHERE agent = ? AND state IN ({_OVER}) ORDER BY rowid DESC"
    sizes: list[int] = []
    for question_id, size in connection.execute(query, (agent,)).fetchall():
        if has_room(sizes, size):
            sizes.append(size)
        else:
            connection.execute("DELETE FROM questions WHERE id = ?", (question_id,))


def _find(connection: "sqlite3.Connection", question_id: str) -> Standing | None:
    row = connection.execute(f"{_SELECT} WHERE id = ?", (question_id,)).fetchone()
    return None if row is None else _standing(*row)


def _standing(state: str, question: bytes, answer: bytes | None) -> Standing:
    asked = msgspec.json.decode(question, type=Question)
    standing = Standing(question=asked, state="waiting")
    given = None if answer is None else msgspec.json.decode(answer, type=Answer)
    return replace(standing, state=state, answer=given)


def _session_yes(answer: bytes, constraints: bytes) -> SessionYes:
    return SessionYes(
        msgspec.json.decode(answer, type=Answer),
        msgspec.json.decode(constraints, type=tuple[Constraint, ...]),
    )


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)
