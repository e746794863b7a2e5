"""The strict form of schemas, and arguments on their way there and back."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep import ToolDefinition
from toolkeep.providers.schema_losses import Losses, NotExpressible
from toolkeep.providers.strict.codec import StrictCodec
from toolkeep.providers.strict.nodes import Undecodable


def codec(schema: dict[str, Any]) -> StrictCodec:
    given = {"name": "t", "description": "d", "parameters": schema}
    return StrictCodec(ToolDefinition.from_elsewhere(given), Losses("t"))


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}


@pytest.mark.spec("PRV-1", "PRV-2")
@pytest.mark.parametrize(
    ("schema", "arguments", "written"),
    [
        (of(a=TEXT, b=TEXT) | {"required": ["a"]}, {"a": "x"}, {"a": "x", "b": None}),
        (of(a=TEXT), {}, {"a": None}),
        (
            of(tags={"type": "object", "additionalProperties": {"type": "integer"}}),
            {"tags": {"x": 1, "y": 2}},
            {"tags": [{"key": "x", "value": 1}, {"key": "y", "value": 2}]},
        ),
        (of(free={"type": "object"}), {"free": {"a": [1]}}, {"free": '{"a":[1]}'}),
        (of(any=True), {"any": [None, 1]}, {"any": "[null,1]"}),
        (of(mode={"const": "fast"}), {"mode": "fast"}, {"mode": "fast"}),
        (of(pick={"enum": [1, "a", None]}) | {"required": ["pick"]}, {"pick": None}, {"pick": None}),
        (of(pick={"enum": [{"a": 1}, [2]]}), {"pick": [2]}, {"pick": "[2]"}),
        (of(pair={"type": "array", "prefixItems": [TEXT]}), {"pair": ["a", 1]}, {"pair": '["a",1]'}),
        (of(inner=of(x=TEXT)), {"inner": {}}, {"inner": {"x": None}}),
        (of(items={"type": "array", "items": of(x=TEXT)}), {"items": [{}]}, {"items": [{"x": None}]}),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {"x": 1},
            {"arguments": [{"key": "x", "value": 1}]},
        ),
        ({"type": "object", "additionalProperties": True}, {"x": [1]}, {"arguments": '{"x":[1]}'}),
        (
            of(either={"anyOf": [TEXT, {"type": "object"}]}),
            {"either": {"a": 1}},
            {"either": '{"a":1}'},
        ),
        (of(either={"anyOf": [TEXT, {"type": "object"}]}), {"either": "a"}, {"either": '"a"'}),
        (
            of(either={"oneOf": [of(cat=TEXT, age={"type": "integer"}) | {"required": ["cat"]}, of(dog=TEXT) | {"required": ["dog"]}]}),
            {"either": {"cat": "Tom"}},
            {"either": {"cat": "Tom", "age": None}},
        ),
        (of(big={"type": "integer"}), {"big": 2**70}, {"big": 2**70}),
        (of(free={"type": "object"}), {"free": {"n": 2**70}}, {"free": '{"n":1180591620717411303424}'}),
    ],
)  # fmt: skip
def test_arguments_are_rewritten_and_come_back(
    schema: dict[str, Any], arguments: dict[str, Any], written: dict[str, Any]
) -> None:
    made = codec(schema)
    assert made.encode(arguments) == written
    assert jsonschema_rs.Draft202012Validator(made.schema).is_valid(written)
    assert made.decode(written) == arguments


@pytest.mark.spec("PRV-1")
def test_the_schema_is_closed_and_everything_in_it_is_required() -> None:
    schema = of(path=TEXT | {"minLength": 1}, depth={"type": "integer", "minimum": 1, "default": 5})
    assert codec(schema | {"required": ["path"]}).schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "(minLength: 1)"},
            "depth": {"type": ["integer", "null"], "minimum": 1, "description": "(default: 5)"},
        },
        "required": ["path", "depth"],
        "additionalProperties": False,
    }


def test_a_schema_that_holds_itself_goes_there_and_back() -> None:
    node = of(name=TEXT, below={"type": "array", "items": {"$ref": "#/$defs/node"}}) | {"required": ["name"]}
    made = codec(of(root={"$ref": "#/$defs/node"}) | {"$defs": {"node": node}})
    arguments = {"root": {"name": "a", "below": [{"name": "b"}, {"name": "c", "below": []}]}}
    written = made.encode(arguments)
    assert jsonschema_rs.Draft202012Validator(made.schema).is_valid(written)
    assert written["root"]["below"][0] == {"name": "b", "below": None}
    assert made.decode(written) == arguments


@pytest.mark.spec("PRV-2")
@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (of(free={"type": "object"}), {"free": "{'a': 1}"}),
        (of(free={"type": "object"}), {"free": '{"a": 1, "a": 2}'}),
        (of(free={"type": "object"}), {"free": '{"a": NaN}'}),
        (of(any=True), {"any": "bare words"}),
        (
            of(tags={"type": "object", "additionalProperties": TEXT}),
            {"tags": [{"key": "x", "value": "1"}, {"key": "x", "value": "2"}]},
        ),
    ],
)
def test_what_could_mean_nothing_or_two_things_is_not_guessed(schema: dict[str, Any], written: Any) -> None:
    with pytest.raises(Undecodable):
        codec(schema).decode(written)


@pytest.mark.parametrize(
    "written",
    [{"a": 3}, {"b": "unknown"}, {"inner": "text"}, {"inner": {"y": 1}}, [], "text", None, {"tags": [{"key": "x"}]}],
)  # fmt: skip
def test_what_has_another_shape_is_left_for_validation(written: Any) -> None:
    made = codec(of(a=TEXT, inner=of(x=TEXT), tags={"type": "object", "additionalProperties": TEXT}))
    assert made.decode(json.loads(json.dumps(written))) == written


def test_an_explicit_null_for_something_optional_is_not_expressible() -> None:
    with pytest.raises(NotExpressible):
        codec(of(a={"type": ["string", "null"]})).encode({"a": None})
    assert codec(of(a={"type": ["string", "null"], "default": None})).encode({"a": None}) == {"a": None}


def test_alternatives_that_look_alike_are_told_apart_by_being_text() -> None:
    schema = of(either={"anyOf": [
        {"type": "array", "items": TEXT},
        {"type": "object", "additionalProperties": TEXT},
    ]})  # fmt: skip
    made = codec(schema)
    for value in ([], {}, ["a"], {"key": "a"}):
        assert made.decode(made.encode({"either": value})) == {"either": value}


def test_a_value_that_fits_two_alternatives_is_not_taken_for_the_first() -> None:
    pairs = {"type": "array", "items": of(key=TEXT, value=TEXT) | {"required": ["key", "value"]}}
    as_list = of(t=pairs) | {"required": ["t"]}
    as_map = of(t={"type": "object", "additionalProperties": TEXT}) | {"required": ["t"]}
    made = codec(of(either={"anyOf": [as_list, as_map]}))
    with pytest.raises(Undecodable):
        made.decode({"either": {"t": [{"key": "a", "value": "b"}]}})


@pytest.mark.parametrize(
    "schema",
    [
        of(a=TEXT) | {"required": ["missing"], "additionalProperties": False},
        of(**{f"p{n}": {"enum": [f"{n}-{m}" for m in range(50)]} for n in range(30)}),
        of(**{"n" * 64 + str(n): TEXT for n in range(2500)}),
    ],
    ids=["required but not described", "too many enum values", "too many characters"],
)
def test_what_has_no_strict_form_says_why(schema: dict[str, Any]) -> None:
    with pytest.raises(NotExpressible) as refused:
        codec(schema)
    assert refused.value.reason
    assert refused.value.fix


def test_what_is_nested_too_deep_becomes_text() -> None:
    schema: dict[str, Any] = TEXT
    arguments: Any = "x"
    for _ in range(12):
        schema, arguments = of(a=schema), {"a": arguments}
    made = codec(schema)
    assert "JSON object, as text" in json.dumps(made.schema)
    assert made.decode(made.encode(arguments)) == arguments


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8)  # fmt: skip


@given(
    free=st.dictionaries(st.text(), VALUES, max_size=4),
    anything=VALUES,
    tags=st.dictionaries(st.text(), st.integers()),
)
def test_any_open_value_comes_back_the_same(free: Any, anything: Any, tags: Any) -> None:
    made = codec(
        of(
            free={"type": "object"},
            anything=True,
            tags={"type": "object", "additionalProperties": {"type": "integer"}},
        )
        | {"required": ["anything"]}
    )
    arguments = {"free": free, "anything": anything, "tags": tags}
    written = json.loads(json.dumps(made.encode(arguments)))
    assert made.decode(written) == arguments
