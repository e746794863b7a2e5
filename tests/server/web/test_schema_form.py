"""Forms from schemas, and arguments from forms."""

from typing import Any

import pytest

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.server.web.schema_form import collect, fields_of, fits, nearest, typed_values
from toolkeep.server.web.web_request import Form

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["title"],
    "properties": {
        "title": {"type": "string", "description": "The title."},
        "copies": {"type": "integer", "minimum": 1},
        "used": {"type": "boolean", "default": False},
        "mode": {"enum": ["fast", 2]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "to": {"type": "object", "properties": {"a/b": {"type": "string"}, "c": {"type": "number"}}},
        "key": {"type": "string", "writeOnly": True},
    },
}
FIELDS = fields_of(SCHEMA, SCHEMA)


def form(**typed: str) -> Form:
    return Form([(f"at:{pointer}", text) for pointer, text in typed.items()])


@pytest.mark.spec("WEB-2")
def test_each_place_of_the_arguments_has_a_field_of_its_kind() -> None:
    assert [(one.pointer, one.kind, one.group) for one in FIELDS] == [
        ("/title", "text", ""),
        ("/copies", "number", ""),
        ("/used", "flag", ""),
        ("/mode", "choice", ""),
        ("/tags", "json", ""),
        ("/to/a~1b", "text", "to."),
        ("/to/c", "number", "to."),
        ("/key", "secret", ""),
    ]
    assert [one.name for one in FIELDS if one.is_required] == ["title"]


def test_a_form_becomes_arguments_and_what_is_empty_is_left_out() -> None:
    typed = {
        "/title": "Dune", "/copies": "3", "/used": "true", "/mode": "2", "/tags": '["a"]', "/to/a~1b": "x",
        "/to/c": "", "/key": "k",
    }  # fmt: skip
    assert collect(FIELDS, form(**typed)).arguments == {
        "title": "Dune",
        "copies": 3,
        "used": True,
        "mode": 2,
        "tags": ["a"],
        "to": {"a/b": "x"},
        "key": "k",
    }


@pytest.mark.parametrize("typed", ["3 kg", "0x3", "1_000", "NaN", "Infinity", "１", "01", "+3"])
def test_what_is_no_number_is_sent_as_the_text_that_it_is(typed: str) -> None:
    assert collect(FIELDS, form(**{"/copies": typed})).arguments == {"copies": typed}


@pytest.mark.parametrize("typed", ["[", "nonsense", '{"a": 1, "a": 2}', "NaN"])
def test_what_is_no_strict_json_is_an_error_at_its_field(typed: str) -> None:
    collected = collect(FIELDS, form(**{"/tags": typed}))
    assert (collected.arguments, list(collected.errors)) == ({}, ["/tags"])


def test_what_refers_to_a_secret_is_not_given_back_either() -> None:
    login = {"type": "object", "properties": {"password": {"type": "string", "x-secret": True}}}
    schema = {
        "type": "object",
        "properties": {"login": {"$ref": "#/$defs/login"}, "name": {"type": "string"}},
        "$defs": {"login": login},
    }
    fields = fields_of(schema, public_schema(schema))
    collected = collect(fields, form(**{"/login": '{"password": "hunter2"}', "/name": "ada"}))
    assert collected.arguments == {"login": {"password": "hunter2"}, "name": "ada"}
    assert collected.values == typed_values(fields, collected.arguments) == {"/name": "ada"}


def test_a_secret_is_taken_and_not_given_back() -> None:
    collected = collect(FIELDS, form(**{"/key": "k", "/title": "Dune"}))
    assert collected.arguments["key"] == "k"
    assert "/key" not in collected.values
    assert "/key" not in typed_values(FIELDS, collected.arguments)


def test_arguments_are_shown_as_somebody_would_have_typed_them() -> None:
    arguments = {"title": "Dune", "copies": 3, "used": True, "mode": "fast", "tags": ["a"], "to": {"c": 1.5}}
    typed = typed_values(FIELDS, arguments)
    assert collect(FIELDS, form(**typed)).arguments == arguments
    assert fits(FIELDS, arguments)
    assert not fits(FIELDS, {**arguments, "unknown": 1})


@pytest.mark.parametrize(
    ("pointer", "found"),
    [("/tags/0", "/tags"), ("/tags", "/tags"), ("/tagsx", None), ("", None), ("/to/c", "/to/c")],
)
def test_an_error_is_shown_at_the_field_around_its_place(pointer: str, found: str | None) -> None:
    field = nearest(FIELDS, pointer)
    assert (field and field.pointer) == found
