"""References of imports into unknown keywords lead to `$defs`, where everything is checked."""

from typing import Any

import jsonschema_rs
import pytest

from toolkeep import ToolDefinition
from toolkeep.definitions import moved_definitions
from toolkeep.definitions.moved_definitions import with_moved_definitions
from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.errors import DefinitionError
from toolkeep.registry.admit import admit
from toolkeep.validation.schema_keywords import KNOWN

PET = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "friend": {"$ref": "#/components/schemas/Pet%20A"}},
    "required": ["name"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "pet": {"$ref": "#/components/schemas/Pet%20A"},
        "tag": {"$ref": "#/components/schemas/Pet%20A/properties/name"},
        "kept": {"$ref": "#/$defs/name", "default": {"$ref": "#/components/schemas"}},
    },
    "$defs": {"name": {"type": "integer"}},
    "components": {"schemas": {"Pet A": PET}},
    "x-other": {"words": "stay"},
}


def imported(schema: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition.from_elsewhere({"name": "t", "description": "d", "parameters": schema})


@pytest.mark.spec("VAL-1")
@pytest.mark.parametrize(
    "call",
    [
        {"pet": {"name": "a", "friend": {"name": "b"}}, "tag": "x", "kept": 1},
        {"pet": {"name": "a", "friend": {"name": 1}}},
        {"pet": {"friend": {}}},
        {"tag": 3},
        {"kept": "x"},
    ],
)
def test_calls_get_the_verdict_that_the_engine_gives_to_the_schema_as_written(call: dict[str, Any]) -> None:
    expected = jsonschema_rs.Draft202012Validator(SCHEMA).is_valid(call)
    assert admit(imported(SCHEMA)).arguments.is_valid(call) is expected


def test_only_what_is_referred_to_is_moved() -> None:
    made = with_moved_definitions(SCHEMA)
    assert sorted(made["$defs"]) == ["Pet_A", "name", "name_2"]
    assert ("components" in made, made["x-other"]) == (False, {"words": "stay"})
    assert made["properties"]["kept"]["default"] == {"$ref": "#/components/schemas"}


def test_secrets_in_what_is_moved_are_found() -> None:
    secret = {"type": "string", "writeOnly": True, "default": "sk-live"}
    schema = {"type": "object", "properties": {"key": {"$ref": "#/parts/key"}}, "parts": {"key": secret}}
    assert "sk-live" not in str(public_schema(imported(schema).parameters))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/default/x"}}, "default": {"x": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/parts/none"}}, "parts": {"x": {}}},
        {"properties": {"a": {"$ref": "#/parts/list"}}, "parts": {"list": [1]}},
        {"properties": {"a": {"$ref": "https://elsewhere.example/a.json"}}, "parts": {"x": {}}},
        {"properties": {"a": {"$ref": "#/parts/x"}}, "parts": {"x": {"type": "wrong"}}},
        {"properties": {"a": {"$ref": "#/parts/x"}}, "parts": {"x": {"pattern": "(a+)+(?=b)"}}},
        {
            "properties": {"a": {"$id": "https://b.example/", "$ref": "#/parts/x", "$defs": {"x": {}}}},
            "parts": {"x": {}},
        },
    ],
    ids=["data", "nowhere", "a list", "another place", "no schema", "a bad pattern", "another base"],
)
def test_what_is_no_schema_of_this_one_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        admit(imported({"type": "object", **schema}))


def test_no_keyword_that_holds_an_object_counts_as_unknown() -> None:
    for keyword in KNOWN - {"$defs"}:
        schema = {"properties": {"a": {"$ref": f"#/{keyword}/x"}}, keyword: {"x": {}}}
        is_schema = jsonschema_rs.meta.is_valid(schema)  # such as no object under `title`
        assert not is_schema or with_moved_definitions(schema) == schema, keyword


def test_pointers_into_each_other_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_definitions, "_MOST_OBJECTS", 20)
    assert with_moved_definitions(SCHEMA) != SCHEMA
    wide = {f"p{n}": {"$ref": f"#/parts/{n}"} for n in range(20)}
    schema = {"properties": wide, "parts": {str(n): {} for n in range(20)}}
    assert with_moved_definitions(schema) is schema


def test_a_definition_by_hand_is_refused_as_before() -> None:
    with pytest.raises(DefinitionError):
        admit(ToolDefinition.from_dict({"name": "t", "description": "d", "parameters": SCHEMA}))
