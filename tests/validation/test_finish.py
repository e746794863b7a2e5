from typing import Any

import pytest

from toolkeep import Keep, ToolDefinition, open_keep
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("VAL-9")


def finished(parameters: dict[str, Any], arguments: Any) -> Any:
    keep: Keep = open_keep()
    keep.register(
        ToolDefinition.from_elsewhere({"name": "t", "parameters": {"type": "object", **parameters}})
    )
    check = keep.try_validate_arguments("t", arguments)
    assert check.success, check.errors
    return check.arguments


def kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: kinds(inside) for name, inside in value.items()}
    return [kinds(item) for item in value] if isinstance(value, list) else type(value)


def test_whole_floats_become_integers_wherever_one_is_asked_for() -> None:
    integer = {"type": "integer"}
    parameters = {
        "properties": {
            "list": {"type": "array", "items": integer},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"n": integer}}},
            "pair": {"type": "array", "prefixItems": [{"type": "number"}, integer], "items": False},
            "maybe": {"anyOf": [integer, {"type": "null"}]},
            "number": {"type": "number"},
            "either": {"type": ["integer", "number"]},
            "tree": {"$ref": "#/$defs/n"},
        },
        "$defs": {"n": {"type": "object", "properties": {"v": integer, "next": {"$ref": "#/$defs/n"}}}},
    }
    text = (
        '{"list":[1.0,2],"rows":[{"n":3.0},{"n":4}],"pair":[5.0,6.0],"maybe":7.0,"number":8.0,"either":9.0,'
        '"tree":{"v":1.0,"next":{"v":2e0}}}'
    )
    assert kinds(finished(parameters, text)) == {
        "list": [int, int],
        "rows": [{"n": int}, {"n": int}],
        "pair": [float, int],
        "maybe": int,
        "number": float,
        "either": float,
        "tree": {"v": int, "next": {"v": int}},
    }


def test_the_names_of_a_schema_are_looked_up_and_not_gone_through() -> None:
    """A call may hold thousands of empty objects under a thousand names."""

    class Known:
        """Names without an end."""

        def __contains__(self, name: object) -> bool:
            return name != "more"

    schema = {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}}
    definition = {"name": "t", "parameters": {"type": "object", **schema}}
    finisher = admit(ToolDefinition.from_elsewhere(definition)).arguments.finisher
    assert finisher is not None
    finisher.known = Known()  # type: ignore[assignment]  # all that is asked of it
    value = {"a": "x", "more": 1.0}
    finisher.finish_object(value)
    assert kinds(value) == {"a": str, "more": int}


def test_defaults_are_filled_in_at_every_depth() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}
    parameters = {
        "properties": {
            "a": {"type": "string", "default": "d"},
            "o": inner,
            "l": {"type": "array", "items": inner},
            "r": {"$ref": "#/$defs/word"},
        },
        "$defs": {"word": {"type": "string", "default": "w"}},
    }
    assert finished(parameters, {"o": {}, "l": [{}, {"x": 2}]}) == {
        "o": {"x": 1},
        "l": [{"x": 1}, {"x": 2}],
        "a": "d",
        "r": "w",
    }
    assert finished(parameters, {}) == {"a": "d", "r": "w"}


def test_each_call_gets_its_own_copy_of_a_default() -> None:
    keep = open_keep()
    parameters = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": {"type": "integer"}, "default": [1]}},
    }
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    first = keep.validate_arguments("t", {})
    first["l"].append(2)
    assert keep.validate_arguments("t", {}) == {"l": [1]}


@pytest.mark.spec("DEF-2")
def test_a_default_that_violates_its_own_schema_is_never_applied() -> None:
    parameters = {"properties": {"a": {"type": "integer", "default": "many"}}}
    assert finished(parameters, {}) == {}


def test_a_default_inside_an_alternative_is_not_applied() -> None:
    branch = {
        "type": "object",
        "properties": {"kind": {"const": "x"}, "n": {"type": "integer", "default": 1}},
    }
    assert finished({"properties": {"a": {"anyOf": [branch, {"type": "null"}]}}}, {"a": {"kind": "x"}}) == {
        "a": {"kind": "x"}
    }


X: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}
Y: dict[str, Any] = {"type": "object", "properties": {"y": {"type": "integer"}}}
BRANCHES = [
    {"type": "object", "properties": {"k": {"const": kind}, "p": inside}, "required": ["k"]}
    for kind, inside in (("a", X), ("b", Y))
]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ({"anyOf": BRANCHES}, {"k": "b", "p": {"y": 1}}),
        ({"type": "object", "patternProperties": {"^a": X}, "additionalProperties": Y}, {"b": {"y": 1}}),
        ({"type": "array", "items": X, "uniqueItems": True}, [{}, {"x": 1}]),
        ({"type": "array", "items": X, "contains": {"required": ["x"]}, "maxContains": 1}, [{}, {"x": 1}]),
        ({"type": "object", "properties": {"p": X}, "not": {"properties": {"p": {"minProperties": 1}}}}, {"p": {}}),
        ({**X, "patternProperties": {"^x": {"maximum": 0}}}, {}),
        ({**X, "propertyNames": {"maxLength": 0}}, {}),
        ({**X, "enum": [{}]}, {}),
        ({**X, "$ref": "#/$defs/closed"}, {}),
        ({"type": "object", "properties": {"r": {"$ref": "#/$defs/five", "maximum": 3}}}, {}),
    ],
)  # fmt: skip
def test_a_default_that_would_make_the_call_invalid_is_not_applied(place: dict[str, Any], value: Any) -> None:
    definitions = {
        "closed": {"type": "object", "additionalProperties": False},
        "five": {"type": "integer", "default": 5},
    }
    assert finished({"properties": {"a": place}, "$defs": definitions}, {"a": value}) == {"a": value}
