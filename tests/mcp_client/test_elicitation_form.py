"""Forms of hostile servers, and answers to them."""

from typing import Any

import pytest

from toolkeep.mcp_client.elicitation_form import FormRefused, read_form

pytestmark = pytest.mark.spec("MCP-2")


def form(required: tuple[str, ...] = (), /, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


TEXT = {"type": "string"}
SUGGESTED = form(
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
    tags={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["b"]},
)
ALL = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True, "tags": ["b"]}


@pytest.mark.parametrize(("given", "more"), [({}, {}), ({"age": 7, "tags": []}, {"age": 7, "tags": []})])
def test_what_is_left_out_is_filled_in_as_the_form_suggests(
    given: dict[str, Any], more: dict[str, Any]
) -> None:
    assert read_form(SUGGESTED).filled(given) == {**ALL, **more}


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "minLength": 1, "maxLength": 5, "title": "A", "description": "B"},
        {"type": "string", "enum": ["a"], "enumNames": ["An a"]},
        {"type": "string", "oneOf": [{"const": "a", "title": "An a"}]},
        {"type": "string", "format": "email"},
        {"type": "array", "items": {"type": "string", "anyOf": [{"const": "a", "title": "An a"}]}, "minItems": 1},
        {"type": "integer", "minimum": 1, "maximum": 5.5},
    ],
)  # fmt: skip
def test_every_kind_of_field_that_mcp_knows_is_shown_as_it_is(field: dict[str, Any]) -> None:
    assert read_form(form(x=field)).schema == form(x=field)


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {"properties": {}},
        {"type": "object"},
        {"type": "object", "properties": [TEXT]},
        {**form(), "$ref": "https://elsewhere.example"},
        {**form(), "additionalProperties": True},
        {**form(), "required": ["x"]},
        {**form(), "required": [{}]},
        {**form(), "title": "x" * 70_000},
        form(x=TEXT, **{f"f{n}": TEXT for n in range(50)}),
        form(x={"type": "object", "properties": {}}),
        form(x={"type": "null"}),
        form(x={"type": ["string", "null"]}),
        form(x="string"),
        form(x={**TEXT, "pattern": "(a+)+$"}),
        form(x={**TEXT, "format": "regex"}),
        form(x={**TEXT, "$ref": "#"}),
        form(x={**TEXT, "enum": []}),
        form(x={**TEXT, "enum": [1]}),
        form(x={**TEXT, "enum": ["a"] * 201}),
        form(x={**TEXT, "enum": ["a\u200b"]}),
        form(x={**TEXT, "oneOf": [{"const": "a", "title": "A", "type": "object"}]}),
        form(x={**TEXT, "oneOf": [{"const": "\u202ea", "title": "A"}]}),
        form(x={**TEXT, "minLength": -1}),
        form(x={**TEXT, "minLength": True}),
        form(x={**TEXT, "minLength": 10**16}),
        form(x={**TEXT, "title": 3}),
        form(x={**TEXT, "default": {"a": 1}}),
        form(x={**TEXT, "default": None}),
        form(x={**TEXT, "default": "pay\u200b"}),
        form(x={"type": "number", "minimum": "0"}),
        form(x={"type": "number", "maximum": 10**300}),
        form(x={"type": "array"}),
        form(x={"type": "array", "items": {"type": "object"}}),
        form(x={"type": "array", "items": {"type": "object", "enum": ["a"]}}),
        form(x={"type": "array", "items": {"type": "string"}}),
        form(x={"type": "array", "items": {"type": "array", "items": TEXT}}),
        form(**{"x\u202e": TEXT}),
        form(**{"x" * 101: TEXT}),
        form(**{"": TEXT}),
    ],
)
def test_a_form_that_is_nested_huge_unknown_or_hides_something_is_refused(said: object) -> None:
    with pytest.raises(FormRefused):
        read_form(said)


@pytest.mark.parametrize(
    "given",
    [
        {},
        "eve",
        {"x": 3},
        {"x": None},
        {"x": "abcdef"},
        {"x": "ab", "y": "more"},
        {"x": "ab", "age": float("nan")},
        {"x": "ab", "age": 3.5},
        {"x": "ab", "mail": "nobody"},
        {"x": "ab", "kind": "c"},
        {"x": object()},
        {3: "ab", "x": "ab"},
        {"x": "ab", "long": "x" * 70_000},
    ],
)
def test_an_answer_that_does_not_fit_is_not_sent_and_not_told(given: Any) -> None:
    asked = read_form(
        form(
            ("x",),
            x={**TEXT, "minLength": 1, "maxLength": 5},
            age={"type": "integer"},
            mail={**TEXT, "format": "email"},
            kind={**TEXT, "enum": ["a", "b"]},
            long=TEXT,
        )
    )
    with pytest.raises(FormRefused) as refused:
        asked.filled(given)
    assert not any(word in str(refused.value) for word in ("abcdef", "nobody"))


def test_a_suggestion_that_does_not_fit_its_own_form_is_not_sent() -> None:
    with pytest.raises(FormRefused):
        read_form(form(x={**TEXT, "maxLength": 1, "default": "long"})).filled({})


def test_words_of_a_form_come_cleaned_and_cut() -> None:
    shown = read_form(form(x={**TEXT, "title": "a\x1b[31m", "description": "\u202e" + "x" * 900})).schema
    assert shown["properties"]["x"]["title"] == "a\\u001b[31m"
    assert shown["properties"]["x"]["description"].startswith("\\u202e")
    assert len(shown["properties"]["x"]["description"]) == 500
