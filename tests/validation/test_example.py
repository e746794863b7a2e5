"""The call that a person is shown as an example: valid, and without what is secret."""

from typing import Any

import pytest

from toolkeep import ToolDefinition
from toolkeep.registry.admit import admit
from toolkeep.validation.example import example_call

KEY = {"type": "string", "enum": ["hunter2", "swordfish"]}
SECRET = {"x-secret": True}


def example_of(part: dict[str, Any], /, **definitions: dict[str, Any]) -> dict[str, Any] | None:
    schema = {"type": "object", "properties": {"key": part}, "required": ["key"], "$defs": definitions}
    given = {"name": "t", "description": "d", "parameters": schema}
    return example_call(admit(ToolDefinition.from_elsewhere(given)))


def test_an_example_has_an_allowed_value() -> None:
    assert example_of(KEY) == {"key": "hunter2"}


def test_a_secret_of_any_value_is_shown_as_any_text() -> None:
    assert example_of({**SECRET, "type": "string"}) == {"key": "text"}


@pytest.mark.spec("VAL-6")
@pytest.mark.parametrize(
    ("part", "definitions"),
    [
        pytest.param({**SECRET, **KEY}, {}, id="itself"),
        pytest.param({**SECRET, "$ref": "#/$defs/a"}, {"a": KEY}, id="by_reference"),
        pytest.param({"$ref": "#/$defs/a"}, {"a": {**SECRET, "$ref": "#/$defs/b"}, "b": KEY}, id="by_two"),
        pytest.param({**SECRET, "anyOf": [KEY]}, {}, id="in_an_alternative"),
        pytest.param({**SECRET, "type": "array", "items": KEY, "minItems": 1}, {}, id="inside"),
        pytest.param({**SECRET, "type": "integer", "minimum": 4711}, {}, id="its_limit"),
    ],
)
def test_no_example_shows_the_value_of_a_secret(part: dict[str, Any], definitions: dict[str, Any]) -> None:
    assert example_of(part, **definitions) is None
