"""Schemas as each provider takes them, and what is noted about the rest."""

from typing import Any

import jsonschema_rs
import pytest

from toolkeep import ToolDefinition
from toolkeep.json_values.pointers import look_up, pointer
from toolkeep.providers.schema_adaptation import fitted
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.providers.vendor_registry import vendor_of


def fit(provider: str, schema: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    given = {"name": "t", "description": "d", "parameters": schema}
    losses = Losses("t")
    made = fitted(ToolDefinition.from_elsewhere(given), vendor_of(provider).profile, losses)
    return made, [(loss.pointer, loss.keyword, loss.became) for loss in losses.all()]


RICH = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "description": "A code."},
        "mode": {"const": "fast"},
    },
    "required": ["code"],
}
CLOSED = {"additionalProperties": False}
TOLD = [("", "additionalProperties", "moved")]


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize("provider", ["anthropic", "openai", "mistral", "cohere", "mcp", "json-schema"])
def test_a_provider_that_takes_json_schema_gets_it_as_it_is_and_is_told_that_it_is_closed(
    provider: str,
) -> None:
    assert fit(provider, RICH) == ({**RICH, **CLOSED}, [])


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize("provider", ["gemini", "ollama"])
def test_what_a_provider_does_not_know_is_said_in_the_description_and_noted(provider: str) -> None:
    made, losses = fit(provider, RICH)
    assert made["properties"]["code"] == {
        "type": "string",
        "description": 'A code. (pattern: "^[a-z]+$"; minLength: 2)',
    }
    assert made["properties"]["mode"] == {"enum": ["fast"]}
    assert losses == [
        *(TOLD if provider == "ollama" else []),
        ("/properties/code", "pattern", "moved"),
        ("/properties/code", "minLength", "moved"),
        ("/properties/mode", "const", "kept"),
    ]


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize("provider", ["anthropic", "openai", "ollama"])
def test_a_root_of_alternatives_becomes_one_object_with_all_of_their_properties(provider: str) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "anyOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a", "id"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b", "id"]},
        ],
    }
    made, losses = fit(provider, schema)
    assert made == {
        "type": "object",
        "properties": {"id": {"type": "string"}, "a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["id"],
        **({} if provider == "ollama" else CLOSED),
    }
    assert losses == [("", "anyOf", "weakened"), *(TOLD if provider == "ollama" else [])]


def test_a_root_that_must_be_all_of_several_is_merged() -> None:
    schema = {
        "allOf": [
            {"$ref": "#/$defs/base"},
            {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ],
        "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
    }
    made, losses = fit("openai", schema)
    assert made["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}
    assert made["required"] == ["a", "b"]
    assert losses == [("", "allOf", "kept")]


def test_a_root_that_only_refers_is_written_out() -> None:
    schema = {
        "$ref": "#/$defs/it",
        "$defs": {"it": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }
    made, losses = fit("anthropic", schema)
    assert (made["type"], made["properties"]) == ("object", {"a": {"type": "string"}})
    assert losses == [("", "$ref", "kept")]


@pytest.mark.spec("PRV-1")
def test_an_optional_parameter_with_a_name_that_is_not_taken_is_left_out_and_a_required_one_refuses() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"$.odd": {"type": "string"}, "good": {"type": "string"}},
    }
    made, losses = fit("anthropic", schema)
    assert list(made["properties"]) == ["good"]
    assert losses == [("/properties/$.odd", "properties", "weakened")]
    with pytest.raises(NotExpressible) as refused:
        fit("anthropic", {**schema, "required": ["$.odd"]})
    assert refused.value.pointer == "/properties/$.odd"
    assert fit("openai", schema) == ({**schema, **CLOSED}, [])


def test_an_array_says_what_its_items_are_where_that_is_demanded() -> None:
    schema = {"type": "object", "properties": {"list": {"type": "array"}}}
    assert fit("openai", schema)[0]["properties"]["list"] == {"type": "array", "items": {}}
    assert fit("anthropic", schema)[0]["properties"]["list"] == {"type": "array"}


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node", "description": "The first."}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }
    },
}


