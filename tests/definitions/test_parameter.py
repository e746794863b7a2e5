"""Parameters as an author writes them, and the schemas that they become."""

import re
from typing import Any

import pytest

from tests.definitions.examples import made
from toolkeep import ToolParameter, Touches
from toolkeep.definitions.parameter import parameters_schema
from toolkeep.definitions.parameter_marks import TOUCH_FORMS, is_secret
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.json_values.frozen import NotJson

TYPES = "string, integer, number, boolean, array, object, one_of"
KEYS = "name, description, type, required, default, enum, schema"


@pytest.mark.spec("DEF-9")
@pytest.mark.parametrize(
    ("parameter", "schema"),
    [
        (ToolParameter.string("p", "Text."), {"type": "string", "description": "Text."}),
        (ToolParameter.integer("p", "Whole."), {"type": "integer", "description": "Whole."}),
        (ToolParameter.number("p", "Any."), {"type": "number", "description": "Any."}),
        (ToolParameter.boolean("p", "Flag."), {"type": "boolean", "description": "Flag."}),
        (
            ToolParameter.string("p", "Text.", maxLength=5, pattern="^a$"),
            {"type": "string", "description": "Text.", "maxLength": 5, "pattern": "^a$"},
        ),
        (
            ToolParameter.array("p", "List.", ToolParameter.integer("item", "One.")),
            {"type": "array", "description": "List.", "items": {"type": "integer", "description": "One."}},
        ),
        (
            ToolParameter.array("p", "List.", {"type": "string"}),
            {"type": "array", "description": "List.", "items": {"type": "string"}},
        ),
        (
            ToolParameter.object("p", "Thing.", [ToolParameter.string("a", "A.")]),
            {
                "type": "object",
                "description": "Thing.",
                "properties": {"a": {"type": "string", "description": "A."}},
            },
        ),
        (
            ToolParameter.object("p", "Thing.", {"type": "object", "additionalProperties": True}),
            {"type": "object", "description": "Thing.", "additionalProperties": True},
        ),
        (
            ToolParameter.one_of("p", "Either.", [ToolParameter.string("", ""), {"type": "integer"}]),
            {"description": "Either.", "anyOf": [{"type": "string"}, {"type": "integer"}]},
        ),
        (
            ToolParameter.string_enum("p", "Mode.", ["fast", "safe"]),
            {"type": "string", "description": "Mode.", "enum": ["fast", "safe"]},
        ),
        (
            ToolParameter.integer("p", "Lines.").with_range(1, 10).with_default(3),
            {"type": "integer", "description": "Lines.", "minimum": 1, "maximum": 10, "default": 3},
        ),
        (
            ToolParameter.string("p", "Text.").with_default(None),
            {"type": "string", "description": "Text.", "default": None},
        ),
        (
            ToolParameter.string("p", "Path.").with_schema(**{"x-touches": "fs.read"}),
            {"type": "string", "description": "Path.", "x-touches": "fs.read"},
        ),
    ],
)
def test_each_maker_gives_its_json_schema(parameter: ToolParameter, schema: dict[str, Any]) -> None:
    assert parameter.to_json_schema() == schema


@pytest.mark.spec("DEF-1")
def test_changing_a_parameter_makes_another_one() -> None:
    plain = ToolParameter.integer("p", "Lines.")
    assert plain.with_range(1, 10) != plain
    assert plain.to_json_schema() == {"type": "integer", "description": "Lines."}


@pytest.mark.spec("DEF-5")
def test_parameters_become_an_object_schema_in_their_order() -> None:
    listed = [
        ToolParameter(name="zeta", description="Z.", type=ToolParameter.string("", "").type, required=True),
        ToolParameter.boolean("alpha", "A."),
    ]
    schema = parameters_schema(listed)
    assert schema == {
        "type": "object",
        "properties": {
            "zeta": {"type": "string", "description": "Z."},
            "alpha": {"type": "boolean", "description": "A."},
        },
        "required": ["zeta"],
    }
    assert list(schema["properties"]) == ["zeta", "alpha"]  # type: ignore[arg-type]


@pytest.mark.spec("DEF-5")
def test_parameters_have_unique_names() -> None:
    with pytest.raises(ValueError, match="'a' is defined twice"):
        parameters_schema([ToolParameter.string("a", "A."), ToolParameter.integer("a", "B.")])


@pytest.mark.spec("DEF-5", "DEF-9")
def test_the_list_form_and_the_makers_agree() -> None:
    data = {
        "name": "lines",
        "description": "How many.",
        "type": "integer",
        "default": 3,
        "schema": {"minimum": 1, "maximum": 10},
    }
    maker = ToolParameter.integer("lines", "How many.").with_range(1, 10).with_default(3)
    assert ToolParameter.from_dict(data).to_json_schema() == maker.to_json_schema()


def test_the_list_form_is_read_in_pascal_case_too() -> None:
    data = {"Name": "mode", "Description": "How.", "Type": "String", "Required": True, "Enum": ["a"]}
    parameter = ToolParameter.from_dict(data)
    assert (parameter.name, parameter.required) == ("mode", True)
    assert parameter.to_json_schema() == {"type": "string", "description": "How.", "enum": ["a"]}


