"""The fluent builder."""

import pytest

from tests.definitions.examples import fields_of
from toolkeep import Danger, ToolDefinition, ToolParameter
from toolkeep.definitions.builder import ToolDefinitionBuilder
from toolkeep.errors import DefinitionInvalid

pytestmark = pytest.mark.spec("DEF-9")


def builder() -> ToolDefinitionBuilder:
    return ToolDefinition.builder("read_file").description("Read a file.")


def test_required_and_optional_parameters_of_each_plain_type() -> None:
    definition = (
        builder()
        .required_string("a", "A.")
        .required_int("b", "B.")
        .required_number("c", "C.")
        .required_bool("d", "D.")
        .optional_string("e", "E.")
        .optional_int("f", "F.")
        .optional_number("g", "G.")
        .optional_bool("h", "H.")
        .build()
    )
    assert definition.to_dict()["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "A."},
            "b": {"type": "integer", "description": "B."},
            "c": {"type": "number", "description": "C."},
            "d": {"type": "boolean", "description": "D."},
            "e": {"type": "string", "description": "E."},
            "f": {"type": "integer", "description": "F."},
            "g": {"type": "number", "description": "G."},
            "h": {"type": "boolean", "description": "H."},
        },
        "required": ["a", "b", "c", "d"],
    }
    assert list(definition.properties) == list("abcdefgh")


def test_any_other_parameter_comes_from_a_maker() -> None:
    mode = ToolParameter.string_enum("mode", "How.", ["fast", "safe"])
    definition = (
        builder().param(mode, required=True).param(ToolParameter.integer("n", "N.").with_default(1)).build()
    )
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "mode": {"type": "string", "description": "How.", "enum": ["fast", "safe"]},
            "n": {"type": "integer", "description": "N.", "default": 1},
        },
        "required": ["mode"],
    }
    assert mode.required is False


def test_the_builder_sets_every_other_field() -> None:
    definition = (
        builder()
        .enabled(False)
        .danger_level("high")
        .set(metadata={"team": "files"})
        .metadata("owner", "ada")
        .metadata("tags", ["a"])
        .set(capabilities=["fs.read:./docs"], side_effects=["FsRead"], version="2.0.0")
        .build()
    )
    assert definition == ToolDefinition.from_dict(
        {
            "name": "read_file",
            "description": "Read a file.",
            "version": "2.0.0",
            "enabled": False,
            "danger": "high",
            "metadata": {"team": "files", "owner": "ada", "tags": ["a"]},
            "capabilities": ["fs.read:./docs"],
            "side_effects": ["FsRead"],
        }
    )


def test_danger_may_be_the_word_or_the_member() -> None:
    assert builder().danger_level(Danger.LOW).build() == builder().danger_level("Low").build()


@pytest.mark.spec("DEF-3")
def test_the_version_defaults_to_1_0_0() -> None:
    assert builder().build().version == "1.0.0"


@pytest.mark.parametrize("field", ["colour", "parameters", "dangerous"])
def test_a_field_that_cannot_be_set_is_refused_at_once(field: str) -> None:
    with pytest.raises(TypeError, match=f"'{field}' cannot be set; fields are name, description"):
        builder().set(**{field: {}})


@pytest.mark.spec("DEF-5")
@pytest.mark.parametrize("description", ["", "  "])
def test_each_parameter_needs_a_description(description: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        builder().required_string("a", description).optional_int("b", "B.").build()
    assert fields_of(caught.value.problems) == ["parameters/properties/a"]


@pytest.mark.spec("DEF-5")
def test_each_parameter_needs_its_own_name() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        builder().required_string("a", "A.").optional_int("a", "B.").build()
    assert [(p.field, p.message) for p in caught.value.problems] == [
        ("parameters/properties/a", "is defined twice")
    ]


@pytest.mark.spec("DEF-12")
def test_everything_that_is_wrong_comes_at_once() -> None:
    wrong = (
        ToolDefinition.builder("Read File")
        .danger_level("deadly")
        .set(version="1")
        .required_string("a", "")
        .required_string("b", "B.")
        .required_string("b", "B.")
    )
    with pytest.raises(DefinitionInvalid) as caught:
        wrong.build()
    assert fields_of(caught.value.problems) == [
        "danger",
        "name",
        "description",
        "version",
        "parameters/properties/a",
        "parameters/properties/b",
    ]


@pytest.mark.spec("DEF-1")
def test_building_on_does_not_change_what_was_built() -> None:
    start = builder().required_string("a", "A.")
    first = start.build()
    second = start.metadata("more", 1).optional_bool("b", "B.").build()
    assert list(first.properties) == ["a"]
    assert first.metadata == {}
    assert list(second.properties) == ["a", "b"]
