"""The built-in tools as they are declared, and that what runs them takes what they declare."""

import importlib
import inspect

import pytest

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.tools.catalogue import BUILT_IN_TOOLS, BuiltIn

TOOLS = pytest.mark.parametrize(
    ("tool", "runner"), BUILT_IN_TOOLS, ids=lambda part: getattr(part, "name", "")
)


@TOOLS
def test_what_runs_a_tool_takes_exactly_its_parameters_with_their_defaults(
    tool: ToolDefinition, runner: BuiltIn
) -> None:
    module, _, name = runner.target.partition(":")
    taken = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    schema = tool.to_dict()["parameters"]
    assert set(taken) == set(schema["properties"])
    for key, declared in schema["properties"].items():
        if taken[key].default is inspect.Parameter.empty:
            assert key in schema["required"] or "default" in declared
        else:
            assert taken[key].default == declared.get("default")


@pytest.mark.parametrize(
    ("name", "danger", "effects", "aliases"),
    [
        ("read_file", "safe", ["FsRead"], ["file_read"]),
        ("write_file", "medium", ["FsWrite"], ["file_write"]),
        ("list_directory", "safe", ["FsRead"], ["directory_list"]),
        ("grep_search", "safe", ["FsRead"], []),
        ("edit_code", "medium", ["FsRead", "FsWrite"], []),
    ],
)
def test_danger_and_effects(name: str, danger: str, effects: list[str], aliases: list[str]) -> None:
    (data,) = (tool.to_dict() for tool, _ in BUILT_IN_TOOLS if tool.name == name)
    assert (data["danger"], data["side_effects"], data.get("aliases", [])) == (danger, effects, aliases)
    assert data["constraints"]["required_isolation"] == "strict"
