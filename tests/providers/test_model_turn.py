"""Calls in: what each provider's responses and streams say, and which calls may be run."""

import json
from typing import Any

import pytest

from tests.providers import wire
from toolkeep.errors import ResponseUnreadable
from toolkeep.providers.model_turn import ModelCall, Turn
from toolkeep.providers.response_reader import data_of
from toolkeep.providers.vendor_registry import PROVIDERS, vendor_of

LOOK = ("look", {"place": "here"})
CALLS = wire.said(LOOK, ("count", {"n": 3, "deep": {"a": [1, None]}}))
IDS = ("anthropic", "openai", "openai-responses", "bedrock", "mistral", "cohere")
"""Those that find an answer by the id of its call."""


def read(provider: str, response: Any) -> Turn:
    return vendor_of(provider).read(data_of(response, provider))


def arguments_of(call: ModelCall) -> Any:
    return json.loads(call.arguments) if isinstance(call.arguments, bytes) else call.arguments


def why(turn: Turn) -> list[str]:
    return [call.unfinished for call in turn.calls]


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_whole_response_gives_its_calls(provider: str) -> None:
    calls = CALLS[:1] if provider.startswith("mcp") else CALLS
    turn = read(provider, wire.WHOLE[provider](calls))
    assert why(turn) == [""] * len(calls)
    assert [(call.name, arguments_of(call)) for call in turn.calls] == [(c.name, c.arguments) for c in calls]


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if not name.startswith("mcp")])
def test_a_response_as_text_is_read_strictly(provider: str) -> None:
    text = json.dumps(wire.WHOLE[provider](CALLS))
    assert why(read(provider, text)) == ["", ""]
    assert why(read(provider, text.encode())) == ["", ""]
    for broken in (
        text[:-1],
        text + "{}",
        text.replace('{"', '{"a": 1, "a": 2, "', 1),
        "",
        "[]",
        "null",
        "NaN",
    ):
        with pytest.raises(ResponseUnreadable):
            read(provider, broken)


@pytest.mark.parametrize("given", [None, 3, [], object(), ["a"]])
def test_what_is_no_response_is_refused(given: Any) -> None:
    with pytest.raises(ResponseUnreadable):
        read("anthropic", given)


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", wire.CUT_STOP)
def test_no_call_of_a_response_that_was_cut_may_be_run(provider: str) -> None:
    turn = read(provider, wire.WHOLE[provider](CALLS, wire.CUT_STOP[provider]))
    assert len(turn.calls) == 2
    assert all(why(turn))


@pytest.mark.parametrize(
    ("provider", "stop"),
    [
        ("anthropic", "refusal"),
        ("anthropic", "pause_turn"),
        ("anthropic", "end_turn"),
        ("anthropic", None),
        ("openai", "content_filter"),
        ("openai", None),
        ("openai-responses", "failed"),
        ("openai-responses", "in_progress"),
        ("gemini", "MALFORMED_FUNCTION_CALL"),
        ("gemini", "UNEXPECTED_TOOL_CALL"),
        ("gemini", "TOO_MANY_TOOL_CALLS"),
        ("gemini", "CONTINUATION"),
        ("gemini", "SAFETY"),
        ("bedrock", "malformed_tool_use"),
        ("bedrock", "guardrail_intervened"),
        ("mistral", "stop"),
        ("mistral", "error"),
        ("cohere", "ERROR"),
        ("cohere", "COMPLETE"),
        ("ollama", "load"),
    ],
)
def test_any_other_stop_runs_nothing(provider: str, stop: str | None) -> None:
    assert all(why(read(provider, wire.WHOLE[provider](CALLS, stop))))


def test_a_tool_that_was_forced_stops_with_stop_at_openai() -> None:
    assert why(read("openai", wire.chat(CALLS, "stop"))) == ["", ""]


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", wire.STREAMS)
def test_a_stream_gives_its_calls_at_its_end_and_none_before(provider: str) -> None:
    reader = vendor_of(provider).stream()  # type: ignore[misc]
    *events, last = wire.STREAMS[provider](CALLS, wire.in_threes)
    for event in events:
        reader.feed(event)
        assert all(why(reader.turn()))
    reader.feed(last)
    turn = reader.turn()
    assert why(turn) == ["", ""]
    assert [(call.name, arguments_of(call)) for call in turn.calls] == [(c.name, c.arguments) for c in CALLS]


