"""Streams that contradict themselves, go on after their end or never end: nothing of it is run, or held for ever."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.providers import wire
from toolkeep import Keep
from toolkeep.errors import ResponseUnreadable
from toolkeep.limits import STREAM_CALLS_MOST
from toolkeep.providers.keep_provider import KeepProvider
from toolkeep.providers.model_turn import Turn
from toolkeep.providers.vendor_registry import vendor_of

LOOK, COUNT = wire.said(("look", {"place": "here"}), ("count", {"n": 3}))
IN_PIECES = ("anthropic", "openai", "openai-responses", "bedrock", "cohere")
"""Those whose arguments come as pieces of text."""

Events = list[wire.Event]


def events(provider: str, *calls: wire.Said) -> Events:
    return list(wire.STREAMS[provider](calls or (LOOK,), wire.in_threes))


def turn_of(provider: str, stream: Events) -> Turn:
    reader = vendor_of(provider).stream()  # type: ignore[misc]
    for event in stream:
        reader.feed(event)
    return reader.turn()


def run(provider: str, stream: Events) -> list[tuple[str, Any]]:
    """The calls that would be made."""
    calls = [call for call in turn_of(provider, stream).calls if not call.unfinished]
    return [
        (one.name, json.loads(one.arguments) if isinstance(one.arguments, bytes) else one.arguments)
        for one in calls
    ]


# --- after the end -----------------------------------------------------------------------------------


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", [name for name in wire.STREAMS if name != "gemini"])
def test_a_call_that_comes_after_the_end_is_not_run(provider: str) -> None:
    """Gemini's calls are whole each by itself, and older models end every response of a stream."""
    late = [_numbered(event, 7) for event in events(provider, COUNT)]
    assert run(provider, [*events(provider), *late]) == [("look", {"place": "here"})]


def _numbered(event: wire.Event, index: int) -> wire.Event:
    """The event of another call than the first."""
    text = json.dumps(event)
    for key in ('"index": 0', '"output_index": 0', '"contentBlockIndex": 0'):
        text = text.replace(key, key.replace("0", str(index)))
    made: wire.Event = json.loads(text.replace('"choices": [{"index": 7', '"choices": [{"index": 0'))
    return made


@pytest.mark.parametrize("provider", IN_PIECES)
def test_a_call_that_goes_on_after_the_end_is_not_run(provider: str) -> None:
    stream = events(provider)
    assert run(provider, stream) == [("look", {"place": "here"})]
    (piece,) = [event for event in stream if '"ere"' in json.dumps(event)]
    assert run(provider, [*stream, piece]) == []


@pytest.mark.parametrize("provider", ["openai", "mistral"])
def test_an_object_does_not_make_good_what_came_before_it(provider: str) -> None:
    """The whole arguments at once, after the end of the response and after another name."""

    def chunk(stop: str | None = None, **call: Any) -> wire.Event:
        made = {"index": 0, "id": "call00000", **call}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": stop}]}

    begun = chunk(function={"name": "look"})
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    whole = {"arguments": {"place": "here"}}
    assert run(provider, [begun, chunk(function=whole), ended]) == [("look", {"place": "here"})]
    assert run(provider, [begun, ended, chunk(function=whole)]) == []
    assert run(provider, [begun, chunk(function={"name": "count", **whole}), ended]) == []


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize("provider", wire.STREAMS)
def test_a_response_that_was_cut_is_not_ended_well_by_a_second_end(provider: str) -> None:
    whole, last = events(provider), -2 if provider == "anthropic" else -1
    end = whole[last:]
    cut = json.loads(json.dumps(end).replace(f'"{STOPS[provider]}"', f'"{wire.CUT_STOP[provider]}"'))
    assert run(provider, whole) == [("look", {"place": "here"})]
    assert run(provider, [*whole[:last], *cut]) == []
    assert run(provider, [*whole[:last], *cut, *end]) == []


STOPS = {
    "anthropic": "tool_use",
    "openai": "tool_calls",
    "vllm": "tool_calls",
    "openai-responses": "completed",
    "gemini": "STOP",
    "bedrock": "tool_use",
    "mistral": "tool_calls",
    "cohere": "TOOL_CALL",
    "ollama": "stop",
}
"""How an end says that calls may be made."""


# --- one call that is two ----------------------------------------------------------------------------


@pytest.mark.parametrize("provider", IN_PIECES)
def test_a_call_that_changes_its_name_half_way_is_not_run(provider: str) -> None:
    stream = events(provider)
    half = len(stream) // 2
    assert run(provider, stream[:half] + _renamed(stream[:half]) + stream[half:]) == []


def _renamed(stream: Events) -> Events:
    made: Events = json.loads(json.dumps(stream).replace('"look"', '"count"'))
    return made


def test_a_call_that_ends_under_another_name_or_id_is_not_run() -> None:
    *stream, ended, completed = events("openai-responses")
    for field in ("name", "call_id"):
        other = {**ended, "item": {**ended["item"], field: "another"}}
        assert run("openai-responses", [*stream, other, completed]) == []
        assert run("openai-responses", [*stream, ended, other, completed]) == []


@pytest.mark.parametrize("provider", IN_PIECES)
def test_calls_whose_pieces_come_interleaved_are_told_apart(provider: str) -> None:
    stream = events(provider, LOOK, COUNT)
    first, *middle, last = stream
    ends = [first, *_interleaved(middle), last]
    assert run(provider, ends) in (
        [("look", {"place": "here"}), ("count", {"n": 3})],
        [("count", {"n": 3}), ("look", {"place": "here"})],
    )


