"""What Cedar can express of a tool's parameters."""

import json
from pathlib import Path
from typing import Any

import cedarpy
import pytest

from tests.definitions.examples import made, with_properties
from toolkeep import ToolDefinition
from toolkeep.policy.cedar_schema import ATTRIBUTES, DEPTH, _Reader, cedar_schema, read_shape

pytestmark = pytest.mark.spec("POL-2")

STRING = {"type": "String"}
STRINGS = {"type": "Set", "element": STRING}
LONG = {"type": "Long"}
DECIMAL = {"type": "Extension", "name": "decimal"}


def attributes(properties: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """The attributes of the argument record, as Cedar accepts them."""
    parameters = made(parameters=with_properties(properties, **keywords)).parameters
    schema = cedar_schema(read_shape(parameters))
    cedarpy.Schema.from_json_str(json.dumps(schema))
    record = schema[""]["actions"]["call"]["appliesTo"]["context"]["attributes"]["arguments"]
    found: dict[str, Any] = record["attributes"]
    return found


EXPRESSIBLE = [
    pytest.param({"type": "string"}, STRING, id="text"),
    pytest.param({"enum": ["a", "b"]}, STRING, id="words"),
    pytest.param({"const": "a"}, STRING, id="one word"),
    pytest.param({"enum": ["a", None]}, STRING, id="words or null"),
    pytest.param({"type": "integer"}, LONG, id="integer"),
    pytest.param({"enum": [1, 2]}, LONG, id="integers"),
    pytest.param({"type": "number"}, DECIMAL, id="number"),
    pytest.param({"type": ["integer", "number"]}, DECIMAL, id="integer or number"),
    pytest.param({"type": "number", "enum": [1, 2]}, DECIMAL, id="numbers that are whole"),
    pytest.param({"allOf": [{"type": "number"}, {"type": "integer"}]}, LONG, id="number and integer"),
    pytest.param({"type": "boolean"}, {"type": "Boolean"}, id="boolean"),
    pytest.param({"type": ["string", "null"]}, STRING, id="text or null"),
    pytest.param({"anyOf": [{"type": "string"}, {"type": "null"}]}, STRING, id="any of text and null"),
    pytest.param({"oneOf": [{"const": None}, {"type": "string"}]}, STRING, id="one of null and text"),
    pytest.param({"type": "string", "anyOf": [{"minLength": 1}, {"const": ""}]}, STRING, id="narrowed text"),
    pytest.param(
        {"type": "array", "items": {"type": "integer"}}, {"type": "Set", "element": LONG}, id="array"
    ),
    pytest.param({"allOf": [{"$ref": "#/$defs/word"}], "title": "x"}, STRING, id="reference"),
    pytest.param(
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "Record", "attributes": {"a": {**STRING, "required": True}}},
        id="object",
    ),
    pytest.param(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "integer"},
        },
        {"type": "Record", "attributes": {"a": {**STRING, "required": False}}},
        id="open object with properties",
    ),
]


