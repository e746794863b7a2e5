"""Approval requests, answers and rules of servers that share a PostgreSQL.

A question that was asked on one server is answered on any, and its approval is used once. A row counts if it
carries the MAC of the servers: who has only the credential of the database can hide questions, and approve
none. Times are the database's; readers see them on their own clock.
"""

import asyncio
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from toolkeep.approval.approval_store import (
    OVER,
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
from toolkeep.errors import StoreUnavailable
from toolkeep.host.after_fork import register_after_fork
from toolkeep.limits import SESSION_SECONDS
from toolkeep.storage.postgres.shared_changes import IS_ALIVE, SharedChanges, announce
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.shared_register import SharedRegister
from toolkeep.storage.row_key import RowKey

log = logging.getLogger("toolkeep.approval")

Result = TypeVar("Result")

_TOPIC: Final = "approvals"
_POLL_SECONDS: Final = 2.0
"""Changes are heard, and once a second anything may have changed: this is for a thread that hangs."""
_SAME_CLOCK_SECONDS: Final = 1.0
"""A smaller difference between the clocks is not shown: times would change from one look to the next."""
_LATE: Final = 10_000
"""Questions that could not be withdrawn while the database was away."""

# Nobody waits for an answer on a server that has died, or has lost the database.
_SEEN = f"JOIN shared_servers ON shared_servers.id = server WHERE {IS_ALIVE}"
_SELECT = "SELECT shared_questions.id, state, question, answer, token, mac FROM shared_questions"
_INSERT = """
INSERT INTO shared_questions
    (id, agent, server, asked_at, expires_at, state, question, answer, token, mac)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET id = excluded.id
"""
_UPDATE = (
    "UPDATE shared_questions SET state = %s, question = %s, answer = %s, token = %s, mac = %s WHERE id = %s"
)
# What another transaction holds is deleted another time: nobody waits for that.
_FORGET = """
DELETE FROM shared_questions WHERE id IN
    (SELECT id FROM shared_questions WHERE expires_at < %s FOR UPDATE SKIP LOCKED)
"""
_SIZES = "SELECT octet_length(question) FROM shared_questions"
_SESSION = """
INSERT INTO shared_session_answers (question, session, answer, constraints, given_at, mac)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (question) DO UPDATE SET question = excluded.question
"""


class _Sealed(NamedTuple):
    """What a row says, with its MAC."""

    state: str
    question: bytes
    answer: bytes | None
    token: str
    """Of the change that made it what it is."""
    mac: bytes


class _Row(NamedTuple):
    """A row whose MAC was checked."""

    standing: Standing
    token: str


def _database_clock(connection: Any) -> float:
    (now,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    return float(now)


class PostgresApprovals:
    """The approvals of all servers of one keep."""

    def __init__(
        self,
        database: SharedDatabase,
        key: RowKey,
        changes: SharedChanges,
        folder: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        database_clock: Callable[[Any], float] = _database_clock,
    ) -> None:
        self._database = database
        self._key = key
        self._changes = changes
        self._rules = SharedRegister("approval-rules", Rule, database, key, folder)
        self._clock = clock
        self._database_clock = database_clock
        self._ahead_s = 0.0
        """By how much this server's clock is ahead of the database's."""
        self._late: set[str] = set()
        self.leave_to_parent()
        register_after_fork(self)

    def leave_to_parent(self) -> None:
        """After fork(), in the child: the thread is the parent's."""
        # One thread, as there is one connection: a question is withdrawn after it was asked, never before.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="toolkeep-approvals")
        self._late_lock = threading.Lock()

    def close(self) -> None:
        """Close the connection."""
        self._thread.shutdown()
        self._database.close()

    async def run(self, method: Callable[..., Result], *arguments: object) -> Result:
        """Call a method in a thread."""
        try:
            called = asyncio.get_running_loop().run_in_executor(self._thread, partial(method, *arguments))
        except RuntimeError as error:  # closed meanwhile
            raise StoreUnavailable(self._database.place.shown, "was closed", hint="open the keep") from error
        return await called

    @contextmanager
    def watch(self, heard: Callable[[str], object]) -> Iterator[float]:
        """Call `heard` when a question changed on any server."""
        stop = self._changes.watch(_TOPIC, heard)
        try:
            yield _POLL_SECONDS
        finally:
            stop()

    def ask(self, question: Question) -> bool:
        """Queue a question; False where its agent has too much in the queue already, over all servers."""

        def ask(connection: Any) -> bool:
            now = self._read_clock(connection)
            asked = _moved(question, -self._ahead_s)
            agent = question.agent.encode()
            # Of one agent, one asks at a time: two servers must not both see room for one more.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (agent.hex(),))
            connection.execute(_FORGET, (now - 60,))  # expired questions hold arguments
            _forget_oldest(connection, agent)
            query = (
                f"{_SIZES} {_SEEN} AND agent = %s AND state = 'waiting' AND expires_at > %s "
                "AND shared_questions.id <> %s"
            )
            sizes = [size for (size,) in connection.execute(query, (agent, now, question.id))]
            sealed = self._sealed(Standing(question=asked, state="waiting"), "")
            if not has_room(sizes, len(sealed.question)):
                return False
            server = self._changes.appear(connection)
            row = (asked.id, agent, server, asked.asked_at, asked.expires_at, *sealed)
            connection.execute(_INSERT, row)
            announce(connection, _TOPIC, asked.id)
            return True

        return self._change(ask)

    def answer(self, question_id: str, answer: Answer) -> Standing:
        """Store an answer; raises `AnswerRefused` where it is not accepted."""
        token = secrets.token_hex(8)

        def decide(connection: Any) -> Standing:
            row = self._find(connection, question_id, is_locked=True)
            if row is None:
                raise AnswerRefused("there is no such approval request")
            now = self._read_clock(connection)
            standing = row.standing
            if row.token != token:  # else it was stored, and its acknowledgement was lost
                if standing.state == "waiting" and not _is_asker_seen(connection, question_id):
                    raise AnswerRefused("the server that made the call has ended")
                standing = advance(standing, answer, now)
            self._write(connection, standing, token)
            given = standing.answer
            if given is not None and standing.state == "approved" and given.reach == "session":
                self._approve_session(connection, standing, given)
            announce(connection, _TOPIC, question_id)
            return self._shown(standing)

        return self._change(decide)

    def is_waiting(self, question_id: str) -> bool:
        """Whether a question is unanswered; by itself this permits nothing."""
        query = "SELECT 1 FROM shared_questions WHERE id = %s AND state = 'waiting'"
        return self._read(lambda connection: bool(connection.execute(query, (question_id,)).fetchone()))

    def standing(self, question_id: str) -> Standing | None:
        """The state of a question."""

        def read(connection: Any) -> Standing | None:
            row = self._find(connection, question_id)
            now = self._read_clock(connection)
            return None if row is None else self._shown(seen_at(row.standing, now))

        return self._read(read)

    def use(self, question: Question) -> bool:
        """Use the approval of exactly this question, once; False where there is none, or it was used."""
        token = secrets.token_hex(8)

        def use(connection: Any) -> bool:
            # Locked: of two servers, one finds it approved.
            row = self._find(connection, question.id, is_locked=True)
            if row is None:
                return False
            standing, now = row.standing, self._read_clock(connection)
            is_approved = standing.state == "approved" and now < standing.question.expires_at
            # With our token, it is used by this very call, and the acknowledgement was lost.
            if row.token != token and not (is_approved and bound(standing.question) == bound(question)):
                return False
            self._write(connection, replace(standing, state="used"), token)
            return True

        return self._change(use)

    def withdraw(self, question_id: str) -> None:
        """Withdraw a question, because its caller stopped waiting; an answer stays.

        While the database is away, it is remembered, and withdrawn as soon as that is back.
        """
        with self._late_lock:
            if len(self._late) < _LATE:
                self._late.add(question_id)
        self._change(lambda _: None)

    def waiting(self) -> list[Standing]:
        """The unanswered questions, oldest first."""
        query = f"{_SELECT} {_SEEN} AND state = 'waiting' AND expires_at > %s ORDER BY asked_at, 1"

        def read(connection: Any) -> list[Standing]:
            now = self._read_clock(connection)
            rows = [self._checked(*row) for row in connection.execute(query, (now,))]
            standings = [row.standing for row in rows if row is not None]
            return [self._shown(one) for one in standings if seen_at(one, now).state == "waiting"]

        return self._read(read)

    def session_answer(self, question: Question) -> Answer | None:
        """The session approval that covers a question."""
        if not question.session:
            return None
        query = (
            "SELECT question, answer, constraints, mac FROM shared_session_answers "
            "WHERE session = %s ORDER BY given_at DESC"
        )
        session = _session_digest(question)

        def read(connection: Any) -> Answer | None:
            now = self._read_clock(connection)
            rows = connection.execute(query, (session,)).fetchall()
            given = [one for row in rows if (one := self._session_yes(session, *row)) is not None]
            answer = covering(given, question, now)
            return None if answer is None else _given(answer, self._ahead_s)

        # As a change: a database that was restored from a backup would know approvals that are over.
        return self._change(read)

    def rules(self) -> list[Rule]:
        """The rules that have not expired."""
        now = self._read(self._read_clock)
        rules = sorted(self._rules.read().values(), key=lambda rule: rule.id)
        return [_moved_rule(rule, self._ahead_s) for rule in rules if now < rule.ends_at]

    def add_rule(self, rule: Rule) -> None:
        """Store a rule."""
        now = self._read(self._read_clock)

        def add(rules: dict[str, Rule]) -> None:
            for over in [one.id for one in rules.values() if one.ends_at <= now]:
                del rules[over]
            rules[rule.id] = _moved_rule(rule, -self._ahead_s)

        self._rules.change(add)

    def revoke(self, rule_id: str) -> bool:
        """Revoke a rule; whether there was one."""
        return self._rules.change(lambda rules: rules.pop(rule_id, None)) is not None

    def _change(self, work: Callable[[Any], Result]) -> Result:
        with self._late_lock:
            late = sorted(self._late)

        def all_of(connection: Any) -> Result:
            for question_id in late:
                self._withdraw(connection, question_id)
            return work(connection)

        done = self._database.change(all_of)
        with self._late_lock:
            self._late.difference_update(late)
        return done

    def _read(self, work: Callable[[Any], Result]) -> Result:
        return self._change(work) if self._late else self._database.read(work)

    def _withdraw(self, connection: Any, question_id: str) -> None:
        row = self._find(connection, question_id, is_locked=True)
        now = self._read_clock(connection)
        if row is not None and seen_at(row.standing, now).state == "waiting":
            self._write(connection, replace(row.standing, state="withdrawn"), "")
            announce(connection, _TOPIC, question_id)

    def _find(self, connection: Any, question_id: str, *, is_locked: bool = False) -> _Row | None:
        if not question_id.isascii() or not question_id.isprintable():
            return None  # none of ours, and no text for PostgreSQL
        locked = " FOR UPDATE" if is_locked else ""
        row = connection.execute(f"{_SELECT} WHERE id = %s{locked}", (question_id,)).fetchone()
        # By the id that was asked for: the database could answer with the row of another question.
        return None if row is None else self._checked(question_id, *row[1:])

    def _checked(self, question_id: str, *row: Any) -> _Row | None:
        """A row that a server of the keep wrote; any other is as if it were not there."""
        sealed = _Sealed(*row)
        if not self._key.is_authentic(sealed.mac, *_parts(question_id, sealed)):
            log.warning("an approval request was changed in the database, and does not count")
            return None
        asked = msgspec.json.decode(sealed.question, type=Question)
        given = msgspec.json.decode(sealed.answer, type=Answer) if sealed.answer else None
        standing = Standing(question=asked, state="waiting", answer=given)
        return _Row(replace(standing, state=sealed.state), sealed.token)

    def _sealed(self, standing: Standing, token: str) -> _Sealed:
        question = msgspec.json.encode(standing.question)
        answer = None if standing.answer is None else msgspec.json.encode(standing.answer)
        sealed = _Sealed(standing.state, question, answer, token, b"")
        return sealed._replace(mac=self._key.mac(*_parts(standing.question.id, sealed)))

    def _write(self, connection: Any, standing: Standing, token: str) -> None:
        connection.execute(_UPDATE, (*self._sealed(standing, token), standing.question.id))

    def _approve_session(self, connection: Any, standing: Standing, given: Answer) -> None:
        """Store a session approval. It is that of one question, so a repetition changes nothing."""
        over = given.given_at - SESSION_SECONDS
        connection.execute("DELETE FROM shared_session_answers WHERE given_at <= %s", (over,))
        question = standing.question
        answer, constraints = map(msgspec.json.encode, session_yes(question, given, given.given_at))
        parts = question.id, _session_digest(question), answer, constraints
        row = (*parts, given.given_at, self._key.mac("session answer", *parts))
        connection.execute(_SESSION, row)

    def _session_yes(
        self, session: str, question_id: str, answer: bytes, constraints: bytes, mac: bytes
    ) -> SessionYes | None:
        """An approval for exactly this session; the database could answer with that of another."""
        if not self._key.is_authentic(mac, "session answer", question_id, session, answer, constraints):
            log.warning("an approval for a session was changed in the database, and does not count")
            return None
        return SessionYes(
            msgspec.json.decode(answer, type=Answer),
            msgspec.json.decode(constraints, type=tuple[Constraint, ...]),
        )

    def _read_clock(self, connection: Any) -> float:
        """The time of the database, by which everything is decided."""
        now = self._database_clock(connection)
        ahead_s = self._clock() - now
        self._database.check_clock(ahead_s)
        if abs(ahead_s - self._ahead_s) > _SAME_CLOCK_SECONDS:
            self._ahead_s = ahead_s
        return now

    def _shown(self, standing: Standing) -> Standing:
        """A question with its times on this server's clock."""
        question = _moved(standing.question, self._ahead_s)
        answer = None if standing.answer is None else _given(standing.answer, self._ahead_s)
        return replace(standing, question=question, answer=answer)


def _moved(question: Question, by_s: float) -> Question:
    asked_at, expires_at = question.asked_at + by_s, question.expires_at + by_s
    return replace(question, asked_at=asked_at, expires_at=expires_at) if by_s else question


def _given(answer: Answer, by_s: float) -> Answer:
    return replace(answer, given_at=answer.given_at + by_s) if by_s else answer


def _moved_rule(rule: Rule, by_s: float) -> Rule:
    return replace(rule, made_at=rule.made_at + by_s, ends_at=rule.ends_at + by_s) if by_s else rule


def _parts(question_id: str, row: _Sealed) -> tuple[str | bytes, ...]:
    """All that decides. The question holds what it is bound to, and when it expires."""
    return "question", question_id, row.state, row.question, row.answer or b"", row.token


def _session_digest(question: Question) -> str:
    """What a session approval is bound to."""
    return hashlib.sha256(msgspec.json.encode(session_key(question))).hexdigest()


def _is_asker_seen(connection: Any, question_id: str) -> bool:
    query = f"{_SELECT} {_SEEN} AND shared_questions.id = %s"
    return connection.execute(query, (question_id,)).fetchone() is not None


def _forget_oldest(connection: Any, agent: bytes) -> None:
    """Bound the closed questions of an agent: one that asks and withdraws in a loop would fill the disk."""
    query = (
        "SELECT id, octet_length(question) FROM shared_questions "
        "WHERE agent = %s AND state = ANY(%s) ORDER BY asked_at DESC, id"
    )
    sizes: list[int] = []
    for question_id, size in connection.execute(query, (agent, list(OVER))).fetchall():
        if has_room(sizes, size):
            sizes.append(size)
        else:
            connection.execute("DELETE FROM shared_questions WHERE id = %s", (question_id,))
