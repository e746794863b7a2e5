"""Calls and schemas made to take long: refused before the engine, which nothing can interrupt, sees them."""

import asyncio
import gc
import json
from typing import Any

import jsonschema_rs
import pytest

from tests.hostile.unguarded import outcome
from toolkeep import CheckedCall, Keep, Limits, Refusal, ToolDefinition, open_keep, tool
from toolkeep.errors import Code, DefinitionError
from toolkeep.limits import MATCHED_CHARS, REPORT_WORK
from toolkeep.registry.admit import admit
from toolkeep.validation import close_objects, faults, schema_keywords
from toolkeep.validation.call_size import size_of
from toolkeep.validation.example import example_call
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

pytestmark = pytest.mark.spec("VAL-7")

NASTY = "[ab]*a[ab]{400}c"
LETTERS = "ab" * 4


def keep_with(parameters: dict[str, Any], limits: Limits | None = None) -> Keep:
    keep = open_keep(limits=limits or Limits())
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    return keep


def codes(keep: Keep, arguments: Any) -> list[Code]:
    check = keep.try_validate_arguments("t", arguments)
    return [error.code for error in check.errors]


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "array", "items": items}}}


def test_a_long_string_under_a_pattern_is_refused() -> None:
    keep = keep_with({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a*$"}}})
    assert codes(keep, json.dumps({"a": "a" * 8192})) == []
    assert codes(keep, json.dumps({"a": "a" * 8193})) == [Code.CONSTRAINT]


def test_a_long_string_under_a_format_is_refused() -> None:
    keep = keep_with({"type": "object", "properties": {"a": {"type": "string", "format": "uri"}}})
    assert codes(keep, json.dumps({"a": "http://example.org/" + "a" * 8000})) == []
    assert codes(keep, json.dumps({"a": "http://example.org/" + "a" * 9000})) == [Code.CONSTRAINT]


@pytest.mark.parametrize("keyword", ["not", "if"])
def test_a_long_string_cannot_slip_past_a_pattern_that_is_turned_around(keyword: str) -> None:
    """A length limit inside `not` would turn into a licence for long strings."""
    schema: dict[str, Any] = {"type": "string", keyword: {"pattern": "x"}}
    if keyword == "if":
        schema |= {"then": False}
    keep = keep_with({"type": "object", "properties": {"a": schema}})
    assert codes(keep, json.dumps({"a": "y"})) == []
    assert codes(keep, json.dumps({"a": "x"})) == [Code.CONSTRAINT]
    assert set(codes(keep, json.dumps({"a": "x" * 9000}))) == {Code.CONSTRAINT}


def test_a_megabyte_against_a_nasty_pattern_is_refused_at_once() -> None:
    keep = keep_with({"type": "object", "properties": {"a": {"type": "string", "pattern": NASTY}}})
    text = json.dumps({"a": LETTERS * 120_000})
    assert codes(keep, text) in ([Code.CONSTRAINT], [Code.WORK_EXCEEDED])


@pytest.mark.parametrize("dialect", ["2020-12", "2019-09"])
@pytest.mark.parametrize(
    ("inside", "value"),
    [({"pattern": NASTY}, LETTERS * 120_000), ({"uniqueItems": True}, [2**64 + i for i in range(5_000)])],
    ids=["pattern", "uniqueItems"],
)
def test_what_stands_in_dependencies_is_work_like_any_other(
    dialect: str, inside: dict[str, Any], value: Any
) -> None:
    """The engine applies the keyword in every dialect, also in those that no longer have it."""
    keep = keep_with(
        {
            "$schema": f"https://json-schema.org/draft/{dialect}/schema",
            "type": "object",
            "properties": {"a": {"type": ["string", "array"]}},
            "dependencies": {"a": {"properties": {"a": inside}}},
        }
    )
    assert codes(keep, json.dumps({"a": value})) == [Code.WORK_EXCEEDED]


def test_without_the_guard_collecting_errors_over_a_megabyte_never_ends() -> None:
    schema = {"type": "string", "maxLength": 8192, "pattern": "[ab]*a[ab]{900}c"}
    code = (
        "import jsonschema_rs as J, random; "
        f"V = J.Draft202012Validator({schema!r}, pattern_options=J.RegexOptions(size_limit=1 << 17)); "
        "list(V.iter_errors(''.join(random.Random(1).choices('ab', k=1_000_000))))"
    )
    assert outcome(code, seconds=2) == "never ends"


def test_many_strings_against_a_nasty_pattern_exceed_the_work() -> None:
    keep = keep_with(array_of({"type": "string", "pattern": NASTY}))
    assert codes(keep, json.dumps({"a": [LETTERS * 1000] * 100})) == [Code.WORK_EXCEEDED]


def test_long_property_names_against_a_pattern_are_refused() -> None:
    keep = keep_with({"type": "object", "patternProperties": {"^a+$": {"type": "integer"}}})
    assert codes(keep, json.dumps({"a" * 8000: 1})) == []
    assert codes(keep, json.dumps({"a" * 9000: 1})) == [Code.ARGUMENTS_TOO_BIG]
    assert codes(keep, json.dumps({'"' * 9000: 1})) == [Code.ARGUMENTS_TOO_BIG]  # no quote ends it
    assert codes(keep, {"a" * 9000: 1}) == [Code.ARGUMENTS_TOO_BIG]


@pytest.mark.parametrize(
    "pattern", ["(a)\\1", "(?=a)b", "(?<!a)b", "\\p{L}{200}", "[\\s\\S]*a[\\s\\S]{300}c"]
)
def test_a_pattern_that_cannot_be_run_in_linear_time_and_space_is_refused(pattern: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        keep_with({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
    assert {problem.code for problem in caught.value.problems} <= {Code.SCHEMA_BROKEN, Code.SCHEMA_REFUSED}


@pytest.mark.parametrize("keyword", ["default", "enum"])
def test_a_schema_whose_own_values_take_long_to_check_is_not_made_to_check_them(keyword: str) -> None:
    wide = [2**70 + i for i in range(1_900)]
    value = wide if keyword == "default" else [wide]
    place = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, keyword: value}
    tool = admit(
        ToolDefinition.from_elsewhere(
            {"name": "t", "parameters": {"type": "object", "properties": {"a": place}}}
        )
    )
    (warning,) = (warning for warning in tool.warnings if "too much work" in warning.message)
    assert warning.fix == "make it smaller"
    check = validate(tool, "{}", RefusalHistory(), "agent")
    assert isinstance(check, CheckedCall)
    assert check.arguments == {}


def test_a_schema_whose_parts_apply_to_very_many_places_is_refused_before_it_is_closed() -> None:
    many = {"allOf": [{"maxLength": i} for i in range(700)]}
    parameters = {
        "type": "object",
        "$defs": {"many": many},
        "properties": {f"p{i}": {"$ref": "#/$defs/many"} for i in range(1_000)},
    }
    with pytest.raises(DefinitionError) as caught:
        keep_with(parameters)
    assert [problem.fix for problem in caught.value.problems] == ["refer less often"]


@pytest.mark.parametrize(
    "value", [["x"] * 5_000, {f"n{i}": "x" for i in range(5_000)}, [{"p1": "x"}] * 5_000]
)
def test_what_is_secret_is_not_looked_up_anew_for_each_value_of_a_call(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording a call of 60,000 texts took minutes, in which nothing else ran."""
    texts = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/many"}]}
    place = {"type": ["array", "object"], "items": texts, "additionalProperties": texts}
    many = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(900)}}
    parameters = {
        "type": "object",
        "properties": {"key": {"type": "string", "x-secret": True}, "a": place},
        "$defs": {"many": many},
    }
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    looks: list[object] = []

    def in_place(*given: Any) -> Any:
        looks.append(given)
        return close_objects.in_place(*given)

    def all_schemas(schema: Any) -> Any:
        looks.append(schema)
        return schema_keywords.all_schemas(schema)

    monkeypatch.setattr("toolkeep.validation.secret_values.in_place", in_place)
    monkeypatch.setattr("toolkeep.validation.secret_values.all_schemas", all_schemas)
    arguments = {"key": "k", "a": value}
    assert tool.arguments.secrecy.replace(arguments, lambda _: "***") == {"key": "***", "a": value}
    assert len(looks) < 50


def test_too_many_patterns_are_refused() -> None:
    properties = {f"p{i}": {"type": "string", "pattern": f"^{i}$"} for i in range(65)}
    with pytest.raises(DefinitionError):
        keep_with({"type": "object", "properties": properties})


def test_work_is_counted_not_timed() -> None:
    """Values × fan-out: the same call gets the same verdict on any machine."""
    keep = keep_with(array_of({"anyOf": [{"type": "integer", "minimum": i} for i in range(100)]}))
    assert codes(keep, json.dumps({"a": [1] * 1000})) == []
    assert codes(keep, json.dumps({"a": [1] * 100_000})) == [Code.WORK_EXCEEDED]
    assert codes(keep, {"a": [1] * 99_000}) == [Code.WORK_EXCEEDED]


def test_commas_inside_a_string_are_no_work() -> None:
    keep = keep_with(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"anyOf": [{"const": i} for i in range(100)]}},
        }
    )
    assert codes(keep, json.dumps({"a": ",:[{" * 250_000})) == []


def test_a_megabyte_of_text_is_let_through() -> None:
    keep = keep_with({"type": "object", "properties": {"content": {"type": "string"}}})
    check = keep.try_validate_arguments("t", json.dumps({"content": "x" * 1_000_000}))
    assert check.success
    assert len(check.arguments["content"]) == 1_000_000


@pytest.mark.parametrize("is_collecting", [True, False])
def test_a_large_call_leaves_the_collector_as_it_was(is_collecting: bool) -> None:
    seen: list[bool] = []

    def look(_: object) -> bool:
        seen.append(gc.isenabled())
        return True

    keep = open_keep(formats={"seen": look})
    parameters = {"type": "object", "properties": {"a": {"type": "string", "format": "seen"}, "b": {}}}
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    try:
        if not is_collecting:
            gc.disable()
        assert codes(keep, json.dumps({"a": "x", "b": "y" * 100_000})) == []
        assert (seen[-1], gc.isenabled()) == (False, is_collecting)
        assert codes(keep, json.dumps({"a": "x", "c": "y" * 100_000})) != []
        assert gc.isenabled() == is_collecting
    finally:
        gc.enable()


def test_more_than_a_megabyte_is_refused() -> None:
    keep = keep_with({"type": "object", "properties": {"content": {"type": "string"}}})
    assert codes(keep, json.dumps({"content": "x" * (1 << 20)})) == [Code.ARGUMENTS_TOO_BIG]
    assert codes(keep, {"content": "x" * (1 << 20)}) == [Code.ARGUMENTS_TOO_BIG]


def test_a_flood_of_brackets_is_refused_before_parsing() -> None:
    keep = keep_with({"type": "object", "properties": {"a": {}}})
    assert codes(keep, '{"a":[' + "[]," * 150_000 + "[]]}") == [Code.ARGUMENTS_TOO_BIG]
    assert codes(keep, '{"a":"' + "[]," * 150_000 + '"}') == []


def test_integers_beyond_64_bits_are_not_compared_by_the_thousand() -> None:
    keep = keep_with(
        {
            "type": "object",
            "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}},
        }
    )
    assert codes(keep, json.dumps({"a": list(range(20_000))})) == []
    wide = [2**64 + i for i in range(5_000)]
    assert codes(keep, json.dumps({"a": wide})) == [Code.WORK_EXCEEDED]
    assert codes(keep, {"a": wide}) == [Code.WORK_EXCEEDED]


def test_a_repair_that_would_take_long_to_check_is_not_offered() -> None:
    """Ten texts that hold arrays as JSON, 80 KB in all, took nine seconds to find out that they would fit."""
    unique = {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
    names = [f"p{i}" for i in range(10)]
    keep = keep_with({"type": "object", "properties": dict.fromkeys(names, unique)})
    small = keep.try_validate_arguments("t", {"p1": "[1, 2]"})
    assert isinstance(small, Refusal)
    assert small.repair == ({"op": "replace", "path": "/p1", "value": [1, 2]},)
    wide = json.dumps([2**64 + i for i in range(350)])
    large = keep.try_validate_arguments("t", dict.fromkeys(names, wide))
    assert isinstance(large, Refusal)
    assert [error.code for error in large.errors] == [Code.WRONG_TYPE] * 10
    assert large.repair is None


@pytest.mark.parametrize("value", [[2**64 + i for i in range(5_000)], list(range(5_000))])
def test_an_output_that_would_take_long_to_check_fails_the_call(value: list[int]) -> None:
    """100 KB that another server answers held up everything for half a minute."""

    @tool(description="Give back numbers", output_schema={"type": "array", "uniqueItems": True})
    def numbers() -> list[int]:
        return value

    with open_keep() as keep:
        keep.register(numbers)
        result = asyncio.run(keep.call("numbers", {}))
    assert result.code is (Code.OUTPUT_TOO_BIG if value[0] else None)


def test_a_value_that_shares_its_parts_is_not_written_out_without_end() -> None:
    """As YAML with aliases is read: each level holds the next one twice, or a long text very often."""

    @tool(description="Give back what is shared")
    def shared(how: str) -> Any:
        if how == "text":
            return ["x" * 1_000_000] * 1_000
        value: Any = []
        for _ in range(60):
            value = [value, value]
        return value

    with open_keep() as keep:
        keep.register(shared)
        results = [asyncio.run(keep.call("shared", {"how": how})) for how in ("text", "arrays")]
    assert [result.code for result in results] == [Code.OUTPUT_TOO_BIG] * 2
    assert "returned more than 1000000 values" in results[1].text


def test_without_the_guard_comparing_integers_beyond_64_bits_never_ends() -> None:
    code = "import jsonschema_rs as J; J.Draft202012Validator({'uniqueItems': True}).is_valid([2**64 + i for i in range(50_000)])"
    assert outcome(code) == "never ends"


def test_long_integers_cannot_stall_a_refusal() -> None:
    alternatives = {"anyOf": [{"type": "string", "maxLength": i} for i in range(100)]}
    keep = keep_with(array_of(alternatives))
    text = '{"a":[' + ",".join(["9" * 4000] * 200) + "]}"
    assert codes(keep, text) == [Code.NOT_JSON]


def test_a_large_bad_call_names_errors_from_all_its_parts() -> None:
    schema = {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
            "name": {"type": "string"},
        },
        "required": ["missing"],
    }
    keep = keep_with({**schema, "properties": {**schema["properties"], "missing": {"type": "null"}}})  # type: ignore[dict-item]
    rows: list[dict[str, Any]] = [{"id": i} for i in range(20_000)]
    rows[7] = {"id": "seven"}
    rows[19_999] = {"id": 1, "extra": 2}
    check = keep.try_validate_arguments("t", json.dumps({"rows": rows, "name": 3, "other": 4}))
    assert [error.path for error in check.errors] == [
        "/rows/7/id",
        "/rows/19999/extra",
        "/name",
        "/missing",
        "/other",
    ]


def test_a_large_object_is_not_copied_into_each_of_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """35 KB that lack 3,000 names took many seconds to refuse."""
    asked: list[int] = []
    collect = faults._Search._collect

    def counted(search: Any, validator: Any, value: Any, place: Any) -> None:
        before = len(search.faults)
        collect(search, validator, value, place)
        asked.append(len(value) * (len(search.faults) - before))

    monkeypatch.setattr(faults._Search, "_collect", counted)
    names = [f"q{i}" for i in range(1_000)]
    keep = keep_with(
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "never": False},
            "additionalProperties": {"type": "integer"},
            "required": names,
            "dependentRequired": {"p": names, "absent": names},
            "propertyNames": {"$ref": "#/$defs/name"},
            "maxProperties": 5,
            "$defs": {"name": {"pattern": "^[a-z][0-9a-z]*$"}},
        }
    )
    arguments = {"p": 1, "never": 1, **{f"z{i}": 1 for i in range(2_000)}, "Z": 1}
    check = keep.try_validate_arguments("t", json.dumps(arguments))
    assert isinstance(check, Refusal)
    messages = [error.message for error in check.errors]
    assert messages[0] == "The arguments must have at most 5 properties"
    assert messages.count("Required property 'q0' is missing") == 1
    assert len(messages) == 50
    assert sum(asked) < 5_000


def test_what_is_wrong_with_a_large_object_as_such_is_all_found() -> None:
    keep = keep_with(
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "never": False},
            "additionalProperties": {"type": "integer"},
            "required": ["r"],
            "dependentRequired": {"p": ["q", "z1"], "absent": ["s"]},
            "propertyNames": {"$ref": "#/$defs/name"},
            "maxProperties": 5,
            "$defs": {"name": {"pattern": "^[a-z][0-9a-z]*$"}},
        }
    )
    arguments = {"p": 1, "never": 1, **{f"z{i}": 1 for i in range(6_000)}, "Z": 1, "z7": "x"}
    check = keep.try_validate_arguments("t", json.dumps(arguments))
    assert isinstance(check, Refusal)
    assert sorted(error.message for error in check.errors) == [
        "'never' must not be given",
        "'z7' must be an integer, got string",
        "Required property 'q' is missing",
        "Required property 'r' is missing",
        "The arguments has a property name that is not allowed, 'Z'",
        "The arguments must have at most 5 properties",
    ]


def test_at_most_fifty_errors_are_named_at_any_size() -> None:
    keep = keep_with(array_of({"type": "string"}))
    for size in (60, 5_000, 100_000):
        check = keep.try_validate_arguments("t", json.dumps({"a": [1] * size}), agent=str(size))
        assert isinstance(check, Refusal)
        assert [error.path for error in check.errors] == [f"/a/{i}" for i in range(50)]
        assert len(check.text) <= 1200


@pytest.mark.parametrize(
    ("limits", "arguments", "code"),
    [
        (Limits(argument_bytes=10), '{"a": "0123456789"}', Code.ARGUMENTS_TOO_BIG),
        (Limits(argument_depth=2), '{"a": [[[[' + " " * 200 + "]]]]}", Code.ARGUMENTS_TOO_BIG),
        (Limits(work=10), '{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9]}', Code.WORK_EXCEEDED),
    ],
)
def test_limits_can_be_set(limits: Limits, arguments: str, code: Code) -> None:
    keep = keep_with({"type": "object", "properties": {"a": {}}}, limits)
    assert codes(keep, arguments) == [code]


def test_a_schema_over_its_size_or_depth_is_refused() -> None:
    def nested(depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(depth):
            schema = {"type": "object", "properties": {"a": schema}}
        return schema

    keep_with(nested(20))
    with pytest.raises(DefinitionError):
        keep_with(nested(21))
    with pytest.raises(DefinitionError):
        keep_with({"type": "object", "properties": {"a": {"enum": [f"{i:060}" for i in range(900)]}}})
    with pytest.raises(DefinitionError):
        keep_with(nested(5), Limits(schema_depth=4))
    with pytest.raises(DefinitionError):
        keep_with(nested(5), Limits(schema_bytes=50))


def test_a_schema_with_many_properties_costs_a_call_of_empty_objects_nothing() -> None:
    properties = {f"p{i}": {"type": "integer"} for i in range(1000)}
    keep = keep_with(array_of({"type": "object", "properties": properties}))
    assert codes(keep, json.dumps({"a": [{}] * 30_000})) == []


def test_defaults_cannot_blow_up_a_call() -> None:
    """A thousand defaults for each of thirty thousand empty objects would fill gigabytes."""
    properties = {f"p{i}": {"type": "integer", "default": i} for i in range(1000)}
    keep = keep_with(array_of({"type": "object", "properties": properties}))
    assert codes(keep, json.dumps({"a": [{}] * 100})) == []
    assert codes(keep, json.dumps({"a": [{}] * 30_000})) == [Code.WORK_EXCEEDED]
    assert codes(keep, {"a": [{} for _ in range(30_000)]}) == [Code.WORK_EXCEEDED]


def test_an_example_of_a_schema_that_wants_very_much_is_not_made() -> None:
    """Fifty items of fifty each, and so on; forty properties that refer to forty each."""
    items: dict[str, Any] = {"type": "integer"}
    for _ in range(7):
        items = {"type": "array", "minItems": 50, "items": items}
    many = {f"p{i}": {"$ref": "#/$defs/d"} for i in range(40)}
    parts = {
        name: {
            "type": "object",
            "properties": {n: {"$ref": f"#/$defs/{to}"} for n in many},
            "required": [*many],
        }
        for name, to in (("d", "c"), ("c", "b"), ("b", "a"))
    }
    wide = {"type": "object", "properties": many, "required": [*many], "$defs": {**parts, "a": True}}
    deep = {"type": "object", "properties": {"a": items}, "required": ["a"]}
    for parameters in (deep, wide):
        tool = ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters})
        assert example_call(admit(tool)) is None


AMOUNT = {"type": "number", "multipleOf": 0.01}


def test_amounts_of_money_are_checked_exactly_and_by_the_thousand() -> None:
    keep = keep_with(array_of(AMOUNT))
    amounts = [n / 100 for n in range(5_000)]
    assert codes(keep, json.dumps({"a": amounts})) == []
    assert codes(keep, json.dumps({"a": [0.07, 0.29, 1.1, 4.35, 123456789.12]})) == []
    assert codes(keep, json.dumps({"a": [0.075]})) == [Code.CONSTRAINT]


@pytest.mark.parametrize(
    ("schema", "number", "count"),
    [
        (AMOUNT, "0.07", 20_000),
        (AMOUNT, "1e300", 2_000),
        (AMOUNT, "1E300", 2_000),
        pytest.param(AMOUNT, "0." + "0" * 300 + "1", 2_000, id="no_exponent"),
        ({"type": "number", "multipleOf": 5e-324}, "1.5", 2_000),
        ({"type": "number", "multipleOf": 7}, "1e300", 5_000),
        ({"not": {"multipleOf": 0.5}}, "5e-324", 2_000),
        ({"anyOf": [{"multipleOf": 3 + i} for i in range(60)]}, "123456789.12", 2_000),
        ({"not": {"const": 10**1_000}}, "1", 5_000),
        ({"not": {"enum": [[10**4_000], {"a": 10**4_000}]}}, "1", 2_000),
        ({"type": "number", "maximum": 10**1_000}, "1e300", 20_000),
    ],
)
@pytest.mark.parametrize("kind", [str, dict])
def test_numbers_that_are_slow_to_divide_or_compare_exceed_the_work(
    schema: dict[str, Any], number: str, count: int, kind: type
) -> None:
    """A megabyte of them took up to nine seconds."""
    keep = keep_with(array_of(schema))
    text = '{"a":[' + ",".join([number] * count) + "]}"
    assert codes(keep, text if kind is str else json.loads(text)) == [Code.WORK_EXCEEDED]


@pytest.mark.parametrize("padding", [0, 3_000])
@pytest.mark.parametrize(
    ("inside", "code"), [("1e999", Code.NOT_JSON), ("[" * 100 + "]" * 100, Code.ARGUMENTS_TOO_BIG)]
)
def test_what_the_engine_does_not_look_at_is_bounded_in_a_call_that_is_counted_too(
    padding: int, inside: str, code: Code
) -> None:
    """Items are compared, so a call of some length is counted; the other property may hold anything."""
    compared: dict[str, Any] = {"type": "array", "uniqueItems": True}
    keep = keep_with({"type": "object", "properties": {"a": compared, "b": {}}})
    assert codes(keep, f'{{"a":[],"b":["{"x" * padding}",{inside}]}}') == [code]
    assert codes(keep, f'{{"a":[],"b":["{"x" * padding}",[1e99]]}}') == []


def test_numbers_of_any_size_are_no_work_where_nothing_divides_them() -> None:
    keep = keep_with(array_of({"type": "number", "minimum": 0, "maximum": 1e300}))
    assert codes(keep, json.dumps({"a": [6.02e23, 1.989e30, 1e-300] * 2_000})) == []


@pytest.mark.parametrize(("number", "too_many"), [(0.07, 900_000), (1e300, 10_000)])
def test_an_output_of_numbers_that_are_slow_to_divide_fails_the_call(number: float, too_many: int) -> None:
    """An answer held up everything for ten seconds."""

    @tool(description="Give back amounts", output_schema={"type": "array", "items": AMOUNT})
    def amounts(count: int) -> list[float]:
        return [number] * count

    with open_keep() as keep:
        keep.register(amounts)
        few, many = (asyncio.run(keep.call("amounts", {"count": count})) for count in (100, too_many))
    assert few.code is None
    assert many.code is Code.OUTPUT_TOO_BIG


@pytest.mark.parametrize(
    "value",
    [
        {"a": ["x" * 9_000, "y", 1, True, None, 1.5, 0.0, 1e300, 5e-324, 2**70, {"b": []}]},
        [],
        7,
        [[[]], {"": {}}],
    ],
)
def test_the_size_of_a_call_is_that_of_its_values_one_by_one(value: Any) -> None:
    def count(one: Any) -> int:
        inside = [*one.values()] if isinstance(one, dict) else one if isinstance(one, list) else []
        return 1 + sum(map(count, inside)) + (len(one) if isinstance(one, dict) else 0)

    assert size_of(value).values == count(value)


def test_a_long_text_is_counted_as_far_as_it_is_matched() -> None:
    size = size_of(["x" * (MATCHED_CHARS + 1), "y" * MATCHED_CHARS, "z", {"name": None}])
    assert size.chars == 2 * MATCHED_CHARS + len("z") + len("name")


def test_counting_ends_before_the_level_that_is_too_much() -> None:
    """A megabyte of numbers is not looked at one by one to find that there are too many."""
    size = size_of([1.5] * 100_000, stop_at=1_000)
    assert (size.values, size.numbers) == (100_001, 0)


def _contexts(error: Any) -> int:
    """An error and all that it holds."""
    branches = getattr(error.kind, "context", ())
    return 1 + sum(_contexts(inner) for branch in branches for inner in branch)


def counting(validator: Any, made: list[int]) -> Any:
    """The engine, which counts the errors that it makes, also those of alternatives."""

    class Counting:
        is_valid = staticmethod(validator.is_valid)

        @staticmethod
        def iter_errors(value: Any) -> Any:
            errors = list(validator.iter_errors(value))
            made.append(sum(map(_contexts, errors)))
            return iter(errors)

        @staticmethod
        def validate(value: Any) -> None:
            try:
                validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                made.append(_contexts(error))
                raise

    return Counting()


STRANGERS = {f"p{i}": "x" for i in range(1_000)}
ALTERNATIVES = [
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": i}} for i in range(120)
]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ({"anyOf": ALTERNATIVES}, dict(list(STRANGERS.items())[:40])),
        ({"anyOf": ALTERNATIVES}, STRANGERS),
        ({"type": "array", "items": {"anyOf": ALTERNATIVES}}, [dict(list(STRANGERS.items())[:12])] * 60),
        ({"type": "array", "items": {"oneOf": [{"const": i} for i in range(100)]}}, ["x"] * 1_000),
        ({"anyOf": [{"type": "array", "items": {"type": "boolean"}}] * 200}, [None] * 90),
    ],
)
def test_explaining_a_refusal_collects_a_bounded_number_of_errors(
    place: dict[str, Any], value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 KB under 120 alternatives took seconds, as each alternative has an error for each value."""
    tool = admit(
        ToolDefinition.from_elsewhere(
            {"name": "t", "parameters": {"type": "object", "properties": {"v": place, "w": {"type": "null"}}}}
        )
    )
    made: list[int] = []
    parts = type(tool.arguments).compile_part
    tool.arguments.validator = counting(tool.arguments.validator, made)
    monkeypatch.setattr(
        type(tool.arguments), "compile_part", lambda self, part: counting(parts(self, part), made)
    )
    check = validate(tool, json.dumps({"v": value, "w": 1}), RefusalHistory(), "agent")
    assert isinstance(check, Refusal)
    assert {error.code for error in check.errors} <= {Code.CONSTRAINT, Code.WRONG_TYPE}
    assert check.errors[0].path.startswith("/v")
    assert sum(made) <= 2 * REPORT_WORK
