"""Schemas and calls that are made to cost a provider's form more than they weigh."""

from typing import Any

import pytest

from toolkeep import ToolDefinition
from toolkeep.providers.export import Omitted, prepare
from toolkeep.providers.schema_losses import Losses
from toolkeep.providers.strict.codec import StrictCodec
from toolkeep.providers.strict.nodes import Undecodable
from toolkeep.providers.vendor_registry import vendor_of

LEVELS = 40


def doubling(keyword: str) -> dict[str, Any]:
    """Each level refers to the next one twice: 2^40 places, if somebody writes them out."""

    def level(n: int) -> dict[str, Any]:
        following = {"$ref": f"#/$defs/l{n + 1}"}
        if keyword == "properties":
            return {"type": "object", "properties": {"a": following, "b": following}}
        return {keyword: [following, {**following, "description": "again"}]}

    levels = {f"l{n}": level(n) for n in range(LEVELS)}
    last: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
    return {
        "type": "object",
        "properties": {"top": {"$ref": "#/$defs/l0"}},
        "$defs": {**levels, f"l{LEVELS}": last},
    }


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini", "ollama", "llguidance"])
@pytest.mark.parametrize("keyword", ["properties", "anyOf", "allOf", "oneOf"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_schema_that_doubles_at_each_level_is_made_or_refused_at_once(
    provider: str, keyword: str, strict: bool
) -> None:
    given = {"name": "t", "description": "d", "parameters": doubling(keyword)}
    made = prepare(ToolDefinition.from_elsewhere(given), vendor_of(provider), strict=strict)
    if isinstance(made, Omitted):
        assert made.problem.fix
    else:
        assert len(str(vendor_of(provider).shape(made.shown))) < 1_000_000


def test_alternatives_that_both_fit_at_every_level_are_not_tried_one_after_the_other() -> None:
    def branch(words: str) -> dict[str, Any]:
        return {
            "type": "object",
            "description": words,
            "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "string"}},
            "required": ["b"],
        }

    schema = {
        "type": "object",
        "properties": {"top": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"anyOf": [branch("one"), branch("two")]}},
    }
    codec = StrictCodec(
        ToolDefinition.from_elsewhere({"name": "t", "description": "d", "parameters": schema}), Losses("t")
    )
    value: Any = {"a": None, "b": "end"}
    for _ in range(50):
        value = {"a": value, "b": "x"}
    with pytest.raises(Undecodable):
        codec.decode({"top": value})
