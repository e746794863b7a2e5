"""Streams, whole responses and answers by the vendors' own types; strict round trips by llguidance."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import jsonschema_rs
from llguidance import LLMatcher, LLTokenizer  # type: ignore[import-not-found, unused-ignore]

from tests.providers import wire
from tests.providers.vendors.corpus import real_calls
from tests.providers.vendors.events import ANSWERS, EVENTS, WHOLE
from toolkeep import Keep, ToolDefinition, tool
from toolkeep.providers.response_reader import data_of
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.providers.strict.codec import StrictCodec
from toolkeep.providers.vendor_registry import vendor_of

STREAMS = 200


def executable(turn: Any) -> list[Any]:
    return [call for call in turn.calls if not call.unfinished]


def arguments_of(call: Any) -> Any:
    return json.loads(call.arguments) if isinstance(call.arguments, bytes) else call.arguments


def cut_at_random(seed: int) -> wire.Cut:
    dice = random.Random(seed)  # noqa: S311 -- to cut texts

    def cut(text: str) -> list[str]:
        pieces = []
        while text:
            size = dice.randint(1, 12)
            pieces.append(text[:size])
            text = text[size:]
        return pieces

    return cut


def prefixes(
    provider: str, stream: Any, calls: list[tuple[ToolDefinition, dict[str, Any]]]
) -> dict[str, int]:
    """Every proper prefix of some streams, and their ends."""
    made = {"streams": 0, "prefixes": 0, "executable": 0, "wrong": 0}
    for number in range(STREAMS):
        chosen = [calls[(3 * number + step) % len(calls)] for step in range(1 + number % 3)]
        said = wire.said(*((tool.name, arguments) for tool, arguments in chosen))
        events = list(stream(said, cut_at_random(number)))
        reader = vendor_of(provider).stream()  # type: ignore[misc]
        made["executable"] += len(executable(reader.turn()))
        for event in events[:-1]:
            reader.feed(data_of(EVENTS[provider](event), provider))
            made["prefixes"] += 1
            made["executable"] += len(executable(reader.turn()))
        reader.feed(data_of(EVENTS[provider](events[-1]), provider))
        found = [(call.name, arguments_of(call)) for call in executable(reader.turn())]
        made["streams"] += 1
        made["wrong"] += found != [(one.name, one.arguments) for one in said]
    return made


def flat(calls: list[tuple[ToolDefinition, dict[str, Any]]]) -> list[tuple[ToolDefinition, dict[str, Any]]]:
    """Calls whose arguments hold something at every place: paths lead to nothing that is empty."""
    return [(tool, arguments) for tool, arguments in calls if arguments and is_full(arguments)]


def is_full(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        inside = list(value.values()) if isinstance(value, dict) else value
        return bool(inside) and all(map(is_full, inside))
    return True


def round_trips(calls: list[tuple[ToolDefinition, dict[str, Any]]]) -> dict[str, int]:
    """Arguments encoded for a strict model, judged by a validator and llguidance, and decoded."""
    tokens = LLTokenizer("byte")
    made = {"calls": 0, "right": 0, "not expressible": 0, "invalid": 0, "rejected": 0, "wrong": 0}
    for definition, arguments in calls:
        made["calls"] += 1
        try:
            codec = StrictCodec(definition, Losses(definition.name))
            encoded = codec.encode(arguments)
        except NotExpressible:
            made["not expressible"] += 1
            continue
        if not jsonschema_rs.Draft202012Validator(codec.schema).is_valid(encoded):
            made["invalid"] += 1
        elif not accepts(tokens, codec.schema, json.dumps(encoded, ensure_ascii=False)):
            made["rejected"] += 1
        elif codec.decode(json.loads(json.dumps(encoded))) != arguments:
            made["wrong"] += 1
        else:
            made["right"] += 1
    return made


def accepts(tokens: Any, schema: dict[str, Any], text: str) -> bool:
    matcher = LLMatcher(tokens, LLMatcher.grammar_from_json_schema(schema))
    written = tokens.tokenize_str(text)
    return bool(matcher.try_consume_tokens(written) == len(written) and matcher.is_accepting())


@tool(side_effects=["None"])
async def look(place: str) -> dict[str, str]:
    """Look somewhere.

    Args:
        place: Where.
    """
    return {"seen": place}


async def answered(provider: str) -> list[str]:
    """What is wrong with the answers to an SDK's own response: one call that works and one that does not."""
    keep = Keep()
    keep.register(look)
    good, bad = ("look", {"place": "here"}), ("look", {"palce": "here"})
    rounds = [[good], [bad]] if provider == "mcp" else [[good, bad]]
    faults = []
    for calls in rounds:
        response = wire.WHOLE[provider](wire.said(*calls))
        make = WHOLE.get(provider, lambda data: data)
        messages = await keep.answer(provider, make(response))
        faults += [fault for message in messages if (fault := ANSWERS[provider](message))]
        if not messages:
            faults.append("no answer")
    return faults


def main(data: Path) -> dict[str, Any]:
    calls = real_calls(data)
    report: dict[str, Any] = {name: prefixes(name, wire.STREAMS[name], calls) for name in EVENTS}
    report["gemini in parts"] = prefixes("gemini", wire.vertex_stream, flat(calls))
    report["strict"] = round_trips(calls)
    report["answers"] = {name: asyncio.run(answered(name)) for name in ANSWERS}
    return report
