"""Questions of hostile servers to a person, and people who fail, hang or give what does not fit."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.mcp_client.speakers import Log
from toolkeep.events import UpstreamAsked
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.mcp_client import elicitation as asking
from toolkeep.mcp_client.elicitation import (
    QUESTIONS,
    Answerer,
    ElicitationAnswer,
    ElicitationRequest,
    Elicitations,
)
from toolkeep.mcp_client.elicitation_audit import ActiveCall, Tell

pytestmark = pytest.mark.spec("MCP-2", "POL-4")

SCHEMA = {
    "type": "object",
    "properties": {"hour": {"type": "integer", "default": 9}, "why": {"type": "string"}},
}
ASKED = {"message": "At which hour?", "requestedSchema": SCHEMA}
NO = {"action": "decline"}
GIVEN_UP = {"action": "cancel"}


def unheard(_: UpstreamAsked) -> None:
    """Nobody listens."""


def put_to(answerer: Answerer | None, tell: Tell = unheard, log: Log | None = None) -> Elicitations:
    return Elicitations(answerer, "shelf", "ada", tell, log or Log())


def asked(
    answerer: Answerer | None, *params: Any, tell: Tell = unheard, log: Log | None = None
) -> list[dict[str, Any]]:
    """What a server is told that asks all of this during one call."""

    async def main() -> list[dict[str, Any]]:
        questions = put_to(answerer, tell, log)
        with questions.during_call(ActiveCall("one")):
            return [await questions.answer(one) for one in params]

    return asyncio.run(main())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def agree(_: ElicitationRequest) -> dict[str, Any]:
    return {}


async def never(_: ElicitationRequest) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("is_async", [True, False])
def test_an_answer_is_sent_with_what_the_server_suggests(is_async: bool) -> None:
    heard: list[ElicitationRequest] = []

    def answer(question: ElicitationRequest) -> dict[str, Any]:
        heard.append(question)
        return {"why": "tea"}

    async def answer_later(question: ElicitationRequest) -> dict[str, Any]:
        return answer(question)

    (told,) = asked(answer_later if is_async else answer, ASKED)
    assert told == {"action": "accept", "content": {"hour": 9, "why": "tea"}}
    (question,) = heard
    assert (question.upstream, question.agent, question.message) == ("shelf", "ada", "At which hour?")
    assert question.schema == {**SCHEMA, "required": []}


def raising(_: ElicitationRequest) -> dict[str, Any]:
    raise RuntimeError("s3cret")


@pytest.mark.parametrize(
    "answerer",
    [raising, lambda _: None, lambda _: {"hour": "s3cret"}, lambda _: {"more": "s3cret"}, lambda _: "s3cret"],
)
def test_who_says_no_fails_or_gives_what_does_not_fit_has_declined_and_nothing_of_it_is_told(
    answerer: Callable[[ElicitationRequest], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[UpstreamAsked] = []
    assert asked(answerer, ASKED, tell=told.append) == [NO]
    (event,) = told
    assert (event.upstream, event.agent, event.method, event.outcome) == (
        "shelf", "ada", "elicitation/create", "decline",
    )  # fmt: skip
    assert not any(word in f"{event} {caplog.text}" for word in ("s3cret", "At which hour"))


def test_an_answer_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[UpstreamAsked] = []
    (said,) = asked(lambda _: {"why": "s3cret"}, ASKED, tell=told.append)
    assert said["action"] == "accept"
    assert [(event.outcome, event.reason) for event in told] == [("accept", "")]
    assert not any(word in f"{told} {caplog.text}" for word in ("s3cret", "At which hour"))


def test_what_nobody_is_asked_is_told_too() -> None:
    told: list[UpstreamAsked] = []
    assert asked(None, ASKED, tell=told.append) == [NO]
    questions = put_to(None, told.append)
    for method in ("sampling/createMessage", "roots/list", "evil\x1b[2J"):
        questions.refuse(method)
    assert [(event.method, event.outcome, event.reason) for event in told] == [
        ("elicitation/create", "refused", "no one answers elicitations here"),
        ("sampling/createMessage", "refused", "sampling is not offered"),
        ("roots/list", "refused", "roots are not offered"),
        ("other", "refused", "the request is not supported"),
    ]


def test_of_questions_without_end_the_first_are_told() -> None:
    told: list[UpstreamAsked] = []
    log = Log()

    async def main() -> None:
        questions = put_to(None, told.append, log)
        for call in ("one", "two"):
            with questions.during_call(ActiveCall(call)):
                for _ in range(1_000):
                    questions.refuse("sampling/createMessage")

    asyncio.run(main())
    assert len(told) == 40
    assert log.lines == [("one", "refused", 1)] * 20 + [("two", "refused", 1)] * 20


def test_who_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.0)
    assert asked(never, ASKED, ASKED) == [GIVEN_UP, GIVEN_UP]


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"requestedSchema": SCHEMA},
        {**ASKED, "message": 3},
        {"message": "x", "requestedSchema": {"type": "object", "properties": {"a": SCHEMA}}},
        {**ASKED, "mode": "url", "url": "https://evil.example", "elicitationId": "1"},
        {**ASKED, "mode": None},
        {**ASKED, "message": "What is your password?"},
        {**ASKED, "requestedSchema": {"type": "object", "properties": {"token": {"type": "string"}}}},
    ],
)
def test_what_is_no_flat_form_is_put_to_nobody(params: object) -> None:
    heard: list[ElicitationRequest] = []
    assert asked(heard.append, params) == [NO]
    assert heard == []


def test_unseen_characters_of_a_message_are_seen_and_a_long_one_is_cut() -> None:
    heard: list[ElicitationRequest] = []
    words = "Your \x1b[8mpass\u202eword\u200b?\r\nNow.\U000e0041" + "x" * 5_000
    asked(heard.append, {**ASKED, "message": words})
    assert heard[0].message.startswith("Your \\u001b[8mpass\\u202eword\\u200b?\\r\nNow.\\udb40\\udc41")
    assert len(heard[0].message) == 2_000


def test_a_question_outside_of_a_call_is_put_to_nobody() -> None:
    heard: list[ElicitationRequest] = []

    async def main() -> None:
        questions = put_to(heard.append)
        assert await questions.answer(ASKED) == NO
        with questions.during_call(ActiveCall("one")):
            pass
        assert await questions.answer(ASKED) == NO
        assert not questions.take(ASKED, replies([]))

    asyncio.run(main())
    assert heard == []


def test_more_questions_than_a_call_may_have_are_put_to_nobody() -> None:
    heard: list[ElicitationRequest] = []
    assert asked(heard.append, *[ASKED] * (QUESTIONS + 3)) == [NO] * (QUESTIONS + 3)
    assert len(heard) == QUESTIONS


def test_calls_that_are_over_leave_no_questions_to_those_that_go_on() -> None:
    heard: list[ElicitationRequest] = []

    async def main() -> None:
        questions = put_to(heard.append)
        with questions.during_call(ActiveCall("one")):
            for number in range(10):
                with questions.during_call(ActiveCall(str(number))):
                    pass
            for _ in range(QUESTIONS + 3):
                await questions.answer(ASKED)

    asyncio.run(main())
    assert len(heard) == QUESTIONS


def replies(told: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def reply(result: dict[str, Any]) -> None:
        told.append(result)

    return reply


def test_a_question_ends_with_the_call_and_its_late_answer_is_not_sent() -> None:
    told: list[dict[str, Any]] = []
    late = asyncio.Event()

    async def stubborn(_: ElicitationRequest) -> dict[str, Any]:
        try:
            await late.wait()
        except asyncio.CancelledError:
            await late.wait()
        return {"why": "late"}

    async def main() -> None:
        questions = put_to(stubborn)
        with questions.during_call(ActiveCall("one")):
            assert questions.take(ASKED, replies(told))
            await settle()
        late.set()
        await settle()

    asyncio.run(main())
    assert told == [GIVEN_UP]


def test_a_question_that_nobody_answers_ends_with_the_last_call() -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        questions = put_to(never)
        with questions.during_call(ActiveCall("one")):
            with questions.during_call(ActiveCall("two")):
                reader = contextvars.Context()  # of a task that reads for all calls
                assert reader.run(questions.take, ASKED, replies(told))
            await settle()
            assert told == []
        await settle()

    asyncio.run(main())
    assert told == [GIVEN_UP]


def test_a_person_is_asked_one_thing_at_a_time() -> None:
    told: list[dict[str, Any]] = []
    at_once: list[int] = []

    async def busy(_: ElicitationRequest) -> None:
        at_once.append(len(at_once) - len(told))
        await asyncio.sleep(0)

    async def main() -> None:
        questions = put_to(busy)
        with questions.during_call(ActiveCall("one")):
            assert all(questions.take(ASKED, replies(told)) for _ in range(3))
            await settle()

    asyncio.run(main())
    assert len(told) == 3
    assert max(at_once) <= 1


def test_nothing_is_asked_or_said_once_the_conversation_is_over() -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        questions = put_to(never)
        with questions.during_call(ActiveCall("one")):
            assert questions.take(ASKED, replies(told))
            await settle()
            questions.close()
            await settle()
            assert not questions.take(ASKED, replies(told))
        await settle()

    asyncio.run(main())
    assert told == []


@pytest.mark.spec("AUD-1", "AUD-5")
def test_the_log_says_who_asked_what_and_what_became_of_it_in_no_words_of_theirs() -> None:
    log = Log()
    asked(lambda _: ElicitationAnswer(content={"why": "s3cret"}, by="terminal:ada"), ASKED, log=log)
    (record,) = log.records
    assert (record.call, record.upstream, record.method) == ("one", "shelf", "elicitation/create")
    assert (record.outcome, record.answerer, record.of_calls) == ("accept", "terminal:ada", 1)
    assert record.question_hash == canonical_hash(ASKED)
    assert not any(word in str(record) for word in ("s3cret", "At which hour"))


@pytest.mark.spec("AUD-1")
@pytest.mark.parametrize(
    ("answerer", "params", "outcome", "by"),
    [
        (None, ASKED, "refused", ""),
        (lambda _: None, ASKED, "decline", "program"),
        (lambda _: {"hour": "x"}, ASKED, "decline", "program"),
        (raising, ASKED, "decline", ""),
        (lambda _: {}, ASKED, "accept", "program"),
        (lambda _: {}, {**ASKED, "mode": "url"}, "refused", ""),
    ],
)
def test_the_log_says_how_each_question_ended(
    answerer: Answerer | None, params: Any, outcome: str, by: str
) -> None:
    log = Log()
    asked(answerer, params, log=log)
    assert [(one.outcome, one.answerer) for one in log.records] == [(outcome, by)]


@pytest.mark.spec("AUD-3")
def test_an_answer_that_cannot_be_recorded_is_not_sent() -> None:
    told: list[UpstreamAsked] = []
    assert asked(lambda _: {}, ASKED, tell=told.append, log=Log(is_full=True)) == [NO]
    assert [event.outcome for event in told] == ["decline"]


@pytest.mark.parametrize("params", [{"data": "x" * 100_000}, {"data": float("inf")}, {"data": [1e999]}])
def test_what_is_too_much_or_has_no_canonical_form_is_recorded_without_its_hash(params: Any) -> None:
    log = Log()
    asked(lambda _: {}, params, log=log)
    assert [(one.outcome, one.question_hash) for one in log.records] == [("refused", "")]


def test_a_question_for_one_of_several_calls_is_recorded_with_each() -> None:
    log = Log()

    async def main() -> None:
        questions = put_to(agree, log=log)
        with questions.during_call(ActiveCall("one")), questions.during_call(ActiveCall("two")):
            reader = contextvars.Context()
            assert reader.run(questions.take, ASKED, replies([]))
            await settle()

    asyncio.run(main())
    assert log.lines == [("one", "accept", 2), ("two", "accept", 2)]


def test_a_question_in_the_answer_to_a_call_is_recorded_with_that_one() -> None:
    log = Log()

    async def main() -> None:
        questions = put_to(lambda _: {}, log=log)

        async def one(call: str) -> None:
            with questions.during_call(ActiveCall(call)):
                await asyncio.sleep(0)
                await questions.answer(ASKED)

        await asyncio.gather(one("one"), one("two"))

    asyncio.run(main())
    assert sorted(log.lines) == [("one", "accept", 1), ("two", "accept", 1)]


def test_a_question_that_its_call_does_not_outlast_is_recorded_before_the_call_ends() -> None:
    log = Log()

    async def main() -> None:
        questions = put_to(never, log=log)
        with questions.during_call(ActiveCall("one")):
            with questions.during_call(ActiveCall("two")):
                reader = contextvars.Context()
                assert reader.run(questions.take, ASKED, replies([]))
                await settle()
            assert log.lines == [("two", "cancel", 2)]
        assert log.lines == [("two", "cancel", 2), ("one", "cancel", 2)]
        await settle()

    asyncio.run(main())
    assert len(log.records) == 2


def test_a_question_is_recorded_when_the_conversation_ends_before_its_answer() -> None:
    log = Log()

    async def main() -> None:
        questions = put_to(never, log=log)
        with questions.during_call(ActiveCall("one")):
            assert questions.take(ASKED, replies([]))
            await settle()
            questions.close()
            assert log.lines == [("one", "cancel", 1)]
            await settle()

    asyncio.run(main())
    assert len(log.records) == 1


def test_what_is_asked_outside_of_calls_is_in_no_call_s_log() -> None:
    log = Log()

    async def main() -> None:
        questions = put_to(lambda _: {}, log=log)
        with questions.during_call(ActiveCall("one")):
            pass
        assert await questions.answer(ASKED) == NO
        questions.refuse("sampling/createMessage")

    asyncio.run(main())
    assert log.records == []


def test_a_question_that_comes_with_the_answer_to_its_call_is_put_to_nobody() -> None:
    heard: list[ElicitationRequest] = []
    told: list[dict[str, Any]] = []
    log = Log()

    async def listen(question: ElicitationRequest) -> None:
        heard.append(question)

    async def main() -> None:
        questions = put_to(listen, log=log)
        with questions.during_call(ActiveCall("one")):
            assert questions.take(ASKED, replies(told))
        await settle()

    asyncio.run(main())
    assert (heard, told, log.lines) == ([], [GIVEN_UP], [("one", "cancel", 1)])


def test_who_gives_up_the_call_leaves_a_record_of_what_was_asked() -> None:
    told: list[UpstreamAsked] = []
    log = Log()

    async def main() -> None:
        questions = put_to(never, told.append, log)

        async def call() -> None:
            with questions.during_call(ActiveCall("one")):
                await questions.answer(ASKED)

        calling = asyncio.create_task(call())
        await settle()
        calling.cancel()
        await settle()

    asyncio.run(main())
    assert log.lines == [("one", "cancel", 1)]
    assert [event.outcome for event in told] == ["cancel"]


def test_who_answers_is_named_within_bounds() -> None:
    log = Log()
    asked(lambda _: ElicitationAnswer(content={}, by="ada\x1b\ud800" + "a" * 100_000), ASKED, log=log)
    assert log.records[0].answerer.startswith("ada\\u001b\\ud800aaa")
    assert len(log.records[0].answerer) == 256
