"""Sums over windows and sessions, in memory and in the state folder (FLO-4)."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.storage.postgres.servers import shared_states
from toolkeep.flow.measures import AMOUNT, MOST, PLACES, read_measures
from toolkeep.flow.meter import Caller, Meter, Reserved
from toolkeep.flow.session_store import Addition, MemorySessionStates, SessionStates, Window
from toolkeep.storage.sqlite import sessions_db
from toolkeep.storage.sqlite.sessions_db import SqliteSessionStates

pytestmark = pytest.mark.spec("FLO-4")

DAY = 86_400.0
ADA, BOB = Caller("ada", "ada\ns1"), Caller("bob", "bob\ns1")
MEASURES = read_measures(
    {
        "today": {"sum": "pay/amount", "over": "24h"},
        "week": {"sum": "pay/amount", "over": "week"},
        "chat": {"sum": "pay/amount", "over": "session"},
        "bytes": {"sum": "result_bytes", "over": "24h"},
    },
    None,
)


class Shop:
    """A meter whose clock a test sets."""

    def __init__(self, states: SessionStates) -> None:
        self.now, self.states, self.calls = 1e9, states, 0
        self.meter = Meter(MEASURES, states, lambda: self.now)

    def pay(self, amount: Any, caller: Caller = ADA, call: str = "", tool: str = "pay") -> Reserved:
        self.calls += 1
        names = MEASURES.by_name
        return self.meter.reserve(
            call or f"c{self.calls}", caller, tool, {"amount": amount}, counted=names, read=names
        )

    def seen(self, caller: Caller = ADA) -> list[float]:
        """What a call of another tool would see: bytes, chat, today and week."""
        return [float(value) for value in self.pay(0, caller, tool="other").values.values()]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made: dict[str, Callable[[], SessionStates]] = {
        "memory": MemorySessionStates,
        "sqlite": lambda: SqliteSessionStates(tmp_path),
        "postgres": lambda: shared_states(request.getfixturevalue("postgres").clean()),
    }
    states = made[request.param]()
    yield Shop(states)
    states.close()


def test_a_window_slides_and_a_session_does_not(shop: Shop) -> None:
    assert shop.pay(100).values == {
        "bytes": "0.0000",
        "chat": "100.0000",
        "today": "100.0000",
        "week": "100.0000",
    }
    shop.now += DAY / 2
    shop.pay(50.25)
    assert shop.seen() == [0, 150.25, 150.25, 150.25]
    assert shop.seen(BOB) == [0, 0, 0, 0]
    shop.now += DAY / 2
    assert shop.seen() == [0, 150.25, 50.25, 150.25]
    shop.now += 3 * DAY
    assert shop.seen() == [0, 150.25, 0, 150.25]
    shop.now += 9 * DAY
    shop.pay(1)  # prunes, and folds the session's rows into one
    assert shop.seen() == [0, 151.25, 1, 1]
    shop.now += 2 * DAY
    shop.pay(2)
    assert shop.seen() == [0, 153.25, 2, 3]
    if isinstance(shop.states, SqliteSessionStates):
        with shop.states._measured.using() as connection:
            assert connection.execute("SELECT count(*) FROM measured").fetchone() == (4,)


def test_a_call_counts_once_and_a_refused_one_not_at_all(shop: Shop) -> None:
    first = shop.pay(100, call="a")
    shop.now += DAY - 1
    again = shop.pay(100, call="a")  # after an approval
    assert again.values == first.values
    shop.now += 2
    assert shop.seen() == [0, 100, 100, 100]  # it counts from the second decision on
    shop.meter.release(again)
    shop.meter.release(again)
    assert shop.seen() == [0, 0, 0, 0]


def test_a_dry_run_sees_the_sums_and_adds_nothing(shop: Shop) -> None:
    shop.pay(5)
    dry, names = Meter(MEASURES, shop.states, lambda: shop.now, is_dry=True), MEASURES.by_name
    for _ in range(2):
        seen = dry.reserve("explain", ADA, "pay", {"amount": 2}, counted=names, read=names)
        assert (seen.values["today"], seen.additions) == ("7.0000", ())
    assert shop.seen() == [0, 5, 5, 5]


def test_what_is_known_late_counts_for_later_calls_and_stays(shop: Shop) -> None:
    call = shop.pay(1, call="a")
    shop.meter.add(call, result_bytes=10, run_seconds=3)  # nothing measures seconds
    shop.meter.add(call, result_bytes=0.00001)  # rounded up
    assert shop.pay(1, call="a").values["bytes"] == "0.0000"
    shop.meter.release(call)
    assert shop.seen()[0] == 10.0001


def test_a_session_begins_anew(shop: Shop) -> None:
    shop.pay(5)
    shop.states.forget(ADA.session, since=shop.now)
    assert shop.seen()[1] == 5
    shop.states.forget(BOB.session, since=shop.now + 1)
    shop.states.forget(ADA.session, since=shop.now + 1)
    assert shop.seen() == [0, 0, 5, 5]
    shop.pay(5)
    shop.states.drop(ADA.session)
    assert shop.seen() == [0, 0, 10, 10]


def test_a_sum_beyond_any_decimal_is_the_largest(shop: Shop) -> None:
    huge = Addition("pay/amount", "agent\nada", MOST, DAY)
    for call in ("a", "b", "c"):
        shop.states.add(call, [huge], shop.now)
    assert shop.pay(1).values["today"] == "922337203685477.5807"
    with pytest.raises(ValueError, match="must be a number"):
        shop.pay(AMOUNT // PLACES + 1)


def test_two_processes_cannot_sum_before_either_adds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, real = threading.Barrier(2), sessions_db._sum

    def slow_sum(*given: Any) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # no second one comes while the first is in its transaction
        return real(*given)

    monkeypatch.setattr(sessions_db, "_sum", slow_sum)
    stores = [SqliteSessionStates(tmp_path) for _ in range(2)]
    addition, window = Addition("x", "agent\nada", 7, DAY), Window("x", "agent\nada", None)
    with ThreadPoolExecutor(2) as threads:
        found = [
            threads.submit(each.reserve, f"c{n}", [addition], [window], 1e9) for n, each in enumerate(stores)
        ]
        assert sorted(one.result() for one in found) == [[0], [7]]
    for each in stores:
        each.close()
