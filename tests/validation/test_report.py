"""What a model is told about each kind of fault."""

import json
from typing import Any

import pytest

from toolkeep import Refusal, ToolDefinition, open_keep

pytestmark = pytest.mark.spec("VAL-5")


def told(place: Any, value: Any) -> list[tuple[str, str, str, str]]:
    """path, code, message and expected for a value at the place `p`."""
    keep = open_keep()
    keep.register(
        ToolDefinition.from_elsewhere(
            {"name": "t", "parameters": {"type": "object", "properties": {"p": place}}}
        )
    )
    check = keep.try_validate_arguments("t", json.dumps({"p": value}))
    assert isinstance(check, Refusal)
    return [(e.path, e.code.value[-3:], e.message, e.expected) for e in check.errors]


NESTED = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "string"}},
    "required": ["x"],
}


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ({"type": "integer"}, None, ("/p", "004", "'p' must be an integer, got null", "integer")),
        ({"type": ["integer", "null"]}, "x", ("/p", "004", "'p' must be an integer or null, got string", "integer or null")),
        ({"enum": ["a", "b"]}, "c", ("/p", "005", "'p' is not an allowed value", 'one of "a", "b"')),
        ({"const": "a"}, "c", ("/p", "005", "'p' is not an allowed value", '"a"')),
        ({"minimum": 3}, 2, ("/p", "005", "'p' must be at least 3", "at least 3")),
        ({"maximum": 3}, 4, ("/p", "005", "'p' must be at most 3", "at most 3")),
        ({"exclusiveMinimum": 3}, 3, ("/p", "005", "'p' must be more than 3", "more than 3")),
        ({"exclusiveMaximum": 3}, 3, ("/p", "005", "'p' must be less than 3", "less than 3")),
        ({"multipleOf": 5}, 3, ("/p", "005", "'p' is not a multiple of 5", "a multiple of 5")),
        ({"minLength": 3}, "x", ("/p", "005", "'p' must have at least 3 characters", "at least 3 characters")),
        ({"maxLength": 3}, "xxxx", ("/p", "005", "'p' must have at most 3 characters", "at most 3 characters")),
        ({"pattern": "^a"}, "b", ("/p", "005", "'p' does not match its pattern", "text matching ^a")),
        ({"format": "date"}, "b", ("/p", "005", "'p' is not a valid date", "date")),
        ({"minItems": 2}, [1], ("/p", "005", "'p' must have at least 2 items", "at least 2 items")),
        ({"maxItems": 1}, [1, 2], ("/p", "005", "'p' must have at most 1 items", "at most 1 items")),
        ({"uniqueItems": True}, [1, 1], ("/p", "005", "'p' holds the same item twice", "different items")),
        ({"minProperties": 2}, {"a": 1}, ("/p", "005", "'p' must have at least 2 properties", "at least 2 properties")),
        ({"maxProperties": 0}, {"a": 1}, ("/p", "005", "'p' must have at most 0 properties", "at most 0 properties")),
        ({"not": {"const": 1}}, 1, ("/p", "005", "'p' is a value that is excluded", "another value")),
        ({"contains": {"const": 1}}, [2], ("/p", "005", "'p' lacks an item that it must contain", "any JSON")),
        (False, 1, ("/p", "005", "'p' must not be given", "nothing")),
        (NESTED, {}, ("/p/x", "003", "Required property 'x' is missing", "integer")),
        (NESTED, {"x": 1, "z": 1}, ("/p/z", "005", "Unknown property 'z'", "one of x, y")),
        ({"type": "array", "items": NESTED}, [{"x": 1}, {"x": "1"}], ("/p/1/x", "004", "'x' must be an integer, got string", "integer")),
        ({"anyOf": [NESTED, {"type": "null"}]}, {"y": "a"}, ("/p/x", "003", "Required property 'x' is missing", "integer")),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", ("/p", "004", "'p' must be an integer or null, got string", "integer | null")),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, 3, ("/p", "005", "'p' fits more than one alternative", "exactly one alternative")),
        ({"propertyNames": {"maxLength": 2}, "type": "object", "additionalProperties": True}, {"long": 1}, ("/p", "005", "'p' has a property name that is not allowed, 'long'", "property names: string (at most 2 characters)")),
        ({"prefixItems": [True], "items": False, "type": "array"}, [1, 2], ("/p/1", "005", "item 1 must not be given", "nothing")),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_told_by_pointer_code_and_expectation(
    place: Any, value: Any, expected: tuple[str, str, str, str]
) -> None:
    assert told(place, value) == [expected]


def test_the_alternative_that_was_meant_speaks() -> None:
    """The tag tells which alternative it is; its faults are told, not those of the others."""
    place = {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
                "required": ["kind", "r"],
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
                "required": ["kind", "side"],
            },
        ]
    }
    assert told(place, {"kind": "square", "side": "long"}) == [
        ("/p/side", "004", "'side' must be a number, got string", "number")
    ]


def test_errors_stand_in_schema_order() -> None:
    keep = open_keep()
    names = ["zeta", "alpha", "mid"]
    parameters = {
        "type": "object",
        "properties": {n: {"type": "integer"} for n in names},
        "required": ["mid"],
    }
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    check = keep.try_validate_arguments("t", '{"unknown": 1, "alpha": "x", "zeta": "y"}')
    assert [error.path for error in check.errors] == ["/zeta", "/alpha", "/mid", "/unknown"]
