"""Texts that other parsers let through: duplicate keys, numbers out of range, deep nesting, not Unicode."""

import json
from typing import Any

import jsonschema_rs
import orjson
import pytest

from tests.hostile.unguarded import outcome
from toolkeep import Keep, ToolDefinition
from toolkeep.errors import Code

pytestmark = pytest.mark.spec("VAL-2")

ANYTHING = {"type": "object", "properties": {"a": {}, "b": {}}}
TYPED = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "string"}}}
NESTED = {
    "type": "object",
    "properties": {
        "a": {"type": "number"},
        "o": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
    },
}
ROWS = {
    "type": "object",
    "properties": {
        "b": {"type": "string"},
        "r": {
            "type": "array",
            "items": {"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}},
        },
    },
}


def keep_with(parameters: dict[str, Any]) -> Keep:
    keep = Keep()
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    return keep


def codes(schema: dict[str, Any], arguments: Any) -> list[Code]:
    return [error.code for error in keep_with(schema).try_validate_arguments("t", arguments).errors]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (TYPED, '{"a":1,"a":2}'),
        (TYPED, '{"a" :1,"a":2}'),
        (TYPED, '{"a" :1,"a" :2}'),
        (TYPED, '{"a":1,"\\u0061":2}'),
        (TYPED, '{"a":1,"b":":","a":2}'),
        (TYPED, '{"a":1,"a":2,"b":"x"}'),
        (TYPED, '{"a":"no number","a":2}'),
        (TYPED, '{"a":1,"unknown":1,"a":2}'),
        (TYPED, '{"a"\n:1,"a":2,"b":"\\":"}'),
        (ANYTHING, '{"a":1,"a":2}'),
        (ANYTHING, '{"a":{"x":1,"x":1}}'),
        (NESTED, '{"o":{"x":1,"x":2}}'),
        (NESTED, '{"a":1,"o":{"x":1},"a":1}'),
        (NESTED, '{"o":{"x":1,"y":"a:b","x":2}}'),
        (ROWS, '{"r":[{"x":1},{"x":1,"x":2}]}'),
        (ROWS, '{"r":[{"x":1,"s":":"},{"x":1,"x":2}]}'),
        (ROWS, '{"r":[{"x":1},{"x" :1,"x":2}]}'),
        (ROWS, '{"r":[{"x":1}],"r":[]}'),
        (ROWS, '{"r":[],"b":"x","b":"y"}'),
    ],
)
def test_a_key_that_stands_twice_is_refused(schema: dict[str, Any], text: str) -> None:
    assert json.loads(text) is not None  # the standard library takes the last one without a word
    for sent in (text, text.encode(), bytearray(text.encode()), memoryview(text.encode())):
        assert codes(schema, sent) == [Code.NOT_JSON]
    assert codes(schema, text.replace("}", " " * 9000 + "}", 1)) == [Code.NOT_JSON]
    assert codes(schema, text.replace("}", " " * 150_000 + "}", 1)) == [Code.NOT_JSON]


TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
POINT: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
AN_OBJECT_OR_TEXTS: dict[str, Any] = {
    "anyOf": [{**TEXTS, "properties": {"p": POINT}, "required": ["p"]}, TEXTS],
}
A_TEXT_AND_OBJECTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "r": {"type": "array", "prefixItems": [{"type": "string"}], "items": POINT},
    },
}
A_TEXT_OR_OBJECTS: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2019-09/schema",
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "r": {
            "anyOf": [
                {"type": "array", "items": [{"type": "string"}], "additionalItems": False},
                {"type": "array", "items": POINT},
            ]
        },
    },
}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (AN_OBJECT_OR_TEXTS, '{"a":"1","a":"2","p":"x"}'),
        (A_TEXT_AND_OBJECTS, '{"a":"1","a":"2","r":["x"]}'),
        (A_TEXT_OR_OBJECTS, '{"a":"1","a":"2","r":["x"]}'),
    ],
)
def test_characters_do_not_make_up_for_a_key_that_stands_twice(schema: dict[str, Any], text: str) -> None:
    """Members are counted: a text that stands where others of the schema have objects holds none."""
    assert codes(schema, text.replace('"a":"2",', "")) == []
    assert codes(schema, text) == [Code.NOT_JSON]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"b":"https://example.org/:x"}',
        '{"a":1,"b":"say \\":\\" twice"}',
        '{"a" : 1 , "b" : ":"}',
        '{"b":":"}',
    ],
)
def test_colons_in_strings_do_no_harm(text: str) -> None:
    assert codes(TYPED, text) == []


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "1E+999", "9" * 310 + ".0", "1" * 300 + "e99", "12e0400"]
)
@pytest.mark.parametrize("schema", [ANYTHING, TYPED])
def test_a_number_beyond_the_range_of_a_float_is_refused(schema: dict[str, Any], number: str) -> None:
    assert codes(schema, f'{{"a":{number}}}') == [Code.NOT_JSON]


