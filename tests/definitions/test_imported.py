"""Definitions from other systems: trusted with nothing, kept as they are."""

from typing import Any

import pytest
from hypothesis import given

from tests.definitions.examples import TEXT, with_properties
from toolkeep import Code, Danger, ToolDefinition
from toolkeep.definitions.tool import Source
from toolkeep.definitions.tool_names import PORTABLE_NAME
from toolkeep.errors import DefinitionInvalid, Problem

SCHEMA = with_properties({"Path": {}}, required=["Path"])


def test_a_tool_of_an_mcp_server_is_taken_over() -> None:
    data = {
        "name": "readFile",
        "description": "Reads.",
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object"},
    }
    assert ToolDefinition.from_elsewhere(data, kind="mcp", origin="files") == ToolDefinition(
        name="readFile",
        description="Reads.",
        parameters=SCHEMA,  # type: ignore[arg-type]
        output_schema={"type": "object"},  # type: ignore[arg-type]
        danger=Danger.MEDIUM,
        source=Source(kind="mcp", origin="files"),
    )


@pytest.mark.parametrize("key", ["parameters", "inputSchema", "input_schema", "schema"])
def test_the_schema_is_found_under_the_usual_keys(key: str) -> None:
    assert ToolDefinition.from_elsewhere({"name": "a", key: SCHEMA}).parameters == SCHEMA


def test_no_schema_means_no_parameters() -> None:
    definition = ToolDefinition.from_elsewhere({"name": "a", "inputSchema": None})
    assert definition.parameters == {"type": "object", "properties": {}}
    assert definition.output_schema is None


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("name", ["readFile", "READ-FILE", "_x", "9", "run", "execute", "a" * 64])
def test_a_portable_name_is_kept(name: str) -> None:
    definition = ToolDefinition.from_elsewhere({"name": name})
    assert (definition.name, definition.source.name) == (name, "")


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("name", ["files.read", "files/read", "日本", "a" * 65, " ", "read file"])
def test_an_odd_name_is_mapped_and_the_original_kept(name: str) -> None:
    definition = ToolDefinition.from_elsewhere({"name": name})
    assert PORTABLE_NAME.fullmatch(definition.name)
    assert definition.source.name == name


@pytest.mark.spec("DEF-2")
@given(TEXT.filter(bool))
def test_the_original_name_can_always_be_told(name: str) -> None:
    definition = ToolDefinition.from_elsewhere({"name": name})
    assert (definition.source.name or definition.name) == name
    assert ToolDefinition.from_dict(definition.to_dict()) == definition


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize(
    ("annotations", "danger"),
    [
        (None, Danger.MEDIUM),
        ({}, Danger.MEDIUM),
        ("readOnlyHint", Danger.MEDIUM),
        ({"readOnlyHint": True}, Danger.MEDIUM),
        ({"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}, Danger.MEDIUM),
        ({"danger": "safe"}, Danger.MEDIUM),
        ({"destructiveHint": "yes"}, Danger.MEDIUM),
        ({"destructiveHint": True}, Danger.HIGH),
        ({"destructiveHint": True, "readOnlyHint": True}, Danger.HIGH),
    ],
)
def test_annotations_raise_danger_and_never_lower_it(annotations: Any, danger: Danger) -> None:
    assert ToolDefinition.from_elsewhere({"name": "a", "annotations": annotations}).danger is danger


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize(
    "field",
    [{"danger": "safe"}, {"enabled": False}, {"sensitive": True}, {"capabilities": ["fs.read"]}],
)
def test_fields_of_ours_are_not_taken_from_elsewhere(field: dict[str, Any]) -> None:
    plain = ToolDefinition.from_elsewhere({"name": "a"})
    assert ToolDefinition.from_elsewhere({"name": "a", **field}) == plain


@pytest.mark.parametrize("name", [None, "", 5, ["a"]])
def test_a_tool_without_a_name_is_refused(name: object) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        ToolDefinition.from_elsewhere({"name": name})
    assert caught.value.problems == (
        Problem(
            field="name",
            code=Code.DEFINITION_INVALID,
            message="is not text",
            fix="the source must name it",
        ),
    )


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"inputSchema": []}, "parameters"),
        ({"inputSchema": {"default": float("nan")}}, "parameters/default"),
        ({"outputSchema": "object"}, "output_schema"),
    ],
)
def test_a_schema_that_is_no_json_object_is_refused_with_its_place(data: dict[str, Any], field: str) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        ToolDefinition.from_elsewhere({"name": "a", **data})
    assert [problem.field for problem in caught.value.problems] == [field]


def test_a_description_that_is_no_text_counts_as_none() -> None:
    assert ToolDefinition.from_elsewhere({"name": "a", "description": 5}).description == ""
