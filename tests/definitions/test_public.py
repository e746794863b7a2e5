"""What others may see of a schema: nothing that helps to guess a secret."""

from typing import Any

import pytest
from hypothesis import given

from tests.definitions.examples import JSON, made
from toolkeep.definitions.public import public_schema

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


@given(JSON)
def test_a_public_schema_shares_nothing_with_the_original(value: Any) -> None:
    schema = {"default": value, "items": {"default": value}}
    shown = public_schema(schema)
    assert repr(shown) == repr(schema)
    if isinstance(value, (dict, list)):
        assert shown["default"] is not value
