"""The circuit breaker: a tool that keeps failing is left alone for a while."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.calls.test_order import held
from toolkeep import Code, Keep, tool
from toolkeep.calls import ToolCall, ToolResult
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.execution.circuit_breaker import CircuitBreaker
from toolkeep.limits import CallLimits
from toolkeep.stores.records import MemoryRecord
from toolkeep.testing import FakeClock

pytestmark = pytest.mark.spec("EXE-7")

LIMITS = CallLimits(failures_in_a_row=3, suspended_s=30.0)
REQUEST = ToolCall(id="1", tool="read", arguments={}, agent="local", correlation_id="c")


def failed(times: int, clock: FakeClock) -> CircuitBreaker:
    breaker = CircuitBreaker(LIMITS, clock)
    for _ in range(times):
        breaker.note("hash", is_failure=True)
    return breaker


def is_open(breaker: CircuitBreaker, tool_hash: str = "hash") -> bool:
    refusal = breaker.check(REQUEST, tool_hash)
    assert refusal is None or refusal.code is Code.CIRCUIT_OPEN
    return refusal is not None


@pytest.mark.parametrize(("failures", "expected"), [(0, False), (2, False), (3, True), (4, True)])
def test_a_tool_is_suspended_after_failures_in_a_row(failures: int, expected: bool) -> None:
    assert is_open(failed(failures, FakeClock())) is expected


def test_another_tool_is_not_suspended() -> None:
    assert not is_open(failed(3, FakeClock()), "another")


def test_a_success_starts_the_count_anew() -> None:
    breaker = failed(2, FakeClock())
    breaker.note("hash", is_failure=False)
    breaker.note("hash", is_failure=True)
    assert not is_open(breaker)


def test_the_refusal_says_how_often_it_failed_and_when_to_try_again() -> None:
    clock = FakeClock(100.0)
    breaker = failed(3, clock)
    clock.advance(10)
    refusal = breaker.check(REQUEST, "hash")
    assert refusal is not None
    error = refusal.errors[0]
    assert error.message == "Tool 'read' failed 3 times in a row and is suspended"
    assert error.suggestion == "Do without it, or try again in 20 s."


def test_one_trial_is_let_through_when_the_time_is_over() -> None:
    clock = FakeClock()
    breaker = failed(3, clock)
    clock.advance(30)
    assert [is_open(breaker) for _ in range(3)] == [False, False, False]  # looking is no trial
    assert [breaker.begin(REQUEST, "hash") is not None for _ in range(3)] == [False, True, True]


class Turns:
    """A lock after which each thread waits until the other has had its turn too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._both = threading.Barrier(2, timeout=60)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._both.wait()


def test_of_two_threads_that_begin_at_once_one_is_the_trial() -> None:
    clock = FakeClock()
    breaker = failed(3, clock)
    clock.advance(30)
    breaker._lock = Turns()  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as pool:
        begun = list(pool.map(lambda _: breaker.begin(REQUEST, "hash"), range(2)))
    assert [refusal is None for refusal in begun].count(True) == 1


@pytest.mark.parametrize("is_failure", [True, False])
def test_the_trial_decides_whether_it_stays_suspended(is_failure: bool) -> None:
    clock = FakeClock()
    breaker = failed(3, clock)
    clock.advance(30)
    assert not is_open(breaker)
    breaker.note("hash", is_failure=is_failure)
    assert is_open(breaker) is is_failure


def test_a_trial_that_never_ends_is_followed_by_another() -> None:
    clock = FakeClock()
    breaker = failed(3, clock)
    clock.advance(30)
    assert not is_open(breaker)
    clock.advance(30)
    assert not is_open(breaker)


# --- through a keep ----------------------------------------------------------------------------------


def ending(how: list[str]) -> Any:
    """A tool that ends as the list says, call after call, and well after that."""

    @tool(description="End as the test says")
    async def end() -> str:
        match how.pop(0) if how else "well":
            case "fails":
                raise ToolFailed("no")
            case "raises":
                raise RuntimeError
            case "hangs":
                await asyncio.Event().wait()
        return "well"

    return end