@pytest.mark.parametrize(("schema", "expected"), EXPRESSIBLE)
def test_a_type_that_cedar_has_is_an_attribute(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    defs = {"word": {"type": "string"}}
    assert attributes({"a": schema}, **{"$defs": defs}) == {"a": {**expected, "required": False}}


INEXPRESSIBLE = [
    pytest.param({"type": ["string", "integer"]}, id="union"),
    pytest.param(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, id="any of"
    ),
    pytest.param({"enum": ["a", 1]}, id="mixed enum"),
    pytest.param({"enum": [True, 1]}, id="true beside one"),
    pytest.param({"enum": [1.5]}, id="enum of floats"),
    pytest.param({"type": "null"}, id="null"),
    pytest.param({"description": "anything"}, id="untyped"),
    pytest.param({"properties": {"a": {"type": "string"}}}, id="properties without type"),
    pytest.param({"type": "object"}, id="open object"),
    pytest.param({"type": "object", "additionalProperties": {"type": "string"}}, id="map"),
    pytest.param({"type": "array"}, id="array of anything"),
    pytest.param({"type": "array", "items": {"type": ["string", "integer"]}}, id="array of a union"),
    pytest.param(
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}, id="tuple"
    ),
    pytest.param({"$ref": "#/$defs/loop"}, id="recursive reference"),
    pytest.param({"$ref": "#/$defs/none"}, id="dangling reference"),
    pytest.param({"$ref": "#word"}, id="anchor"),
    pytest.param({"type": "string", "x-secret": True}, id="secret"),
    pytest.param({"type": "string", "writeOnly": True}, id="write only"),
    pytest.param({"type": "string", "format": "password"}, id="password"),
    pytest.param({"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]}, id="secret inside"),
    pytest.param({"type": "string", "anyOf": [{"writeOnly": True}, {"minLength": 1}]}, id="secret at times"),
    pytest.param({"type": "integer", "x-touches": "fs.read"}, id="touched number"),
    *(
        pytest.param({"type": "string", **part}, id=f"{mark} in {next(iter(part))}")
        for mark in ("secret", "touched")
        for part in (
            {"anyOf": [{"$ref": f"#/$defs/{mark}"}, {"minLength": 1}]},
            {"oneOf": [{"allOf": [{"$ref": f"#/$defs/{mark}"}]}, {"minLength": 1}]},
            {"if": {"minLength": 1}, "then": {"$ref": f"#/$defs/{mark}"}},
            {"not": {"$ref": f"#/$defs/{mark}", "const": ""}},
            {"dependentSchemas": {"a": {"$ref": f"#/$defs/{mark}"}}},
        )
    ),
]


@pytest.mark.parametrize("schema", INEXPRESSIBLE)
def test_what_cedar_cannot_express_and_what_is_secret_is_left_out(schema: dict[str, Any]) -> None:
    loop = {"type": "object", "properties": {"next": {"$ref": "#/$defs/loop"}}}
    definitions = {"loop": loop, "secret": {"writeOnly": True}, "touched": {"x-touches": "fs.read"}}
    shape = read_shape(with_properties({"a": schema, "b": {"type": "string"}}, **{"$defs": definitions}))
    assert set(shape.attributes) == {"b"}


def test_what_one_part_of_a_schema_calls_secret_is_left_out() -> None:
    parameters = with_properties(
        {"a": {"type": "string"}, "b": {"type": "string"}},
        **{"if": {"required": ["b"]}, "then": {"properties": {"a": {"writeOnly": True}}}},
    )
    assert set(read_shape(parameters).attributes) == {"b"}
    parameters = with_properties({"a": {"type": "string"}}, patternProperties={"^a": {"writeOnly": True}})
    assert not read_shape(parameters).attributes


@pytest.mark.parametrize(
    "keywords",
    [
        {"if": {"required": ["b"]}, "then": {"properties": {"a": {"$ref": "#/$defs/secret"}}}},
        {"then": {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/secret"}, {"type": "null"}]}}}},
    ],
)
def test_what_one_part_refers_to_as_secret_is_left_out(keywords: dict[str, Any]) -> None:
    definitions = {"$defs": {"secret": {"writeOnly": True}}}
    parameters = with_properties(
        {"a": {"type": "string"}, "b": {"type": "string"}}, **keywords, **definitions
    )
    assert set(read_shape(parameters).attributes) == {"b"}
    patterns = {"^a": {"$ref": "#/$defs/secret"}}
    parameters = with_properties({"a": {"type": "string"}}, patternProperties=patterns, **definitions)
    assert not read_shape(parameters).attributes


def test_a_record_that_holds_itself_ends_where_it_begins_again() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}
    found = attributes({"a": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}})
    assert found["a"]["attributes"] == {"name": {**STRING, "required": False}}


def test_references_are_not_followed_where_an_id_moves_their_base() -> None:
    schema = {"$id": "other", "type": "string"}
    assert attributes({"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": schema}}) == {}


CERTAIN = [
    ({"type": "string"}, True),
    ({"type": "boolean"}, True),
    ({"type": "array", "items": {"type": "string"}}, True),
    ({"type": "object", "properties": {"a": {"type": "number"}}}, True),
    ({"type": "integer", "minimum": 0, "maximum": 10}, True),
    ({"type": "integer", "exclusiveMinimum": 0, "maximum": 2**63 - 1}, True),
    ({"type": "integer", "enum": [1, 2]}, True),
    ({"enum": [1, 2]}, False),
    ({"allOf": [{"type": "number"}, {"type": "integer", "enum": [1, 2]}]}, False),
    ({"type": "integer"}, False),
    ({"type": "integer", "minimum": 0}, False),
    ({"type": "integer", "minimum": 0, "maximum": 2**63}, False),
    ({"type": "integer", "enum": [1, 2**63]}, False),
    ({"type": "number", "minimum": 0, "maximum": 1}, False),
    ({"type": ["string", "null"]}, False),
    ({"type": "array", "items": {"type": "integer"}}, False),
    ({"type": "array", "items": {"type": ["string", "null"]}}, False),
    ({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}, False),
    ({"type": "string", "x-touches": "fs.read"}, True),
]


@pytest.mark.parametrize(("schema", "is_required"), CERTAIN)
def test_a_required_argument_is_certain_only_if_cedar_can_hold_all_its_values(
    schema: dict[str, Any], is_required: bool
) -> None:
    assert attributes({"a": schema}, required=["a"])["a"]["required"] is is_required


def test_touched_arguments_are_text_or_sets_of_text() -> None:
    found = attributes(
        {
            "path": {"type": "string", "x-touches": "fs.read"},
            "paths": {"type": "array", "items": {"type": "string"}, "x-touches": "fs.read"},
        }
    )
    assert found == {
        "path": {**STRING, "required": False},
        "paths": {"type": "Set", "element": STRING, "required": False},
    }


COMMANDS = [
    ({"type": "string", "x-touches": "process.spawn"}, STRING),
    ({"type": "array", "items": {"type": "string"}, "x-touches": "process.spawn"}, STRING),
    ({"type": "array", "items": {"type": "string", "x-touches": "process.spawn"}}, STRINGS),
    ({"type": "array", "items": {"type": ["string", "null"]}, "x-touches": "process.spawn"}, None),
    ({"type": "array", "items": {"type": "integer"}, "x-touches": "process.spawn"}, None),
    ({"type": "array", "x-touches": "process.spawn"}, None),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "x-touches": "process.spawn"}, None),
    (
        {"type": "array", "items": {"type": "string", "x-touches": "fs.read"}, "x-touches": "process.spawn"},
        None,
    ),
]


