"""What others may see of a schema: nothing that helps to guess a secret."""

import json
from typing import Any

import pytest
from hypothesis import given

from tests.definitions.examples import JSON, made
from toolkeep.definitions.redacted_schema import public_schema

pytestmark = pytest.mark.spec("VAL-6")

TELLING: dict[str, Any] = {
    "default": "hunter2",
    "enum": ["hunter2"],
    "const": "hunter2",
    "pattern": "^hunter",
    "examples": ["hunter2"],
    "example": "hunter2",
    "minLength": 7,
    "maxLength": 7,
    "minimum": 1,
    "maximum": 2,
    "exclusiveMinimum": 0,
    "exclusiveMaximum": 3,
    "multipleOf": 1,
}
PLAIN: dict[str, Any] = {"type": "string", "description": "The key."}


@pytest.mark.parametrize(
    ("mark", "shown"),
    [
        ({"x-secret": True}, {}),
        ({"writeOnly": True}, {"writeOnly": True}),
        ({"format": "password"}, {"format": "password"}),
    ],
)
def test_a_secret_keeps_only_what_does_not_tell(mark: dict[str, Any], shown: dict[str, Any]) -> None:
    assert public_schema({**PLAIN, **TELLING, **mark}) == {**PLAIN, **shown}


def test_keywords_of_ours_are_not_shown() -> None:
    assert public_schema({**PLAIN, "x-secret": False, "x-touches": "fs.read", "x-other": 1}) == {
        **PLAIN,
        "x-other": 1,
    }


def test_a_part_with_keywords_of_ours_alone_is_not_shown() -> None:
    touched = {"x-touches": "fs.write"}
    assert public_schema({**PLAIN, "allOf": [touched]}) == PLAIN
    assert public_schema({**PLAIN, "allOf": [touched, {"minLength": 1}]}) == {
        **PLAIN,
        "allOf": [{"minLength": 1}],
    }


def test_what_is_not_secret_is_shown_whole() -> None:
    schema = {"type": "object", "properties": {"key": {**PLAIN, **TELLING}}, "required": ["key"]}
    assert public_schema(schema) == schema


def test_everything_of_a_sensitive_tool_is_secret() -> None:
    schema = {"type": "object", "properties": {"key": {**PLAIN, **TELLING}}, "required": ["key"]}
    definition = made(parameters=schema, sensitive=True)
    assert definition.to_claude_format()["input_schema"] == {
        "type": "object",
        "properties": {"key": PLAIN},
        "required": ["key"],
        "additionalProperties": False,
    }


def test_what_lies_inside_a_secret_is_secret() -> None:
    inside = {**PLAIN, **TELLING}
    schema = {
        "x-secret": True,
        "properties": {"a": inside},
        "items": inside,
        "anyOf": [inside],
        "$defs": {"b": inside},
    }
    assert public_schema(schema) == {
        "properties": {"a": PLAIN},
        "items": PLAIN,
        "anyOf": [PLAIN],
        "$defs": {"b": PLAIN},
    }


def test_a_property_that_is_named_like_a_telling_keyword_is_shown() -> None:
    properties = {"default": PLAIN, "enum": PLAIN, "pattern": PLAIN, "x-touches": PLAIN}
    assert public_schema({"x-secret": True, "properties": properties}) == {"properties": properties}


SECRET: dict[str, Any] = {"x-secret": True}
KEY: dict[str, Any] = {"type": "string", "enum": ["hunter2"]}


def taking(part: dict[str, Any], /, **definitions: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"key": part}, "$defs": definitions}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(taking({**SECRET, "$ref": "#/$defs/key"}, key=KEY), id="by_name"),
        pytest.param(taking({**SECRET, "$ref": "#/$defs/a~1b"}, **{"a/b": KEY}), id="by_a_name_with_a_slash"),
        pytest.param(taking({**SECRET, "$ref": "#/$defs/a~0b"}, **{"a~b": KEY}), id="by_a_name_with_a_tilde"),
        pytest.param(taking({**SECRET, "$ref": "#/$defs/a%20b"}, **{"a b": KEY}), id="by_a_name_with_a_space"),
        pytest.param(taking({**SECRET, "$ref": "#/$defs/a"}, a={"$ref": "#/$defs/b"}, b=KEY), id="through_another"),
        pytest.param(taking({**SECRET, "$ref": "#here"}, a={"$anchor": "here", **KEY}), id="by_an_anchor"),
        pytest.param(taking({**SECRET, "$dynamicRef": "#here"}, a={"$dynamicAnchor": "here", **KEY}), id="dynamically"),
        pytest.param(taking({**SECRET, "$ref": "https://a.example/b"}, a={"$id": "https://a.example/b", **KEY}), id="by_an_id"),
        pytest.param({"$id": "https://a.example/b", **taking({**SECRET, "$ref": "b#/$defs/a"}, a=KEY)}, id="by_its_own_id"),
        pytest.param(taking({**KEY, "$ref": "#/$defs/a"}, a={**SECRET, "type": "string"}), id="beside_a_reference_to_a_secret"),
        pytest.param(taking({**KEY, "$ref": "#/$defs/a"}, a={"$ref": "#/$defs/b"}, b={"allOf": [SECRET]}), id="beside_one_to_a_part_of_one"),
        pytest.param(taking({**KEY, "if": True, "then": SECRET}), id="by_a_condition"),
        pytest.param({**taking({"$ref": "#/$defs/a"}, a=SECRET), "anyOf": [taking(KEY)]}, id="by_its_name_in_another_part"),
    ],
)  # fmt: skip
def test_what_a_secret_refers_to_and_what_refers_to_one_is_not_shown(schema: dict[str, Any]) -> None:
    assert "hunter2" not in json.dumps(public_schema(schema))


def test_what_no_secret_leads_to_is_shown_beside_one() -> None:
    schema = {**taking({**SECRET, "$ref": "#/$defs/a"}, a=PLAIN, b=KEY)}
    schema["properties"]["other"] = {"$ref": "#/$defs/b"}
    assert public_schema(schema) == {
        **schema,
        "properties": {"key": {"$ref": "#/$defs/a"}, "other": {"$ref": "#/$defs/b"}},
    }


def test_a_schema_that_holds_itself_is_shown_to_its_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "key": {**SECRET, **KEY}}}
    shown = public_schema(taking({"$ref": "#/$defs/node"}, node=node))
    assert shown["$defs"]["node"]["properties"] == {
        "next": {"$ref": "#/$defs/node"},
        "key": {"type": "string"},
    }


@given(JSON)
def test_a_public_schema_shares_nothing_with_the_original(value: Any) -> None:
    schema = {"default": value, "items": {"default": value}}
    shown = public_schema(schema)
    assert repr(shown) == repr(schema)
    if isinstance(value, (dict, list)):
        assert shown["default"] is not value