@pytest.mark.parametrize("provider", ["openai-responses", "gemini", "mistral", "ollama"])
def test_a_stream_that_loses_an_event_runs_nothing_else_than_was_meant(provider: str) -> None:
    """Where a call comes whole, or is said once more at its end; elsewhere nothing could tell."""
    events = list(wire.STREAMS[provider](CALLS, wire.in_threes))
    meant = [(call.name, call.arguments) for call in CALLS]
    for lost in range(len(events)):
        reader = vendor_of(provider).stream()  # type: ignore[misc]
        for number, event in enumerate(events):
            if number != lost:
                reader.feed(event)
        run = [(call.name, arguments_of(call)) for call in reader.turn().calls if not call.unfinished]
        assert all(one in meant for one in run)


@pytest.mark.parametrize(
    ("provider", "end"),
    [("anthropic", "content_block_stop"), ("bedrock", "contentBlockStop"), ("cohere", "tool-call-end")],
)
def test_a_call_that_was_not_ended_is_not_run_though_the_response_ended(provider: str, end: str) -> None:
    reader = vendor_of(provider).stream()  # type: ignore[misc]
    for event in wire.STREAMS[provider](CALLS, wire.in_threes):
        if end not in (event.get("type"), *event):
            reader.feed(event)
    assert why(reader.turn()) == ["it is incomplete"] * 2


def test_what_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.providers.response_reader.RESPONSE_BYTES", 100)
    monkeypatch.setattr("toolkeep.providers.stream_assembly.RESPONSE_BYTES", 10)
    with pytest.raises(ResponseUnreadable):
        read("openai", json.dumps(wire.chat(CALLS)))
    reader = vendor_of("openai").stream()  # type: ignore[misc]
    for event in wire.chat_stream(CALLS, wire.in_threes):
        reader.feed(event)
    assert why(reader.turn()) == ["it is too long"] * 2


def test_what_a_responses_stream_ends_with_must_be_what_it_was_written_with() -> None:
    reader = vendor_of("openai-responses").stream()  # type: ignore[misc]
    for event in wire.responses_stream(CALLS[:1], wire.in_threes):
        if event["type"] == "response.output_item.done":
            event["item"]["arguments"] = '{"place": "elsewhere"}'
        reader.feed(event)
    assert why(reader.turn()) == ["it ended with other arguments than it was written with"]


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "mistral", "cohere"])
@pytest.mark.parametrize("text", ["", "  ", "null", None])
def test_no_arguments_are_no_arguments_however_they_are_written(provider: str, text: str | None) -> None:
    response = wire.WHOLE[provider](CALLS[:1])
    for function in _functions(response):
        function["arguments"] = text
    assert read(provider, response).calls[0].arguments == {}


def _functions(response: Any) -> list[dict[str, Any]]:
    if "output" in response:
        return list(response["output"])
    message = response.get("message") or response["choices"][0]["message"]
    return [call["function"] for call in message["tool_calls"]]


def test_mistral_may_send_an_object_or_text() -> None:
    response = wire.mistral(CALLS[:1])
    _functions(response)[0]["arguments"] = {"place": "here"}
    assert read("mistral", response).calls[0].arguments == {"place": "here"}
    stream = vendor_of("mistral").stream()  # type: ignore[misc]
    for event in wire.mistral_stream(CALLS[:1], wire.in_threes):
        for piece in event["data"]["choices"][0]["delta"].get("tool_calls", []):
            piece["function"]["arguments"] = {"place": "here"}
        stream.feed(event)
    assert [arguments_of(call) for call in stream.turn().calls] == [{"place": "here"}]


@pytest.mark.parametrize("given", ['{"place": "here"}', ["here"], 3, True])
def test_arguments_that_should_be_an_object_are_not_read_as_one(given: Any) -> None:
    response = wire.anthropic(CALLS[:1])
    response["content"][1]["input"] = given
    (call,) = read("anthropic", response).calls
    assert isinstance(call.arguments, bytes)
    assert json.loads(call.arguments) == given


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", IDS)
def test_a_call_without_an_id_is_not_run_where_its_answer_would_reach_nobody(provider: str) -> None:
    for missing in ("", *(["null"] if provider == "mistral" else [])):
        calls = [call._replace(id=missing) for call in CALLS[:1]]
        assert all(why(read(provider, wire.WHOLE[provider](calls))))


