"""Claims of servers that share a PostgreSQL: answers that are lost, databases that go away, forged rows."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from tests.storage.postgres.cut_link import CutLink, cut_link
from toolkeep.errors import StoreUnavailable
from toolkeep.execution.idempotency import IdempotentResult
from toolkeep.storage.postgres import shared_database
from toolkeep.storage.postgres.ledger_table import PostgresLedger
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import SCHEMA, PostgresLocation

UNKNOWN = IdempotentResult(state="unknown", argument_hash="hash")
"""No server says that it lives in these tests."""


@pytest.fixture
def link(postgres: Cluster) -> Iterator[CutLink]:
    postgres.clean()
    with cut_link(postgres.port) as link:
        yield link


@contextlib.contextmanager
def server(port: int, key: bytes = b"key") -> Iterator[PostgresLedger]:
    place = PostgresLocation(f"postgresql://keep@127.0.0.1:{port}/made")
    with contextlib.closing(SharedDatabase(place, is_single=True)) as database:
        yield PostgresLedger(database, RowKey(key))


def rows(postgres: Cluster) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(postgres.url("made")) as connection:
        query = f"SELECT key, call_id, result FROM {SCHEMA}.shared_claims ORDER BY key"  # noqa: S608 -- our own
        return connection.execute(query.encode()).fetchall()


@pytest.mark.parametrize("lost", [b"INSERT INTO", b"COMMIT"])
def test_a_claim_whose_answer_was_lost_is_made_once_and_is_ours(
    postgres: Cluster, link: CutLink, lost: bytes
) -> None:
    async def claim() -> list[IdempotentResult | None]:
        with server(link.port) as one, server(postgres.port) as other:
            await one.claim("before", "call-0", "hash")
            link.cut_after = lost
            found = [await one.claim("key", "call-1", "hash"), await other.claim("key", "call-2", "hash")]
            await one.finish("key", "call-1", "hash", b"done")
            return [*found, await other.claim("key", "call-3", "hash")]

    done = IdempotentResult(state="done", argument_hash="hash", result=b"done")
    assert asyncio.run(claim()) == [None, UNKNOWN, done]
    assert link.cuts == 1
    assert rows(postgres) == [("before", "call-0", None), ("key", "call-1", b"done")]


@pytest.mark.parametrize("lost", [b"UPDATE", b"COMMIT"])
def test_a_result_whose_acknowledgement_was_lost_is_stored(
    postgres: Cluster, link: CutLink, lost: bytes
) -> None:
    async def call() -> None:
        with server(link.port) as one:
            await one.claim("key", "call-1", "hash")
            link.cut_after = lost
            await one.finish("key", "call-1", "hash", b"done")

    asyncio.run(call())
    assert (link.cuts, rows(postgres)) == (1, [("key", "call-1", b"done")])


def test_while_the_database_is_away_claims_are_refused_and_what_was_left_is_settled_when_it_is_back(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_database, "_PATIENCE_SECONDS", 0.2)
    postgres.clean()

    async def outage() -> None:
        with server(postgres.port) as one:
            for number in (1, 2):
                await one.claim(f"key-{number}", f"call-{number}", "hash")
            postgres.stop()
            for change in (
                one.claim("key-3", "call-3", "hash"),
                one.finish("key-1", "call-1", "hash", b"done"),
                one.release("key-2", "call-2"),
            ):
                with pytest.raises(StoreUnavailable):
                    await change
            postgres.start()
            assert await one.claim("key-4", "call-4", "hash") is None

    asyncio.run(outage())
    assert rows(postgres) == [("key-1", "call-1", b"done"), ("key-4", "call-4", None)]


def test_a_claim_on_a_row_whose_transaction_is_open_is_refused(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(shared_database, "_LOCK_MS", 200)
    postgres.clean()
    query = f"INSERT INTO {SCHEMA}.shared_claims VALUES ('key', 'call-9', 'hash', 'other')"  # noqa: S608 -- our own

    async def claim() -> IdempotentResult | None:
        with server(postgres.port) as one:
            with psycopg.connect(postgres.url("made")) as other:  # as if it waited for a standby
                other.execute(query.encode())
                with pytest.raises(StoreUnavailable):
                    await one.claim("key", "call-1", "hash")
            return await one.claim("key", "call-2", "hash")

    assert asyncio.run(claim()) == UNKNOWN


def test_of_two_servers_exactly_one_claims_each_key_whatever_the_order(postgres: Cluster) -> None:
    postgres.clean()
    keys = [f"key-{number}" for number in range(40)]

    async def race() -> list[int]:
        with server(postgres.port) as one, server(postgres.port) as other:
            first = [one.claim(key, f"one {key}", "hash") for key in keys]
            second = [other.claim(key, f"other {key}", "hash") for key in reversed(keys)]
            found = await asyncio.gather(*first, *second)
        won = [earlier is None for earlier in found]
        return [int(a) + int(b) for a, b in zip(won[:40], reversed(won[40:]), strict=True)]

    for _ in range(3):
        postgres.clean()
        assert asyncio.run(race()) == [1] * 40


@pytest.mark.parametrize(
    "forged", ["result = 'forged'", "key = 'key', mac = NULL", "argument_hash = 'other'"]
)
def test_a_result_that_no_server_of_the_keep_wrote_is_not_given_out(postgres: Cluster, forged: str) -> None:
    postgres.clean()
    statement = f"UPDATE {SCHEMA}.shared_claims SET {forged}"  # noqa: S608 -- our own words

    async def claim() -> list[IdempotentResult | None]:
        with server(postgres.port) as one, server(postgres.port, b"another key") as other:
            await one.claim("key", "call-1", "hash")
            await one.finish("key", "call-1", "hash", b"done")
            found = [await other.claim("key", "call-2", "hash")]
            postgres.execute("made", statement)
            return [*found, await one.claim("key", "call-3", "hash")]

    assert [earlier and earlier.state for earlier in asyncio.run(claim())] == ["unknown", "unknown"]


def test_without_synchronous_replication_nothing_is_claimed_unless_there_is_one_database_only(
    postgres: Cluster,
) -> None:
    place = PostgresLocation(postgres.clean())
    ledger = PostgresLedger(SharedDatabase(place), RowKey(b"key"))
    with pytest.raises(StoreUnavailable, match="does not replicate synchronously"):
        asyncio.run(ledger.claim("key", "call-1", "hash"))
    assert rows(postgres) == []


def test_a_database_that_is_closed_for_good_opens_no_connection(postgres: Cluster) -> None:
    database = SharedDatabase(PostgresLocation(postgres.clean()), is_single=True)
    database.close()
    with pytest.raises(StoreUnavailable):
        database.change(lambda connection: connection.execute("SELECT 1"))
