"""The built-in tools as they are declared, and that what runs them takes what they declare."""

import importlib
import inspect

import pytest

from toolkeep import Limits, open_keep
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.tools.catalog import BUILT_IN_TOOLS, BuiltIn, web_search

TOOLS = pytest.mark.parametrize(
    ("tool", "runner"), BUILT_IN_TOOLS, ids=lambda part: getattr(part, "name", "")
)


@TOOLS
def test_what_runs_a_tool_takes_exactly_its_parameters_with_their_defaults(
    tool: ToolDefinition, runner: BuiltIn
) -> None:
    module, _, name = runner.target.partition(":")
    signature = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    taken = {key: value for key, value in signature.items() if key != "context"}
    schema = tool.to_dict()["parameters"]
    assert set(taken) == set(schema["properties"])
    for key, declared in schema["properties"].items():
        if taken[key].default is inspect.Parameter.empty:
            assert key in schema["required"] or "default" in declared
        else:
            assert taken[key].default == declared.get("default")


def test_schemas_are_compiled_on_first_use_and_admitted_by_the_default_limits() -> None:
    with open_keep() as keep:
        tools = keep.tools()
        assert not any("_both" in vars(tool.schemas) for tool in tools)
        assert [(tool.name, tool.schemas.problems, tool.schemas.warnings) for tool in tools] == [
            (tool.name, [], []) for tool in tools
        ]
        assert all(tool.arguments.schema == tool.definition.parameters for tool in tools)
        assert all(tool.output for tool in tools if tool.definition.output_schema)
    with open_keep(limits=Limits(schema_bytes=300)) as keep:
        refused = {skipped.tool for skipped in keep.start_up.skipped}
    assert "read_file" in refused


GIT = "process.spawn:/usr/bin/git"
READS = ["FsRead"]
DECLARED = {
    "read_file": ("safe", READS, ["fs.read"], ["file_read"]),
    "write_file": ("medium", ["FsWrite"], ["fs.write"], ["file_write"]),
    "list_directory": ("safe", READS, ["fs.read"], ["directory_list"]),
    "grep_search": ("safe", READS, ["fs.read"], []),
    "edit_code": ("medium", ["FsRead", "FsWrite"], ["fs.read", "fs.write"], []),
    "run_command": (
        "high",
        ["FsRead", "FsWrite", "ProcessSpawn"],
        ["fs.read", "fs.write", "process.spawn"],
        ["command_execute"],
    ),
    "http_fetch": ("low", ["NetRead"], ["net.read"], ["web_fetch"]),
    "web_search": ("safe", ["NetRead"], ["net.read:search.example"], []),
    "git_status": ("safe", READS, ["fs.read"], []),
    "git_diff": ("safe", READS, ["fs.read"], []),
    "git_log": ("safe", READS, ["fs.read"], []),
    "git_commit": ("medium", ["FsRead", "FsWrite", "ProcessSpawn"], ["fs.read", "fs.write", GIT], []),
    "git_push": (
        "high",
        ["FsRead", "FsWrite", "NetWrite", "ProcessSpawn"],
        ["fs.read", "fs.write", "net.write", GIT],
        [],
    ),
}
"""Danger, side effects, capabilities and aliases of every tool that comes with a keep."""


@pytest.mark.spec("TLS-1", "TLS-2")
def test_every_tool_says_what_it_does_to_the_world() -> None:
    tools = [tool for tool, _ in (*BUILT_IN_TOOLS, web_search("https://search.example/"))]
    data = {tool.name: tool.to_dict() for tool in tools}
    said = {
        name: (one["danger"], one["side_effects"], one["capabilities"], one.get("aliases", []))
        for name, one in data.items()
    }
    assert said == DECLARED
    assert {one["constraints"]["required_isolation"] for one in data.values()} == {"strict"}
    steady = {name for name, one in data.items() if one["determinism"] == "Deterministic"}
    assert steady == {"read_file", "list_directory", "grep_search"}


def test_only_our_own_words_about_a_write_are_labelled() -> None:
    labelled = {tool.name: dict(tool.flow) for tool, _ in BUILT_IN_TOOLS if tool.flow}
    assert labelled == {name: {"": {"system": "text"}} for name in ("write_file", "edit_code")}
