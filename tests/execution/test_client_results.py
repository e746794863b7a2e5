"""Calls that wait for a client's result."""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from tests.execution.test_result_cache import recorded
from toolkeep.calls import RecordedCall
from toolkeep.execution import client_results as pending_module
from toolkeep.execution.client_results import PendingCalls
from toolkeep.execution.idempotency import NO_CLAIM, Claim

pytestmark = pytest.mark.spec("EXE-6")


def call(call_id: str, agent: str = "local", size: int = 1) -> RecordedCall:
    made = recorded()
    request = msgspec.structs.replace(made.request, id=call_id, agent=agent)
    permitted = msgspec.structs.replace(made.approved.permitted, request=request)
    approved = msgspec.structs.replace(made.approved, permitted=permitted)
    return msgspec.structs.replace(made, request=request, approved=approved, argument_bytes=size)


def taken(pending: PendingCalls, call_id: str, agent: str = "local") -> RecordedCall | None:
    found = pending.take(call_id, agent)
    return found[0] if found else None


def test_a_call_is_taken_once_with_its_claim() -> None:
    pending, waits, claim = PendingCalls(), call("1"), Claim(None, "key")
    pending.put(waits, claim)
    assert pending.take("1", "local") == (waits, claim)
    assert pending.take("1", "local") is None


def test_only_the_agent_that_called_takes_it() -> None:
    pending, waits = PendingCalls(), call("1", "planner")
    pending.put(waits, NO_CLAIM)
    assert taken(pending, "1", "local") is None
    assert taken(pending, "1", "planner") is waits


def test_an_unknown_id_finds_nothing() -> None:
    assert PendingCalls().take("1", "local") is None


def test_the_oldest_gives_way_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "PENDING_CALLS", 2)
    pending, calls = PendingCalls(), [call(str(number)) for number in range(3)]
    claims = [Claim(None, str(number)) for number in range(3)]
    gave_way = [pending.put(one, claim) for one, claim in zip(calls, claims, strict=True)]
    assert gave_way == [[], [], [(calls[0], claims[0])]]
    assert [taken(pending, str(number)) for number in range(3)] == [None, calls[1], calls[2]]


def test_an_agent_pushes_out_only_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "PENDING_CALLS", 3)
    pending, calls = PendingCalls(), [call("0", "ada"), *(call(str(number), "bob") for number in range(1, 5))]
    for one in calls:
        pending.put(one, NO_CLAIM)
    assert taken(pending, "0", "ada") is calls[0]
    found = [taken(pending, str(number), "bob") for number in range(1, 5)]
    assert found == [None, None, calls[3], calls[4]]


def test_who_holds_most_gives_way_when_they_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "PENDING_BYTES", 100)
    pending = PendingCalls()
    small = [call(str(number), "ada", size=10) for number in range(3)]
    large = [call(str(number), "bob", size=35) for number in range(3, 6)]
    gave_way = [pending.put(one, NO_CLAIM) for one in (*small, large[0], large[1], large[2])]
    assert gave_way == [[], [], [], [], [], [(large[0], NO_CLAIM)]]
    assert [(taken(pending, str(number), "ada")) for number in range(3)] == small
    assert pending.put(call("6", "bob", size=60), NO_CLAIM) == [(large[1], NO_CLAIM)]


def test_one_that_is_large_pushes_out_as_many_as_it_takes_the_room_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_module, "PENDING_BYTES", 100)
    pending, calls = PendingCalls(), [call(str(number), size=30) for number in range(3)]
    for one in calls:
        pending.put(one, NO_CLAIM)
    assert pending.put(call("3", size=60), NO_CLAIM) == [(one, NO_CLAIM) for one in calls[:2]]


def test_of_several_threads_exactly_one_takes_a_call() -> None:
    pending = PendingCalls()
    for number in range(50):
        pending.put(call(str(number)), NO_CLAIM)
    with ThreadPoolExecutor(8) as pool:
        tries = list(pool.map(lambda n: taken(pending, str(n % 50)), range(400)))
    assert len([one for one in tries if one is not None]) == 50
