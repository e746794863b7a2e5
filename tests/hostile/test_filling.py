"""Defaults made to fill memory: counted before they are filled in, and left out where they never end."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep import CheckedCall, Limits, Refusal, ToolDefinition
from toolkeep.calls import RegisteredTool
from toolkeep.errors import Code, DefinitionError
from toolkeep.registry.admit import admit
from toolkeep.validation.call_size import size_of
from toolkeep.validation.default_growth import FillingPlan
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

pytestmark = [pytest.mark.spec("VAL-7"), pytest.mark.spec("VAL-9")]

LIMITS = Limits()
NUMBERS = {"type": "array", "items": {"type": "integer"}}


def imported(parameters: dict[str, Any]) -> RegisteredTool:
    return admit(ToolDefinition.from_elsewhere({"name": "t", "description": "Try", "parameters": parameters}))


def by_hand(parameters: dict[str, Any]) -> RegisteredTool:
    return admit(ToolDefinition.from_dict({"name": "t", "description": "Try", "parameters": parameters}))


def called(tool: RegisteredTool, arguments: Any) -> CheckedCall | Refusal:
    return validate(tool, json.dumps(arguments), RefusalHistory(), "agent")


def filled(tool: RegisteredTool, arguments: Any) -> Any:
    check = called(tool, arguments)
    assert isinstance(check, CheckedCall), check
    return check.arguments


def chain(levels: int, width: int) -> dict[str, Any]:
    """Each definition has so many properties, whose default is an object of the next one."""
    leaf = {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}
    definitions: dict[str, Any] = {f"D{levels}": leaf}
    for level in range(levels):
        inside = {"$ref": f"#/$defs/D{level + 1}", "default": {}}
        definitions[f"D{level}"] = {"type": "object", "properties": {f"p{i}": inside for i in range(width)}}
    return {"type": "object", "properties": {"filter": {"$ref": "#/$defs/D0"}}, "$defs": definitions}


LOOP = {
    "type": "object",
    "properties": {"first": {"$ref": "#/$defs/node", "default": {}}, "n": {"type": "integer", "default": 1}},
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node", "default": {}}}}},
}


def test_defaults_inside_defaults_are_filled_in_as_long_as_they_are_few() -> None:
    tool = imported(chain(2, 2))
    leaf = {"p0": {"x": 1}, "p1": {"x": 1}}
    assert tool.warnings == ()
    assert filled(tool, {"filter": {}}) == {"filter": {"p0": leaf, "p1": leaf}}
    assert filled(tool, {"filter": {"p0": {"p1": {"x": 2}}}}) == {
        "filter": {"p0": {"p1": {"x": 2}, "p0": {"x": 1}}, "p1": leaf}
    }


def test_a_chain_of_defaults_cannot_turn_nothing_into_gigabytes() -> None:
    """Eight levels of ten: `{"filter": {}}` became a hundred million values. Five are too many already."""
    tool = imported(chain(5, 10))
    assert {warning.message for warning in tool.warnings} == {
        "its default adds too much to a call, with the defaults inside it"
    }
    arguments = filled(tool, {"filter": {}})
    assert size_of(arguments).values <= LIMITS.work
    assert len(arguments["filter"]) == 1  # what is small enough is filled in all the same


def test_a_chain_of_defaults_written_by_hand_is_refused_with_its_place() -> None:
    with pytest.raises(DefinitionError) as caught:
        by_hand(chain(8, 10))
    fields = {problem.field for problem in caught.value.problems}
    assert fields >= {f"parameters/$defs/D2/properties/p{i}" for i in range(10)}


@pytest.mark.parametrize("kind", [bytes, dict])
def test_a_default_below_items_counts_once_for_each_item(kind: type) -> None:
    """20 KB of empty objects and 20 KB of schema gave half a gigabyte."""
    item = {"type": "object", "properties": {"d": {**NUMBERS, "default": [1] * 10_000}}}
    tool = imported({"type": "object", "properties": {"a": {"type": "array", "items": item}}})
    assert filled(tool, {"a": [{}, {}]})["a"][1]["d"] == [1] * 10_000
    many: Any = {"a": [{}] * 5_000}
    check = validate(tool, json.dumps(many).encode() if kind is bytes else many, RefusalHistory(), "agent")
    assert isinstance(check, Refusal)
    assert [error.code for error in check.errors] == [Code.WORK_EXCEEDED]


def test_items_that_have_their_defaults_already_are_not_refused() -> None:
    item = {"type": "object", "properties": {"d": {**NUMBERS, "default": [1] * 10_000}}}
    tool = imported({"type": "object", "properties": {"a": {"type": "array", "items": item}}})
    assert len(filled(tool, {"a": [{"d": []}] * 5_000})["a"]) == 5_000


def test_a_long_text_counts_by_its_bytes_wherever_it_is_referred_to() -> None:
    """A text is shared in memory, but not once the arguments are written down."""
    text = {"type": "string", "default": "x" * 20_000}
    item = {"type": "object", "properties": {f"p{i}": {"$ref": "#/$defs/text"} for i in range(20)}}
    tool = imported(
        {
            "type": "object",
            "properties": {"a": {"type": "array", "items": item}},
            "$defs": {"text": text},
        }
    )
    assert len(filled(tool, {"a": [{}]})["a"][0]) == 20
    check = called(tool, {"a": [{}] * 100})
    assert isinstance(check, Refusal)
    assert [error.code for error in check.errors] == [Code.WORK_EXCEEDED]


def test_counting_ends_where_it_is_too_much_and_passes_over_what_gains_nothing() -> None:
    item = {"type": "object", "properties": {"d": {**NUMBERS, "default": [1] * 10_000}}}
    plain = {"type": "object", "properties": {"n": {"type": "integer"}}}
    properties = {"a": {"type": "array", "items": item}, "b": {"type": "array", "items": plain}}
    finisher = imported({"type": "object", "properties": properties}).arguments.finisher
    assert finisher is not None
    plan = FillingPlan(finisher, LIMITS)
    assert LIMITS.work < plan.added(finisher, {"a": [{}] * 5_000}).values < 2 * LIMITS.work
    with counted_calls() as calls:
        assert plan.added(finisher, {"a": [], "b": [{"n": 1}] * 10_000}).values == 0
    assert len(calls) < 100


@contextmanager
def counted_calls() -> Iterator[list[str]]:
    """The functions that are called and left meanwhile."""
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(event))
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("item", [{}, {"p0": "x"}, {"p0": "x", "p99": []}])
def test_counting_takes_no_step_for_each_default(item: dict[str, Any]) -> None:
    """6 KB of empty objects under a hundred defaults took a fifth of a second before they were refused."""
    properties: dict[str, Any] = {f"p{i}": {"type": "string", "default": "x"} for i in range(99)}
    properties["p99"] = {**NUMBERS, "default": [1]}
    items = {"type": "object", "properties": properties}
    tool = imported({"type": "object", "properties": {"a": {"type": "array", "items": items}}})
    finisher = tool.arguments.finisher
    assert finisher is not None
    plan = FillingPlan(finisher, LIMITS)
    with counted_calls() as calls:
        added = plan.added(finisher, {"a": [item] * 1_000})
    assert len(calls) < 100 * 1_000
    left = 99 - ("p0" in item)
    assert added.values == 1_000 * (2 * left + 3 * ("p99" not in item))
    assert added.depth == ("p99" not in item)


@pytest.mark.parametrize("count", [20, 100])
def test_defaults_of_the_root_never_make_every_call_too_large(count: int) -> None:
    """Twenty are few bytes, and a third of the values that a call may gain: one object may gain a quarter."""
    numbers = {**NUMBERS, "default": [1] * 5_000}
    properties = {f"p{i}": {"$ref": "#/$defs/numbers"} for i in range(count)}
    tool = imported({"type": "object", "properties": properties, "$defs": {"numbers": numbers}})
    assert [warning.field for warning in tool.warnings] == ["parameters/$defs/numbers"]
    assert filled(tool, {}) == {}


@pytest.mark.parametrize("arguments", [{}, {"first": {}}, {"first": {"next": {"next": {}}}}])
def test_a_default_that_leads_to_itself_is_named_and_not_applied(arguments: dict[str, Any]) -> None:
    """Every valid call was refused."""
    tool = imported(LOOP)
    assert [(warning.field, warning.message) for warning in tool.warnings] == [
        (
            "parameters/$defs/node/properties/next",
            "its default leads back to itself through the defaults inside it",
        )
    ]
    assert filled(tool, arguments) == {"first": {}, "n": 1, **arguments}


def test_a_default_that_leads_to_itself_is_refused_by_hand() -> None:
    with pytest.raises(DefinitionError) as caught:
        by_hand(LOOP)
    assert [problem.field for problem in caught.value.problems] == ["parameters/$defs/node/properties/next"]


def test_a_loop_over_several_definitions_or_the_root_itself_is_left_out() -> None:
    def to(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {"p": {"$ref": name, "default": {}}}}

    around = {"a": to("#/$defs/b"), "b": to("#/$defs/c"), "c": to("#/$defs/a")}
    tool = imported({**to("#/$defs/a"), "$defs": around})
    assert filled(tool, {}) == {"p": {}}
    assert len(tool.warnings) == 3
    whole = imported(to("#"))
    assert filled(whole, {"p": {}}) == {"p": {}}
    assert [warning.field for warning in whole.warnings] == ["parameters/properties/p"]


def test_defaults_nest_no_deeper_than_arguments() -> None:
    tool = imported(chain(80, 1))
    assert tool.warnings
    depth, value = 0, filled(tool, {"filter": {}})
    while isinstance(value, dict) and value:
        depth, value = depth + 1, next(iter(value.values()))
    assert depth <= LIMITS.argument_depth + 2


def looked_through(rows: Any, names: int, uses: int) -> dict[str, Any]:
    """A schema whose default rows, of objects with so many defaults, stand at so many places."""
    item = {
        "type": "object",
        "properties": {f"x{i}": {"type": "integer", "default": 1} for i in range(names)},
    }
    properties = {f"p{i}": {"$ref": "#/$defs/rows"} for i in range(uses)}
    listed = {"type": "array", "items": item, "default": rows}
    return {"type": "object", "properties": properties, "$defs": {"rows": listed}}


@pytest.mark.parametrize(
    "parameters",
    [
        looked_through([{}] * 5_000, names=1, uses=100),
        looked_through([{"x0": 1}] * 2_000, names=1, uses=100),  # whose defaults are all given
        looked_through([{}] * 1_100, names=100, uses=1),
        {"type": "object", "properties": {"a": {**NUMBERS, "default": [1] * 100_001}}},
    ],
    ids=["all", "objects", "names", "values"],
)
def test_defaults_that_take_long_to_look_through_are_refused(parameters: dict[str, Any]) -> None:
    definition = ToolDefinition.from_elsewhere({"name": "t", "description": "Try", "parameters": parameters})
    with pytest.raises(DefinitionError) as caught:
        admit(definition, limits=Limits(schema_bytes=1_000_000))
    assert [problem.fix for problem in caught.value.problems] == ["use fewer or smaller ones"]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.just({}), lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from("abc"), inside)
)


@given(
    defaults=st.lists(VALUES, min_size=4, max_size=4),
    targets=st.lists(
        st.sampled_from(["#/$defs/d0", "#/$defs/d1", "#/$defs/d2", "#"]), min_size=4, max_size=4
    ),
    call=VALUES,
)
def test_what_is_counted_is_what_is_filled_in(defaults: list[Any], targets: list[str], call: Any) -> None:
    """Whatever leads where: nothing is filled in that was not counted, and all of it ends."""
    definitions = {
        f"d{i}": {
            "type": ["object", "array"],
            "properties": {
                name: {"$ref": targets[(i + shift) % 4], "default": defaults[(i + shift) % 4]}
                for shift, name in enumerate("abc"[: i + 1])
            },
            "items": {"$ref": targets[i]},
        }
        for i in range(3)
    }
    tool = imported({"type": "object", "properties": {"a": {"$ref": targets[3]}}, "$defs": definitions})
    schema = tool.arguments
    before = {"a": call}
    if schema.finisher is None or not schema.is_valid(before):
        return
    counted = FillingPlan(schema.finisher, LIMITS).added(schema.finisher, before)
    after = filled(tool, before)
    assert counted.values == size_of(after).values - size_of(before).values
    assert len(json.dumps(after, separators=(",", ":"))) <= counted.bytes + len(json.dumps(before))
