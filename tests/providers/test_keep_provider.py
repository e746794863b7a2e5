"""A model's calls through a keep: every one is answered once, and leaves the records that `keep.call` leaves."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tests.providers import alike, wire
from toolkeep import Code, Keep, ToolFailed, tool
from toolkeep.approval.question import Answer, Question
from toolkeep.errors import ResponseUnreadable
from toolkeep.providers.replies import ERROR_LINE, PENDING_LINE
from toolkeep.providers.vendor_registry import PROVIDERS
from toolkeep.stores.records import MemoryRecord


class Cat(BaseModel):
    cat: str
    age: int = 3


class Dog(BaseModel):
    dog: str


looked: list[str] = []
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(side_effects=["None"])
async def look(place: str, depth: int | None = None) -> str:
    """Look somewhere.

    Args:
        place: Where.
        depth: How deep.
    """
    looked.append(place)
    return f"seen {place}"


@tool(side_effects=["None"])
async def measure(place: str, options: dict[str, int] | None = None) -> dict[str, Any]:
    """Measure something.

    Args:
        place: Where.
        options: How.
    """
    return {"place": place, "options": options}


@tool(side_effects=["None"])
async def fall(place: str) -> str:
    """Fall down.

    Args:
        place: Where.
    """
    raise ToolFailed("it is slippery")


@tool(danger="high", side_effects=["None"])
async def burn(place: str) -> str:
    """Burn something.

    Args:
        place: Where.
    """
    looked.append(f"burnt {place}")
    return "ashes"


@tool(client_executed=True, side_effects=["None"])
async def later(place: str) -> str:
    """Do it later.

    Args:
        place: Where.
    """
    return "begun"


@tool(side_effects=["None"], result_type="binary", metadata={"mcp": {"mime_type": "image/png"}})
async def picture() -> bytes:
    """Take a picture."""
    return PNG


@tool(side_effects=["None"])
async def read_all(length: int, as_object: bool = False) -> Any:
    """Read a lot.

    Args:
        length: How much.
        as_object: As an object.
    """
    return {"text": "x" * length} if as_object else "x" * length


def deny(_: Question) -> Answer:
    return Answer(verdict="deny", approver="ada", way="desk", reason="No fire here.")


@pytest.fixture
def keep() -> Iterator[Keep]:
    looked.clear()
    with Keep(approver=deny) as keep:
        keep.register(look, measure, fall, burn, later, picture, read_all)
        yield keep


def answer(
    keep: Keep, provider: str, *calls: tuple[str, dict[str, Any]], **options: Any
) -> list[dict[str, Any]]:
    response = wire.WHOLE[provider](wire.said(*calls))
    return asyncio.run(keep.answer(provider, response, **options))


MIXED = [("look", {"place": "a"}), ("look", {"plaec": "a"}), ("burn", {"place": "b"}), ("fall", {"place": "c"}),
         ("nosuch", {}), ("later", {"place": "d"})]  # fmt: skip
VERDICTS = ["ok", "error", "error", "error", "error", "pending"]


def verdict(provider: str, part: dict[str, Any]) -> tuple[str, str]:
    """Id or name, and what became of the call, as the provider's answer says it."""
    if provider == "anthropic":
        return part["tool_use_id"], _by_flag(part["content"], is_error=part.get("is_error", False))
    if provider == "bedrock":
        result = part["toolResult"]
        return result["toolUseId"], _by_flag(
            result["content"][0]["text"], is_error=result["status"] == "error"
        )
    if provider == "gemini":
        response = part["functionResponse"]["response"]
        said = response.get("error") or response["output"]
        return part["functionResponse"]["id"], _by_flag(str(said), is_error="error" in response)
    if provider in ("json-schema", "llguidance", "xgrammar"):
        return part["id"], part["status"]
    text = str(part["output"] if "output" in part else part["content"])
    named = part.get("call_id") or part.get("tool_call_id") or part["tool_name"]
    return named, _by_flag(text, is_error=text.startswith(ERROR_LINE))


