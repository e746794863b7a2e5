"""Which properties a closed schema lets through (VAL-2), and that closing never lets through more."""

from typing import Any

import pytest

from toolkeep import ToolDefinition
from toolkeep.registry.admit import admit
from toolkeep.validation.close_objects import close_objects
from toolkeep.validation.schema_keywords import all_schemas

pytestmark = pytest.mark.spec("VAL-2")

A = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"type": "object", "properties": {"b": {"type": "integer"}}}
TAGGED = [
    {
        "type": "object",
        "properties": {"kind": {"const": "x"}, "x": {"type": "integer"}},
        "required": ["kind"],
    },
    {
        "type": "object",
        "properties": {"kind": {"const": "y"}, "y": {"type": "integer"}},
        "required": ["kind"],
    },
]


def accepts(place: Any, value: Any, **definitions: Any) -> bool:
    """Whether a value may stand at a place below the root of a tool's parameters."""
    parameters = {"type": "object", "properties": {"p": place}, "$defs": definitions}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    return tool.arguments.is_valid({"p": value})


CASES: list[tuple[str, Any, Any, bool]] = [
    ("silent object", A, {"a": 1}, True),
    ("silent object", A, {"a": 1, "z": 1}, False),
    ("free map", {"type": "object"}, {"z": {"y": 1}}, True),
    ("object without type", {"properties": {"a": {"type": "integer"}}}, {"z": 1}, False),
    ("open by word", {**A, "additionalProperties": True}, {"a": 1, "z": 1}, True),
    ("typed others", {**A, "additionalProperties": {"type": "string"}}, {"a": 1, "z": "s"}, True),
    ("typed others", {**A, "additionalProperties": {"type": "string"}}, {"a": 1, "z": 1}, False),
    ("pattern names", {"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, {"x1": 1}, True),
    ("pattern names", {"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, {"y": 1}, False),
    ("items", {"type": "array", "items": A}, [{"a": 1}, {"z": 1}], False),
    ("reference", {"$ref": "#/$defs/A"}, {"a": 1}, True),
    ("reference", {"$ref": "#/$defs/A"}, {"a": 1, "z": 1}, False),
    ("reference beside words", {"$ref": "#/$defs/A", "description": "x"}, {"z": 1}, False),
    ("reference beside properties", {"$ref": "#/$defs/A", **B}, {"a": 1, "b": 1}, True),
    ("reference beside properties", {"$ref": "#/$defs/A", **B}, {"a": 1, "z": 1}, False),
    ("all of", {"allOf": [A, B]}, {"a": 1, "b": 1}, True),
    ("all of", {"allOf": [A, B]}, {"a": 1, "z": 1}, False),
    ("all of one", {"allOf": [{"$ref": "#/$defs/A"}], "nullable": True}, {"a": 1}, True),
    ("all of one", {"allOf": [{"$ref": "#/$defs/A"}], "nullable": True}, {"a": 1, "z": 1}, False),
    ("all of one, beside others", {"allOf": [A], **B}, {"a": 1, "b": 1}, True),
    ("all of one that is open", {"allOf": [{**A, "additionalProperties": True}]}, {"z": 1}, True),
    ("any of", {"anyOf": [A, B]}, {"a": 1, "b": 1}, True),
    ("any of", {"anyOf": [A, B]}, {"a": 1, "z": 1}, False),
    ("optional", {"anyOf": [A, {"type": "null"}]}, None, True),
    ("optional", {"anyOf": [A, {"type": "null"}]}, {"z": 1}, False),
    ("one of", {"oneOf": TAGGED}, {"kind": "x", "x": 1}, True),
    ("one of", {"oneOf": TAGGED}, {"kind": "x", "y": 1}, False),
    (
        "one of, nested",
        {"oneOf": [{"type": "object", "properties": {"o": A}}, {"type": "null"}]},
        {"o": {"z": 1}},
        False,
    ),
    ("tagged any of", {"anyOf": TAGGED}, {"kind": "y", "y": 1}, True),
    ("tagged any of", {"anyOf": TAGGED}, {"kind": "y", "x": 1}, False),
    ("at least one", {**A, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, True),
    ("if", {**A, "if": {"required": ["a"]}, "then": {"properties": {"c": True}}}, {"a": 1, "c": 1}, True),
    ("if", {**A, "if": {"required": ["a"]}, "then": {"properties": {"c": True}}}, {"c": 1}, False),
    ("dependent", {**A, "dependentSchemas": {"a": B}}, {"a": 1, "b": 1}, True),
    ("dependent", {**A, "dependentSchemas": {"a": B}}, {"b": 1}, False),
]


@pytest.mark.parametrize(("name", "place", "value", "is_accepted"), CASES)
def test_an_object_accepts_only_what_its_schema_names(
    name: str, place: Any, value: Any, is_accepted: bool
) -> None:
    assert accepts(place, value, A=A) is is_accepted


TURNED: list[tuple[str, Any, Any]] = [
    ("not", {"type": "object", "not": {"properties": {"o": A}, "required": ["o"]}}, {"o": {"a": 1, "z": 1}}),
    ("one of two that fit", {"oneOf": [{"properties": {"o": A}}, {"properties": {"o": B}}]}, {"o": {"a": 1}}),
    ("one of two at the root", {"oneOf": [A, B]}, {"a": 1}),
    ("if", {"if": {"properties": {"o": A}}, "then": False}, {"o": {"z": 1}}),
    ("contains at most", {"type": "array", "contains": A, "maxContains": 1}, [{"a": 1}, {"z": 1}]),
]


@pytest.mark.parametrize(("name", "place", "value"), TURNED)
def test_closing_does_not_reach_where_narrower_means_wider(name: str, place: Any, value: Any) -> None:
    """Each value is rejected by the schema as written; closing the inner objects would accept it."""
    assert not accepts(place, value)


def test_the_root_is_closed_even_without_properties() -> None:
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": {"type": "object"}}))
    assert tool.arguments.is_valid({})
    assert not tool.arguments.is_valid({"z": 1})


@pytest.mark.parametrize(
    ("beside", "value", "is_accepted"),
    [
        ({}, {"a": 1}, True),
        ({}, {"z": 1}, False),
        ({"required": ["a"]}, {}, False),
        ({"required": ["a"]}, {"a": 1}, True),
        ({"not": {"required": ["a"]}}, {"a": 1}, False),
        ({"maxProperties": 0}, {"a": 1}, False),
        ({"additionalProperties": False}, {"a": 1}, False),
        ({"description": "x", "type": "object"}, {"a": 1}, True),
    ],
)
def test_what_stands_beside_a_reference_at_the_root_counts(
    beside: dict[str, Any], value: Any, is_accepted: bool
) -> None:
    parameters = {"$ref": "#/$defs/A", "$defs": {"A": A}, **beside}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert tool.arguments.is_valid(value) is is_accepted


def test_a_root_that_refers_to_a_free_map_is_closed() -> None:
    parameters = {"$ref": "#/$defs/M", "$defs": {"M": {"type": "object"}}}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert not tool.arguments.is_valid({"z": 1})


def test_the_engine_is_given_nothing_that_it_does_not_look_at() -> None:
    """What it is given it keeps: large real tools took half as much memory again."""
    said = {"type": "string", "x-order": [1, 2], "nullable": True, "readOnly": True, "description": "x"}
    place = {"allOf": [A], "x-docs": {"properties": {"a": 1}}, "title": "x"}
    assert close_objects({"type": "object", "properties": {"said": said, "place": place}}) == {
        "type": "object",
        "properties": {
            "said": {"type": "string"},
            "place": {"allOf": [{**A, "additionalProperties": False}]},
        },
        "additionalProperties": False,
        "$defs": {},
    }


def test_a_definition_is_closed_where_it_stands_alone_and_open_where_it_is_a_part() -> None:
    place = {
        "type": "object",
        "properties": {"alone": {"$ref": "#/$defs/A"}, "part": {"allOf": [{"$ref": "#/$defs/A"}, B]}},
    }
    assert accepts(place, {"alone": {"a": 1}, "part": {"a": 1, "b": 1}}, A=A)
    assert not accepts(place, {"alone": {"a": 1, "b": 1}}, A=A)


@pytest.mark.parametrize(
    ("schema", "value", "is_accepted"),
    [
        ({"$ref": "#/definitions/A", "required": ["q"], "definitions": {"A": A}}, {"a": 1}, True),
        ({**A, "dependencies": {"a": ["b"]}}, {"a": 1}, False),
        (
            {
                "type": "object",
                "properties": {"l": {"items": [{"type": "integer"}], "additionalItems": False}},
            },
            {"l": [1, 2]},
            False,
        ),
        ({**A, "unevaluatedProperties": False, "allOf": [B]}, {"a": 1, "b": 1}, True),
        ({"allOf": [A, B]}, {"a": 1, "b": 1}, True),
        ({"allOf": [A, B]}, {"a": 1, "z": 1}, False),
    ],
)
@pytest.mark.spec("VAL-1")
def test_draft_07_is_read_by_its_own_rules(schema: dict[str, Any], value: Any, is_accepted: bool) -> None:
    parameters = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert tool.arguments.is_valid(value) is is_accepted


@pytest.mark.parametrize("dialect", ["2020-12", "2019-09"])
@pytest.mark.parametrize(
    ("schema", "value", "is_accepted"),
    [
        ({**A, "dependencies": {"a": ["b"]}}, {"a": 1}, False),
        ({**A, "dependencies": {"a": {"$ref": "#/$defs/B"}}, "$defs": {"B": B}}, {"a": 1, "b": 1}, True),
        ({**A, "dependencies": {"a": {"$ref": "#/$defs/B"}}, "$defs": {"B": B}}, {"a": 1, "b": "x"}, False),
        ({**A, "dependencies": {"a": {"not": {"dependencies": {"a": ["b"]}}}}}, {"a": 1}, True),
        ({**A, "dependencies": {"a": ["b"]}, "dependentRequired": {"a": ["a"]}}, {"a": 1}, False),
    ],
)
@pytest.mark.spec("VAL-1")
def test_dependencies_mean_in_every_dialect_what_they_meant(
    dialect: str, schema: dict[str, Any], value: Any, is_accepted: bool
) -> None:
    parameters = {"$schema": f"https://json-schema.org/draft/{dialect}/schema", **schema}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert tool.arguments.is_valid(value) is is_accepted


@pytest.mark.spec("VAL-7")
@pytest.mark.parametrize("keyword", [{"pattern": "a"}, {"format": "uri"}])
def test_patterns_and_formats_are_tried_on_short_strings_only(keyword: dict[str, Any]) -> None:
    """Whatever order the engine works in: each stands behind a condition on the length."""
    matched = {"type": "string", **keyword}
    root = {
        "type": "object",
        "properties": {
            "plain": matched,
            "listed": {"type": "array", "items": matched},
            "turned": {"not": matched},
            "one": {"oneOf": [matched, {"type": "null"}]},
            "tested": {**matched, "if": matched, "then": {"minLength": 1}},
            "referred": {"$ref": "#/$defs/m"},
        },
        "$defs": {"m": matched},
    }
    found = []
    for schema in all_schemas(close_objects(root)):
        assert not keyword.keys() & schema.keys() or schema == keyword
        if schema.get("then") == keyword:
            assert schema["if"] == {"maxLength": 8192}
            found.append(schema)
    assert len(found) == 9