def _interleaved(middle: Events) -> Events:
    """The events of two calls by turns; those of neither at the end."""
    of_second = ['"index": 1', '"output_index": 1', '"contentBlockIndex": 1']
    of_first = [mark.replace("1", "0") for mark in of_second]
    texts = [json.dumps(event).replace('"choices": [{"index": 0', '"choices": [{"') for event in middle]
    second = [one for one, text in zip(middle, texts, strict=True) if any(mark in text for mark in of_second)]
    first = [
        one
        for one, text in zip(middle, texts, strict=True)
        if one not in second and any(mark in text for mark in of_first)
    ]
    rest = [one for one in middle if one not in first and one not in second]
    both: Events = []
    while first or second:
        both += second[:1] + first[:1]
        first, second = first[1:], second[1:]
    return both + rest


@pytest.mark.parametrize("provider", wire.STREAMS)
@pytest.mark.parametrize("index", [[], {}, [[0]], None, 1.5, "0", True, -1])
def test_an_index_may_be_anything(provider: str, index: Any) -> None:
    """As data of an SDK that checks nothing; what cannot be told apart is not run in another's place."""

    def renumbered(value: Any) -> Any:
        if isinstance(value, list):
            return [renumbered(item) for item in value]
        if not isinstance(value, dict):
            return value
        keys = ("index", "output_index", "contentBlockIndex")
        return {key: index if key in keys else renumbered(item) for key, item in value.items()}

    made = run(provider, [renumbered(event) for event in events(provider)])
    assert made in ([], [("look", {"place": "here"})])


# --- gemini's parts ----------------------------------------------------------------------------------


def part(**call: Any) -> wire.Event:
    return {"candidates": [{"content": {"parts": [{"functionCall": call}]}}]}


@pytest.mark.parametrize(
    "more",
    [
        part(args={"place": "here"}),
        part(partialArgs="place"),
        part(partialArgs=["place"]),
        part(partialArgs=[{"jsonPath": "$.n", "numberValue": 3, "willContinue": True}]),
        part(id="another"),
        part(name="count"),
    ],
    ids=["arguments", "a text", "a list of text", "a number that goes on", "another id", "another name"],
)
def test_parts_that_are_no_pieces_of_the_call_are_not_passed_over(more: wire.Event) -> None:
    begun = part(id="a", name="look", willContinue=True)
    assert run("gemini", [begun, part(), wire.gemini([])]) == [("look", {})]
    assert run("gemini", [begun, more, wire.gemini([])]) == []


def test_only_the_first_candidate_counts_in_each_response() -> None:
    other = wire.gemini([COUNT], None)
    other["candidates"][0]["index"] = 1
    assert run("gemini", [other, *events("gemini")]) == [("look", {"place": "here"})]


def test_a_text_in_very_many_pieces_is_joined() -> None:
    pieces = [{"jsonPath": "$.place", "stringValue": "x" * 20, "willContinue": True}] * 10_000
    begun = part(id="a", name="look", willContinue=True, partialArgs=pieces)
    ended = part(partialArgs=[{"jsonPath": "$.place", "stringValue": ""}])
    assert run("gemini", [begun, ended, wire.gemini([])]) == [("look", {"place": "x" * 200_000})]


# --- what is held ------------------------------------------------------------------------------------


ENDLESS: dict[str, Callable[[int], wire.Event]] = {
    "anthropic": lambda n: {
        "type": "content_block_start",
        "index": n,
        "content_block": {"type": "tool_use", "id": f"i{n}", "name": "look", "input": {}},
    },
    "openai": lambda n: {"choices": [{"delta": {"tool_calls": [{"index": n, "id": f"i{n}"}]}}]},
    "openai-responses": lambda n: {
        "type": "response.output_item.added",
        "output_index": n,
        "item": {"type": "function_call", "call_id": f"i{n}", "name": "look"},
    },
    "gemini": lambda n: part(id=f"i{n}", name="look"),
    "bedrock": lambda n: {
        "contentBlockStart": {
            "start": {"toolUse": {"toolUseId": f"i{n}", "name": "look"}},
            "contentBlockIndex": n,
        }
    },
    "cohere": lambda n: {"type": "tool-call-start", "index": n, "delta": {}},
    "ollama": lambda n: {"message": {"tool_calls": [{"function": {"name": "look"}}]}},
}


@pytest.mark.parametrize("provider", ENDLESS)
def test_a_stream_that_begins_calls_without_end_is_left(provider: str) -> None:
    taken = 0

    def stream() -> Iterator[wire.Event]:
        nonlocal taken
        while taken < 2 * STREAM_CALLS_MOST:
            taken += 1
            yield ENDLESS[provider](taken)

    with Keep() as keep, pytest.raises(ResponseUnreadable, match="more than 10000 calls"):
        asyncio.run(KeepProvider(keep).read_stream(provider, stream()))
    assert taken == STREAM_CALLS_MOST + 1


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses", "bedrock", "cohere"])
def test_all_calls_of_a_stream_together_are_bounded(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.providers.stream_assembly.RESPONSE_BYTES", len(LOOK.text))
    why = [call.unfinished for call in turn_of(provider, events(provider, LOOK, COUNT)).calls]
    assert why == ["", "it is too long"]
    assert run(provider, events(provider, LOOK, COUNT)) == [("look", {"place": "here"})]


def test_the_parts_of_a_gemini_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.providers.gemini.RESPONSE_BYTES", 40)
    pieces = [{"jsonPath": f"$.a{n}", "stringValue": ""} for n in range(40)]
    begun = part(id="a", name="look", willContinue=True, partialArgs=pieces)
    (call,) = turn_of("gemini", [begun, part(), wire.gemini([])]).calls
    assert (call.unfinished, len(call.arguments)) == ("it is too long", 8)