@pytest.mark.parametrize("absent", ["description", "required", "default", "enum", "schema"])
def test_null_in_the_list_form_stands_for_absent(absent: str) -> None:
    parameter = ToolParameter.from_dict({"name": "p", "type": "string", absent: None})
    assert parameter == ToolParameter.from_dict({"name": "p", "type": "string"})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"name": 5}, "name of a parameter cannot be int"),
        ({"description": 5}, "description of a parameter cannot be int"),
        ({"required": "false"}, "required of a parameter cannot be str"),
        ({"required": 1}, "required of a parameter cannot be int"),
        ({"enum": "abc"}, "enum of a parameter cannot be str"),
        ({"enum": {"a": 1}}, "enum of a parameter cannot be dict"),
        ({"schema": []}, "schema of a parameter cannot be list"),
        ({"schema": {"type": "integer"}}, "the schema of 'p' names another type than string"),
        ({"type": "text"}, f"'text' is not one of {TYPES}"),
        ({"type": None}, f"'' is not one of {TYPES}"),
        ({"kind": "string"}, f"unknown key 'kind'; a parameter has {KEYS}"),
        ({1: 2}, f"unknown key '1'; a parameter has {KEYS}"),
    ],
)
def test_the_list_form_coerces_nothing(wrong: dict[Any, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        ToolParameter.from_dict({"name": "p", "type": "string", **wrong})


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"default": object()}, "/default"),
        ({"enum": ["a", object()]}, "/enum/1"),
        ({"schema": {"items": object()}}, "/schema/items"),
    ],
)
def test_what_is_not_json_in_the_list_form_is_refused_with_its_place(
    wrong: dict[str, Any], path: str
) -> None:
    with pytest.raises(NotJson) as caught:
        ToolParameter.from_dict({"name": "p", "type": "string", **wrong})
    assert caught.value.path == path


@pytest.mark.spec("DEF-1")
def test_each_kind_of_touch_has_its_usual_form() -> None:
    assert {kind: Touches(kind).form for kind in TOUCH_FORMS} == {
        "fs.read": TouchForm.PATH,
        "fs.write": TouchForm.PATH,
        "net.read": TouchForm.URL,
        "net.write": TouchForm.URL,
        "db.read": TouchForm.DATABASE,
        "db.write": TouchForm.DATABASE,
        "process.spawn": TouchForm.ARGV,
    }


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize(
    ("data", "touches"),
    [
        ("fs.read", Touches("fs.read")),
        ({"kind": "fs.read"}, Touches("fs.read")),
        ({"kind": "net.read", "form": "host"}, Touches("net.read", TouchForm.HOST)),
    ],
)
def test_touches_are_read_from_data(data: object, touches: Touches) -> None:
    assert Touches.read(data) == touches
    assert Touches.read(touches.to_json()) == touches


@pytest.mark.parametrize(
    "data",
    ["fs.delete", "", 5, None, {}, {"form": "path"}, {"kind": 5}, {"kind": "fs.read", "form": "hose"},
     {"kind": "fs.read", "more": 1}],
)  # fmt: skip
def test_touches_of_no_known_kind_or_form_are_refused(data: object) -> None:
    with pytest.raises(ValueError, match=r"fs\.read|path, url, host, argv, database"):
        Touches.read(data)


@pytest.mark.spec("DEF-1")
def test_a_touch_with_another_form_says_so_in_data() -> None:
    assert Touches("net.read", TouchForm.HOST).to_json() == {"kind": "net.read", "form": "host"}
    assert Touches("net.read", TouchForm.URL).to_json() == "net.read"


@pytest.mark.spec("VAL-6")
@pytest.mark.parametrize("mark", [{"x-secret": True}, {"writeOnly": True}, {"format": "password"}])
def test_a_parameter_is_secret_in_three_ways(mark: dict[str, Any]) -> None:
    assert is_secret({"type": "string", **mark})
    definition = made(parameters={"type": "object", "properties": {"key": {"type": "string", **mark}}})
    assert definition.secret_parameters == ("key",)


@pytest.mark.spec("VAL-6")
@pytest.mark.parametrize("mark", [{}, {"x-secret": False}, {"writeOnly": "true"}, {"format": "email"}])
def test_other_parameters_are_not_secret(mark: dict[str, Any]) -> None:
    assert not is_secret({"type": "string", **mark})


@pytest.mark.spec("DEF-1")
def test_a_mark_says_whether_it_alone_names_its_kind() -> None:
    assert Touches("fs.write", only=True).to_json() == {"kind": "fs.write", "only": True}
    assert Touches.read({"kind": "fs.write", "only": True}) == Touches("fs.write", only=True)
    assert Touches("net.read", TouchForm.HOST, only=True).to_json() == {
        "kind": "net.read",
        "form": "host",
        "only": True,
    }
    with pytest.raises(ValueError, match="an object with kind, form and only"):
        Touches.read({"kind": "fs.write", "only": 1})
