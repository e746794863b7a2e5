"""Questions of hostile servers to a person, and people who fail, hang or give what does not fit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolkeep.events import UpstreamAsked
from toolkeep.sources.mcp import questions as asking
from toolkeep.sources.mcp.questions import QUESTIONS, Answerer, Questions, Tell, UpstreamQuestion

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


def asked(answerer: Answerer | None, *params: Any, tell: Tell = unheard) -> list[dict[str, Any]]:
    """What a server is told that asks all of this during one call."""

    async def main() -> list[dict[str, Any]]:
        questions = Questions(answerer, "shelf", "ada", tell)
        with questions.during_call():
            return [await questions.answer(one) for one in params]

    return asyncio.run(main())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def never(_: UpstreamQuestion) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("is_async", [True, False])
def test_an_answer_is_sent_with_what_the_server_suggests(is_async: bool) -> None:
    heard: list[UpstreamQuestion] = []

    def answer(question: UpstreamQuestion) -> dict[str, Any]:
        heard.append(question)
        return {"why": "tea"}

    async def answer_later(question: UpstreamQuestion) -> dict[str, Any]:
        return answer(question)

    (told,) = asked(answer_later if is_async else answer, ASKED)
    assert told == {"action": "accept", "content": {"hour": 9, "why": "tea"}}
    (question,) = heard
    assert (question.upstream, question.agent, question.message) == ("shelf", "ada", "At which hour?")
    assert question.schema == {**SCHEMA, "required": []}


def raising(_: UpstreamQuestion) -> dict[str, Any]:
    raise RuntimeError("s3cret")


@pytest.mark.parametrize(
    "answerer",
    [raising, lambda _: None, lambda _: {"hour": "s3cret"}, lambda _: {"more": "s3cret"}, lambda _: "s3cret"],
)
def test_who_says_no_fails_or_gives_what_does_not_fit_has_declined_and_nothing_of_it_is_told(
    answerer: Callable[[UpstreamQuestion], Any], caplog: pytest.LogCaptureFixture
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
    questions = Questions(None, "shelf", "ada", told.append)
    for method in ("sampling/createMessage", "roots/list", "evil\x1b[2J"):
        questions.refuse(method)
    assert [(event.method, event.outcome, event.reason) for event in told] == [
        ("elicitation/create", "refused", "nobody answers questions of servers here"),
        ("sampling/createMessage", "refused", "no model answers servers here"),
        ("roots/list", "refused", "no server is told of roots here"),
        ("other", "refused", "it is nothing that is answered here"),
    ]


def test_of_questions_without_end_the_first_are_told() -> None:
    told: list[UpstreamAsked] = []
    questions = Questions(None, "shelf", "ada", told.append)
    for _ in range(2):
        with questions.during_call():
            for _ in range(1_000):
                questions.refuse("sampling/createMessage")
    assert len(told) == 40


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
    ],
)
def test_what_is_no_flat_form_is_put_to_nobody(params: object) -> None:
    heard: list[UpstreamQuestion] = []
    assert asked(heard.append, params) == [NO]
    assert heard == []


def test_unseen_characters_of_a_message_are_seen_and_a_long_one_is_cut() -> None:
    heard: list[UpstreamQuestion] = []
    words = "Your \x1b[8mpass\u202eword\u200b?\r\nNow.\U000e0041" + "x" * 5_000
    asked(heard.append, {**ASKED, "message": words})
    assert heard[0].message.startswith("Your \\u001b[8mpass\\u202eword\\u200b?\\r\nNow.\\udb40\\udc41")
    assert len(heard[0].message) == 2_000


def test_a_question_outside_of_a_call_is_put_to_nobody() -> None:
    heard: list[UpstreamQuestion] = []

    async def main() -> None:
        questions = Questions(heard.append, "shelf", "ada", unheard)
        assert await questions.answer(ASKED) == NO
        with questions.during_call():
            pass
        assert await questions.answer(ASKED) == NO
        assert not questions.take(ASKED, replies([]))

    asyncio.run(main())
    assert heard == []


def test_more_questions_than_a_call_may_have_are_put_to_nobody() -> None:
    heard: list[UpstreamQuestion] = []
    assert asked(heard.append, *[ASKED] * (QUESTIONS + 3)) == [NO] * (QUESTIONS + 3)
    assert len(heard) == QUESTIONS


def test_calls_that_are_over_leave_no_questions_to_those_that_go_on() -> None:
    heard: list[UpstreamQuestion] = []

    async def main() -> None:
        questions = Questions(heard.append, "shelf", "ada", unheard)
        with questions.during_call():
            for _ in range(10):
                with questions.during_call():
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

    async def stubborn(_: UpstreamQuestion) -> dict[str, Any]:
        try:
            await late.wait()
        except asyncio.CancelledError:
            await late.wait()
        return {"why": "late"}

    async def main() -> None:
        questions = Questions(stubborn, "shelf", "ada", unheard)
        with questions.during_call():
            assert questions.take(ASKED, replies(told))
            await settle()
        late.set()
        await settle()

    asyncio.run(main())
    assert told == [GIVEN_UP]


def test_a_question_that_nobody_answers_ends_with_the_last_call() -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        questions = Questions(never, "shelf", "ada", unheard)
        with questions.during_call():
            with questions.during_call():
                assert questions.take(ASKED, replies(told))
            await settle()
            assert told == []
        await settle()

    asyncio.run(main())
    assert told == [GIVEN_UP]


def test_a_person_is_asked_one_thing_at_a_time() -> None:
    told: list[dict[str, Any]] = []
    at_once: list[int] = []

    async def busy(_: UpstreamQuestion) -> None:
        at_once.append(len(at_once) - len(told))
        await asyncio.sleep(0)

    async def main() -> None:
        questions = Questions(busy, "shelf", "ada", unheard)
        with questions.during_call():
            assert all(questions.take(ASKED, replies(told)) for _ in range(3))
            await settle()

    asyncio.run(main())
    assert len(told) == 3
    assert max(at_once) <= 1


def test_nothing_is_asked_or_said_once_the_conversation_is_over() -> None:
    told: list[dict[str, Any]] = []

    async def main() -> None:
        questions = Questions(never, "shelf", "ada", unheard)
        with questions.during_call():
            assert questions.take(ASKED, replies(told))
            await settle()
            questions.close()
            await settle()
            assert not questions.take(ASKED, replies(told))
        await settle()

    asyncio.run(main())
    assert told == []
