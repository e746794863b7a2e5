"""Sessions and measures of servers that share a PostgreSQL: what one puts another sees, and forged rows."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from tests.storage.postgres.cut_link import CutLink, cut_link
from tests.storage.postgres.servers import shared_states
from toolkeep.errors import StoreUnavailable
from toolkeep.flow.measures import MOST
from toolkeep.flow.session_state import CLEAN, FALLEN, Snapshot
from toolkeep.flow.session_store import Addition, Window
from toolkeep.storage.postgres import shared_database
from toolkeep.storage.postgres.sessions_table import PostgresSessionStates
from toolkeep.storage.sql.database_location import SCHEMA

OPENED, SECRET = Snapshot(opened=True, after=frozenset({"read"})), Snapshot(secret=True)
PAID, DAY = "agent\nada", 86_400.0
ADDED, SUM = Addition("pay", PAID, 5, DAY), Window("pay", PAID, 0.0)
OTHER = Addition("send", "agent\nada", 1, DAY)


@pytest.fixture
def url(postgres: Cluster) -> str:
    return postgres.clean()


@pytest.fixture
def servers(url: str) -> Iterator[Callable[[], PostgresSessionStates]]:
    with contextlib.ExitStack() as closing:
        yield lambda: closing.enter_context(contextlib.closing(shared_states(url)))


Servers = Callable[[], PostgresSessionStates]


def saved(postgres: Cluster, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of tables, as whoever has the credential copies them."""
    import psycopg

    with psycopg.connect(postgres.url("made")) as connection:
        queries = {table: f"SELECT * FROM {SCHEMA}.{table}" for table in tables}  # noqa: S608 -- our own
        return {table: connection.execute(query.encode()).fetchall() for table, query in queries.items()}


def put_back(postgres: Cluster, rows: dict[str, list[tuple[Any, ...]]]) -> None:
    import psycopg

    with psycopg.connect(postgres.url("made")) as connection:
        for table, held in rows.items():
            connection.execute(f"DELETE FROM {SCHEMA}.{table}".encode())  # noqa: S608 -- our own
            for row in held:
                marks = ", ".join(["%s"] * len(row))
                connection.execute(f"INSERT INTO {SCHEMA}.{table} VALUES ({marks})".encode(), row)  # noqa: S608


def test_states_of_two_servers_fall_together_until_a_person_ends_the_session(servers: Servers) -> None:
    one, other = servers(), servers()
    assert (one.get("s"), one.generation == one.generation) == (None, False)
    one.put("s", Snapshot(opened=True), 10.0)
    one.put("s", OPENED, 10.0)
    assert other.get("s") == OPENED
    other.put("s", SECRET, 20.0)
    assert one.get("s") == OPENED.joined(SECRET)
    assert (one.get("s", since=20.0), one.get("s", since=20.5)) == (OPENED.joined(SECRET), None)
    with ThreadPoolExecutor(8) as threads:
        puts = [
            threads.submit(each.put, "t", Snapshot(hosts=frozenset({f"{n}"})), 1.0)
            for n in range(20)
            for each in (one, other)
        ]
        assert [one.result() for one in puts] == [None] * 40
    assert one.get("t") == other.get("t") == Snapshot(hosts=frozenset(map(str, range(20))))
    assert one.get("s") == OPENED.joined(SECRET)
    other.end("s", 0.0)
    ended = one.get("s")
    assert ended is not None
    assert ended == Snapshot(begun=ended.begun) != CLEAN
    assert [key for key, _, _ in one.stored()] == ["s", "t"]


def test_a_session_at_rest_is_forgotten_and_not_taken_for_a_lost_one(servers: Servers) -> None:
    one, other = servers(), servers()
    one.put("s", OPENED, 10.0)
    assert other.get("s", since=5.0) == OPENED
    one.forget("s", since=10.0)
    assert other.get("s", since=5.0) == OPENED
    one.forget("s", since=11.0)
    assert one.get("s", since=11.0) is None
    one.put("s", SECRET, 20.0)
    assert other.get("s", since=11.0) == SECRET  # of the next one by that name


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE {}.shared_sessions SET state = '{{}}'",
        "UPDATE {}.shared_sessions SET put_at = 0",
        "UPDATE {}.shared_sessions SET mac = NULL",
        "UPDATE {}.shared_sessions SET key = CASE key WHEN 's' THEN 'x' ELSE 's' END",
        "DELETE FROM {}.shared_sessions",
    ],
)
def test_a_row_that_no_server_wrote_or_that_is_gone_has_seen_everything(
    postgres: Cluster, servers: Servers, forged: str
) -> None:
    one, late = servers(), servers()
    one.put("s", OPENED, 10.0)
    one.put("clean", CLEAN, 10.0)
    postgres.execute("made", forged.format(SCHEMA))
    assert one.get("s", since=5.0) == FALLEN
    one.forget("s", since=100.0)
    is_gone = forged.startswith("DELETE")
    assert late.get("s") == (None if is_gone else FALLEN)  # who never saw it does not miss it
    one.put("s", SECRET, 20.0)
    assert late.get("s") == FALLEN  # from now on, everywhere
    one.end("s", 0.0)
    assert (one.get("s") or FALLEN).opened is False


def test_an_older_row_that_is_put_back_washes_no_session_that_this_server_saw(
    postgres: Cluster, servers: Servers
) -> None:
    one, late = servers(), servers()
    one.put("s", CLEAN, 10.0)
    before = saved(postgres, "shared_sessions")
    one.put("s", OPENED, 20.0)
    put_back(postgres, before)
    assert (one.get("s", since=20.0), late.get("s")) == (OPENED, CLEAN)
    one.put("s", SECRET, 30.0)
    assert late.get("s") == OPENED.joined(SECRET)


