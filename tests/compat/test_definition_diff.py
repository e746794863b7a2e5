"""A table of schema changes with their verdicts, each checked against generated calls where that can be."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.registry import changing
from tests.registry.changing import joint_effect
from toolkeep.compat.change_effects import Effect
from toolkeep.compat.definition_diff import schema_changes
from toolkeep.limits import DEFAULT_LIMITS
from toolkeep.validation.compile import compile_arguments, compile_output

pytestmark = pytest.mark.spec("REG-3")

Schema = dict[str, Any]
WORDS, WIDENED, NARROWED, CHANGED = Effect.WORDS, Effect.WIDENED, Effect.NARROWED, Effect.CHANGED


def taking(schema: Any) -> Schema:
    """The schema of a tool with one parameter, `a`."""
    return {"type": "object", "properties": {"a": schema}}


def objects(properties: Schema, **keywords: Any) -> Schema:
    return {"type": "object", "properties": properties, **keywords}


INT, TEXT = {"type": "integer"}, {"type": "string"}
LOOP: Schema = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": INT}}


def shared(definition: Any, **siblings: Any) -> Schema:
    return {**taking({"$ref": "#/$defs/node", **siblings}), "$defs": {"node": definition}}


TABLE: list[tuple[str, Schema, Schema, Effect, str]] = [
    # what changed, before, after, effect, in plain words
    ("nothing", taking(INT), taking(INT), WORDS, ""),
    ("description", taking(INT), taking({**INT, "description": "A"}), WORDS, "parameters/properties/a: description changed"),
    ("title and examples", taking(INT), taking({**INT, "title": "A", "examples": [1]}), WORDS, "parameters/properties/a: title and examples changed"),
    ("parameter called description", objects({"description": INT}), objects({"description": TEXT}), CHANGED, 'parameters/properties/description: changed: type from "integer" to "string"'),
    ("new optional parameter", objects({"a": INT}), objects({"a": INT, "b": TEXT}), WIDENED, "parameters/properties/b: new and optional"),
    ("new required parameter", objects({"a": INT}), objects({"a": INT, "b": TEXT}, required=["b"]), CHANGED, "parameters/properties/b: new and required"),
    ("parameter removed", objects({"a": INT, "b": TEXT}), objects({"a": INT}), NARROWED, "parameters/properties/b: removed"),
    ("required parameter removed", objects({"a": INT, "b": TEXT}, required=["b"]), objects({"a": INT}), CHANGED, "parameters/properties/b: removed"),
    ("parameter renamed", objects({"a": INT, "b": TEXT}), objects({"a": INT, "c": TEXT}), CHANGED, "parameters/properties/b: renamed to 'c'"),
    ("became required", taking(INT), objects({"a": INT}, required=["a"]), NARROWED, "parameters/properties/a: became required"),
    ("became optional", objects({"a": INT}, required=["a"]), taking(INT), WIDENED, "parameters/properties/a: became optional"),
    ("other type", taking(INT), taking(TEXT), CHANGED, 'parameters/properties/a: changed: type from "integer" to "string"'),
    ("integer becomes number", taking(INT), taking({"type": "number"}), WIDENED, 'parameters/properties/a: widened: type from "integer" to "number"'),
    ("number becomes integer", taking({"type": "number"}), taking(INT), NARROWED, 'parameters/properties/a: narrowed: type from "number" to "integer"'),
    ("takes null too", taking(INT), taking({"type": ["integer", "null"]}), WIDENED, 'parameters/properties/a: widened: type from "integer" to array with 2 items'),
    ("no longer takes null", taking({"type": ["integer", "null"]}), taking(INT), NARROWED, 'parameters/properties/a: narrowed: type from array with 2 items to "integer"'),
    ("type dropped", taking(INT), taking({}), WIDENED, 'parameters/properties/a: widened: type "integer" is gone'),
    ("minimum lowered", taking({**INT, "minimum": 3}), taking({**INT, "minimum": 1}), WIDENED, "parameters/properties/a: widened: minimum from 3 to 1"),
    ("minimum raised", taking({**INT, "minimum": 1}), taking({**INT, "minimum": 3}), NARROWED, "parameters/properties/a: narrowed: minimum from 1 to 3"),
    ("maximum raised", taking({**INT, "maximum": 3}), taking({**INT, "maximum": 5}), WIDENED, "parameters/properties/a: widened: maximum from 3 to 5"),
    ("maximum lowered", taking({**INT, "maximum": 5}), taking({**INT, "maximum": 3}), NARROWED, "parameters/properties/a: narrowed: maximum from 5 to 3"),
    ("maximum new", taking(INT), taking({**INT, "maximum": 3}), NARROWED, "parameters/properties/a: narrowed: maximum is new, 3"),
    ("maximum gone", taking({**INT, "maximum": 3}), taking(INT), WIDENED, "parameters/properties/a: widened: maximum 3 is gone"),
    ("range moved", taking({**INT, "minimum": 1, "maximum": 3}), taking({**INT, "minimum": 2, "maximum": 4}), CHANGED, "parameters/properties/a: narrowed: minimum from 1 to 2; parameters/properties/a: widened: maximum from 3 to 4"),
    ("exclusive minimum", taking({**INT, "exclusiveMinimum": 1}), taking({**INT, "exclusiveMinimum": 0}), WIDENED, "parameters/properties/a: widened: exclusiveMinimum from 1 to 0"),
    ("coarser steps", taking({**INT, "multipleOf": 2}), taking({**INT, "multipleOf": 6}), NARROWED, "parameters/properties/a: narrowed: multipleOf from 2 to 6"),
    ("finer steps", taking({"type": "number", "multipleOf": 0.3}), taking({"type": "number", "multipleOf": 0.1}), WIDENED, "parameters/properties/a: widened: multipleOf from 0.3 to 0.1"),
    ("other steps", taking({**INT, "multipleOf": 2}), taking({**INT, "multipleOf": 3}), CHANGED, "parameters/properties/a: changed: multipleOf from 2 to 3"),
    ("longer text", taking({**TEXT, "maxLength": 1}), taking({**TEXT, "maxLength": 3}), WIDENED, "parameters/properties/a: widened: maxLength from 1 to 3"),
    ("shorter text", taking({**TEXT, "maxLength": 3}), taking({**TEXT, "maxLength": 1}), NARROWED, "parameters/properties/a: narrowed: maxLength from 3 to 1"),
    ("no empty text", taking(TEXT), taking({**TEXT, "minLength": 1}), NARROWED, "parameters/properties/a: narrowed: minLength is new, 1"),
    ("pattern new", taking(TEXT), taking({**TEXT, "pattern": "^a"}), NARROWED, 'parameters/properties/a: narrowed: pattern is new, "^a"'),
    ("pattern gone", taking({**TEXT, "pattern": "^a"}), taking(TEXT), WIDENED, 'parameters/properties/a: widened: pattern "^a" is gone'),
    ("pattern changed", taking({**TEXT, "pattern": "^a"}), taking({**TEXT, "pattern": "^b"}), CHANGED, 'parameters/properties/a: changed: pattern from "^a" to "^b"'),
    ("format new", taking(TEXT), taking({**TEXT, "format": "date"}), NARROWED, 'parameters/properties/a: narrowed: format is new, "date"'),
    ("format gone", taking({**TEXT, "format": "date"}), taking(TEXT), WIDENED, 'parameters/properties/a: widened: format "date" is gone'),
    ("more allowed values", taking({"enum": ["x"]}), taking({"enum": ["x", "y"]}), WIDENED, 'parameters/properties/a: widened: allows "y" too'),
    ("fewer allowed values", taking({"enum": ["x", "y"]}), taking({"enum": ["y"]}), NARROWED, 'parameters/properties/a: narrowed: no longer allows "x"'),
    ("other allowed values", taking({"enum": ["x", "y"]}), taking({"enum": ["y", "z"]}), CHANGED, 'parameters/properties/a: changed: no longer allows "x" and allows "z" too'),
    ("allowed values in another order", taking({"enum": ["x", "y"]}), taking({"enum": ["y", "x"]}), WORDS, ""),
    ("one value becomes one of two", taking({"const": "x"}), taking({"enum": ["x", 1]}), WIDENED, "parameters/properties/a: widened: allows 1 too"),
    ("true is not 1", taking({"enum": [1]}), taking({"enum": [True, 2]}), CHANGED, "parameters/properties/a: changed: no longer allows 1 and allows true, 2 too"),
    ("values listed", taking(TEXT), taking({**TEXT, "enum": ["x"]}), NARROWED, "parameters/properties/a: narrowed: only listed values are allowed now"),
    ("values no longer listed", taking({**TEXT, "enum": ["x"]}), taking(TEXT), WIDENED, "parameters/properties/a: widened: only listed values are allowed no longer"),
    ("default new", taking(INT), taking({**INT, "default": 1}), CHANGED, "parameters/properties/a: changed: the default is new, 1"),
    ("default changed", taking({**INT, "default": 1}), taking({**INT, "default": 2}), CHANGED, "parameters/properties/a: changed: the default from 1 to 2"),
    ("items narrowed", taking({"type": "array", "items": {"type": "number"}}), taking({"type": "array", "items": INT}), NARROWED, 'parameters/properties/a/items: narrowed: type from "number" to "integer"'),
    ("items described", taking({"type": "array"}), taking({"type": "array", "items": INT}), NARROWED, 'parameters/properties/a/items: narrowed: type is new, "integer"'),
    ("more items", taking({"type": "array", "maxItems": 1}), taking({"type": "array", "maxItems": 2}), WIDENED, "parameters/properties/a: widened: maxItems from 1 to 2"),
    ("fewer items", taking({"type": "array", "maxItems": 2}), taking({"type": "array", "maxItems": 1}), NARROWED, "parameters/properties/a: narrowed: maxItems from 2 to 1"),
    ("items apart", taking({"type": "array"}), taking({"type": "array", "uniqueItems": True}), NARROWED, "parameters/properties/a: narrowed: uniqueItems is new, true"),
    ("first item widened", taking({"type": "array", "prefixItems": [INT]}), taking({"type": "array", "prefixItems": [{"type": "number"}]}), WIDENED, 'parameters/properties/a/prefixItems/0: widened: type from "integer" to "number"'),
    ("another item described", taking({"type": "array", "prefixItems": [INT]}), taking({"type": "array", "prefixItems": [INT, TEXT]}), CHANGED, "parameters/properties/a: changed: prefixItems from array with 1 items to array with 2 items"),
    ("must contain", taking({"type": "array"}), taking({"type": "array", "contains": INT}), NARROWED, "parameters/properties/a: narrowed: contains is new, object with 1 properties"),
    ("inner parameter new", taking(objects({"x": INT})), taking(objects({"x": INT, "y": INT})), WIDENED, "parameters/properties/a/properties/y: new and optional"),
    ("inner parameter required", taking(objects({"x": INT})), taking(objects({"x": INT}, required=["x"])), NARROWED, "parameters/properties/a/properties/x: became required"),
    ("free map described", taking({"type": "object"}), taking(objects({"x": INT})), NARROWED, "parameters/properties/a/properties/x: described now: took anything before; parameters/properties/a: narrowed: takes only properties that are described"),
    ("opened", objects({"a": INT}), objects({"a": INT}, additionalProperties=True), WIDENED, "parameters: widened: takes properties that are not described"),
    ("closed", objects({"a": INT}, additionalProperties=True), objects({"a": INT}), NARROWED, "parameters: narrowed: takes only properties that are described"),
    ("said what was so anyway", objects({"a": INT}), objects({"a": INT}, additionalProperties=False), WORDS, ""),
    ("other properties narrowed", taking({"type": "object", "additionalProperties": {"type": "number"}}), taking({"type": "object", "additionalProperties": INT}), NARROWED, 'parameters/properties/a/additionalProperties: narrowed: type from "number" to "integer"'),
    ("new parameter in an open object", objects({}, additionalProperties=True), objects({"a": INT}, additionalProperties=True), NARROWED, "parameters/properties/a: described now: took anything before"),
    ("parameter of an open object gone", objects({"a": INT}, additionalProperties=True), objects({}, additionalProperties=True), WIDENED, "parameters/properties/a: no longer described: takes anything now"),
    ("fewer properties", taking({"type": "object", "maxProperties": 2}), taking({"type": "object", "maxProperties": 1}), NARROWED, "parameters/properties/a: narrowed: maxProperties from 2 to 1"),
    ("patterns of names", taking({"type": "object", "patternProperties": {"^x": INT}}), taking({"type": "object", "patternProperties": {"^y": INT}}), CHANGED, "parameters/properties/a: changed: patternProperties from object with 1 properties to object with 1 properties"),
    ("under a pattern of names", taking({"type": "object", "patternProperties": {"^x": INT}}), taking({"type": "object", "patternProperties": {"^x": {"type": "number"}}}), WIDENED, 'parameters/properties/a/patternProperties/^x: widened: type from "integer" to "number"'),
    ("depends on another", objects({"a": INT, "b": INT}), objects({"a": INT, "b": INT}, dependentRequired={"a": ["b"]}), NARROWED, "parameters: narrowed: dependentRequired is new, object with 1 properties"),
    ("another alternative", taking({"anyOf": [INT]}), taking({"anyOf": [INT, TEXT]}), WIDENED, "parameters/properties/a: widened: 1 more under anyOf"),
    ("an alternative less", taking({"anyOf": [INT, TEXT]}), taking({"anyOf": [TEXT]}), NARROWED, "parameters/properties/a: narrowed: 1 fewer under anyOf"),
    ("an alternative widened", taking({"anyOf": [INT, TEXT]}), taking({"anyOf": [{"type": "number"}, TEXT]}), WIDENED, 'parameters/properties/a/anyOf/0: widened: type from "integer" to "number"'),
    ("one of more kinds", taking({"oneOf": [INT, TEXT]}), taking({"oneOf": [INT, TEXT, {"type": "null"}]}), WIDENED, "parameters/properties/a: widened: 1 more under oneOf"),
    ("one of more that overlap", taking({"oneOf": [INT]}), taking({"oneOf": [INT, {"type": "number"}]}), CHANGED, "parameters/properties/a: changed: oneOf from array with 1 items to array with 2 items"),
    ("another condition", taking({"allOf": [INT]}), taking({"allOf": [INT, {"minimum": 2}]}), NARROWED, "parameters/properties/a: narrowed: 1 more under allOf"),
    ("exclusion new", taking(INT), taking({**INT, "not": {"const": 2}}), NARROWED, "parameters/properties/a: narrowed: not is new, object with 1 properties"),
    ("exclusion changed", taking({**INT, "not": {"minimum": 2}}), taking({**INT, "not": {"minimum": 3}}), CHANGED, "parameters/properties/a: changed: not from object with 1 properties to object with 1 properties"),
    ("composed object", taking({"allOf": [objects({"x": INT})]}), taking({"allOf": [objects({"x": INT}), objects({"y": INT})]}), CHANGED, "parameters/properties/a: changed: is composed differently"),
    ("what is shared widened", shared(INT), shared({"type": "number"}), WIDENED, 'parameters/properties/a: widened: type from "integer" to "number"'),
    ("what is shared and unused", {**taking(INT), "$defs": {"node": INT}}, {**taking(INT), "$defs": {"node": TEXT}}, WORDS, ""),
    ("shared under another name", shared(INT), {**taking({"$ref": "#/$defs/other"}), "$defs": {"other": INT}}, WORDS, ""),
    ("written out", shared(INT), taking(INT), WORDS, ""),
    ("beside a reference", shared(INT, minimum=1), shared(INT, minimum=3), NARROWED, "parameters/properties/a: narrowed: minimum from 1 to 3"),
    ("a loop widened", shared(LOOP), shared(objects({**LOOP["properties"], "value": {"type": "number"}})), WIDENED, 'parameters/properties/a/properties/value: widened: type from "integer" to "number"'),
    ("a loop with one name more", shared(LOOP), shared(objects({**LOOP["properties"], "x": INT})), WIDENED, "parameters/properties/a/properties/x: new and optional"),
    ("secret", taking(TEXT), taking({**TEXT, "writeOnly": True}), CHANGED, "parameters/properties/a: changed: writeOnly is new, true"),
    ("need not contain it", taking({"type": "array", "contains": INT}), taking({"type": "array", "contains": INT, "minContains": 0}), WIDENED, "parameters/properties/a: widened: minContains is new, 0"),
    ("must contain it after all", taking({"type": "array", "contains": INT, "minContains": 0}), taking({"type": "array", "contains": INT}), NARROWED, "parameters/properties/a: narrowed: minContains 0 is gone"),
    ("closed before its parts are met", {**objects({"a": INT}), "anyOf": [objects({"b": INT})]}, {**objects({"a": INT}, additionalProperties=False), "anyOf": [objects({"b": INT})]}, CHANGED, "parameters: changed: is composed differently"),
    ("what was evaluated is left over", taking({"items": {"type": "array"}, "unevaluatedItems": INT}), taking({"unevaluatedItems": INT}), CHANGED, "parameters/properties/a: changed: is composed differently"),
    ("what is shared also below an exclusion", {**objects({"a": {"$ref": "#/$defs/n"}, "b": {"not": {"$ref": "#/$defs/n"}}}), "$defs": {"n": INT}}, {**objects({"a": {"$ref": "#/$defs/n"}, "b": {"not": {"$ref": "#/$defs/n"}}}), "$defs": {"n": {"type": "number"}}}, CHANGED, 'parameters/properties/a: widened: type from "integer" to "number"; parameters/properties/b: changed: what not refers to'),
    ("what a composed object refers to", {**taking({"allOf": [{"$ref": "#/$defs/n"}]}), "$defs": {"n": objects({"x": INT})}}, {**taking({"allOf": [{"$ref": "#/$defs/n"}]}), "$defs": {"n": objects({"x": TEXT})}}, CHANGED, "parameters/properties/a: changed: is composed differently"),
    ("words of a composed object", taking({"allOf": [objects({"x": INT})]}), taking({"allOf": [objects({"x": {**INT, "title": "X"}})], "description": "A"}), WORDS, "parameters/properties/a: description changed; parameters/properties/a/allOf/0/properties/x: title changed"),
    ("references by name", {**taking({"$ref": "#here"}), "$defs": {"n": {"$anchor": "here", **INT}}}, {**taking({"$ref": "#here"}), "$defs": {"n": {"$anchor": "here", **TEXT}}}, CHANGED, "parameters: changed: it has references that are not followed here"),
]  # fmt: skip


def test_the_table_has_more_than_fifty_changes() -> None:
    assert len(TABLE) > 50
    assert len({what for what, *_ in TABLE}) == len(TABLE)


@pytest.mark.parametrize(
    ("before", "after", "effect", "words"), [pytest.param(*row[1:], id=row[0]) for row in TABLE]
)
def test_a_change_has_its_verdict_and_its_words(
    before: Schema, after: Schema, effect: Effect, words: str
) -> None:
    changes = schema_changes(before, after, "parameters", closes=True)
    assert joint_effect(changes) is effect
    assert "; ".join(f"{change.place}: {change.what}" for change in changes) == words


# --- against generated calls -----------------------------------------------------------------------


def accepts(schema: Schema, *, closes: bool = True) -> Callable[[Any], bool]:
    make = compile_arguments if closes else compile_output
    made = make(schema, by_hand=False, limits=DEFAULT_LIMITS)
    assert made.compiled is not None, made.problems
    return made.compiled.is_valid


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 7), st.sampled_from([0.1, 0.3, 0.5, 1.0, 1.5, 2.0]),
    st.sampled_from(["", "a", "b", "x", "y", "z", "ab", "bcd", "abcde", "2026-01-01"]),
)  # fmt: skip
NAMES = st.sampled_from(["a", "b", "x", "y", "value", "next", "other"])
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.dictionaries(NAMES, VALUES, max_size=3) | st.fixed_dictionaries({"a": VALUES})


def holds(effect: Effect, was_valid: bool, is_valid: bool) -> bool:
    """Whether a call agrees with what is promised."""
    if effect is WIDENED:
        return is_valid or not was_valid
    if effect is NARROWED:
        return was_valid or not is_valid
    return effect is CHANGED or was_valid == is_valid


@pytest.mark.parametrize(("before", "after"), [pytest.param(*row[1:3], id=row[0]) for row in TABLE])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_generated_calls_agree_with_the_verdict(data: st.DataObject, before: Schema, after: Schema) -> None:
    effect = joint_effect(schema_changes(before, after, "parameters", closes=True))
    if effect is not CHANGED:
        old, new = accepts(before), accepts(after)
        for call in data.draw(st.lists(CALLS, min_size=10, max_size=40)):
            assert holds(effect, old(call), new(call))


PARTS: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        st.builds(dict, type=st.sampled_from(["integer", "number", "string", "null", "object", "array"])),
        st.builds(dict, type=st.just("integer"), minimum=st.integers(0, 3)),
        st.builds(dict, type=st.just("number"), exclusiveMaximum=st.integers(0, 3), multipleOf=st.sampled_from([1, 2, 0.5])),
        st.builds(dict, type=st.just("string"), maxLength=st.integers(0, 2), minLength=st.integers(0, 2)),
        st.builds(dict, enum=st.lists(ATOMS, min_size=1, max_size=3)),
        st.builds(dict, const=ATOMS),
        st.just({}),
        st.booleans(),
        st.builds(dict, type=st.just(["integer", "string"]), minimum=st.integers(0, 3), maxLength=st.integers(0, 2)),
        st.builds(dict, items=PARTS, maxItems=st.integers(0, 2)),
        st.builds(dict, prefixItems=st.lists(PARTS, min_size=1, max_size=2), items=PARTS),
        st.builds(lambda p, keywords: {"properties": p, **keywords}, st.dictionaries(NAMES, PARTS, max_size=3), OBJECT_KEYWORDS),
        st.builds(dict, anyOf=st.lists(PARTS, min_size=1, max_size=3)),
        st.builds(dict, oneOf=st.lists(PARTS, min_size=1, max_size=3)),
        st.builds(dict, allOf=st.lists(PARTS, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, PARTS),
        st.just({"$ref": "#/$defs/n"}),
        st.builds(lambda part: {"$ref": "#/$defs/n", **(part if isinstance(part, dict) else {})}, PARTS),
    )
)  # fmt: skip
OBJECT_KEYWORDS: st.SearchStrategy[Schema] = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("object"),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": PARTS,
        "maxProperties": st.integers(0, 2),
        "patternProperties": st.dictionaries(st.sampled_from(["^x", "a"]), PARTS, max_size=1),
    },
)
ROOTS = st.builds(
    lambda properties, keywords, node: {"type": "object", "properties": properties, **keywords, "$defs": {"n": node}},
    st.dictionaries(NAMES, PARTS, min_size=1, max_size=3), OBJECT_KEYWORDS, PARTS,
)  # fmt: skip


def mutated(data: st.DataObject, schema: Any) -> Any:
    """The schema with a part of it replaced, dropped or added."""
    if not isinstance(schema, dict) or not schema or data.draw(st.integers(0, 3)) == 0:
        return data.draw(PARTS)
    key = data.draw(st.sampled_from(sorted(schema)))
    value: Any = schema[key]
    if isinstance(value, dict) and key in ("properties", "patternProperties"):
        if data.draw(st.booleans()) and value:
            name = data.draw(st.sampled_from(sorted(value)))
            value = {**value, name: mutated(data, value[name])}
        else:
            value = data.draw(
                st.dictionaries(NAMES if key == "properties" else st.just("^x"), PARTS, max_size=2)
            )
    elif isinstance(value, dict):
        value = mutated(data, value)
    elif isinstance(value, list) and key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        value = [mutated(data, part) for part in value] if data.draw(st.booleans()) else value[:1]
    elif isinstance(value, int) and not isinstance(value, bool):
        value = max(value + data.draw(st.integers(-1, 1)), 1 if key == "multipleOf" else 0)
    elif data.draw(st.booleans()):
        return {k: v for k, v in schema.items() if k != key}
    return {**schema, key: value}


@pytest.mark.parametrize("closes", [True, False])
@settings(max_examples=100, deadline=None)
@given(data=st.data(), before=ROOTS)
def test_no_promise_about_a_random_change_is_broken(
    data: st.DataObject, before: Schema, *, closes: bool
) -> None:
    key = data.draw(st.sampled_from(["properties", "$defs", "additionalProperties", "required"]))
    after = dict(before)
    if key in ("properties", "$defs"):
        name = data.draw(st.sampled_from(sorted(before[key])))
        after[key] = {**before[key], name: mutated(data, before[key][name])}
    elif key == "required":
        after[key] = data.draw(st.lists(NAMES, max_size=2, unique=True))
    else:
        after[key] = data.draw(PARTS)
    made = [
        (compile_arguments if closes else compile_output)(
            schema, by_hand=False, limits=DEFAULT_LIMITS
        ).compiled
        for schema in (before, after)
    ]
    effect = joint_effect(schema_changes(before, after, "parameters", closes=closes))
    if made[0] is None or made[1] is None or effect is CHANGED:
        return
    for call in data.draw(st.lists(CALLS, min_size=5, max_size=25)):
        assert holds(effect, made[0].is_valid(call), made[1].is_valid(call)), (effect, call)


def test_no_promise_about_many_random_changes_is_broken() -> None:
    """The long form is `python -m tests.registry.soak`."""
    found = changing.run(10, changes=400)
    assert found.failures == []
    assert found.promises > 100
    assert found.calls > 1000


# --- hostile schemas -------------------------------------------------------------------------------


def test_a_fan_out_of_references_is_compared_in_steps_that_are_counted() -> None:
    def doubling(leaf: Schema) -> Schema:
        levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
        return {**taking({"$ref": "#/$defs/l0"}), "$defs": {**levels, "l40": leaf}}

    changes = schema_changes(doubling(INT), doubling({"type": "number"}), "parameters", closes=True)
    assert joint_effect(changes) in (WIDENED, CHANGED)


def test_a_very_deep_or_wide_change_is_told_as_one() -> None:
    def deep(leaf: Schema) -> Schema:
        schema = leaf
        for _ in range(150):
            schema = {"type": "array", "items": schema}
        return taking(schema)

    def wide(leaf: Schema) -> Schema:
        return objects({f"p{n}": dict(leaf) for n in range(500)})

    for make in (deep, wide):
        (change,) = schema_changes(make(INT), make(TEXT), "parameters", closes=True)
        assert (change.place, change.effect) == ("parameters", CHANGED)


def test_references_that_lead_in_circles_end() -> None:
    circle = {"$ref": "#/$defs/node"}
    assert schema_changes(shared(circle), shared({**circle, "minimum": 1}), "parameters", closes=True)


def test_an_output_schema_is_taken_as_written() -> None:
    """A silent object of an output is open: another property described there takes less than before."""
    before, after = objects({"a": INT}), objects({"a": INT, "b": INT})
    assert joint_effect(schema_changes(before, after, "output_schema", closes=False)) is NARROWED
