"""What a tool in a worker may know of its call, and tell on the way, without toolkeep in it."""

import asyncio
from typing import Any

import pytest

from tests.sandbox.workers import caller, recipe
from toolkeep.limits import PROGRESS_FRAMES
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.worker_exchange import Ending, Reply

Told = list[tuple[float, float | None, str]]

CONTEXT = {
    "agent": "ada",
    "correlation_id": "c1",
    "conversation_id": "c2",
    "session_id": "s3",
    "secrets": {"key": "hunter2"},
}


def asked(tool: str, request: dict[str, Any], deadline_s: float = 20.0) -> tuple[Reply, Told]:
    told: Told = []

    async def main() -> Reply:
        async with caller() as here:
            here.deadline_s = deadline_s
            made = recipe(Isolation.STRICT, tool, may_spawn=True)
            return await here.ask(made, request, lambda *said: told.append(said))

    return asyncio.run(main()), told


def test_an_agent_tool_class_is_made_and_given_its_context() -> None:
    reply, told = asked("Counter", {"arguments": {"to": 2}, "context": CONTEXT})
    expected = {
        "kind": "Context",
        "agent": "ada",
        "ids": ["c1", "c2", "s3"],
        "secret": "hunter2",
        "logger": "toolkeep.tools.Counter",
        "start": 0,
    }
    assert reply == Reply(Ending.OK, value=expected)
    assert told == [(1, 2, "at 0"), (2, 2, "at 1")]


def test_a_result_that_failed_is_told_with_its_text() -> None:
    reply, told = asked("Counter", {"arguments": {"to": 1, "fails": True}})
    assert (reply, told) == (Reply(Ending.FAILED, text="told to"), [(1, 1, "at 0")])


def test_a_secret_that_was_not_given_is_an_error() -> None:
    reply, _ = asked("Counter", {"arguments": {"to": 0}, "context": {"secrets": {"other": "x"}}})
    assert (reply.ending, reply.text[:11]) == (Ending.RAISED, "LookupError")


def test_a_tool_that_tells_too_often_is_thinned_out_and_not_refused() -> None:
    reply, told = asked("Talker", {"arguments": {"how": "often"}})
    assert reply == Reply(Ending.OK, value="done")
    assert told[:500] == [(number, None, "") for number in range(500)]
    assert len(told) <= PROGRESS_FRAMES


def test_threads_may_tell_at_once() -> None:
    reply, told = asked("Talker", {"arguments": {"how": "in_threads"}})
    assert (reply.ending, len(told)) == (Ending.OK, 400)
    assert {len(message) for _, _, message in told} == {200}


def test_a_child_of_the_tool_has_no_voice() -> None:
    assert asked("Talker", {"arguments": {"how": "in_a_child"}}) == (Reply(Ending.OK, value="done"), [])


def test_numbers_and_texts_without_measure_are_made_to_fit() -> None:
    reply, told = asked("Talker", {"arguments": {"how": "at_length"}})
    assert (reply.ending, [done for done, _, _ in told]) == (Ending.OK, [-1e30, 1e300, 1])


def test_characters_that_deceive_are_shown() -> None:
    _, told = asked("Talker", {"arguments": {"how": "oddly"}})
    assert told == [(1, 2, "half ?, \\u202eback")]


def test_progress_does_not_put_off_the_deadline() -> None:
    reply, _ = asked("Talker", {"arguments": {"how": "endlessly"}}, deadline_s=0.7)
    assert reply.ending is Ending.TIMED_OUT


def test_a_tool_that_tells_what_is_no_number_is_stopped_by_its_own_error() -> None:
    reply, told = asked("Talker", {"arguments": {"how": "with_nan"}})
    assert (reply.ending, reply.text[:10], told) == (Ending.RAISED, "ValueError", [])


@pytest.mark.parametrize("level", [Isolation.STANDARD, Isolation.RESTRICTED])
def test_a_class_runs_at_the_other_levels_too(level: Isolation) -> None:
    async def main() -> Reply:
        async with caller() as here:
            return await here.call(recipe(level, "Counter"), to=0)

    assert asyncio.run(main()).value["agent"] == "local"
