"""Texts that are read and checked in one go: the same verdicts and values as the engine's, or none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.validation.compile import CompiledSchema, compile_arguments
from toolkeep.validation.direct import make_decoder
from toolkeep.validation.validate import _by_the_engine, _directly


def compiled(schema: dict[str, Any]) -> CompiledSchema:
    made = compile_arguments(schema, by_hand=False, limits=DEFAULT_LIMITS).compiled
    assert made is not None
    return made


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}

EXPRESSIBLE = [
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"a"', '"abcd"', "null", "3"]),
    ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9}, ["0", "-1", "9", "8", "8.0", "true", "1e0"]),
    ({"type": "number", "maximum": 5}, ["5", "5.0", "5.1", "6", "-1e3", "1e400", "18446744073709551616"]),
    ({"type": "boolean"}, ["true", "false", "0", '"true"']),
    ({"type": ["string", "null"], "maxLength": 1}, ["null", '"a"', '"ab"', "1"]),
    ({"enum": ["a", "b", None]}, ['"a"', '"A"', "null", "1"]),
    ({"type": "integer", "enum": [1, 2]}, ["1", "1.0", "true", "3"]),
    ({"const": "only"}, ['"only"', '"other"']),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, ["[1]", "[]", "[1,2,3]", "[1.0]"]),
    ({"anyOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]}, ["null", "{}", '{"city":"x"}', '{"town":"x"}']),
    (ADDRESS, ['{"city":"x"}', "{}", '{"town":"x"}', "null"]),
    ({"type": "array", "items": {"$ref": "#/$defs/address"}}, ["[]", "[{}]", '[{"city":"a"},{"town":"b"}]', "[[]]"]),
]  # fmt: skip


@pytest.mark.parametrize(("part", "values"), EXPRESSIBLE, ids=[json.dumps(part) for part, _ in EXPRESSIBLE])
def test_what_types_can_say_is_read_at_once_and_as_the_engine_does(
    part: dict[str, Any], values: list[str]
) -> None:
    schema = compiled({**object_of(value=part), "$defs": {"address": ADDRESS}})
    assert make_decoder(schema.schema) is not None
    read = 0
    for value in values:
        for raw in (
            f'{{"value":{value}}}',
            f'{{ "value" : {value} }}',
            f'{{"value":{value},"value":{value}}}',
        ):
            direct = _directly(schema, raw)
            read += direct is not None
            assert direct is None or repr(direct) == repr(_by_the_engine(schema, raw.encode()))
    assert read


INEXPRESSIBLE = [
    {"type": "string", "pattern": "^a"},
    {"type": "string", "format": "date"},
    {"type": "number", "multipleOf": 2},
    {"type": "number", "minimum": 0.5},
    {"type": "integer", "minimum": 2**60},
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "string"}]},
    {"type": "object", "properties": {}, "minProperties": 1},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
    {"type": "string", "enum": ["a"], "not": {"const": "a"}},
    {"enum": [True]},
    {"enum": [1.5]},
    {"type": "string", "enum": [1]},
    {"oneOf": [{"type": "string"}, {"type": "null"}]},
    {"anyOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]},
    {"anyOf": [{"type": "integer", "maximum": 3}, {"type": "number", "minimum": 9}]},
    {"anyOf": [{"type": "string"}, {"enum": ["a"]}]},
    {"type": "string", "if": {"const": "a"}, "then": False},
    {"$ref": "#"},
    {"type": "string", "someday": "a keyword"},
    True,
]


@pytest.mark.parametrize("part", INEXPRESSIBLE, ids=map(json.dumps, INEXPRESSIBLE))
def test_what_types_cannot_say_is_left_to_the_engine(part: Any) -> None:
    assert make_decoder(object_of(value=part)) is None


@pytest.mark.parametrize(
    "root", [{"type": "string"}, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}]
)
def test_only_objects_are_read(root: dict[str, Any]) -> None:
    assert make_decoder(root) is None


def test_whole_numbers_defaults_and_order_are_those_of_the_engine() -> None:
    schema = compiled(
        {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
                "deep": {"type": "object", "properties": {"level": {"type": "integer", "default": 3}}},
                "bad": {"type": "integer", "default": "not a number"},
            },
        }
    )
    for raw in ('{"deep":{},"count":2}', '{"count":2.0,"deep":{"level":1.0}}', "{}"):
        direct, engine = _directly(schema, raw), _by_the_engine(schema, raw)
        assert direct is None or repr(direct) == repr(engine)
    assert (
        repr(_directly(schema, '{"deep":{},"count":2}'))
        == "{'deep': {'level': 3}, 'count': 2, 'tags': ['new']}"
    )
    first, second = _directly(schema, "{}"), _directly(schema, "{}")
    first["tags"].append("changed")
    assert second == {"tags": ["new"]}


def test_objects_inside_objects_are_read_at_once() -> None:
    schema = compiled(object_of(deep=object_of(place=ADDRESS), rows={"type": "array", "items": ADDRESS}))
    raw = '{"deep":{"place":{"city":"x"}},"rows":[{"city":"y"},{}]}'
    assert _directly(schema, raw) == json.loads(raw)


def test_a_schema_that_is_referred_to_often_is_looked_at_once() -> None:
    parts: dict[str, Any] = {"d40": {"type": "string"}}
    for number in range(40):
        inside = {"$ref": f"#/$defs/d{number + 1}"}
        parts[f"d{number}"] = {"type": "object", "properties": {"a": inside, "b": inside}}
    assert make_decoder({**object_of(value={"$ref": "#/$defs/d0"}), "$defs": parts}) is not None


def test_a_schema_that_leads_to_itself_is_left_to_the_engine() -> None:
    tree = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}}
    assert make_decoder({**object_of(value={"$ref": "#/$defs/tree"}), "$defs": {"tree": tree}}) is None


def test_what_must_be_counted_first_is_not_read_at_once() -> None:
    schema = compiled(object_of(value={"type": "string"}))
    raw = json.dumps({"value": "a" * schema.uncounted_bytes})
    assert (_directly(schema, raw), _directly(schema, '{"value":"a"}')) == (None, {"value": "a"})


STRINGS = ['"a:b"', '"\\":"', '"x\\u003ay"', '"{\\"k\\":1}"']


@pytest.mark.parametrize("text", STRINGS)
def test_colons_in_strings_hide_neither_a_repeated_nor_an_unknown_key(text: str) -> None:
    schema = compiled(object_of(value={"type": "string"}, deep=ADDRESS))
    for raw in (
        f'{{"value":{text},"value":"z","deep":{{}}}}',
        f'{{"value":{text},"deep":{{}},"more":1}}',
        f'{{"value":{text},"deep":{{"city":"a","city":"b"}}}}',
    ):
        assert _directly(schema, raw) is None
    raw = f'{{"value":{text},"deep":{{}}}}'
    assert _directly(schema, raw) in (None, _by_the_engine(schema, raw))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("abc"), inside, max_size=3),
    max_leaves=6,
)
PARTS = st.recursive(
    st.sampled_from([part for part, _ in EXPRESSIBLE[:9]]),
    lambda inside: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inside),
        st.builds(
            lambda properties, required: {
                "type": "object", "properties": properties, "required": sorted(required & properties.keys()),
            },
            st.dictionaries(st.sampled_from("abc"), inside, max_size=3),
            st.sets(st.sampled_from("abc")),
        ),
    ),
    max_leaves=4,
)  # fmt: skip


@given(PARTS, JSON_VALUES)
def test_any_call_that_is_read_at_once_is_one_that_the_engine_accepts(
    part: dict[str, Any], value: Any
) -> None:
    schema = compiled(object_of(value=part))
    raw = json.dumps({"value": value})
    direct = _directly(schema, raw)
    assert direct is None or repr(direct) == repr(_by_the_engine(schema, raw))


def test_real_calls_are_read_as_the_engine_reads_them(shared_data: Path) -> None:
    read = total = 0
    for line in (shared_data / "calls.jsonl").read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        schema = compile_arguments(call["schema"], by_hand=False, limits=DEFAULT_LIMITS).compiled
        if schema is None:
            continue
        raw = json.dumps(call["arguments"])
        direct = _directly(schema, raw)
        assert direct is None or repr(direct) == repr(_by_the_engine(schema, raw))
        total, read = total + 1, read + (direct is not None)
    assert read > total // 2