def _by_flag(text: str, *, is_error: bool) -> str:
    return "error" if is_error else "pending" if text.startswith(PENDING_LINE) else "ok"


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", [name for name in PROVIDERS if not name.startswith("mcp")])
def test_every_call_gets_exactly_one_answer_refused_pending_and_failed_ones_too(
    keep: Keep, provider: str
) -> None:
    messages = answer(keep, provider, *MIXED)
    parts = messages
    if provider in ("anthropic", "bedrock"):
        parts = messages[0]["content"]
    elif provider == "gemini":
        parts = messages[0]["parts"]
    found = [verdict(provider, part) for part in parts]
    assert [became for _, became in found] == VERDICTS
    names = [name for name, _ in MIXED] if provider == "ollama" else [one.id for one in wire.said(*MIXED)]
    assert [name for name, _ in found] == names
    assert looked == ["a"]


@pytest.mark.parametrize(("call", "became"), [*zip(MIXED, VERDICTS, strict=True)])
def test_an_mcp_call_gets_its_result(keep: Keep, call: tuple[str, dict[str, Any]], became: str) -> None:
    (result,) = answer(keep, "mcp", call)
    assert (result["resultType"], result.get("isError", False)) == ("complete", became == "error")
    (before,) = answer(keep, "mcp-2025-11-25", call)
    assert "resultType" not in before


@pytest.mark.spec("PRV-2")
def test_a_response_without_calls_needs_no_answer(keep: Keep) -> None:
    for provider in wire.STREAMS:
        assert answer(keep, provider) == []


def records(keep: Keep) -> list[Any]:
    record = keep._pipeline.record
    assert isinstance(record, MemoryRecord)
    return alike.records(record)


@pytest.mark.spec("PRV-2", "AUD-1")
def test_the_records_are_those_of_the_same_calls_made_directly(keep: Keep) -> None:
    answer(keep, "anthropic", *MIXED, session="s1", conversation="c1")
    through_answer = records(keep)

    async def directly() -> None:
        for name, arguments in MIXED:
            await other.call(name, arguments, session="s1", conversation="c1")

    with Keep(approver=deny) as other:
        other.register(look, measure, fall, burn, later, picture, read_all)
        asyncio.run(directly())
        assert sorted(map(str, records(other))) == sorted(map(str, through_answer))


@pytest.mark.spec("PRV-2", "AUD-1")
@pytest.mark.parametrize("provider", wire.CUT_STOP)
def test_a_call_that_was_cut_is_answered_and_recorded_and_not_run(keep: Keep, provider: str) -> None:
    response = wire.WHOLE[provider](wire.said(("look", {"place": "a"})), wire.CUT_STOP[provider])
    (message,) = asyncio.run(keep.answer(provider, response))
    assert "was not run" in json.dumps(message)
    assert looked == []
    assert "ACODE-TSR-050" in json.dumps(records(keep))


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", wire.STREAMS)
def test_a_stream_is_answered_like_a_whole_response(keep: Keep, provider: str) -> None:
    calls = wire.said(("look", {"place": "a"}), ("measure", {"place": "b"}))
    events = list(wire.STREAMS[provider](calls, wire.in_threes))

    async def coming() -> AsyncIterator[dict[str, Any]]:
        for event in events:
            yield event

    whole = asyncio.run(keep.answer(provider, wire.WHOLE[provider](calls)))
    assert asyncio.run(keep.answer_stream(provider, events)) == whole
    assert asyncio.run(keep.answer_stream(provider, coming())) == whole
    cut = asyncio.run(keep.answer_stream(provider, events[:-1]))
    assert cut
    assert looked == ["a"] * 3


def test_what_has_no_streams_says_so(keep: Keep) -> None:
    with pytest.raises(ResponseUnreadable):
        asyncio.run(keep.answer_stream("mcp", []))


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "vllm", "mistral", "llguidance"])
def test_a_strict_rewriting_is_undone_before_the_call(keep: Keep, provider: str) -> None:
    assert keep.tools_for(provider, strict=True)
    written = {"place": "a", "options": [{"key": "n", "value": 3}]}
    (message,) = answer(keep, provider, ("measure", written), strict=True)
    assert json.loads(message.get("content") or message["output"]) == {"place": "a", "options": {"n": 3}}
    (message,) = answer(keep, provider, ("measure", {"place": "a", "options": None}), strict=True)
    assert json.loads(message.get("content") or message["output"]) == {"place": "a", "options": None}


