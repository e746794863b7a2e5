"""The logs of servers that share a PostgreSQL: what each publishes of its own, and what it asks the others.

A row of a log carries a MAC under the servers' key; one without does not count. Requests and answers carry
none: a checkpoint counts by its signature, and a witness answers nothing but what its own disk says.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolkeep.audit.witness_protocol import REQUEST_BYTES, Answer
from toolkeep.storage.log.witness_client import Ask
from toolkeep.storage.postgres.shared_changes import IS_ALIVE, announce
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey

TOPIC: Final = "logs"
"""Of requests and answers; the key is the name of the log whose server should look."""
_ANSWER_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1
_AT_ONCE: Final = 64
"""Requests that are answered in one transaction."""

_NOW = "SELECT (extract(epoch FROM now()) * 1000000)::bigint"
_PUBLISH = """
INSERT INTO shared_logs
(origin, key, witness_key, checkpoint, handover, trouble, server, name, copied, published_us, mac)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (origin) DO UPDATE SET
key = excluded.key, witness_key = excluded.witness_key, checkpoint = excluded.checkpoint,
handover = excluded.handover, trouble = excluded.trouble, server = excluded.server, name = excluded.name,
copied = excluded.copied,
published_us = excluded.published_us, mac = excluded.mac
"""
_PUBLISHED = f"""
SELECT origin, key, witness_key, checkpoint, handover, trouble, server, shared_logs.name, copied,
published_us, mac,
extract(epoch FROM now()) - published_us / 1000000.0,
coalesce({IS_ALIVE}, false)
FROM shared_logs LEFT JOIN shared_servers ON shared_servers.id = server ORDER BY origin
"""  # noqa: S608 -- our own words
_ASK = """
INSERT INTO shared_witness_requests (origin, witness, token, request) VALUES (%s, %s, %s, %s)
ON CONFLICT (origin, witness) DO UPDATE SET
token = excluded.token, request = excluded.request, status = NULL, answer = NULL
"""
_ANSWERED = """
SELECT status, answer FROM shared_witness_requests
WHERE origin = %s AND witness = %s AND token = %s AND status IS NOT NULL
"""
_ASKED = """
SELECT origin, token, left(request, %s) FROM shared_witness_requests
WHERE witness = %s AND status IS NULL LIMIT %s FOR UPDATE SKIP LOCKED
"""
_ANSWER = """
UPDATE shared_witness_requests SET status = %s, answer = %s WHERE origin = %s AND witness = %s AND token = %s
"""


class PublishedLog(NamedTuple):
    """What a server publishes of its log."""

    origin: str
    key: str
    """The verifier key of the log."""
    witness_key: str
    """The verifier key of the server as a witness."""
    checkpoint: str
    handover: str = ""
    """The checkpoint that the previous key signed together with this one; empty if there was none."""
    trouble: str = ""
    """What the server itself found wrong with its log."""
    server: str = ""
    """The process, among all that share the database; empty once it has ended."""
    name: str = ""
    """The name of the machine."""
    copied: str = ""
    """The newest checkpoint whose records are all copied."""


class SeenLog(NamedTuple):
    """A published log as another server reads it."""

    log: PublishedLog
    is_authentic: bool
    age_s: float
    """How long ago it was published, by the database's clock."""
    is_seen: bool
    """Whether its server marked itself as alive a moment ago."""


class LogTable:
    """Reads and writes the rows of one server."""

    def __init__(self, database: SharedDatabase, key: RowKey) -> None:
        self._database = database
        self._key = key

    @property
    def server(self) -> str:
        """This process, among all that share the database."""
        return self._database.server

    def publish(self, log: PublishedLog) -> None:
        """Publish the log of this server."""

        def work(connection: Any) -> None:
            (now,) = connection.execute(_NOW).fetchone()
            # With the time: a row that is put back looks as old as it is.
            connection.execute(_PUBLISH, (*log, now, self._key.mac("log", *log, str(now))))

        self._database.change(work)

    def published(self) -> list[SeenLog]:
        """The logs of all servers, also of those that have ended."""
        rows = self._database.change(lambda connection: connection.execute(_PUBLISHED).fetchall())
        found = []
        for row in rows:
            log, (published, mac, age_s, is_seen) = PublishedLog(*row[:9]), row[9:]
            is_authentic = self._key.is_authentic(mac, "log", *log, str(published))
            found.append(SeenLog(log, is_authentic, float(age_s), is_seen))
        return found

    def asking(self, origin: str, witness: str) -> Ask:
        """Carries requests of a log to the server of another one, its witness."""

        async def ask(request: str) -> Answer:
            token = secrets.token_hex(16)
            await asyncio.to_thread(self._ask, origin, witness, token, request)
            async with asyncio.timeout(_ANSWER_SECONDS):
                while True:
                    await asyncio.sleep(_POLL_SECONDS)
                    if answer := await asyncio.to_thread(self._answered, origin, witness, token):
                        return answer

        return ask

    def answer(self, witness: str, respond: Callable[[str], Answer]) -> None:
        """Answer what others ask this server."""

        def work(connection: Any) -> None:
            asked = connection.execute(_ASKED, (REQUEST_BYTES, witness, _AT_ONCE)).fetchall()
            # Run again after a lost answer, a witness says from which size to ask again.
            for origin, token, request in asked:
                status, text = respond(request)
                connection.execute(_ANSWER, (status, text, origin, witness, token))

        self._database.change(work)

    def _ask(self, origin: str, witness: str, token: str, request: str) -> None:
        def work(connection: Any) -> None:
            connection.execute(_ASK, (origin, witness, token, request))
            announce(connection, TOPIC, witness)

        self._database.change(work)

    def _answered(self, origin: str, witness: str, token: str) -> Answer | None:
        row = self._database.change(
            lambda connection: connection.execute(_ANSWERED, (origin, witness, token)).fetchone()
        )
        return Answer(*row) if row else None