def codes(how: list[str], calls: int, **options: Any) -> list[Code | None]:
    keep = Keep(call_limits=LIMITS)
    keep.register(ending(how))

    async def scenario() -> list[Code | None]:
        return [(await keep.call("end", {}, **options)).code for _ in range(calls)]

    return asyncio.run(scenario())


@pytest.mark.parametrize(("how", "code"), [("raises", Code.TOOL_FAILED), ("hangs", Code.TIMED_OUT)])
def test_failures_and_time_outs_count(how: str, code: Code) -> None:
    assert codes([how] * 3, 5, timeout_s=0.01) == [code] * 3 + [Code.CIRCUIT_OPEN] * 2


def test_a_tool_that_says_why_it_could_not_do_what_was_asked_is_not_suspended() -> None:
    """Another agent's bad calls would otherwise take the tool away from everybody."""
    assert codes(["fails"] * 10, 10) == [Code.TOOL_FAILED] * 10


def test_a_call_that_works_in_between_keeps_the_tool_going() -> None:
    failure = Code.TOOL_FAILED
    assert codes(["raises", "raises", "well", "raises", "raises"], 6) == [
        failure, failure, None, failure, failure, None,
    ]  # fmt: skip


def test_a_suspended_tool_does_not_run_and_refused_calls_do_not_count() -> None:
    how = ["raises"] * 3 + ["never reached"]
    assert codes(how, 10)[3:] == [Code.CIRCUIT_OPEN] * 7
    assert how == ["never reached"]
    keep = Keep(call_limits=LIMITS)
    keep.register(ending([]))
    for _ in range(5):
        assert not asyncio.run(keep.call("end", {"wrong": 1})).ok
    assert asyncio.run(keep.call("end", {})).ok


def test_a_suspended_tool_is_refused_before_its_intent_is_recorded() -> None:
    record = MemoryRecord()
    keep = Keep(call_limits=LIMITS, record=lambda: record)
    keep.register(ending(["raises"] * 3))
    results = [asyncio.run(keep.call("end", {})) for _ in range(4)]
    records = [entry.record for entry in record.log.entries]
    chain = [one["type"] for one in records if one["call"] == results[3].call_id]
    assert results[3].code is Code.CIRCUIT_OPEN
    assert chain == ["ToolInvoked", "CapabilityCheck", "PolicyDecision"]


def test_a_call_that_is_not_run_does_not_use_up_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    keep = Keep(call_limits=LIMITS)
    keep.register(ending(["raises"] * 3))
    monkeypatch.setattr(keep._pipeline.executor._breaker, "_clock", clock)

    async def scenario() -> list[Code | None]:
        for _ in range(3):
            await keep.call("end", {})
        clock.advance(30)
        return [(await keep.call("end", {}, confirm=asks)).code for asks in (True, False)]

    assert asyncio.run(scenario()) == [Code.APPROVAL_NEEDED, None]


def test_of_two_calls_at_once_one_is_the_trial_and_the_key_of_the_other_stays_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both were let through to the log, which takes its time; only one may run."""

    async def scenario() -> tuple[list[Code | None], ToolResult]:
        clock, (keep, log) = FakeClock(), held(ending(["raises"] * 3), call_limits=LIMITS)
        monkeypatch.setattr(keep._pipeline.executor._breaker, "_clock", clock)

        async def finished(*keys: str) -> list[ToolResult]:
            calls = [asyncio.create_task(keep.call("end", {}, idempotency_key=key)) for key in keys]
            while not all(call.done() for call in calls):
                for _ in range(50):
                    await asyncio.sleep(0)
                log.make_durable()
            return [await call for call in calls]

        for number in range(3):
            await finished(f"failing-{number}")
        clock.advance(30)
        results = {result.code: key for key, result in zip("ab", await finished("a", "b"), strict=True)}
        (again,) = await finished(results[Code.CIRCUIT_OPEN])
        return sorted(results, key=str), again

    codes_seen, again = asyncio.run(scenario())
    assert codes_seen == [Code.CIRCUIT_OPEN, None]
    assert (again.ok, again.is_repeated) == (True, False)
