"""The built-in tools as they are declared, and that what runs them takes what they declare."""

import importlib
import inspect
from typing import Any

import pytest

from toolkeep import Limits, open_keep
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.session_state import SessionState
from toolkeep.flow.undeclared import arguments_without_role, places_without_label
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
    "restore_file": ("medium", ["FsRead", "FsWrite"], ["fs.read", "fs.write"], []),
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


_OPENS, _OURS = ({"": "text"}, True), ({"": {"system": "text"}}, False)
_GREETING = {
    "": "text",
    "/Message": {"system": "text"},
    "/ConversationId": "outside",
    "/SessionId": "outside",
}
FLOWS: dict[str, Any] = {
    # name: whether it acts, whether it leaves, labels and whether a result opens a session, roles
    "read_file": (False, False, _OPENS, "path target, encoding option, start_line option, end_line option, max_lines option"),
    "write_file": (True, False, _OURS, "path target, content content, mode target, create_directories option, encoding option"),
    "list_directory": (False, False, _OPENS, "path target, pattern record, recursive record, include_hidden record, max_depth option"),
    "grep_search": (False, False, _OPENS, "pattern record, path target, case_insensitive option, file_pattern record"),
    "edit_code": (True, False, _OURS, "path target, old_content content, new_content content"),
    "restore_file": (True, False, _OURS, "path target, expected_sha256 content, content content, content_base64 content"),
    "run_command": (True, True, _OPENS, "command target, working_directory target, timeout_seconds option, capture_stderr option"),
    "http_fetch": (True, True, _OPENS, "url destination, headers record"),
    "git_status": (False, False, _OPENS, "path target"),
    "git_diff": (False, False, _OPENS, "path target, staged record, revision record, file record"),
    "git_log": (False, False, _OPENS, "path target, max_count option, revision record, file record"),
    "git_commit": (True, True, _OPENS, "path target, message content, files target"),
    "git_push": (True, True, _OPENS, "path target, url destination, folder target, branch target, to_branch destination"),
    "web_search": (False, True, _OPENS, "query record, max_results option"),
    "agent_hello_world": (False, False, (_GREETING, False), "name record"),
}  # fmt: skip


@pytest.mark.spec("TLS-1", "FLO-1", "FLO-2")
def test_every_built_in_tool_declares_its_flow() -> None:
    found: dict[str, Any] = {}
    with open_keep() as keep:
        for tool in keep.tools():
            plan, session = make_plan(tool), SessionState("ada", "s", key="s")
            is_greeting = tool.name == "agent_hello_world"
            greeting = {"Message": "Hello, ada!", "ConversationId": "", "SessionId": "s-1"}
            opens, _ = session.observe(plan, greeting if is_greeting else "Some text.", b"", {})
            roles = ", ".join(f"{name} {role.value}" for name, role in plan.roles.items())
            found[tool.name] = (plan.acts, plan.leaves, (tool.definition.flow, opens), roles)
            missing = (
                arguments_without_role(plan, tool.definition),
                places_without_label(plan, tool.definition),
            )
            assert missing == ([], []), tool.name
            # A label that says no more than none costs no more: such results are not looked into again.
            assert plan.reader.has_labels is (tool.definition.flow != {"": "text"}), tool.name
    assert found == FLOWS
