"""`ToolDefinition`: immutable, comparable, and exported as the vendors want it."""

import dataclasses
import hashlib
import importlib
from typing import Any

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep import Category, Danger, SideEffect, ToolDefinition, ToolParameter, Touches
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import HIGHER, Source
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.errors import DefinitionInvalid, SchemaRefused
from toolkeep.json_values.frozen import NotJson

READ_FILE = made(
    usage_metadata="Use it for text files.",
    parameters=with_properties(
        {
            "path": {"type": "string", "description": "The file.", "x-touches": "fs.read"},
            "host": {"type": "string", "x-touches": {"kind": "net.read", "form": "host"}},
            "token": {"type": "string", "x-secret": True, "default": "hunter2"},
        },
        required=["path"],
    ),
)


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ToolDefinition)])
def test_no_field_of_a_definition_can_change(field: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(READ_FILE, field, None)


@pytest.mark.spec("DEF-1")
def test_the_data_inside_a_definition_cannot_change() -> None:
    with pytest.raises(TypeError):
        READ_FILE.parameters["properties"]["path"]["type"] = "integer"  # type: ignore[index,call-overload]


@pytest.mark.spec("DEF-1")
def test_a_definition_keeps_its_own_copy_of_the_data() -> None:
    metadata: Any = {"owner": ["ada"]}
    definition = ToolDefinition(name="a", description="A.", metadata=metadata)
    metadata["owner"].append("bob")
    assert definition.metadata == {"owner": ["ada"]}


@pytest.mark.spec("DEF-1", "DEF-3", "DEF-4", "DEF-8")
def test_a_definition_with_nothing_stated_has_the_defaults() -> None:
    definition = ToolDefinition(name="a", description="A.")
    assert definition.version == "1.0.0"
    assert definition.category is Category.GENERAL
    assert definition.danger_level is Danger.MEDIUM
    assert definition.side_effects is None
    assert definition.determinism is None
    assert definition.enabled is True
    assert definition.parameters == {"type": "object", "properties": {}}
    assert definition.source.is_by_hand


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize("field", ["parameters", "output_schema", "metadata"])
def test_what_is_not_json_never_enters_a_definition(field: str) -> None:
    with pytest.raises(NotJson) as caught:
        READ_FILE.replace(**{field: {"a": {1, 2}}})
    assert caught.value.path == f"{field}/a"


@pytest.mark.spec("DEF-1")
def test_replacing_a_field_gives_another_definition_with_another_hash() -> None:
    changed = READ_FILE.replace(description="Read it.")
    assert changed.description == "Read it."
    assert READ_FILE.description == "Read a file."
    assert changed != READ_FILE
    assert changed.hash != READ_FILE.hash


@pytest.mark.spec("DEF-1")
def test_equal_definitions_have_equal_hashes_and_work_as_keys() -> None:
    again = ToolDefinition.from_dict(READ_FILE.to_dict())
    assert again == READ_FILE
    assert again.hash == READ_FILE.hash
    assert {READ_FILE: 1}[again] == 1


def test_the_hash_is_taken_over_canonical_json_without_defaults() -> None:
    canonical = (
        b'{"category":"general","description":"A.","name":"a",'
        b'"parameters":{"properties":{},"type":"object"},"version":"1.0.0"}'
    )
    assert ToolDefinition(name="a", description="A.").hash == hashlib.sha256(canonical).hexdigest()


@pytest.mark.spec("DEF-1")
def test_touches_and_secrets_are_found_by_parameter() -> None:
    assert READ_FILE.touches == {
        "path": Touches("fs.read", TouchForm.PATH),
        "host": Touches("net.read", TouchForm.HOST),
    }
    assert READ_FILE.secret_parameters == ("token",)


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize(
    ("effects", "writes"),
    [
        (None, False),
        ((), False),
        ((SideEffect.NONE,), False),
        ((SideEffect.FS_READ, SideEffect.NET_READ, SideEffect.DB_READ), False),
        ((SideEffect.FS_READ, SideEffect.FS_WRITE), True),
        ((SideEffect.NET_WRITE,), True),
        ((SideEffect.DB_WRITE,), True),
        ((SideEffect.PROCESS_SPAWN,), True),
    ],
)
def test_write_effects_are_the_three_writes_and_spawning(
    effects: tuple[SideEffect, ...] | None, writes: bool
) -> None:
    needed = tuple(Capability.read(e.capability) for e in effects or () if e.capability)
    definition = READ_FILE.replace(side_effects=effects, capabilities=needed, danger=Danger.LOW)
    assert definition.has_write_effects is writes


SHOWN_PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The file."},
        "host": {"type": "string"},
        "token": {"type": "string"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.spec("DEF-9", "VAL-6")
def test_claude_gets_name_description_with_usage_and_schema() -> None:
    assert READ_FILE.to_claude_format() == {
        "name": "read_file",
        "description": "Read a file.\n\nUse it for text files.",
        "input_schema": SHOWN_PARAMETERS,
    }


@pytest.mark.spec("DEF-9", "VAL-6")
def test_openai_gets_a_function() -> None:
    assert READ_FILE.to_openai_format() == {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.\n\nUse it for text files.",
            "parameters": SHOWN_PARAMETERS,
        },
    }


@pytest.mark.spec("DEF-9", "VAL-6")
def test_gemini_gets_a_function_declaration_with_json_schema() -> None:
    assert READ_FILE.to_gemini_format() == {
        "name": "read_file",
        "description": "Read a file.\n\nUse it for text files.",
        "parametersJsonSchema": SHOWN_PARAMETERS,
    }


def test_an_export_can_be_changed_without_touching_the_definition() -> None:
    exported = READ_FILE.to_claude_format()
    exported["input_schema"]["properties"].clear()
    assert list(READ_FILE.properties) == ["path", "host", "token"]


def test_a_description_without_usage_stands_alone() -> None:
    assert made().full_description == "Read a file."


def test_only_what_is_written_here_is_by_hand() -> None:
    assert [Source(kind=kind).is_by_hand for kind in ("hand", "mcp", "openapi", "import")] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("home", HIGHER.values())
def test_each_method_that_is_implemented_in_a_higher_module_finds_it(home: str) -> None:
    module, _, name = home.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.spec("DEF-2", "DEF-12")
def test_the_constructor_refuses_what_breaks_a_rule() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        ToolDefinition(name="", description=" ")
    assert [problem.field for problem in caught.value.problems] == ["name", "description"]
    with pytest.raises(DefinitionInvalid):
        READ_FILE.replace(version="one")


@pytest.mark.spec("DEF-2")
def test_data_that_breaks_a_rule_makes_no_definition() -> None:
    with pytest.raises(DefinitionInvalid):
        ToolDefinition.from_dict({"name": "", "description": "Read a file."})


@pytest.mark.spec("DEF-12")
def test_validating_checks_the_schemas_too() -> None:
    READ_FILE.validate()
    with pytest.raises(SchemaRefused):
        READ_FILE.replace(parameters=with_properties({"path": {}})).validate()
    with pytest.raises(DefinitionInvalid):
        definition_from_dict({"name": "run", "description": "Run it."}).validate()


@pytest.mark.spec("DEF-9")
def test_parameters_are_added_one_by_one_as_the_builder_adds_them() -> None:
    path, depth = ToolParameter.string("path", "The folder."), ToolParameter.integer("depth", "How deep.")
    plain = ToolDefinition(name="look", description="Look into a folder.")
    built = ToolDefinition.builder("look").description("Look into a folder.")
    built = built.required_string("path", "The folder.").optional_int("depth", "How deep.")
    assert plain.with_required_param(path).with_optional_param(depth) == built.build()
    both = plain.with_required_param(depth).with_required_param(path)
    assert both.parameters["required"] == ["depth", "path"]
    assert "required" not in plain.with_required_param(path).with_optional_param(path).parameters