def test_references_are_written_out_for_ollama_and_cut_where_they_go_round() -> None:
    made, losses = fit("ollama", TREE)
    assert made["properties"]["root"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "below": {"type": "array", "items": {"type": "object"}},
        },
        "description": "The first. (additionalProperties: false)",
    }
    assert ("/properties/root/properties/below/items", "$ref", "weakened") in losses


def test_a_reference_stands_alone_for_gemini() -> None:
    made, _ = fit("gemini", TREE)
    assert made["properties"]["root"] == {"description": "The first.", "anyOf": [{"$ref": "#/$defs/node"}]}
    assert "node" in made["$defs"]


@pytest.mark.parametrize("name", ["x", "a/b", "a~b"])
def test_a_definition_under_both_words_keeps_both_meanings(name: str) -> None:
    place = pointer((name,))
    made, _ = fit(
        "gemini",
        {
            "type": "object",
            "properties": {"old": {"$ref": f"#/definitions{place}"}, "new": {"$ref": f"#/$defs{place}"}},
            "definitions": {name: {"type": "string"}},
            "$defs": {name: {"type": "integer"}, f"{name}.definitions": {"type": "boolean"}},
        },
    )
    found = {key: look_up(made, part["$ref"][1:])["type"] for key, part in made["properties"].items()}
    assert found == {"old": "string", "new": "integer"}


def test_definitions_of_older_drafts_are_found_by_gemini() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/x"}},
        "definitions": {"x": {"type": "string"}},
    }
    made, _ = fit("gemini", schema)
    assert made == {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "string"}},
        **CLOSED,
    }


def test_a_schema_that_grows_without_end_when_written_out_is_refused() -> None:
    levels = {
        f"l{n}": {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/l{n + 1}"}, "b": {"$ref": f"#/$defs/l{n + 1}"}},
        }
        for n in range(20)
    }
    schema = {
        "type": "object",
        "properties": {"top": {"$ref": "#/$defs/l0"}},
        "$defs": {**levels, "l20": {"type": "string"}},
    }
    with pytest.raises(NotExpressible):
        fit("ollama", schema)


def test_what_is_secret_is_in_no_export() -> None:
    definition = ToolDefinition.from_dict(
        {
            "name": "log_in",
            "description": "d",
            "parameters": {
                "type": "object",
                "properties": {
                    "key": {
                        "type": "string",
                        "writeOnly": True,
                        "pattern": "^sk-live",
                        "default": "sk-live-1",
                    }
                },
            },
        }
    )
    for provider in ("anthropic", "openai", "gemini", "ollama", "llguidance"):
        losses = Losses("log_in")
        assert "sk-live" not in str(fitted(definition, vendor_of(provider).profile, losses))
        assert "sk-live" not in str(losses.all())


PAIR = [{"type": "number"}, {"type": "string"}]
TUPLES = {
    "draft-07": {"type": "array", "items": PAIR, "additionalItems": False, "minItems": 2},
    "2020-12": {"type": "array", "prefixItems": PAIR, "items": False, "minItems": 2},
}
PROVIDERS = (
    "anthropic",
    "openai",
    "openai-responses",
    "gemini",
    "ollama",
    "bedrock",
    "mistral",
    "cohere",
    "mcp",
)


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize("provider", [*PROVIDERS, "json-schema", "llguidance", "vllm"])
def test_every_export_is_2020_12_and_forbids_no_valid_call(provider: str) -> None:
    """Providers reject a whole request for a tuple of draft-07."""
    headers = {"x-a": "1", "x-b": "2"}
    patterned = {
        "type": "object",
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": False,
    }
    for dialect, pair in TUPLES.items():
        old = {"$schema": "http://json-schema.org/draft-07/schema#"} if dialect == "draft-07" else {}
        properties = {"pair": pair, "headers": patterned}
        made, _ = fit(provider, {**old, "type": "object", "properties": properties})
        assert "$schema" not in made
        jsonschema_rs.meta.validate({**made, "$schema": "https://json-schema.org/draft/2020-12/schema"})
        judge = jsonschema_rs.Draft202012Validator(made)
        judge.validate({"pair": [1.5, "a"], "headers": headers})
        assert made["properties"]["pair"].get("items") != {"not": {}}
        if "prefixItems" in made["properties"]["pair"]:
            assert not judge.is_valid({"pair": [1.5, "a", 2]})