@pytest.mark.parametrize("provider", ["gemini", "ollama"])
def test_a_call_without_an_id_is_found_by_its_place_elsewhere(provider: str) -> None:
    response = wire.WHOLE[provider](CALLS)
    if provider == "gemini":
        for part in response["candidates"][0]["content"]["parts"]:
            del part["functionCall"]["id"]
    turn = read(provider, response)
    assert [(call.id, call.unfinished) for call in turn.calls] == [("", ""), ("", "")]


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", [*IDS, "gemini"])
def test_calls_that_share_an_id_are_not_run(provider: str) -> None:
    calls = [call._replace(id="sameid000") for call in CALLS]
    assert (
        why(read(provider, wire.WHOLE[provider](calls)))
        == ["another call of the response has the same id"] * 2
    )


@pytest.mark.parametrize("provider", [name for name in wire.WHOLE if not name.startswith("mcp")])
def test_a_call_that_names_no_tool_is_not_run(provider: str) -> None:
    assert all(why(read(provider, wire.WHOLE[provider]([CALLS[0]._replace(name="")]))))


def test_custom_tools_are_not_run() -> None:
    response = wire.chat([])
    custom = {"id": "c1", "type": "custom", "custom": {"name": "look", "input": "x"}}
    response["choices"][0]["message"]["tool_calls"] = [custom]
    assert all(why(read("openai", response)))
    answer = wire.responses([])
    answer["output"] = [{"type": "custom_tool_call", "call_id": "c1", "name": "look", "input": "x"}]
    assert all(why(read("openai-responses", answer)))


def test_only_the_first_choice_counts() -> None:
    response = wire.chat(CALLS[:1])
    response["choices"].append({**response["choices"][0], "index": 1})
    assert len(read("openai", response).calls) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "response",
    [{}, {"content": 3}, {"choices": [3]}, {"choices": [{"message": 3}]}, {"output": "x"}, {"candidates": [{}]},
     {"message": {"tool_calls": [{"function": 3}]}}, {"params": 3}, {"calls": 3}],
)  # fmt: skip
def test_a_response_of_any_other_shape_runs_nothing(provider: str, response: dict[str, Any]) -> None:
    assert [call for call in read(provider, response).calls if not call.unfinished] == []


@pytest.mark.parametrize(
    "pieces",
    [
        [{"jsonPath": "$.place", "stringValue": "he", "willContinue": True}],
        [{"jsonPath": "$.place", "stringValue": "a"}, {"jsonPath": "$.place", "stringValue": "b"}],
        [{"jsonPath": "$..place", "stringValue": "a"}],
        [{"jsonPath": "$[0]", "stringValue": "a"}],
        [{"jsonPath": "$.a[5]", "stringValue": "a"}],
        [{"jsonPath": "$.a", "stringValue": "a"}, {"jsonPath": "$.a.b", "stringValue": "a"}],
        [{"jsonPath": "$.a"}],
    ],
)
def test_pieces_of_arguments_that_do_not_fit_together_are_not_run(pieces: list[dict[str, Any]]) -> None:
    stream = vendor_of("gemini").stream()  # type: ignore[misc]

    def part(**call: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}

    stream.feed(part(name="look", willContinue=True))
    stream.feed(part(partialArgs=pieces, willContinue=True))
    stream.feed(part())
    stream.feed(wire.gemini([]))
    assert all(why(stream.turn()))


def test_a_thousand_calls_are_read_and_no_more_are_run() -> None:
    calls = [call._replace(id=f"i{n}") for n, call in enumerate(CALLS[:1] * 1_200)]
    turn = read("openai", wire.chat(calls))
    assert sum(not call.unfinished for call in turn.calls) == 1_000
    assert len(turn.calls) == 1_200


@pytest.mark.spec("PRV-2")
def test_a_call_after_the_end_of_a_gemini_stream_is_not_run() -> None:
    reader = vendor_of("gemini").stream()  # type: ignore[misc]
    call = {"content": {"parts": [{"functionCall": {"name": "look", "args": {}}}]}}
    reader.feed({"candidates": [{**call, "finishReason": "STOP"}]})
    reader.feed({"candidates": [{**call, "finishReason": "STOP"}]})
    assert [call.unfinished for call in reader.turn().calls] == ["", "it came after the end"]