@pytest.mark.parametrize(("schema", "expected"), COMMANDS)
def test_a_command_is_one_text_in_either_form(schema: dict[str, Any], expected: Any) -> None:
    found = attributes({"a": schema, "b": {"type": "string"}}).get("a")
    assert found == (None if expected is None else {**expected, "required": False})


@pytest.mark.parametrize("name", ["__entity", "__extn", "__expr", "__cedar", "\ud800"])
def test_names_that_cedar_keeps_or_cannot_hold_are_left_out(name: str) -> None:
    assert set(
        read_shape(with_properties({name: {"type": "string"}, "b": {"type": "string"}})).attributes
    ) == {"b"}


@pytest.mark.parametrize("name", ["", "a b", 'say "x"', "a\x00\n", "type", "if", "String", "é", "e\u0301"])
def test_any_other_key_is_an_attribute(name: str) -> None:
    assert set(attributes({name: {"type": "string"}})) == {name}


def test_nesting_ends_at_the_limit() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(DEPTH - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    assert set(attributes({"a": schema})) == {"a"}
    assert attributes({"a": {"type": "object", "properties": {"a": schema}}}) == {}


def test_attributes_beyond_the_limit_are_left_out() -> None:
    assert len(attributes({f"a{n}": {"type": "string"} for n in range(ATTRIBUTES + 10)})) == ATTRIBUTES


def test_references_that_fan_out_end_within_the_budget() -> None:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 9):
        defs[f"d{n}"] = {
            "type": "object",
            "properties": {f"p{i}": {"$ref": f"#/$defs/d{n - 1}"} for i in range(9)},
        }
    root = with_properties({"a": {"$ref": "#/$defs/d7"}}, **{"$defs": defs})
    reader = _Reader(root)
    reader.read([root], depth=0, followed=frozenset())
    assert -1_000 < reader._steps < 0


def test_every_real_tool_gets_a_schema_that_cedar_accepts(shared_data: Path) -> None:
    tools = [json.loads(line) for line in (shared_data / "tools.jsonl").read_text().splitlines()]
    seen = set()
    for tool in tools:
        parameters = tool.get("schema_normalised") or tool["schema"]
        data = {"name": tool["name"], "description": tool["description"], "parameters": parameters}
        schema = json.dumps(cedar_schema(read_shape(ToolDefinition.from_elsewhere(data).parameters)))
        if schema not in seen:
            cedarpy.Schema.from_json_str(schema)
        seen.add(schema)
    assert len(tools) > 2_000
    assert len(seen) > 1_000
