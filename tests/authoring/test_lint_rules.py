"""Advice for authors."""

from typing import Any

import pytest

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep.authoring.lint_rules import lint_definition
from toolkeep.definitions.parameter import ANY_TYPE

pytestmark = pytest.mark.spec("DEF-13")

FINE = {"type": "string", "description": "The file.", "maxLength": 100}


def found(definition: Any) -> list[tuple[str, str]]:
    findings = lint_definition(definition.replace(side_effects=()))
    assert all(finding.message and finding.fix for finding in findings)
    return [(finding.rule, finding.field) for finding in findings]


def found_in(**properties: Any) -> list[tuple[str, str]]:
    return found(made(parameters=with_properties(properties, required=[])))


def test_a_good_definition_needs_no_advice() -> None:
    assert found_in(path=FINE) == []


def test_a_tool_without_parameters_needs_no_required() -> None:
    assert found(made()) == []


@pytest.mark.spec("DEF-8")
def test_a_tool_that_declares_neither_danger_nor_effects_is_told_the_line() -> None:
    (finding,) = lint_definition(made())
    assert (finding.rule, finding.field) == ("undeclared", "side_effects")
    assert finding.fix == "add effects: none (or reads; writes with a danger)"
    (finding,) = lint_definition(made(capabilities=["fs.read:.", "fs.write:."]))
    assert finding.fix == "add side_effects: [FsRead, FsWrite], danger: medium"
    assert lint_definition(made(danger="low")) == []


def test_a_free_map_and_a_free_value_are_found() -> None:
    free = {"type": list(ANY_TYPE), "description": "Anything."}
    assert found_in(any_value=free) == [("free-value", "parameters/properties/any_value")]
    bare = {"type": "object", "description": "Anything."}
    assert found_in(bare=bare) == [("free-map", "parameters/properties/bare")]
    assert found_in(open_map={**bare, "additionalProperties": True}) == []


def test_a_tool_without_description_is_found() -> None:
    assert found(made_elsewhere(description=" ")) == [("no-description", "description")]


def test_parameters_without_required_are_found() -> None:
    assert found(made(parameters=with_properties({"path": FINE}))) == [("no-required", "parameters")]


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        ({"type": "string", "maxLength": 5}, "no-description"),
        ({"type": "string", "maxLength": 5, "description": ""}, "no-description"),
        ({"type": "string", "description": "A."}, "no-max-length"),
        ({"type": ["string", "null"], "description": "A."}, "no-max-length"),
        ({"type": "array", "items": {"type": "integer"}, "description": "A."}, "no-max-items"),
        ({**FINE, "pattern": "a+"}, "unanchored-pattern"),
        ({**FINE, "pattern": "^a+"}, "unanchored-pattern"),
        ({**FINE, "pattern": "a+$"}, "unanchored-pattern"),
        ({"description": "A."}, "no-type"),
    ],
)
def test_each_rule_names_the_property(schema: dict[str, Any], rule: str) -> None:
    assert found_in(path=schema) == [(rule, "parameters/properties/path")]


def test_a_property_that_takes_anything_declares_no_type() -> None:
    assert found_in(path=True) == [("no-type", "parameters/properties/path")]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["a"], "description": "A."},
        {"type": "string", "format": "date", "description": "A."},
        {"const": "a", "description": "A."},
        {"type": "string", "const": "a", "description": "A."},
        {"type": "array", "enum": [[1]], "description": "A."},
        {"type": "array", "maxItems": 3, "items": {"type": "integer"}, "description": "A."},
        {"type": "integer", "description": "A."},
        {**FINE, "pattern": "^a+$"},
        {"$ref": "#/$defs/x"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "A."},
    ],
)
def test_what_needs_no_advice_gets_none(schema: dict[str, Any]) -> None:
    assert found_in(path=schema) == []


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "description": "Leaf."}
    for _ in range(levels):
        schema = {"type": "object", "description": "More.", "properties": {"in": schema}}
    return schema


def test_objects_nested_three_deep_are_fine() -> None:
    assert found_in(a=nested(2)) == []


def test_objects_nested_deeper_than_three_are_found() -> None:
    assert found_in(a=nested(3)) == [
        ("deep-nesting", "parameters/properties/a/properties/in/properties/in/properties/in")
    ]


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        (
            {"type": "array", "maxItems": 3, "items": {"type": "string"}, "description": "A."},
            "parameters/properties/a/items",
        ),
        (
            {"anyOf": [{"type": "null"}, {"type": "string"}], "description": "A."},
            "parameters/properties/a/anyOf/1",
        ),
        ({"allOf": [{"type": "string"}], "description": "A."}, "parameters/properties/a/allOf/0"),
        ({"oneOf": [{"type": "string"}], "description": "A."}, "parameters/properties/a/oneOf/0"),
    ],
)
def test_what_lies_inside_is_looked_at(schema: dict[str, Any], field: str) -> None:
    assert found_in(a=schema) == [("no-max-length", field)]


def test_shared_definitions_are_looked_at() -> None:
    parameters = with_properties(
        {"a": {"$ref": "#/$defs/x"}}, required=["a"], **{"$defs": {"x": {"type": "string"}}}
    )
    assert found(made(parameters=parameters)) == [("no-max-length", "parameters/$defs/x")]


def test_findings_come_in_schema_order_and_as_data() -> None:
    properties = with_properties({"z": {**FINE, "pattern": "x"}, "a": {}}, required=[])
    definition = made(parameters=properties, side_effects=[])
    assert [finding.to_dict() for finding in lint_definition(definition)] == [
        {
            "rule": "unanchored-pattern",
            "field": "parameters/properties/z",
            "message": "the pattern matches anywhere in the text",
            "fix": "write ^…$",
        },
        {
            "rule": "no-type",
            "field": "parameters/properties/a",
            "message": "declares no type",
            "fix": 'add "type"',
        },
        {
            "rule": "no-description",
            "field": "parameters/properties/a",
            "message": "has no description",
            "fix": "say what it is for",
        },
    ]
