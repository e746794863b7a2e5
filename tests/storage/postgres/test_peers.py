"""What servers tell each other about their clients: kept for as long as it is needed, and no longer."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from tests.storage.cluster import Cluster
from tests.storage.two_keeps import execute
from toolkeep.limits import MCP_SESSIONS
from toolkeep.storage.postgres import peers as peers_module
from toolkeep.storage.postgres.event_table import Head
from toolkeep.storage.postgres.message_table import StoredMessage
from toolkeep.storage.postgres.peers import Peers
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.postgres.work_table import StoredWork
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import SCHEMA, PostgresLocation


def run(postgres: Cluster, act: Callable[[Peers], Coroutine[Any, Any, Any]]) -> Any:
    postgres.clean()
    database = SharedDatabase(PostgresLocation(postgres.url("made")), is_single=True)
    with contextlib.closing(database), contextlib.closing(SharedChanges(database, "test")) as changes:
        peers = Peers(database, changes, RowKey(b"key"), b"secret")

        async def whole() -> Any:
            with contextlib.closing(peers):
                return await act(peers)

        return asyncio.run(whole())


def count(postgres: Cluster, table: str, where: str = "true") -> int:
    import psycopg

    with psycopg.connect(postgres.url("made")) as connection:
        query = f"SELECT count(*) FROM {SCHEMA}.shared_{table} WHERE {where}"  # noqa: S608 -- our own
        (found,) = connection.execute(query.encode()).fetchone() or (0,)
    return int(found)


def work(name: str, server: str, *, is_over: bool) -> StoredWork:
    return StoredWork(id=name, kind="call", agent="a", server=server, state=b"", is_over=is_over)


def test_what_is_old_is_deleted_and_what_goes_on_is_kept(postgres: Cluster) -> None:
    async def act(peers: Peers) -> list[str]:
        head = Head(server="x", session="s", request=1)
        for stream in ("old", "long"):
            await peers.events.append(stream, 1, b"", head=head)
        await peers.work.put(work("ended", "x", is_over=True))
        await peers.work.put(work("lost", "x", is_over=False))
        await peers.work.put(work("waits", peers.server, is_over=False))
        await peers.tell("nobody", "kind", b"")
        hours = "= now() - interval '2 hours'"
        execute(
            postgres,
            f"UPDATE shared_events SET made_at {hours}; UPDATE shared_work SET changed_at {hours};"  # noqa: S608
            f"UPDATE shared_messages SET made_at {hours};"
            f"INSERT INTO shared_servers VALUES ('{peers.server}', 'test', now()) ON CONFLICT DO NOTHING",
        )
        await peers.events.append("long", 2, b"")
        await peers.events.expire()
        await peers.work.expire()
        await peers._messages.delete([])
        found = [await peers.work.find(name, "call", "a") for name in ("ended", "lost", "waits")]
        return [one.id for one in found if one is not None]

    assert run(postgres, act) == ["waits"]
    streams = [count(postgres, "events", f"stream = '{name}'") for name in ("old", "long")]
    assert (streams, count(postgres, "messages")) == ([0, 3], 0)


def test_names_of_clients_that_are_no_text_for_postgresql_fail_nothing(postgres: Cluster) -> None:
    async def act(peers: Peers) -> list[object]:
        found = peers.work.find("a\0b", "call", "a"), peers.request("a\0b", "answer", b"")
        return [*await asyncio.gather(*found), await peers.work.find("unknown", "call", "a")]

    assert run(postgres, act) == [None, None, None]


def test_forged_messages_are_deleted_unread(postgres: Cluster) -> None:
    async def act(peers: Peers) -> list[StoredMessage]:
        row = f"'forged', '{peers.server}', 'x', now(), 'x'"
        execute(postgres, f"INSERT INTO shared_messages VALUES ({row})")  # noqa: S608 -- our own words
        return await peers._messages.receive(peers.server)

    assert (run(postgres, act), count(postgres, "messages")) == ([], 0)


def test_an_event_beyond_the_limits_of_its_session_is_deleted_soon(
    postgres: Cluster, monkeypatch: Any
) -> None:
    monkeypatch.setattr(peers_module, "_DROP_SECONDS", 0.0)

    async def act(peers: Peers) -> None:
        for number in (1, 2, 3):
            await peers.events.append("stream", number, b"")
        peers.drop_later("stream", 2)
        await asyncio.sleep(0.01)
        peers._sweep()
        await asyncio.gather(*peers._tasks)

    run(postgres, act)
    assert [count(postgres, "events", f"number = {number}") for number in (1, 2, 3)] == [1, 0, 1]


def test_of_too_many_sessions_the_longest_idle_one_of_the_agent_with_most_is_ended(postgres: Cluster) -> None:
    async def act(peers: Peers) -> None:
        await peers.sessions.add("oldest", "modest", b"{}")
        execute(postgres, "UPDATE shared_mcp_sessions SET seen_at = now() - interval '50 minutes'")
        many = f"generate_series(2, {MCP_SESSIONS}) AS n"
        row = "'session-' || n, 'greedy', '', now() - n * interval '1 second', ''"
        execute(postgres, f"INSERT INTO shared_mcp_sessions SELECT {row} FROM {many}")  # noqa: S608 -- our own
        await peers.sessions.add("newest", "modest", b"{}")

    run(postgres, act)
    agents = [count(postgres, "mcp_sessions", f"agent = '{agent}'") for agent in ("modest", "greedy")]
    assert agents == [2, MCP_SESSIONS - 2]
    assert count(postgres, "mcp_sessions", f"id = 'session-{MCP_SESSIONS}'") == 0