def test_without_the_guard_a_number_beyond_the_range_comes_through_as_infinity() -> None:
    import jiter

    value = jiter.from_json(b'{"a":1e400}', allow_inf_nan=False)
    assert value == {"a": float("inf")}
    assert jsonschema_rs.Draft202012Validator(ANYTHING).is_valid(value)


def test_integers_keep_every_digit() -> None:
    text = '{"a":18446744073709551617}'
    check = keep_with(TYPED).try_validate_arguments("t", text)
    assert check.arguments == {"a": 18446744073709551617}
    assert orjson.loads(text) == {"a": 1.8446744073709552e19}  # another parser's idea of the same number


@pytest.mark.parametrize("depth", [65, 100, 201, 5_000, 100_000])
@pytest.mark.parametrize("schema", [ANYTHING, TYPED])
def test_deep_nesting_is_refused(schema: dict[str, Any], depth: int) -> None:
    text = '{"a":' + "[" * depth + "]" * depth + "}"
    assert codes(schema, text) in ([Code.ARGUMENTS_TOO_BIG], [Code.WRONG_TYPE])
    assert codes(ANYTHING, text) == [Code.ARGUMENTS_TOO_BIG]


def test_nesting_up_to_the_limit_is_let_through() -> None:
    assert codes(ANYTHING, '{"a":' + "[" * 63 + "]" * 63 + "}") == []
    assert codes(ANYTHING, '{"a":' + "[" * 64 + "]" * 64 + "}") == [Code.ARGUMENTS_TOO_BIG]


def test_deep_python_data_is_refused() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    assert codes(ANYTHING, {"a": value}) == [Code.ARGUMENTS_TOO_BIG]
    while value:  # taken apart by hand: letting go of it at once would overflow the stack
        value = value.pop()


def test_without_the_guard_deep_python_data_crashes_the_engine() -> None:
    code = (
        "import jsonschema_rs as J\n"
        "schema = {'$ref': '#/$defs/l', '$defs': {'l': {'type': 'array', 'items': {'$ref': '#/$defs/l'}}}}\n"
        "value = []\n"
        "for _ in range(100_000): value = [value]\n"
        "J.Draft202012Validator(schema).is_valid(value)"
    )
    assert outcome(code, seconds=20) == "crashed"


def test_data_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["a"] = value
    assert codes(ANYTHING, value) == [Code.ARGUMENTS_TOO_BIG]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"\\ud800"}',
        '{"\\udc00":1}',
        b'{"b":"\xff"}',
        '{"b":"\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"a":1}\x00',
        "",
        "  ",
    ],
)
def test_text_that_is_not_unicode_or_not_json_is_refused(text: str | bytes) -> None:
    assert codes(ANYTHING, text) == [Code.NOT_JSON]


class Sly(dict[str, Any]):
    """Looks harmless the first time it is read."""

    def __init__(self) -> None:
        super().__init__(a=1)


class SlyText(str):
    """Text that is not only text."""


@pytest.mark.parametrize(
    "value",
    [
        {"a": Sly()},
        {"a": SlyText("x")},
        {"a": (1, 2)},
        {"a": {1, 2}},
        {"a": b"x"},
        {"a": {1: 2}},
        {"a": float("nan")},
        {"a": object()},
        {SlyText("a"): 1},
    ],
)
def test_python_data_that_is_not_exactly_json_is_refused(value: dict[str, Any]) -> None:
    assert codes(ANYTHING, value) == [Code.NOT_JSON]


def test_arguments_changed_after_the_check_do_not_change_the_call() -> None:
    mine: dict[str, Any] = {"a": [1]}
    check = keep_with(ANYTHING).try_validate_arguments("t", mine)
    mine["a"].append("smuggled")
    mine["b"] = "smuggled"
    assert check.arguments == {"a": [1]}


def test_formats_are_asserted() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}}
    assert codes(schema, '{"a":"2026-02-30"}') == [Code.CONSTRAINT]
    assert jsonschema_rs.Draft202012Validator(schema).is_valid({"a": "2026-02-30"})  # a mere note otherwise