def test_calls_at_once_through_two_servers_each_see_another_sum(servers: Servers) -> None:
    one, other = servers(), servers()

    def reserve(number: int) -> int:
        (found,) = (one, other)[number % 2].reserve(f"c{number}", [ADDED, OTHER], [SUM], 1e9)
        return found

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(reserve, range(80))) == [5 * number for number in range(80)]
    one.close()  # as if it was killed: what its calls reserved counts
    assert servers().reserve("late", [], [SUM], 1e9) == other.reserve("late", [], [SUM], 1e9) == [400]


def test_sums_stay_right_while_old_additions_are_removed(postgres: Cluster, servers: Servers) -> None:
    one, other = servers(), servers()
    lasting = Addition("pay", "session\ns", 1, None)
    for number in range(200):
        each, now = (one, other)[number % 2], 1e9 + number * DAY / 10
        windows = [SUM._replace(since=now - DAY), Window("pay", "session\ns", None)]
        assert each.reserve(f"c{number}", [ADDED, lasting], windows, now) == [5 * min(number, 9), number]
    assert servers().reserve("late", [], windows, now) == [50, 200]
    assert max(map(len, saved(postgres, "shared_additions").values())) < 200


@pytest.mark.parametrize(
    ("forged", "late_sum"),
    [
        ("UPDATE {0}.shared_additions SET value = 0 WHERE version = 1", MOST),
        ("UPDATE {0}.shared_additions SET at = 0", MOST),
        ("UPDATE {0}.shared_additions SET call = 'c9' WHERE version = 1", MOST),
        ("UPDATE {0}.shared_measures SET pruned = version", MOST),
        ("DELETE FROM {0}.shared_additions", MOST),
        ("DELETE FROM {0}.shared_additions WHERE version = 2", MOST),
        ("DELETE FROM {0}.shared_measures", 0),
        ("DELETE FROM {0}.shared_additions; DELETE FROM {0}.shared_measures", 0),
    ],
)
def test_an_altered_measure_never_lowers_a_sum_that_a_server_saw(
    postgres: Cluster, servers: Servers, forged: str, late_sum: int
) -> None:
    one, late = servers(), servers()
    for number in (1, 2):
        one.reserve(f"c{number}", [ADDED], [SUM], 1e9)
    postgres.execute("made", forged.format(SCHEMA))
    assert late.reserve("other", [], [SUM], 1e9) == [late_sum]
    seen = one.reserve("c3", [ADDED], [SUM], 1e9)[0]
    assert seen == MOST if "shared_measures" in forged else seen == 10


def test_older_measures_that_are_put_back_are_over_any_limit(postgres: Cluster, servers: Servers) -> None:
    one = servers()
    one.reserve("c1", [ADDED], [SUM], 1e9)
    before = saved(postgres, "shared_measures", "shared_additions")
    one.reserve("c2", [ADDED], [SUM], 1e9)
    put_back(postgres, before)
    assert one.reserve("c3", [ADDED], [SUM], 1e9) == [MOST]
    one.release("c3", [ADDED])
    assert one.reserve("c3", [ADDED], [SUM], 1e9) == [MOST]


def test_another_key_reads_nothing(url: str, servers: Servers) -> None:
    one = servers()
    one.put("s", OPENED, 10.0)
    one.reserve("c1", [ADDED], [SUM], 1e9)
    with contextlib.closing(shared_states(url, b"another key")) as stranger:
        assert stranger.get("s") == FALLEN
        assert stranger.reserve("c2", [], [SUM], 1e9) == [MOST]


@pytest.mark.parametrize("lost", [b"INSERT INTO shared_sessions", b"INSERT INTO shared_additions", b"COMMIT"])
def test_a_change_whose_answer_was_lost_is_made_once(postgres: Cluster, url: str, lost: bytes) -> None:
    with (
        cut_link(postgres.port) as link,
        contextlib.closing(shared_states(url.replace(str(postgres.port), str(link.port)))) as one,
        contextlib.closing(shared_states(url)) as other,
    ):
        _lose(link, one, lost)
        assert (other.get("s"), other.reserve("c2", [], [SUM], 1e9)) == (OPENED, [5])
        assert one.reserve("c3", [], [SUM], 1e9) == [5]


def _lose(link: CutLink, one: PostgresSessionStates, lost: bytes) -> None:
    one.get("other")
    link.cut_after = lost
    one.put("s", OPENED, 10.0)
    if lost == b"COMMIT":
        assert link.cuts == 1
        link.cut_after = lost
    assert one.reserve("c1", [ADDED], [SUM], 1e9) == [0]
    assert link.cuts == 1 + (lost == b"COMMIT")


def test_while_the_database_is_away_nothing_is_known_and_afterwards_everything(
    postgres: Cluster, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_database, "_PATIENCE_SECONDS", 0.2)
    one = servers()
    one.put("s", OPENED, 10.0)
    one.reserve("c1", [ADDED], [SUM], 1e9)
    postgres.stop()
    for refused in (
        lambda: one.get("s"),
        lambda: one.put("s", SECRET, 20.0),
        lambda: one.reserve("c2", [ADDED], [SUM], 1e9),
    ):
        with pytest.raises(StoreUnavailable):
            refused()
    postgres.start()
    assert (one.get("s"), one.reserve("c2", [ADDED], [SUM], 1e9)) == (OPENED, [5])
