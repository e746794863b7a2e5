"""One tool, defined in every way: the definitions are equal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from toolkeep import InvokeResult, ToolContext, ToolDefinition, ToolParameter, Touches, tool
from toolkeep.authoring.agent_tool_class import definition_of_class
from toolkeep.sources.definition_files import load_definitions

USAGE = "Use it for text files."

DATA: dict[str, Any] = {
    "name": "read_file",
    "description": "Read a file.",
    "category": "file_system",
    "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file.", "x-touches": "fs.read"},
            "lines": {
                "type": "integer",
                "description": "How many.",
                "minimum": 1,
                "maximum": 50,
                "default": 10,
            },
            "encoding": {
                "type": "string",
                "description": "How it is written.",
                "enum": ["utf-8", "ascii"],
                "default": "utf-8",
            },
        },
        "required": ["path"],
    },
    "capabilities": ["fs.read:./docs"],
    "side_effects": ["FsRead"],
    "determinism": "Deterministic",
    "usage_metadata": USAGE,
}

FIELDS: dict[str, Any] = {
    "category": "file_system",
    "capabilities": ["fs.read:./docs"],
    "side_effects": ["FsRead"],
    "determinism": "Deterministic",
}

YAML = """\
name: read_file
description: Read a file.
category: FileSystem
parameters:
  - {name: path, description: The file., type: string, required: true, schema: {x-touches: fs.read}}
  - name: lines
    description: How many.
    type: integer
    default: 10
    schema: {minimum: 1, maximum: 50}
  - {name: encoding, description: How it is written., type: string, enum: [utf-8, ascii], default: utf-8}
capabilities: ["fs.read:./docs"]
side_effects: [FsRead]
determinism: Deterministic
usage_metadata: Use it for text files.
"""


@tool(usage_metadata=USAGE, **FIELDS)
def read_file(
    path: Annotated[str, Touches("fs.read")],
    lines: Annotated[int, Field(ge=1, le=50)] = 10,
    encoding: Literal["utf-8", "ascii"] = "utf-8",
) -> str:
    """Read a file.

    Args:
        path: The file.
        lines: How many.
        encoding: How it is written.
    """
    return f"{path} {lines} {encoding}"


class ReadFile:
    TOOL_NAME = "read_file"
    TOOL_USAGE_METADATA = USAGE
    TOOL_FIELDS = FIELDS
    is_tool_fully_executed_on_server = True

    @property
    def name(self) -> str:
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        return {
            "type": "function",
            "name": ReadFile.TOOL_NAME,
            "description": "Read a file.",
            "parameters": DATA["parameters"],
        }

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        return InvokeResult.ok(arguments_json)


def as_function(_: Path) -> ToolDefinition:
    return read_file.definition


def as_builder(_: Path) -> ToolDefinition:
    encoding = ToolParameter.string_enum("encoding", "How it is written.", ["utf-8", "ascii"])
    return (
        ToolDefinition.builder("read_file")
        .description("Read a file.")
        .param(
            ToolParameter.string("path", "The file.").with_schema(**{"x-touches": "fs.read"}), required=True
        )
        .param(ToolParameter.integer("lines", "How many.").with_range(1, 50).with_default(10))
        .param(encoding.with_default("utf-8"))
        .set(usage_metadata=USAGE, **FIELDS)
        .build()
    )


def as_class(_: Path) -> ToolDefinition:
    return definition_of_class(ReadFile)


def as_json(folder: Path) -> ToolDefinition:
    return loaded(folder / "tool.json", json.dumps(DATA))


def as_yaml(folder: Path) -> ToolDefinition:
    return loaded(folder / "tool.yaml", YAML)


def loaded(path: Path, text: str) -> ToolDefinition:
    path.write_text(text)
    (entry,) = load_definitions(path)
    assert entry.definition is not None, entry.error
    return entry.definition


@pytest.mark.spec("DEF-9")
@pytest.mark.parametrize("way", [as_function, as_builder, as_class, as_json, as_yaml])
def test_every_way_gives_the_same_definition(way: Callable[[Path], ToolDefinition], tmp_path: Path) -> None:
    definition, expected = way(tmp_path), ToolDefinition.from_dict(DATA)
    assert definition == expected
    assert definition.hash == expected.hash
    assert list(definition.properties) == ["path", "lines", "encoding"]


@pytest.mark.spec("DEF-9")
@pytest.mark.parametrize("way", [as_function, as_builder, as_class, as_json, as_yaml])
def test_a_definition_without_its_default_is_another_one(
    way: Callable[[Path], ToolDefinition], tmp_path: Path
) -> None:
    other = json.loads(json.dumps(DATA))
    del other["parameters"]["properties"]["lines"]["default"]
    assert way(tmp_path) != ToolDefinition.from_dict(other)
    assert way(tmp_path).hash != ToolDefinition.from_dict(other).hash