def test_without_the_word_strict_a_rewritten_call_is_refused_not_guessed(keep: Keep) -> None:
    written = {"place": "a", "options": [{"key": "n", "value": 3}]}
    (message,) = answer(keep, "openai", ("measure", written))
    assert message["content"].startswith(ERROR_LINE)


def test_what_cannot_be_decoded_is_refused_with_a_way_out(keep: Keep) -> None:
    twice = [{"key": "n", "value": 3}, {"key": "n", "value": 4}]
    (message,) = answer(keep, "openai", ("measure", {"place": "a", "options": twice}), strict=True)
    assert "has a key twice" in message["content"]
    assert "ACODE-TSR-002" in json.dumps(records(keep))


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"place": "a", "place": "b"}', "ACODE-TSR-002"),
        ('{"place": "a"} trailing', "ACODE-TSR-002"),
        ('{"place": "a"', "ACODE-TSR-002"),
        ('{"place": NaN}', "ACODE-TSR-002"),
        ('"{\\"place\\": \\"a\\"}"', "ACODE-TSR-004"),
        ("[]", "ACODE-TSR-004"),
        ("null", "ACODE-TSR-003"),
        ("", "ACODE-TSR-003"),
        ('{"place": "a", "depth": 1.5}', "ACODE-TSR-004"),
        ('{"place": "a", "depth": true}', "ACODE-TSR-004"),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_arguments_are_read_strictly(keep: Keep, text: str, code: str, strict: bool) -> None:
    response = wire.chat(wire.said(("look", {})))
    response["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = text
    (message,) = asyncio.run(keep.answer("openai", response, strict=strict))
    assert message["content"].startswith(ERROR_LINE)
    assert code in json.dumps(records(keep))
    assert looked == []


def test_a_double_that_is_whole_is_an_integer(keep: Keep) -> None:
    (message,) = answer(keep, "gemini", ("look", {"place": "a", "depth": 2.0}))
    assert message["parts"][0]["functionResponse"]["response"] == {"output": "seen a"}


def test_a_tool_is_found_by_its_alias() -> None:
    @tool(name="l_x0123456789abcdef", side_effects=["None"])
    def odd() -> str:
        """Be odd."""
        return "odd"

    with Keep() as keep:
        keep.register(odd)
        (alias,) = keep.tools_for("anthropic").aliases
        assert alias != "l_x0123456789abcdef"
        (message,) = answer(keep, "anthropic", (alias, {}))
        assert message["content"][0]["content"] == "odd"


IMAGES: dict[str, Callable[[Any], Any]] = {
    "anthropic": lambda messages: messages[0]["content"][0]["content"][1]["source"]["data"],
    "openai-responses": lambda messages: messages[0]["output"][1]["image_url"].partition(",")[2],
    "gemini": lambda messages: messages[0]["parts"][0]["functionResponse"]["parts"][0]["inlineData"]["data"],
    "bedrock": lambda messages: base64.b64encode(
        messages[0]["content"][0]["toolResult"]["content"][1]["image"]["source"]["bytes"]
    ).decode(),
}


@pytest.mark.parametrize("provider", IMAGES)
def test_an_image_goes_where_a_model_can_see_it(keep: Keep, provider: str) -> None:
    assert IMAGES[provider](answer(keep, provider, ("picture", {}))) == base64.b64encode(PNG).decode()


@pytest.mark.parametrize("provider", ["openai", "mistral", "cohere", "ollama"])
def test_where_there_is_no_place_for_an_image_the_text_says_what_it_is(keep: Keep, provider: str) -> None:
    (message,) = answer(keep, provider, ("picture", {}))
    assert message["content"].startswith(f"[image/png, {len(PNG)} bytes, sha256:")


def test_an_image_that_is_too_large_is_not_sent(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.providers.replies.RESULT_BLOB_BYTES", 10)
    (message,) = answer(keep, "anthropic", ("picture", {}))
    assert message["content"][0]["content"].startswith(f"[image/png, {len(PNG)} bytes, sha256:")


def test_a_long_strict_call_with_alternatives_is_refused() -> None:
    @tool(side_effects=["None"])
    def choose(one: Cat | Dog) -> str:
        """Choose one.

        Args:
            one: Which.
        """
        return type(one).__name__

    with Keep() as keep:
        keep.register(choose)
        long = {"one": {"cat": "x" * 70_000, "age": None}}
        (message,) = answer(keep, "openai", ("choose", long), strict=True)
        assert "longer than 65536 bytes" in message["content"]
        (message,) = answer(keep, "openai", ("choose", {"one": {"cat": "x", "age": None}}), strict=True)
        assert message["content"] == "Cat"


@pytest.mark.spec("PRV-2")
def test_a_long_result_is_cut_and_the_rest_is_read_by_reference(keep: Keep) -> None:
    (message,) = answer(keep, "openai", ("read_all", {"length": 200_000}))
    text, _, note = message["content"].partition("\n")
    assert text == "x" * 100_000
    assert note.startswith("[cut at 100000 of 200000 characters; the whole: sha256:")
    reference = note.removesuffix("]").rpartition(" ")[2]
    assert json.loads(keep.read_output(reference)) == "x" * 200_000


def test_a_long_object_comes_by_reference_and_not_in_part(keep: Keep) -> None:
    (message,) = answer(keep, "openai", ("read_all", {"length": 200_000, "as_object": True}))
    assert message["content"].startswith("The output has 200011 characters of JSON")
    reference = message["content"].rpartition(" ")[2]
    assert json.loads(keep.read_output(reference)) == {"text": "x" * 200_000}


def test_an_agent_that_may_not_see_a_tool_is_told_that_there_is_none(keep: Keep) -> None:
    keep.declare_agent("writer")
    keep.use_policies(
        '@id("all") permit (principal, action, resource);',
        '@id("hide") forbid (principal == Agent::"writer", action, resource == Tool::"look");',
    )
    (message,) = answer(keep, "openai", ("look", {"place": "a"}), agent="writer")
    assert Code.UNKNOWN_TOOL.value in json.dumps(records(keep))
    assert looked == []
    assert message["content"].startswith(ERROR_LINE)


CHAT = {"openai", "vllm", "mistral"}
"""They have the same form."""


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_no_response_of_the_provider_is_refused(keep: Keep, provider: str) -> None:
    calls, ours = wire.said(("look", {"place": "a"})), wire.WHOLE[provider]
    alien = [{"foo": 1}, wire.chat(calls)["choices"][0]["message"], {"error": {"message": "overloaded"}}]
    alien += [make(calls) for make in wire.WHOLE.values() if make(calls).keys() != ours(calls).keys()]
    is_chat = provider in CHAT
    for response in alien:
        if not (is_chat and "choices" in response):
            with pytest.raises(ResponseUnreadable):
                asyncio.run(keep.answer(provider, response))
    assert looked == []


@pytest.mark.parametrize("provider", wire.STREAMS)
def test_a_stream_of_another_provider_is_refused(keep: Keep, provider: str) -> None:
    calls = wire.said(("look", {"place": "a"}))
    for other, make in wire.STREAMS.items():
        if other != provider and not {other, provider} <= CHAT:
            with pytest.raises(ResponseUnreadable):
                asyncio.run(keep.answer_stream(provider, make(calls, wire.in_threes)))
    assert looked == []


def test_the_answer_holds_the_results_and_each_call_has_the_id_of_the_model(keep: Keep) -> None:
    answered = keep.answer_sync("anthropic", wire.anthropic(wire.said(*MIXED)), session="s1")
    assert [result.status for result in answered.results] == VERDICTS
    ids = [result.correlation_id for result in answered.results]
    assert ids == [one.id for one in wire.said(*MIXED)]
    response = wire.chat(wire.said(("look", {"place": "a"})))
    (result,) = keep.answer_sync("openai", response, correlation_id="mine").results
    assert result.correlation_id == "mine"
