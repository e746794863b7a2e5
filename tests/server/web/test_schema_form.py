"""Forms from schemas, and arguments from forms."""

from typing import Any

import pytest

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.server.web.schema_form import (
    collect,
    every_field,
    example_of,
    fields_of,
    fits,
    is_moment,
    nearest,
    rows_of,
    typed_values,
)
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
        "raw": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "key": {"type": "string", "writeOnly": True},
    },
}
FIELDS = fields_of(SCHEMA, SCHEMA)


def form(**typed: str) -> Form:
    return Form([(f"at:{pointer}", text) for pointer, text in typed.items()])


@pytest.mark.spec("WEB-2")
def test_each_place_of_the_arguments_has_a_field_of_its_kind() -> None:
    assert [(one.pointer, one.kind, one.group) for one in every_field(FIELDS)] == [
        ("/title", "text", ""),
        ("/copies", "number", ""),
        ("/used", "flag", ""),
        ("/mode", "choice", ""),
        ("/tags", "rows", ""),
        ("/to/a~1b", "text", "to."),
        ("/to/c", "number", "to."),
        ("/raw", "json", ""),
        ("/key", "secret", ""),
    ]
    assert [one.name for one in FIELDS if one.is_required] == ["title"]


def test_a_form_becomes_arguments_and_what_is_empty_is_left_out() -> None:
    typed = {
        "/title": "Dune", "/copies": "3", "/used": "true", "/mode": "2", "/tags/0": "a", "/to/a~1b": "x",
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
    collected = collect(FIELDS, form(**{"/raw": typed}))
    assert (collected.arguments, list(collected.errors)) == ({}, ["/raw"])


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
    [
        ("/raw/0", "/raw"),
        ("/tags/0", "/tags/0"),
        ("/tags", "/tags"),
        ("/tagsx", None),
        ("", None),
        ("/to/c", "/to/c"),
    ],
)
def test_an_error_is_shown_at_the_field_around_its_place(pointer: str, found: str | None) -> None:
    field = nearest(FIELDS, pointer)
    assert (field and field.pointer) == found


RICH: dict[str, Any] = {
    "type": "object",
    "required": ["who", "note", "when"],
    "properties": {
        "who": {"$ref": "#/$defs/person"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": ["string", "null"], "format": "date"},
        "size": {"anyOf": [{"$ref": "#/$defs/size"}, {"type": "null"}], "default": None},
        "colors": {"type": "array", "items": {"enum": ["red", "blue"]}},
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
        "extra": {"type": "object"},
        "id": {"type": ["integer", "string"]},
        "base": {"allOf": [{"$ref": "#/$defs/person"}]},
    },
    "$defs": {
        "size": {"enum": ["s", "m"]},
        "person": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "examples": ["Ada"]},
                "mails": {"type": "array", "items": {"type": "string"}},
                "parent": {"$ref": "#/$defs/person"},
            },
        },
    },
}


@pytest.mark.spec("WEB-2")
def test_references_unions_with_null_rows_and_pairs_have_fields() -> None:
    fields = fields_of(RICH, public_schema(RICH))
    kinds = {one.name: one.kind for one in fields}
    assert kinds == {
        "who": "group", "note": "text", "when": "moment", "day": "date", "size": "choice", "colors": "many",
        "people": "rows", "labels": "pairs", "extra": "pairs", "id": "any", "base": "group",
    }  # fmt: skip
    pairs = [
        ("at:/who/name", "Ada"), ("at:/who/mails/0", ""), ("at:/who/mails/7", "a@x.org"), ("at:/note", ""),
        ("at:/when", "2026-01-31T12:00:00Z"), ("at:/day", "2026-01-31"), ("at:/size", '"m"'),
        ("at:/colors", '"red"'), ("at:/colors", '"blue"'),
        ("at:/people/2/name", "Bo"), ("at:/people/2/mails/1", "b@x.org"), ("at:/people/1/name", ""),
        ("key:/labels/3", "a"), ("at:/labels/3", "3"), ("key:/extra/0", "b"), ("at:/extra/0", "[1]"),
        ("key:/extra/1", "c"), ("at:/extra/1", "plain"), ("at:/id", "7"),
    ]  # fmt: skip
    arguments = {
        "who": {"name": "Ada", "mails": ["a@x.org"]},
        "note": None,
        "when": "2026-01-31T12:00:00Z",
        "day": "2026-01-31",
        "size": "m",
        "colors": ["red", "blue"],
        "people": [{"name": "Bo", "mails": ["b@x.org"]}],
        "labels": {"a": 3},
        "extra": {"b": [1], "c": "plain"},
        "id": 7,
    }
    collected = collect(fields, Form(pairs))
    assert (collected.arguments, collected.errors) == (arguments, {})
    # Shown again, rows have the places that errors name.
    (row,) = rows_of(fields[6], collected.values)
    assert nearest(fields, "/people/0/mails/0") == row.fields[1].row(0)
    assert collected.values["/people/0/mails/0"] == "b@x.org"
    assert fits(fields, {**arguments, "note": "n"})
    assert not fits(fields, {**arguments, "extra": {"c": "7"}, "note": ""})


def test_the_deepest_reference_and_the_widest_form_end() -> None:
    deepest = list(every_field(fields_of(RICH, RICH)))
    assert len(deepest) < 110
    assert any(one.kind == "json" and one.pointer.count("/parent") > 2 for one in deepest)
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)}}
    assert len(fields_of(wide, wide)) < 101


def test_an_example_is_filled_in_where_something_is_required_or_given() -> None:
    assert example_of(RICH) == {"who": {"name": "Ada"}, "note": "note", "when": "2026-01-31T12:00:00Z"}
    sized = {**RICH, "required": ["size", "colors", "labels"]}
    assert example_of(sized) == {"size": "s", "colors": ["red"], "labels": {}}


@pytest.mark.parametrize(
    ("typed", "is_one"),
    [
        ("2026-01-31T12:00:00Z", True),
        ("2026-01-31T12:00:00.25+05:30", True),
        ("2026-01-31T12:00:00", False),
        ("2026-02-30T12:00:00Z", False),
        ("2026-01-31T12:00:00+99:00", False),
        ("２026-01-31T12:00:00Z", False),
        ("tomorrow", False),
    ],
)
def test_a_moment_has_its_offset_and_what_has_none_stays_as_it_was_typed(typed: str, is_one: bool) -> None:
    assert is_moment(typed) is is_one
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    collected = collect(fields_of(schema, schema), form(**{"/at": typed}))
    assert (collected.arguments, collected.values) == ({"at": typed}, {"/at": typed})
