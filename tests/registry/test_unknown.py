"""The answer to a name that no tool has."""

import logging

import pytest

from toolkeep import Code
from toolkeep.calls import Violation
from toolkeep.registry.unknown import unknown_tool

pytestmark = pytest.mark.spec("VAL-8")


def test_the_refusal_names_the_nearest_tools_and_the_one_that_was_meant() -> None:
    refusal = unknown_tool("reed_file", ["write_file", "read_file", "list_directory"], correlation_id="c-1")
    assert refusal.code is Code.UNKNOWN_TOOL
    assert (refusal.tool, refusal.correlation_id) == ("reed_file", "c-1")
    assert refusal.errors == (
        Violation(
            "",
            Code.UNKNOWN_TOOL,
            "Unknown tool 'reed_file'",
            "one of 3 tools: read_file, write_file, list_directory",
            None,
            "Did you mean 'read_file'?",
        ),
    )


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    refusal = unknown_tool("quux", ["read_file", "list_directory"])
    assert refusal.errors[0].suggestion == "Use one of the tools that are listed."


def test_a_keep_without_tools_says_so() -> None:
    refusal = unknown_tool("quux", [])
    assert refusal.errors[0].expected == "no tool is registered"


def test_at_most_twenty_names_are_listed_and_the_rest_is_counted() -> None:
    expected = unknown_tool("tool_1", [f"tool_{number}" for number in range(1000)]).errors[0].expected
    start, _, names = expected.partition(": ")
    listed, _, rest = names.partition(" and ")
    assert start == "one of 1000 tools"
    assert listed.split(", ")[0] == "tool_1"
    assert len(set(listed.split(", "))) == 20
    assert rest == "980 more"


def test_a_name_that_would_deceive_is_shown_harmless_and_short() -> None:
    refusal = unknown_tool("\u202e" + "x" * 1000, ["read_file"])
    assert refusal.tool.startswith("\\u202exxx")
    assert len(refusal.tool) <= 80
    assert "\u202e" not in refusal.text


@pytest.mark.spec("VAL-6")
def test_every_refusal_carries_a_correlation_id() -> None:
    first, second = unknown_tool("a", []), unknown_tool("a", [])
    assert len(first.correlation_id) == 16
    assert first.correlation_id != second.correlation_id


def test_an_unknown_tool_is_a_warning_without_its_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="toolkeep.registry")
    unknown_tool("made_up", [], correlation_id="c-1")
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "unknown tool")
    assert record.__dict__.items() >= {"tool_name": "unknown", "correlation_id": "c-1"}.items()
